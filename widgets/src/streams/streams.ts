// Stream pane: runs stepped by completed kernels, with tracks, slots, and the contents of the window.
import { draw } from "../draw/draw";
import { endsOf, headed, runs, state, waiting } from "../draw/streams";
import { html, made, row, svg, table } from "../shared/markup";
import type { StreamView } from "../models";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import type { Selection } from "../shared/selection";
import css from "./streams.css";

/** State that the page may write: the selected kernels, and the number of completed ones. */
export interface Place {
  readonly selected: readonly number[];
  readonly step: number;
}

export class StreamPane extends Panel<StreamView> {
  #model: StreamView | null = null;
  #place: Place = { selected: [], step: 0 };
  #step = html("input", { type: "range", min: 0, value: 0, "aria-label": "kernels completed" });
  #status = html("output", { class: "trl-status", role: "status" });
  #lanes = svg("svg", { class: "trl-streams", role: "img" });
  #rows = html("tbody");
  #table = table(["slot", "kernel", "state", "waits for"], this.#rows);

  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    readonly moved: (place: Place) => void,
  ) {
    super(host, selection, send, "streams", "Streams", css);
    this.offerPictures();
    this.#step.toggleAttribute("data-first", true);
    const button = (label: string, by: number) => {
      const found = html("button", { class: "trl-quiet", "aria-label": label }, by < 0 ? "◀" : "▶");
      found.addEventListener("click", () => this.#go({ step: this.#place.step + by }));
      return found;
    };
    this.body.append(
      html(
        "div",
        { class: "trl-fields" },
        button("one completion back", -1),
        this.#step,
        button("one completion on", 1),
        this.#status,
      ),
      this.#lanes,
      this.#table,
    );
    this.#step.addEventListener("input", () => this.#go({ step: this.#step.valueAsNumber }));
    this.#lanes.addEventListener("click", (event) => {
      const found = (event.target as Element).closest("[data-kernel]");
      this.#go({ selected: found ? [Number(found.getAttribute("data-kernel"))] : [] });
    });
    this.onResize(this.body, () => this.#paint());
  }

  override draw(model: StreamView): void {
    this.#model = model;
    this.note.textContent = model.name;
    this.#step.max = String(model.runs.at(-1)?.launches.length ?? 0);
    this.#paint();
  }

  /** Show a state set by Python or by the user. */
  place(place: Place): void {
    this.#place = place;
    this.#step.value = String(place.step);
    this.#paint();
  }

  override picture(): string | null {
    return this.#model && draw(this.#model, "");
  }

  #go(to: Partial<Place>): void {
    const most = Number(this.#step.max);
    const next = { ...this.#place, ...to };
    const step = Math.min(Math.max(next.step, 0), most);
    this.place({ ...next, step });
    this.moved(this.#place);
  }

  #paint(): void {
    const width = Math.floor(this.body.clientWidth);
    const run = this.#model?.runs.at(-1);
    if (!this.#model || !run || width <= 0) return;
    const { selected, step } = this.#place;
    const at = step ? run.launches[step - 1]!.ended : 0;
    const { shapes, height } = runs(this.#model, width, { kernels: selected, at });
    this.#lanes.setAttribute("width", String(width));
    this.#lanes.setAttribute("height", String(height));
    this.#lanes.setAttribute("aria-label", this.#model.runs.map(headed).join("; "));
    this.#lanes.replaceChildren(...shapes.map(made));
    const ends = endsOf(run);
    const there = run.launches.filter((one) => state(one, at, ends));
    this.#status.textContent = `${step} of ${run.launches.length} completed, ${there.length} in the window`;
    this.#table.hidden = !there.length;
    this.#rows.replaceChildren(
      ...there
        .sort((a, b) => a.slot - b.slot)
        .map((one) => {
          const current = selected.includes(one.kernel) ? { "aria-current": "true" } : {};
          const waits = waiting(one, at, ends).join(", ");
          const cells = [`${one.kernel} ${one.name}`, state(one, at, ends), waits];
          return row(current, String(one.slot), ...cells);
        }),
    );
  }
}
