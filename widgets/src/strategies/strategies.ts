// Strategies pane: fields for environments and steps, bars, and the chosen strategy in words.
import { bars, describeSpeed, describeBatch, strategies } from "../draw/strategies";
import { isAdding, listKeys } from "../shared/keyboard";
import { html, row, svg, table } from "../shared/markup";
import type { StrategiesView } from "../models";
import type { Send } from "../shared/pane";
import { fill, Panel } from "../shared/panel";
import type { SearchField } from "../shared/search_field";
import type { Selection } from "../shared/selection";
import css from "./strategies.css";

/** The state of Python's work: `problem` is the error of the last request. */
export interface Doing {
  readonly busy: string;
  readonly problem: string;
}

/** The ids of the selection are positions of strategies. */
export class StrategiesPane extends Panel<StrategiesView> {
  #model: StrategiesView | null = null;
  #envs = field("environments, N");
  #steps = field("steps per batch, K");
  #measure = html("button", { type: "submit" }, "measure");
  #form = html(
    "form",
    { class: "trl-fields" },
    html("label", {}, "N", this.#envs),
    html("label", {}, "K", this.#steps),
    this.#measure,
  );
  #status = html("output", { class: "trl-status", role: "status" });
  #bars = svg("svg", {
    class: "trl-bars",
    role: "listbox",
    "aria-label": "strategies",
    "aria-multiselectable": "true",
    tabindex: 0,
    "data-roves": true,
  });
  #summary = html("p", { class: "trl-summary" });
  #rows = html("tbody");
  #search: SearchField;

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "strategies", "Strategies", css);
    this.offerPictures();
    this.#search = this.offerSearch("find a strategy", {
      items: () =>
        (this.#model?.rows ?? []).map((one, k) => [k, `${one.name} ${describeSpeed(one)}`]),
      mark: () => this.select(),
      go: (k) => this.selection.choose([k]),
    });
    this.#envs.toggleAttribute("data-first", true);
    const details = html(
      "details",
      {},
      html("summary", {}, "as a table"),
      table(["strategy", "provenance", "steps/s", "per batch"], this.#rows),
    );
    this.body.append(this.#form, this.#status, this.#bars, this.#summary, details);
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      const sizes = { envs: this.#envs.valueAsNumber, steps: this.#steps.valueAsNumber };
      send({ kind: "collect", ...sizes });
    });
    for (const list of [this.#bars, this.#rows]) {
      list.addEventListener("click", (event) => {
        const one = (event.target as Element).closest("[data-strategy]");
        const k = Number(one?.getAttribute("data-strategy"));
        if (one) this.selection.click([k], isAdding(event as MouseEvent));
      });
    }
    listKeys(
      this.#bars,
      () => [...this.selection.ids].at(-1) ?? -1,
      (k) => this.selection.choose([k]),
    );
    this.onWidth(() => this.#paint());
  }

  override draw(model: StrategiesView): void {
    this.#model = model;
    this.note.textContent = model.name;
    this.#setFields(model);
    this.#summary.textContent = model.summary;
    const rows = model.rows.map((one, k) => {
      const current = one.is_chosen ? { "aria-current": "true" } : {};
      const cells = [one.provenance, describeSpeed(one), describeBatch(one)];
      return row({ ...current, "data-strategy": k }, one.name, ...cells);
    });
    this.#rows.replaceChildren(...rows);
    this.#paint();
    this.#search.refresh();
  }

  override select(): void {
    this.markItems("strategy", this.selection.ids);
  }

  /** Show the running measurement, or the error of the last one. */
  status({ busy, problem }: Doing): void {
    this.#status.textContent = busy || problem;
    this.#status.classList.toggle("trl-failed", !busy && problem !== "");
    this.#form.toggleAttribute("aria-busy", busy !== "");
    this.#measure.disabled = busy !== "";
    if (problem && this.#model) this.#setFields(this.#model);
  }

  protected override onKernelEnd(): void {
    this.status({ busy: "", problem: "" });
  }

  override picture(): string | null {
    return this.#model && strategies(this.#model);
  }

  /** Set the fields to the numbers of the bars. */
  #setFields({ envs, steps }: StrategiesView): void {
    for (const [input, value] of [
      [this.#envs, envs],
      [this.#steps, steps],
    ] as const) {
      input.defaultValue = String(value); // arrow keys leave a field in which nothing has been typed
      input.valueAsNumber = value;
    }
  }

  #paint(): void {
    const model = this.#model;
    if (!model || !this.width) return;
    const { shapes, height } = bars(model, this.width);
    fill(this.#bars, this.width, height, shapes);
    [...this.#bars.children].forEach((one, k) => {
      one.setAttribute("data-strategy", String(k));
      one.setAttribute("role", "option");
      one.setAttribute("aria-label", `${model.rows[k]!.name}: ${describeSpeed(model.rows[k]!)}`);
    });
    this.select();
  }
}

function field(label: string): HTMLInputElement {
  return html("input", { type: "number", min: 1, step: 1, required: true, "aria-label": label });
}
