// Launch timeline: a row for each kernel, a bar for each launch, as long as the launch takes.
import type { LaunchRow, LaunchView } from "../models";
import { about, place } from "../shared/instants";
import {
  axes,
  type Box,
  formatCount,
  counts,
  Scale,
  formatSeconds,
  timeAxis,
} from "../shared/plot";
import type { Range } from "../shared/selection";
import { PAPER, SOFT } from "./theme_colours";
import { sheet, short, text, TINY_GLYPH, drawText } from "./sheet";
import { type Shape, shape, addTitle } from "./shapes";

/** Height of a row in pixels. */
export const ROW = 14;
const GAP = 3; // pixels between rows
const APART = 6; // mean width of bars in pixels from which they are outlined

/** The horizontal axis: elapsed time, or the order of the launches, like the axes of the other panes. */
export type By = "time" | "order";

/** Horizontal positions of a view's columns. */
export class LaunchAxis {
  readonly #longest: number;

  constructor(
    readonly view: LaunchView,
    readonly by: By,
  ) {
    let longest = 0;
    for (let k = 0; k < view.first.length; k++) longest = Math.max(longest, this.spent(k));
    this.#longest = longest;
  }

  /** The first instant of a column, or the number of instants. */
  first(column: number): number {
    return this.view.first[column] ?? this.view.turn.count;
  }

  /** The seconds of all launches of a column. */
  spent(column: number): number {
    return this.view.begin[column + 1]! - this.view.begin[column]!;
  }

  /** The position of an instant. */
  of(instant: number): number {
    if (this.by === "order") return instant;
    const { first, begin } = this.view;
    const k = place(first, instant);
    const inside = (instant - this.first(k)) / (this.first(k + 1) - this.first(k));
    return begin[k]! + inside * this.spent(k);
  }

  /** The instant at a position, with a fraction. */
  instant(at: number): number {
    if (this.by === "order") return at;
    const { begin } = this.view;
    const k = Math.min(place(begin, at), this.view.first.length - 1);
    const inside = (at - begin[k]!) / (this.spent(k) || 1);
    return this.first(k) + Math.min(Math.max(inside, 0), 1) * (this.first(k + 1) - this.first(k));
  }

  /** Start, end and relative height of the launches of a row in a column. */
  bar(row: LaunchRow, k: number): [number, number, number] {
    const column = row.columns[k]!;
    const took = row.counts[k]! * (row.seconds ?? 0);
    if (this.by === "time") {
      const begin = this.view.begin[column]!;
      return [begin, this.view.begin[column + 1]!, took / (this.spent(column) || 1)];
    }
    const [from, to] = [this.first(column), this.first(column + 1)];
    return [from, from + ((to - from) * took) / (this.#longest || 1), 1];
  }
}

export interface LaunchesDrawn {
  readonly scale: Scale;
  readonly axis: LaunchAxis;
  readonly axes: readonly Shape[];
  readonly bars: readonly Shape[]; // one per row
}

/** The launches in a box, in a range of instants. */
export function launchesIn(
  view: LaunchView,
  box: Box,
  by: By,
  range: Range = [0, view.turn.count],
): LaunchesDrawn {
  const axis = new LaunchAxis(view, by);
  const ends: Range = [axis.of(range[0]), axis.of(range[1])];
  const scale = new Scale(box, ends, [view.rows.length, 0]);
  const x =
    by === "order"
      ? { label: "time: executed points, in order", ticks: counts(...ends, 8) }
      : timeAxis(...ends, 1e9, `time, ${view.how}`);
  const names = view.rows.map((row, k) => {
    const said = short(row.name, box.left - 6, TINY_GLYPH);
    const y = scale.py(k + 0.5) + 3.5;
    const look = { x: box.left - 5, y, "text-anchor": "end", "font-size": 10, fill: SOFT };
    return addTitle(shape("text", look, said), row.name);
  });
  return {
    scale,
    axis,
    axes: [axes(scale, x, { label: "", ticks: [] }), ...names],
    bars: view.rows.map((row, k) => bars(row, k, axis, scale, range)),
  };
}

/**
 * The bars of a row as one path. Bars on the same pixel become one, whose height is the row's share of the time; there
 * are never more than two per pixel.
 */
function bars(row: LaunchRow, k: number, axis: LaunchAxis, scale: Scale, range: Range): Shape {
  const [top, bottom] = [scale.py(k) + GAP / 2, scale.py(k + 1) - GAP / 2];
  const [left, right] = [scale.box.left, scale.box.left + scale.box.width];
  const parts: string[] = [];
  let [from, to, area] = [0, -1, 0]; // the current bar, in pixels
  const flush = () => {
    if (to < from) return;
    const width = Math.max(to - from, 1);
    const height = Math.max((bottom - top) * Math.min(area / width, 1), 2);
    const numbers = [from, bottom - height, width, height, width].map((n) => n.toFixed(2));
    parts.push(`M${numbers[0]} ${numbers[1]}h${numbers[2]}v${numbers[3]}h-${numbers[4]}z`);
  };
  const { first } = axis.view;
  for (let n = place(row.columns, place(first, range[0])); n < row.columns.length; n++) {
    const column = row.columns[n]!;
    if (axis.first(column) >= range[1]) break;
    if (axis.first(column + 1) <= range[0]) continue;
    const [begin, end, share] = axis.bar(row, n);
    const x0 = Math.max(scale.px(begin), left);
    const x1 = Math.min(Math.max(scale.px(end), x0 + 0.01), right);
    const isOne = row.counts[n] === 1;
    if (to >= from && x1 - from <= 1) {
      [to, area] = [Math.max(to, x1), area + (x1 - x0) * share];
      continue;
    }
    flush();
    // a short launch is as high as a long one, and at least a pixel wide
    [from, to, area] = [x0, x1, isOne ? Math.max(x1 - x0, 1) : (x1 - x0) * share];
  }
  flush();
  // neighbours are told apart if there are few
  const isWide = scale.box.width > APART * (range[1] - range[0]);
  const line = isWide ? { stroke: PAPER, "stroke-width": 0.7 } : {};
  return shape("path", { class: "trl-launches", d: parts.join(""), fill: row.colour, ...line });
}

/** `1.2 ms each`. */
export function each({ seconds }: LaunchRow): string {
  return seconds === null ? "not measured" : `${formatSeconds(seconds)} each`;
}

/** The view as a picture. */
export function launches(view: LaunchView): string {
  const { turn, rows, how } = view;
  if (turn.problem) return drawText(turn.problem, 1000);
  const box = { left: 110, top: 34, width: 490, height: ROW * Math.max(rows.length, 1) };
  const drawn = launchesIn(view, box, "time");
  const bars = drawn.bars.map((one, k) => {
    const { name, launches } = rows[k]!;
    return addTitle(
      one,
      `${name}: ${formatCount(launches, "launch", "launches")}, ${each(rows[k]!)}`,
    );
  });
  const count = formatCount(turn.count, "launch", "launches");
  const head = [count, `time ${how}`, about(turn)].filter(Boolean).join(", ");
  const title = text(box.left, 18, head, { "font-size": 11, fill: SOFT });
  return sheet(620, box.top + box.height + 40, "launches", [title, ...drawn.axes, ...bars]);
}
