// Explorer: all views of a program in one widget, with a common selection and a common time axis.
import type { AnyModel } from "@anywidget/types";
import { unpack, type Packed } from "../shared/buffers";
import { ComparePane } from "../compare/compare";
import css from "./explorer.css";
import { GraphPane, type GraphModel } from "../graph/graph";
import { InspectorPane, type InspectorModel } from "../inspector/inspector";
import { Instants } from "../shared/instants";
import { descend } from "../shared/lineage";
import { type Bookmark, Bookmarks } from "./bookmarks";
import { LaunchPane } from "../launches/launches";
import { Layout } from "./layout";
import { LoopPane } from "../loops/loops";
import { LineColours } from "../shared/line_colours";
import { html } from "../shared/markup";
import { MemoryPane } from "../memory/memory";
import { RunPane } from "../run/run";
import { OutlinePane, type DetailModel } from "../outline/outline";
import { Scrubber } from "../scrubber/scrubber";
import type { Selection } from "../shared/selection";
import { Settings, type Foreseen, type Status } from "../settings/settings";
import { SpacePane } from "../space/space";
import { StepsPane } from "../steps/steps";
import { StoresPane } from "../stores/stores";
import { alternate } from "./alternate";
import { Strip } from "../strip/strip";
import { SweepPane, type Argument, type SweepModel } from "../sweep/sweep";
import { type ValuesModel, ValuesPane } from "../values/values";
import { onRefused, selectionOf, sendTo } from "../shared/widget";
import type {
  ComparisonView,
  CostView,
  IterationSpaceView,
  LaunchView,
  Lineage,
  LoopView,
  MemoryView,
  OutlineView,
  PipelineView,
  RunView,
  SearchView,
  StepsView,
  StoresView,
} from "../models";

/** The widget's traits; all others are packed views (`unpack`). */
export interface ExplorerTraits {
  [view: string]: unknown;
  arguments: { arguments?: Argument[] };
  acknowledged: number;
  stage: string;
  selected: number[];
  instant: number | null;
  bookmarks: readonly Bookmark[];
  status: Status;
  foreseen: Foreseen;
}

const CHANGES = ["options", "bounds", "argument"]; // requests whose duration is measured
const AROUND = 172; // pixels of the timed panes beside their plots: scrubber, titles, legend
const TABLE = 96; // least pixels of the table below the memory's plot
const SAID = 100; // minimal milliseconds between two instants sent to Python

