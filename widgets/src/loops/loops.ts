// Loop nest pane: foldable, highlighted code with marked running and selected lines.
import { colourByCost, type CostMeasure } from "../shared/cost";
import { formatCount } from "../shared/plot";
import { nest } from "../draw/nest";
import type { Instants } from "../shared/instants";
import css from "./loops.css";
import { html } from "../shared/markup";
import type { Line, LoopView } from "../models";
import type { Send } from "../shared/pane";
import type { Selection } from "../shared/selection";
import { TreePane } from "../shared/tree";

export class LoopPane extends TreePane<LoopView, Line> {
  #instants: Instants | null = null;
  #cost: CostMeasure | null = null;

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "loops", "Loop nest", css);
  }

  override draw(model: LoopView): void {
    this.fill(model.lines);
    const loops = model.lines.filter((line) => line.sort === "loop").length;
    this.colour(this.#cost);
    this.note.textContent = `${formatCount(model.lines.length, "line")}, ${formatCount(loops, "loop")}`;
    this.instant();
  }

  /** Colour the lines that run kernels by a measure of cost; null for no colours. */
  colour(cost: CostMeasure | null): void {
    this.#cost = cost;
    const runs = this.rows.map((row, k): [Element, number[]] => {
      const { op_ids } = this.lines[k]!;
      return [row, this.runs(k) ? op_ids : []];
    });
    colourByCost(runs, cost);
  }

  protected override runs(k: number): boolean {
    return this.lines[k]!.statement !== null;
  }

  override picture(): string | null {
    return this.lines.length ? nest({ view: "loop", lines: [...this.lines] }) : null;
  }

  /** Set the lines that run at the instants. */
  follow(instants: Instants | null): void {
    this.#instants = instants;
    this.instant();
  }

  override instant(): void {
    const at = this.selection.instant;
    const line = at === null ? -1 : (this.#instants?.line(at) ?? -1);
    for (const [k, row] of this.rows.entries()) {
      row.classList.toggle("trl-running", k === line);
      if (k === line) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    }
    if (line >= 0) this.reveal(this.rows[line]);
  }

  protected override contentOf(line: Line) {
    const title = [line.region.join(" / "), line.tensors.join(", ")].filter(Boolean).join(" · ");
    const content = [html("span", { class: "trl-text" }, ...colourTokens(line))];
    return { content, classes: `trl-${line.sort}`, title };
  }

  protected override choose(k: number, more: boolean): void {
    const { op_ids, inside } = this.lines[k]!;
    this.selection.click(op_ids.length ? op_ids : inside, more);
    const first = this.#instants?.firstOfLine(k) ?? -1;
    if (first >= 0 && this.selection.instant !== null) this.selection.at(first);
  }
}

function colourTokens(line: Line): (Node | string)[] {
  const parts: (Node | string)[] = [];
  let at = 0;
  for (const [start, end, sort] of line.tokens) {
    if (start > at) parts.push(line.text.slice(at, start));
    parts.push(html("span", { class: `trl-of-${sort}` }, line.text.slice(start, end)));
    at = end;
  }
  if (at < line.text.length) parts.push(line.text.slice(at));
  return parts;
}
