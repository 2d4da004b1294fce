// Elements of a picture laid out by Python, by the ids of its model.
import type { Graph } from "./graph_model";
import { picture, svg } from "../shared/markup";
import type { Box } from "./viewport";

export class Drawing {
  readonly svg: SVGSVGElement;
  readonly nodes: ReadonlyMap<string, SVGGElement>;
  readonly clusters: ReadonlyMap<string, SVGGElement>;
  readonly edges: ReadonlyMap<string, SVGGElement>;
  readonly #layer: SVGGElement;
  #boxes = new Map<string, Box>();

  constructor(readonly graph: Graph) {
    this.svg = picture(graph.model.svg);
    for (const name of ["width", "height"]) this.svg.removeAttribute(name);
    this.svg.querySelectorAll("title").forEach((title) => title.remove());
    this.nodes = this.#find("g.node", graph.nodes);
    this.clusters = this.#find("g.cluster", graph.clusters);
    this.edges = this.#find("g.edge", graph.edges);
    this.#layer = this.svg.querySelector<SVGGElement>("g.graph")!;
    for (const [id, element] of this.nodes) {
      if (graph.nodes.get(id)!.folded) prefix(element, "trl-fold", "▸ ");
    }
    for (const element of this.clusters.values()) prefix(element, "trl-fold", "▾ ");
  }

  /** The element of a node or open cluster. */
  item(id: string): SVGGElement | undefined {
    return this.nodes.get(id) ?? this.clusters.get(id);
  }

  /** Whether it is on the page, so that positions can be measured. */
  get isShown(): boolean {
    return this.svg.getBoundingClientRect().width > 0;
  }

  /** The box of a node or cluster in the picture's units. */
  box(id: string): Box {
    const known = this.#boxes.get(id);
    if (known) return known;
    const element = this.item(id);
    if (!element || !this.isShown) return [0, 0, 0, 0];
    const { x, y, width, height } = element.getBBox();
    const moved = this.#layer.transform.baseVal.consolidate()?.matrix;
    const box: Box = [x + (moved?.e ?? 0), y + (moved?.f ?? 0), width, height];
    this.#boxes.set(id, box);
    return box;
  }

  middle(id: string): [number, number] {
    const [x, y, width, height] = this.box(id);
    return [x + width / 2, y + height / 2];
  }

  /** The smallest box around several items. */
  hull(ids: Iterable<string>): Box {
    const boxes = [...ids].map((id) => this.box(id));
    const x = Math.min(...boxes.map((box) => box[0]));
    const y = Math.min(...boxes.map((box) => box[1]));
    const right = Math.max(...boxes.map((box) => box[0] + box[2]));
    const bottom = Math.max(...boxes.map((box) => box[1] + box[3]));
    return [x, y, right - x, bottom - y];
  }

  /** Add an element of another picture; the caller removes it. */
  add(element: SVGGElement): void {
    this.#layer.append(element);
  }

  /** The origin of the drawing's units. */
  get origin(): [number, number] {
    const moved = this.#layer.transform.baseVal.consolidate()?.matrix;
    return [moved?.e ?? 0, moved?.f ?? 0];
  }

  #find(selector: string, known: ReadonlyMap<string, unknown>): Map<string, SVGGElement> {
    const elements = [...this.svg.querySelectorAll<SVGGElement>(selector)];
    return new Map(elements.filter(({ id }) => known.has(id)).map((one) => [one.id, one]));
  }
}

/** Put a sign before an item's first line. */
export function prefix(element: SVGGElement, name: string, sign: string): void {
  element.querySelector("text")?.prepend(svg("tspan", { class: name }, sign));
}
