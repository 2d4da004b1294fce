// Line charts in a grid, for runs and sweeps.
import type { Numbers } from "../shared/buffers";
import type { RunView, SweepView } from "../models";
import {
  axes,
  type Box,
  formatPercent,
  formatBytes,
  colour,
  counts,
  Scale,
  ticks,
} from "../shared/plot";
import { SOFT } from "./theme_colours";
import { page, text } from "./sheet";
import { type Shape, shape } from "./shapes";

const [WIDE, HIGH] = [320, 150];
const DASHES = [[], [6, 3], [2, 3], [10, 4, 2, 4]];

/** A line; it continues across undefined values, but not across those that are no finite numbers. */
export interface Line {
  readonly name: string;
  readonly at: Numbers | readonly number[];
  readonly values: ArrayLike<number | undefined>;
  readonly titles?: readonly string[]; // of its points, which then have marks
  readonly fill?: boolean; // the area below it
  readonly as?: number; // position of the line whose colour this one has, paler
}

export interface Chart {
  readonly across: string;
  readonly lines: readonly Line[];
  readonly format?: (value: number) => string;
  readonly least?: number; // amounts start at zero, and the axis ends at this value or above
  readonly ticks?: ReadonlyMap<number, string>; // labels on the axis instead of numbers
  readonly crosses?: readonly number[]; // positions without a value because of an error
  readonly none?: string; // text of an empty chart
  readonly range?: readonly [number, number]; // visible positions, by default all
}

interface TitledChart extends Chart {
  readonly title: string;
}

/** The stroke of a line. */
export function strokeOf(k: number, { fill, as }: Pick<Line, "fill" | "as">): Shape["attributes"] {
  return {
    stroke: colour(as ?? k),
    "stroke-opacity": as === undefined ? undefined : 0.45,
    "stroke-width": fill || as !== undefined ? 1 : 1.6,
    "stroke-dasharray": DASHES[(as ?? k) % DASHES.length]!.join(" ") || undefined,
  };
}

type Point = readonly [x: number, y: number];

function pointsOf({ at, values }: Line): Point[] {
  return Array.from(at, (x, k): Point[] =>
    values[k] === undefined ? [] : [[x, values[k]]],
  ).flat();
}

function ends(values: readonly number[], otherwise: [number, number]): [number, number] {
  if (!values.length) return otherwise;
  const least = values.reduce((low, value) => Math.min(low, value));
  return [least, values.reduce((high, value) => Math.max(high, value))];
}

/** The finite positions of all lines, from the first to the last. */
export function extentOf({ lines, ticks }: Chart): [number, number] {
  if (ticks) return ends([...ticks.keys()], [0, 1]);
  const points = lines.flatMap(pointsOf).filter(([, y]) => Number.isFinite(y));
  return ends(
    points.map(([x]) => x),
    [0, 1],
  );
}

/** A chart in a box; labels of the axes are outside. */
export function chartIn(box: Box, chart: Chart): { scale: Scale; shapes: Shape[] } {
  const { across, lines, least, format, crosses = [] } = chart;
  const [first, last] = chart.range ?? extentOf(chart);
  const points = lines.map(pointsOf);
  const finite = points.flat().filter(([, y]) => Number.isFinite(y));
  const visible = finite.filter(([x]) => x >= first && x <= last);
  let [low, high] = ends(
    (visible.length ? visible : finite).map(([, y]) => y),
    [0, 1],
  );
  if (least !== undefined) [low, high] = [0, Math.max(high * 1.05, least) || 1];
  else if (high > low) [low, high] = [low - 0.05 * (high - low), high + 0.05 * (high - low)];
  else [low, high] = [low - 0.5, low + 0.5];
  const scale = new Scale(box, [first, last > first ? last : first + 1], [low, high]);
  const whole = finite.every(([x]) => Number.isInteger(x));
  const x = {
    label: across,
    ticks: chart.ticks ? [...chart.ticks.keys()] : (whole ? counts : ticks)(...scale.x, 4),
    format: (value: number) => chart.ticks?.get(value) ?? value.toLocaleString("en"),
  };
  const y = {
    label: "",
    ticks: ticks(low, high, 4, format === formatBytes ? 1024 : 10),
    format: format ?? ((value: number) => String(Number(value.toPrecision(6)))),
  };
  const { left, top, width, height } = box;
  // relative to the box, outside of which nothing is drawn
  const place = ([x, y]: Point) => [scale.px(x) - left, scale.py(y) - top] as const;
  const drawn = lines.flatMap((line, k) => {
    const { titles, fill } = line;
    const look = strokeOf(k, line);
    const runs = segments(points[k]!).map((run) => run.map(place));
    const shapes = runs.map((run) =>
      shape("polyline", { points: joinPoints(run), fill: "none", ...look }),
    );
    const areas = runs.map((run) => {
      const foot = [run.at(-1)!, run[0]!].map(([x]) => [x, height] as const);
      const area = {
        points: joinPoints([...run, ...foot]),
        fill: look.stroke,
        "fill-opacity": 0.19,
      };
      return shape("polygon", area);
    });
    const marked = titles
      ? points[k]!
      : segments(points[k]!).flatMap((run) => (run.length > 1 ? [] : run));
    const marks = marked
      .filter(([, y]) => Number.isFinite(y))
      .map((point) => {
        const [x, y] = place(point);
        const title = titles ? [shape("title", {}, titles[point[0]] ?? "")] : [];
        const square = { x: x - 2, y: y - 2, width: 4, height: 4, fill: look.stroke };
        return shape("rect", square, ...title);
      });
    return [...(fill ? areas : []), ...shapes, ...marks];
  });
  const clip = { x: left, y: top, width, height, overflow: chart.range ? "hidden" : "visible" };
  const shapes = [axes(scale, x, y), shape("svg", clip, ...drawn)];
  for (const at of crosses) {
    shapes.push(text(scale.px(at), scale.py(0) - 3, "×", { "text-anchor": "middle" }));
  }
  if (!finite.length) {
    const middle = { "text-anchor": "middle", fill: SOFT };
    shapes.push(text(left + width / 2, top + height / 2, chart.none ?? "no values yet", middle));
  }
  return { scale, shapes };
}

