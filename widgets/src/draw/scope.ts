// Time breakdown of a recording: processes, operations by library, transitions, and tracks.
import type { Numbers } from "../shared/buffers";
import type {
  ScopeDevice,
  ScopeKey,
  ScopeOperation,
  ScopeProcess,
  ScopeTime,
  ScopeView,
  Spans,
  StretchView,
} from "../models";
import { axisBelow, type Box, formatCount, formatDuration, Scale, timeAxis } from "../shared/plot";
import { INK, LIMIT, LINE, PAPER, SOFT } from "./theme_colours";
import { type Drawn, type Entry, ground, legend, sheet, short, text } from "./sheet";
import { type Shape, shape, addTitle } from "./shapes";

const ROW = 20; // pixels from bar to bar
const BAR = 14;
const NAMES = 165; // width of the names in pixels
const FIGURES = 128; // width of the figures after a bar
export const OUTSIDE = "outside of operations";

/** Filter by process and phase, by position; null for all. */
export interface Filter {
  readonly process: number | null;
  readonly phase: number | null;
}
export const ALL: Filter = { process: null, phase: null };

/** Nanoseconds of one kind within an operation or a process. */
export interface Part {
  readonly library: string;
  readonly used: string;
  readonly ns: number;
}

export interface Sum {
  readonly of: number; // position of the operation or process
  readonly parts: readonly Part[]; // in the order of libraries
  readonly ns: number;
}

export function percent(part: number, whole: number): string {
  const share = (100 * part) / (whole || 1);
  return `${share.toFixed(share < 9.95 ? 1 : 0)} %`;
}

/** Recorded time of all threads. */
export function totalOf({ total, lanes }: ScopeView): string {
  return total
    ? `${formatDuration(total)} of ${formatCount(lanes.length, "thread")}`
    : "nothing was recorded";
}

export function nameOf({ name }: ScopeOperation): string {
  return name || OUTSIDE;
}

/** The times that pass a filter. */
export function timesOf(view: ScopeView, { process, phase }: Filter): readonly ScopeTime[] {
  return view.times.filter(
    (one) =>
      (process === null || one.process === process) && (phase === null || one.phase === phase),
  );
}

/** Sums by operation or process, each by library; the largest first. */
export function sums(
  view: ScopeView,
  by: "operation" | "process" | "phase",
  times: readonly ScopeTime[] = view.times,
): Sum[] {
  const found = new Map<number, Map<string, Part>>();
  for (const one of times) {
    const parts = found.get(one[by]) ?? new Map<string, Part>();
    const key = `${one.library} ${one.used}`;
    const ns = one.ns + (parts.get(key)?.ns ?? 0);
    found.set(one[by], parts.set(key, { library: one.library, used: one.used, ns }));
  }
  const place = new Map(view.libraries.map(({ name }, k) => [name, k]));
  const rank = ({ library, used }: Part) => USED.length * place.get(library)! + USED.indexOf(used);
  return [...found]
    .map(([of, parts]) => ({
      of,
      parts: [...parts.values()].sort((a, b) => rank(a) - rank(b)),
      ns: [...parts.values()].reduce((sum, { ns }) => sum + ns, 0),
    }))
    .sort((a, b) => b.ns - a.ns || a.of - b.of);
}

const USED = ["cpu", "both", "gpu", "untraced"];
const BESIDE: Record<string, string> = {
  cpu: "",
  both: ", a device busy",
  gpu: ", waiting for a busy device",
  untraced: ", devices not traced",
};

/**
 * A bar of parts, `width` pixels in total. Hatches distinguish parts in addition to colours; a line below
 * marks busy devices.
 */
function bar(view: ScopeView, parts: readonly Part[], box: Box, whole: number): Shape[] {
  let x = box.left;
  return parts.flatMap(({ library, used, ns }) => {
    const width = (box.width * ns) / (whole || 1);
    const place = { left: x, top: box.top, width, height: box.height };
    x += width;
    const key = view.libraries.find(({ name }) => name === library)!;
    const said = `${library}${BESIDE[used]}: ${formatDuration(ns)}`;
    return [addTitle(shape("g", {}, ...filled(key, place, used)), said)];
  });
}

function filled({ colour, hatch }: ScopeKey, box: Box, used = "untraced"): Shape[] {
  const { left: x, top: y, width, height } = box;
  const found = [shape("rect", { x, y, width, height, fill: colour }), ...hatched(hatch, [box])];
  return used === "both" || used === "gpu" ? [...found, ...beside(box, used)] : found;
}

