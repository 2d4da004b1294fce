// Heat maps of the values that a paused run holds.
import type { HeatMap, HeatMapAxis, ValuesView } from "../models";
import { formatCount } from "../shared/plot";
import { LINE, SOFT } from "./theme_colours";
import { page, text } from "./sheet";
import { type Shape, shape, addTitle } from "./shapes";

const [LEFT, WIDE, HIGH] = [64, 300, 160]; // pixels: labels of rows, the most of the cells
const [POSITIVE, NEGATIVE, NOT_FINITE] = ["#d55e00", "#0072b2", "#cc00cc"];
const MARKS = ["", "NaN", "inf", "-inf"]; // by the number of `HeatMap.marks`

const short = (value: number) => String(Number(value.toPrecision(4)));

/** A line of text about a tensor: its type, its range, and its values that are not finite. */
export function summary(map: HeatMap): string {
  const { least, most, nans, infinities } = map;
  const range = least === null || most === null ? [] : [`${short(least)} to ${short(most)}`];
  const odd = [
    ...(nans ? [formatCount(nans, "NaN")] : []),
    ...(infinities ? [formatCount(infinities, "infinite value")] : []),
  ];
  return [map.dtype, ...range, ...odd].join(", ");
}

/** All heat maps, one below the other. */
export function values(view: ValuesView): Shape {
  let y = 8;
  const parts: Shape[] = [];
  for (const map of view.maps) {
    const { drawn, height } = heatMap(map, y);
    parts.push(...drawn);
    y += height;
  }
  for (const name of view.missing) {
    y += 16;
    parts.push(
      text(12, y, `${name}: no value is stored at this instant`, { fill: SOFT, "font-size": 11 }),
    );
  }
  if (!parts.length) parts.push(text(12, (y += 16), "no values", { fill: SOFT }));
  return page(LEFT + WIDE + 40, y + 14, view.at && `values ${view.at}`, parts);
}

function heatMap(map: HeatMap, top: number): { drawn: Shape[]; height: number } {
  const { rows, columns, cells, marks } = map;
  const [m, n] = [rows.labels.length, columns.labels.length];
  const wide = Math.min(Math.max(Math.floor(WIDE / (n || 1)), 2), 20);
  const high = Math.min(Math.max(Math.floor(HIGH / (m || 1)), 3), 16);
  const [over, width, height] = [top + 44, n * wide, m * high];
  const greatest = Math.max(Math.abs(map.least ?? 0), Math.abs(map.most ?? 0)) || 1;
  const small = { fill: SOFT, "font-size": 10 };
  const drawn: Shape[] = [
    text(12, top + 14, map.name, { "font-weight": 600 }),
    text(12, top + 28, summary(map), small),
  ];
  if (rows.name)
    drawn.push(text(LEFT - 6, over - 4, rows.name, { ...small, "text-anchor": "end" }));
  const mean = isSummed(rows) || isSummed(columns) ? "mean " : "";
  for (let k = 0; k < m * n; k++) {
    const [row, column] = [Math.floor(k / n), k % n];
    const [value, mark] = [cells[k]!, marks[k]!];
    const look = mark
      ? { fill: NOT_FINITE }
      : {
          fill: value < 0 ? NEGATIVE : POSITIVE,
          "fill-opacity": Number((Math.abs(value) / greatest).toFixed(3)),
        };
    const place = { x: LEFT + column * wide, y: over + row * high, width: wide, height: high };
    const cell = shape("rect", { ...place, ...look, "data-mark": MARKS[mark] || undefined });
    const where = [at(rows, row), at(columns, column)].filter(Boolean).join("; ");
    drawn.push(
      addTitle(cell, `${where}${where && ": "}${mark ? MARKS[mark] : mean + short(value)}`),
    );
    if (mark && wide >= 16 && high >= 10) {
      const middle = { x: place.x + wide / 2, y: place.y + high / 2 + 3 };
      const look = { fill: "#ffffff", "font-size": 7, "text-anchor": "middle" };
      drawn.push(text(middle.x, middle.y, MARKS[mark]!, { ...look, "pointer-events": "none" }));
    }
  }
  drawn.push(
    shape("rect", { x: LEFT, y: over, width, height, fill: "none", stroke: LINE }),
    ...ends(rows.labels).map(([k, said]) =>
      text(LEFT - 6, over + (k + 0.5) * high + 3.5, said, { ...small, "text-anchor": "end" }),
    ),
    ...ends(columns.labels).map(([k, said]) =>
      text(LEFT + (k + 0.5) * wide, over + height + 12, said, {
        ...small,
        "text-anchor": "middle",
      }),
    ),
    text(LEFT + width + 8, over + height + 12, columns.name, small),
  );
  return { drawn, height: height + 44 + 30 };
}

/** Whether a cell stands for several values along an axis. */
function isSummed(axis: HeatMapAxis): boolean {
  return axis.size > axis.labels.length;
}

function at(axis: HeatMapAxis, k: number): string {
  const label = axis.labels[k]!;
  return axis.name && label && `${axis.name} = ${label}${isSummed(axis) ? " …" : ""}`;
}

/** The first and the last label. */
function ends(labels: readonly string[]): [number, string][] {
  const last = labels.length - 1;
  return last > 0
    ? [
        [0, labels[0]!],
        [last, labels[last]!],
      ]
    : labels.map((said, k) => [k, said]);
}
