// A dependence graph as `GraphView` describes it (docs/view-models.md), with its picture.

export interface GraphValue {
  name: string;
  domain: string[];
  shape: string[];
  dtype: string;
  bytes: number | null;
}

export interface GraphNode {
  id: string;
  label: string;
  name: string;
  kind: string;
  op_ids: number[];
  region: string[];
  cluster: string;
  folded: boolean;
  place: string;
  text: string;
  detail: string;
  values: GraphValue[];
}

export interface GraphCluster {
  id: string;
  label: string;
  sort: string;
  parent: string;
  op_ids: number[];
}

export interface GraphEdge {
  id: string;
  /** Of an order nothing is read: the head waits for the tail. */
  kind: "read" | "order";
  tail: string;
  head: string;
  label: string;
  count: number;
  reads: { index: string; cond: string }[];
}

export interface GraphModel {
  name: string;
  svg: string;
  nodes: GraphNode[];
  clusters: GraphCluster[];
  edges: GraphEdge[];
  folded: string[];
}

/** What one graph has that another has not; keyed by id. */
export interface Difference {
  added: GraphNode[];
  removed: GraphNode[];
  changed: GraphNode[];
}

/** A model with its items by id, and who reads whom. */
export class Graph {
  readonly nodes: ReadonlyMap<string, GraphNode>;
  readonly clusters: ReadonlyMap<string, GraphCluster>;
  readonly edges: ReadonlyMap<string, GraphEdge>;
  /** Of each node, those that read it, and those that it reads; itself left out. */
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
  item(id: string): GraphNode | GraphCluster | undefined {
    return this.nodes.get(id) ?? this.clusters.get(id);
  }

  /** These nodes with all that they read and are read by. */
  around(ids: Iterable<string>): Set<string> {
    const found = new Set<string>();
    for (const id of ids) {
      for (const near of [id, ...(this.readers.get(id) ?? []), ...(this.sources.get(id) ?? [])]) {
        found.add(near);
      }
    }
    return found;
  }

  /** The nodes that have a text in them, ignoring case; `%12` is operation 12 and no other. */
  find(query: string): string[] {
    const text = query.trim().toLowerCase();
    if (!text) return [];
    const op = /^%(\d+)$/.exec(text);
    const has = (node: GraphNode) =>
      op ? node.op_ids.includes(Number(op[1])) : words(node).includes(text);
    return this.model.nodes.filter(has).map((node) => node.id);
  }
}

/** What has come, gone and changed between two graphs. */
export function difference(before: Graph, after: Graph): Difference {
  const changed = (node: GraphNode) => {
    const old = before.nodes.get(node.id);
    return old !== undefined && look(old) !== look(node);
  };
  return {
    added: after.model.nodes.filter(({ id }) => !before.nodes.has(id)),
    removed: before.model.nodes.filter(({ id }) => !after.nodes.has(id)),
    changed: after.model.nodes.filter(changed),
  };
}

/** Whether so little stays that it is another graph rather than the same one after a change. */
export function isAnother(after: Graph, { added }: Difference): boolean {
  return added.length > 0.75 * after.nodes.size;
}

/** For each node that is new, the former nodes of which it has operations. */
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

/** The first line of a label, or the whole name that it shortens. */
export function title(item: { label: string; name?: string }): string {
  return item.name ?? item.label.split("\n", 1)[0]!;
}

/** `f32[64,4] @ (b, i, t)`. */
export function typeText({ dtype, shape, domain }: GraphValue): string {
  return `${dtype}[${shape.join(",")}] @ (${domain.join(", ")})`;
}

/** `12.3 KiB`. */
export function bytesText(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  let [size, unit] = [bytes, 0];
  for (; size >= 1024 && unit < units.length - 1; unit++) size /= 1024;
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

/** `[b, i, t - 1] if t >= 1`; what is read at the reader's own point has no index. */
export function readText({ index, cond }: { index: string; cond: string }): string {
  return [index, cond && `if ${cond}`].filter(Boolean).join(" ") || "at its own point";
}

function byId<T extends { id: string }>(items: readonly T[]): Map<string, T> {
  return new Map(items.map((item) => [item.id, item]));
}

function words({ label, name, kind, region, place, text, values }: GraphNode): string {
  const named = values.map(({ name }) => name);
  return [label, name, kind, region.join(" / "), place, text, ...named].join("\n").toLowerCase();
}

function look({ label, kind, op_ids }: GraphNode): string {
  return JSON.stringify([label, kind, op_ids]);
}
