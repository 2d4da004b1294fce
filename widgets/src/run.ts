// The run: its controls, its figures, its learning curves, and what it holds against what was predicted.
import uPlot from "uplot";
import sheet from "uplot/dist/uPlot.min.css";
import { aligned } from "./aligned";
import type { Numbers } from "./buffers";
import { html } from "./markup";
import type { TurnBytes } from "./memory";
import type { Send } from "./pane";
import { Panel } from "./panel";
import { arranged } from "./picture";
import { bytes, colour } from "./plot";
import css from "./run.css";
import type { Selection } from "./selection";

interface Device {
  name: string;
  busy: number;
  memory: number;
  total: number;
  watts: number | null;
}

/** A frame of a run, with the histories that Python keeps of it. */
export interface RunModel {
  state: string;
  turn: number;
  turns: number | null;
  elapsed: number;
  turns_per_second: number;
  steps_per_second: number | null;
  busy: number | null;
  cpu: number;
  cores: number;
  resident: number | null;
  live: number;
  peak: number;
  source: string;
  predicted_peak: number;
  devices: Device[];
  error: string | null;
  /** Outputs by turn; of those that are `late` nothing is known before the end. */
  curves: { name: string; at: Numbers; values: Numbers; late: boolean }[];
  /** Live bytes since the frame before, in equal parts of executed points, and what was predicted. */
  held: { first: number; last: number; bytes: Numbers; predicted: Numbers };
  /** What was held in the latest turn; see `TurnBytes`. */
  over: Omit<TurnBytes, "source">;
  /** Over elapsed seconds: the busy fraction of the device, and that of the host's cores. */
  load: { at: Numbers; busy: Numbers; host: Numbers };
}

type Command = "start" | "pause" | "resume" | "step" | "stop";

const SPEEDS: readonly [string, number | null][] = [
  ["full speed", null],
  ["10 turns/s", 10],
  ["3 turns/s", 3],
  ["1 turn/s", 1],
];
const ENDED = new Set(["stopped", "finished", "failed"]);
const POWERS = Array.from({ length: 50 }, (_, k) => 2 ** k); // steps between ticks of bytes
const DASHES = [[], [6, 3], [2, 3], [10, 4, 2, 4]];

