import assert from "node:assert/strict";
import { test } from "node:test";
import { formatBytes } from "../src/shared/plot";
import {
  difference,
  Graph,
  isAnother,
  origins,
  readText,
  typeText,
} from "../src/graph/graph_model";
import type { GraphEdge, GraphModel, GraphNode } from "../src/graph/graph_model";

function node(id: string, label: string, ...op_ids: number[]): GraphNode {
  const values = [{ name: "g", domain: ["b", "t"], shape: ["4", "T"], dtype: "f32", bytes: null }];
  return {
    ...{ id, label, name: label.split("\n", 1)[0]!, op_ids, values, kind: "add", cluster: "" },
    ...{ region: ["learning"], folded: false },
    ...{ place: "train.py:3", text: "x + y", detail: "train.py:3: x + y" },
  };
}

function edge(tail: string, head: string): GraphEdge {
  return { id: `${tail}-${head}`, kind: "read", tail, head, label: "", count: 1, reads: [] };
}

function graph(nodes: GraphNode[], ...edges: GraphEdge[]): Graph {
  const model: GraphModel = { name: "pdg", svg: "", nodes, clusters: [], edges, folded: [] };
  return new Graph(model);
}

const [a, b, c] = [node("a", "one", 1), node("b", "two\nf32", 12, 3), node("c", "three", 2)];

test("a difference lists added, removed and changed items by id", () => {
  const other = { ...b, label: "two\nf64" };
  const found = difference(graph([a, b]), graph([other, c]));
  assert.deepEqual(found, { added: [c], removed: [a], changed: [other], edges: [] });
  assert.deepEqual(difference(graph([a]), graph([a])), {
    added: [],
    removed: [],
    changed: [],
    edges: [],
  });
});

test("a difference lists edges of common nodes whose reads differ", () => {
  const [plain, later] = [
    edge("a", "b"),
    { ...edge("a", "b"), reads: [{ index: "[t + 1]", cond: "" }] },
  ];
  assert.deepEqual(difference(graph([a, b], plain), graph([a, b], plain)).edges, []);
  assert.deepEqual(difference(graph([a, b], plain), graph([a, b], later)).edges, [later]);
  const renamed = { ...b, id: "d" }; // the same node under another id
  const moved = { ...edge("a", "d") };
  assert.deepEqual(difference(graph([a, b], plain), graph([a, renamed], moved)).edges, []);
  assert.deepEqual(difference(graph([a]), graph([a, b], plain)).edges, []); // its node is new
});

test("a graph with few common nodes is another graph", () => {
  const [before, after] = [graph([a]), graph([b, c])];
  assert.ok(isAnother(after, difference(before, after)));
  assert.ok(!isAnother(graph([a, b]), difference(before, graph([a, b]))));
});

test("a new node originates from the nodes with its operations", () => {
  const kernel = node("k", "kernel", 99, 1, 3);
  const found = origins(graph([a, b, c]), graph([kernel, c]));
  assert.deepEqual([...found], [["k", ["a", "b"]]]);
  assert.deepEqual([...origins(graph([kernel]), graph([a, c]))], [["a", ["k"]]]);
});

test("a neighbourhood consists of sources and readers", () => {
  const chain = graph([a, b, c], edge("a", "b"), edge("b", "c"), edge("b", "b"));
  assert.deepEqual([...chain.around(["a"])].sort(), ["a", "b"]);
  assert.deepEqual([...chain.around(["b"])].sort(), ["a", "b", "c"]);
  assert.ok(!chain.readers.get("b")!.has("b"));
});

test("a search covers all texts of a node, and whole ids", () => {
  const all = graph([a, b, c]);
  assert.deepEqual(all.find(" TWO "), [1]);
  assert.deepEqual(all.find("%1"), [0]);
  assert.deepEqual(all.find("%12"), [1]);
  assert.deepEqual(all.find("train.py:3"), [0, 1, 2]);
  assert.deepEqual(all.find("(.*"), []);
  assert.deepEqual(all.find("  "), []);
});

test("texts of values and reads", () => {
  assert.equal(typeText(a.values[0]!), "f32[4,T] @ (b, t)");
  assert.equal(readText({ index: "[t - 1]", cond: "t >= 1" }), "[t - 1] if t >= 1");
  assert.equal(readText({ index: "", cond: "" }), "at its own point");
  assert.deepEqual([512, 2048, 3 * 2 ** 20].map(formatBytes), ["512 B", "2 KiB", "3 MiB"]);
});
