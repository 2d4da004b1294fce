// Recording pane: processes, operations by library, transitions, and tracks over any time window.
import {
  ALL,
  deviceName,
  duration,
  each,
  type Kept,
  kept,
  LANE_NAMES,
  legend,
  moments,
  mostOf,
  moves,
  nameOf,
  operationRows,
  percent,
  processName,
  processRows,
  runs,
  short,
  type Strip,
  type Strips,
  stripsOf,
  stripsTitle,
  texture,
} from "../draw/scope";
import { draw } from "../draw/draw";
import { keys } from "../shared/keyboard";
import { html, made, svg } from "../shared/markup";
import type { ScopeView, StretchView } from "../models";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import { counted } from "../shared/plot";
import css from "./scope.css";
import type { Selection } from "../shared/selection";

const LEAST = 2_000; // nanoseconds of the shortest time window
const MOST_ROWS = 200; // rows of the table
const AXIS = 20; // pixels below the tracks
const MOST_SAID = 6; // simultaneous operations of a device in a tooltip

/** Receives the name of the selected operation. */
export type Choose = (operation: string) => void;

export class ScopePane extends Panel<ScopeView> {
  #model: ScopeView | null = null;
  #stretch: StretchView | null = null;
  #strips: Strips = { strips: [], names: [], height: 0 };
  #kept: Kept = ALL;
  #chosen = "";
  #range: [number, number] = [0, 1];
  #asked: [number, number] | null = null; // the window that Python is drawing
  #waits = false;
  #width = 0;
  readonly #legend = svg("svg", {
    class: "trl-legend",
    role: "img",
    "aria-label": "colours and hatches",
  });
  readonly #phase = html("select", { "aria-label": "phase" });
  readonly #processes = svg("svg", { class: "trl-rows trl-processes" });
  readonly #operations = svg("svg", {
    class: "trl-rows",
    tabindex: 0,
    role: "listbox",
    "aria-label": "operations",
    "data-roves": true,
  });
  readonly #moves = html("tbody");
  readonly #times = html("tbody");
  readonly #ran = html("tbody");
  readonly #lanesTitle = html("h4");
  readonly #canvas = html("canvas", {
    class: "trl-lanes",
    tabindex: 0,
    role: "img",
  });
  readonly #tip = html("div", { class: "trl-tip", hidden: true });
  readonly #remark = html("div", { class: "trl-remark" });

  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    private readonly choose: Choose,
  ) {
    super(host, selection, send, "scope", "Where the time went", css);
    this.offerPictures();
    this.tools.prepend(this.#phase);
    const section = (title: string, ...parts: Element[]) =>
      html("section", {}, html("h4", {}, title), ...parts);
    this.body.append(
      this.#legend,
      section("Processes", this.#processes),
      section("Operations", this.#operations),
      html("section", {}, this.#lanesTitle, this.#canvas),
      folded("Transitions", ["operation", "from", "to", "times", "each time"], this.#moves),
      folded("Table", ["process", "phase", "operation", "library", "time", "share"], this.#times),
      folded("Devices", ["process", "device", "ran", "what", "times", "time", "share"], this.#ran),
      this.#remark,
      this.#tip,
    );
    this.#phase.addEventListener("change", () => {
      const value = this.#phase.value;
      this.#kept = {
        ...this.#kept,
        phase: value === "" ? null : Number(value),
      };
      this.#paint();
    });
    this.onResize(this.body, () => this.#resize());
    this.#listen();
  }

  override draw(model: ScopeView): void {
    this.#model = model;
    this.#kept = ALL;
    this.#range = [0, Math.max(model.end, 1)];
    const threads = `${model.lanes.length} thread${model.lanes.length === 1 ? "" : "s"}`;
    this.note.textContent = model.total
      ? `${duration(model.total)} of ${threads}`
      : "nothing was recorded";
    const names = model.phases.map(({ name }, k) =>
      html("option", { value: k }, name || "no phase"),
    );
    this.#phase.replaceChildren(html("option", { value: "" }, "all phases"), ...names);
    this.#phase.hidden = model.phases.length < 2;
    this.#processes.parentElement!.hidden = model.processes.length < 2;
    this.#remark.textContent = model.remark;
    this.#lanesTitle.textContent = stripsTitle(model);
    this.#keep(model.overview);
    this.#devices(model);
    this.#paint();
    this.#ask();
  }

  /** Show the tracks of the requested window. */
  show(stretch: StretchView): void {
    this.#keep(stretch);
    this.#asked = null;
    this.#lanes();
    if (this.#waits) this.#ask();
  }

  /** Mark an operation, by its name. */
  mark(operation: string): void {
    this.#chosen = operation;
    this.#marks();
  }

  override select(): void {
    const [model, { ids }] = [this.#model, this.selection];
    const one = this.#chosen && model?.operations.find(({ name }) => name === this.#chosen);
    // another selection elsewhere ends the selection here
    const own = one ? this.selection.heads(one.op_ids) : [];
    if (one && (own.length ? !own.some((id) => ids.has(id)) : ids.size > 0)) {
      this.#chosen = "";
      this.choose("");
    }
    this.#marks();
  }

  #marks(): void {
    const model = this.#model;
    if (!model) return;
    const any = model.operations.some((_, k) => this.#isMarked(k));
    for (const row of this.root.querySelectorAll<HTMLElement>("[data-operation]")) {
      const marked = this.#isMarked(Number(row.dataset.operation));
      row.classList.toggle("trl-selected", marked);
      row.classList.toggle("trl-faint", any && !marked);
      if (row.getAttribute("role") === "option") row.setAttribute("aria-selected", String(marked));
    }
    this.#lanes();
  }

  override theme(): void {
    this.#lanes();
  }

  override picture(): string | null {
    return this.#model && draw(this.#model, "");
  }

  protected override leave(): void {
    this.choose("");
    super.leave();
  }

  #isMarked(k: number): boolean {
    const { name, op_ids } = this.#model!.operations[k]!;
    if (this.#chosen) return name === this.#chosen;
    return op_ids.length > 0 && this.selection.ids.size > 0 && this.selection.marks(op_ids);
  }

  /** Handle a click on an operation: select it with its compiled operations, or end its selection. */
  #pick(k: number): void {
    const { name, op_ids } = this.#model!.operations[k]!;
    const again = this.#chosen === name;
    this.mark(again ? "" : name);
    this.choose(this.#chosen);
    this.selection.choose(again ? [] : this.selection.heads(op_ids));
  }

  #paint(): void {
    const model = this.#model;
    if (!model || !this.#width) return;
    const width = this.#width - 16;
    const keys = legend(model, 2, 14, width);
    sized(this.#legend, width, keys.height).replaceChildren(
      ...keys.rows.map((one) => made(one.shape)),
    );
    const rows = processRows(model, width);
    const processes = rows.rows.map(({ of, shape }) => {
      const row = made(shape);
      row.classList.toggle("trl-selected", this.#kept.process === of);
      row.addEventListener("click", () => {
        this.#kept = {
          ...this.#kept,
          process: this.#kept.process === of ? null : of,
        };
        this.#paint();
        this.#ask();
      });
      return row;
    });
    sized(this.#processes, width, rows.height).replaceChildren(...processes);
    const operations = operationRows(model, this.#kept, width);
    const drawn = operations.rows.map(({ of, shape }) => {
      const row = made(shape);
      row.setAttribute("data-operation", String(of));
      row.setAttribute("role", "option");
      row.setAttribute("aria-label", nameOf(model.operations[of]!));
      row.addEventListener("click", () => this.#pick(of));
      return row;
    });
    sized(this.#operations, width, operations.height).replaceChildren(...drawn);
    this.#tables(model);
    this.#marks();
  }

  /** The operations of devices, the longest first, as fractions of traced time. */
  #devices(model: ScopeView): void {
    const lines = model.devices.flatMap((device) => {
      const of = short(processName(model.processes[device.process]!), 160);
      const total = [...new Set(device.ran.map(({ sort }) => sort))].join(", ") || "nothing";
      const count = device.ran.reduce((sum, one) => sum + one.count, 0);
      const all = { sort: total, name: "in all", count, ns: device.busy };
      return [all, ...device.ran].map((one) => {
        const figures = [one.count.toLocaleString("en"), duration(one.ns)];
        const cells = [of, deviceName(device), one.sort, short(one.name, 400), ...figures];
        return html("tr", {}, ...[...cells, percent(one.ns, device.looked)].map(cell));
      });
    });
    this.#ran.replaceChildren(...lines);
    this.#ran.closest("details")!.hidden = !lines.length;
  }

  #tables(model: ScopeView): void {
    const named = (k: number) => {
      const button = html(
        "button",
        { class: "trl-quiet" },
        short(nameOf(model.operations[k]!), 300),
      );
      button.addEventListener("click", () => this.#pick(k));
      return html("td", {}, button);
    };
    const rows = moves(model).map((move) => {
      const row = html("tr", { "data-operation": move.operation }, named(move.operation));
      row.append(...[move.left, move.to, move.count.toLocaleString("en")].map(cell));
      row.append(cell(each(move, model)));
      return row;
    });
    this.#moves.replaceChildren(...rows.slice(0, MOST_ROWS));
    const times = kept(model, this.#kept);
    const total = times.reduce((sum, { ns }) => sum + ns, 0);
    const lines = times.slice(0, MOST_ROWS).map((one) => {
      const process = model.processes[one.process]!;
      const head = [short(processName(process), 160), model.phases[one.phase]!.name].map(cell);
      const row = html("tr", { "data-operation": one.operation }, ...head, named(one.operation));
      const what = { cpu: "", untraced: "", both: " + device", gpu: " for device" }[one.used] ?? "";
      row.append(...[one.library + what, duration(one.ns), percent(one.ns, total)].map(cell));
      return row;
    });
    const more = times.length - lines.length;
    if (more > 0) lines.push(html("tr", {}, cell(`and ${more.toLocaleString("en")} more`)));
    this.#times.replaceChildren(...lines);
  }

  #keep(stretch: StretchView): void {
    this.#stretch = stretch;
    this.#strips = stripsOf(this.#model!, stretch);
  }

  // --- tracks -------------------------------------------------------------------------------------

  get #plot(): { left: number; width: number } {
    const left = LANE_NAMES + 12;
    return { left, width: Math.max(this.#width - 16 - left, 10) };
  }

  /** Request the current window from Python; of several pending requests only the last one counts. */
  #ask(): void {
    if (!this.#model?.lanes.length || !this.#width) return;
    this.#waits = this.#asked !== null;
    if (this.#waits) return;
    const [begin, end] = this.#range;
    this.#asked = this.#range;
    const process =
      this.#kept.process === null ? null : this.#model.processes[this.#kept.process]!.number;
    const width = Math.min(Math.round(this.#plot.width), 4096);
    this.send({
      kind: "zoom",
      begin: Math.round(begin),
      end: Math.round(end),
      width,
      process,
    });
  }

  /** Draw the available data of the current window. */
  #lanes(): void {
    const [model, stretch] = [this.#model, this.#stretch];
    if (!model || !stretch || !this.#width) return;
    const ratio = devicePixelRatio || 1;
    const { strips, names, height: foot } = this.#strips;
    const [width, height] = [this.#width - 16, foot + AXIS];
    const canvas = this.#canvas;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const look = getComputedStyle(this.root);
    const colour = (name: string) => look.getPropertyValue(`--trl-${name}`).trim();
    const to = canvas.getContext("2d")!;
    to.scale(ratio, ratio);
    to.font = `11px ${look.fontFamily}`;
    const { left, width: wide } = this.#plot;
    const x = (ns: number) =>
      left + (wide * (ns - this.#range[0])) / (this.#range[1] - this.#range[0]);
    to.fillStyle = colour("ink");
    to.textAlign = "right";
    for (const { said, y } of names) to.fillText(short(said, LANE_NAMES), left - 8, y);
    to.save();
    to.beginPath();
    to.rect(left, 0, wide, foot);
    to.clip();
    for (const strip of strips) {
      to.fillStyle = colour("sunk");
      to.fillRect(left, strip.top, wide, strip.height);
      this.#strip(to, strip, x, colour);
    }
    to.restore();
    to.fillStyle = colour("soft");
    for (const [ns, said] of moments(...this.#range)) {
      to.fillRect(x(ns), foot - 2, 1, 4);
      to.textAlign = x(ns) > left + wide - 30 ? "right" : "center";
      to.fillText(said, x(ns), foot + 15);
    }
    const { lanes, devices } = stretch;
    const what = `${counted(lanes.length, "thread")}${devices.length ? ` and ${counted(devices.length, "device")}` : ""}`;
    const when = `from ${duration(this.#range[0])} to ${duration(this.#range[1])}`;
    canvas.setAttribute("aria-label", `${what} ${when}`);
  }

  #strip(
    to: CanvasRenderingContext2D,
    strip: Strip,
    x: (ns: number) => number,
    colour: (name: string) => string,
  ): void {
    const { begin, end, width } = this.#stretch!;
    const [from, wide] = [x(begin), x(end) - x(begin)];
    const any = this.#model!.operations.some((_, k) => this.#isMarked(k));
    runs(strip, from, wide, width).forEach((boxes, kind) => {
      const key = strip.keys[kind];
      if (!key || !boxes.length) return;
      const faint = strip.kind === "operation" ? !this.#isMarked(kind) : strip.operations?.length;
      to.globalAlpha = any && faint ? 0.25 : 1;
      to.fillStyle = key.colour;
      const path = new Path2D();
      // slightly wider, so that the background is not visible between columns
      for (const box of boxes) path.rect(box.left, box.top, box.width + 0.3, box.height);
      to.fill(path);
      if (!key.hatch) return;
      const area = { left: this.#plot.left, top: strip.top, width: this.#plot.width };
      to.save();
      to.clip(path);
      to.globalAlpha = 0.6;
      to.strokeStyle = colour("paper");
      to.stroke(new Path2D(texture(key.hatch, { ...area, height: strip.height })));
      to.restore();
    });
    to.globalAlpha = 1;
    if (!any || !strip.operations) return;
    // launches of the selected operations
    to.fillStyle = colour("selected");
    strip.operations.forEach((operation, k) => {
      if (operation < 0 || !this.#isMarked(operation)) return;
      const left = x(strip.spans.begin[k]!);
      const long = Math.max(x(strip.spans.end[k]!) - left, 1);
      to.fillRect(left, strip.top, long, strip.height);
    });
  }

  #at(event: MouseEvent): { ns: number; strip: Strip; column: number } | null {
    const stretch = this.#stretch;
    const { left, width } = this.#plot;
    const area = this.#canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - area.left - left, event.clientY - area.top];
    const strip = this.#strips.strips.find(
      ({ top, height }) => py >= top - 1 && py <= top + height,
    );
    if (!stretch || !strip || px < 0 || px >= width) return null;
    const ns = this.#range[0] + (px / width) * (this.#range[1] - this.#range[0]);
    const column = Math.floor(
      ((ns - stretch.begin) / (stretch.end - stretch.begin)) * stretch.width,
    );
    if (column < 0 || column >= stretch.width) return null;
    return { ns, strip, column };
  }

  /** The tooltip of a position: the entry at that nanosecond, or the largest in its column. */
  #said({ ns, strip, column }: { ns: number; strip: Strip; column: number }): string {
    const { names, width } = this.#stretch!;
    const { begin, end, name } = strip.spans;
    const there = spansAt(strip, ns).slice(0, MOST_SAID);
    if (there.length) {
      const said = there.filter((k) => name[k]);
      return said.map((k) => `${names[name[k]!]}\n${duration(end[k]! - begin[k]!)}`).join("\n");
    }
    return strip.keys[mostOf(strip.shares, width, column)]?.name ?? "";
  }

  /** The operation at a position; -1 for none. */
  #operationAt({ ns, strip, column }: { ns: number; strip: Strip; column: number }): number {
    if (strip.operations) return strip.operations[spansAt(strip, ns)[0] ?? -1] ?? -1;
    const beside = this.#strips.strips.find(
      ({ kind, of }) => kind === "operation" && of === strip.of,
    )!;
    return mostOf(beside.shares, this.#stretch!.width, column);
  }

  /** Show another window, within the recording. */
  #look(begin: number, end: number): void {
    const last = Math.max(this.#model?.end ?? 1, LEAST);
    const size = Math.min(Math.max(end - begin, LEAST), last);
    const from = Math.min(Math.max(begin, 0), last - size);
    this.#range = [from, from + size];
    this.#lanes();
    this.#ask();
  }

  /** Scale the window by a factor, around a moment. */
  #zoom(by: number, around?: number): void {
    const [begin, end] = this.#range;
    const at = around ?? (begin + end) / 2;
    this.#look(at - (at - begin) * by, at + (end - at) * by);
  }

  #move(by: number): void {
    const [begin, end] = this.#range;
    const step = (end - begin) * by;
    this.#look(begin + step, end + step);
  }

  #listen(): void {
    const canvas = this.#canvas;
    let pressed: { x: number; range: [number, number]; moved: boolean } | null = null;
    canvas.addEventListener("pointerdown", (event) => {
      pressed = { x: event.clientX, range: this.#range, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (pressed && event.buttons) {
        const px = event.clientX - pressed.x;
        pressed.moved ||= Math.abs(px) > 3;
        const [begin, end] = pressed.range;
        const by = (-px * (end - begin)) / this.#plot.width;
        if (pressed.moved) this.#look(begin + by, end + by);
      }
      const found = this.#at(event);
      const said = found ? this.#said(found) : "";
      this.#tip.hidden = !said;
      this.#tip.textContent = short(said, 600);
      const area = this.body.getBoundingClientRect();
      this.#tip.style.left = `${Math.min(event.clientX - area.left + 12, this.#width - 200)}px`;
      this.#tip.style.top = `${event.clientY - area.top + this.body.scrollTop + 14}px`;
    });
    canvas.addEventListener("pointerup", (event) => {
      const was = pressed;
      pressed = null;
      const found = was && !was.moved ? this.#at(event) : null;
      if (!found) return;
      const kind = this.#operationAt(found);
      if (kind >= 0) this.#pick(kind);
    });
    canvas.addEventListener("pointerleave", () => (this.#tip.hidden = true));
    canvas.addEventListener("dblclick", () => this.#look(0, Infinity));
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (document.activeElement !== canvas && !event.ctrlKey) return; // the page scrolls
        event.preventDefault();
        this.#zoom(event.deltaY > 0 ? 1.25 : 0.8, this.#at(event)?.ns);
      },
      { passive: false },
    );
    keys(canvas, () => ({
      "+": () => this.#zoom(0.5),
      "=": () => this.#zoom(0.5),
      "-": () => this.#zoom(2),
      "0": () => this.#look(0, Infinity),
      ArrowLeft: () => this.#move(-0.25),
      ArrowRight: () => this.#move(0.25),
      Home: () => this.#look(0, this.#range[1] - this.#range[0]),
      End: () => this.#move(Infinity),
    }));
    keys(this.#operations, () => ({
      ArrowDown: () => this.#step(1),
      ArrowUp: () => this.#step(-1),
    }));
  }

  #step(by: number): void {
    const rows = [...this.#operations.querySelectorAll<SVGElement>("[data-operation]")];
    const at = rows.findIndex((row) => row.classList.contains("trl-selected"));
    const next = rows[at < 0 ? 0 : at + by];
    if (next) this.#pick(Number(next.dataset.operation));
  }

  #resize(): void {
    const width = Math.floor(this.body.clientWidth);
    if (width === this.#width || !width) return;
    this.#width = width;
    this.#paint();
    this.#ask();
  }
}

/** The spans of a strip at a moment; a device may have several. */
function spansAt({ spans: { begin, end } }: Strip, ns: number): number[] {
  return [...begin.keys()].filter((k) => begin[k]! <= ns && ns < end[k]!);
}

function cell(said: string): HTMLElement {
  return html("td", {}, said);
}

function sized(element: SVGSVGElement, width: number, height: number): SVGSVGElement {
  element.setAttribute("width", String(width));
  element.setAttribute("height", String(height));
  return element;
}

function folded(title: string, heads: readonly string[], body: HTMLElement): HTMLElement {
  const head = html("tr", {}, ...heads.map((said) => html("th", { scope: "col" }, said)));
  const table = html("table", {}, html("thead", {}, head), body);
  return html("details", {}, html("summary", {}, title), table);
}