export class RunPane extends Panel<RunModel | null> {
  #state = html("output", { class: "trl-state", role: "status" });
  #bar = html("progress", { max: 1, value: 0, "aria-label": "turns done" });
  #figures = html("dl", { class: "trl-figures-of-run" });
  #buttons = new Map<Command, HTMLButtonElement>();
  #speed = html("select", { "aria-label": "speed" });
  #charts: Chart[];
  #asked: { command: Command; number: number } | null = null;
  #number = 0;
  #model: RunModel | null = null;
  #frame = 0;
  #problem = "";

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "run", "Run", sheet + css);
    this.tools.prepend(
      this.#button("start", "▶ run"),
      this.#button("pause", "❚❚ pause"),
      this.#button("step", "▸| step"),
      this.#button("stop", "■ stop"),
      this.#speed,
    );
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
      new Chart(charts, "outputs by turn", "turn", (value) => value.toPrecision(3), null),
      new Chart(charts, "live bytes by executed point", "point", bytes, 0),
      new Chart(charts, "busy, by second", "s", (value) => `${(value * 100).toFixed(0)} %`, 1),
    ];
    const watch = new ResizeObserver(() => this.#charts.forEach((chart) => chart.fit()));
    watch.observe(charts);
    this.onDispose(() => {
      watch.disconnect();
      cancelAnimationFrame(this.#frame);
      this.#charts.forEach((chart) => chart.dispose());
    });
    this.offerPictures();
    this.draw(null);
  }

  override draw(model: RunModel | null): void {
    this.#model = model;
    this.#control();
    // however many frames come, the page draws one at a time
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#paint());
  }

  /** Python has taken up the commands up to a number; while it is busy they are pending. */
  acknowledge(number: number): void {
    this.#number = Math.max(this.#number, number);
    if (this.#asked && this.#asked.number <= number) this.#asked = null;
    this.#control();
  }

  /** Say why a command could not be obeyed; nothing where it was. */
  problem(text: string): void {
    this.#problem = text;
    this.#annotate();
  }

  override theme(): void {
    this.#charts.forEach((chart) => chart.redraw());
  }

  override picture(): SVGSVGElement | null {
    const made = this.#charts.filter((chart) => chart.filled);
    const shown = made.map((chart) => ({ title: chart.told, picture: chart.picture() }));
    return made.length ? arranged(this.root, [shown]) : null;
  }

  #button(command: Command, text: string): HTMLButtonElement {
    const button = html("button", { "data-command": command }, text);
    button.addEventListener("click", () => {
      const paused = this.#model?.state === "paused";
      const meant = command === "start" && paused ? "resume" : command;
      this.#asked = { command: meant, number: ++this.#number };
      this.#control();
      this.send({ kind: "run", command: meant, number: this.#number });
    });
    this.#buttons.set(command, button);
    return button;
  }

  #control(): void {
    const state = this.#model?.state ?? "";
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
    const shown = this.#asked ? `pending: ${this.#asked.command}` : state || "not started";
    this.#state.textContent = shown;
    this.#state.dataset.state = shown;
  }

  #annotate(): void {
    const model = this.#model;
    const scaled = !!model && model.source !== "measured";
    const about = scaled ? "bytes: predicted, at measured speed" : "";
    this.note.textContent = this.note.title = this.#problem || model?.error || about;
  }

  #paint(): void {
    this.#frame = 0;
    const model = this.#model;
    this.body.classList.toggle("trl-idle", !model);
    if (!model) return;
    const began = performance.now();
    this.#bar.max = model.turns ?? 1;
    if (model.turns === null) this.#bar.removeAttribute("value");
    else this.#bar.value = model.turn;
    this.#figures.replaceChildren(...figures(model));
    const [curves, held, load] = this.#charts as [Chart, Chart, Chart];
    const known = aligned(model.curves);
    const lines = model.curves.map(({ name }, k) => ({ name, values: known.values[k]! }));
    curves.draw(known.at, lines);
    const { first, last, bytes: live, predicted } = model.held;
    if (live.length || !held.filled) {
      const part = (last - first) / Math.max(live.length, 1); // a last frame may bring no points
      const edges = live.length === 1; // one part alone is drawn from end to end
      const at = edges ? [first, last] : Array.from(live, (_, k) => first + (k + 0.5) * part);
      const drawn = (values: Numbers) => (edges ? [values[0]!, values[0]!] : values);
      held.draw(at, [
        { name: "predicted", values: drawn(predicted), fill: true },
        { name: model.source === "measured" ? "measured" : "scaled", values: drawn(live) },
      ]);
    }
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

function figures(model: RunModel): HTMLElement[] {
  const percent = (x: number | null) => (x === null ? "–" : `${(x * 100).toFixed(0)} %`);
  const rate = (x: number | null) =>
    x === null ? "–" : x >= 100 ? x.toFixed(0) : x.toPrecision(3);
  const turns = model.turns === null ? `${model.turn}` : `${model.turn} / ${model.turns}`;
  const shown: [string, string][] = [
    ["turn", turns],
    ["elapsed", `${model.elapsed.toFixed(1)} s`],
    ["turns/s", rate(model.turns_per_second)],
    ["steps/s", rate(model.steps_per_second)],
    ["in kernels", percent(model.busy)],
    ["host", `${model.cpu.toFixed(2)} of ${model.cores} cores`],
    ["live", `${bytes(model.live)} of ${bytes(model.predicted_peak)} predicted`],
  ];
  if (model.resident !== null) shown.push(["process", bytes(model.resident)]);
  for (const device of model.devices) {
    const watts = device.watts === null ? "" : `, ${device.watts.toFixed(0)} W`;
    const memory = `${bytes(device.memory)} of ${bytes(device.total)}`;
    shown.push([device.name, `${percent(device.busy)}, ${memory}${watts}`]);
  }
  for (const { name, values, late } of model.curves) {
    const value = values.at(-1);
    if (value !== undefined) shown.push([name, value.toPrecision(4)]);
    else if (late) shown.push([name, "at the end"]);
  }
  return shown.map(([term, text]) => html("div", {}, html("dt", {}, term), html("dd", {}, text)));
}

interface Line {
  readonly name: string;
  readonly values: ArrayLike<number | undefined>; // undefined: the line goes on across
  readonly fill?: boolean;
}

/** A small chart whose lines may change. */
class Chart {
  readonly #box: HTMLElement;
  #plot: uPlot | null = null;
  #names = "";
  readonly #height = 138;

  constructor(
    host: HTMLElement,
    readonly title: string,
    private readonly across: string,
    private readonly format: (value: number) => string,
    /** Amounts are drawn from zero, and so high at least; null for what may be anything. */
    private readonly least: number | null,
  ) {
    const heading = html("figcaption", {}, title);
    this.#box = html("figure", { class: "trl-chart", "aria-label": title }, heading);
    host.append(this.#box);
  }

  get filled(): boolean {
    return !!this.#plot && (this.#plot.data[0]?.length ?? 0) > 0;
  }

  draw(at: ArrayLike<number>, lines: readonly Line[]): void {
    const names = lines.map((line) => line.name).join("\n");
    if (!this.#plot || names !== this.#names) this.#make(lines);
    this.#names = names;
    const numbers = (values: Line["values"]) =>
      Array.from(values, (x) => (x === undefined || Number.isFinite(x) ? x : null));
    const rows = [Array.from(at), ...lines.map((line) => numbers(line.values))];
    this.#plot!.setData(rows as uPlot.AlignedData);
  }

  fit(): void {
    const width = this.#box.clientWidth;
    if (this.#plot && width) this.#plot.setSize({ width, height: this.#height });
  }

  redraw(): void {
    this.#plot?.redraw(false, true);
  }

  dispose(): void {
    this.#plot?.destroy();
  }

  /** What is drawn, with what its lines are, as the page's legend has them. */
  get told(): string {
    const series = this.#plot?.series.slice(1) ?? [];
    return `${this.title}: ${series.map(({ label }) => label as string).join(", ")}`;
  }

  /** The canvas as a picture. */
  picture(): SVGSVGElement {
    const canvas = this.#plot!.root.querySelector("canvas")!;
    const { width, height } = canvas.getBoundingClientRect();
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const image = document.createElementNS("http://www.w3.org/2000/svg", "image");
    for (const [name, value] of Object.entries({ width, height })) {
      made.setAttribute(name, String(value));
      image.setAttribute(name, String(value));
    }
    made.setAttribute("viewBox", `0 0 ${width} ${height}`);
    image.setAttribute("href", canvas.toDataURL());
    made.append(image);
    return made;
  }

  #make(lines: readonly Line[]): void {
    this.#plot?.destroy();
    const { least } = this;
    const ink = (name: string, other: string) => () =>
      getComputedStyle(this.#box).getPropertyValue(name).trim() || other;
    const axis = {
      stroke: ink("--jp-ui-font-color2", "#666"),
      grid: { stroke: ink("--jp-border-color2", "#ccc"), width: 1 },
      ticks: { show: false },
      font: "10px sans-serif",
    };
    const series = lines.map((line, k) => ({
      label: line.name,
      stroke: colour(k),
      width: line.fill ? 1 : 1.7,
      dash: DASHES[k % DASHES.length]!,
      fill: line.fill ? `${colour(k)}30` : undefined,
      ...(least === null ? {} : { points: { show: false } }), // one output alone is a point
      value: (_: uPlot, value: number | null) => (value === null ? "–" : this.format(value)),
    }));
    const amounts = (_: uPlot, __: number, most: number | null): [number, number] => [
      0,
      Math.max((most ?? 0) * 1.05, least ?? 0) || 1,
    ];
    const options: uPlot.Options = {
      width: this.#box.clientWidth || 280,
      height: this.#height,
      scales: { x: { time: false }, ...(least === null ? {} : { y: { range: amounts } }) },
      axes: [
        { ...axis, size: 22, space: 60 },
        {
          ...axis,
          size: 56,
          space: 26,
          ...(this.format === bytes ? { incrs: POWERS } : {}),
          values: (_: uPlot, at: number[]) => at.map((value) => this.format(value)),
        },
      ],
      series: [{ label: this.across }, ...series],
      cursor: { drag: { x: true, y: false } },
      legend: { live: true },
    };
    this.#plot = new uPlot(options, [[], ...lines.map(() => [])] as uPlot.AlignedData, this.#box);
  }
}
