// Foldable lines of text with marked selection.
import { drawText } from "../draw/sheet";
import { foldKeys } from "./folds";
import { isAdding, keys } from "./keyboard";
import css from "./tree.css";
import type { LineColours } from "./line_colours";
import { html, type Child } from "./markup";
import type { Send } from "./pane";
import { Panel } from "./panel";
import type { Selection } from "./selection";

/** A line; deeper lines below it fold into it. */
export interface TreeLine {
  readonly depth: number;
  readonly text: string;
  readonly op_ids: number[];
}

export abstract class TreePane<Model, Row extends TreeLine> extends Panel<Model> {
  protected lines: readonly Row[] = [];
  protected rows: HTMLElement[] = [];
  protected readonly folded = new Set<string>();
  #keys: string[] = [];
  #tree: HTMLElement;

  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    name: string,
    title: string,
    style = "",
  ) {
    super(host, selection, send, name, title, css + style);
    const roles = { role: "tree", "aria-label": title.toLowerCase() };
    this.#tree = html("div", { class: "trl-code", ...roles });
    this.body.append(this.#tree);
    this.#tree.addEventListener("click", (event) => this.#click(event));
    keys(this.#tree, (event) => this.#acts(event));
    this.offerPictures();
  }

  /** The content, classes and tooltip of a line. */
  protected abstract contentOf(line: Row): { content: Child[]; classes: string; title: string };

  #colours: LineColours | null = null;

  /** Mark each line by the colours of the user's lines that it computes; null for no colours. */
  colourLines(colours: LineColours | null): void {
    this.#colours = colours;
    this.rows.forEach((row, k) => {
      const found = colours && this.runs(k) ? colours.of(this.lines[k]!.op_ids) : [];
      row.classList.toggle("trl-striped", found.length > 0);
      const size = 100 / found.length;
      const parts = found.map((one, n) => `${one} ${n * size}% ${(n + 1) * size}%`);
      row.style.setProperty("--stripes", `linear-gradient(${parts.join(", ")})`);
    });
  }

  /** Select the operations of a line. */
  protected choose(k: number, more: boolean): void {
    this.selection.click(this.lines[k]!.op_ids, more);
  }

  /** Elements above all lines. */
  protected above(): Child[] {
    return [];
  }

  /** Show these lines; folded lines stay folded if their text still exists. */
  protected fill(lines: readonly Row[]): void {
    this.lines = lines;
    this.#keys = foldKeys(lines);
    this.rows = lines.map((line, k) => this.#row(line, k));
    const above = this.above();
    const look = { class: "trl-head", style: `--depth: ${lines.at(-1)?.depth ?? 0}` };
    const head = html("div", { ...look, "aria-hidden": "true" }, ...above);
    this.#tree.replaceChildren(...(above.length ? [head] : []), ...this.rows);
    this.#fold();
    this.colourLines(this.#colours);
    this.select();
  }

  override select(): void {
    this.rows.forEach((row, k) => {
      const { op_ids } = this.lines[k]!;
      const marked = this.selection.marks(op_ids);
      row.classList.toggle("trl-selected", marked);
      row.classList.toggle("trl-reads", this.runs(k) && this.selection.reads(op_ids));
      row.setAttribute("aria-selected", String(marked));
    });
    const first = this.rows.find((row) => row.classList.contains("trl-selected") && !row.hidden);
    this.reveal(first);
  }

  /** Whether a line runs its operations. */
  protected runs(_: number): boolean {
    return true;
  }

  override picture(): string | null {
    const lines = this.lines.map(({ depth, text }) => "  ".repeat(depth) + text);
    return lines.length ? drawText(lines.join("\n")) : null;
  }

  #row(line: Row, k: number): HTMLElement {
    const { content, classes, title } = this.contentOf(line);
    const row = html(
      "div",
      {
        class: `trl-line ${classes}`,
        role: "treeitem",
        tabindex: -1,
        "data-first": k === 0,
        "aria-level": line.depth + 1,
        style: `--depth: ${line.depth}`,
        "data-line": k,
      },
      html("span", { class: "trl-fold", "aria-hidden": "true" }, this.#opens(k) ? "▾" : ""),
      ...content,
    );
    if (title) row.title = title;
    return row;
  }

  #click(event: MouseEvent): void {
    const target = event.target as Element;
    const row = target.closest<HTMLElement>(".trl-line");
    if (!row) return;
    const k = Number(row.dataset.line);
    this.#focus(k);
    if (target.closest(".trl-fold") && this.#toggle(k)) return;
    this.choose(k, isAdding(event));
  }

  #acts(event: KeyboardEvent): Record<string, (() => void) | undefined> {
    const k = this.rows.indexOf(document.activeElement as HTMLElement);
    if (k < 0) return {};
    const shown = this.rows.flatMap((row, n) => (row.hidden ? [] : [n]));
    const step = (by: number) => this.#focus(shown[shown.indexOf(k) + by] ?? k);
    const folded = this.folded.has(this.#keys[k]!);
    return {
      ArrowDown: () => step(1),
      ArrowUp: k > 0 ? () => step(-1) : undefined, // from the first line to the pane's controls
      Home: () => this.#focus(shown[0]!),
      End: () => this.#focus(shown.at(-1)!),
      ArrowLeft: () =>
        this.#opens(k) && !folded ? this.#toggle(k) : this.#focus(Math.max(this.#parent(k), 0)),
      ArrowRight: () => (folded ? this.#toggle(k) : step(1)),
      Enter: () => this.choose(k, event.shiftKey),
      " ": () => this.choose(k, event.shiftKey),
    };
  }

  #opens(k: number): boolean {
    return (this.lines[k + 1]?.depth ?? 0) > this.lines[k]!.depth;
  }

  #parent(k: number): number {
    let at = k;
    while (at >= 0 && this.lines[at]!.depth >= this.lines[k]!.depth) at--;
    return at;
  }

  /** Fold or unfold; false if the line has nothing to fold. */
  #toggle(k: number): boolean {
    if (!this.#opens(k)) return false;
    this.foldLine(k, !this.folded.has(this.#keys[k]!));
    this.#fold();
    return true;
  }

  protected foldLine(k: number, folded: boolean): void {
    if (folded) this.folded.add(this.#keys[k]!);
    else this.folded.delete(this.#keys[k]!);
  }

  /** Unfold the lines around a line, and go to it. */
  protected go(k: number): void {
    for (let at = this.#parent(k); at >= 0; at = this.#parent(at)) this.foldLine(at, false);
    this.#fold();
    this.reveal(this.rows[k]);
  }

  #fold(): void {
    let deeper = Infinity;
    this.rows.forEach((row, k) => {
      const { depth } = this.lines[k]!;
      if (depth <= deeper) deeper = Infinity;
      row.hidden = depth > deeper;
      if (!this.#opens(k)) return;
      const folded = this.folded.has(this.#keys[k]!);
      row.setAttribute("aria-expanded", String(!folded));
      if (folded && deeper === Infinity) deeper = depth;
    });
  }

  #focus(k: number): void {
    this.rows[k]?.focus({ preventScroll: true });
    this.reveal(this.rows[k]);
  }
}
