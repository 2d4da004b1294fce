// Launches pane: the launches of a turn by kernel, with selection and time.
import { type By, each, LaunchAxis, launches, launchesIn, ROW } from "../draw/launches";
import { about, place } from "../shared/instants";
import { html, createElement } from "../shared/markup";
import type { Send } from "../shared/pane";
import { formatCount, formatSeconds } from "../shared/plot";
import type { Selection } from "../shared/selection";
import { type Description, TimeAxisPane } from "../shared/time_axis_pane";
import css from "./launches.css";
import type { LaunchRow, LaunchView } from "../models";

const NEAR = 4; // maximal distance in pixels between the pointer and a bar
const MOST_ROW = 24; // pixels
const [ABOVE, BELOW] = [12, 34]; // pixels of the plot's margins

export class LaunchPane extends TimeAxisPane<LaunchView> {
  #model: LaunchView | null = null;
  #axis: LaunchAxis | null = null;
  #bars: SVGElement[] = [];
  readonly #by = html(
    "select",
    { "aria-label": "axis", title: "elapsed time, or the instants of the other panes" },
    html("option", { value: "time" }, "by time"),
    html("option", { value: "order" }, "by instant"),
  );

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "launch", "Launches", css, 360);
    this.#by.addEventListener("change", () => this.repaint());
    this.tools.prepend(this.#by);
  }

  override draw(model: LaunchView): void {
    this.#model = model;
    const count = formatCount(model.turn.count, "launch", "launches");
    const total = formatSeconds(model.begin.at(-1) ?? 0);
    const said = [`${count} in ${total}, ${model.how}`, about(model.turn)];
    this.note.textContent = said.filter(Boolean).join("; ");
    this.note.title = `${this.note.textContent}: ${HOW[model.how]}`;
    this.plot.setAttribute("aria-label", `launches over time: ${said[0]}`);
    this.repaint();
  }

  override select(): void {
    const any = this.selection.ids.size > 0;
    this.#model?.rows.forEach((row, k) => {
      const marked = this.selection.marks(row.op_ids);
      this.#bars[k]?.classList.toggle("trl-selected", marked);
      this.#bars[k]?.classList.toggle("trl-faint", any && !marked);
    });
  }

  override picture(): string | null {
    return this.#model && launches(this.#model);
  }

  protected override get count(): number {
    return this.#model?.turn.count ?? 0;
  }

  protected override get tall(): number {
    const rows = this.#model?.rows.length ?? 0;
    const fitting = (this.height - ABOVE - BELOW) / rows;
    return ABOVE + rows * Math.min(Math.max(fitting, ROW), MOST_ROW) + BELOW;
  }

  protected override px(instant: number): number {
    return this.#axis ? this.scale.px(this.#axis.of(instant)) : super.px(instant); // hidden until now
  }

  protected override at(px: number): number {
    return this.#axis ? this.#axis.instant(this.scale.at(px)) : super.at(px);
  }

  protected override paint(width: number): SVGElement[] {
    this.body.style.maxHeight = `${this.height}px`;
    const by = this.#by.value as By;
    const drawn = launchesIn(this.#model!, this.box(width, ABOVE, BELOW), by, this.visible);
    this.scale = drawn.scale;
    this.#axis = drawn.axis;
    this.#bars = drawn.bars.map(createElement);
    return [...drawn.axes.map(createElement), ...this.#bars];
  }

  protected override describe(px: number, py: number): Description | null {
    const row = this.#model?.rows[Math.floor(this.scale.up(py))];
    if (!row) return null;
    const { left, width } = this.scale.box;
    const of = `${row.name}: ${formatCount(row.launches, "launch", "launches")}, ${each(row)}`;
    if (px < left) return { text: of, ids: row.op_ids };
    const found = px > left + width ? -1 : this.#nearest(row, px);
    if (found < 0) return null;
    const column = row.columns[found]!;
    const axis = this.#axis!;
    const [first, end] = [axis.first(column), axis.first(column + 1)];
    const count = row.counts[found]!;
    const instant = Math.min(Math.max(Math.floor(this.at(px)), first), end - 1);
    const at = this.instants?.nearOf(row.op_id, instant) ?? instant;
    const lines =
      count === 1 && end === first + 1
        ? [this.instants?.text(first) ?? row.name, took(row, this.#model!.how)]
        : [`${row.name}: ${formatCount(count, "launch", "launches")}, ${each(row)}`];
    const where = end > first + 1 ? `instants ${first} to ${end - 1}` : `instant ${first}`;
    const region = row.region.join(" / ");
    lines.push([region, where].filter(Boolean).join(", "));
    return { text: lines.join("\n"), ids: row.op_ids, instant: at };
  }

  /** The index of the row's nearest column; -1 if none is near. */
  #nearest(row: LaunchRow, px: number): number {
    const k = place(row.columns, place(this.#model!.first, Math.floor(this.at(px))));
    let [best, found] = [NEAR, -1];
    for (let n = Math.max(k - 1, 0); n <= k + 1 && n < row.columns.length; n++) {
      const [begin, end] = this.#axis!.bar(row, n)
        .slice(0, 2)
        .map((x) => this.scale.px(x));
      const far = Math.max(begin! - px, px - end!, 0);
      if (far < best) [best, found] = [far, n];
    }
    return found;
  }
}

function took({ seconds }: LaunchRow, how: LaunchView["how"]): string {
  return seconds === null ? "not measured" : `${formatSeconds(seconds)}, ${how}`;
}

const HOW = {
  estimated:
    "estimated by the compiler's cost model; only the ratios of the durations are meaningful",
  measured: "mean durations of each kernel's launches",
  "measured by call":
    "the mean duration of each call to XLA, divided among its kernels in proportion to their estimates",
} as const;
