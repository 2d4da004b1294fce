// Line charts in a grid, for runs and sweeps.
import type { Numbers } from "../shared/buffers";
import type { RunView, SweepView } from "../models";
import { axes, bytes, colour, counts, Scale, ticks } from "../shared/plot";
import { SOFT } from "./looks";
import { page, text } from "./sheet";
import { type Shape, shape } from "./shapes";

const [WIDE, HIGH] = [320, 150];
export const DASHES = [[], [6, 3], [2, 3], [10, 4, 2, 4]];

interface Line {
  readonly name: string;
  readonly at: Numbers | readonly number[];
  readonly values: ArrayLike<number>;
  readonly titles?: readonly string[]; // of its points, which then have marks
}

interface Chart {
  readonly title: string;
  readonly across: string;
  readonly lines: readonly Line[];
  readonly format?: (value: number) => string;
  readonly least?: number; // amounts start at zero, and the axis ends at this value or above
  readonly ticks?: ReadonlyMap<number, string>; // labels on the axis instead of numbers
  readonly crosses?: readonly number[]; // positions without a value because of an error
  readonly none?: string; // text of an empty chart
}

function chart(place: number, columns: number, { title, across, lines, ...one }: Chart): Shape[] {
  const [row, column] = [Math.floor(place / columns), place % columns];
  const [from, upper] = [column * WIDE, row * (HIGH + 40)];
  const box = { left: from + 66, top: upper + 26, width: WIDE - 84, height: HIGH - 46 };
  const known = lines
    .map(({ at, values, ...rest }) => {
      const pairs = Array.from(at, (x, k) => [x, values[k]!] as const);
      return { ...rest, pairs: pairs.filter(([, y]) => Number.isFinite(y)) };
    })
    .filter(({ pairs }) => pairs.length);
  const every = known.flatMap(({ pairs }) => pairs);
  const ends = (values: readonly number[]): [number, number] =>
    values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [
      Infinity,
      -Infinity,
    ] as [number, number]);
  const [first, last] = one.ticks
    ? ends([...one.ticks.keys()])
    : every.length
      ? ends(every.map(([x]) => x))
      : [0, 1];
  let [low, high] = every.length ? ends(every.map(([, y]) => y)) : [0, 1];
  if (one.least !== undefined) [low, high] = [0, Math.max(high * 1.05, one.least) || 1];
  else [low, high] = [low - 0.05 * (high - low), high + 0.05 * (high - low)];
  if (high <= low) high = low + 1;
  const scale = new Scale(box, [first, last > first ? last : first + 1], [low, high]);
  const whole = every.every(([x]) => Number.isInteger(x));
  const x = {
    label: across,
    ticks: one.ticks ? [...one.ticks.keys()] : (whole ? counts : ticks)(...scale.x, 4),
    format: (value: number) => one.ticks?.get(value) ?? value.toLocaleString("en"),
  };
  const y = {
    label: "",
    ticks: ticks(low, high, 4, one.format === bytes ? 1024 : 10),
    format: one.format ?? ((value: number) => String(Number(value.toPrecision(6)))),
  };
  const found = [text(box.left, upper + 16, title, { "font-size": 11 }), axes(scale, x, y)];
  known.forEach(({ name, pairs, titles }, k) => {
    const look = {
      stroke: colour(k),
      "stroke-width": 1.6,
      "stroke-dasharray": DASHES[k % DASHES.length]!.join(" ") || undefined,
    };
    const points = pairs.map(([x, y]) => `${scale.px(x).toFixed(1)},${scale.py(y).toFixed(1)}`);
    found.push(shape("polyline", { points: points.join(" "), fill: "none", ...look }));
    for (const [x, y] of titles || pairs.length === 1 ? pairs : []) {
      const place = { x: scale.px(x) - 2, y: scale.py(y) - 2, width: 4, height: 4 };
      const title = titles ? [shape("title", {}, titles[x] ?? "")] : [];
      found.push(shape("rect", { ...place, fill: colour(k) }, ...title));
    }
    if (!name) return;
    const [left, at] = [box.left + k * 100, upper + HIGH + 24];
    found.push(shape("line", { x1: left, x2: left + 18, y1: at - 4, y2: at - 4, ...look }));
    found.push(text(left + 22, at, name, { "font-size": 10 }));
  });
  for (const at of one.crosses ?? []) {
    found.push(text(scale.px(at), scale.py(0) - 3, "×", { "text-anchor": "middle" }));
  }
  if (!every.length) {
    const middle = { "text-anchor": "middle", fill: SOFT };
    found.push(
      text(box.left + box.width / 2, box.top + box.height / 2, one.none ?? "nothing yet", middle),
    );
  }
  return found;
}

/** Charts in rows with the given number of columns, and a line of text. */
function grid(charts: readonly Chart[], said: string, columns = charts.length): Shape {
  const high = Math.ceil(charts.length / columns) * (HIGH + 40);
  const end = said ? [text(12, high + 8, said, { "font-size": 11 })] : [];
  const wide = Math.max(WIDE * columns + 24, 24 + 6.3 * said.length);
  const drawn = charts.flatMap((one, k) => chart(k, columns, one));
  return page(wide, high + (said ? 20 : 0), said, [...drawn, ...end]);
}

const percent = (value: number) => `${(value * 100).toFixed(0)} %`;

/** Charts of a run: learning curves, live bytes against the prediction or memory over time, and utilisation. */
export function run({ frame, held, load, predicted_peak }: RunView, said: string): Shape {
  const curves = Object.entries(frame.curves).map(([name, { at, values }]) => ({
    name,
    at,
    values,
  }));
  const { at } = load;
  const taken = [
    { name: "planned peak", at, values: Array.from(at, () => predicted_peak) },
    { name: "process", at, values: load.resident },
    { name: "arrays on the device", at, values: load.on_device },
  ];
  const memory: Chart = { title: "memory", across: "s", lines: taken, format: bytes, least: 1 };
  const part = held ? (held.last - held.first) / Math.max(held.bytes.length, 1) : 0;
  const instants = Array.from(held?.bytes ?? [], (_, k) => held!.first + (k + 0.5) * part);
  const live: Chart | null = held && {
    title: "live bytes",
    across: "executed point",
    lines: [
      { name: "predicted", at: instants, values: held.predicted },
      { name: "measured", at: instants, values: held.bytes },
    ],
    format: bytes,
    least: 1,
  };
  const lines = [
    { name: "kernels", at, values: load.busy },
    { name: "host cores", at, values: load.host },
  ];
  const busy = { title: "busy", across: "s", lines, format: percent, least: 1 };
  return grid([{ title: "outputs", across: "turn", lines: curves }, live ?? memory, busy], said);
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
  const drawn = charts.map(({ title, is_bytes, values }): Chart => {
    const lines = [{ name: "", at, values: values.map((value) => value ?? NaN), titles }];
    return { ...shown, title, lines, format: is_bytes ? bytes : undefined };
  });
  return grid(drawn, said, columns);
}
