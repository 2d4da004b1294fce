// Graph pane: navigation and selection in a dependence graph that Python has laid out. Opening or folding a
// cluster requires a new layout by Python (message `fold`). All other actions happen here: moving, searching,
// isolating a neighbourhood, and animating changes between graphs.
import { isAdding } from "../shared/keyboard";
import { formatCount } from "../shared/plot";
import { colourByCost, type CostMeasure } from "../shared/cost";
import { Card } from "./card";
import { mark, move, showRemoved, unmark, type Carry } from "./change";
import { Drawing } from "./drawing";
import css from "./graph.css";
import {
  counterparts,
  difference,
  Graph,
  isAnother,
  isSame,
  origins,
  title,
  type GraphModel,
} from "./graph_model";
import { GraphTable } from "./graph_table";
import { button, html } from "../shared/markup";
import { Minimap } from "./minimap";
import { Pane, type Send } from "../shared/pane";
import { pictureButtons } from "../shared/picture";
import { SearchField } from "../shared/search_field";
import type { Selection } from "../shared/selection";
import { Viewport, type Box } from "./viewport";

export type { GraphModel } from "./graph_model";

const HELP =
  "click selects, shift adds; arrows follow edges, Enter selects, F opens or folds, I isolates, " +
  "/ searches, + − 0 zoom";
const NEARER = 0.8;

type Side = "up" | "down" | "left" | "right";

