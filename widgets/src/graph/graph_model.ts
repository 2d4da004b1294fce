// Dependence graph of a `GraphView` (docs/reference/view-models.md) with its picture.
import type { Edge, GraphView, Node, OpenCluster, Value } from "../models";

export type { OpenCluster as GraphCluster, Edge as GraphEdge, Node as GraphNode } from "../models";

/** A view with the picture that Python laid out. */
export type GraphModel = GraphView & {
  svg: string;
  /** Description of the previous graph, if the two are compared. */
  against?: string;
};

/** Items by which two graphs differ; keyed by id. */
export interface Difference {
  added: Node[];
  removed: Node[];
  changed: Node[];
  /** Edges between nodes of both graphs that only the second graph has, or whose reads differ. */
  edges: Edge[];
}

/** A model with its items by id, and the readers of each node. */
export class Graph {
  readonly nodes: ReadonlyMap<string, Node>;
  readonly clusters: ReadonlyMap<string, OpenCluster>;
  readonly edges: ReadonlyMap<string, Edge>;
  /** The readers and the sources of each node, without the node itself. */
  readonly readers = new Map<string, Set<string>>();
  readonly sources = new Map<string, Set<string>>();

  constructor(readonly model: GraphModel) {
    this.nodes = byId(model.nodes);
    this.clusters = byId(model.clusters);
    this.edges = byId(model.edges);
    for (const { id } of model.nodes) {
      this.readers.set(id, new Set());
      this.sources.set(id, new Set());
    }
    for (const { tail, head } of model.edges) {
      if (tail === head) continue;
      this.readers.get(tail)?.add(head);
      this.sources.get(head)?.add(tail);
    }
  }

  /** A node or open cluster. */
  item(id: string): Node | OpenCluster | undefined {
    return this.nodes.get(id) ?? this.clusters.get(id);
  }

  /** These nodes with all their sources and readers. */
  around(ids: Iterable<string>): Set<string> {
    const found = new Set<string>();
    for (const id of ids) {
      for (const near of [id, ...(this.readers.get(id) ?? []), ...(this.sources.get(id) ?? [])]) {
        found.add(near);
      }
    }
    return found;
  }

  /** The positions of the nodes that contain a text, ignoring case; `%12` matches only operation 12. */
  find(query: string): number[] {
    const text = query.trim().replace(/\s+/g, " ").toLowerCase();
    if (!text) return [];
    const op = /^%(\d+)$/.exec(text);
    const has = (node: Node) =>
      op ? node.op_ids.includes(Number(op[1])) : words(node).includes(text);
    return this.model.nodes.flatMap((node, k) => (has(node) ? [k] : []));
  }
}

/** Whether two graphs are identical, apart from the comparison. */
export function isSame(a: GraphModel, b: GraphModel): boolean {
  if (a.nodes === b.nodes && a.svg === b.svg) return true; // the same view
  const text = (one: GraphModel) => JSON.stringify({ ...one, against: "" });
  return a.svg === b.svg && text(a) === text(b);
}

/** The items of another graph that correspond to those of a graph: by id, or nodes by a name that no other has. */
export function counterparts(from: Graph, to: Graph): Map<string, string> {
  const byName = (graph: Graph) => {
    const found = new Map<string, string | null>(); // null: several nodes have this name
    for (const node of graph.model.nodes) {
      found.set(node.name, found.has(node.name) ? null : node.id);
    }
    return found;
  };
  const [mine, theirs] = [byName(from), byName(to)];
  const found = new Map<string, string>();
  for (const { id, name } of from.model.nodes) {
    const own = to.nodes.get(id)?.name === name ? id : mine.get(name) && theirs.get(name);
    if (own) found.set(id, own);
  }
  for (const { id } of from.model.clusters) if (to.clusters.has(id)) found.set(id, id);
  return found;
}

/** The added, removed and changed items of two graphs; nodes correspond by id, or by name. */
export function difference(before: Graph, after: Graph): Difference {
  const gone = before.model.nodes.filter(({ id }) => !after.nodes.has(id));
  const names = new Map(gone.map((node) => [title(node), node]));
  const was = new Map<string, Node>(); // by the current id
  for (const node of after.model.nodes) {
    const old = before.nodes.get(node.id) ?? names.get(title(node));
    if (!old) continue;
    was.set(node.id, old);
    names.delete(title(old));
  }
  const key = ({ kind, tail, head, reads }: Edge) => JSON.stringify([kind, tail, head, reads]);
  const known = new Set(before.model.edges.map(key));
  const isNew = (edge: Edge) => {
    const [tail, head] = [was.get(edge.tail)?.id, was.get(edge.head)?.id];
    return tail !== undefined && head !== undefined && !known.has(key({ ...edge, tail, head }));
  };
  const stays = new Set([...was.values()].map(({ id }) => id));
  return {
    added: after.model.nodes.filter(({ id }) => !was.has(id)),
    removed: before.model.nodes.filter(({ id }) => !stays.has(id)),
    changed: after.model.nodes.filter((node) => {
      const old = was.get(node.id);
      return old !== undefined && look(old, node) !== look(node, node);
    }),
    edges: after.model.edges.filter(isNew),
  };
}

/** Whether so few nodes remain that it is another graph rather than a changed one. */
export function isAnother(after: Graph, { added }: Difference): boolean {
  return added.length > 0.75 * after.nodes.size;
}

/** For each new node, the previous nodes with some of its operations. */
export function origins(before: Graph, after: Graph): Map<string, string[]> {
  const home = new Map<number, string>();
  for (const { id, op_ids } of before.model.nodes) for (const op of op_ids) home.set(op, id);
  const found = new Map<string, string[]>();
  for (const { id, op_ids } of after.model.nodes) {
    if (before.nodes.has(id)) continue;
    const from = new Set(op_ids.map((op) => home.get(op)).filter((one) => one !== undefined));
    if (from.size) found.set(id, [...from]);
  }
  return found;
}

/** The first line of a label, or the full name that it shortens. */
export function title(item: { label: string; name?: string }): string {
  return item.name ?? item.label.split("\n", 1)[0]!;
}

/** `f32[64,4] @ (b, i, t)`. */
export function typeText({ dtype, shape, domain }: Value): string {
  return `${dtype}[${shape.join(",")}] @ (${domain.join(", ")})`;
}

/** `[b, i, t - 1] if t >= 1`; a read at the reader's own point has no index. */
export function readText({ index, cond }: { index: string; cond: string }): string {
  return [index, cond && `if ${cond}`].filter(Boolean).join(" ") || "at its own point";
}

function byId<T extends { id: string }>(items: readonly T[]): Map<string, T> {
  return new Map(items.map((item) => [item.id, item]));
}

function words({ label, name, kind, region, place, text, values }: Node): string {
  const named = values.map(({ name }) => name);
  const all = [label, name, kind, region.join(" / "), place, text, ...named].join(" ");
  return all.replace(/\s+/g, " ").toLowerCase();
}

/** The visible properties of a node; ids are compared only for the same node. */
function look({ id, label, kind, op_ids }: Node, now: Node): string {
  return JSON.stringify([label, kind, id === now.id ? op_ids : now.op_ids]);
}
