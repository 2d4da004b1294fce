// Comparison pane: iteration spaces and memory of two programs on common axes, and a table of differences.
import css from "./compare.css";
import { type Row, rowsOf } from "../draw/comparison";
import { draw } from "../draw/draw";
import { GraphPane, type GraphModel } from "../graph/graph";
import { Instants } from "../shared/instants";
import { button, html, row, table } from "../shared/markup";
import { MemoryPane } from "../memory/memory";
import type { Message, Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import { Selection } from "../shared/selection";
import { SpacePane } from "../space/space";
import type { ComparisonView } from "../models";

interface Column {
  readonly title: HTMLElement;
  readonly space: SpacePane;
  readonly memory: MemoryPane;
}

/** The graphs of both programs at a stage. */
export interface BothGraphs {
  readonly stages: readonly [string, string];
  readonly views: readonly [GraphModel, GraphModel];
}

interface Side {
  readonly graph: GraphPane;
  readonly title: HTMLElement;
}

export class ComparePane extends Panel<ComparisonView | null> {
  #columns: Column[] = [];
  #box = html("div", { class: "trl-columns" });
  #table = html("tbody");
  #loops = html("div", { class: "trl-diff" });
  #nests = html("summary");
  #graphs = html("details", { class: "trl-both-graphs" }, html("summary", {}, "graphs of a stage"));
  #stage = html("select", { "aria-label": "stage of both graphs" });
  #sides: Side[] = [];
  #heads = [html("th", { scope: "col" }), html("th", { scope: "col" })] as const;
  #rows: Row[] = [];
  #model: ComparisonView | null = null;

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "compare", "Comparison", css);
    this.offerPictures();
    const close = () => send({ kind: "compare", close: true });
    this.tools.append(button("close", close, { class: "trl-quiet" }));
    const nests = html("details", {}, this.#nests, this.#loops);
    for (const [one, event] of [
      [this.#graphs, "toggle"],
      [this.#stage, "change"],
    ] as const) {
      one.addEventListener(event, () => this.#askForGraphs());
    }
    this.body.append(
      this.#box,
      table([html("th"), ...this.#heads], this.#table),
      nests,
      this.#graphs,
    );
  }

  override draw(model: ComparisonView | null): void {
    this.#model = model;
    this.root.hidden = !model;
    if (!model) {
      this.#clear();
      return;
    }
    if (!this.#columns.length) this.#columns = this.#createColumns();
    const { axes } = model;
    this.#columns.forEach(({ title, space, memory }, k) => {
      const instants = new Instants(model.spaces[k]!);
      title.textContent = model.titles[k]!;
      space.follow(instants);
      memory.follow(instants);
      space.lock(axes.time, axes.up);
      memory.lock(axes.time, axes.bytes);
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
    this.#offerStages(model);
    const differ = model.loops.filter(({ sign }) => sign !== " ").length;
    this.#nests.textContent = `loop nests, line by line: ${differ || "none"} differ`;
  }

  /** Draw the requested graphs. A node that both contain stays at the same place, and is selected in both. */
  drawGraphs(both: BothGraphs): void {
    if (!this.#model || !this.#graphs.open) return;
    if (!this.#sides.length) this.#makeSides();
    this.#sides.forEach(({ graph, title }, k) => {
      title.textContent = `${this.#model!.titles[k]}: ${both.stages[k]}`;
      graph.draw(both.views[k]!);
    });
    this.#sides[1]!.graph.follow(this.#sides[0]!.graph);
  }

  /** List the stages that both programs have. */
  #offerStages({ seconds }: ComparisonView): void {
    const names = seconds.flatMap((one) => (one.seconds.includes(null) ? [] : [one.stage]));
    const shown = names.includes(this.#stage.value) ? this.#stage.value : "fuse";
    this.#stage.replaceChildren(...names.map((name) => html("option", { value: name }, name)));
    this.#stage.value = names.includes(shown) ? shown : names.at(-1)!;
    this.#askForGraphs();
  }

  #askForGraphs(cluster: Message | null = null): void {
    if (!this.#graphs.open) return;
    const change = { id: cluster?.id ?? "", folded: cluster?.folded === true };
    this.send({ kind: "compare graphs", stage: this.#stage.value, ...change });
  }

  #makeSides(): void {
    const box = html("div", { class: "trl-columns" });
    let mirrors = false;
    this.#sides = [0, 1].map((k) => {
      const own = new Selection();
      const title = html("h4");
      const column = html("div", { class: "trl-at-graph" }, title);
      box.append(column);
      const graph = new GraphPane(column, own, (message) => this.#askForGraphs(message));
      graph.moved = () => this.#sides[1 - k]?.graph.follow(graph);
      own.subscribe((change) => {
        if (change !== "ids" || mirrors) return;
        mirrors = true;
        this.#sides[1 - k]!.graph.mirror(graph);
        mirrors = false;
      });
      return { graph, title };
    });
    this.#graphs.append(html("label", {}, "stage ", this.#stage), box);
  }

  override picture(): string | null {
    return this.#model && draw(this.#model, "");
  }

  protected override leave(): void {
    if (this.#columns.some(({ space }) => space.selection.range)) {
      return this.#columns.forEach(({ space }) => space.selection.zoom(null));
    }
    for (const { selection } of [
      ...this.#columns.map(({ space }) => space),
      ...this.#sides.map(({ graph }) => graph),
    ]) {
      selection.choose([]);
    }
    super.leave();
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
    for (const { graph } of this.#sides.splice(0)) graph.dispose();
    this.#graphs.querySelector(".trl-columns")?.remove();
  }

  /** The columns of both programs; they share the instant. */
  #createColumns(): Column[] {
    const selections = [new Selection(), new Selection()];
    return selections.map((own) => {
      own.subscribe((change) => {
        if (change === "instant") selections.forEach((other) => other.at(own.instant));
        if (change === "range") selections.forEach((other) => other.zoom(own.range));
      });
      const title = html("h4");
      const column = html("div", {}, title);
      this.#box.append(column);
      const space = new SpacePane(column, own, this.send);
      return { title, space, memory: new MemoryPane(column, own, this.send) };
    });
  }

  #row({ group, name, texts }: Row, before: Row | undefined): HTMLElement {
    const begins = group === before?.group ? undefined : "trl-begins";
    return row({ class: begins, title: group }, name, ...texts);
  }
}

const SIGNS: Record<string, string> = { "+": "trl-became", "-": "trl-was" };
