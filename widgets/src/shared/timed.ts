// A pane with the common time axis: columns line up between panes of the same width.
import { html, svg } from "./markup";
import type { Send } from "./pane";
import { keys } from "./keyboard";
import { Panel } from "./panel";
import { type Box, Scale } from "./plot";
import type { Range, Selection, Tensor } from "./selection";
import type { Instants } from "./instants";

/** Margins shared by all timed panes, in pixels; the vertical margins differ. */
const MARGIN = { left: 62, right: 14 } as const;

const LEAST_HEIGHT = 88; // pixels of a plot
const LEAST_RANGE = 2; // instants of the smallest visible range
const DRAGGED = 4; // pixels from which a click is a drag
const ZOOM = 1.5; // factor of one step

/** The content at a position of a plot: its operations, or its tensor; and its instant, if that is another one. */
export interface Described {
  readonly text: string;
  readonly ids: readonly number[];
  readonly tensor?: Tensor;
  readonly instant?: number;
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
  readonly #brush = svg("rect", { class: "trl-brush" });
  readonly #whole = html(
    "button",
    { title: "show the whole turn: Escape, 0, or double click", hidden: true },
    "whole turn",
  );
  #width = 0;
  #pressed: "scrub" | "click" | "range" | null = null;
  #start = 0;

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
    this.#whole.addEventListener("click", () => this.selection.zoom(null));
    this.tools.append(this.#whole);
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

  /** The length of the time axis, in instants. */
  protected get extent(): number {
    return this.count;
  }

  /** The height of the plot, in pixels. */
  protected get tall(): number {
    return this.height;
  }

  /** The visible range of instants; undefined for the whole turn. */
  protected get visible(): Range | undefined {
    const { range } = this.selection;
    if (!range) return undefined;
    const found: Range = [Math.max(range[0], 0), Math.min(range[1], this.extent)];
    return found[1] - found[0] < LEAST_RANGE ? undefined : found;
  }

  /** The horizontal position of an instant. */
  protected px(instant: number): number {
    return this.scale.px(instant);
  }

  /** The instant at a horizontal position; its fraction is the position inside the instant. */
  protected at(px: number): number {
    return this.scale.at(px);
  }

  override range(): void {
    this.repaint();
  }

  override instant(): void {
    const at = this.selection.instant;
    const [from, to] = this.visible ?? [0, Infinity];
    const isShown = at !== null && at < to && at + 1 > from;
    this.#head.style.display = isShown ? "" : "none";
    const values = { valuemin: 0, valuemax: Math.max(this.count - 1, 0), valuenow: at ?? 0 };
    for (const [name, value] of Object.entries(values)) {
      this.plot.setAttribute(`aria-${name}`, String(value));
    }
    const runs = at === null ? "no instant" : `instant ${at} ${this.instants?.text(at) ?? ""}`;
    this.plot.setAttribute("aria-valuetext", runs.trim());
    if (!isShown) return;
    const { top, height } = this.scale.box;
    const [left, right] = [this.px(Math.max(at, from)), this.px(Math.min(at + 1, to))];
    this.#head.setAttribute("x", String(left));
    this.#head.setAttribute("y", String(top));
    this.#head.setAttribute("width", String(Math.max(right - left, 1)));
    this.#head.setAttribute("height", String(height));
  }

  /** The box of a plot of some width, with margins above and below it. */
  protected box(width: number, top: number, below: number): Box {
    const { left, right } = MARGIN;
    return { left, top, width: width - left - right, height: this.tall - top - below };
  }

  /** Draw everything again, `width` pixels wide, with `this.scale` set. */
  protected abstract paint(width: number): SVGElement[];

  /** The description of a position, also used for clicks. */
  protected abstract describe(x: number, y: number): Described | null;

  protected repaint(): void {
    if (!this.#width) return;
    if (!this.count) return this.plot.replaceChildren();
    this.plot.setAttribute("width", String(this.#width));
    this.plot.setAttribute("height", String(this.tall));
    this.plot.setAttribute("viewBox", `0 0 ${this.#width} ${this.tall}`);
    this.plot.replaceChildren(...this.paint(this.#width), this.#head, this.#brush);
    this.#tell();
    this.select();
    this.instant();
  }

  #resize(): void {
    const width = Math.floor(this.body.clientWidth);
    if (width === this.#width || !width) return;
    this.#width = width;
    this.repaint();
  }

  /** Write the visible range beside its button. */
  #tell(): void {
    const range = this.visible;
    this.#whole.hidden = !range;
    if (!range) return;
    this.#whole.textContent = `instants ${Math.floor(range[0])}–${Math.ceil(range[1]) - 1} ×`;
  }

  #listen(): void {
    const place = (event: MouseEvent): [number, number] => {
      const area = this.plot.getBoundingClientRect();
      return [event.clientX - area.left, event.clientY - area.top];
    };
    const scrub = (px: number) => this.#go(this.at(px) - 0.5);
    this.plot.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      const [px, py] = place(event);
      const { top, height } = this.scale.box;
      this.#start = px;
      this.#pressed = py > top + height ? "scrub" : "click"; // the labels of the axis move the instant
      this.plot.setPointerCapture(event.pointerId);
      if (this.#pressed === "scrub") scrub(px);
    });
    this.plot.addEventListener("pointermove", (event) => {
      const [px, py] = place(event);
      if (this.#pressed === "click" && Math.abs(px - this.#start) > DRAGGED)
        this.#pressed = "range";
      if (this.#pressed === "scrub") scrub(px);
      if (this.#pressed === "range") this.#mark(px);
      else this.#hint(px, py);
    });
    this.plot.addEventListener("pointerup", (event) => {
      const [px, py] = place(event);
      if (this.#pressed === "click") this.#click(px, py, event);
      if (this.#pressed === "range") this.#select(px);
    });
    this.plot.addEventListener("lostpointercapture", () => {
      this.#pressed = null;
      this.#brush.style.display = "none";
    });
    this.plot.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.plot.addEventListener("dblclick", () => this.selection.zoom(null));
    this.plot.addEventListener("wheel", (event) => this.#wheel(event, place(event)[0]), {
      passive: false,
    });
    keys(this.plot, (event) => {
      const now = this.selection.instant ?? 0;
      const by = event.shiftKey ? 10 : 1;
      return {
        ArrowRight: () => this.#go(now, by),
        ArrowLeft: () => this.#go(now, -by),
        Home: () => this.#go(0),
        End: () => this.#go(this.count - 1),
        "+": () => this.#zoom(1 / ZOOM, now + 0.5),
        "=": () => this.#zoom(1 / ZOOM, now + 0.5),
        "-": () => this.#zoom(ZOOM, now + 0.5),
        "0": () => this.selection.zoom(null),
        Enter: () => this.selection.click(this.instants?.statement(now)?.op_ids ?? []),
      };
    });
  }

  protected override leave(): void {
    if (this.visible) this.selection.zoom(null);
    else super.leave();
  }

  #click(px: number, py: number, event: PointerEvent): void {
    const found = this.describe(px, py);
    const more = event.shiftKey || event.ctrlKey || event.metaKey;
    const isOther = found?.instant !== undefined && found.instant !== this.selection.instant;
    if (found?.tensor) this.selection.pick(found.tensor, more);
    // another launch of the selected kernel
    else if (found?.ids.length && !(isOther && !more && this.selection.isExactly(found.ids)))
      this.selection.click(found.ids, more);
    this.#go(found?.instant ?? this.at(px) - 0.5);
  }

  /** Mark the dragged range. */
  #mark(px: number): void {
    const { left, top, width, height } = this.scale.box;
    const [from, to] = [Math.min(px, this.#start), Math.max(px, this.#start)];
    const [x, end] = [Math.max(from, left), Math.min(to, left + width)];
    const box = { x, y: top, width: Math.max(end - x, 0), height };
    for (const [name, value] of Object.entries(box)) this.#brush.setAttribute(name, String(value));
    this.#brush.style.display = "";
    this.tip.hidden = true;
  }

  /** Show the dragged range. */
  #select(px: number): void {
    const [from, to] = [Math.min(px, this.#start), Math.max(px, this.#start)].map((x) =>
      Math.min(Math.max(this.at(x), 0), this.extent),
    );
    const first = Math.floor(from!);
    this.#show(first, Math.max(Math.ceil(to!) - first, LEAST_RANGE));
  }

  /** Make the visible range `by` times as long around a position. */
  #zoom(by: number, around: number): void {
    const [from, to] = this.visible ?? [0, this.extent];
    const long = Math.max((to - from) * by, LEAST_RANGE);
    const at = around >= from && around <= to ? around : (from + to) / 2;
    this.#show(at - ((at - from) * long) / (to - from), long);
  }

  /** Show a number of instants, from `first` on if possible. */
  #show(first: number, long: number): void {
    const from = Math.min(Math.max(first, 0), Math.max(this.extent - long, 0));
    this.selection.zoom(long < this.extent ? [from, from + long] : null);
  }

  /** Zoom with Control; move a part sideways. */
  #wheel(event: WheelEvent, px: number): void {
    const range = this.visible;
    if (event.ctrlKey || event.metaKey) {
      const steps = Math.min(Math.max(event.deltaY / 100, -1), 1);
      this.#zoom(ZOOM ** steps, this.at(px));
    } else if (range && event.deltaX) {
      const [from, to] = range;
      this.#show(from + ((to - from) * event.deltaX) / 500, to - from);
    } else return;
    event.preventDefault();
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
    this.tip.style.top = `${above + Math.min(py + 10, this.tall - 40)}px`;
  }
}
