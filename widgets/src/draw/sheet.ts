// Pictures as text: shapes on a background, arranged pictures, and lines of text.
import { INK, PAPER, addTheme, removeTheme } from "./theme_colours";
import type { Box } from "../shared/plot";
import { type Shape, shape, writeShape } from "./shapes";

const LINE = 17; // pixels of a line of text
const GLYPH = 7.25; // pixels of a monospaced character
export const TINY_GLYPH = 5.6; // pixels of a character in 10 pixels, at most
export const SMALL_GLYPH = 6.2; // pixels of a character in 11 pixels, on average
const MONO = "ui-monospace, Menlo, Consolas, monospace";

/** A picture on a background. */
export function sheet(
  width: number,
  height: number,
  title: string,
  shapes: readonly Shape[],
): string {
  return exportPicture(page(width, height, title, shapes));
}

/** A shape as a separate picture. */
export function exportPicture(drawn: Shape): string {
  return addTheme(writeShape(drawn));
}

/** The same as a shape. */
export function page(
  width: number,
  height: number,
  title: string,
  shapes: readonly Shape[],
): Shape {
  const [wide, high] = [Math.ceil(width), Math.ceil(height)];
  return shape(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      width: wide,
      height: high,
      viewBox: `0 0 ${wide} ${high}`,
      role: "img",
      "font-family": "sans-serif",
      "font-size": 12,
    },
    ...(title ? [shape("title", {}, title)] : []),
    shape("rect", { width: "100%", height: "100%", fill: PAPER }),
    ...shapes,
  );
}

/** A short text; in `INK` unless a colour is given. */
export function text(x: number, y: number, said: string, more: Shape["attributes"] = {}): Shape {
  return shape("text", { x, y, fill: INK, ...more }, said);
}

/** A text that fits into a number of pixels. */
export function short(said: string, pixels: number, glyph = SMALL_GLYPH): string {
  const most = Math.max(Math.floor(pixels / glyph), 2);
  return said.length > most ? `${said.slice(0, most - 1)}…` : said;
}

/** An entry of a legend: its text, and its key in a box. */
export interface Entry {
  readonly name: string;
  readonly key: (box: Box) => readonly Shape[];
}

/** Shapes with their common height in pixels. */
export interface Drawn {
  readonly shapes: readonly Shape[];
  readonly height: number;
}

/** A legend in rows of a width. */
export function legend(entries: readonly Entry[], x: number, y: number, width: number): Drawn {
  let [left, top] = [x, y];
  const shapes = entries.map(({ name, key }) => {
    const wide = 20 + SMALL_GLYPH * name.length;
    if (left > x && left + wide > x + width) [left, top] = [x, top + 18];
    const box = { left, top, width: 14, height: 11 };
    left += wide + 14;
    return shape("g", {}, ...key(box), text(box.left + 19, top + 10, name, { "font-size": 11 }));
  });
  return { shapes, height: top + 18 - y };
}

/** The clickable area of a row, over its whole width. */
export function ground(y: number, width: number, height: number): Shape {
  return shape("rect", {
    x: 0,
    y,
    width,
    height,
    fill: PAPER,
    "fill-opacity": 0,
    class: "trl-hit",
  });
}

/** A part of a line of text with its colour. */
export interface Span {
  readonly text: string;
  readonly fill?: string;
  readonly bold?: boolean;
}

/** Lines of monospaced text, above `rules`. */
export function lines(
  rows: readonly (readonly Span[])[],
  title = "",
  rules: readonly Shape[] = [],
): string {
  const long = (row: readonly Span[]) => row.reduce((n, span) => n + span.text.length, 0);
  const width = 24 + GLYPH * rows.reduce((most, row) => Math.max(most, long(row)), 10);
  const shapes = rows.map((row, k) =>
    shape(
      "text",
      {
        x: 12,
        y: 22 + LINE * k,
        "font-family": MONO,
        "xml:space": "preserve",
        style: "white-space: pre",
      },
      ...row.map(({ text, fill = INK, bold }) =>
        shape("tspan", { fill, "font-weight": bold ? 600 : undefined }, text),
      ),
    ),
  );
  return sheet(width, 16 + LINE * rows.length, title, [...rules, ...shapes]);
}

/** A vertical rule to the left of a nesting level, over a range of lines. */
export function rule(level: number, from: number, to: number, stroke: string): Shape {
  const x = 14 + 2 * GLYPH * level;
  return shape("line", { x1: x, x2: x, y1: 10 + LINE * from, y2: 10 + LINE * to, stroke });
}

/** Lines of plain text, of which `most` are shown. */
export function drawText(text: string, most = Infinity): string {
  const all = text.split("\n");
  const more = `… and ${(all.length - most + 1).toLocaleString("en")} lines more`;
  const shown = all.length > most ? [...all.slice(0, most - 1), more] : all;
  return lines(shown.map((line) => [{ text: line }]));
}

/** A picture with a line of text above it. */
export interface TitledPicture {
  readonly title: string;
  readonly picture: string;
}

/** Rows of pictures as one, each at its own size. */
export function arrange(rows: readonly (readonly TitledPicture[])[]): string {
  const [gap, head] = [12, 22];
  const parts: string[] = [];
  let [wide, y] = [0, gap];
  for (const row of rows) {
    let [x, high] = [gap, 0];
    const over = row.some(({ title }) => title) ? head : 0;
    for (const { title, picture: given } of row) {
      const picture = given.slice(given.indexOf("<svg"));
      const [width, height] = sizes(picture);
      if (title) parts.push(writeShape(text(x, y + 14, title, { "font-weight": 600 })));
      const inner = removeTheme(picture);
      parts.push(inner.replace("<svg", `<svg x="${x}" y="${y + over}"`));
      x += width + gap;
      high = Math.max(high, height + over);
    }
    wide = Math.max(wide, x);
    y += high + gap;
  }
  const [whole, end] = writeShape(page(wide, y, "", [shape("g", {}, "|")])).split("<g>|</g>");
  return addTheme(whole + parts.join("") + end);
}

/** Width and height of a picture in pixels. */
function sizes(picture: string): [number, number] {
  const head = picture.slice(0, picture.indexOf(">"));
  const size = (name: string) => {
    const [, value = "0", unit] = new RegExp(` ${name}="([\\d.]+)(pt)?`).exec(head) ?? [];
    return Math.ceil(Number(value) * (unit ? 4 / 3 : 1));
  };
  return [size("width"), size("height")];
}
