// Stream pane: runs stepped by completed kernels, with tracks, slots, and the contents of the window.
import { isAdding } from "../shared/keyboard";
import {
  endsOf,
  describeRun,
  lengthOf,
  runs,
  scaleOf,
  state,
  streams,
  textOf,
  waiting,
} from "../draw/streams";
import { button, html, row, svg, table } from "../shared/markup";
import type { StreamLaunch, StreamView } from "../models";
import type { Send } from "../shared/pane";
import { fill, Panel } from "../shared/panel";
import { formatDuration } from "../shared/plot";
import type { Selection } from "../shared/selection";
import { TimeWindow } from "../shared/time_window";
import css from "./streams.css";

/** The ids of the selection are positions of kernels in the stream. */
export class StreamPane extends Panel<StreamView> {
  #model: StreamView | null = null;
  #step = 0; // completed kernels of the last run
  #height = 0;
  readonly #window = new TimeWindow(
    () => this.#paint(),
    (...ends) => ends.map((us) => formatDuration(us * 1000)).join(" – "),
  );
  readonly #slider = html("input", {
    type: "range",
    min: 0,
    value: 0,
    "aria-label": "kernels completed",
    "data-first": true,
  });
  readonly #status = html("output", { class: "trl-status", role: "status" });
  readonly #plot = svg("svg", { class: "trl-runs", role: "img", tabindex: 0 });
  readonly #rows = html("tbody");
  readonly #table = table(["slot", "kernel", "state", "waits for"], this.#rows);

  /** `completed` receives the number of completed kernels. */
  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    private readonly completed: (kernels: number) => void,
  ) {
    super(host, selection, send, "streams", "Streams", css);
    this.tools.append(this.#window.button);
    this.offerPictures();
    this.offerSearch("find a kernel", {
      items: () => this.#launches.map((one) => [one.kernel, textOf(one)]),
      mark: () => this.#mark(),
      go: (kernel) => {
        const { ended } = this.#launches.find((one) => one.kernel === kernel)!;
        const [begin, end] = this.#window.range;
        const half = (end - begin) / 2;
        if (ended < begin || ended > end) this.#window.show(ended - half, ended + half);
        this.selection.choose([kernel]);
      },
    });
    const step = (text: string, label: string, by: number) =>
      button(text, () => this.#go(this.#step + by), { class: "trl-quiet", label });
    const fields = html(
      "div",
      { class: "trl-fields" },
      step("◀", "previous completion", -1),
      this.#slider,
      step("▶", "next completion", 1),
      this.#status,
    );
    this.body.append(fields, this.#plot, this.#table);
    this.#slider.addEventListener("input", () => this.#go(this.#slider.valueAsNumber));
    this.#window.control(
      this.#plot,
      () => scaleOf(this.#model!, this.width, this.#height, { range: this.#window.range }),
      (event, target) => {
        const kernel = target.getAttribute("data-kernel");
        const more = isAdding(event);
        if (kernel) this.selection.click([Number(kernel)], more);
        else this.selection.choose([]);
      },
    );
    this.onWidth(() => this.#paint());
  }

  override draw(model: StreamView): void {
    this.#model = model;
    this.note.textContent = model.name;
    this.#slider.max = String(this.#launches.length);
    this.#window.extend(lengthOf(model));
    this.#paint();
  }

  /** Show the moment after a number of completed kernels. */
  complete(step: number): void {
    this.#step = step;
    this.#slider.value = String(step);
    this.#paint();
  }

  override select(): void {
    this.#paint();
  }

  override picture(): string | null {
    return this.#model && streams(this.#model);
  }

  protected override leave(): void {
    if (!this.endSearch() && !this.#window.reset()) super.leave();
  }

  /** The launches of the last run, in the order of their ends. */
  get #launches(): readonly StreamLaunch[] {
    return this.#model?.runs.at(-1)?.launches ?? [];
  }

  #go(step: number): void {
    this.complete(Math.min(Math.max(step, 0), this.#launches.length));
    this.completed(this.#step);
  }

  #paint(): void {
    const model = this.#model;
    const run = model?.runs.at(-1);
    if (!model || !run || !this.width) return;
    const kernels = this.selection.ids;
    const at = this.#step ? run.launches[this.#step - 1]!.ended : 0;
    const { shapes, height } = runs(model, this.width, { kernels, at, range: this.#window.range });
    this.#height = height;
    fill(this.#plot, this.width, height, shapes);
    this.#plot.setAttribute("aria-label", model.runs.map(describeRun).join("; "));
    const ends = endsOf(run);
    const present = run.launches.filter((one) => state(one, at, ends));
    const counts = `${this.#step} of ${run.launches.length} completed`;
    this.#status.textContent = `${counts}, ${present.length} in the window`;
    this.#table.hidden = !present.length;
    const rows = present
      .sort((a, b) => a.slot - b.slot)
      .map((one) => {
        const waits = waiting(one, at, ends).join(", ");
        const cells = [`${one.kernel} ${one.name}`, state(one, at, ends), waits];
        return row({ "data-kernel": one.kernel }, String(one.slot), ...cells);
      });
    this.#rows.replaceChildren(...rows);
    this.#mark();
  }

  #mark(): void {
    this.markItems("kernel", this.selection.ids);
  }
}
