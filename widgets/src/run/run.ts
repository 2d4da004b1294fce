// Run pane: controls, figures, learning curves, and live bytes compared with the prediction.
import { align } from "./alignment";
import type { Numbers } from "../shared/buffers";
import { curvesOf, run } from "../draw/charts";
import { exportPicture } from "../draw/sheet";
import { LineChart } from "../shared/line_chart";
import { button, html } from "../shared/markup";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import { formatBytes, formatCount, formatPercent } from "../shared/plot";
import type { SearchField } from "../shared/search_field";
import { term } from "../shared/terms";
import css from "./run.css";
import type { Selection } from "../shared/selection";
import type { LiveBytes, RunView } from "../models";

type Command = "start" | "pause" | "resume" | "step" | "stop";

const SPEEDS: readonly [string, number | null][] = [
  ["full speed", null],
  ["10 turns/s", 10],
  ["3 turns/s", 3],
  ["1 turn/s", 1],
];
const ENDED = new Set(["stopped", "finished", "failed"]);
const ARRAYS = "arrays on the device";

export class RunPane extends Panel<RunView | null> {
  #state = html("output", { class: "trl-state", role: "status" });
  #bar = html("progress", { max: 1, value: 0, "aria-label": "turns done" });
  #figures = html("dl", { class: "trl-figures-of-run" });
  #buttons = new Map<Command, HTMLButtonElement>();
  #speed = html("select", { "aria-label": "speed" });
  #condition = html("input", {
    type: "text",
    placeholder: "pause when i = 3",
    "aria-label": "pause when",
    title: "pause on a condition, such as i = 3, or return > 400",
  });
  #charts: LineChart[];
  #asked: { command: Command; number: number } | null = null;
  #number = 0;
  #model: RunView | null = null;
  #frame = 0;
  #problem = "";
  readonly #search: SearchField;

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "run", "Run", css);
    this.tools.prepend(
      this.#button("start", "▶ run"),
      this.#button("pause", "❚❚ pause"),
      this.#button("step", "▸| step"),
      this.#button("stop", "■ stop"),
      this.#speed,
      this.#condition,
    );
    this.#condition.addEventListener("change", () => {
      const value = this.#condition.value.trim() || null;
      send({ kind: "run", command: "pause_when", value, number: ++this.#number });
    });
    SPEEDS.forEach(([name], k) => this.#speed.append(html("option", { value: k }, name)));
    this.#speed.addEventListener("change", () => {
      const value = SPEEDS[Number(this.#speed.value)]![1];
      send({ kind: "run", command: "speed", value, number: ++this.#number });
    });
    const charts = html("div", { class: "trl-charts" });
    this.body.append(
      html("div", { class: "trl-progress" }, this.#state, this.#bar),
      charts,
      this.#figures,
    );
    this.#charts = [
      new LineChart(charts, "outputs by turn", "turn", (value) => value.toPrecision(3), null),
      new LineChart(charts, "live bytes by executed point", "point", formatBytes, 0),
      new LineChart(charts, "memory over time, s", "s", formatBytes, 0),
      new LineChart(charts, "utilization over time, s", "s", formatPercent, 1),
    ];
    this.onResize(charts, () => this.#charts.forEach((chart) => chart.fit()));
    this.onDispose(() => {
      cancelAnimationFrame(this.#frame);
    });
    const shown = () => [...this.#figures.children];
    this.#search = this.offerSearch("find a figure", {
      items: () => shown().map((one, k) => [k, one.textContent ?? ""]),
      mark: () =>
        shown().forEach((one, k) => one.classList.toggle("trl-found", !!this.#search.hits?.has(k))),
      go: (k) => shown()[k]!.scrollIntoView({ block: "nearest" }),
    });
    this.offerPictures();
    this.draw(null);
  }

  override draw(model: RunView | null): void {
    this.#model = model;
    this.#control();
    // the page draws at its own rate, however many frames arrive
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#paint());
  }

  /** Python has processed the commands up to a number; later ones are shown as pending. */
  acknowledge(number: number): void {
    this.#number = Math.max(this.#number, number);
    if (this.#asked && this.#asked.number <= number) this.#asked = null;
    this.#control();
  }

  /** Show the condition on which runs pause. */
  condition(text: string): void {
    if (document.activeElement !== this.#condition) this.#condition.value = text;
  }

  /** Show the error of a command; "" for none. */
  problem(text: string): void {
    this.#problem = text;
    this.#annotate();
  }

  /** The kernel has ended, and the run with it. */
  protected override onKernelEnd(): void {
    this.#asked = null;
    for (const button of this.#buttons.values()) button.disabled = true;
    this.#state.textContent = this.#state.dataset.state = "kernel ended";
  }

  override picture(): string | null {
    return this.#model && exportPicture(run(this.#model, ""));
  }

  protected override leave(): void {
    if (!this.endSearch() && !this.#charts.filter((chart) => chart.reset()).length) super.leave();
  }

  #button(command: Command, text: string): HTMLButtonElement {
    const act = () => {
      const paused = this.#model?.frame.state === "paused";
      const meant = command === "start" && paused ? "resume" : command;
      this.#asked = { command: meant, number: ++this.#number };
      this.#control();
      this.send({ kind: "run", command: meant, number: this.#number });
    };
    const found = button(text, act, { "data-command": command });
    this.#buttons.set(command, found);
    return found;
  }

  #control(): void {
    const state = this.#model?.frame.state ?? "";
    const ended = !state || ENDED.has(state);
    const paused = state === "paused";
    const enabled: Record<Command, boolean> = {
      start: ended || paused,
      pause: !ended && !paused,
      resume: paused,
      step: ended || paused,
      stop: !ended,
    };
    for (const [command, button] of this.#buttons) button.disabled = !enabled[command];
    this.#buttons.get("start")!.textContent = paused ? "▶ resume" : "▶ run";
    const reason = this.#model?.frame.reason;
    const now = reason && paused ? `paused: ${reason}` : state;
    const shown = this.#asked ? `pending: ${this.#asked.command}` : now || "not started";
    const waits = this.#asked ? null : (this.#model?.frame.compiling ?? null);
    const part = this.#model?.frame.compiling_part;
    const compiling = `compiling ${part ? `${part} ` : ""}with XLA, ${waits?.toFixed(0)} s so far`;
    const isPending = state.startsWith("pending") ? `${state}, ` : "";
    this.#state.textContent = waits === null ? shown : isPending + compiling;
    this.#state.dataset.state = shown;
  }

  #annotate(): void {
    this.note.textContent = this.note.title = this.#problem || this.#model?.frame.error || "";
    this.#search.refresh();
  }

  #paint(): void {
    this.#frame = 0;
    const model = this.#model;
    this.body.classList.toggle("trl-idle", !model);
    if (!model) return;
    const began = performance.now();
    const { frame } = model;
    this.#bar.max = frame.turns ?? 1;
    const goes = !ENDED.has(frame.state);
    if (frame.turns === null && goes) this.#bar.removeAttribute("value");
    else if (frame.turns === null) this.#bar.value = 1;
    else this.#bar.value = frame.turn;
    this.#figures.replaceChildren(...figures(model));
    const [curves, held, memory, load] = this.#charts as [
      LineChart,
      LineChart,
      LineChart,
      LineChart,
    ];
    const lines = curvesOf(model);
    const { at: turns, values } = align(lines);
    curves.shown = lines.length > 0;
    curves.draw(
      turns,
      lines.map((line, k) => ({ ...line, values: values[k]! })),
    );
    held.shown = !!model.held;
    memory.shown = !model.held;
    if (model.held) drawLiveBytes(held, model.held);
    const { at, resident, on_device } = model.load;
    const device = frame.process.on_device === null ? [] : [{ name: ARRAYS, values: on_device }];
    const planned = Array.from(at, () => model.predicted_peak);
    memory.draw(at, [
      { name: "planned peak of the program", values: planned },
      { name: "process", values: resident },
      ...device,
    ]);
    load.draw(model.load.at, [
      { name: "kernels", values: model.load.busy },
      { name: "host cores", values: model.load.host },
    ]);
    this.#annotate();
    const cost = performance.now() - began;
    this.root.dataset.frames = String(Number(this.root.dataset.frames ?? 0) + 1);
    this.root.dataset.cost = cost.toFixed(2);
  }
}

/** Draw live bytes over the prediction, in equal parts of executed points. */
function drawLiveBytes(chart: LineChart, { first, last, bytes, predicted }: LiveBytes): void {
  if (!bytes.length && chart.filled) return; // a last frame may have no points
  const part = (last - first) / Math.max(bytes.length, 1);
  const edges = bytes.length === 1; // a single part is drawn from end to end
  const at = edges ? [first, last] : Array.from(bytes, (_, k) => first + (k + 0.5) * part);
  const drawn = (values: Numbers) => (edges ? [values[0]!, values[0]!] : values);
  chart.draw(at, [
    { name: "predicted", values: drawn(predicted), fill: true },
    { name: "measured", values: drawn(bytes) },
  ]);
}

function figures({ frame, predicted_peak }: RunView): HTMLElement[] {
  const { process, held } = frame;
  const percent = (x: number | null) => (x === null ? "–" : formatPercent(x));
  const rate = (x: number | null) =>
    x === null ? "–" : x >= 100 ? x.toFixed(0) : x.toPrecision(3);
  const turns = frame.turns === null ? `${frame.turn}` : `${frame.turn} / ${frame.turns}`;
  const hasTurns = frame.turns !== null || frame.turn > 0;
  const shown: [string, string][] = [
    ...(hasTurns ? [["turn", turns] as [string, string]] : []),
    ["elapsed", `${frame.elapsed.toFixed(1)} s`],
    ["turns/s", rate(frame.compiling === null ? frame.turns_per_second : null)],
    ["steps/s", rate(frame.compiling === null ? frame.steps_per_second : null)],
    ["in kernels", percent(frame.busy)],
    ["host", `${process.cpu.toFixed(2)} of ${formatCount(process.cores, "core")}`],
    ["planned peak", formatBytes(predicted_peak)],
  ];
  const live = held && `${formatBytes(held.live)}, at most ${formatBytes(held.peak)} measured`;
  if (live) shown.push(["live", live]);
  if (frame.buffers !== null) shown.push(["XLA's buffers", formatBytes(frame.buffers)]);
  if (process.on_device !== null) shown.push([ARRAYS, formatBytes(process.on_device)]);
  if (process.resident !== null) shown.push(["process", formatBytes(process.resident)]);
  for (const device of frame.devices) {
    const watts = device.watts === null ? "" : `, ${device.watts.toFixed(0)} W`;
    const memory = `${formatBytes(device.memory)} of ${formatBytes(device.total)}`;
    shown.push([device.name, `${percent(device.busy)}, ${memory}${watts}`]);
  }
  for (const [name, { values, is_late }] of Object.entries(frame.curves)) {
    const value = values.at(-1);
    if (value !== undefined) shown.push([name, value.toPrecision(4)]);
    else if (is_late) shown.push([name, "at the end"]);
  }
  shown.push(...Object.entries(frame.outputs));
  return shown.map(([name, text]) => html("div", {}, term("dt", name), html("dd", {}, text)));
}
