// Plotting: scales, ticks, axes, and marks that differ by shape as well as colour.
import { LINE, SOFT } from "../draw/theme_colours";
import { type Shape, shape } from "../draw/shapes";
import type { Statement } from "../models";

/** Palette of Okabe and Ito, in the order of use. */
export const SERIES = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#b8a800",
  "#777777",
] as const;

export function colour(k: number): string {
  return SERIES[k % SERIES.length]!;
}

/** Position and size of a plot in pixels. */
export interface Box {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** Plot area in pixels with the data values at its edges. */
export class Scale {
  constructor(
    readonly box: Box,
    readonly x: readonly [number, number],
    readonly y: readonly [number, number],
  ) {}

  px(x: number): number {
    const [low, high] = this.x;
    return this.box.left + ((x - low) / (high - low || 1)) * this.box.width;
  }

  py(y: number): number {
    const [low, high] = this.y;
    return this.box.top + this.box.height * (1 - (y - low) / (high - low || 1));
  }

  /** The data value at a horizontal position. */
  at(px: number): number {
    const [low, high] = this.x;
    return low + ((px - this.box.left) / (this.box.width || 1)) * (high - low);
  }

  /** The data value at a vertical position. */
  up(py: number): number {
    const [low, high] = this.y;
    return low + (1 - (py - this.box.top) / (this.box.height || 1)) * (high - low);
  }
}

/** Round numbers between two ends; with `base` 1024, round in binary units. */
export function ticks(low: number, high: number, count = 5, base = 10): number[] {
  const span = high - low;
  if (!(span > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) return [low];
  let unit = 1;
  const raw = span / count;
  while (base === 1024 && high / unit >= 1024) unit *= 1024;
  const power = 10 ** Math.floor(Math.log10(raw / unit)) * unit;
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999)!;
  const [first, last] = [Math.ceil(low / step), Math.floor(high / step + 1e-9)];
  return Array.from({ length: Math.max(last - first + 1, 0) }, (_, n) => (first + n) * step);
}

/** The axis of a time window with readable units; `ns` is the number of nanoseconds of 1. */
export function timeAxis(begin: number, end: number, ns = 1, label = ""): Axis {
  const [long, unit] = unitOf((end - begin) * ns, 2);
  const size = long / ns;
  const text = (at: number) => Number((at / size).toPrecision(12)).toLocaleString("en");
  return {
    label,
    ticks: ticks(begin / size, end / size, 6).map((at) => at * size),
    format: (at) => `${text(at)} ${unit}`,
  };
}

const TIMES: readonly [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** The largest unit that fits `times` times into nanoseconds. */
function unitOf(ns: number, times = 1): [number, string] {
  return TIMES.find(([size]) => ns >= times * size) ?? TIMES.at(-1)!;
}

/** Nanoseconds in a readable unit: 1.23 s, 45.6 µs. */
export function formatDuration(ns: number): string {
  const [size, unit] = unitOf(ns);
  return `${size === 1 ? Math.round(ns) : Number((ns / size).toPrecision(3))} ${unit}`;
}

/** Ticks of whole numbers. */
export function counts(low: number, high: number, count = 5): number[] {
  return ticks(low, high, count).filter(Number.isInteger);
}

/** 12.3 KiB, 320 KiB. */
export function formatBytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  let size = n;
  while (Math.abs(size) >= 1024 && units.length > 1) {
    size /= 1024;
    units.shift();
  }
  return `${Number(size.toFixed(size < 10 ? 2 : 1))} ${units[0]}`;
}

/** 1 line, 2,000 lines. */
export function formatCount(n: number, noun: string, plural = `${noun}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? noun : plural}`;
}

/** The same of seconds. */
export function formatSeconds(s: number): string {
  return formatDuration(1e9 * s);
}

/** A share as 34 %. */
export function formatPercent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}

export interface Axis {
  readonly label: string;
  readonly ticks: readonly number[];
  readonly format?: (value: number) => string;
}

const AXES = { class: "trl-axes", fill: SOFT, "font-size": 10, "aria-hidden": "true" };

function line(x1: number, y1: number, x2: number, y2: number, stroke: string): Shape {
  return shape("line", { x1, x2, y1, y2, stroke });
}

function word(x: number, y: number, anchor: string, said: string): Shape {
  return shape("text", { x, y, "text-anchor": anchor }, said);
}

/** The horizontal axis below a plot: a line, ticks, and labels up to `beyond` pixels to its right. */
export function axisBelow(scale: Scale, x: Axis, beyond = 0): Shape {
  const { left, top, width, height } = scale.box;
  const end = left + width + beyond;
  const bottom = top + height;
  const parts = [line(left, bottom, left + width, bottom, SOFT)];
  for (const value of x.ticks) {
    const at = scale.px(value);
    const said = text(value, x);
    const isLong = at + 2.8 * said.length > end;
    parts.push(line(at, bottom, at, bottom + 4, SOFT));
    parts.push(word(isLong ? end : at, bottom + 15, isLong ? "end" : "middle", said));
  }
  if (x.label) parts.push(word(left + width, bottom + 29, "end", x.label));
  return shape("g", AXES, ...parts);
}

/** Grid, ticks and labels of a plot. */
export function axes(scale: Scale, x: Axis, y: Axis): Shape {
  const { left, top, width, height } = scale.box;
  const parts: Shape[] = [];
  for (const value of y.ticks) {
    const at = scale.py(value);
    parts.push(line(left, at, left + width, at, LINE));
    parts.push(word(left - 6, at + 3.5, "end", text(value, y)));
  }
  parts.push(line(left, top, left, top + height, SOFT));
  if (y.label) parts.push(word(left - 6, top - 9, "end", y.label));
  return shape("g", AXES, ...parts, axisBelow(scale, x, 14));
}

function text(value: number, axis: Axis): string {
  return axis.format ? axis.format(value) : String(value);
}

/** The outline of a mark around a point, as path data. */
export function mark(shape: Statement["shape"], x: number, y: number, size: number): string {
  const r = Number(size.toFixed(1));
  const at = (dx: number, dy: number) => `${(x + dx).toFixed(1)} ${(y + dy).toFixed(1)}`;
  switch (shape) {
    case "circle":
      return `M${at(-r, 0)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
    case "square":
      return `M${at(-r, -r)}h${2 * r}v${2 * r}h${-2 * r}z`;
    case "triangle":
      return `M${at(0, -1.2 * r)}L${at(1.15 * r, r)}L${at(-1.15 * r, r)}z`;
    case "diamond":
      return `M${at(0, -1.3 * r)}L${at(1.3 * r, 0)}L${at(0, 1.3 * r)}L${at(-1.3 * r, 0)}z`;
    case "cross": {
      const [w, k] = [Number((r * 0.4).toFixed(1)), (r * 0.6).toFixed(1)];
      const [down, right] = [`v-${k}h${2 * w}v${k}`, `h${k}v${2 * w}h-${k}`];
      return `M${at(-r, -w)}h${k}${down}${right}v${k}h-${2 * w}v-${k}h-${k}z`;
    }
  }
}
