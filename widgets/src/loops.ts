// The loop nest, like code: foldable, coloured, with the lines marked that run and that are selected.
import { foldKeys } from "./folds";
import type { Instants } from "./instants";
import css from "./loops.css";
import { html } from "./markup";
import type { Send } from "./pane";
import { keys, Panel } from "./panel";
import { textPicture } from "./picture";
import type { Selection } from "./selection";

type Token = [start: number, end: number, sort: string];

export interface LoopLine {
  line: number;
  depth: number;
  text: string;
  sort: string;
  op_ids: number[];
  parent: number;
  inside: number[];
  tensors: string[];
  region: string[];
  tokens: Token[];
}

/** What `LoopView.to_json` gives. */
export interface LoopModel {
  lines: LoopLine[];
}

const FOLDS = new Set(["loop", "if", "else"]);

export class LoopPane extends Panel<LoopModel> {
  #lines: LoopLine[] = [];
  #rows: HTMLElement[] = [];
  #keys: string[] = [];
  #folded = new Set<string>();
  #instants: Instants | null = null;
  #tree = html("div", { class: "trl-code", role: "tree", "aria-label": "loop nest" });

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "loops", "Loop nest", css);
    this.body.append(this.#tree);
    this.#tree.addEventListener("click", (event) => this.#click(event));
    keys(this.#tree, (event) => this.#acts(event));
    this.offerPictures();
  }

  override draw(model: LoopModel): void {
    this.#lines = model.lines;
    this.#keys = foldKeys(model.lines);
    this.#rows = model.lines.map((line, k) => this.#row(line, k));
    this.#tree.replaceChildren(...this.#rows);
    const loops = model.lines.filter((line) => line.sort === "loop").length;
    this.note.textContent = `${model.lines.length} lines, ${loops} loops`;
    this.#fold();
    this.select();
    this.instant();
  }

  /** Take over which line runs at which instant. */
  follow(instants: Instants | null): void {
    this.#instants = instants;
    this.instant();
  }

  override select(): void {
    this.#rows.forEach((row, k) => {
      const marked = this.selection.marks(this.#lines[k]!.op_ids);
      row.classList.toggle("trl-selected", marked);
      row.setAttribute("aria-selected", String(marked));
    });
    this.#reveal(this.#rows.find((row) => row.classList.contains("trl-selected")));
  }

  override instant(): void {
    const at = this.selection.instant;
    const line = at === null ? -1 : (this.#instants?.line(at) ?? -1);
    for (const [k, row] of this.#rows.entries()) {
      row.classList.toggle("trl-running", k === line);
      if (k === line) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    }
    if (line >= 0) this.#reveal(this.#rows[line]);
  }

  override picture(): SVGSVGElement | null {
    if (!this.#rows.length) return null;
    const spans = this.#rows.map((row, k) => {
      const indent = { text: "  ".repeat(this.#lines[k]!.depth), fill: "none" };
      const parts = [...row.querySelector(".trl-text")!.childNodes].map((node) => ({
        text: node.textContent ?? "",
        fill: getComputedStyle(node instanceof Element ? node : row).color,
        bold: node instanceof Element && node.classList.contains("trl-of-name"),
      }));
      return [indent, ...parts];
    });
    return textPicture(this.root, spans);
  }

  #row(line: LoopLine, k: number): HTMLElement {
    const folds = FOLDS.has(line.sort);
    const text = html("span", { class: "trl-text" }, ...coloured(line));
    const row = html(
      "div",
      {
        class: `trl-line trl-${line.sort}`,
        role: "treeitem",
        tabindex: k === 0 ? 0 : -1,
        "aria-level": line.depth + 1,
        "aria-expanded": folds ? "true" : undefined,
        style: `--depth: ${line.depth}`,
        "data-line": k,
      },
      html("span", { class: "trl-fold", "aria-hidden": "true" }, folds ? "▾" : ""),
      text,
    );
    const about = [line.region.join(" / "), line.tensors.join(", ")].filter(Boolean).join(" · ");
    if (about) row.title = about;
    return row;
  }

  #click(event: MouseEvent): void {
    const target = event.target as Element;
    const row = target.closest<HTMLElement>(".trl-line");
    if (!row) return;
    const k = Number(row.dataset.line);
    this.#focus(k);
    if (target.closest(".trl-fold") && this.#turns(k)) return;
    this.#choose(k, event.shiftKey || event.ctrlKey || event.metaKey);
  }

  #choose(k: number, more: boolean): void {
    const { op_ids, inside } = this.#lines[k]!;
    this.selection.click(op_ids.length ? op_ids : inside, more);
    const first = this.#instants?.firstOfLine(k) ?? -1;
    if (first >= 0 && this.selection.instant !== null) this.selection.at(first);
  }

  #acts(event: KeyboardEvent): Record<string, (() => void) | undefined> {
    const k = this.#rows.indexOf(document.activeElement as HTMLElement);
    if (k < 0) return {};
    const shown = this.#rows.flatMap((row, n) => (row.hidden ? [] : [n]));
    const step = (by: number) => this.#focus(shown[shown.indexOf(k) + by] ?? k);
    const folded = this.#folded.has(this.#keys[k]!);
    return {
      ArrowDown: () => step(1),
      ArrowUp: () => step(-1),
      Home: () => this.#focus(shown[0]!),
      End: () => this.#focus(shown.at(-1)!),
      ArrowLeft: () =>
        this.#opens(k) && !folded
          ? this.#turns(k)
          : this.#focus(Math.max(this.#lines[k]!.parent, 0)),
      ArrowRight: () => (folded ? this.#turns(k) : step(1)),
      Enter: () => this.#choose(k, event.shiftKey),
      " ": () => this.#choose(k, event.shiftKey),
      Escape: () => this.selection.choose([]),
    };
  }

  #opens(k: number): boolean {
    return FOLDS.has(this.#lines[k]!.sort);
  }

  /** Fold or unfold; false where there is nothing to fold. */
  #turns(k: number): boolean {
    if (!this.#opens(k)) return false;
    const key = this.#keys[k]!;
    if (!this.#folded.delete(key)) this.#folded.add(key);
    this.#fold();
    return true;
  }

  #fold(): void {
    let deeper = Infinity;
    this.#rows.forEach((row, k) => {
      const { depth } = this.#lines[k]!;
      if (depth <= deeper) deeper = Infinity;
      row.hidden = depth > deeper;
      const folded = this.#opens(k) && this.#folded.has(this.#keys[k]!);
      if (this.#opens(k)) row.setAttribute("aria-expanded", String(!folded));
      if (folded && deeper === Infinity) deeper = depth;
    });
  }

  #focus(k: number): void {
    this.#rows.forEach((row, n) => row.setAttribute("tabindex", n === k ? "0" : "-1"));
    this.#rows[k]?.focus({ preventScroll: true });
    this.#reveal(this.#rows[k]);
  }

  /** Scroll the pane, never the page. */
  #reveal(row: HTMLElement | undefined): void {
    if (!row || row.hidden) return;
    const { scrollTop, clientHeight } = this.body;
    const [top, bottom] = [row.offsetTop, row.offsetTop + row.offsetHeight];
    if (top < scrollTop) this.body.scrollTop = top - 8;
    else if (bottom > scrollTop + clientHeight) this.body.scrollTop = bottom - clientHeight + 8;
  }
}

function coloured(line: LoopLine): (Node | string)[] {
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
