// Assignment pane: a slider for each parameter, a cell for each assignment, and the terms of one of them.
import { drawText } from "../draw/sheet";
import { perSecond } from "../draw/strategies";
import css from "./mapping.css";
import { button, html, row, table } from "../shared/markup";
import type { MappingCell, MappingView } from "../models";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import type { SearchField } from "../shared/search_field";
import type { Selection } from "../shared/selection";

const MOST_LINES = 120; // of a picture
const NONE = new Set<number>();
const ms = (seconds: number) => `${Number((seconds * 1e3).toPrecision(4))} ms`;

interface Slider {
  readonly input: HTMLInputElement;
  readonly value: HTMLOutputElement;
}

/** The ids of the selection are positions of cells; without one, the fastest assignment is shown. */
export class MappingPane extends Panel<MappingView> {
  #model: MappingView | null = null;
  #settings: Slider[] = [];
  #buttons: HTMLButtonElement[] = []; // one per cell
  #sliders = html("div", { class: "trl-sliders" });
  #status = html("output", { class: "trl-summary", role: "status" });
  #corner = html("th", {}, "learner \\ replay");
  #grid = html("div", { class: "trl-grid" });
  #terms = html("div", { class: "trl-terms" });
  #search: SearchField;

  /** `move` receives the positions of the sliders. */
  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    private readonly move: (at: number[]) => void,
  ) {
    super(host, selection, send, "mapping", "Assignment of primitives to devices", css);
    this.offerPictures();
    this.#search = this.offerSearch("find an assignment", {
      items: () => (this.#model?.cells ?? []).map((one, k) => [k, placeOf(one)]),
      mark: () => this.markItems("cell", NONE),
      go: (k) => this.selection.choose([k]),
    });
    this.body.append(this.#sliders, this.#status, this.#grid, this.#terms);
  }

  override draw(model: MappingView): void {
    this.#model = model;
    this.note.textContent = model.formula;
    this.#status.textContent = model.summary;
    if (this.#settings.length !== model.settings.length) this.#makeSliders(model);
    model.settings.forEach(({ at, values }, k) => {
      const { input, value } = this.#settings[k]!;
      input.valueAsNumber = at;
      input.setAttribute("aria-valuetext", values[at]!);
      value.textContent = values[at]!;
    });
    this.#drawGrid(model);
    this.#search.refresh();
    this.select();
  }

  override select(): void {
    const model = this.#model;
    if (!model) return;
    const [selected] = this.selection.ids;
    const shown = model.cells[selected ?? -1] ?? model.cells.find((one) => one.is_chosen)!;
    model.cells.forEach((one, k) =>
      this.#buttons[k]!.setAttribute("aria-pressed", String(one === shown)),
    );
    this.#terms.replaceChildren(termsOf(shown, model));
  }

  override picture(): string | null {
    return this.#model && drawText(this.#model.text, MOST_LINES);
  }

  #makeSliders(model: MappingView): void {
    this.#settings = model.settings.map(({ name, values }, k) => {
      const last = values.length - 1;
      const input = html("input", { type: "range", min: 0, max: last, "aria-label": name });
      input.addEventListener("input", () => {
        const at = this.#model!.settings.map((one) => one.at);
        at[k] = input.valueAsNumber;
        this.move(at);
      });
      return { input, value: html("output") };
    });
    this.#sliders.replaceChildren(
      ...this.#settings.flatMap(({ input, value }, k) => [
        html("label", {}, model.settings[k]!.name, input),
        value,
      ]),
    );
  }

  /** A row for each device of the learner, a column for each of the replay manager. */
  #drawGrid({ cells, devices }: MappingView): void {
    const focused = this.#buttons.findIndex((one) => one.matches(":focus"));
    const greatest = cells.find((one) => one.is_chosen)!.speed ?? 1;
    this.#buttons = cells.map((one, k) => this.#button(one, k, greatest));
    const rows = devices.map((learner) =>
      row({}, learner, ...this.#buttons.filter((_, k) => cells[k]!.learner === learner)),
    );
    this.#grid.replaceChildren(table([this.#corner, ...devices], html("tbody", {}, ...rows)));
    this.#buttons[focused]?.focus();
  }

  #button(cell: MappingCell, k: number, greatest: number): HTMLButtonElement {
    const { is_modelled, is_chosen, speed, why_not } = cell;
    const text = speed === null ? "–" : `${perSecond(speed)}/s`;
    const look = {
      class: is_modelled ? "trl-modelled" : undefined,
      style: `--share: ${(speed ?? 0) / greatest}`,
      "data-cell": k,
      "aria-label": `${placeOf(cell)}: ${why_not || text}`,
    };
    return button(`${is_chosen ? "★ " : ""}${text}`, () => this.selection.choose([k]), look);
  }
}

function placeOf({ manager, learner }: MappingCell): string {
  return `replay on ${manager}, learner on ${learner}`;
}

/** The terms of an iteration as a table. */
function termsOf(cell: MappingCell, model: MappingView): HTMLElement {
  const caption = html("caption", {}, placeOf(cell) + (cell.is_modelled ? " (modelled)" : ""));
  const shown = (...rows: HTMLElement[]) => table([], html("tbody", {}, ...rows), {}, caption);
  if (cell.seconds === null) return shown(row({}, "impossible", cell.why_not));
  const terms = cell.terms.map(({ name, seconds, counts }) =>
    counts
      ? row({}, name, ms(seconds))
      : row({ class: "trl-beside" }, name, `${ms(seconds)}, beside`),
  );
  const speed = `${Math.round(cell.speed!).toLocaleString("en")} rows/s`;
  const total = row({ class: "trl-total" }, "T", `${ms(cell.seconds)}, ${speed}`);
  const places = model.traffic.map(({ name, seconds, counts }) =>
    row({}, `experience on ${name}`, ms(seconds) + (counts ? ", chosen" : "")),
  );
  return shown(...terms, total, ...(cell.is_chosen ? places : []));
}
