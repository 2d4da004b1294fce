// Predicted live bytes over time, stacked by tensor, with who is live at the instant that is shown.
import type { Numbers } from "./buffers";
import { about, type Turn } from "./instants";
import { html, svg } from "./markup";
import css from "./memory.css";
import type { Send } from "./pane";
import { axes, bytes, colour, counts, Scale, ticks } from "./plot";
import type { Selection } from "./selection";
import { MARGIN, TimedPane } from "./timed";

interface Held {
  name: string;
  op_ids: number[];
  life: number;
  store: string;
  value_bytes: number;
  held: Numbers;
  last_read_by: number[];
}

interface Life {
  domain: string[];
  born: Numbers;
  dies: Numbers;
  reader: Numbers;
  offloads: Numbers;
  fetches: Numbers;
  moved: number;
}

/** What `MemoryView.to_json` gives. */
export interface MemoryModel {
  turn: Turn;
  tensors: Held[];
  lives: Life[];
  readers: { op_id: number; name: string }[];
  bytes: Numbers;
  host: Numbers;
  gathered: Numbers;
  peak: { bytes: number; instant: number };
  program_peak: { bytes: number; moment: string };
  host_peak: number;
  budget: number | null;
}

/** What a run held in one of its turns, by instants; or the `reason` why there is no such thing. */
export interface TurnBytes {
  turn: number;
  first: Numbers;
  last: Numbers;
  bytes: Numbers;
  reason: string;
  source: string;
}

/** One layer of the stack: a tensor, or what is too small to be told apart. */
interface Layer {
  readonly name: string;
  readonly fill: string;
  readonly tensor: Held | null;
  readonly at: (instant: number) => number;
}

const TOLD_APART = 7;
const GATHERED = "gathered operands";

