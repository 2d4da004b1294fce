// Tooltip card with the details of the item under the pointer or focus.
import {
  readText,
  title,
  typeText,
  type Graph,
  type GraphEdge,
  type GraphNode,
} from "./graph_model";
import { html } from "../shared/markup";
import { formatBytes } from "../shared/plot";

const VERBS = { read: "reads", order: "runs after" } as const;
const GAP = 12; // pixels between the pointer and the card

export class Card {
  readonly root = html("div", { class: "trl-card", role: "tooltip", hidden: true });

  /** Show the details of a node; `x` and `y` are pixels in the element around the card. */
  node(node: GraphNode, x: number, y: number): void {
    const parts: HTMLElement[] = [html("b", {}, title(node))];
    const count = node.op_ids.length - (node.kind === "kernel" ? 1 : 0); // a kernel is an operation itself
    const what = node.folded
      ? `${node.kind}, ${count} operation${count === 1 ? "" : "s"}`
      : node.kind;
    const where = node.region.length ? ` in ${node.region.join(" / ")}` : "";
    parts.push(html("div", { class: "trl-soft" }, what + where));
    if (node.values.length) {
      const rows = node.values.map((value) =>
        html(
          "tr",
          {},
          html("td", {}, value.name),
          html("td", { class: "trl-type" }, typeText(value)),
          html("td", { class: "trl-bytes" }, value.bytes === null ? "" : formatBytes(value.bytes)),
        ),
      );
      parts.push(html("table", {}, html("tbody", {}, ...rows)));
    }
    if (node.place) {
      parts.push(html("div", { class: "trl-soft" }, node.place));
      if (node.text) parts.push(html("code", {}, node.text));
    }
    if (node.folded) parts.push(html("div", { class: "trl-soft" }, "double click or F opens it"));
    this.#show(parts, x, y);
  }

  /** Show the reads or the order of an edge. */
  edge(edge: GraphEdge, graph: Graph, x: number, y: number): void {
    const name = (id: string) => title(graph.nodes.get(id) ?? { label: id });
    const reads = edge.reads.map((read) => html("code", {}, readText(read)));
    const more = edge.count - edge.reads.length;
    this.#show(
      [
        html("b", {}, `${name(edge.head)} ${VERBS[edge.kind]} ${name(edge.tail)}`),
        ...reads,
        ...(more > 0 ? [html("div", { class: "trl-soft" }, `and ${more} more`)] : []),
      ],
      x,
      y,
    );
  }

  hide(): void {
    this.root.hidden = true;
  }

  #show(parts: HTMLElement[], x: number, y: number): void {
    this.root.replaceChildren(...parts);
    this.root.hidden = false;
    const area = this.root.parentElement!;
    const right = x + GAP + this.root.offsetWidth > area.clientWidth;
    const below = y + GAP + this.root.offsetHeight > area.clientHeight;
    const left = right ? x - GAP - this.root.offsetWidth : x + GAP;
    const top = below ? y - GAP - this.root.offsetHeight : y + GAP;
    this.root.style.left = `${Math.max(2, left)}px`;
    this.root.style.top = `${Math.max(2, top)}px`;
  }
}
