// Two programs side by side: their spaces and memory on the same axes, and a table of what differs.
import css from "./compare.css";
import { Instants, type SpaceModel } from "./instants";
import { html } from "./markup";
import { MemoryPane, palette, type MemoryModel } from "./memory";
import type { Send } from "./pane";
import { Panel } from "./panel";
import { arranged, textPicture } from "./picture";
import { bytes, seconds } from "./plot";
import { Selection } from "./selection";
import { SpacePane } from "./space";
import { shown } from "./values";

type Pair<T> = [T, T];

/** What `ComparisonView.to_json` gives; of a pair, the first is of the first program. */
export interface ComparisonModel {
  titles: Pair<string>;
  options: { name: string; values: Pair<unknown> }[];
  bounds: { name: string; values: Pair<unknown> }[];
  operations: { stage: string; kind: string; counts: Pair<number> }[];
  kernels: { name: string; operations: Pair<number | null>; outputs: Pair<number | null> }[];
  loops: { sign: string; text: string }[];
  peak: Pair<number>;
  host_peak: Pair<number>;
  seconds: { stage: string; seconds: Pair<number | null> }[];
  stores: { name: string; kinds: Pair<string | null>; bytes: Pair<number | null> }[];
  axes: { time: number; up: number; bytes: number };
  spaces: Pair<SpaceModel>;
  memories: Pair<MemoryModel>;
}

/** One line of the table: a property, and its value in both programs. */
interface Row {
  readonly group: string;
  readonly name: string;
  readonly texts: Pair<string>;
}

interface Column {
  readonly title: HTMLElement;
  readonly space: SpacePane;
  readonly memory: MemoryPane;
}

export class ComparePane extends Panel<ComparisonModel | null> {
  #columns: Column[] = [];
  #box = html("div", { class: "trl-columns" });
  #table = html("tbody");
  #loops = html("div", { class: "trl-diff" });
  #nests = html("summary");
  #heads = [html("th", { scope: "col" }), html("th", { scope: "col" })] as const;
  #rows: Row[] = [];

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "compare", "Comparison", css);
    const close = html("button", { class: "trl-quiet" }, "close");
    close.addEventListener("click", () => send({ kind: "compare", close: true }));
    this.offerPictures();
    this.tools.append(close);
    const heads = html("tr", {}, html("th"), ...this.#heads);
    const table = html("table", {}, html("thead", {}, heads), this.#table);
    const nests = html("details", {}, this.#nests, this.#loops);
    this.body.append(this.#box, table, nests);
  }

  override draw(model: ComparisonModel | null): void {
    this.root.hidden = !model;
    if (!model) {
      this.#clear();
      return;
    }
    if (!this.#columns.length) this.#columns = this.#made();
    const { axes } = model;
    const statements = model.spaces.flatMap((space) => space.statements.map(({ name }) => name));
    const names = [...new Set(statements)];
    const colours = palette(model.memories);
    this.#columns.forEach(({ title, space, memory }, k) => {
      const instants = new Instants(model.spaces[k]!);
      title.textContent = model.titles[k]!;
      space.follow(instants);
      memory.follow(instants);
      space.lock(axes.time, axes.up, names);
      memory.lock(axes.time, axes.bytes, colours);
      space.draw(model.spaces[k]!);
      memory.draw(model.memories[k]!);
    });
    this.#heads.forEach((head, k) => (head.textContent = model.titles[k]!));
    this.#rows = rowsOf(model);
    this.#table.replaceChildren(...this.#rows.map((row, k) => this.#row(row, this.#rows[k - 1])));
    const lines = model.loops.map(({ sign, text }) =>
      html("div", { class: SIGNS[sign] }, `${sign} ${text}`),
    );
    this.#loops.replaceChildren(...lines);
    const differ = model.loops.filter(({ sign }) => sign !== " ").length;
    this.#nests.textContent = `loop nests, line by line: ${differ || "none"} differ`;
  }

  override picture(): SVGSVGElement | null {
    const fill = getComputedStyle(this.root).color;
    const wide = Math.max(0, ...this.#rows.map((row) => row.name.length)) + 2;
    const column = Math.max(0, ...this.#rows.map((row) => row.texts[0].length)) + 2;
    const lines = this.#rows.map(
      ({ name, texts }) => name.padEnd(wide) + texts[0].padEnd(column) + texts[1],
    );
    if (!lines.length) return null;
    const rows = [
      this.#columns.map(({ title, space }) => [title.textContent ?? "", space.picture()] as const),
      this.#columns.map(({ memory }) => ["", memory.picture()] as const),
      [
        [
          "",
          textPicture(
            this.root,
            lines.map((text) => [{ text, fill }]),
          ),
        ] as const,
      ],
    ];
    const drawn = rows.map((row) =>
      row.flatMap(([title, picture]) => (picture ? [{ title, picture }] : [])),
    );
    return arranged(this.root, drawn);
  }

  override dispose(): void {
    this.#clear();
    super.dispose();
  }

  #clear(): void {
    for (const { space, memory } of this.#columns.splice(0)) {
      space.dispose();
      memory.dispose();
    }
    this.#box.replaceChildren();
  }

  /** The columns of both programs; an instant of the one is that of the other. */
  #made(): Column[] {
    const selections = [new Selection(), new Selection()];
    return selections.map((own) => {
      own.subscribe((change) => {
        if (change === "instant") selections.forEach((other) => other.at(own.instant));
      });
      const title = html("h4");
      const column = html("div", {}, title);
      this.#box.append(column);
      const space = new SpacePane(column, own, this.send);
      return { title, space, memory: new MemoryPane(column, own, this.send) };
    });
  }

  #row({ group, name, texts }: Row, before: Row | undefined): HTMLElement {
    return html(
      "tr",
      { class: group === before?.group ? undefined : "trl-begins", title: group },
      html("th", { scope: "row" }, name),
      ...texts.map((text) => html("td", {}, text)),
    );
  }
}

const SIGNS: Record<string, string> = { "+": "trl-plus", "-": "trl-minus", " ": "trl-both" };

function plain(value: unknown): string {
  return typeof value === "object" ? shown(value) : String(value);
}

function rowsOf(model: ComparisonModel): Row[] {
  const rows: Row[] = [];
  const add = <T>(group: string, name: string, pair: Pair<T>, text: (value: T) => string) => {
    const texts = pair.map((value) => (value === null ? "–" : text(value))) as Pair<string>;
    rows.push({ group, name, texts });
  };
  add("memory", "predicted peak", model.peak, bytes);
  if (model.host_peak.some((n) => n > 0)) add("memory", "host peak", model.host_peak, bytes);
  for (const { name, values } of model.options) add("options", name, values, plain);
  for (const { name, values } of model.bounds) add("bounds", name, values, String);
  for (const { name, operations, outputs } of model.kernels) {
    const both = operations.map((n, k) =>
      n === null ? null : `${n} operations, ${outputs[k]} outputs`,
    );
    add("kernels", `kernel ${name}`, both as Pair<string | null>, String);
  }
  for (const { name, kinds, bytes: sizes } of model.stores) {
    const both = kinds.map((kind, k) => (kind === null ? null : `${kind}, ${bytes(sizes[k]!)}`));
    add("stores", `store ${name}`, both as Pair<string | null>, String);
  }
  for (const { stage, kind, counts } of model.operations) {
    add("operations", `${kind} in ${stage}`, counts, String);
  }
  const total = ([0, 1] as const).map((k) =>
    model.seconds.reduce((sum, { seconds: pair }) => sum + (pair[k] ?? 0), 0),
  );
  add("time", "compiled in", total as Pair<number>, seconds);
  return rows;
}
