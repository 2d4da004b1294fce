// Runs of a kernel stream: a track for each stream, with the slots of the window below, on a common time axis.
import { axisBelow, type Box, colour, formatCount, Scale, timeAxis } from "../shared/plot";
import type { StreamLaunch, StreamRun, StreamView } from "../models";
import { INK, LINE, PAPER, SOFT } from "./theme_colours";
import { type Drawn, type Entry, legend, sheet, short, text } from "./sheet";
import { type Shape, shape, addTitle } from "./shapes";

const LANE = 18; // pixels of a stream
const SLOT = 9; // pixels of a slot
const HEAD = 24;
const LEFT_MARGIN = 12;
const LEFT = 78; // of the time axes
const MOST_SLOTS = 32;
const MOST_NAMES = 14; // names in the legend
const RIGHT = 12;
const AXIS = 24; // pixels of a time axis
const NS = 1000; // nanoseconds of a microsecond

/** The selected kernels, the moment shown, and the visible part of the time axis in µs. */
export interface Shown {
  readonly kernels?: ReadonlySet<number>;
  readonly at?: number;
  readonly range?: readonly [number, number];
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
export function describeRun(run: StreamRun): string {
  const us = Math.round(run.us).toLocaleString("en");
  const window = run.size ? `, window ${run.size}` : "";
  const more = run.left_out ? `, ${formatCount(run.left_out, "kernel")} not drawn` : "";
  return `${run.how}: ${formatCount(run.streams, "stream")}${window}, ${us} µs, utilization ${run.utilization.toFixed(2)}${more}`;
}

/** A kernel in words. */
export function textOf(one: StreamLaunch): string {
  const after = one.upstream.length ? `, after ${one.upstream.join(", ")}` : "";
  const took = Math.round(one.ended - one.started).toLocaleString("en");
  return `${one.kernel} ${one.name}${one.line ? ` at ${one.line}` : ""}: ${took} µs${after}`;
}

/** The duration of the longest run in µs. */
export function lengthOf(view: StreamView): number {
  return Math.max(1, ...view.runs.map((run) => run.us));
}

/** The plot area of the runs' time axes, `height` pixels high. */
export function scaleOf(view: StreamView, width: number, height: number, shown: Shown = {}): Scale {
  const box = { left: LEFT, top: 0, width: Math.max(width - LEFT - RIGHT, 40), height };
  return new Scale(box, shown.range ?? [0, lengthOf(view)], [0, 1]);
}

/** All runs below each other in a number of pixels; elements of kernels have `data-kernel`. */
export function runs(view: StreamView, width: number, shown: Shown = {}): Drawn {
  const names = [...new Set(view.runs.flatMap((run) => run.launches.map(({ name }) => name)))];
  const fill = (name: string) => colour(names.indexOf(name));
  let height = 0;
  const shapes = view.runs.flatMap((run) => {
    const drawn = one(run, height, scaleOf(view, width, 0, shown), fill, shown);
    height = drawn.height;
    return drawn.shapes;
  });
  const keys = legend(keysOf(names, fill), LEFT_MARGIN, height + 6, width - 2 * LEFT_MARGIN);
  return { shapes: [...shapes, ...keys.shapes], height: height + keys.height + 10 };
}

/** The names of kernels by colour, and the meaning of pale and outlined blocks. */
function keysOf(names: readonly string[], fill: (name: string) => string): Entry[] {
  const entry = (name: string, look: Shape["attributes"]): Entry => ({
    name: short(name, 210),
    key: ({ left: x, top: y, ...size }) => [shape("rect", { x, y, ...size, ...look })],
  });
  const left = names.length - MOST_NAMES;
  return [
    ...names.slice(0, MOST_NAMES).map((name) => entry(name, { fill: fill(name) })),
    ...(left > 0 ? [entry(`and ${formatCount(left, "name")} more`, { fill: "none" })] : []),
    entry("pale: waits in the window", { fill: SOFT, "fill-opacity": 0.35 }),
    entry("outlined: selected", { fill: PAPER, stroke: INK }),
    entry("dashed: read by the selected", { fill: PAPER, stroke: INK, "stroke-dasharray": "2 1" }),
  ];
}

function one(
  run: StreamRun,
  top: number,
  scale: Scale,
  fill: (name: string) => string,
  shown: Shown,
): Drawn {
  const { left, width } = scale.box;
  const first = top + HEAD;
  const streams = 1 + Math.max(run.streams - 1, ...run.launches.map(({ lane }) => lane));
  const used = 1 + Math.max(-1, ...run.launches.map(({ slot }) => slot));
  const slots = Math.min(run.size, MOST_SLOTS, used);
  const slotsTop = first + streams * LANE + 4;
  const end = slotsTop + slots * SLOT;
  const rows = [
    ...Array.from({ length: streams }, (_, k) => [first + k * LANE, LANE, `stream ${k}`] as const),
    ...Array.from({ length: slots }, (_, k) => [slotsTop + k * SLOT, SLOT, `slot ${k}`] as const),
  ];
  const named = rows.map(([y, high, name]) =>
    text(LEFT_MARGIN, y + high - 3, name, { "font-size": Math.min(11, high), fill: SOFT }),
  );
  const grounds = rows.map(([y, high]) => {
    const place = { x: left, y, width, height: high - 2 };
    return shape("rect", { ...place, fill: PAPER, stroke: LINE });
  });
  const upstream = new Set(
    run.launches.filter(({ kernel }) => shown.kernels?.has(kernel)).flatMap((l) => l.upstream),
  );
  const block = (
    launch: StreamLaunch,
    from: number,
    to: number,
    y: number,
    row: number,
    pale = false,
  ) => {
    const isSelected = !!shown.kernels?.has(launch.kernel);
    const isUpstream = upstream.has(launch.kernel) && !isSelected;
    const x = scale.px(from);
    const place = {
      x: x - left,
      y: y - first,
      width: Math.max(scale.px(to) - x, 0.6),
      height: row - 2,
    };
    const look = {
      fill: fill(launch.name),
      "fill-opacity": pale ? 0.35 : 1,
      stroke: isSelected || isUpstream ? INK : "none",
      "stroke-dasharray": isUpstream ? "2 1" : undefined,
    };
    const found = shape("rect", {
      ...place,
      ...look,
      "data-kernel": launch.kernel,
      class: "trl-kernel",
    });
    return addTitle(found, textOf(launch));
  };
  const blocks = run.launches.flatMap((launch) => {
    const { lane, slot, entered, started, ended } = launch;
    const y = slotsTop + slot * SLOT;
    const inSlot =
      slot >= 0 && slot < slots
        ? [block(launch, entered, started, y, SLOT, true), block(launch, started, ended, y, SLOT)]
        : [];
    return [block(launch, started, ended, first + lane * LANE, LANE), ...inSlot];
  });
  if (shown.at !== undefined && shown.at <= run.us) {
    const x = scale.px(shown.at) - left;
    const look = { class: "trl-moment", stroke: INK, "stroke-width": 1.2 };
    blocks.push(shape("line", { x1: x, x2: x, y1: 0, y2: end - first, ...look }));
  }
  const clip = { x: left, y: first, width, height: end - first };
  const box: Box = { left, top: first, width, height: end - first };
  const axis = axisBelow(new Scale(box, scale.x, [0, 1]), timeAxis(...scale.x, NS));
  const head = text(LEFT_MARGIN, top + 16, describeRun(run), { "font-weight": 600 });
  const shapes = [head, ...named, ...grounds, shape("svg", clip, ...blocks), axis];
  return { shapes, height: end + AXIS };
}

/** The view as a separate picture. */
export function streams(view: StreamView, width = 760): string {
  const { shapes, height } = runs(view, width);
  const named = view.name ? [text(LEFT_MARGIN, 18, view.name, { "font-weight": 600 })] : [];
  const top = view.name ? 24 : 4;
  const moved = shape("g", { transform: `translate(0 ${top})` }, ...shapes);
  return sheet(width, height + top, view.name || "a stream", [...named, moved]);
}
