// Recording pane: processes, operations by library, transitions, and tracks over any time window.
import {
  ALL,
  AXIS,
  deviceName,
  type Filter,
  keysOf,
  mostOf,
  nameOf,
  operationRows,
  percent,
  perEntry,
  processName,
  processRows,
  scope,
  timeBelow,
  timesOf,
  totalOf,
  type Track,
  type Tracks,
  tracksIn,
  tracksOf,
  TRACKS_LEFT,
  tracksTitle,
  transitionsOf,
} from "../draw/scope";
import { legend, short } from "../draw/sheet";
import type { ScopeView, StretchView } from "../models";
import { listKeys } from "../shared/keyboard";
import { html, createElement, row, svg, table } from "../shared/markup";
import type { Send } from "../shared/pane";
import { fill, Panel } from "../shared/panel";
import { formatCount, formatDuration, Scale } from "../shared/plot";
import type { SearchField } from "../shared/search_field";
import type { Selection } from "../shared/selection";
import { TimeWindow } from "../shared/time_window";
import { Tip } from "../shared/tip";
import css from "./scope.css";

const LEAST = 2_000; // nanoseconds of the shortest time window
const MOST_ROWS = 200; // rows of the table
const MOST_COLUMNS = 4096; // of a time window
const MOST_LISTED = 6; // simultaneous operations of a device in a tooltip
const PADDING = 16; // pixels of the body, left and right
const USES: Record<string, string> = {
  cpu: "",
  untraced: "",
  both: " + device",
  gpu: " for device",
};

/** Receives the name of the selected operation. */
export type Choose = (operation: string) => void;

/** A moment on a track, and its column among the columns from Python. */
interface Position {
  readonly ns: number;
  readonly track: Track;
  readonly column: number;
}

