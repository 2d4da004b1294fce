// Predicted live bytes over time, stacked by tensor, with the peak, the budget, and transfers.
import type { LiveTensor, MemoryView, TurnBytes, WholeRun } from "../models";
import { about, place } from "../shared/instants";
import { axes, type Box, formatBytes, formatCount, counts, Scale, ticks } from "../shared/plot";
import type { Range } from "../shared/selection";
import { INK, LIMIT, SOFT } from "./theme_colours";
import { sheet, text, drawText } from "./sheet";
import { type Shape, shape, addTitle } from "./shapes";
import { runIn } from "./whole_run";

/** One layer of the stack: a tensor, or the sum of the small ones. */
export interface Layer {
  readonly name: string;
  readonly fill: string;
  readonly tensor: LiveTensor | null;
  readonly at: (column: number) => number;
}

/** Minimal extent of the axes, so that two drawings have the same scale. */
export interface Extent {
  readonly count: number;
  readonly bytes: number;
}

export interface MemoryDrawn {
  readonly scale: Scale;
  readonly areas: readonly Shape[]; // one per layer
  readonly over: readonly Shape[]; // drawn above the areas
}

/** Height of the overview of a whole run in pixels. */
export const OVERVIEW = 74;
const TOLD_APART = 7;
const GATHERED = "gathered operands";
export const REST = "#999999";

const MOST = new WeakMap<LiveTensor, number>();

/** The maximal bytes of a tensor. */
export function most(one: LiveTensor): number {
  let found = MOST.get(one);
  if (found === undefined) {
    let held = 0;
    one.held.forEach((n) => (held = Math.max(held, n)));
    found = one.value_bytes * held;
    MOST.set(one, found);
  }
  return found;
}

/** The tensors with live values, the largest first. */
export function ranked({ tensors }: MemoryView): LiveTensor[] {
  return tensors
    .filter((one) => most(one) > 0)
    .sort((a, b) => most(b) - most(a) || (a.name < b.name ? -1 : 1));
}

export function layersOf(model: MemoryView): Layer[] {
  const all = ranked(model);
  const [shown, rest] = [all.slice(0, TOLD_APART), all.slice(TOLD_APART)];
  const sum = (ones: readonly LiveTensor[]) => (at: number) =>
    ones.reduce((total, one) => total + one.held[at]! * one.value_bytes, 0);
  const found: Layer[] = shown.map((one) => ({
    name: one.name,
    fill: one.colour,
    tensor: one,
    at: sum([one]),
  }));
  if (rest.length) {
    found.push({
      name: formatCount(rest.length, "other"),
      fill: REST,
      tensor: null,
      at: sum(rest),
    });
  }
  if (model.gathered.some((value) => value > 0)) {
    const at = (k: number) => model.gathered[k]!;
    found.push({ name: GATHERED, fill: "#444444", tensor: null, at });
  }
  return found;
}

/** The stack in a box, in a range of instants; `measured` are the live bytes of a run. */
export function memoryIn(
  model: MemoryView,
  layers: readonly Layer[],
  box: Box,
  least: Extent,
  measured: TurnBytes | null = null,
  range: Range = [0, Math.max(model.turn.count, least.count, 1)],
): MemoryDrawn {
  const budget = model.budget ?? Infinity;
  const held = Array.from(measured?.bytes ?? []);
  const peak = Math.max(model.program_peak.bytes, least.bytes, 1, ...held);
  // in a comparison both stacks have the same scale, whatever their budgets
  const top = (budget < 4 * peak && !least.bytes ? Math.max(budget, peak) : peak) * 1.1;
  const scale = new Scale(box, range, [0, top]);
  const columns = moments(model, range, box.width);
  const base = new Float64Array(columns.length);
  const areas = layers.map((layer) => {
    const low = base.slice();
    columns.forEach(({ at }, k) => (base[k]! += layer.at(at)));
    const d = area(scale, columns, low, base);
    const look = { class: "trl-area", d, fill: layer.fill, "fill-opacity": 0.85 };
    return shape("path", look);
  });
  const x = { label: "time: executed points, in order", ticks: counts(...range, 8) };
  const y = { label: "live", ticks: ticks(0, top, 4, 1024), format: formatBytes };
  const over = [...traced(scale, measured), axes(scale, x, y), ...limits(scale, model)];
  return { scale, areas, over: [...over, ...moves(scale, model)] };
}

/** One step per measured part, at the part's maximum. */
function traced(scale: Scale, over: TurnBytes | null): Shape[] {
  if (!over?.bytes.length) return [];
  let [d, end] = ["", -1];
  over.bytes.forEach((value, k) => {
    const from = Math.max(over.first[k]!, scale.x[0]);
    const to = Math.min(over.last[k]!, scale.x[1]);
    if (from >= to) return;
    const y = scale.py(value).toFixed(1);
    d += `${from === end ? "L" : "M"}${scale.px(from).toFixed(1)} ${y}H${scale.px(to).toFixed(1)}`;
    end = to;
  });
  const path = shape("path", { class: "trl-measured", d, fill: "none", stroke: INK });
  return [addTitle(path, `measured in turn ${over.turn}`)];
}

