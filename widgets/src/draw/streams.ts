// Runs of a kernel stream: a track for each stream, with the slots of the window below, on a common time axis.
import { counted } from "../shared/plot";
import type { StreamLaunch, StreamRun, StreamView } from "../models";
import { INK, LINE, PAPER, SOFT } from "./looks";
import { sheet, text } from "./sheet";
import { type Shape, shape, titled } from "./shapes";

const LANE = 18; // pixels of a stream
const SLOT = 9; // pixels of a slot
const HEAD = 24;
const LEFT = 78;
const MOST_SLOTS = 32;
const MOST_NAMES = 14; // names in the legend
const COLOURS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#d55e00"];

/** The selected kernels, and the moment shown. */
export interface Chosen {
  readonly kernels?: readonly number[];
  readonly at?: number;
}

/** The state of a kernel at a moment. */
export function state(one: StreamLaunch, at: number, ends: ReadonlyMap<number, number>): string {
  if (at < one.entered || at >= one.ended) return "";
  if (at >= one.started) return "executing";
  return waiting(one, at, ends).length ? "pending" : "ready";
}

/** The pending dependences of a kernel at a moment. */
export function waiting(
  one: StreamLaunch,
  at: number,
  ends: ReadonlyMap<number, number>,
): number[] {
  return one.upstream.filter((u) => (ends.get(u) ?? -Infinity) > at);
}

export function endsOf(run: StreamRun): Map<number, number> {
  return new Map(run.launches.map((one) => [one.kernel, one.ended]));
}

/** The title of a run: strategy, duration and utilisation. */
export function headed(run: StreamRun): string {
  const us = Math.round(run.us).toLocaleString("en");
  const window = run.size ? `, window ${run.size}` : "";
  const more = run.left_out ? `, ${counted(run.left_out, "kernel")} not drawn` : "";
  return `${run.how}: ${counted(run.streams, "stream")}${window}, ${us} µs, utilization ${run.utilization.toFixed(2)}${more}`;
}

function told(one: StreamLaunch): string {
  const after = one.upstream.length ? `, after ${one.upstream.join(", ")}` : "";
  const took = Math.round(one.ended - one.started).toLocaleString("en");
  return `${one.kernel} ${one.name}${one.line ? ` at ${one.line}` : ""}: ${took} µs${after}`;
}

/** All runs, starting at a height, in a number of pixels; elements of kernels have `data-kernel`. */
export function runs(
  view: StreamView,
  width: number,
  chosen: Chosen = {},
): { shapes: Shape[]; height: number } {
  const most = Math.max(1, ...view.runs.map((run) => run.us));
  const scale = Math.max(width - LEFT - 12, 40) / most;
  const names = [...new Set(view.runs.flatMap((run) => run.launches.map((one) => one.name)))];
  const colour = (name: string) => COLOURS[names.indexOf(name) % COLOURS.length]!;
  let height = 0;
  const shapes: Shape[] = [];
  for (const run of view.runs) {
    const drawn = one(run, height, scale, width, colour, chosen);
    shapes.push(...drawn.shapes);
    height = drawn.height;
  }
  const drawn = legend(
    names.map((name) => [name, colour(name)] as const),
    height,
    width,
  );
  return { shapes: [...shapes, ...drawn.shapes], height: drawn.height };
}

/** The names of kernels by colour, in rows, and the meaning of pale and outlined blocks. */
function legend(
  names: readonly (readonly [string, string])[],
  top: number,
  width: number,
): { shapes: Shape[]; height: number } {
  const shown = names.slice(0, MOST_NAMES).map(([name, fill]) => ({ name, fill, pale: false }));
  const left = names.length - shown.length;
  const said = left
    ? [{ name: `and ${counted(left, "name")} more`, fill: "none", pale: false }]
    : [];
  const pale = { name: "pale: waits in the window", fill: SOFT, pale: true };
  const outlined = { name: "outlined: chosen", fill: PAPER, pale: false };
  const dashed = { name: "dashed: ran before the chosen", fill: PAPER, pale: false };
  const shapes: Shape[] = [];
  let [x, y] = [12, top + 6];
  for (const { name, fill, pale: isPale } of [...shown, ...said, pale, outlined, dashed]) {
    const short = name.length > 34 ? `${name.slice(0, 33)}…` : name;
    const wide = 24 + 6.2 * short.length;
    if (x > 12 && x + wide > width - 12) [x, y] = [12, y + 16];
    const look = { fill, "fill-opacity": isPale ? 0.35 : 1, stroke: fill === PAPER ? INK : "none" };
    shapes.push(shape("rect", { x, y, width: 10, height: 10, ...look }));
    shapes.push(text(x + 14, y + 9, short, { "font-size": 10, fill: SOFT }));
    x += wide;
  }
  return { shapes, height: y + 22 };
}