export class GraphPane extends Pane<GraphModel> {
  readonly #search = new SearchField("search the graph's nodes", {
    find: (query) => this.#drawing?.graph.find(query) ?? [],
    mark: () => this.#markFound(),
    go: (k) => this.#goTo(k),
  });
  readonly #buttons: Record<"isolate" | "table", HTMLButtonElement>;
  readonly #stage = html("div", { class: "trl-stage", "data-roves": true });
  readonly #said = html("span", { "aria-live": "polite" });
  readonly #clear = button("clear marks", () => this.#forget(), {
    class: "trl-quiet",
    hidden: true,
  });
  readonly #card = new Card();
  readonly #minimap = new Minimap();
  readonly #table: GraphTable;
  #drawing: Drawing | null = null;
  #viewport: Viewport | null = null;
  #focused = ""; // the node or cluster with the roving focus
  #isolated: ReadonlySet<string> | null = null;
  #asked = ""; // the cluster whose fold was requested from Python
  #cost: CostMeasure | null = null;
  #scale = ""; // the meaning of the strongest colour
  #news = ""; // the differences from the previous graph

  /** Called when the visible part has changed, except by `follow`. */
  moved: () => void = () => {};
  #follows = false;

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "graph", css);
    this.#table = new GraphTable(selection);
    this.#buttons = {
      isolate: button("isolate", () => this.#isolate(), {
        label: "show only the selected nodes and their neighbours (I)",
      }),
      table: button("table", () => this.#tabulate(), { label: "show the graph as a table" }),
    };
    const bar = html(
      "div",
      { class: "trl-graph-tools", role: "toolbar", "aria-label": "graph" },
      this.#search.input,
      this.#search.count,
      html("span", { class: "trl-space" }),
      this.#buttons.isolate,
      button("−", () => this.#viewport?.zoom(1 / NEARER), { label: "zoom out (−)" }),
      button("+", () => this.#viewport?.zoom(NEARER), { label: "zoom in (+)" }),
      button("fit", () => this.#viewport?.fit(), { label: "show everything (0)" }),
      this.#buttons.table,
      ...pictureButtons("graph", () => this.#drawing?.graph.model.svg || null),
    );
    const status = html("div", { class: "trl-status" }, this.#said, this.#clear);
    this.root.append(bar, this.#stage, this.#table.root, status);
    this.#search.input.addEventListener("keydown", ({ key }) => {
      if (key === "Escape") this.#focus(this.#focused);
    });
    this.onResize(this.#stage, () => this.#resize());
  }

  override draw(model: GraphModel): void {
    const before = this.#drawing;
    if (before && model.against && isSame(model, before.graph.model)) {
      this.#forget(model.against);
      return;
    }
    const [folding, box] = [this.#asked, this.#viewport?.box];
    const scale = this.#viewport?.scale ?? 1;
    const places = new Map<string, [number, number]>();
    if (before?.isShown) {
      for (const id of [...before.nodes.keys(), ...before.clusters.keys()]) {
        places.set(id, before.middle(id));
      }
    }
    const hadFocus = this.#stage.contains(document.activeElement);
    const graph = new Graph(model);
    const drawing = (this.#drawing = new Drawing(graph));
    const wasHome = this.#viewport?.isHome ?? true;
    this.#asked = this.#news = "";
    this.#isolated = null;
    this.root.removeAttribute("aria-busy");
    this.#card.hide();
    this.#stage.replaceChildren(drawing.svg, this.#minimap.root, this.#card.root);
    this.#viewport = new Viewport(drawing.svg, (shown) => {
      this.#minimap.follow(shown);
      this.#card.hide();
      if (!this.#follows) this.moved();
    });
    this.#name(drawing);
    this.#listen(drawing.svg);
    this.#table.draw(graph);
    this.#viewport.start(() => this.#beginning(drawing));
    if (drawing.isShown) this.#minimap.draw(drawing, this.#viewport);
    if (folding && box && !wasHome) this.#keep(folding, places, box);
    if (before && box) {
      const carry = carrying(box, scale, this.#viewport);
      if (model.against) this.#tell(before, drawing, carry);
      for (const [id, from] of origins(before.graph, graph)) {
        if (places.size) places.set(id, mean(from.map((one) => places.get(one)!)));
      }
      if (places.size) move(drawing, places, carry);
    }
    this.#search.refresh();
    this.colour(this.#cost);
    this.instant();
    if (hadFocus) this.#focus(graph.item(folding) ? folding : this.#focused);
  }

  /** End a pending fold that Python has refused. */
  refuse(): void {
    this.#asked = "";
    this.root.removeAttribute("aria-busy");
    this.select();
  }

  override select(): void {
    const drawing = this.#drawing;
    if (!drawing) return;
    const { graph } = drawing;
    const marked = graph.model.nodes.filter((node) => this.selection.marks(node.op_ids));
    const ids = new Set(marked.map(({ id }) => id));
    const read = graph.around(ids);
    for (const [id, element] of drawing.nodes) {
      const node = graph.nodes.get(id)!;
      const reads = read.has(id) && this.selection.reads(node.op_ids);
      element.classList.toggle("trl-reads", reads);
      element.classList.toggle("trl-selected", ids.has(id));
      element.setAttribute("aria-pressed", String(ids.has(id)));
    }
    for (const [id, element] of drawing.clusters) {
      const own = this.selection.isExactly(graph.clusters.get(id)!.op_ids);
      element.classList.toggle("trl-selected", own);
      element.setAttribute("aria-pressed", String(own));
    }
    this.#table.select();
    const said = marked
      .slice(0, 4)
      .map((node) => [title(node), node.detail].filter(Boolean).join(" — "));
    if (marked.length > 4) said.push(`${marked.length - 4} more`);
    this.#say(said.join("; "));
  }

  override instant(): void {
    if (!this.#drawing) return;
    const { graph, nodes } = this.#drawing;
    for (const [id, element] of nodes) {
      const runs = this.selection.runs(graph.nodes.get(id)!.op_ids);
      element.classList.toggle("trl-running", runs);
    }
  }

  /** Colour the nodes by a measure of cost; null for no colours. */
  colour(cost: CostMeasure | null): void {
    this.#cost = cost;
    if (!this.#drawing) return;
    const { graph, nodes } = this.#drawing;
    const items = [...nodes].map(([id, element]) => [element, graph.nodes.get(id)!.op_ids]);
    const most = colourByCost(items as [Element, number[]][], cost);
    this.#scale = cost && most ? `strongest colour: ${cost.text(most)}` : "";
    this.select();
  }

  /** Move the view to the nodes of some operations, if they are not in it. */
  reveal(ids: readonly number[]): void {
    const drawing = this.#drawing;
    if (!drawing?.isShown) return;
    const wanted = new Set(ids);
    const found = drawing.graph.model.nodes.filter((node) =>
      node.op_ids.some((id) => wanted.has(id)),
    );
    if (found.length) this.#viewport!.reveal(drawing.hull(found.map(({ id }) => id)));
  }

  /**
   * Show the part that another pane shows, at the same scale: the visible item of both graphs that is nearest to the
   * centre is at the same place. Without such an item nothing moves.
   */
  follow(other: GraphPane): void {
    const [from, to] = [other.#drawing, this.#drawing];
    if (!from?.isShown || !to?.isShown) return;
    const [x, y, width, height] = other.#viewport!.box;
    const [cx, cy] = [x + width / 2, y + height / 2];
    const common = [...counterparts(from.graph, to.graph)].flatMap(([id, own]) => {
      const [mx, my] = from.middle(id);
      const isShown = Math.abs(mx - cx) <= width / 2 && Math.abs(my - cy) <= height / 2;
      const distance = Math.hypot(mx - cx, my - cy);
      return isShown ? [{ distance, at: [mx, my] as const, own }] : [];
    });
    if (!common.length) return;
    const { at, own } = common.reduce((a, b) => (b.distance < a.distance ? b : a));
    const [ox, oy] = to.middle(own);
    this.#follows = true;
    this.#viewport!.show([x - at[0] + ox, y - at[1] + oy, width, height]);
    this.#follows = false;
  }

  /** Select the nodes that correspond to the selected ones of another pane. */
  mirror(other: GraphPane): void {
    const [from, to] = [other.#drawing?.graph, this.#drawing?.graph];
    if (!from || !to) return;
    const ids = [...counterparts(from, to)].flatMap(([id, own]) => {
      const [node, counterpart] = [from.nodes.get(id), to.nodes.get(own)];
      const isMarked = node && counterpart && other.selection.marks(node.op_ids);
      return isMarked ? this.selection.heads(counterpart.op_ids) : [];
    });
    this.selection.choose(ids);
  }

  // --- drawing ---------------------------------------------------------------------------------

  #name(drawing: Drawing): void {
    const { graph, svg } = drawing;
    svg.setAttribute("role", "group");
    const what = `${formatCount(graph.nodes.size, "node")}, ${formatCount(graph.edges.size, "edge")}`;
    svg.setAttribute("aria-label", `dependence graph: ${what}`);
    for (const [id, element] of [...drawing.clusters, ...drawing.nodes]) {
      const node = graph.nodes.get(id);
      const lines = (node ?? graph.clusters.get(id)!).label.replaceAll("\n", ", ");
      const state = node
        ? node.folded
          ? ", folded"
          : ""
        : `, open ${graph.clusters.get(id)!.sort}`;
      element.setAttribute("role", "button");
      element.setAttribute("tabindex", "-1");
      element.setAttribute("aria-label", lines + state);
    }
    if (!drawing.item(this.#focused)) this.#focused = drawing.nodes.keys().next().value ?? "";
    drawing.item(this.#focused)?.setAttribute("tabindex", "0");
  }

  #resize(): void {
    const [drawing, viewport] = [this.#drawing, this.#viewport];
    if (!drawing?.isShown || !viewport) return;
    if (viewport.isHome) viewport.refit();
    this.#minimap.draw(drawing, viewport);
  }

  /** The initial centre: the middle of the selection, the costliest node if costs are shown, or the first node. */
  #beginning(drawing: Drawing): [number, number] {
    const { nodes } = drawing.graph.model;
    let chosen = nodes.filter((node) => this.selection.marks(node.op_ids));
    if (!chosen.length && this.#cost) {
      const costs = nodes.map((node) => this.#cost!.of(node.op_ids));
      const most = Math.max(...costs);
      chosen = most > 0 ? [nodes[costs.indexOf(most)]!] : [];
    }
    if (chosen.length) {
      const [x, y, width, height] = drawing.hull(chosen.map(({ id }) => id));
      return [x + width / 2, y + height / 2];
    }
    const tops = nodes.map(({ id }) => drawing.box(id));
    const [x, y, width] = tops.reduce((a, b) => (b[1] < a[1] ? b : a), tops[0] ?? [0, 0, 0, 0]);
    return [x + width / 2, y];
  }

  /** Keep an opened or folded item at its position on the screen. */
  #keep(id: string, places: ReadonlyMap<string, [number, number]>, box: Box): void {
    const was = places.get(id);
    if (!was || !this.#drawing?.isShown) return;
    const [x, y] = this.#drawing.middle(id);
    const [bx, by, width, height] = box;
    this.#viewport?.show([bx + x - was[0], by + y - was[1], width, height]);
  }

  #tell(before: Drawing, drawing: Drawing, carry: Carry): void {
    const change = difference(before.graph, drawing.graph);
    const { added, removed, changed, edges } = change;
    if (!isAnother(drawing.graph, change)) {
      mark(drawing, change);
      if (drawing.isShown) showRemoved(before, drawing, change, carry);
    }
    const counts = { "+ # added": added, "− # removed": removed, "~ # changed": changed };
    const told = Object.entries(counts)
      .filter(([, nodes]) => nodes.length)
      .map(([text, nodes]) => text.replace("#", String(nodes.length)));
    if (edges.length) told.push(`~ ${formatCount(edges.length, "edge")}`);
    this.#news = `${told.join(", ") || "nothing changed"}, compared with: ${drawing.graph.model.against}`;
  }

  /** Remove the marks of a difference; with `against`, state that nothing changed. */
  #forget(against = ""): void {
    unmark(this.#drawing!);
    this.#news = against && `nothing changed, compared with: ${against}`;
    this.select();
  }

  #say(text: string): void {
    this.#clear.hidden = !this.#news;
    this.#said.textContent = [this.#news, this.#scale, text || (this.#news ? "" : HELP)]
      .filter(Boolean)
      .join(" · ");
  }

  // --- user actions ----------------------------------------------------------------------------

  #listen(svg: SVGSVGElement): void {
    svg.addEventListener("click", (event) => {
      const id = this.#at(event);
      if (!id || this.#viewport!.dragged) return;
      if ((event.target as Element).closest(".trl-fold")) this.#toggle(id);
      else if (event.detail < 2) this.#click(id, event);
    });
    svg.addEventListener("dblclick", (event) => {
      const id = this.#at(event);
      if (id && !(event.target as Element).closest(".trl-fold")) this.#toggle(id);
    });
    svg.addEventListener("pointermove", (event) => this.#hover(event));
    svg.addEventListener("pointerover", (event) => this.#light(this.#at(event)));
    svg.addEventListener("pointerleave", () => {
      this.#light("");
      this.#card.hide();
    });
    svg.addEventListener("focusin", (event) => {
      const id = this.#at(event);
      if (id && id !== this.#focused) this.#rove(id);
    });
    svg.addEventListener("focusout", () => this.#card.hide());
    svg.addEventListener("keydown", (event) => this.#key(event));
  }

  /** The id of an event's node or cluster, or "". */
  #at(event: Event): string {
    const id = (event.target as Element).closest("g.node, g.cluster")?.id ?? "";
    return this.#drawing?.item(id) ? id : "";
  }

  #click(id: string, event: MouseEvent | KeyboardEvent): void {
    const more = isAdding(event);
    this.selection.click(this.#drawing!.graph.item(id)!.op_ids, more);
  }

  /** Open a folded node, or fold an open cluster or the one around a node; Python answers with a layout. */
  #toggle(id: string): void {
    const { graph } = this.#drawing!;
    const node = graph.nodes.get(id);
    const cluster = node && !node.folded ? node.cluster : id;
    if (!cluster) return;
    this.#asked = cluster;
    this.root.setAttribute("aria-busy", "true");
    this.#said.textContent = "laying out…";
    this.send({ kind: "fold", id: cluster, folded: !node?.folded });
  }

  #key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const id = this.#at(event);
    const viewport = this.#viewport!;
    const acts: Record<string, () => void> = {
      Enter: () => id && this.#click(id, event),
      " ": () => id && this.#click(id, event),
      ArrowDown: () => this.#step(id, "down"),
      ArrowUp: () => this.#step(id, "up"),
      ArrowLeft: () => this.#step(id, "left"),
      ArrowRight: () => this.#step(id, "right"),
      Home: () => this.#focus([...this.#drawing!.nodes.keys()][0] ?? ""),
      End: () => this.#focus([...this.#drawing!.nodes.keys()].at(-1) ?? ""),
      f: () => id && this.#toggle(id),
      i: () => this.#isolate(id),
      "/": () => this.#search.input.focus(),
      "+": () => viewport.zoom(NEARER),
      "=": () => viewport.zoom(NEARER),
      "-": () => viewport.zoom(1 / NEARER),
      0: () => viewport.fit(),
    };
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has other meanings for these keys
    act();
  }

  /** Undo the last of these: a neighbourhood, a search, marks of a difference, a selection. */
  protected override leave(): void {
    if (this.#isolated) this.#isolate();
    else if (!this.#search.clear()) {
      this.#forget();
      super.leave();
    }
  }

  // --- keyboard navigation ---------------------------------------------------------------------

  /** Move down to a reader or up to a source, the nearest first; sideways, or without an edge, by position. */
  #step(id: string, side: Side): void {
    const drawing = this.#drawing!;
    const { graph } = drawing;
    const linked = { down: graph.readers, up: graph.sources, left: null, right: null }[side];
    const near = [...(linked?.get(id) ?? [])];
    const next = near.length ? this.#nearest(id, near) : this.#beside(id, side);
    if (next) this.#focus(next);
  }

  #nearest(id: string, others: readonly string[]): string {
    const [x, y] = this.#drawing!.middle(id);
    const far = (other: string) => {
      const [ox, oy] = this.#drawing!.middle(other);
      return Math.hypot(ox - x, oy - y);
    };
    return [...others].sort((a, b) => far(a) - far(b))[0]!;
  }

  /** The nearest item in a direction, within a right angle. */
  #beside(id: string, side: Side): string {
    const drawing = this.#drawing!;
    const [x, y] = drawing.middle(id);
    const ahead = (other: string) => {
      const [ox, oy] = drawing.middle(other);
      const [along, across] =
        { down: [oy - y, ox - x], up: [y - oy, ox - x] }[side as "up"] ??
        {
          right: [ox - x, oy - y],
          left: [x - ox, oy - y],
        }[side as "left"]!;
      return other !== id && along! > 0 && Math.abs(across!) <= along!;
    };
    const found = [...drawing.nodes.keys()].filter(ahead);
    return found.length ? this.#nearest(id, found) : "";
  }

  #rove(id: string): void {
    const drawing = this.#drawing!;
    drawing.item(this.#focused)?.setAttribute("tabindex", "-1");
    drawing.item(id)?.setAttribute("tabindex", "0");
    this.#focused = id;
  }

  #focus(id: string): void {
    const [drawing, viewport] = [this.#drawing, this.#viewport];
    const element = drawing?.item(id);
    if (!drawing || !viewport || !element) return;
    this.#rove(id);
    element.focus({ preventScroll: true });
    this.#light(id);
    if (!drawing.isShown) return;
    viewport.reveal(drawing.box(id));
    const node = drawing.graph.nodes.get(id);
    const area = this.#stage.getBoundingClientRect();
    const { right, bottom } = element.getBoundingClientRect();
    if (node) this.#card.node(node, right - area.left, bottom - area.top);
  }

  // --- highlighting ----------------------------------------------------------------------------

  #hover(event: PointerEvent): void {
    const { graph } = this.#drawing!;
    const area = this.#stage.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    const target = event.target as Element;
    const node = graph.nodes.get(target.closest("g.node")?.id ?? "");
    const edge = graph.edges.get(target.closest("g.edge")?.id ?? "");
    if (event.buttons || (!node && !edge)) this.#card.hide();
    else if (node) this.#card.node(node, x, y);
    else if (edge) this.#card.edge(edge, graph, x, y);
  }

  #light(id: string): void {
    const drawing = this.#drawing!;
    const near = drawing.graph.nodes.has(id) ? drawing.graph.around([id]) : null;
    this.#dim("trl-dim", near, (edge) => edge.tail === id || edge.head === id);
  }

  /** Show only a node (or the selection) with its neighbours, or everything again. */
  #isolate(id = ""): void {
    const drawing = this.#drawing;
    if (!drawing) return;
    const { graph } = drawing;
    const chosen = graph.model.nodes.filter((node) => this.selection.marks(node.op_ids));
    const selected = chosen.length ? chosen.map((node) => node.id) : [this.#focused];
    const from = graph.nodes.has(id) ? [id] : selected;
    this.#isolated = this.#isolated ? null : graph.around(from);
    const own = new Set(from);
    this.#dim("trl-away", this.#isolated, ({ tail, head }) => own.has(tail) || own.has(head));
    this.#buttons.isolate.setAttribute("aria-pressed", String(this.#isolated !== null));
    if (!drawing.isShown) return;
    if (this.#isolated) this.#viewport!.frame(drawing.hull(this.#isolated));
    else this.#viewport!.fit();
  }

  #dim(
    name: string,
    keep: ReadonlySet<string> | null,
    keeps: (edge: { tail: string; head: string }) => boolean,
  ): void {
    const { graph, nodes, edges } = this.#drawing!;
    for (const [id, element] of nodes) element.classList.toggle(name, !!keep && !keep.has(id));
    for (const [id, element] of edges) {
      element.classList.toggle(name, !!keep && !keeps(graph.edges.get(id)!));
    }
  }

  // --- search ----------------------------------------------------------------------------------

  #markFound(): void {
    const hits = this.#search.hits ?? new Set();
    this.#drawing?.graph.model.nodes.forEach(({ id }, k) => {
      const classes = this.#drawing!.nodes.get(id)?.classList; // a failed layout has no elements
      classes?.toggle("trl-found", hits.has(k));
      classes?.toggle("trl-unfound", hits.size > 0 && !hits.has(k));
    });
  }

  #goTo(k: number): void {
    const drawing = this.#drawing!;
    const node = drawing.graph.model.nodes[k]!;
    this.#rove(node.id);
    this.#light(node.id);
    if (drawing.isShown) this.#viewport!.reveal(drawing.box(node.id));
    this.#say(title(node));
  }

  #tabulate(): void {
    const open = this.#table.root.hidden === true;
    this.#table.toggle(open);
    this.#stage.hidden = open;
    this.#buttons.table.setAttribute("aria-pressed", String(open));
    this.#resize();
  }
}

function mean(places: readonly (readonly [number, number])[]): [number, number] {
  const sum = (axis: 0 | 1) => places.reduce((total, place) => total + place[axis], 0);
  return [sum(0) / places.length, sum(1) / places.length];
}

/** Map what was visible at a position for `box` and a scale to the same position of the current view. */
function carrying(box: Box, scale: number, { box: now, scale: shown }: Viewport): Carry {
  const middle = (one: Box) => [one[0] + one[2] / 2, one[1] + one[3] / 2] as const;
  const [from, to] = [middle(box), middle(now)];
  const ratio = shown / scale;
  const carry = ([x, y]: readonly [number, number]): [number, number] => [
    to[0] + (x - from[0]) * ratio,
    to[1] + (y - from[1]) * ratio,
  ];
  return Object.assign(carry, { scale: ratio });
}
