// Memory pane: predicted live bytes over time, and the live tensors at the selected instant.
import { isAdding } from "../shared/keyboard";
import {
  type Layer,
  layersOf,
  memory,
  memoryIn,
  most,
  OVERVIEW,
  overview,
  ranked,
  REST,
  span,
} from "../draw/memory";
import { runText } from "../draw/whole_run";
import { about, place } from "../shared/instants";
import { colourKey, html, createElement, svg, table } from "../shared/markup";
import css from "./memory.css";
import type { Send } from "../shared/pane";
import { formatBytes, formatCount } from "../shared/plot";
import { term } from "../shared/terms";
import type { Selection } from "../shared/selection";
import { type Description, TimeAxisPane } from "../shared/time_axis_pane";
import type { LiveTensor, MemoryView, TurnBytes } from "../models";

/** The user's line behind a tensor, and the reason for its storage. */
function reasons({ place, line, store, why }: LiveTensor): string[] {
  return [line ? `${place}: ${line}` : place, why ? `${store}: ${why}` : store];
}

export class MemoryPane extends TimeAxisPane<MemoryView> {
  #model: MemoryView | null = null;
  #layers: Layer[] = [];
  #areas: SVGElement[] = [];
  #rows: HTMLTableRowElement[] = [];
  #table = html("tbody");
  #badges = html("span", { class: "trl-badges" });
  #when = html("caption");
  #ranked: LiveTensor[] = [];
  #least = { count: 0, bytes: 0 };
  #measured: TurnBytes | null = null;
  #run = svg("svg", { class: "trl-whole-run", role: "img" });

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "memory", "Memory, predicted", css, 204);
    const heads = ["tensor", "live", "values", "at most", "last read by"].map((name) =>
      term("th", name, name, { scope: "col" }),
    );
    const live = table(heads, this.#table, { class: "trl-live" }, this.#when);
    this.plot.before(this.#run);
    this.body.append(html("div", { class: "trl-live-box" }, live));
    this.note.before(this.#badges);
  }

  /** Set minimal extents of the axes, so that two programs have the same scale. */
  lock(count: number, bytes: number): void {
    this.#least = { count, bytes };
    this.repaint();
  }

  /** Draw the live bytes of a run of the same program, or give the reason for not drawing them. */
  measure(measured: TurnBytes | null): void {
    this.#measured = measured;
    if (!this.#model) return;
    this.#annotate(this.#model);
    this.repaint();
  }

  override draw(model: MemoryView): void {
    this.#model = model;
    this.#measured = null; // measured for the previous model
    this.#ranked = ranked(model);
    this.#layers = layersOf(model);
    const badge = ([how, why]: [string, string]) =>
      html("span", { class: "trl-badge", title: why }, how);
    this.#badges.replaceChildren(...Object.entries(model.saved_by).map(badge));
    this.#annotate(model);
    this.plot.setAttribute(
      "aria-label",
      `live bytes over time, peak ${formatBytes(model.peak.bytes)}`,
    );
    this.#rows = this.#ranked.map((one) => this.#row(one));
    this.#table.replaceChildren(...this.#rows);
    this.repaint();
    this.select();
    this.instant();
  }

  override select(): void {
    const any = this.selection.ids.size > 0;
    this.#layers.forEach((layer, k) => {
      const marked = !!layer.tensor && this.selection.holds(layer.tensor);
      this.#areas[k]?.classList.toggle("trl-selected", marked);
      this.#areas[k]?.classList.toggle("trl-faint", any && !marked);
    });
    this.#ranked.forEach((one, k) => {
      const marked = this.selection.holds(one);
      this.#rows[k]!.classList.toggle("trl-selected", marked);
      this.#rows[k]!.setAttribute("aria-selected", String(marked));
    });
  }

  override instant(): void {
    super.instant();
    const model = this.#model;
    if (!model) return;
    const at = place(model.first, this.selection.instant ?? model.peak.instant);
    const total = model.bytes[at] ?? 0;
    const where = this.selection.instant === null ? "the turn's peak, instant" : "instant";
    const [first, end] = span(model, at);
    const near = end > first + 1 ? `, the greatest from ${first} to ${end - 1}` : "";
    this.#when.textContent = `${formatBytes(total)} live at ${where} ${model.at[at] ?? 0}${near}`;
    this.#ranked.forEach((one, k) => {
      const held = one.held[at] ?? 0;
      const row = this.#rows[k]!;
      row.classList.toggle("trl-gone", held === 0);
      row.cells[1]!.textContent = held ? formatBytes(held * one.value_bytes) : "–";
      row.cells[2]!.textContent = held ? String(held) : "–";
      row.style.setProperty("--share", total ? String((held * one.value_bytes) / total) : "0");
    });
  }

  #annotate(model: MemoryView): void {
    const { program_peak: peak, host_peak: host } = model;
    const moment = peak.moment ? ` at ${peak.moment}` : "";
    const over = this.#measured;
    const run = over?.bytes.length ? `line: measured in turn ${over.turn}` : over?.reason;
    this.note.textContent = [
      `planned peak ${formatBytes(peak.bytes)}${moment}`,
      host ? `host ${formatBytes(host)}` : "",
      run ?? "",
      over?.reason ? "" : about(model.turn),
    ]
      .filter(Boolean)
      .join("; ");
    this.note.title = this.note.textContent;
  }

  override picture(): string | null {
    return this.#model && memory(this.#model, this.#least, this.#measured);
  }

  protected override get count(): number {
    return this.#model?.turn.count ?? 0;
  }

  protected override get extent(): number {
    return Math.max(this.count, this.#least.count);
  }

  protected override paint(width: number): SVGElement[] {
    this.#overview(width);
    const box = this.box(width, 18, 34);
    const drawn = memoryIn(
      this.#model!,
      this.#layers,
      box,
      this.#least,
      this.#measured,
      this.visible,
    );
    this.scale = drawn.scale;
    this.#areas = drawn.areas.map(createElement);
    return [...this.#areas, ...drawn.over.map(createElement)];
  }

  /** The whole run, above the axis of the turn. */
  #overview(width: number): void {
    const { run } = this.#model!;
    this.#run.style.display = run ? "" : "none";
    if (!run) return;
    const { left, width: wide } = this.box(width, 0, 0);
    const size = { width, height: OVERVIEW, viewBox: `0 0 ${width} ${OVERVIEW}` };
    for (const [name, value] of Object.entries(size)) this.#run.setAttribute(name, String(value));
    this.#run.setAttribute("aria-label", runText(run));
    this.#run.replaceChildren(...overview(this.#model!, run, left, wide).map(createElement));
  }

  protected override describe(px: number, py: number): Description | null {
    const model = this.#model;
    const instant = Math.floor(this.scale.at(px));
    if (!model || instant < 0 || instant >= model.turn.count) return null;
    const at = place(model.first, instant);
    const level = this.scale.up(py);
    let base = 0;
    for (const layer of this.#layers) {
      const size = layer.at(at);
      if (level >= base && level < base + size) return this.#describeLayer(layer, at, size);
      base += size;
    }
    return null;
  }

  #describeLayer(layer: Layer, at: number, size: number): Description {
    const one = layer.tensor;
    const instant = this.#model!.at[at]!;
    if (!one) return { text: `${layer.name}: ${formatBytes(size)}\ninstant ${instant}`, ids: [] };
    const life = this.#model!.lives[one.life]!;
    const k = life.born.findIndex((born, n) => born <= instant && life.dies[n]! >= instant);
    const lines = [
      `${one.name}: ${formatBytes(size)} in ${formatCount(one.held[at]!, "value")}`,
      ...reasons(one),
    ];
    if (k >= 0) {
      const [born, dies] = [life.born[k]!, life.dies[k]!];
      const reader = this.#model!.readers[life.reader[k]!]?.name;
      const from = born < 0 ? "before the turn" : `at ${born}`;
      const to = dies >= this.#model!.turn.count ? "after the turn" : `at ${dies}`;
      lines.push(`oldest value: computed ${from}, freed ${to}`);
      lines.push(reader ? `last read by ${reader}` : "needed until the end");
    }
    return { text: lines.join("\n"), ids: [], tensor: one };
  }

  #row(one: LiveTensor): HTMLTableRowElement {
    const fill = this.#layers.some(({ tensor }) => tensor === one) ? one.colour : REST;
    const readers = this.#model!.readers;
    const names = one.last_read_by.map((id) => readers.find((r) => r.op_id === id)?.name ?? "");
    const last = names.filter(Boolean).join(", ") || "–";
    const button = html("button", { class: "trl-quiet" }, colourKey(fill), one.name);
    const row = html(
      "tr",
      {},
      html("th", { scope: "row" }, button),
      html("td"),
      html("td"),
      html("td", {}, formatBytes(most(one))),
      html("td", { title: last }, last),
    );
    row.addEventListener("click", (event) => this.selection.pick(one, isAdding(event)));
    const said = [`${one.name}: at most ${formatBytes(most(one))}`, ...reasons(one)].join("\n");
    row.addEventListener("pointerenter", () => this.tip.showAbove(row, said));
    row.addEventListener("pointerleave", () => this.tip.hide());
    button.addEventListener("focus", () => this.tip.showAbove(row, said));
    button.addEventListener("blur", () => this.tip.hide());
    button.setAttribute("aria-description", said);
    return row;
  }
}
