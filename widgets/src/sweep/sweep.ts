// Sweep pane: arguments of a function as sliders, and charts of a sweep.
import { sweep } from "../draw/charts";
import { draw } from "../draw/draw";
import { button, html, createElement, row as tableRow } from "../shared/markup";
import type { SweepView } from "../models";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import type { Selection } from "../shared/selection";
import css from "./sweep.css";

/** An argument given as a list; `at` is the position of the shown value. */
export interface Argument {
  name: string;
  at: number;
  labels: string[];
  /** Positions with compiled programs. */
  known: number[];
  /** Errors of other positions. */
  failed: Record<string, string>;
}

/** A sweep, with the number `left` of remaining steps. */
export interface SweepModel extends SweepView {
  left: number;
}

const HEADS = ["peak", "launches per turn", "compiled in", "turn, measured", "note"];

interface Row {
  readonly slider: HTMLInputElement;
  readonly value: HTMLOutputElement;
  readonly marks: HTMLElement;
  readonly sweep: HTMLButtonElement;
  argument: Argument;
  asked: number | null; // the requested position, until its program is shown
}

export class SweepPane extends Panel<readonly Argument[]> {
  #rows = new Map<string, Row>();
  #sliders = html("div", { class: "trl-sliders" });
  #summary = html("output", { class: "trl-summary", role: "status" });
  #chart = html("div", { class: "trl-sweep-chart" });
  #table = html("table", { class: "trl-table" });
  #scroll = html("div", { class: "trl-sweep-table" }, this.#table);
  #model: SweepModel | null = null;

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "sweep", "Arguments", css);
    this.offerPictures();
    this.body.append(this.#sliders, this.#summary, this.#chart, this.#scroll);
  }

  override draw(model: readonly Argument[]): void {
    this.root.hidden = !model.length;
    for (const argument of model) {
      if (!this.#rows.has(argument.name)) this.#rows.set(argument.name, this.#createRow(argument));
      const row = this.#rows.get(argument.name)!;
      row.argument = argument;
      if (row.asked === argument.at) row.asked = null;
      const { known, failed, labels } = argument;
      const mark = (k: number, name: string, text: string, title: string) =>
        html("span", { class: name, style: `--at: ${place(k, labels)}`, title }, text);
      row.marks.replaceChildren(
        ...known.map((k) => mark(k, "trl-known", "·", `${labels[k]}: compiled`)),
        ...Object.entries(failed).map(([k, why]) =>
          mark(Number(k), "trl-fails", "×", `${labels[Number(k)]}: ${why}`),
        ),
      );
      this.#move(row, row.asked ?? argument.at);
    }
    this.#mark();
  }

  protected override onKernelEnd(): void {
    this.settle();
  }

  /** Set the sliders to the shown program, after a request has succeeded or failed. */
  settle(): void {
    for (const row of this.#rows.values()) {
      row.asked = null;
      this.#move(row, row.argument.at);
    }
  }

  /** Show the results of a sweep so far. */
  sweep(model: SweepModel | null): void {
    this.#model = model;
    for (const [name, { sweep }] of this.#rows) {
      const goes = !!model?.left && model.argument === name;
      sweep.textContent = goes ? "■ stop" : "▶ sweep";
      sweep.dataset.goes = String(goes);
    }
    if (!model) return;
    const left = model.left ? ` (${model.left} to do)` : "";
    this.#summary.textContent = model.summary + left;
    this.#chart.replaceChildren(createElement(sweep(model, "", 4)));
    const heads = [model.argument, ...HEADS].map((head) => html("th", { scope: "col" }, head));
    const rows = model.points.map((point, k) => {
      const [label = "", ...cells] = point.texts;
      const look = { class: "trl-quiet", title: `show ${label}` };
      const go = button(label, () => this.#go(model.argument, k), look);
      const name = point.peak === null ? "trl-fails" : undefined;
      return tableRow({ class: name }, go, ...cells);
    });
    const body = html("tbody", {}, ...rows);
    this.#table.replaceChildren(html("thead", {}, html("tr", {}, ...heads)), body);
    this.#mark();
  }

  override picture(): string | null {
    return this.#model && draw(this.#model, "");
  }

  #createRow(argument: Argument): Row {
    const { name, labels } = argument;
    const row: Row = {
      slider: html("input", { type: "range", min: 0, max: labels.length - 1, "aria-label": name }),
      value: html("output", {}),
      marks: html("div", { class: "trl-marks", "aria-hidden": true }),
      sweep: html("button", { "aria-label": `sweep ${name}` }, "▶ sweep"),
      argument,
      asked: null,
    };
    row.slider.addEventListener("input", () => {
      row.asked = row.slider.valueAsNumber;
      this.#move(row, row.asked);
      this.#go(name, row.asked);
    });
    row.sweep.addEventListener("click", () => {
      this.send({ kind: "sweep", argument: name, stop: row.sweep.dataset.goes === "true" });
    });
    const track = html("div", { class: "trl-track" }, row.slider, row.marks);
    const ends = html("span", { class: "trl-end" }, labels.at(-1)!);
    this.#sliders.append(html("label", {}, name), row.value, track, ends, row.sweep);
    return row;
  }

  #go(name: string, at: number): void {
    this.send({ kind: "argument", name, at });
  }

  #move({ slider, value, argument }: Row, at: number): void {
    slider.valueAsNumber = at;
    value.textContent = argument.labels[at]!;
    slider.setAttribute("aria-valuetext", argument.labels[at]!);
  }

  /** Mark the row of the shown program. */
  #mark(): void {
    const at = this.#model && this.#rows.get(this.#model.argument)?.argument.at;
    this.#table.querySelectorAll("tbody tr").forEach((row, k) => {
      row.toggleAttribute("aria-current", k === at);
    });
  }
}

/** The relative position along the slider. */
function place(k: number, labels: readonly string[]): number {
  return k / Math.max(labels.length - 1, 1);
}
