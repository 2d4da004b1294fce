// The graph pane: a dependence graph as Python laid it out, to look around in and to select from.
import css from "./graph.css";
import { html, picture } from "./markup";
import { Pane, type Send } from "./pane";
import type { Selection } from "./selection";
import { Viewport } from "./viewport";

export interface GraphNode {
  id: string;
  label: string;
  op_ids: number[];
  region: string[];
  detail: string;
}

export interface GraphEdge {
  tail: string;
  head: string;
  label: string;
}

/** What `GraphView.to_json` gives, with its picture. */
export interface GraphModel {
  name: string;
  svg: string;
  nodes: GraphNode[];
  edges: GraphEdge[];
}

const HELP = "click a node; arrow keys move, Enter selects, + − 0 zoom";

export class GraphPane extends Pane<GraphModel> {
  #status = html("div", { class: "trl-status", "aria-live": "polite" });
  #model: GraphModel | null = null;
  #viewport!: Viewport;
  #details = new Map<string, GraphNode>();
  #near = new Map<string, Set<string>>();
  #nodes = new Map<string, SVGGElement>();
  #edges: { element: SVGGElement; tail: string; head: string }[] = [];

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "graph", css);
  }

  override draw(model: GraphModel): void {
    this.#model = model;
    this.#details = new Map(model.nodes.map((node) => [node.id, node]));
    this.#near = new Map(model.nodes.map((node) => [node.id, new Set()]));
    for (const { tail, head } of model.edges) {
      this.#near.get(tail)?.add(head);
      this.#near.get(head)?.add(tail);
    }
    const svg = picture(model.svg);
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", "dependence graph");
    this.#find(svg);
    this.root.replaceChildren(svg, this.#status);
    this.#viewport = new Viewport(svg);
    this.#listen(svg);
    this.select();
    this.instant();
  }

  override select(): void {
    if (!this.#model) return;
    const shown: GraphNode[] = [];
    for (const [id, element] of this.#nodes) {
      const node = this.#details.get(id)!;
      const marked = this.selection.marks(node.op_ids);
      element.classList.toggle("trl-selected", marked);
      element.setAttribute("aria-pressed", String(marked));
      if (marked) shown.push(node);
    }
    const said = shown.map((node) => `${node.label.split("\n")[0]} — ${node.detail}`);
    this.#status.textContent = said.join("; ") || HELP;
  }

  override instant(): void {
    for (const [id, element] of this.#nodes) {
      element.classList.toggle("trl-running", this.selection.runs(this.#details.get(id)!.op_ids));
    }
  }

  #find(svg: SVGSVGElement): void {
    this.#nodes.clear();
    for (const element of svg.querySelectorAll<SVGGElement>("g.node")) {
      const node = this.#details.get(element.id);
      if (!node) continue;
      this.#nodes.set(element.id, element);
      element.setAttribute("role", "button");
      element.setAttribute("tabindex", this.#nodes.size === 1 ? "0" : "-1");
      element.setAttribute("aria-label", node.label.replaceAll("\n", ", "));
    }
    this.#edges = [...svg.querySelectorAll<SVGGElement>("g.edge")].map((element) => {
      const ends = (element.querySelector("title")?.textContent ?? "").split("->");
      return { element, tail: ends[0] ?? "", head: ends[1] ?? "" };
    });
    svg.querySelectorAll("title").forEach((title) => title.remove());
  }

  #listen(svg: SVGSVGElement): void {
    svg.addEventListener("click", (event) => {
      const node = this.#at(event);
      if (node && !this.#viewport.dragged) this.#click(node, event);
    });
    svg.addEventListener("pointerover", (event) => this.#light(this.#at(event)));
    svg.addEventListener("pointerleave", () => this.#light(null));
    svg.addEventListener("keydown", (event) => this.#key(event, this.#at(event)));
  }

  #at(event: Event): GraphNode | null {
    const element = (event.target as Element).closest("g.node");
    return this.#details.get(element?.id ?? "") ?? null;
  }

  #click(node: GraphNode, event: MouseEvent | KeyboardEvent): void {
    this.selection.click(node.op_ids, event.shiftKey || event.ctrlKey || event.metaKey);
  }

  #key(event: KeyboardEvent, node: GraphNode | null): void {
    const acts: Record<string, () => void> = {
      Enter: () => node && this.#click(node, event),
      " ": () => node && this.#click(node, event),
      ArrowRight: () => this.#step(node, 1),
      ArrowDown: () => this.#step(node, 1),
      ArrowLeft: () => this.#step(node, -1),
      ArrowUp: () => this.#step(node, -1),
      "+": () => this.#viewport.zoom(0.8),
      "=": () => this.#viewport.zoom(0.8),
      "-": () => this.#viewport.zoom(1.25),
      0: () => this.#viewport.fit(),
      Escape: () => this.selection.choose([]),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own meaning for these keys
    act();
  }

  #step(node: GraphNode | null, by: number): void {
    const order = [...this.#nodes.keys()];
    const next = order[(order.indexOf(node?.id ?? "") + by + order.length) % order.length]!;
    for (const [id, element] of this.#nodes) {
      element.setAttribute("tabindex", id === next ? "0" : "-1");
    }
    this.#nodes.get(next)!.focus();
    this.#light(this.#details.get(next)!);
  }

  #light(node: GraphNode | null): void {
    const near = node && this.#near.get(node.id);
    for (const [id, element] of this.#nodes) {
      element.classList.toggle("trl-dim", !!near && id !== node.id && !near.has(id));
    }
    for (const { element, tail, head } of this.#edges) {
      element.classList.toggle("trl-dim", !!node && tail !== node.id && head !== node.id);
    }
  }
}
