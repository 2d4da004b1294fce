// Live line chart: drawn like static ones, with a zoomed window, and the values at the pointer in its legend.
import { type Chart, chartIn, extentOf, type Line, strokeOf } from "../draw/charts";
import { html, svg } from "./markup";
import { fill } from "./panel";
import { Scale } from "./plot";
import { TimeWindow } from "./time_window";

const HEIGHT = 118;
const MARGINS = { left: 56, right: 14, top: 8, bottom: 22 } as const;

export class LineChart {
  readonly #figure: HTMLElement;
  readonly #plot = svg("svg", { role: "img" });
  readonly #legend = html("div", { class: "trl-chart-legend" });
  readonly #window: TimeWindow;
  #chart: Chart;
  #scale = new Scale({ left: 0, top: 0, width: 1, height: 1 }, [0, 1], [0, 1]);
  #pointer: number | null = null; // its position on the x axis

  /**
   * `least` is the end of the y axis of amounts, at this value or above; null for arbitrary values, whose axis need
   * not start at zero.
   */
  constructor(
    host: HTMLElement,
    title: string,
    private readonly across: string,
    format: (value: number) => string,
    least: number | null,
  ) {
    this.#chart = { across: "", lines: [], format, least: least ?? undefined };
    this.#window = new TimeWindow(
      () => this.#paint(),
      (...ends) => ends.map((x) => Number(x.toPrecision(3)).toLocaleString("en")).join(" – "),
    );
    this.#plot.setAttribute("aria-label", title);
    const head = html("figcaption", {}, title, this.#window.button);
    const attributes = { class: "trl-chart", "aria-label": title };
    this.#figure = html("figure", attributes, head, this.#plot, this.#legend);
    host.append(this.#figure);
    this.#window.control(
      this.#plot,
      () => this.#scale,
      () => {},
    );
    this.#plot.addEventListener("pointermove", ({ clientX }) => {
      this.#pointer = this.#scale.at(clientX - this.#plot.getBoundingClientRect().left);
      this.#drawLegend();
    });
    this.#plot.addEventListener("pointerleave", () => {
      this.#pointer = null;
      this.#drawLegend();
    });
  }

  set shown(shown: boolean) {
    this.#figure.hidden = !shown;
  }

  get filled(): boolean {
    return !this.#figure.hidden && this.#chart.lines.some(({ at }) => at.length > 0);
  }

  /** Draw lines with common positions on the x axis. */
  draw(at: readonly number[] | Line["at"], lines: readonly Omit<Line, "at">[]): void {
    this.#chart = { ...this.#chart, lines: lines.map((line) => ({ ...line, at })) };
    this.#window.follow(...extentOf(this.#chart));
    this.#paint();
  }

  /** Draw at the current width. */
  fit(): void {
    this.#paint();
  }

  /** End a zoom; false if there is none. */
  reset(): boolean {
    return this.#window.reset();
  }

  #paint(): void {
    const width = this.#figure.clientWidth;
    if (!width) return;
    const { left, right, top, bottom } = MARGINS;
    const box = { left, top, width: width - left - right, height: HEIGHT - top - bottom };
    const { scale, shapes } = chartIn(box, { ...this.#chart, range: this.#window.range });
    this.#scale = scale;
    fill(this.#plot, width, HEIGHT, shapes);
    this.#drawLegend();
  }

  /** The lines with their values at the pointer. */
  #drawLegend(): void {
    const { lines, format } = this.#chart;
    const pointer = this.#pointer;
    const entries = lines.map((line, k) => {
      const key = svg(
        "svg",
        { width: 18, height: 8 },
        svg("path", { d: "M0 4h18", ...strokeOf(k, line) }),
      );
      const at = pointer === null ? -1 : nearest(line, pointer);
      const value =
        at < 0
          ? ""
          : `: ${format!(line.values[at]!)} at ${this.across} ${line.at[at]!.toLocaleString("en")}`;
      return html("span", {}, key, line.name + value);
    });
    this.#legend.replaceChildren(...entries);
  }
}

/** The index of a line's value whose position is nearest; -1 if there is none. */
function nearest({ at, values }: Line, x: number): number {
  let found = -1;
  for (let k = 0; k < at.length; k++) {
    if (!Number.isFinite(values[k])) continue;
    if (found < 0 || Math.abs(at[k]! - x) < Math.abs(at[found]! - x)) found = k;
  }
  return found;
}
