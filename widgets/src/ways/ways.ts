// Strategies pane: fields for environments and steps, bars, and the chosen strategy in words.
import { draw } from "../draw/draw";
import { bars, told, took } from "../draw/ways";
import { html, made, row, svg, table } from "../shared/markup";
import type { WaysView } from "../models";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import type { Selection } from "../shared/selection";
import css from "./ways.css";

/** The state of Python's work: `problem` is the error of the last request. */
export interface Doing {
  readonly busy: string;
  readonly problem: string;
}

export class WaysPane extends Panel<WaysView> {
  #model: WaysView | null = null;
  #envs = field("environments, N");
  #steps = field("steps a batch, K");
  #form = html(
    "form",
    { class: "trl-fields" },
    html("label", {}, "N", this.#envs),
    html("label", {}, "K", this.#steps),
    html("button", { type: "submit" }, "measure"),
  );
  #status = html("output", { class: "trl-status", role: "status" });
  #bars = svg("svg", { class: "trl-bars", role: "img" });
  #told = html("p", { class: "trl-told" });
  #rows = html("tbody");

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "ways", "Ways of collecting", css);
    this.offerPictures();
    this.#envs.toggleAttribute("data-first", true);
    this.body.append(
      this.#form,
      this.#status,
      this.#bars,
      this.#told,
      html(
        "details",
        {},
        html("summary", {}, "as a table"),
        table(["way", "provenance", "steps/s", "of a batch"], this.#rows),
      ),
    );
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      const sizes = { envs: this.#envs.valueAsNumber, steps: this.#steps.valueAsNumber };
      send({ kind: "collect", ...sizes });
    });
    this.onResize(this.body, () => this.#paint());
  }

  override draw(model: WaysView): void {
    this.#model = model;
    this.note.textContent = model.name;
    this.#fill(model);
    this.#told.textContent = model.told;
    this.#rows.replaceChildren(
      ...model.rows.map((one) => {
        const current = one.is_chosen ? { "aria-current": "true" } : {};
        return row(current, one.name, one.provenance, told(one), took(one));
      }),
    );
    this.#paint();
  }

  /** Show the running measurement, or the error of the last one. */
  status({ busy, problem }: Doing): void {
    this.#status.textContent = busy || problem;
    this.#status.classList.toggle("trl-failed", !busy && problem !== "");
    this.#form.toggleAttribute("aria-busy", busy !== "");
    this.#form.querySelector("button")!.disabled = busy !== "";
    if (problem && this.#model) this.#fill(this.#model);
  }

  protected override ended(): void {
    this.status({ busy: "", problem: "" });
  }

  override picture(): string | null {
    return this.#model && draw(this.#model, "");
  }

  /** Set the fields to the numbers of the bars. */
  #fill({ envs, steps }: WaysView): void {
    for (const [input, value] of [
      [this.#envs, envs],
      [this.#steps, steps],
    ] as const) {
      input.defaultValue = String(value); // arrow keys leave a field in which nothing has been typed
      input.valueAsNumber = value;
    }
  }

  #paint(): void {
    const width = Math.floor(this.body.clientWidth);
    if (!this.#model || width <= 0) return;
    const { shapes, height } = bars(this.#model, width);
    this.#bars.setAttribute("width", String(width));
    this.#bars.setAttribute("height", String(height));
    const said = this.#model.rows.map((row) => `${row.name}: ${told(row)}`).join("; ");
    this.#bars.setAttribute("aria-label", said);
    this.#bars.replaceChildren(...shapes.map(made));
  }
}

function field(label: string): HTMLInputElement {
  return html("input", { type: "number", min: 1, step: 1, required: true, "aria-label": label });
}
