// The stages of a compilation: a bar for the duration of each, with its result.
import type { PipelineView, StageRow } from "../models";
import { formatSeconds, SERIES } from "../shared/plot";
import { INK, SOFT } from "./theme_colours";
import { sheet, text } from "./sheet";
import { shape } from "./shapes";

/** The duration of a stage, or the reason that it did not run. */
export function cost({ ran, known, is_on, seconds: s }: StageRow): string {
  if (known) return "reused";
  if (ran) return formatSeconds(s);
  return is_on ? "not needed" : "off";
}

export function pipeline({ stages, seconds: whole }: PipelineView): string {
  const said = stages.map(({ changed, summary }) =>
    changed === false ? "changed nothing" : summary,
  );
  const most = Math.max(...stages.map((row) => row.seconds)) || 1;
  const rows = stages.flatMap((row, k) => {
    const { name, seconds, ran, changed } = row;
    const [y, fill] = [46 + 20 * k, ran && changed !== false ? INK : SOFT];
    const bar = { x: 195, y: y - 9, width: (130 * seconds) / most, height: 11, fill: SERIES[0] };
    return [
      text(12, y, name, { fill }),
      text(185, y, cost(row), { fill, "text-anchor": "end" }),
      shape("rect", bar),
      text(335, y, said[k]!, { fill }),
    ];
  });
  const title = text(12, 20, `${(whole * 1e3).toFixed(0)} ms in all`, { "font-weight": 600 });
  const width = 360 + 7.25 * Math.max(0, ...said.map((one) => one.length));
  return sheet(width, 52 + 20 * stages.length, "pipeline", [title, ...rows]);
}