function one(
  run: StreamRun,
  top: number,
  scale: number,
  width: number,
  colour: (name: string) => string,
  chosen: Chosen,
): { shapes: Shape[]; height: number } {
  const lanes = top + HEAD;
  const shapes: Shape[] = [text(12, top + 16, headed(run), { "font-weight": 600 })];
  const row = (y: number, high: number, said: string) => [
    text(12, y + high - 3, said, { "font-size": Math.min(11, high), fill: SOFT }),
    shape("rect", {
      x: LEFT,
      y,
      width: width - LEFT - 12,
      height: high - 2,
      fill: PAPER,
      stroke: LINE,
    }),
  ];
  const streams = 1 + Math.max(run.streams - 1, ...run.launches.map((l) => l.lane));
  for (let k = 0; k < streams; k++) shapes.push(...row(lanes + k * LANE, LANE, `stream ${k}`));
  const count = Math.min(
    run.size,
    MOST_SLOTS,
    1 + Math.max(-1, ...run.launches.map((l) => l.slot)),
  );
  const slots = lanes + streams * LANE + 4;
  for (let k = 0; k < count; k++) shapes.push(...row(slots + k * SLOT, SLOT, `slot ${k}`));
  const at = (us: number) => LEFT + us * scale;
  const picked = new Set(chosen.kernels);
  const upstream = new Set(
    run.launches.filter((l) => picked.has(l.kernel)).flatMap((l) => l.upstream),
  );
  const block = (
    l: StreamLaunch,
    from: number,
    to: number,
    y: number,
    high: number,
    pale: boolean,
  ) => {
    const isChosen = picked.has(l.kernel);
    const stroke = isChosen || upstream.has(l.kernel) ? INK : "none";
    const look = { fill: colour(l.name), "fill-opacity": pale ? 0.35 : 1, stroke };
    const dashes = upstream.has(l.kernel) && !isChosen ? "2 1" : undefined;
    const place = { x: at(from), y, width: Math.max((to - from) * scale, 0.6), height: high };
    const more = { "data-kernel": l.kernel, "stroke-dasharray": dashes, class: "trl-kernel" };
    return titled(shape("rect", { ...place, ...look, ...more }), told(l));
  };
  for (const l of run.launches) {
    shapes.push(block(l, l.started, l.ended, lanes + l.lane * LANE, LANE - 2, false));
    if (l.slot >= 0 && l.slot < count) {
      const y = slots + l.slot * SLOT;
      shapes.push(block(l, l.entered, l.started, y, SLOT - 2, true));
      shapes.push(block(l, l.started, l.ended, y, SLOT - 2, false));
    }
  }
  const end = slots + count * SLOT;
  if (chosen.at !== undefined && chosen.at <= run.us) {
    const [x1, x2] = [at(chosen.at), at(chosen.at)];
    shapes.push(shape("line", { x1, x2, y1: lanes, y2: end, stroke: INK, "stroke-width": 1.2 }));
  }
  return { shapes, height: end + 10 };
}

/** The view as a separate picture. */
export function streams(view: StreamView, width = 760): string {
  const { shapes, height } = runs(view, width);
  const named = view.name ? [text(12, 18, view.name, { "font-weight": 600 })] : [];
  const moved = shape("g", { transform: `translate(0 ${view.name ? 24 : 4})` }, ...shapes);
  return sheet(width, height + (view.name ? 24 : 4), view.name || "a stream", [...named, moved]);
}