/** The line below a bar: a device is busy, or waited for. */
function beside({ left, top, width, height }: Box, used: string): Shape[] {
  const y = top + height + 1.5;
  const dashes = used === "gpu" ? undefined : "3 2";
  const look = { stroke: INK, "stroke-width": 2, "stroke-dasharray": dashes };
  return [shape("line", { x1: left, x2: left + width, y1: y, y2: y, ...look })];
}

function hatched(hatch: string, boxes: readonly Box[]): Shape[] {
  const d =
    hatch &&
    merged(boxes)
      .map((box) => texture(hatch, box))
      .join("");
  const look = { stroke: PAPER, "stroke-width": 1, "stroke-opacity": 0.6, fill: "none" };
  return d ? [shape("path", { d, ...look })] : [];
}

/** Adjacent boxes as one, of the height that they have in common. */
function merged(boxes: readonly Box[]): Box[] {
  const found: Box[] = [];
  for (const box of boxes) {
    const last = found.at(-1);
    const top = Math.max(box.top, last?.top ?? 0);
    const height = Math.min(box.top + box.height, last ? last.top + last.height : Infinity) - top;
    const isNext = last && Math.abs(last.left + last.width - box.left) < 0.01;
    if (isNext && height > 0.7 * Math.max(box.height, last.height)) {
      found[found.length - 1] = { left: last.left, top, width: last.width + box.width, height };
    } else found.push(box);
  }
  return found;
}

/** Hatch lines over a bar, by the hatch's name; lines of adjacent bars continue each other. */
function texture(hatch: string, { left, top, width, height }: Box): string {
  if (width < 3) return "";
  const [right, bottom] = [left + width, top + height];
  const at = (x: number, y: number) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const line = (x1: number, y1: number, x2: number, y2: number) => `M${at(x1, y1)}L${at(x2, y2)}`;
  const parts: string[] = [];
  // the sum of x and y of a rising line is constant, the difference of a falling one
  const slanted = (sign: 1 | -1) => {
    const ends = [
      left + sign * top,
      left + sign * bottom,
      right + sign * top,
      right + sign * bottom,
    ];
    for (let c = multiple(Math.min(...ends), 6); c < Math.max(...ends); c += 6) {
      const xs = [c - sign * top, c - sign * bottom].map((x) => Math.min(Math.max(x, left), right));
      const [x1, x2] = xs as [number, number];
      parts.push(line(x1, sign * (c - x1), x2, sign * (c - x2)));
    }
  };
  if (hatch === "/" || hatch === "x") slanted(1);
  if (hatch === "\\" || hatch === "x") slanted(-1);
  if (hatch === "|")
    for (let x = multiple(left, 4); x < right; x += 4) parts.push(line(x, top, x, bottom));
  if (hatch === "-")
    for (let y = multiple(top, 4); y < bottom; y += 4) parts.push(line(left, y, right, y));
  return parts.join("");
}

/** The first multiple of a step that is not less than a number. */
function multiple(least: number, step: number): number {
  return Math.ceil(least / step) * step;
}

/** The entries of the legend: colours, hatches, and lines of busy devices. */
export function keysOf(view: ScopeView): Entry[] {
  const used = new Set(view.times.flatMap((one) => [one.library, one.used]));
  const ran = new Set(view.devices.flatMap((one) => one.ran.map(({ sort }) => sort)));
  if (view.devices.some(({ looked }) => looked < view.end)) ran.add("untraced");
  const entry = (key: ScopeKey, name: string): Entry => ({ name, key: (box) => filled(key, box) });
  return [
    ...view.libraries.filter(({ name }) => used.has(name)).map((key) => entry(key, key.name)),
    ...view.sorts
      .filter(({ name }) => ran.has(name))
      .map((key) => entry(key, `device: ${key.name}`)),
    ...["both", "gpu"]
      .filter((one) => used.has(one))
      .map((one) => ({ name: BESIDE[one]!.slice(2), key: (box: Box) => beside(box, one) })),
  ];
}

/** Rows of operations. */
export interface Rows extends Drawn {
  readonly of: readonly number[];
}

/** The figures after a bar. */
function behind(x: number, top: number, figures: string): Shape {
  return text(x, top + 11, figures, { "font-size": 11, "xml:space": "preserve", fill: SOFT });
}

