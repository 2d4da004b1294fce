// Visible window of a time axis, moved and scaled by pointer, wheel and keys.
import { keys } from "./keyboard";
import { svg } from "./markup";
import type { Scale } from "./plot";

const LEAST_DRAG = 4; // pixels; a shorter movement is a click
const NEARER = 0.8;

/** Part of a time axis from 0 to `last`. */
export class TimeWindow {
  #last = 1;
  #range: readonly [number, number] = [0, 1];

  /** `changed` is called after each change by the user; no window is shorter than `least`. */
  constructor(
    private readonly changed: () => void,
    private readonly least = 0,
  ) {}

  get range(): readonly [number, number] {
    return this.#range;
  }

  /** Whether the window covers the whole axis. */
  get isWhole(): boolean {
    const [begin, end] = this.#range;
    return end - begin >= this.#last;
  }

  /** Set the end of the axis, and show all of it. */
  extend(last: number): void {
    this.#last = Math.max(last, this.least) || 1;
    this.#range = [0, this.#last];
  }

  /** Show a window, as far as it is on the axis. */
  show(begin: number, end: number): void {
    const size = Math.min(Math.max(end - begin, this.least, this.#last * 1e-9), this.#last);
    const from = Math.min(Math.max(begin, 0), this.#last - size);
    const [before, after] = this.#range;
    this.#range = [from, from + size];
    if (from !== before || from + size !== after) this.changed();
  }

  /** Multiply the length of the window, around a moment. */
  zoom(by: number, around?: number): void {
    const [begin, end] = this.#range;
    const at = around ?? (begin + end) / 2;
    this.show(at - (at - begin) * by, at + (end - at) * by);
  }

  /** Move the window by a fraction of its length. */
  move(by: number): void {
    const [begin, end] = this.#range;
    const step = Math.min(Math.max((end - begin) * by, -begin), this.#last - end);
    this.show(begin + step, end + step);
  }

  /** Show the whole axis; false if it was shown. */
  reset(): boolean {
    const zoomed = !this.isWhole;
    this.show(0, this.#last);
    return zoomed;
  }

  /**
   * Control the window in a plot. Dragging shows the marked range, and a double click or 0 shows everything.
   * The wheel zooms if the plot has the focus, or with control; sideways or with shift, it moves the window.
   */
  control(plot: SVGSVGElement, scale: () => Scale, click: (event: PointerEvent) => void): void {
    const at = (event: MouseEvent) => event.clientX - plot.getBoundingClientRect().left;
    const marked = svg("rect", { class: "trl-marked-range" });
    let pressed: number | null = null;
    const mark = (event: PointerEvent): [number, number] | null => {
      if (pressed === null || Math.abs(at(event) - pressed) < LEAST_DRAG) return null;
      const { left, width } = scale().box;
      const ends = [pressed, at(event)].map((px) => Math.min(Math.max(px, left), left + width));
      return [Math.min(...ends), Math.max(...ends)];
    };
    plot.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      pressed = at(event);
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      const range = mark(event);
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
      const was = pressed;
      pressed = null;
      marked.remove();
      if (range) this.show(scale().at(range[0]), scale().at(range[1]));
      else if (was !== null) click(event);
    });
    plot.addEventListener("pointercancel", () => {
      pressed = null;
      marked.remove();
    });
    plot.addEventListener("dblclick", () => this.reset());
    plot.addEventListener(
      "wheel",
      (event) => {
        if (document.activeElement !== plot && !event.ctrlKey) return; // the page scrolls
        event.preventDefault();
        const across = event.shiftKey ? event.deltaY : event.deltaX;
        if (across) this.move(Math.sign(across) * 0.1);
        else this.zoom(event.deltaY > 0 ? 1 / NEARER : NEARER, scale().at(at(event)));
      },
      { passive: false },
    );
    keys(plot, () => ({
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      "0": () => void this.reset(),
      ArrowLeft: () => this.move(-0.25),
      ArrowRight: () => this.move(0.25),
      Home: () => this.move(-Infinity),
      End: () => this.move(Infinity),
    }));
  }
}
