// The loop nest as highlighted code.
import type { LoopView } from "../models";
import { INK, LINE, MOVED, STRONG } from "./theme_colours";
import { lines, rule, type Span } from "./sheet";
import type { Shape } from "./shapes";

const LOOKS: Record<string, string> = { loop: STRONG, if: STRONG, else: STRONG, execute: INK };

/** Loops and conditions in blue, launches dark, frees and transfers in orange. */
export function nest({ lines: all }: LoopView): string {
  const rows = all.map(({ depth, text, sort }): Span[] => [
    { text: "  ".repeat(depth) },
    { text, fill: LOOKS[sort] ?? MOVED, bold: sort === "execute" },
  ]);
  const rules: Shape[] = [];
  const open: number[] = []; // the first line of each open level
  [...all.map(({ depth }) => depth), 0].forEach((depth, k) => {
    while (open.length > depth) {
      const from = open.pop()!;
      rules.push(rule(open.length, from, k, LINE));
    }
    while (open.length < depth) open.push(k);
  });
  return lines(rows, "loop nest", rules);
}
