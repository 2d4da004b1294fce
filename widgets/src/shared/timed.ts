// A pane with the common time axis: columns line up between panes of the same width.
import { html, svg } from "./markup";
import type { Send } from "./pane";
import { keys } from "./keyboard";
import { Panel } from "./panel";
import { type Box, Scale } from "./plot";
import type { Selection, Tensor } from "./selection";
import type { Instants } from "./instants";

/** Margins shared by all timed panes, in pixels; the vertical margins differ. */
const MARGIN = { left: 62, right: 14 } as const;

const LEAST_HEIGHT = 88; // pixels of a plot

/** The content at a position of a plot: its operations, or its tensor. */
export interface Described {
  readonly text: string;
  readonly ids: readonly number[];
  readonly tensor?: Tensor;
}

export abstract class TimedPane<Model> extends Panel<Model> {
  protected readonly plot = svg("svg", {
    class: "trl-plot",
    tabindex: 0,
    role: "slider",
    "data-first": true,
  });
  protected readonly tip = html("div", { class: "trl-tip", hidden: true });
  protected instants: Instants | null = null;
  protected scale = new Scale({ left: 0, top: 0, width: 1, height: 1 }, [0, 1], [0, 1]);
  protected height: number;
  readonly #head = svg("rect", { class: "trl-playhead" });
  #width = 0;
  #pressed = false;

  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    name: string,
    title: string,
    css: string,
    private readonly greatestHeight: number,
  ) {
    super(host, selection, send, name, title, css);
    this.height = greatestHeight;
    this.body.append(this.plot, this.tip);
    this.onResize(this.body, () => this.#resize());
    this.#listen();
    this.offerPictures();
  }

  /** Set the statements of the instants. */
  follow(instants: Instants | null): void {
    this.instants = instants;
  }

  /** Draw the plot with a height, within its limits. */
  fit(height: number): void {
    const found = Math.round(Math.min(Math.max(height, LEAST_HEIGHT), this.greatestHeight));
    if (found === this.height) return;
    this.height = found;
    this.repaint();
  }

  /** The number of instants. */
  protected abstract get count(): number;

  override instant(): void {
    const at = this.selection.instant;
    this.#head.style.display = at === null ? "none" : "";
    const values = { valuemin: 0, valuemax: Math.max(this.count - 1, 0), valuenow: at ?? 0 };
    for (const [name, value] of Object.entries(values)) {
      this.plot.setAttribute(`aria-${name}`, String(value));
    }
    const runs = at === null ? "no instant" : `instant ${at} ${this.instants?.text(at) ?? ""}`;
    this.plot.setAttribute("aria-valuetext", runs.trim());
    if (at === null) return;
    const { top, height } = this.scale.box;
    const [left, right] = [this.scale.px(at), this.scale.px(at + 1)];
    this.#head.setAttribute("x", String(left));
    this.#head.setAttribute("y", String(top));
    this.#head.setAttribute("width", String(Math.max(right - left, 1)));
    this.#head.setAttribute("height", String(height));
  }

  /** The box of a plot of some width, with margins above and below it. */
  protected box(width: number, top: number, below: number): Box {
    const { left, right } = MARGIN;
    return { left, top, width: width - left - right, height: this.height - top - below };
  }

  /** Draw everything again, `width` pixels wide, with `this.scale` set. */
  protected abstract paint(width: number): SVGElement[];

  /** The description of a position, also used for clicks. */
  protected abstract describe(x: number, y: number): Described | null;

  protected repaint(): void {
    if (!this.#width) return;
    if (!this.count) return this.plot.replaceChildren();
    this.plot.setAttribute("width", String(this.#width));
    this.plot.setAttribute("height", String(this.height));
    this.plot.setAttribute("viewBox", `0 0 ${this.#width} ${this.height}`);
    this.plot.replaceChildren(...this.paint(this.#width), this.#head);
    this.select();
    this.instant();
  }

  #resize(): void {
    const width = Math.floor(this.body.clientWidth);
    if (width === this.#width || !width) return;
    this.#width = width;
    this.repaint();
  }

  #listen(): void {
    const place = (event: PointerEvent): [number, number] => {
      const area = this.plot.getBoundingClientRect();
      return [event.clientX - area.left, event.clientY - area.top];
    };
    const scrub = (px: number) => this.#go(this.scale.at(px) - 0.5);
    this.plot.addEventListener("pointerdown", (event) => {
      const [px, py] = place(event);
      const found = this.describe(px, py);
      const more = event.shiftKey || event.ctrlKey || event.metaKey;
      if (found?.tensor) this.selection.pick(found.tensor, more);
      else if (found?.ids.length) this.selection.click(found.ids, more);
      this.#pressed = true;
      this.plot.setPointerCapture(event.pointerId);
      scrub(px);
    });
    this.plot.addEventListener("pointermove", (event) => {
      const [px, py] = place(event);
      if (this.#pressed && event.buttons) scrub(px);
      this.#hint(px, py);
    });
    this.plot.addEventListener("pointerup", () => (this.#pressed = false));
    this.plot.addEventListener("pointerleave", () => (this.tip.hidden = true));
    keys(this.plot, (event) => {
      const now = this.selection.instant ?? 0;
      const by = event.shiftKey ? 10 : 1;
      return {
        ArrowRight: () => this.#go(now, by),
        ArrowLeft: () => this.#go(now, -by),
        Home: () => this.#go(0),
        End: () => this.#go(this.count - 1),
        Enter: () => this.selection.click(this.instants?.statement(now)?.op_ids ?? []),
      };
    });
  }

  #go(at: number, by = 0): void {
    if (!this.count) return;
    const to = Math.min(Math.max(Math.round(at), 0), this.count - 1);
    this.selection.at(
      this.instants?.near(to, by) ?? Math.min(Math.max(to + by, 0), this.count - 1),
    );
  }

  #hint(px: number, py: number): void {
    const found = this.describe(px, py);
    this.tip.hidden = !found;
    this.plot.style.cursor = found ? "pointer" : "ew-resize";
    if (!found) return;
    this.tip.textContent = found.text;
    const right = px > this.#width * 0.6;
    this.tip.style.left = right ? "" : `${px + 14}px`;
    this.tip.style.right = right ? `${this.#width - px + 14}px` : "";
    const [plot, body] = [this.plot, this.body].map((one) => one.getBoundingClientRect().top);
    const above = plot! - body! + this.body.scrollTop;
    this.tip.style.top = `${above + Math.min(py + 10, this.height - 40)}px`;
  }
}
