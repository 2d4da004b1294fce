// Outline pane: a stage as foldable text. A selection marks the lines of its operations. Figures stand next to
// the lines. Expensive details are requested when opened.
import { drawText } from "../draw/sheet";
import { html, type Child } from "../shared/markup";
import type { OutlineLine, OutlineView } from "../models";
import css from "./outline.css";
import type { Send } from "../shared/pane";
import { formatBytes, formatSeconds } from "../shared/plot";
import type { SearchField } from "../shared/search_field";
import type { Selection } from "../shared/selection";
import { TreePane } from "../shared/tree";

/** A requested detail, or the error instead. */
export interface DetailModel extends OutlineView {
  problem: string;
}

export class OutlinePane extends TreePane<OutlineView, OutlineLine> {
  #model: OutlineView | null = null;
  #details = new Map<string, readonly OutlineLine[]>(); // by name; empty while requested
  readonly #search: SearchField;

  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    name = "outline",
    title = "Stage",
  ) {
    super(host, selection, send, name, title, css);
    this.#search = this.offerSearch("find in the text", {
      items: () => this.lines.map(({ text }, k) => [k, text]),
      mark: () => {
        const { hits } = this.#search;
        this.rows.forEach((row, k) => row.classList.toggle("trl-found", !!hits?.has(k)));
      },
      go: (k) => this.go(k),
    });
  }

  override draw(model: OutlineView | null): void {
    this.root.hidden = !model;
    if (!model) return;
    if (this.name === "outline") this.root.querySelector("h3")!.textContent = model.stage;
    this.#model = model;
    this.#details.clear();
    this.#show();
    model.lines.forEach((line, k) => line.folded && this.foldLine(k, true));
    this.#show();
  }

  /** Insert a requested detail at its line. */
  detail(found: DetailModel): void {
    if (!this.#details.has(found.stage)) return;
    const text = found.problem || "nothing";
    this.#details.set(found.stage, found.lines.length ? found.lines : [messageLine(text)]);
    this.#show();
  }

  protected override contentOf(line: OutlineLine) {
    const isLit = line.op_ids.length > 0;
    const content: Child[] = [html("span", { class: "trl-text" }, line.text || " ")];
    if (line.number) content.unshift(html("span", { class: "trl-number" }, String(line.number)));
    if (this.#model?.columns.length && line.number) content.unshift(...this.#figures(line));
    if (line.note) content.push(html("span", { class: "trl-soft" }, line.note));
    return { content, classes: isLit ? "trl-lit" : line.detail ? "trl-asks" : "", title: "" };
  }

  /** The titles of the figures. */
  protected override above(): Child[] {
    const columns = this.#model?.columns ?? [];
    return columns.map(({ name }) =>
      html("span", { class: "trl-figure", style: "--share: 0" }, name),
    );
  }

  protected override choose(k: number, more: boolean): void {
    const { detail, op_ids } = this.lines[k]!;
    if (detail && !this.#details.has(detail)) {
      this.#details.set(detail, [messageLine("loading …")]);
      this.#show();
      this.send({ kind: "detail", name: detail });
    } else if (op_ids.length) this.selection.click(op_ids, more);
  }

  #show(): void {
    const lines = this.#model!.lines.flatMap((line) => {
      const more = (line.detail && this.#details.get(line.detail)) || [];
      return [line, ...more.map((one) => ({ ...one, depth: one.depth + line.depth + 1 }))];
    });
    this.fill(lines);
    this.#search.refresh();
  }

  override picture(): string | null {
    const lines = this.lines.map((line) => {
      const { number, depth, text, note } = line;
      const figures = this.#texts(line).filter(Boolean).join(", ");
      const said = [number || "", "  ".repeat(depth) + text, note, figures];
      return said.filter((part) => part !== "").join("  ");
    });
    return lines.length ? drawText(lines.join("\n")) : null;
  }

  #texts(line: OutlineLine): string[] {
    return this.#model!.columns.map(({ unit }, k) => {
      const text =
        { bytes: formatBytes, seconds: formatSeconds }[unit] ??
        ((n: number) => n.toLocaleString("en"));
      return line.figures[k] ? text(line.figures[k]) : "";
    });
  }

  /** The figures of a line; the largest of each column has a full bar. */
  #figures(line: OutlineLine): Child[] {
    const texts = this.#texts(line);
    return this.#model!.columns.map(({ name }, k) => {
      const all = this.#model!.lines.map(({ figures }) => figures[k] ?? 0);
      const value = line.figures[k];
      const share = value ? value / Math.max(...all) : 0;
      const shown = texts[k]!;
      const attributes = { class: "trl-figure", style: `--share: ${share}`, title: shown && name };
      return html("span", attributes, shown);
    });
  }
}

function messageLine(text: string): OutlineLine {
  const nothing = { op_ids: [], note: "", number: 0, figures: [], folded: false, detail: "" };
  return { text, depth: 0, ...nothing };
}
