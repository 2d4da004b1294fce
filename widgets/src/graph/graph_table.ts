// The graph as a table, an accessible alternative to the picture.
import { isAdding } from "../shared/keyboard";
import { readText, title, typeText, type Graph, type GraphNode } from "./graph_model";
import { html, row as tableRow, table } from "../shared/markup";
import type { Selection } from "../shared/selection";

export class GraphTable {
  readonly root = html("div", { class: "trl-table", hidden: true });
  #graph: Graph | null = null;
  #rows: { node: GraphNode; row: HTMLTableRowElement; name: HTMLButtonElement }[] = [];

  constructor(private readonly selection: Selection) {}

  /** Set the graph; the table is built when it is shown. */
  draw(graph: Graph): void {
    this.#graph = graph;
    if (!this.root.hidden) this.#write(graph);
  }

  /** Show or hide the table. */
  toggle(open: boolean): void {
    this.root.hidden = !open;
    if (open && this.#graph) this.#write(this.#graph);
  }

  #write(graph: Graph): void {
    const reads = new Map<string, HTMLElement[]>();
    for (const { kind, tail, head, reads: found } of graph.model.edges) {
      const source = title(graph.nodes.get(tail) ?? { label: tail });
      const texts = found.filter(({ index, cond }) => index || cond).map(readText);
      const line = html("div", {}, [kind === "order" ? "after" : "", source, ...texts].join(" "));
      reads.set(head, [...(reads.get(head) ?? []), line]);
    }
    this.#rows = graph.model.nodes.map((node) => {
      const name = html("button", { type: "button" }, title(node));
      const values = node.values.map((value) =>
        html("div", {}, `${value.name}: ${typeText(value)}`),
      );
      const made = [html("div", {}, ...values), html("div", {}, ...(reads.get(node.id) ?? []))];
      const row = tableRow({}, name, node.region.join(" / "), node.kind, ...made, node.detail);
      name.addEventListener("click", (event) => this.selection.click(node.op_ids, isAdding(event)));
      return { node, row, name };
    });
    const heads = ["node", "region", "kind", "makes", "reads", "line"];
    this.root.replaceChildren(
      table(
        heads,
        html("tbody", {}, ...this.#rows.map(({ row }) => row)),
        {},
        html("caption", { class: "trl-hidden" }, "nodes of the graph"),
      ),
    );
    this.select();
  }

  select(): void {
    for (const { node, row, name } of this.#rows) {
      const marked = this.selection.marks(node.op_ids);
      row.classList.toggle("trl-selected", marked);
      name.setAttribute("aria-pressed", String(marked));
    }
  }
}
