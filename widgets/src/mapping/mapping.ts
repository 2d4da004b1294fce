// Assignment pane: a slider for each parameter, a cell for each assignment, and the terms of one of them.
import { draw } from "../draw/draw";
import { perSecond } from "../draw/ways";
import css from "./mapping.css";
import { html } from "../shared/markup";
import type { MappingCell, MappingView } from "../models";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import type { Selection } from "../shared/selection";

/** State that the page may write: positions of sliders, and the selected assignment. */
export interface Chosen {
  move(at: readonly number[]): void;
  choose(cell: readonly string[]): void;
}

const ms = (seconds: number) => `${Number((seconds * 1e3).toPrecision(4))} ms`;

export class MappingPane extends Panel<MappingView> {
  #model: MappingView | null = null;
  #cell: readonly string[] = [];
  #sliders = html("div", { class: "trl-sliders" });
  #status = html("output", { class: "trl-told", role: "status" });
  #grid = html("table", { class: "trl-grid" });
  #terms = html("table", { class: "trl-terms" });

  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    readonly chosen: Chosen,
  ) {
    super(host, selection, send, "mapping", "Which primitive runs where", css);
    this.offerPictures();
    this.body.append(this.#sliders, this.#status, this.#grid, this.#terms);
  }

  override draw(model: MappingView): void {
    this.#model = model;
    this.note.textContent = model.formula;
    this.#status.textContent = model.told;
    if (this.#sliders.childElementCount !== 2 * model.settings.length) this.#begin(model);
    model.settings.forEach(({ at, values }, k) => {
      const [label, value] = [...this.#sliders.children].slice(2 * k);
      const slider = label!.querySelector("input")!;
      slider.valueAsNumber = at;
      slider.setAttribute("aria-valuetext", values[at]!);
      value!.textContent = values[at]!;
    });
    this.#paint();
  }

  /** Show the terms of an assignment, by its devices; without devices, of the fastest one. */
  choose(cell: readonly string[]): void {
    this.#cell = cell;
    this.#paint();
  }

  override picture(): string | null {
    return this.#model && draw({ view: "text" }, this.#model.text);
  }

  protected override leave(): void {
    this.#go([]);
  }

  #begin(model: MappingView): void {
    this.#sliders.replaceChildren(
      ...model.settings.flatMap(({ name, values }, k) => {
        const slider = html("input", {
          type: "range",
          min: 0,
          max: values.length - 1,
          "aria-label": name,
        });
        slider.addEventListener("input", () => {
          const at = this.#model!.settings.map((one) => one.at);
          at[k] = slider.valueAsNumber;
          this.chosen.move(at);
        });
        return [html("label", {}, name, slider), html("output", {})];
      }),
    );
  }

  #go(cell: readonly string[]): void {
    this.choose(cell);
    this.chosen.choose(cell);
  }

  #paint(): void {
    const model = this.#model;
    if (!model) return;
    const best = model.cells.find((one) => one.is_chosen)!;
    const [manager = best.manager, learner = best.learner] = this.#cell;
    const shown = model.cells.find((one) => one.manager === manager && one.learner === learner);
    const most = best.speed ?? 1;
    const head = model.devices.map((name) => html("th", { scope: "col" }, name));
    const rows = model.devices.map((name) =>
      html(
        "tr",
        {},
        html("th", { scope: "row" }, name),
        ...model.cells
          .filter((one) => one.learner === name)
          .map((one) => html("td", {}, this.#button(one, one === shown, most))),
      ),
    );
    const corner = html("th", {}, "learner \\ replay");
    const focused = this.#grid.contains(this.#root().activeElement);
    this.#grid.replaceChildren(
      html("thead", {}, html("tr", {}, corner, ...head)),
      html("tbody", {}, ...rows),
    );
    if (focused) this.#grid.querySelector<HTMLElement>("[aria-pressed=true]")?.focus();
    if (shown) this.#terms.replaceChildren(...told(shown, model));
  }

  #root(): Document | ShadowRoot {
    return this.root.getRootNode() as Document | ShadowRoot;
  }

  #button(cell: MappingCell, pressed: boolean, most: number): HTMLButtonElement {
    const said = cell.speed === null ? "–" : `${perSecond(cell.speed)}/s`;
    const button = html(
      "button",
      {
        class: cell.is_modelled ? "trl-modelled" : undefined,
        style: `--share: ${(cell.speed ?? 0) / most}`,
        "aria-pressed": String(pressed),
        "aria-label": `replay on ${cell.manager}, learner on ${cell.learner}: ${cell.why_not || said}`,
      },
      `${cell.is_chosen ? "★ " : ""}${said}`,
    );
    button.addEventListener("click", () => this.#go([cell.manager, cell.learner]));
    return button;
  }
}

/** The terms of an iteration as rows of a table. */
function told(cell: MappingCell, model: MappingView): HTMLElement[] {
  const where = `replay on ${cell.manager}, learner on ${cell.learner}`;
  const title = html("caption", {}, cell.is_modelled ? `${where} (modelled)` : where);
  const row = (name: string, value: string, of?: string) =>
    html("tr", { class: of }, html("th", { scope: "row" }, name), html("td", {}, value));
  if (cell.seconds === null) return [title, html("tbody", {}, row("cannot be", cell.why_not))];
  const terms = cell.terms.map(({ name, seconds, counts }) =>
    row(name, ms(seconds) + (counts ? "" : ", beside"), counts ? undefined : "trl-beside"),
  );
  const speed = `${Math.round(cell.speed!).toLocaleString("en")} rows a second`;
  const total = row("T", `${ms(cell.seconds)}, ${speed}`, "trl-total");
  const places = model.traffic.map(({ name, seconds, counts }) =>
    row(`experience on ${name}`, ms(seconds) + (counts ? ", chosen" : "")),
  );
  return [title, html("tbody", {}, ...terms, total, ...(cell.is_chosen ? places : []))];
}