export class ExplorerView {
  readonly #style = html("style", {}, css);
  readonly #root = html("div", { class: "trl-explorer" });
  readonly #release: (() => void)[] = [];
  readonly #dirty = new Set<string>();
  #asked: number | null = null;
  #sought = "";
  #saying: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly model: AnyModel<ExplorerTraits>,
    host: HTMLElement,
  ) {
    const { selection, release } = selectionOf(model);
    const toPython = sendTo(model);
    const send: typeof toPython = (message) => {
      if (CHANGES.includes(message.kind)) this.#asked = performance.now();
      toPython(message);
    };
    const cells: Record<string, HTMLElement> = {};
    const cell = (name: string) => {
      cells[name] = html("div", { class: `trl-cell trl-at-${name}`, "data-share": name });
      return cells[name];
    };
    const head = html("div", { class: "trl-header" });
    const panes: { dispose(): void }[] = [];
    const kept = <P extends { dispose(): void }>(pane: P): P => {
      panes.push(pane);
      return pane;
    };
    const show = (stage: string) => this.#show(stage);
    const settings = kept(new Settings(cell("settings"), selection, send));
    const sweep = kept(new SweepPane(cell("sweep"), selection, send));
    settings.enter = (text) => strip.open(text);
    const strip = kept(new Strip(cell("strip"), selection, send, show));
    const graphCell = cell("graph");
    const steps = kept(new StepsPane(graphCell, selection, send, (ids) => graph.reveal(ids)));
    const graph = kept(new GraphPane(graphCell, selection, send));
    const outline = kept(new OutlinePane(graphCell, selection, send));
    // the memory plan has a separate pane, and is shown as text on request
    const turn = () =>
      (outline.root.hidden = !get("outline") || (!!get("stores") && !stores.isText));
    const stores = kept(new StoresPane(graphCell, selection, send, turn));
    const source = kept(new OutlinePane(cell("source"), selection, send, "source-pane", "Source"));
    const inspector = kept(new InspectorPane(cell("inspector"), selection, send, show));
    const values = kept(new ValuesPane(inspector.root, selection, send));
    const loops = kept(new LoopPane(cell("loops"), selection, send));
    const time = cell("time");
    const scrubber = kept(new Scrubber(time, selection, send));
    const space = kept(new SpacePane(time, selection, send));
    const memory = kept(new MemoryPane(time, selection, send));
    const launches = kept(new LaunchPane(time, selection, send));
    alternate({ memory, launches });
    space.onResize(time, () => {
      const free = time.clientHeight - AROUND;
      space.fit(0.42 * free);
      memory.fit(0.58 * free);
      launches.fit(0.58 * free + TABLE);
    });
    const run = kept(new RunPane(cell("run"), selection, send));
    const compare = kept(new ComparePane(cell("compare"), selection, send));
    const first = html("div", { class: "trl-first" }, cells.settings!);
    const layout = kept(
      new Layout(
        settings.root,
        selection,
        this.#root,
        cells,
        (cost) => {
          graph.colour(cost);
          loops.colour(cost);
        },
        (on) => {
          const view = on ? get<OutlineView>("source") : null;
          const colours = view && new LineColours(view, selection);
          for (const pane of [source, outline, loops]) pane.colourLines(colours);
        },
      ),
    );
    const bookmarks = kept(
      new Bookmarks(
        layout.root,
        selection,
        () => model.get("stage"),
        show,
        (all) => {
          model.set("bookmarks", [...all]);
          model.save_changes();
        },
      ),
    );
    head.append(first, cells.sweep!, cells.strip!);
    this.#root.append(head, layout.main, cells.run!, cells.compare!);

    const get = <Model>(trait: string) => unpack<Model>(model.get(trait) as Packed);
    const some = <Model>(trait: string, draw: (view: Model) => void) => {
      const view = get<Model>(trait);
      if (view) draw(view);
    };
    // The order of drawing: dependences first, and the graph before the panes for which the browser would have
    // to compute a layout to find positions of nodes.
    const draws: Record<string, () => void> = {
      lineage: () => some<Lineage>("lineage", (view) => descend(selection, view)),
      pipeline: () =>
        some<PipelineView>("pipeline", (view) => {
          strip.draw(view);
          settings.draw(view);
        }),
      arguments: () => sweep.draw(model.get("arguments").arguments ?? []),
      sweeping: () => sweep.sweep(get<SweepModel>("sweeping")),
      stage: () => {
        strip.stage(model.get("stage"));
        inspector.stage(model.get("stage"));
      },
      graph: () =>
        some<GraphModel>("graph", (view) =>
          graph.draw({ ...view, against: model.get("against") as string }),
        ),
      steps: () => steps.draw(get<StepsView>("steps")),
      outline: () => {
        const view = get<OutlineView>("outline");
        outline.draw(view);
        graph.root.hidden = view !== null;
        turn();
      },
      stores: () => {
        stores.draw(get<StoresView>("stores"));
        turn();
      },
      cost: () => some<CostView>("cost", (view) => layout.draw(view)),
      source: () => source.draw(get<OutlineView>("source")),
      detail_view: () =>
        some<DetailModel>("detail_view", (view) => {
          outline.detail(view);
          steps.detail(view);
        }),
      space: () =>
        some<IterationSpaceView>("space", (view) => {
          const instants = new Instants(view);
          for (const pane of [space, memory, launches, loops]) pane.follow(instants);
          selection.follow((at) => instants.statement(at)?.op_ids.slice(0, 1) ?? []);
          scrubber.draw(instants);
          space.draw(view);
        }),
      memory: () => some<MemoryView>("memory", (view) => memory.draw(view)),
      launches: () => some<LaunchView>("launches", (view) => launches.draw(view)),
      loops: () => some<LoopView>("loops", (view) => loops.draw(view)),
      values: () => values.draw(get<ValuesModel>("values")),
      inspector: () => inspector.draw(get<InspectorModel>("inspector")),
      search: () =>
        some<SearchView>("search", (view) => {
          settings.filters(view);
          const asks = view.query || view.kind || view.region || view.changed;
          const hits = asks ? view.stages : [];
          strip.found(new Map(hits.map(({ stage, op_ids }) => [stage, op_ids.length])), view.query);
          const here = hits.find(({ stage }) => stage === model.get("stage"));
          const sought = JSON.stringify([view.query, view.kind, view.region, view.changed]);
          // repeating a search in another program keeps the selection
          if (here && sought !== this.#sought) selection.choose(here.op_ids);
          this.#sought = sought;
        }),
      comparison: () => compare.draw(get<ComparisonView>("comparison")),
      bookmarks: () => bookmarks.draw(model.get("bookmarks")),
      graphs: () => {
        const both = model.get("graphs") as { stages?: [string, string]; views?: Packed[] };
        const views = both.views?.map((one) => unpack<GraphModel>(one)!);
        if (both.stages && views)
          compare.drawGraphs({ stages: both.stages, views: [views[0]!, views[1]!] });
      },
      run: () => {
        const view = get<RunView>("run");
        run.draw(view);
        memory.measure(view && view.over);
        stores.measure(view?.amounts ?? []);
      },
      pause_when: () => run.condition(String(model.get("pause_when"))),
      acknowledged: () => run.acknowledge(model.get("acknowledged")),
      instant: () => selection.at(model.get("instant")),
      status: () => {
        const status = model.get("status");
        settings.status(status);
        if (status.state === "ready" && this.#asked !== null) this.#drawn(settings, status);
        if (status.state !== "failed") return;
        this.#asked = null;
        sweep.settle();
        some<PipelineView>("pipeline", (view) => strip.draw(view)); // its switches return to the actual values
      },
      foreseen: () => settings.foreseen(model.get("foreseen")),
    };
    const draw = () => {
      const dirty = Object.keys(draws).filter((trait) => this.#dirty.has(trait));
      this.#dirty.clear();
      dirty.forEach((trait) => draws[trait]!());
    };
    for (const trait of [...Object.keys(draws), "against"]) {
      const drawn = trait === "against" ? "graph" : trait;
      this.#dirty.add(drawn);
      const changed = () => {
        if (!this.#dirty.size) queueMicrotask(draw);
        this.#dirty.add(drawn);
      };
      model.on(`change:${trait}`, changed);
      this.#release.push(() => model.off(`change:${trait}`, changed));
    }
    this.#release.push(
      release,
      onRefused(model, "fold", () => graph.refuse()),
      selection.subscribe((change) => {
        if (change === "instant") this.#say(selection);
      }),
      () => this.#tell(selection),
      ...panes.map((pane) => () => pane.dispose()),
    );
    host.append(this.#style, this.#root);
    draw();
    send({ kind: "shown" });
  }

  dispose(): void {
    this.#release.splice(0).forEach((act) => act());
    this.#style.remove();
    this.#root.remove();
  }

  #show(stage: string): void {
    if (stage === this.model.get("stage")) return;
    this.model.set("stage", stage);
    this.model.save_changes();
  }

  /** Send instants to Python at intervals, and always the last one; the page's views get all. */
  #say(selection: Selection): void {
    this.#saying ??= setTimeout(() => this.#tell(selection), SAID);
  }

  #tell({ instant }: Selection): void {
    clearTimeout(this.#saying);
    this.#saying = undefined;
    if (this.model.get("instant") === instant) return;
    this.model.set("instant", instant);
    this.model.save_changes();
  }

  /** Show the duration of a change, up to the end of its drawing in the browser. */
  #drawn(settings: Settings, status: Status): void {
    const since = this.#asked!;
    this.#asked = null;
    requestAnimationFrame(() =>
      setTimeout(() => settings.status(status, performance.now() - since)),
    );
  }
}
