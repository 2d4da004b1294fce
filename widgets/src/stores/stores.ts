// Storage pane: every buffer or store with its layout, shared slots and reasons; above them the totals with
// their sources.
import { isAdding } from "../shared/keyboard";
import { drawText } from "../draw/sheet";
import { colourKey, html, table, type Child } from "../shared/markup";
import type { Amount, StoredTensor, BufferRow, SharedBuffer, StoresView } from "../models";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import { formatBytes } from "../shared/plot";
import { term } from "../shared/terms";
import type { Selection } from "../shared/selection";
import css from "./stores.css";

// The parts of the total, each with its sign.
const PARTS: readonly [Amount["part"], string][] = [
  ["carried", ""],
  ["temporaries", "+"],
  ["constants", "+"],
  ["needed", "="],
  ["process", ""],
];
const HEAD = 40; // pixels of the heads, which stay visible
const PLACE = { xla: "XLA's buffer", interpreter: "store" } as const;

export class StoresPane extends Panel<StoresView | null> {
  #model: StoresView | null = null;
  #measured: readonly Amount[] = [];
  #rows: HTMLTableRowElement[] = [];
  #amounts = html("dl", { class: "trl-amounts" });
  #table = html("tbody");
  #place = html("th", { scope: "col" });
  #text = html("button", { class: "trl-quiet", "aria-pressed": "false" }, "as text");

  /** `turn` is called when the plan's text is shown instead, or no longer. */
  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    private readonly turn: () => void,
  ) {
    super(host, selection, send, "stores", "Memory", css);
    const heads = ["tensor", "layout", "bytes", this.#place, "shares its slots with"];
    const places = table(heads, this.#table, { "aria-label": "storage of tensors" });
    this.body.append(this.#amounts, places);
    this.#text.addEventListener("click", () => {
      this.#text.setAttribute("aria-pressed", String(!this.isText));
      this.body.hidden = this.isText;
      this.turn();
    });
    this.tools.append(this.#text);
    this.offerPictures();
    this.draw(null);
  }

  /** Whether the plan's text is shown. */
  get isText(): boolean {
    return this.#text.getAttribute("aria-pressed") === "true";
  }

  override draw(model: StoresView | null): void {
    this.#model = model;
    this.root.hidden = !model;
    if (!model) return;
    const count = model.places.length;
    const what = model.executor === "xla" ? "buffers" : "stores";
    this.note.textContent = `${count} ${what}, ${formatBytes(model.bytes)}; ${model.how}`;
    this.note.title = this.note.textContent;
    this.#place.textContent = PLACE[model.executor];
    const most = Math.max(...model.places.map((one) => one.bytes), 1);
    const tensors = model.places.flatMap((one) => one.tensors);
    const named = new Map(tensors.map((tensor) => [tensor.name, tensor]));
    this.#rows = model.places.map((one) => this.#row(one, one.bytes / most, named));
    this.#table.replaceChildren(...this.#rows);
    this.#sum();
    this.select();
  }

  /** Show the amounts measured in a run of the same program, and those reported by XLA. */
  measure(amounts: readonly Amount[]): void {
    const same = JSON.stringify(amounts) === JSON.stringify(this.#measured);
    this.#measured = amounts;
    if (!same) this.#sum();
  }

  override select(): void {
    this.#model?.places.forEach((one, k) => {
      const marked = one.tensors.some((tensor) => this.selection.holds(tensor));
      this.#rows[k]!.classList.toggle("trl-selected", marked);
      this.#rows[k]!.setAttribute("aria-selected", String(marked));
    });
    this.reveal(
      this.#rows.find((row) => row.classList.contains("trl-selected")),
      HEAD,
    );
  }

  override picture(): string | null {
    return this.#model && drawText(this.body.innerText);
  }

  /** The amounts by part with their sources; values of a run replace earlier ones. */
  #sum(): void {
    const known = new Map<string, Amount>();
    for (const one of [...(this.#model?.amounts ?? []), ...this.#measured]) {
      known.set(`${one.part} ${one.known} ${one.about}`, one);
    }
    const blocks = PARTS.flatMap(([part, sign]) => {
      const found = [...known.values()].filter((one) => one.part === part);
      if (!found.length) return [];
      const said = found.map((one) =>
        html(
          "dd",
          { "data-part": part, "data-known": one.known, title: one.about },
          html("b", {}, formatBytes(one.bytes)),
          " ",
          term("span", one.known),
        ),
      );
      const lead = sign ? [html("span", { class: "trl-sign", "aria-hidden": "true" }, sign)] : [];
      return [...lead, html("div", {}, term("dt", part), ...said)];
    });
    this.#amounts.replaceChildren(...blocks);
  }

  #row(
    one: BufferRow,
    share: number,
    named: ReadonlyMap<string, StoredTensor>,
  ): HTMLTableRowElement {
    const own = one.tensors[0]!;
    const row = html(
      "tr",
      { "data-place": one.name },
      html("th", { scope: "row" }, this.#tensor(own, true)),
      html("td", {}, one.layout, reason(one.why)),
      html("td", { class: "trl-bytes", style: `--share: ${share}` }, formatBytes(one.bytes)),
      html("td", {}, this.#model?.executor === "xla" ? one.name : own.kind.split(" ")[0]!),
      html("td", {}, ...one.shared.map((other) => this.#shared(other, named)), ...listRemarks(own)),
    );
    row.addEventListener("click", (event) => {
      const button = (event.target as Element).closest<HTMLElement>("button[data-tensor]");
      const meant = named.get(button?.dataset.tensor ?? "") ?? own;
      this.selection.pick(meant, isAdding(event));
    });
    return row;
  }

  #tensor(one: StoredTensor, keyed: boolean): HTMLElement {
    const last = one.last_read_by.join(", ") || "none: needed until the end";
    const title = `last read by ${last}`;
    const button = html("button", { class: "trl-quiet", "data-tensor": one.name, title });
    if (keyed) button.append(colourKey(one.colour));
    button.append(one.name);
    return button;
  }

  #shared(other: SharedBuffer, named: ReadonlyMap<string, StoredTensor>): HTMLElement {
    const tensor = named.get(other.name);
    const isOwn = other.how === "in place of";
    const who: Child = isOwn
      ? "its previous value"
      : tensor
        ? this.#tensor(tensor, false)
        : other.name;
    return html("div", {}, html("span", {}, `${other.how} `, who), reason(other.why));
  }
}

/** Periods of a tensor on the host, and reasons that kernels cannot reuse its memory in place. */
function listRemarks({ waits, not_given }: StoredTensor): HTMLElement[] {
  return [...listReasons("on the host", waits), ...listReasons("not reused in place", not_given)];
}

function listReasons(what: string, why: readonly string[]): HTMLElement[] {
  return why.length ? [html("div", {}, what, ...why.map(reason))] : [];
}

/** A reason, in one line; complete if its row is selected. */
function reason(text: string): HTMLElement {
  return html("span", { class: "trl-reason", title: text }, text);
}