function area(
  scale: Scale,
  columns: readonly Moment[],
  low: Float64Array,
  high: Float64Array,
): string {
  const x = (k: number) => scale.px(k).toFixed(1);
  const y = (value: number) => scale.py(value).toFixed(1);
  const edge = (heights: Float64Array) => {
    const runs: [number, number, string][] = []; // consecutive columns of the same height form one step
    columns.forEach(({ from, to }, k) => {
      const at = y(heights[k]!);
      const last = runs.at(-1);
      if (last && last[2] === at && last[1] === from) last[1] = to;
      else runs.push([from, to, at]);
    });
    return runs;
  };
  if (!columns.length) return "";
  const up = edge(high).map(([from, to, at]) => `${x(from)} ${at}H${x(to)}`);
  const down = edge(low)
    .reverse()
    .map(([from, to, at]) => `${x(to)} ${at}H${x(from)}`);
  return `M${up.join("L")}L${down.join("L")}Z`;
}

function limits(scale: Scale, { program_peak: peak, budget, saved_by }: MemoryView): Shape[] {
  const { left, width } = scale.box;
  const line = (value: number, name: string, said: string, look: Shape["attributes"]) => {
    const [y, x1, x2] = [scale.py(value), left, left + width];
    const at = name === "peak" ? { x: x2 - 2, "text-anchor": "end" } : { x: x1 + 4 };
    return shape(
      "g",
      { class: `trl-limit trl-${name}` },
      shape("line", { x1, x2, y1: y, y2: y, ...look }),
      shape("text", { ...at, y: y - 4, "font-size": 10, fill: look.stroke }, said),
    );
  };
  const said = [`planned peak ${formatBytes(peak.bytes)}`, ...Object.keys(saved_by)].join(", ");
  const found = [line(peak.bytes, "peak", said, { stroke: LIMIT, "stroke-dasharray": "4 3" })];
  if (budget !== null && budget <= scale.y[1]) {
    const look = { stroke: INK, "stroke-dasharray": "8 3" };
    found.push(line(budget, "budget", `budget ${formatBytes(budget)}`, look));
  }
  return found;
}

/** Triangles of transfers: offloads point up, to the host; fetches down. */
function moves(scale: Scale, { lives }: MemoryView): Shape[] {
  let [offload, fetch] = ["", ""];
  const y = scale.box.top - 3;
  const isShown = (at: number) => at >= scale.x[0] && at <= scale.x[1];
  for (const life of lives) {
    for (const at of life.offloads)
      if (isShown(at)) offload += `M${scale.px(at) - 4} ${y}h8l-4 -7z`;
    for (const at of life.fetches)
      if (isShown(at)) fetch += `M${scale.px(at) - 4} ${y - 7}h8l-4 7z`;
  }
  return [
    shape("path", { class: "trl-move trl-offload", d: offload, fill: INK }),
    shape("path", { class: "trl-move trl-fetch", d: fetch, fill: SOFT }),
  ];
}

/** The overview of the whole run, starting at `left`. */
export function overview(model: MemoryView, run: WholeRun, left: number, width: number): Shape[] {
  const box = { left, top: 18, width, height: OVERVIEW - 36 };
  const look = { "text-anchor": "end", "font-size": 10, fill: SOFT };
  const name = text(left - 6, box.top - 7, "whole run", look);
  return [name, ...runIn(run, box, model.program_peak.bytes)];
}

interface Moment {
  readonly from: number;
  readonly to: number;
  readonly at: number; // the column with the maximum between the two
}

/** The instants of a column, the end exclusive. */
export function span({ first, turn }: MemoryView, column: number): [number, number] {
  return [first[column] ?? 0, first[column + 1] ?? turn.count];
}

/** At most `most` parts of a range of instants, each with the column of its maximum. */
function moments(model: MemoryView, [begin, end]: Range, most: number): Moment[] {
  const first = place(model.first, begin);
  const count = Math.min(place(model.first, Math.ceil(end) - 1) + 1, model.bytes.length) - first;
  const isBehind = begin >= model.turn.count; // the other of two programs has more instants
  const parts = isBehind ? 0 : Math.max(Math.min(count, Math.floor(most)), 0);
  return Array.from({ length: parts }, (_, k) => {
    const from = first + Math.floor((k * count) / parts);
    const to = Math.max(first + Math.floor(((k + 1) * count) / parts), from + 1);
    let at = from;
    for (let n = from; n < to; n++) if (model.bytes[n]! > model.bytes[at]!) at = n;
    const [left, right] = [span(model, from)[0], span(model, to - 1)[1]];
    return { from: Math.max(left, begin), to: Math.min(right, end), at };
  });
}

/** The view as a picture with a legend; `measured` are the live bytes of a run. */
export function memory(
  model: MemoryView,
  least: Extent = { count: 0, bytes: 0 },
  measured: TurnBytes | null = null,
): string {
  const { turn } = model;
  if (turn.problem) return drawText(turn.problem, 1000);
  const layers = layersOf(model);
  const down = model.run ? OVERVIEW : 0;
  const box = { left: 70, top: 34 + down, width: 530, height: 230 };
  const { areas, over } = memoryIn(model, layers, box, least, measured);
  const legend = layers.flatMap(({ name, fill, tensor, at }, k) => {
    const y = 326 + down + 18 * k;
    let largest = tensor ? most(tensor) : 0;
    if (!tensor) for (let n = 0; n < model.bytes.length; n++) largest = Math.max(largest, at(n));
    return [
      shape("rect", { x: 70, y: y - 10, width: 12, height: 12, fill }),
      text(88, y, `${name}: at most ${formatBytes(largest)}`),
    ];
  });
  const small = { "text-anchor": "end", "font-size": 10, fill: SOFT };
  const note = text(598, 14 + down, about(turn), small);
  const height = 330 + down + 18 * layers.length;
  const run = model.run ? overview(model, model.run, 70, 530) : [];
  const named = areas.map((one, k) => addTitle(one, layers[k]!.name));
  return sheet(620, height, "predicted memory", [...run, ...named, ...over, note, ...legend]);
}
