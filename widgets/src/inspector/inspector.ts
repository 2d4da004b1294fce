// Inspector pane: details of the selection, from the user's line to the storage.
import css from "./inspector.css";
import { button, html } from "../shared/markup";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import { drawText } from "../draw/sheet";
import { formatBytes } from "../shared/plot";
import type { Selection, Tensor } from "../shared/selection";
import type { Chapter, Inspected, InspectorView, Neighbour, Stored } from "../models";

/** Details of the first requested operations; `more` is the number of the others. */
export type InspectorModel = InspectorView & {
  asked: [ids: number[], tensors: Tensor["tensor"][]];
  more: number;
};

const PATIENCE = 40; // milliseconds that a selection must last before Python is asked
const MANY = 6; // number of listed neighbours; the rest is folded

export class InspectorPane extends Panel<InspectorModel | null> {
  #model: InspectorModel | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #stage = "";

  /** `jump` shows another stage. */
  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    private readonly jump: (stage: string) => void,
  ) {
    super(host, selection, send, "inspector", "Inspector", css);
    this.offerPictures();
    this.onDispose(() => clearTimeout(this.#timer));
    this.select();
  }

  override draw(model: InspectorModel | null): void {
    this.#model = model;
    this.#show();
    if (!model) this.#ask(); // another program with the same selection
  }

  /** Set the stage shown elsewhere; details come from it if it contains the operation. */
  stage(name: string): void {
    if (name === this.#stage) return;
    this.#stage = name;
    this.#ask();
  }

  override select(): void {
    this.#show();
    this.#ask();
  }

  override picture(): string | null {
    return this.#model?.ops.length ? drawText(this.body.innerText) : null;
  }

  /** The selection as a request to Python. */
  get #asks(): InspectorModel["asked"] {
    return [[...this.selection.ids], [...this.selection.tensors]];
  }

  #ask(): void {
    clearTimeout(this.#timer);
    const [ids, tensors] = this.#asks;
    if (!ids.length) return;
    this.#timer = setTimeout(
      () => this.send({ kind: "inspect", ids, tensors, stage: this.#stage }),
      PATIENCE,
    );
  }

  #show(): void {
    if (!this.selection.ids.size) {
      this.note.textContent = "";
      const help =
        "Select a node, a line, a mark or a tensor: it is marked in every view and described here.";
      this.body.replaceChildren(html("p", { class: "trl-empty" }, help));
      return;
    }
    const model = this.#model;
    if (!model || JSON.stringify(model.asked) !== JSON.stringify(this.#asks)) {
      this.note.textContent = "loading …";
      return;
    }
    this.note.textContent = model.more ? `and ${model.more} more` : "";
    this.body.replaceChildren(...model.ops.map((op) => this.#operation(op)));
    this.body.scrollTop = 0;
  }

  #operation(op: Inspected): HTMLElement {
    const of = op.tensor === null ? op.kind : `tensor, by ${op.name}`;
    const where = [of, op.region.join(" / "), `in ${op.stage}`].filter(Boolean).join(" · ");
    const parts = [
      html("h4", {}, op.tensor ?? op.name, html("span", { class: "trl-where" }, where)),
      html(
        "p",
        { class: "trl-doc" },
        op.attrs ? `${op.doc.replace(/\.$/, "")}: ${op.attrs}` : op.doc,
      ),
      ...this.#types(op),
      this.#source(op),
    ];
    if (op.schedule) parts.push(this.#time(op.schedule));
    parts.push(...op.stores.map((store) => storeOf(store)));
    parts.push(this.#edges("reads", op.reads), this.#edges("readers", op.readers));
    parts.push(this.#history(op.history));
    return html("article", {}, ...parts);
  }

  #types(op: Inspected): HTMLElement[] {
    return op.outputs.map((out) => {
      const type = `${out.dtype}[${out.shape.join(", ")}] @ (${out.domain.join(", ")})`;
      const size =
        out.points > 1
          ? `${formatBytes(out.point_bytes)} at each of ${out.points.toLocaleString("en")} points, ${formatBytes(out.bytes)} in all`
          : formatBytes(out.bytes);
      const name = html("b", {}, out.name);
      return html(
        "p",
        {},
        name,
        ": ",
        html("code", {}, type),
        html("span", { class: "trl-soft" }, ` ${size}`),
      );
    });
  }

  #source({ source }: Inspected): HTMLElement {
    const lines = source.lines.map(({ number, text, marked }) =>
      html(
        "div",
        { class: marked ? "trl-marked" : undefined, "aria-current": marked ? "true" : undefined },
        html("span", { class: "trl-number" }, String(number)),
        text || " ",
      ),
    );
    return html(
      "figure",
      { class: "trl-source", "aria-label": `source, ${source.place}` },
      html("figcaption", {}, source.place),
      ...lines,
    );
  }

  #time(schedule: NonNullable<Inspected["schedule"]>): HTMLElement {
    const at = schedule.time.length ? ` at time (${schedule.time.join(", ")})` : "";
    return html(
      "p",
      {},
      html("span", { class: "trl-soft" }, "runs as "),
      this.#link(schedule.statement, [schedule.op_id]),
      at,
    );
  }

  #edges(title: string, edges: readonly Neighbour[]): HTMLElement {
    const item = ({ op_id, name, index, cond }: Neighbour) =>
      html(
        "li",
        {},
        this.#link(name, [op_id]),
        html("code", {}, index),
        cond ? html("span", { class: "trl-soft" }, ` if ${cond}`) : "",
      );
    const few = edges.slice(0, MANY).map(item);
    const rest = edges.slice(MANY).map(item);
    const list = html("ul", {}, ...few);
    const box = html("section", {}, html("h5", {}, `${title} (${edges.length})`), list);
    if (rest.length) {
      const more = html("summary", {}, `${rest.length} more`);
      box.append(html("details", {}, more, html("ul", {}, ...rest)));
    }
    return box;
  }

  #history(chapters: readonly Chapter[]): HTMLElement {
    const rows = chapters.map((chapter) => {
      const { stage, op_ids: ids, kernels, reason } = chapter;
      const shown = kernels.length ? kernels : ids;
      const few = shown.slice(0, 5).map((id) => `%${id}`);
      const text =
        few.join(" ") + (shown.length > few.length ? ` +${shown.length - few.length}` : "");
      const act = () => {
        this.jump(stage);
        if (ids.length) this.selection.choose(kernels.length ? kernels : ids);
      };
      const jump = button(stage, act, { class: "trl-link", title: `show ${stage}` });
      const steps = chapter.steps.map(({ text: step }) => html("li", {}, step));
      if (chapter.more) steps.push(html("li", {}, `and ${chapter.more} more`));
      const told = steps.length ? html("ul", {}, ...steps) : "";
      const why = reason ? html("p", { class: "trl-why" }, `refused: ${reason}`) : "";
      const dim = steps.length || reason ? undefined : "trl-quietly";
      return html(
        "tr",
        { class: dim },
        html("th", { scope: "row" }, jump),
        html("td", {}, html("code", {}, text || "removed"), told, why),
      );
    });
    const table = html("table", {}, html("tbody", {}, ...rows));
    return html("section", {}, html("h5", {}, "through the stages"), table);
  }

  #link(text: string, ids: readonly number[]): HTMLElement {
    const look = { class: "trl-link", title: "select" };
    return button(text, () => this.selection.choose(ids), look);
  }
}

function storeOf(store: Stored): HTMLElement {
  const life = `computed by ${store.born}, last read by ${store.last_readers.join(", ") || "none: needed until the end"}`;
  return html(
    "p",
    {},
    html("span", { class: "trl-soft" }, "stored as "),
    html("code", {}, store.name),
    ` in ${store.kind}, ${formatBytes(store.bytes)}; ${life}`,
    store.why ? html("span", { class: "trl-soft" }, ` (${store.why})`) : "",
  );
}
