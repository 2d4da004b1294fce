// A colour for each of the user's lines. Lines of later stages have the colours of the user's lines that they compute.
import type { OutlineView } from "../models";
import type { Selection } from "./selection";

const GOLDEN = 137.508; // degrees between the hues of two lines, such that neighbours differ

export class LineColours {
  readonly #lines: { key: string; colour: string; related: ReadonlySet<number> }[];

  constructor(
    source: OutlineView,
    private readonly selection: Selection,
  ) {
    const computing = source.lines.filter(({ op_ids }) => op_ids.length);
    this.#lines = computing.map(({ op_ids }, k) => ({
      key: String(op_ids),
      colour: `hsl(${((k * GOLDEN) % 360).toFixed(0)} 65% 50%)`,
      related: selection.relatives(op_ids),
    }));
  }

  /** The colour of a line itself, or the colours of all lines that some operations compute a part of. */
  of(ids: readonly number[]): string[] {
    const own = this.#lines.find(({ key }) => key === String(ids));
    if (own) return [own.colour];
    const heads = this.selection.heads(ids);
    return this.#lines
      .filter(({ related }) => heads.some((id) => related.has(id)))
      .map(({ colour }) => colour);
  }
}
