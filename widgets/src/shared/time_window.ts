// Visible window of a time axis, moved and scaled by pointer, wheel and keys.
import { keys } from "./keyboard";
import { html, svg } from "./markup";
import type { Scale } from "./plot";

const LEAST_DRAG = 4; // pixels; a shorter movement is a click
const ZOOM = 1.5; // factor of one step of the wheel

/** Receives a click with the element at its position. */
export type Click = (event: PointerEvent, target: Element) => void;

/** Overrides for a plot with its own axis instead of the scale's, or with further keys. */
export interface OwnAxis {
  /** The moment at a horizontal position. */
  at?(px: number): number;
  /** The moment around which keys zoom. */
  moment?(): number;
  keys?(event: KeyboardEvent): Record<string, () => void>;
}

/** Part of a time axis. */
export class TimeWindow {
  #first = 0;
  #last = 1;
  #range: readonly [number, number] = [0, 1];

  /** Shows the window while it is not the whole axis, and resets it. */
  readonly button = html("button", { title: "show everything: Escape, 0, or double click" });

  /** Whether the pointer is marking a range. */
  isDragged = false;

  /**
   * `changed` is called after each change by the user; `text` formats a window; no window is shorter than `least`.
   * If that is 1 or more, the axis counts, and a dragged window has whole ends.
   */
  constructor(
    private readonly changed: () => void,
    private readonly text: (begin: number, end: number) => string,
    private readonly least = 0,
  ) {
    this.button.hidden = true;
    this.button.addEventListener("click", () => this.reset());
  }

  get range(): readonly [number, number] {
    return this.#range;
  }

  /** Whether the window covers the whole axis. */
  get isWhole(): boolean {
    const [begin, end] = this.#range;
    return end - begin >= this.#last - this.#first;
  }

  /** Set the end of an axis that begins at 0, and show all of it. */
  extend(last: number): void {
    [this.#first, this.#last] = [0, Math.max(last, this.least) || 1];
    this.#set(0, this.#last);
  }

  /** Set the ends of a growing axis; a window that shows all of it still does. */
  follow(first: number, last: number): void {
    const { isWhole } = this;
    [this.#first, this.#last] = [first, last > first ? last : first + 1];
    if (isWhole) this.#set(this.#first, this.#last);
  }

  #set(begin: number, end: number): void {
    this.#range = [begin, end];
    this.button.hidden = this.isWhole;
    this.button.textContent = `${this.text(begin, end)} ×`;
  }

  /** Show a window, as far as it is on the axis. */
  show(begin: number, end: number): void {
    if (this.place(begin, end)) this.changed();
  }

  /** The same without a call of `changed`; returns whether the window is another one. */
  place(begin: number, end: number): boolean {
    const whole = this.#last - this.#first;
    const size = Math.min(Math.max(end - begin, this.least, whole * 1e-9), whole);
    const from = Math.min(Math.max(begin, this.#first), this.#last - size);
    const [before, after] = this.#range;
    this.#set(from, from + size);
    return from !== before || from + size !== after;
  }

  /** Multiply the length of the window, around a visible moment or else its middle. */
  zoom(by: number, around = NaN): void {
    const [begin, end] = this.#range;
    const at = around >= begin && around <= end ? around : (begin + end) / 2;
    const size = Math.max((end - begin) * by, this.least);
    const from = at - ((at - begin) * size) / (end - begin);
    this.show(from, from + size);
  }

  /** Move the window by a fraction of its length. */
  move(by: number): void {
    const [begin, end] = this.#range;
    const step = Math.min(Math.max((end - begin) * by, this.#first - begin), this.#last - end);
    this.show(begin + step, end + step);
  }

  /** Show the whole axis; false if it was shown. */
  reset(): boolean {
    const zoomed = !this.isWhole;
    this.show(this.#first, this.#last);
    return zoomed;
  }

  /**
   * Control the window in a plot. Dragging shows the marked range, and a double click or 0 shows everything.
   * The wheel zooms with control, and moves the window sideways.
   */
  control(plot: SVGSVGElement, scale: () => Scale, click: Click, own: OwnAxis = {}): void {
    const at = own.at ?? ((px: number) => scale().at(px));
    const pxOf = (event: MouseEvent) => event.clientX - plot.getBoundingClientRect().left;
    const marked = svg("rect", { class: "trl-brush" });
    let pressed: number | null = null;
    let target: Element = plot;
    const mark = (event: PointerEvent): [number, number] | null => {
      if (pressed === null || Math.abs(pxOf(event) - pressed) < LEAST_DRAG) return null;
      const { left, width } = scale().box;
      const ends = [pressed, pxOf(event)].map((px) => Math.min(Math.max(px, left), left + width));
      return [Math.min(...ends), Math.max(...ends)];
    };
    plot.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      pressed = pxOf(event);
      target = event.target as Element;
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      const range = mark(event);
      this.isDragged = range !== null;
      if (!range) return marked.remove();
      const { top, height } = scale().box;
      const [x, end] = range;
      for (const [name, value] of Object.entries({ x, y: top, width: end - x, height })) {
        marked.setAttribute(name, String(value));
      }
      plot.append(marked);
    });
    plot.addEventListener("pointerup", (event) => {
      const range = mark(event);
      if (range) this.#enlarge(at(range[0]), at(range[1]));
      else if (pressed !== null) click(event, target);
    });
    plot.addEventListener("lostpointercapture", () => {
      pressed = null;
      this.isDragged = false;
      marked.remove();
    });
    plot.addEventListener("dblclick", () => this.reset());
    plot.addEventListener(
      "wheel",
      (event) => {
        const { ctrlKey, metaKey, deltaX, deltaY } = event;
        const steps = Math.min(Math.max(deltaY / 100, -1), 1);
        if (ctrlKey || metaKey) this.zoom(ZOOM ** steps, at(pxOf(event)));
        else if (deltaX && !this.isWhole) this.move(deltaX / 500);
        else return; // the page scrolls
        event.preventDefault();
      },
      { passive: false },
    );
    const zoom = (by: number) => this.zoom(by, own.moment?.());
    keys(plot, (event) => ({
      "+": () => zoom(0.5),
      "=": () => zoom(0.5),
      "-": () => zoom(2),
      "0": () => void this.reset(),
      ArrowLeft: () => this.move(-0.25),
      ArrowRight: () => this.move(0.25),
      Home: () => this.move(-Infinity),
      End: () => this.move(Infinity),
      ...own.keys?.(event),
    }));
  }

  /** Show a dragged range. */
  #enlarge(begin: number, end: number): void {
    if (this.least < 1) this.show(begin, end);
    else this.show(Math.floor(begin), Math.ceil(end)); // the axis counts
  }
}