export class ScopePane extends Panel<ScopeView> {
  #model: ScopeView | null = null;
  #stretch: StretchView | null = null;
  #tracks: Tracks = { tracks: [], names: [], height: 0 };
  #filter: Filter = ALL;
  #chosen = "";
  #listed: readonly number[] = []; // the operations with a bar, from top to bottom
  #requested = false; // whether Python is drawing a window
  #outdated = false; // whether the window has changed since
  #scale = new Scale({ left: 0, top: 0, width: 1, height: 1 }, [0, 1], [0, 1]);
  #drawn = this.#scale; // of the drawn tracks
  readonly #window = new TimeWindow(
    () => {
      this.#moveTracks();
      this.#request();
    },
    (...ends) => ends.map(formatDuration).join(" – "),
    LEAST,
  );
  readonly #search: SearchField;
  readonly #tip: Tip;
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
  readonly #transitions = html("tbody");
  readonly #times = html("tbody");
  readonly #devices = html("tbody");
  readonly #title = html("h4");
  readonly #plot = svg("svg", { class: "trl-lanes", tabindex: 0, role: "img" });
  readonly #remark = html("div", { class: "trl-remark" });

  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    private readonly choose: Choose,
  ) {
    super(host, selection, send, "scope", "Recorded time", css);
    this.offerPictures();
    this.tools.prepend(this.#window.button, this.#phase);
    this.#search = this.offerSearch("find an operation", {
      items: () => this.#listed.map((k) => [k, nameOf(this.#model!.operations[k]!)]),
      mark: () => this.#marks(),
      go: (k) => this.#pick(k, true),
    });
    const section = (title: string | Element, ...parts: Element[]) =>
      html("section", {}, typeof title === "string" ? html("h4", {}, title) : title, ...parts);
    const folded = (title: string, heads: readonly string[], body: HTMLElement) =>
      html("details", {}, html("summary", {}, title), table(heads, body));
    this.body.append(
      this.#legend,
      section("Processes", this.#processes),
      section("Operations", this.#operations),
      section(this.#title, this.#plot),
      folded("Transitions", ["operation", "from", "to", "times", "each time"], this.#transitions),
      folded("Table", ["process", "phase", "operation", "library", "time", "share"], this.#times),
      folded(
        "Devices",
        ["process", "device", "ran", "what", "times", "time", "share"],
        this.#devices,
      ),
      this.#remark,
    );
    this.#tip = new Tip(this.body);
    this.#phase.addEventListener("change", () => {
      const { value } = this.#phase;
      this.#filter = { ...this.#filter, phase: value === "" ? null : Number(value) };
      this.#paint();
    });
    this.onWidth(() => {
      this.#paint();
      this.#request();
    });
    this.#listen();
  }

  override draw(model: ScopeView): void {
    this.#model = model;
    this.#filter = ALL;
    this.#window.extend(model.end);
    this.note.textContent = totalOf(model);
    const names = model.phases.map(({ name }, k) =>
      html("option", { value: k }, name || "no phase"),
    );
    this.#phase.replaceChildren(html("option", { value: "" }, "all phases"), ...names);
    this.#phase.hidden = model.phases.length < 2;
    this.#processes.parentElement!.hidden = model.processes.length < 2;
    this.#remark.textContent = model.remark;
    this.#title.textContent = tracksTitle(model);
    this.#keep(model.overview);
    this.#listDevices(model);
    this.#paint();
    this.#request();
  }

  /** Show the tracks of the requested window. */
  show(stretch: StretchView): void {
    this.#keep(stretch);
    this.#requested = false;
    this.#drawTracks();
    if (this.#outdated) this.#request();
  }

  /** Mark an operation, by its name. */
  mark(operation: string): void {
    this.#chosen = operation;
    this.#drawTracks();
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
    this.#drawTracks();
  }

  override picture(): string | null {
    return this.#model && scope(this.#model);
  }

  protected override leave(): void {
    if (this.endSearch() || this.#window.reset()) return;
    this.choose("");
    super.leave();
  }

  #isMarked(k: number): boolean {
    const { name, op_ids } = this.#model!.operations[k]!;
    if (this.#chosen) return name === this.#chosen;
    return op_ids.length > 0 && this.selection.ids.size > 0 && this.selection.marks(op_ids);
  }

  #marks(): void {
    const all = [...(this.#model?.operations.keys() ?? [])];
    const marked = new Set(all.filter((k) => this.#isMarked(k)));
    this.#plot.classList.toggle("trl-any", marked.size > 0);
    this.markItems("operation", marked);
  }

  /** Select an operation with its compiled operations; or end its selection, unless it is to `stay`. */
  #pick(k: number, stay = false): void {
    const { name, op_ids } = this.#model!.operations[k]!;
    const again = this.#chosen === name && !stay;
    this.mark(again ? "" : name);
    this.choose(this.#chosen);
    this.selection.choose(again ? [] : this.selection.heads(op_ids));
  }

  #paint(): void {
    const model = this.#model;
    if (!model || !this.width) return;
    const width = this.width - PADDING;
    const { shapes, height } = legend(keysOf(model), 2, 4, width);
    fill(this.#legend, width, height, shapes);
    const processes = processRows(model, width);
    fill(this.#processes, width, processes.height, processes.shapes);
    [...this.#processes.children].forEach((one, k) => {
      one.setAttribute("data-process", String(k));
      one.classList.toggle("trl-selected", this.#filter.process === k);
    });
    const operations = operationRows(model, this.#filter, width);
    this.#listed = operations.of;
    fill(this.#operations, width, operations.height, operations.shapes);
    [...this.#operations.children].forEach((one, k) => {
      const operation = this.#listed[k]!;
      one.setAttribute("data-operation", String(operation));
      one.setAttribute("role", "option");
      one.setAttribute("aria-label", nameOf(model.operations[operation]!));
    });
    this.#listTimes(model);
    this.#search.refresh();
    this.#drawTracks();
  }

  /** The operations of devices, the longest first, as fractions of traced time. */
  #listDevices(model: ScopeView): void {
    const lines = model.devices.flatMap((device) => {
      const process = short(processName(model.processes[device.process]!), 160);
      const sorts = [...new Set(device.ran.map(({ sort }) => sort))].join(", ") || "nothing";
      const count = device.ran.reduce((sum, one) => sum + one.count, 0);
      const all = { sort: sorts, name: "in all", count, ns: device.busy };
      return [all, ...device.ran].map((one) => {
        const figures = [one.count.toLocaleString("en"), formatDuration(one.ns)];
        const cells = [deviceName(device), one.sort, short(one.name, 400), ...figures];
        return row({}, process, ...cells, percent(one.ns, device.looked));
      });
    });
    this.#devices.replaceChildren(...lines);
    this.#devices.closest("details")!.hidden = !lines.length;
  }

  #listTimes(model: ScopeView): void {
    const named = (k: number) => {
      const label = short(nameOf(model.operations[k]!), 300);
      const button = html("button", { class: "trl-quiet" }, label);
      button.addEventListener("click", () => this.#pick(k));
      return button;
    };
    const transitions = transitionsOf(model).slice(0, MOST_ROWS);
    this.#transitions.replaceChildren(
      ...transitions.map((one) => {
        const { operation, left, to, count } = one;
        const cells = [left, to, count.toLocaleString("en"), perEntry(one, model)];
        return row({ "data-operation": operation }, named(operation), ...cells);
      }),
    );
    const times = timesOf(model, this.#filter);
    const total = times.reduce((sum, { ns }) => sum + ns, 0);
    const rows = times.slice(0, MOST_ROWS).map((one) => {
      const { operation, library, used, ns } = one;
      const process = short(processName(model.processes[one.process]!), 160);
      const cells = [library + (USES[used] ?? ""), formatDuration(ns), percent(ns, total)];
      const phase = model.phases[one.phase]!.name;
      return row({ "data-operation": operation }, process, phase, named(operation), ...cells);
    });
    const more = times.length - rows.length;
    if (more > 0) rows.push(row({}, `and ${more.toLocaleString("en")} more`));
    this.#times.replaceChildren(...rows);
  }

  // --- tracks -------------------------------------------------------------------------------------

  #keep(stretch: StretchView): void {
    this.#stretch = stretch;
    this.#tracks = tracksOf(this.#model!, stretch);
  }

  get #tracksWidth(): number {
    return Math.max(this.width - PADDING - TRACKS_LEFT, 10);
  }

  /** Request the current window from Python; of several pending requests only the last one counts. */
  #request(): void {
    if (!this.#model?.lanes.length || !this.width) return;
    this.#outdated = this.#requested;
    if (this.#requested) return;
    this.#requested = true;
    const [begin, end] = this.#window.range.map(Math.round);
    const { process } = this.#filter;
    this.send({
      kind: "zoom",
      begin,
      end,
      width: Math.min(this.#tracksWidth, MOST_COLUMNS),
      process: process === null ? null : this.#model.processes[process]!.number,
    });
  }

  /** Draw the available data of the current window. */
  #drawTracks(): void {
    const [model, stretch] = [this.#model, this.#stretch];
    if (!model || !stretch || !this.width) return;
    const { height } = this.#tracks;
    const box = { left: TRACKS_LEFT, top: 0, width: this.#tracksWidth, height };
    this.#drawn = this.#scale = new Scale(box, this.#window.range, [0, 1]);
    const shapes = tracksIn(this.#tracks, stretch, this.#scale, (k) => this.#isMarked(k));
    fill(this.#plot, this.width - PADDING, height + AXIS, shapes);
    this.#tellWindow(stretch);
    this.#marks();
  }

  /** Stretch the drawing to the current window, until Python has sent its data. */
  #moveTracks(): void {
    const [svg, axis] = [this.#plot.querySelector("svg"), this.#plot.lastElementChild];
    if (!svg || !this.#stretch) return;
    const { box } = this.#scale;
    const [from, to] = this.#window.range.map((ns) => this.#drawn.px(ns) - box.left);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("viewBox", `${from} 0 ${to! - from!} ${box.height}`);
    this.#scale = new Scale(box, this.#window.range, [0, 1]);
    axis!.replaceWith(createElement(timeBelow(this.#scale)));
    this.#tellWindow(this.#stretch);
  }

  #tellWindow({ lanes, devices }: StretchView): void {
    const parts = [formatCount(lanes.length, "thread")];
    if (devices.length) parts.push(formatCount(devices.length, "device"));
    const [from, to] = this.#window.range.map(formatDuration);
    this.#plot.setAttribute("aria-label", `${parts.join(" and ")} from ${from} to ${to}`);
  }

  #at(event: MouseEvent): Position | null {
    const stretch = this.#stretch;
    const { left: x, top: y } = this.#plot.getBoundingClientRect();
    const [px, py] = [event.clientX - x, event.clientY - y];
    const track = this.#tracks.tracks.find(
      ({ top, height }) => py >= top - 1 && py <= top + height,
    );
    const { left, width } = this.#scale.box;
    if (!stretch || !track || px < left || px >= left + width) return null;
    const ns = this.#scale.at(px);
    const { begin, end, width: columns } = stretch;
    const column = Math.floor(((ns - begin) / (end - begin)) * columns);
    return column < 0 || column >= columns ? null : { ns, track, column };
  }

  /** The tooltip of a position: the entry at that nanosecond, or the largest in its column. */
  #textAt({ ns, track, column }: Position): string {
    const { names, width } = this.#stretch!;
    const { begin, end, name } = track.spans;
    const there = spansAt(track, ns).slice(0, MOST_LISTED);
    const named = there.filter((k) => name[k]);
    const text = there.length
      ? named.map((k) => `${names[name[k]!]}\n${formatDuration(end[k]! - begin[k]!)}`).join("\n")
      : (track.keys[mostOf(track.shares, width, column)]?.name ?? "");
    return short(text, 600);
  }

  /** The operation at a position; -1 for none. */
  #operationAt({ ns, track, column }: Position): number {
    if (track.operations) return track.operations[spansAt(track, ns)[0] ?? -1] ?? -1;
    const operations = this.#tracks.tracks.find(
      ({ kind, of }) => kind === "operation" && of === track.of,
    )!;
    return mostOf(operations.shares, this.#stretch!.width, column);
  }

  #listen(): void {
    this.#window.control(
      this.#plot,
      () => this.#scale,
      (event) => {
        const found = this.#at(event);
        const operation = found ? this.#operationAt(found) : -1;
        if (operation >= 0) this.#pick(operation);
      },
    );
    this.#plot.addEventListener("pointermove", (event) => {
      const found = this.#at(event);
      this.#tip.show(found ? this.#textAt(found) : "", event);
    });
    this.#plot.addEventListener("pointerleave", () => this.#tip.hide());
    this.#operations.addEventListener("click", ({ target }) => {
      const one = (target as Element).closest<SVGElement>("[data-operation]");
      if (one) this.#pick(Number(one.dataset.operation));
    });
    this.#processes.addEventListener("click", ({ target }) => {
      const one = (target as Element).closest<SVGElement>("[data-process]");
      if (!one) return;
      const process = Number(one.dataset.process);
      this.#filter = {
        ...this.#filter,
        process: this.#filter.process === process ? null : process,
      };
      this.#paint();
      this.#request();
    });
    listKeys(
      this.#operations,
      () => this.#listed.findIndex((k) => this.#isMarked(k)),
      (k) => this.#pick(this.#listed[k]!, true),
    );
  }
}

/** The spans of a track at a moment; a device may have several. */
function spansAt({ spans: { begin, end } }: Track, ns: number): number[] {
  return [...begin.keys()].filter((k) => begin[k]! <= ns && ns < end[k]!);
}