/** A row for each operation, with a bar in proportion to its time. */
export function operationRows(view: ScopeView, keep: Filter, width: number, most = Infinity): Rows {
  const times = timesOf(view, keep);
  const all = sums(view, "operation", times).filter(({ ns }) => ns > 0);
  const total = all.reduce((sum, { ns }) => sum + ns, 0);
  const longest = all[0]?.ns ?? 1;
  const room = Math.max(width - NAMES - FIGURES - 12, 40);
  const rows = all.slice(0, most).map((sum, k) => {
    const one = view.operations[sum.of]!;
    const top = k * ROW + 2;
    const box = { left: NAMES, top, width: (room * sum.ns) / longest, height: BAR };
    const figures = `${formatDuration(sum.ns)}  ${percent(sum.ns, total)}`;
    const count = one.count ? `, ${formatCount(one.count, "time")}` : "";
    const name = text(NAMES - 20, top + 11, short(nameOf(one), NAMES - 20), {
      "text-anchor": "end",
      "font-size": 11,
    });
    const key = { x: NAMES - 15, y: top + 3, width: 8, height: 8, fill: one.colour };
    const said = `${nameOf(one)}: ${figures}${count}`;
    const drawn = [
      ground(top - 2, width, ROW),
      addTitle(name, said),
      ...(one.name ? [shape("rect", key)] : []),
      ...bar(view, sum.parts, box, sum.ns),
      behind(box.left + box.width + 6, top, figures),
    ];
    return shape("g", {}, ...drawn);
  });
  const of = all.slice(0, most).map((sum) => sum.of);
  return { of, shapes: rows, height: rows.length * ROW + 4 };
}

/** A row for each process: its depth in the tree, its lifetime, and its time by library. */
export function processRows(view: ScopeView, width: number, most = Infinity): Drawn {
  const by = new Map(sums(view, "process").map((sum) => [sum.of, sum]));
  const room = Math.max(width - NAMES - 60 - FIGURES, 40);
  const left = NAMES + 60;
  const rows = view.processes.slice(0, most).map((one, k) => {
    const top = k * ROW + 2;
    const sum = by.get(k);
    const [from, to] = [one.begin, one.end ?? view.end].map(
      (ns) => left + (room * Math.min(Math.max(ns, 0), view.end)) / (view.end || 1),
    ) as [number, number];
    const box = { left: from, top, width: Math.max(to - from, 1), height: BAR };
    const indent = 10 * Math.min(one.depth, 6);
    const called = processName(one);
    const name = text(indent + 4, top + 11, short(called, left - indent - 12), {
      "font-size": 11,
    });
    const figures = `${formatDuration(sum?.ns ?? 0)}  ${formatCount(one.threads, "thread")}`;
    const open = one.end === null ? "; its end was not recorded" : "";
    const said = `process ${one.number}, started by ${one.parent}: ${one.command}${open}`;
    const edge = shape("line", {
      x1: to,
      x2: to,
      y1: top - 1,
      y2: top + BAR + 1,
      stroke: INK,
      "stroke-dasharray": one.end === null ? "2 2" : undefined,
    });
    const drawn = [
      ground(top - 2, width, ROW),
      addTitle(name, said),
      shape("rect", { x: left, y: top + BAR / 2, width: room, height: 1, fill: LINE }),
      ...bar(view, sum?.parts ?? [], box, sum?.ns ?? 0),
      edge,
      behind(left + room + 8, top, figures),
    ];
    return shape("g", {}, ...drawn);
  });
  return { shapes: rows, height: rows.length * ROW + 4 };
}

export function processName({ number, command }: ScopeProcess): string {
  return command ? `${number}  ${command}` : String(number);
}

/** Number of calls from one library into another by operation, the largest first. */
export interface Transition {
  readonly operation: number;
  readonly left: string;
  readonly to: string;
  readonly count: number;
}

export function transitionsOf(view: ScopeView): Transition[] {
  return view.operations
    .flatMap(({ transitions }, operation) => transitions.map((one) => ({ operation, ...one })))
    .sort((a, b) => b.count - a.count);
}

/** The number of calls per entry of the operation. */
export function perEntry({ operation, count }: Transition, view: ScopeView): string {
  const times = view.operations[operation]!.count;
  return times ? Number((count / times).toPrecision(3)).toLocaleString("en") : "";
}

// --- tracks ---------------------------------------------------------------------------------------

const HEIGHTS = { phase: 6, operation: 15, library: 15, device: 13 } as const; // pixels
const LANE_NAMES = 110;
/** Position of the tracks, to the right of their names, and height of the time axis below them. */
export const TRACKS_LEFT = LANE_NAMES + 12;
export const AXIS = 20;

/** One track of a thread, or a device: its position in the drawing, and its data. */
export interface Track {
  readonly kind: keyof typeof HEIGHTS;
  readonly of: number; // position of the lane, or device
  readonly top: number;
  readonly height: number;
  readonly shares: Numbers;
  readonly spans: Spans;
  readonly operations: Numbers | null; // of a device: the operation that launched each span
  readonly keys: readonly (Key | null)[]; // by kind; null for time without an entry
}
type Key = Pick<ScopeKey, "name" | "colour" | "hatch">;

