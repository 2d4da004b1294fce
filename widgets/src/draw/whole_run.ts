// Live bytes of a whole run: one period of repeated turns is drawn, followed by a break with their number.
import type { Stretch, WholeRun } from "../models";
import { type Box, formatBytes } from "../shared/plot";
import { INK, LIMIT, PAPER, SOFT } from "./theme_colours";
import { TINY_GLYPH } from "./sheet";
import { type Shape, shape, addTitle } from "./shapes";

const LEAST = 3; // minimal width of a segment in pixels

/** Position of a segment in pixels. */
interface Drawn {
  readonly one: Stretch;
  readonly left: number;
  readonly width: number;
}

/** Description of a whole run for screen readers. */
export function runText({ points, stretches }: WholeRun): string {
  const notes = stretches.map(({ note }) => note).filter(Boolean);
  const folded = notes.length ? `; ${notes.join(", ")}, drawn once` : "";
  return `live bytes of the whole run, ${points.toLocaleString("en")} executed points${folded}`;
}

/** A whole run in a box, with labels 12 pixels above and 16 below it; `top` bytes are as high as the box. */
export function runIn(run: WholeRun, box: Box, top: number): Shape[] {
  const drawn = placeStretches(run, box);
  const bottom = box.top + box.height;
  const shapes = drawn.map((part) => shape("path", { d: area(part, box, top), ...FILLED }));
  const line = (x1: number, y1: number, x2: number, y2: number) =>
    shape("line", { x1, y1, x2, y2, stroke: SOFT });
  for (const { left, width } of drawn) shapes.push(line(left, bottom, left + width, bottom));
  for (const part of drawn) if (part.one.turns) shapes.push(...broken(part, drawn, box));
  const word = (x: number, y: number, anchor: string, said: string) =>
    shape("text", { x, y, "text-anchor": anchor, "font-size": 10, fill: SOFT }, said);
  shapes.push(line(box.left, box.top, box.left, bottom));
  shapes.push(word(box.left - 6, box.top + 7, "end", formatBytes(top)));
  shapes.push(word(box.left - 6, bottom, "end", "0"), ...times(drawn, run, box, word));
  return [...shapes, ...here(drawn, run, bottom)];
}

const FILLED = { class: "trl-run-area", fill: SOFT, "fill-opacity": 0.45 } as const;

/** Consecutive segments with widths in proportion to their lengths, and room for the labels between them. */
function placeStretches({ stretches }: WholeRun, box: Box): Drawn[] {
  const gaps = stretches.map(({ note }) => (note ? TINY_GLYPH * note.length + 24 : 0));
  const room = box.width - gaps.reduce((sum, gap) => sum + gap, 0);
  const long = stretches.map(({ first, last }) => last - first);
  const total = long.reduce((sum, n) => sum + n, 0);
  const wide = long.map((n) => Math.max((room * n) / total, LEAST));
  const scale = room / wide.reduce((sum, n) => sum + n, 0);
  let left = box.left;
  return stretches.map((one, k) => {
    const found = { one, left, width: wide[k]! * scale };
    left += found.width + gaps[k]!;
    return found;
  });
}

/** One column per pixel, at the column's maximum. */
function area({ one, left, width }: Drawn, box: Box, top: number): string {
  const count = Math.max(Math.min(one.bytes.length, Math.round(width)), 1);
  const bottom = box.top + box.height;
  let d = `M${left.toFixed(1)} ${bottom.toFixed(1)}`;
  for (let k = 0; k < count; k++) {
    const from = Math.floor((k * one.bytes.length) / count);
    const to = Math.max(Math.floor(((k + 1) * one.bytes.length) / count), from + 1);
    let most = 0;
    for (let n = from; n < to; n++) most = Math.max(most, one.bytes[n]!);
    const y = bottom - (box.height * most) / (top || 1);
    d += `V${y.toFixed(1)}H${(left + (width * (k + 1)) / count).toFixed(1)}`;
  }
  return `${d}V${bottom.toFixed(1)}Z`;
}

/** Break the axis on both sides of the label of omitted turns. */
function broken({ one, left, width }: Drawn, drawn: readonly Drawn[], box: Box): Shape[] {
  const from = left + width;
  const next = drawn.find((other) => other.left > left);
  const to = next ? next.left : box.left + box.width;
  const bottom = box.top + box.height;
  const cut = (x: number) =>
    shape("path", {
      d: `M${x - 3} ${bottom + 5}L${x + 3} ${bottom - 5}`,
      stroke: INK,
      fill: "none",
    });
  const at = { x: (from + to) / 2, y: box.top + box.height / 2 + 4, "text-anchor": "middle" };
  const said = shape("text", { ...at, "font-size": 11, fill: INK }, one.note);
  const dots = { x1: from + 6, x2: to - 6, y1: bottom, y2: bottom, stroke: SOFT };
  const dotted = shape("line", { ...dots, "stroke-dasharray": "1 4" });
  const grows = one.more
    ? `, ${formatBytes(Math.abs(one.more))} ${one.more > 0 ? "more" : "less"} live after them`
    : "";
  const told = `${one.turns.toLocaleString("en")} equal turns, of which one is drawn${grows}`;
  return [addTitle(shape("g", { class: "trl-break" }, dotted, cut(from), cut(to), said), told)];
}

/** Times of segment starts and of the end of the run, as far as there is room. */
function times(
  drawn: readonly Drawn[],
  run: WholeRun,
  box: Box,
  word: (x: number, y: number, anchor: string, said: string) => Shape,
): Shape[] {
  const y = box.top + box.height + 13;
  const last = run.points.toLocaleString("en");
  const end = box.left + box.width - TINY_GLYPH * last.length - 8;
  let free = -Infinity;
  const found = [word(box.left + box.width, y, "end", last)];
  for (const { one, left } of drawn) {
    const said = one.first.toLocaleString("en");
    const to = left + TINY_GLYPH * said.length + 8;
    if (left < free || to > end) continue;
    found.push(word(left, y, "start", said));
    free = to;
  }
  return found;
}

/** A bar under the turn that is drawn below; for an omitted turn, under the representative one. */
function here(drawn: readonly Drawn[], { first, last }: WholeRun, bottom: number): Shape[] {
  const part = drawn.filter(({ one }) => one.first <= first).at(-1);
  if (!part || last <= first) return [];
  const { one, left, width } = part;
  const long = one.last - one.first;
  const inside = one.turns ? (first - one.first) % long : first - one.first;
  const x = left + (width * inside) / long;
  const wide = Math.min((width * (last - first)) / long, left + width - x);
  const bar = { x, y: bottom + 1, width: Math.max(wide, 2), height: 3, fill: LIMIT, stroke: PAPER };
  return [
    addTitle(
      shape("rect", { class: "trl-here", ...bar, "stroke-width": 0.5 }),
      "the turn that is drawn below",
    ),
  ];
}