export class MemoryPane extends TimedPane<MemoryModel> {
  #model: MemoryModel | null = null;
  #layers: Layer[] = [];
  #areas: SVGElement[] = [];
  #rows: HTMLTableRowElement[] = [];
  #table = html("tbody");
  #when = html("caption");
  #ranked: Held[] = [];
  #least = { count: 0, bytes: 0 };
  #palette = new Map<string, number>();
  #measured: TurnBytes | null = null;

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "memory", "Memory, predicted", css, 204);
    const heads = ["tensor", "live", "values", "at most", "last read by"];
    const head = html("tr", {}, ...heads.map((text) => html("th", { scope: "col" }, text)));
    const table = html(
      "table",
      { class: "trl-live" },
      this.#when,
      html("thead", {}, head),
      this.#table,
    );
    this.body.append(html("div", { class: "trl-live-box" }, table));
  }

  /**
   * Draw so many instants and bytes at least, and tensors of these names in these colours, so that two
   * programs can be compared.
   */
  lock(count: number, bytes: number, palette: Map<string, number>): void {
    this.#least = { count, bytes };
    this.#palette = palette;
    this.repaint();
  }

  /** Draw what a run of the same program held over what was predicted, or say why not. */
  measure(measured: TurnBytes | null): void {
    this.#measured = measured;
    if (!this.#model) return;
    this.#annotate(this.#model);
    this.repaint();
  }

  override draw(model: MemoryModel): void {
    this.#model = model;
    this.#measured = null; // it was of the model before
    this.#ranked = [...model.tensors]
      .filter((one) => most(one) > 0)
      .sort((a, b) => most(b) - most(a) || (a.name < b.name ? -1 : 1));
    this.#layers = layers(this.#ranked, model, this.#palette);
    this.#annotate(model);
    this.plot.setAttribute("aria-label", `live bytes over time, peak ${bytes(model.peak.bytes)}`);
    this.#rows = this.#ranked.map((one) => this.#row(one));
    this.#table.replaceChildren(...this.#rows);
    this.repaint();
    this.select();
    this.instant();
  }

  override select(): void {
    const any = this.selection.ids.size > 0;
    this.#layers.forEach((layer, k) => {
      const marked = !!layer.tensor && this.selection.marks(layer.tensor.op_ids);
      this.#areas[k]?.classList.toggle("trl-selected", marked);
      this.#areas[k]?.classList.toggle("trl-faint", any && !marked);
    });
    this.#ranked.forEach((one, k) => {
      const marked = this.selection.marks(one.op_ids);
      this.#rows[k]!.classList.toggle("trl-selected", marked);
      this.#rows[k]!.setAttribute("aria-selected", String(marked));
    });
  }

  override instant(): void {
    super.instant();
    const model = this.#model;
    if (!model) return;
    const shown = this.selection.instant ?? model.peak.instant;
    const at = Math.min(shown, Math.max(model.turn.count - 1, 0));
    const total = model.bytes[at] ?? 0;
    const where = this.selection.instant === null ? "the turn's peak, instant" : "instant";
    this.#when.textContent = `${bytes(total)} live at ${where} ${at}`;
    this.#ranked.forEach((one, k) => {
      const held = one.held[at] ?? 0;
      const row = this.#rows[k]!;
      row.classList.toggle("trl-gone", held === 0);
      row.cells[1]!.textContent = held ? bytes(held * one.value_bytes) : "–";
      row.cells[2]!.textContent = held ? String(held) : "–";
      row.style.setProperty("--share", total ? String((held * one.value_bytes) / total) : "0");
    });
  }

  #annotate(model: MemoryModel): void {
    const { program_peak: peak, host_peak: host } = model;
    const moment = peak.moment ? ` at ${peak.moment}` : "";
    const over = this.#measured;
    const run = over?.bytes.length ? `line: ${kind(over)} in turn ${over.turn}` : over?.reason;
    this.note.textContent = [
      `peak ${bytes(peak.bytes)}${moment}`,
      host ? `host ${bytes(host)}` : "",
      run ?? "",
      over?.reason ? "" : about(model.turn),
    ]
      .filter(Boolean)
      .join("; ");
    this.note.title = this.note.textContent;
  }

  protected override get count(): number {
    return this.#model?.turn.count ?? 0;
  }

  protected override paint(width: number): SVGElement[] {
    const model = this.#model!;
    const { count } = model.turn;
    const across = Math.max(count, this.#least.count, 1);
    const box = {
      left: MARGIN.left,
      top: 18,
      width: width - MARGIN.left - MARGIN.right,
      height: this.height - 52,
    };
    const budget = model.budget ?? Infinity;
    const held = Array.from(this.#measured?.bytes ?? []);
    const peak = Math.max(model.peak.bytes, this.#least.bytes, 1, ...held);
    const top = (budget < 4 * peak ? Math.max(budget, peak) : peak) * 1.1;
    this.scale = new Scale(box, [0, across], [0, top]);
    const columns = moments(model.bytes, Math.min(count, box.width));
    const base = new Float64Array(columns.length);
    this.#areas = this.#layers.map((layer) => {
      const low = base.slice();
      columns.forEach(({ at }, k) => (base[k]! += layer.at(at)));
      return svg("path", {
        class: "trl-area",
        d: this.#area(columns, low, base),
        fill: layer.fill,
      });
    });
    const x = { label: "time: executed points, in order", ticks: counts(0, across, 8) };
    const y = { label: "live", ticks: ticks(0, top, 4, 1024), format: bytes };
    return [
      ...this.#areas,
      ...this.#over(),
      axes(this.scale, x, y),
      ...this.#lines(model),
      ...this.#moves(model),
    ];
  }

  /** A step for each part that was measured, as high as the most that was live in it. */
  #over(): SVGElement[] {
    const over = this.#measured;
    if (!over?.bytes.length) return [];
    const { scale } = this;
    let [d, end] = ["", -1];
    over.bytes.forEach((value, k) => {
      const [from, to] = [over.first[k]!, over.last[k]!];
      const y = scale.py(value).toFixed(1);
      d += `${from === end ? "L" : "M"}${scale.px(from).toFixed(1)} ${y}H${scale.px(to).toFixed(1)}`;
      end = to;
    });
    const label = `${kind(over)} in turn ${over.turn}`;
    return [svg("path", { class: "trl-measured", d, fill: "none" }, svg("title", {}, label))];
  }

  protected override describe(px: number, py: number): { text: string; ids: number[] } | null {
    const model = this.#model;
    const at = Math.floor(this.scale.at(px));
    if (!model || at < 0 || at >= model.turn.count) return null;
    const level = this.scale.up(py);
    let base = 0;
    for (const layer of this.#layers) {
      const size = layer.at(at);
      if (level >= base && level < base + size) return this.#told(layer, at, size);
      base += size;
    }
    return null;
  }

  #told(layer: Layer, at: number, size: number): { text: string; ids: number[] } {
    const one = layer.tensor;
    if (!one) return { text: `${layer.name}: ${bytes(size)}\ninstant ${at}`, ids: [] };
    const life = this.#model!.lives[one.life]!;
    const k = life.born.findIndex((born, n) => born <= at && life.dies[n]! >= at);
    const lines = [
      `${one.name}: ${bytes(size)} in ${one.held[at]} ${one.held[at] === 1 ? "value" : "values"}`,
      `store: ${one.store}`,
    ];
    if (k >= 0) {
      const [born, dies] = [life.born[k]!, life.dies[k]!];
      const reader = this.#model!.readers[life.reader[k]!]?.name;
      const from = born < 0 ? "before the turn" : `at ${born}`;
      const to = dies >= this.#model!.turn.count ? "after the turn" : `at ${dies}`;
      lines.push(`oldest: born ${from}, dies ${to}`);
      lines.push(reader ? `last read by ${reader}` : "stays to the end");
    }
    return { text: lines.join("\n"), ids: one.op_ids };
  }

  #area(columns: readonly Moment[], low: Float64Array, high: Float64Array): string {
    const x = (k: number) => this.scale.px(k).toFixed(1);
    const y = (value: number) => this.scale.py(value).toFixed(1);
    const up = columns.map(
      ({ from, to }, k) => `${x(from)} ${y(high[k]!)}L${x(to)} ${y(high[k]!)}`,
    );
    const down = columns.map(
      ({ from, to }, k) => `${x(to)} ${y(low[k]!)}L${x(from)} ${y(low[k]!)}`,
    );
    return up.length ? `M${up.join("L")}L${down.reverse().join("L")}Z` : "";
  }

  #lines(model: MemoryModel): SVGElement[] {
    const line = (value: number, name: string, text: string) => {
      const { left, width } = this.scale.box;
      const y = this.scale.py(value);
      const [x1, x2] = [left, left + width];
      return svg(
        "g",
        { class: `trl-limit trl-${name}` },
        svg("line", { x1, x2, y1: y, y2: y }),
        svg("text", { x: x2 - 2, y: y - 4, "text-anchor": "end" }, text),
      );
    };
    const found = [line(model.peak.bytes, "peak", `peak ${bytes(model.peak.bytes)}`)];
    if (model.budget !== null && model.budget <= this.scale.y[1]) {
      found.push(line(model.budget, "budget", `budget ${bytes(model.budget)}`));
    }
    return found;
  }

  /** Offloads point up, to the host; fetches down. */
  #moves(model: MemoryModel): SVGElement[] {
    const parts: { name: string; d: string }[] = [
      { name: "offload", d: "" },
      { name: "fetch", d: "" },
    ];
    const y = this.scale.box.top - 3;
    for (const life of model.lives) {
      life.offloads.forEach((at) => (parts[0]!.d += `M${this.scale.px(at) - 4} ${y}h8l-4 -7z`));
      life.fetches.forEach((at) => (parts[1]!.d += `M${this.scale.px(at) - 4} ${y - 7}h8l-4 7z`));
    }
    return parts.map(({ name, d }) => svg("path", { class: `trl-move trl-${name}`, d }));
  }

  #row(one: Held): HTMLTableRowElement {
    const k = this.#layers.findIndex((layer) => layer.tensor === one);
    const fill = k >= 0 ? this.#layers[k]!.fill : "#999999";
    const key = svg("svg", { class: "trl-keys", viewBox: "0 0 12 12", "aria-hidden": "true" });
    key.append(svg("rect", { x: 1, y: 1, width: 10, height: 10, fill }));
    const readers = this.#model!.readers;
    const names = one.last_read_by.map((id) => readers.find((r) => r.op_id === id)?.name ?? "");
    const last = names.filter(Boolean).join(", ") || "–";
    const button = html("button", { class: "trl-quiet" }, key, one.name);
    const row = html(
      "tr",
      { title: one.store },
      html("th", { scope: "row" }, button),
      html("td"),
      html("td"),
      html("td", {}, bytes(most(one))),
      html("td", { title: last }, last),
    );
    row.addEventListener("click", (event) =>
      this.selection.click(one.op_ids, event.shiftKey || event.ctrlKey || event.metaKey),
    );
    return row;
  }
}