/** The parts of a line between values that are no finite numbers. */
function segments(points: readonly Point[]): Point[][] {
  const found: Point[][] = [[]];
  for (const point of points) {
    if (Number.isFinite(point[1])) found.at(-1)!.push(point);
    else found.push([]);
  }
  return found.filter((run) => run.length);
}

function joinPoints(points: readonly Point[]): string {
  return points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
}

/** A chart of a grid, with its title and legend. */
function drawCell(place: number, columns: number, chart: TitledChart): Shape[] {
  const [row, column] = [Math.floor(place / columns), place % columns];
  const [from, upper] = [column * WIDE, row * (HIGH + 40)];
  const box = { left: from + 66, top: upper + 26, width: WIDE - 84, height: HIGH - 46 };
  const keys = chart.lines.filter((line) => line.name && pointsOf(line).length);
  const legend = keys.flatMap((line, k) => {
    const [left, at] = [box.left + k * 100, upper + HIGH + 24];
    const look = strokeOf(chart.lines.indexOf(line), line);
    return [
      shape("line", { x1: left, x2: left + 18, y1: at - 4, y2: at - 4, ...look }),
      text(left + 22, at, line.name, { "font-size": 10 }),
    ];
  });
  const title = text(box.left, upper + 16, chart.title, { "font-size": 11 });
  return [title, ...chartIn(box, chart).shapes, ...legend];
}

/** Charts in rows with the given number of columns, and a line of text. */
function grid(charts: readonly TitledChart[], said: string, columns = charts.length): Shape {
  const high = Math.ceil(charts.length / columns) * (HIGH + 40);
  const end = said ? [text(12, high + 8, said, { "font-size": 11 })] : [];
  const wide = Math.max(WIDE * columns + 24, 24 + 6.3 * said.length);
  const drawn = charts.flatMap((one, k) => drawCell(k, columns, one));
  return page(wide, high + (said ? 20 : 0), said, [...drawn, ...end]);
}

/** The curves of a run, followed by those of earlier runs with the same names, paler. */
export function curvesOf({ frame, earlier }: RunView): Line[] {
  const own = Object.entries(frame.curves);
  const names = own.map(([name]) => name);
  const before = earlier.flatMap((run) =>
    Object.entries(run.curves)
      .filter(([name]) => names.includes(name))
      .map(([name, { at, values }]) => {
        return { name: `${name}, ${run.name}`, at, values, as: names.indexOf(name) };
      }),
  );
  return [...own.map(([name, { at, values }]) => ({ name, at, values })), ...before];
}

/** Charts of a run: learning curves, live bytes against the prediction or memory over time, and utilisation. */
export function run(view: RunView, said: string): Shape {
  const { held, load, predicted_peak } = view;
  const { at } = load;
  const taken = [
    { name: "planned peak", at, values: Array.from(at, () => predicted_peak) },
    { name: "process", at, values: load.resident },
    { name: "arrays on the device", at, values: load.on_device },
  ];
  const memory: TitledChart = {
    title: "memory",
    across: "s",
    lines: taken,
    format: formatBytes,
    least: 1,
  };
  const part = held ? (held.last - held.first) / Math.max(held.bytes.length, 1) : 0;
  const instants = Array.from(held?.bytes ?? [], (_, k) => held!.first + (k + 0.5) * part);
  const live: TitledChart | null = held && {
    title: "live bytes",
    across: "executed point",
    lines: [
      { name: "predicted", at: instants, values: held.predicted },
      { name: "measured", at: instants, values: held.bytes },
    ],
    format: formatBytes,
    least: 1,
  };
  const lines = [
    { name: "kernels", at, values: load.busy },
    { name: "host cores", at, values: load.host },
  ];
  const busy = { title: "utilization", across: "s", lines, format: formatPercent, least: 1 };
  return grid(
    [{ title: "outputs", across: "turn", lines: curvesOf(view) }, live ?? memory, busy],
    said,
  );
}

/** Charts of a sweep; a cross marks a program that does not compile. */
export function sweep({ points, argument, charts }: SweepView, said = "", columns = 2): Shape {
  const titles = points.map(({ label }) => label);
  const at = points.map((_, k) => k);
  const crosses = at.filter((k) => points[k]!.peak === null);
  const last = points.length - 1;
  const some = [0, 1, 2, 3, 4, 5].map((n) => Math.round((n * last) / 5));
  const shown = {
    across: argument,
    least: 0,
    ticks: new Map(some.map((k) => [k, titles[k] ?? ""])),
    crosses,
    none: "none",
  };
  const drawn = charts.map(({ title, is_bytes, values }): TitledChart => {
    const lines = [{ name: "", at, values: values.map((value) => value ?? undefined), titles }];
    return { ...shown, title, lines, format: is_bytes ? formatBytes : undefined };
  });
  return grid(drawn, said, columns);
}