export interface Tracks {
  readonly tracks: readonly Track[];
  readonly names: readonly { readonly said: string; readonly y: number }[];
  readonly height: number;
}

/** The tracks of a time window, from top to bottom: threads, then devices. */
export function tracksOf(view: ScopeView, stretch: StretchView): Tracks {
  const named = (all: readonly { readonly name: string; readonly colour: string }[]) =>
    all.map((one) => (one.name ? { ...one, hatch: "" } : null));
  const keys = {
    phase: named(view.phases),
    operation: named(view.operations),
    library: view.libraries,
    device: view.sorts,
  };
  const [tracks, names]: [Track[], { said: string; y: number }[]] = [[], []];
  let top = 0;
  for (const { lane, tracks: parts } of stretch.lanes) {
    names.push({ said: laneName(view, lane), y: top + 18 });
    for (const { kind, shares, spans } of parts) {
      if (kind === "phase" && view.phases.length < 2) continue;
      const place = { kind, of: lane, top, height: HEIGHTS[kind] };
      tracks.push({ ...place, shares, spans, operations: null, keys: keys[kind] });
      top += HEIGHTS[kind] + 2;
    }
    top += 10;
  }
  for (const { device, shares, spans, operations } of stretch.devices) {
    const [kind, height] = ["device", HEIGHTS.device] as const;
    const one = view.devices[device]!;
    const whose = view.processes.length > 1 ? `${view.processes[one.process]!.number} ` : "";
    names.push({ said: whose + deviceName(one), y: top + 11 });
    tracks.push({ kind, of: device, top, height, shares, spans, operations, keys: keys[kind] });
    top += height + 7;
  }
  return { tracks, names, height: top };
}

/** The columns of a track as boxes by kind, from bottom to top; equal neighbours are merged. */
export function runs(
  { kind: track, shares, top, height }: Track,
  left: number,
  width: number,
  wide: number,
): Box[][] {
  const column = width / wide;
  const least = track === "device" ? 1 : 0; // keeps short kernels visible
  const foot = new Float64Array(wide).fill(top + height);
  return Array.from({ length: shares.length / wide }, (_, kind) => {
    const found: Box[] = [];
    for (let k = 0; k < wide; k++) {
      const share = shares[kind * wide + k]!;
      if (!share) continue;
      const high = Math.max((height * share) / 255, least);
      const y = (foot[k]! -= high);
      let run = 1;
      while (
        k + run < wide &&
        shares[kind * wide + k + run] === share &&
        Math.abs(foot[k + run]! - high - y) < 1e-6
      ) {
        foot[k + run]! -= high;
        run++;
      }
      found.push({ left: left + k * column, top: y, width: run * column, height: high });
      k += run - 1;
    }
    return found;
  });
}

/**
 * Tracks with their names and the time axis: the part in the window of the scale. `chosen` tells which
 * operations are selected; devices show their launches.
 */
export function tracksIn(
  { tracks, names }: Tracks,
  stretch: StretchView,
  scale: Scale,
  chosen: (operation: number) => boolean = () => false,
): Shape[] {
  const { left, width, height } = scale.box;
  const look = { "text-anchor": "end", "font-size": 11 };
  const named = names.map(({ said, y }) => text(left - 8, y, short(said, LANE_NAMES), look));
  const x = (ns: number) => scale.px(ns) - left;
  const [from, to] = [x(stretch.begin), x(stretch.end)];
  const drawn = tracks.map((track) => {
    const { top: y, height, keys, operations, spans } = track;
    const ground = shape("rect", { x: 0, y, width, height, fill: LINE, "fill-opacity": 0.5 });
    const kinds = runs(track, from, to - from, stretch.width).flatMap((boxes, kind) => {
      const key = keys[kind];
      if (!key || !boxes.length) return [];
      const of = track.kind === "operation" ? { "data-operation": kind } : {};
      const filled = shape("path", { d: outline(boxes), fill: key.colour, ...of });
      return [filled, ...hatched(key.hatch, boxes)];
    });
    const launched = [...(operations ?? [])].flatMap((one, k) => {
      if (one < 0 || !chosen(one)) return [];
      const [left, right] = [x(spans.begin[k]!), x(spans.end[k]!)];
      return [{ left, top: y, width: Math.max(right - left, 1), height }];
    });
    const launches = shape("path", { d: outline(launched), class: "trl-launches", fill: LIMIT });
    const kind = { class: `trl-of-${track.kind}` };
    return shape(
      "g",
      kind,
      ground,
      shape("g", {}, ...kinds),
      ...(launched.length ? [launches] : []),
    );
  });
  const clipped = shape("svg", { x: left, y: 0, width, height }, ...drawn);
  return [...named, clipped, timeBelow(scale)];
}