function kind({ source }: TurnBytes): string {
  return source === "measured" ? "measured" : "predicted, at measured speed";
}

/** The tensors of some models by name, those that hold most first: numbers to colour them by. */
export function palette(models: readonly MemoryModel[]): Map<string, number> {
  const all = models.flatMap((model) => model.tensors).sort((a, b) => most(b) - most(a));
  return new Map([...new Set(all.map((one) => one.name))].map((name, k) => [name, k]));
}

const MOST = new WeakMap<Held, number>();

/** The most bytes that a tensor holds at once. */
function most(one: Held): number {
  let found = MOST.get(one);
  if (found === undefined) {
    let held = 0;
    one.held.forEach((n) => (held = Math.max(held, n)));
    found = one.value_bytes * held;
    MOST.set(one, found);
  }
  return found;
}

function layers(
  ranked: readonly Held[],
  model: MemoryModel,
  palette: ReadonlyMap<string, number>,
): Layer[] {
  const shown = ranked.slice(0, TOLD_APART);
  const rest = ranked.slice(shown.length);
  const sum = (ones: readonly Held[]) => (at: number) =>
    ones.reduce((total, one) => total + one.held[at]! * one.value_bytes, 0);
  const found: Layer[] = shown.map((one, k) => ({
    name: one.name,
    fill: colour((palette.get(one.name) ?? k) % TOLD_APART),
    tensor: one,
    at: sum([one]),
  }));
  if (rest.length) {
    found.push({ name: `${rest.length} others`, fill: "#999999", tensor: null, at: sum(rest) });
  }
  if (model.gathered.some((value) => value > 0)) {
    const at = (k: number) => model.gathered[k]!;
    found.push({ name: GATHERED, fill: "#444444", tensor: null, at });
  }
  return found;
}

interface Moment {
  readonly from: number;
  readonly to: number;
  readonly at: number; // where most is live between the two
}

function moments(total: Numbers, columns: number): Moment[] {
  const count = total.length;
  return Array.from({ length: Math.max(Math.floor(columns), 0) }, (_, k) => {
    const from = Math.floor((k * count) / columns);
    const to = Math.max(Math.floor(((k + 1) * count) / columns), from + 1);
    let at = from;
    for (let n = from; n < to; n++) if (total[n]! > total[at]!) at = n;
    return { from, to, at };
  });
}
