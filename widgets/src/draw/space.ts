// The iteration space: time on the x axis, one dimension on the y axis, a mark for every executed point of a
// turn.
import type { IterationSpaceView, Statement } from "../models";
import { about } from "../shared/instants";
import { axes, type Box, counts, mark, Scale } from "../shared/plot";
import { sheet, text, drawText } from "./sheet";
import type { Range } from "../shared/selection";
import { type Shape, shape, addTitle } from "./shapes";

const NAMED = 16; // number of statements up to which the legend lists each

/** Minimal extent of the axes, so that two drawings have the same scale. */
export interface Extent {
  readonly count: number;
  readonly size: number;
}

export interface SpaceDrawn {
  readonly scale: Scale;
  readonly axes: Shape;
  readonly marks: readonly Shape[]; // one per statement
}

/** The marks of all statements in a box, in a range of instants. */
export function spaceIn(
  view: IterationSpaceView,
  box: Box,
  least: Extent,
  range: Range = [0, Math.max(view.turn.count, least.count, 1)],
): SpaceDrawn {
  const { turn, statements } = view;
  const size = Math.max(turn.size, least.size);
  const scale = new Scale(box, range, [0, size]);
  const x = { label: "time: executed points, in order", ticks: counts(...range, 8) };
  const y = { label: turn.dim ?? "", ticks: counts(0, size, 5) };
  return {
    scale,
    axes: axes(scale, x, y),
    marks: statements.map((one) => drawMarks(one, scale)),
  };
}

/** A mark for each point; a mark for several points is a bar over them. */
function drawMarks(one: Statement, scale: Scale): Shape {
  const { width, height, top } = scale.box;
  const [, size] = scale.y;
  const [from, to] = scale.x;
  const column = width / (to - from);
  const r = Math.min(5, Math.max(1.7, Math.min(column * 1.5, height / size / 2.1)));
  const parts: string[] = [];
  let before = "";
  one.times.forEach((time, k) => {
    if (time + 0.5 < from || time + 0.5 > to) return;
    const [x, low] = [scale.px(time + 0.5), one.low[k]!];
    const place = `${x.toFixed(1)} ${scale.py(low + 0.5).toFixed(1)}`;
    if (place === before) return; // covered by the previous mark
    before = place;
    if (one.tall === 1) {
      parts.push(mark(one.shape, x, scale.py(low + 0.5), r));
      return;
    }
    const w = Math.min(Math.max(column * 0.8, 2), 12);
    const [high, foot] = [scale.py(Math.min(low + one.tall, size)), scale.py(low)];
    const [left, tall, wide] = [x - w / 2, foot - high, w].map((n) => n.toFixed(1));
    parts.push(`M${left} ${high.toFixed(1)}h${wide}v${tall}h-${wide}z`);
    if (!one.each) parts.push(mark(one.shape, x, top - 7, 4));
  });
  return shape("path", { class: "trl-marks", d: parts.join(""), fill: one.colour });
}

/** The view as a picture with a legend. */
export function space(view: IterationSpaceView, said: string, least?: Extent): string {
  const { turn } = view;
  if (turn.dim === null || turn.problem) return drawText(turn.problem || said, 1000);
  const drawn = spaceIn(
    view,
    { left: 52, top: 34, width: 490, height: 230 },
    least ?? { count: 0, size: 0 },
  );
  const marks = drawn.marks.map((one, k) => addTitle(one, view.statements[k]!.name));
  const legend = groups(view).flatMap(([title, one], k) => {
    const y = 322 + 18 * k;
    const key = shape("path", { d: mark(one.shape, 62, y - 4, 4), fill: one.colour });
    return [key, text(76, y, title)];
  });
  const where = text(542, 14, about(turn), { "text-anchor": "end", "font-size": 11 });
  const height = 320 + 9 * legend.length;
  return sheet(560, height, "iteration space", [drawn.axes, ...marks, where, ...legend]);
}

/** The entries of the legend: each statement; or, if there are many, each region with a representative. */
function groups({ statements, turn }: IterationSpaceView): [string, Statement][] {
  const region = (one: Statement) => one.region.join(" / ") || "no region";
  if (statements.length <= NAMED) {
    return statements.map((one) => [
      `${one.name}  (${region(one)}; ${one.each ? `each ${turn.dim}` : "once"})`,
      one,
    ]);
  }
  const found = new Map<string, Statement[]>();
  for (const one of statements) {
    const ones = found.get(region(one)) ?? [];
    found.set(region(one), [...ones, one]);
  }
  return [...found]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, ones]) => [
      `${name}  (${ones.length} statement${ones.length > 1 ? "s" : ""})`,
      ones[0]!,
    ]);
}
