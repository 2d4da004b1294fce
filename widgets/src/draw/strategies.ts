// Collection strategies as bars: speed with its spread, or the reason that a strategy does not apply.
import type { ShownStrategy, StrategiesView } from "../models";
import { INK, LINE, PAPER, SOFT } from "./theme_colours";
import { formatCount } from "../shared/plot";
import { type Drawn, ground, sheet, short, text } from "./sheet";
import { type Shape, shape, addTitle } from "./shapes";

const ROW = 34; // pixels of a row with a bar
const BARE = 20; // pixels of a row without a bar
const BAR = 12;
const GLYPH = 6.4; // pixels of a character, on average
const LEFT = 12;
const [CHOSEN, OTHER] = ["#0072b2", "#56b4e9"];

/** Format steps per second with a readable unit. */
export function perSecond(steps: number): string {
  const units = [
    [1e9, " G"],
    [1e6, " M"],
    [1e3, " k"],
    [0, ""],
  ] as const;
  const [size, unit] = units.find(([size]) => steps >= size)!;
  return `${Number((steps / (size || 1)).toPrecision(3))}${unit}`;
}

const count = (n: number | null, one: string, many: string) =>
  n === null ? [] : [formatCount(n, one, many)];

/** The text after the name of a strategy. */
export function describeSpeed(row: ShownStrategy): string {
  if (!row.speed) return row.why_not || "not measured";
  const { median, least, greatest } = row.speed;
  return `${perSecond(median)} steps/s (${perSecond(least)} to ${perSecond(greatest)})`;
}

/** The counted calls, launches and copies of a batch. */
export function describeBatch(row: ShownStrategy): string {
  const { calls, launches, copies } = row;
  return [
    ...count(calls, "call", "calls"),
    ...count(launches, "launch", "launches"),
    ...count(copies, "copy", "copies"),
  ].join(", ");
}

/** The rows, starting at a height, in a number of pixels. */
export function bars(view: StrategiesView, width: number): Drawn {
  const most = Math.max(...view.rows.map(({ speed }) => speed?.greatest ?? 0), 1);
  const wide = Math.max(width - 2 * LEFT, 60);
  let height = 0;
  const shapes = view.rows.map((row) => {
    const high = row.speed ? ROW : BARE;
    const drawn = [...bar(row, height, wide, wide / most, width), ground(height, width, high)];
    height += high;
    return addTitle(shape("g", {}, ...drawn), describeBatch(row));
  });
  return { shapes, height: height + 4 };
}

function bar(row: ShownStrategy, top: number, wide: number, scale: number, width: number): Shape[] {
  const bold = row.is_chosen ? 600 : undefined;
  const mark = row.is_chosen ? "✓ " : "";
  const name = `${mark}${row.name}`;
  const said = describeSpeed(row);
  const after = GLYPH * (name.length + 2);
  const room = Math.max(width - 2 * LEFT - after, 8 * GLYPH);
  const head = [
    text(LEFT, top + 12, name, { "font-weight": bold }),
    text(LEFT + after, top + 12, short(said, room, GLYPH), {
      "font-size": 11,
      fill: row.speed ? INK : SOFT,
    }),
  ];
  if (!row.speed) return head;
  const { median, least, greatest } = row.speed;
  const y = top + 17;
  const middle = y + BAR / 2;
  const at = (value: number) => LEFT + Math.min(value * scale, wide);
  const fill = row.is_chosen ? CHOSEN : OTHER;
  const line = (x1: number, x2: number, y1: number, y2: number) =>
    shape("line", { x1, x2, y1, y2, stroke: INK, "stroke-width": 1.4 });
  return [
    ...head,
    shape("rect", { x: LEFT, y, width: wide, height: BAR, fill: PAPER, stroke: LINE }),
    shape("rect", { x: LEFT, y, width: Math.max(median * scale, 1), height: BAR, fill }),
    line(at(least), at(greatest), middle, middle),
    line(at(least), at(least), y + 2, y + BAR - 2),
    line(at(greatest), at(greatest), y + 2, y + BAR - 2),
  ];
}

/** Wrap words to lines of a maximal number of characters. */
function wrapWords(said: string, most: number): string[] {
  const lines = [""];
  for (const word of said.split(" ")) {
    const last = lines.at(-1)!;
    if (last && last.length + word.length >= most) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines;
}

/** The view as a separate picture. */
export function strategies(view: StrategiesView, width = 640): string {
  const { shapes, height } = bars(view, width);
  const title = `${view.name}, N = ${view.envs.toLocaleString("en")}, K = ${view.steps.toLocaleString("en")}`;
  const lines = wrapWords(view.summary, Math.floor((width - 2 * LEFT) / GLYPH));
  const end = lines.map((line, k) => text(LEFT, 46 + height + 16 * k, line, { "font-size": 11 }));
  const head = text(LEFT, 20, title, { "font-weight": 600 });
  const moved = shape("g", { transform: "translate(0 30)" }, ...shapes);
  return sheet(width, 46 + height + 16 * lines.length, title, [head, moved, ...end]);
}
