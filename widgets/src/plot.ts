// A little plotting in SVG: scales, ticks, axes, and marks that differ by shape as well as colour.
import { svg } from "./markup";

/** Okabe and Ito's colours, in the order in which series take them. */
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

/** The area of a plot in pixels, and the data that its edges stand for. */
export class Scale {
  constructor(
    readonly box: { left: number; top: number; width: number; height: number },
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

  /** What stands at a horizontal position. */
  at(px: number): number {
    const [low, high] = this.x;
    return low + ((px - this.box.left) / (this.box.width || 1)) * (high - low);
  }

  /** What stands at a vertical position. */
  up(py: number): number {
    const [low, high] = this.y;
    return low + (1 - (py - this.box.top) / (this.box.height || 1)) * (high - low);
  }
}

/** Round numbers between two ends; round for binary units with `base` 1024. */
export function ticks(low: number, high: number, count = 5, base = 10): number[] {
  if (!(high > low)) return [low];
  let unit = 1;
  const raw = (high - low) / count;
  while (base === 1024 && high / unit >= 1024) unit *= 1024;
  const power = 10 ** Math.floor(Math.log10(raw / unit)) * unit;
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999)!;
  const found: number[] = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n++) found.push(n * step);
  return found;
}

/** Ticks of whole things: without fractions. */
export function counts(low: number, high: number, count = 5): number[] {
  return ticks(low, high, count).filter(Number.isInteger);
}

/** 12.3 KiB, 320 KiB. */
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  let size = n;
  while (Math.abs(size) >= 1024 && units.length > 1) {
    size /= 1024;
    units.shift();
  }
  return `${Number(size.toFixed(size < 10 ? 2 : 1))} ${units[0]}`;
}

/** 1.2 s, 34 ms, 0.4 ms. */
export function seconds(s: number): string {
  if (s >= 1) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
  const ms = s * 1e3;
  return `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
}

export interface Axis {
  readonly label: string;
  readonly ticks: readonly number[];
  readonly format?: (value: number) => string;
}

/** Grid, ticks and labels of a plot. */
export function axes(scale: Scale, x: Axis, y: Axis): SVGGElement {
  const { left, top, width, height } = scale.box;
  const bottom = top + height;
  const group = svg("g", { class: "trl-axes", "aria-hidden": "true" });
  for (const value of y.ticks) {
    const at = scale.py(value);
    group.append(
      svg("line", { class: "trl-grid", x1: left, x2: left + width, y1: at, y2: at }),
      svg("text", { x: left - 6, y: at + 3.5, "text-anchor": "end" }, text(value, y)),
    );
  }
  for (const value of x.ticks) {
    const at = scale.px(value);
    group.append(
      svg("line", { class: "trl-tick", x1: at, x2: at, y1: bottom, y2: bottom + 4 }),
      svg("text", { x: at, y: bottom + 15, "text-anchor": "middle" }, text(value, x)),
    );
  }
  group.append(
    svg("line", { class: "trl-axis", x1: left, x2: left + width, y1: bottom, y2: bottom }),
    svg("line", { class: "trl-axis", x1: left, x2: left, y1: top, y2: bottom }),
  );
  if (x.label) {
    group.append(svg("text", { x: left + width, y: bottom + 29, "text-anchor": "end" }, x.label));
  }
  if (y.label) {
    group.append(
      svg("text", { class: "trl-up", x: left - 6, y: top - 6, "text-anchor": "end" }, y.label),
    );
  }
  return group;
}

function text(value: number, axis: Axis): string {
  return axis.format ? axis.format(value) : String(value);
}

/** Shapes of marks. */
export type Shape = "circle" | "square" | "triangle" | "diamond" | "cross";

/** The outline of a mark around a point, as path data. */
export function mark(shape: Shape, x: number, y: number, r: number): string {
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
      const w = r * 0.4;
      return `M${at(-r, -w)}h${r - w}v${w - r}h${2 * w}v${r - w}h${r - w}v${2 * w}h${w - r}v${r - w}h${-2 * w}v${w - r}h${w - r}z`;
    }
  }
}