/** The time axis below the tracks. */
export function timeBelow(scale: Scale): Shape {
  return axisBelow(scale, timeAxis(...scale.x));
}

function outline(boxes: readonly Box[]): string {
  const f = (x: number) => x.toFixed(1);
  return boxes
    .map(
      ({ left, top, width, height }) =>
        `M${f(left)} ${f(top)}h${f(width)}v${f(height)}h-${f(width)}z`,
    )
    .join("");
}

/** The title of the tracks. */
export function tracksTitle({ devices }: ScopeView): string {
  const below = devices.length ? "; below, the activities of devices" : "";
  return `Threads: phases, operations, libraries${below}`;
}

export function deviceName({ number, name }: ScopeDevice): string {
  return `${number}: ${name}`;
}

export function laneName(view: ScopeView, lane: number): string {
  const { process, thread, name } = view.lanes[lane]!;
  const called = name || String(thread);
  return view.processes.length > 1 ? `${view.processes[process]!.number} ${called}` : called;
}

/** The view as a picture. */
export function scope(view: ScopeView): string {
  const [width, left] = [780, 16];
  const shapes: Shape[] = [];
  const head = `${totalOf(view)}, ${formatDuration(view.end)} from begin to end`;
  let y = 22;
  shapes.push(text(left, y, view.total ? head : "nothing was recorded", { "font-weight": 600 }));
  const keys = legend(keysOf(view), left + 2, (y += 12), width - 2 * left);
  shapes.push(...keys.shapes);
  y += keys.height + 6;
  const placed = (rows: Drawn) => {
    const moved = { transform: `translate(${left} ${y})` };
    shapes.push(shape("g", moved, ...rows.shapes));
    y += rows.height;
  };
  const title = (said: string) => {
    shapes.push(text(left, (y += 16), said, { "font-size": 11, fill: SOFT }));
    y += 6;
  };
  const more = (count: number, noun: string, plural?: string) => {
    if (count > 0) title(`and ${formatCount(count, noun, plural)} more`);
  };
  if (view.processes.length > 1) {
    title("processes");
    placed(processRows(view, width - 2 * left, 16));
    more(view.processes.length - 16, "process", "processes");
  }
  const operations = operationRows(view, ALL, width - 2 * left, 20);
  if (operations.shapes.length) {
    title("operations");
    placed(operations);
    more(sums(view, "operation").length - 20, "operation");
  }
  const most = transitionsOf(view).slice(0, 8);
  if (most.length) {
    title("transitions");
    for (const move of most) {
      const name = short(nameOf(view.operations[move.operation]!), NAMES - 8);
      const often = perEntry(move, view);
      const said = `${move.left} → ${move.to}: ${move.count.toLocaleString("en")}`;
      shapes.push(
        text(left + NAMES - 8, (y += 13), name, { "text-anchor": "end", "font-size": 11 }),
        text(left + NAMES, y, said + (often && `, ${often} each time`), { "font-size": 11 }),
      );
      y += 3;
    }
    more(transitionsOf(view).length - 8, "kind");
  }
  const { overview } = view;
  if (overview.lanes.length) {
    title(tracksTitle(view));
    const tracks = tracksOf(view, overview);
    const box = {
      left: TRACKS_LEFT,
      top: 0,
      width: width - 2 * left - TRACKS_LEFT,
      height: tracks.height,
    };
    const scale = new Scale(box, [overview.begin, overview.end], [0, 1]);
    const drawn = tracksIn(tracks, overview, scale);
    shapes.push(shape("g", { transform: `translate(${left} ${y})` }, ...drawn));
    y += tracks.height + AXIS;
    more(view.lanes.length - overview.lanes.length, "thread");
    more(view.devices.length - overview.devices.length, "device");
  }
  if (view.remark) title(short(view.remark, width - 2 * left, 5.6));
  return sheet(width, y + 12, "recorded time", shapes);
}

/** The kind with the largest fraction of a column; -1 if all are zero. */
export function mostOf(shares: Numbers, wide: number, column: number): number {
  let [best, found] = [0, -1];
  for (let kind = 0; kind * wide < shares.length; kind++) {
    const share = shares[kind * wide + column]!;
    if (share > best) [best, found] = [share, kind];
  }
  return found;
}
