// A pane with the common time axis: columns line up between panes of the same width.
import { isAdding } from "./keyboard";
import { svg } from "./markup";
import type { Send } from "./pane";
import { fill, Panel } from "./panel";
import { type Box, Scale } from "./plot";
import type { Range, Selection, Tensor } from "./selection";
import type { Instants } from "./instants";
import { TimeWindow } from "./time_window";
import { Tip } from "./tip";

/** Margins shared by all timed panes, in pixels; the vertical margins differ. */
const MARGIN = { left: 62, right: 14 } as const;

const LEAST_HEIGHT = 88; // pixels of a plot
const LEAST_RANGE = 2; // instants of the smallest visible range

/** The content at a position of a plot: its operations, or its tensor; and its instant, if that is another one. */
export interface Description {
  readonly text: string;
  readonly ids: readonly number[];
  readonly tensor?: Tensor;
  readonly instant?: number;
}

export abstract class TimeAxisPane<Model> extends Panel<Model> {
  protected readonly plot = svg("svg", {
    class: "trl-plot",
    tabindex: 0,
    role: "slider",
    "data-first": true,
  });
  protected readonly tip: Tip;
  protected instants: Instants | null = null;
  protected scale = new Scale({ left: 0, top: 0, width: 1, height: 1 }, [0, 1], [0, 1]);
  protected height: number;
  readonly #head = svg("rect", { class: "trl-playhead" });
  readonly #window = new TimeWindow(
    () => this.selection.zoom(this.#window.isWhole ? null : [...this.#window.range]),
    (begin, end) => `instants ${Math.floor(begin)}–${Math.ceil(end) - 1}`,
    LEAST_RANGE,
  );

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
    this.body.append(this.plot);
    this.tip = new Tip(this.body);
    this.onWidth(() => this.repaint());
    this.#window.button.title = "show the whole turn: Escape, 0, or double click";
    this.tools.append(this.#window.button);
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
  protected abstract describe(x: number, y: number): Description | null;

  protected repaint(): void {
    if (!this.width) return;
    if (!this.count) return this.plot.replaceChildren();
    fill(this.plot, this.width, this.tall, [...this.paint(this.width), this.#head]);
    this.#window.extend(this.extent);
    if (this.visible) this.#window.place(...this.visible);
    this.select();
    this.instant();
  }

  #listen(): void {
    let isScrubbing = false;
    const pointOf = (event: MouseEvent): [number, number] => {
      const area = this.plot.getBoundingClientRect();
      return [event.clientX - area.left, event.clientY - area.top];
    };
    const scrub = (event: MouseEvent) => this.#go(this.at(pointOf(event)[0]) - 0.5);
    this.plot.addEventListener("pointerdown", (event) => {
      const { top, height } = this.scale.box;
      if (event.button || pointOf(event)[1] <= top + height) return;
      isScrubbing = true; // the labels of the axis move the instant
      event.stopImmediatePropagation();
      this.plot.setPointerCapture(event.pointerId);
      scrub(event);
    });
    this.plot.addEventListener("lostpointercapture", () => (isScrubbing = false));
    this.#window.control(
      this.plot,
      () => this.scale,
      (event) => this.#click(...pointOf(event), event),
      {
        at: (px) => this.at(px),
        moment: () => (this.selection.instant ?? 0) + 0.5,
        keys: ({ shiftKey }) => {
          const now = this.selection.instant ?? 0;
          const by = shiftKey ? 10 : 1;
          return {
            ArrowRight: () => this.#go(now, by),
            ArrowLeft: () => this.#go(now, -by),
            Home: () => this.#go(0),
            End: () => this.#go(this.count - 1),
            Enter: () => this.selection.click(this.instants?.statement(now)?.op_ids ?? []),
          };
        },
      },
    );
    this.plot.addEventListener("pointermove", (event) => {
      if (isScrubbing) scrub(event);
      const found = this.#window.isDragged ? null : this.describe(...pointOf(event));
      this.plot.style.cursor = found ? "pointer" : "ew-resize";
      this.tip.show(found?.text ?? "", event);
    });
    this.plot.addEventListener("pointerleave", () => this.tip.hide());
  }

  protected override leave(): void {
    if (!this.#window.reset()) super.leave();
  }

  #click(px: number, py: number, event: PointerEvent): void {
    const found = this.describe(px, py);
    const more = isAdding(event);
    const isOther = found?.instant !== undefined && found.instant !== this.selection.instant;
    if (found?.tensor) this.selection.pick(found.tensor, more);
    // another launch of the selected kernel
    else if (found?.ids.length && !(isOther && !more && this.selection.isExactly(found.ids)))
      this.selection.click(found.ids, more);
    this.#go(found?.instant ?? this.at(px) - 0.5);
  }

  #go(at: number, by = 0): void {
    if (!this.count) return;
    const to = Math.min(Math.max(Math.round(at), 0), this.count - 1);
    this.selection.at(
      this.instants?.near(to, by) ?? Math.min(Math.max(to + by, 0), this.count - 1),
    );
  }
}
