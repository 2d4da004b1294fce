// Iteration space pane: marks of a turn's points, with selection and time.
import { isAdding } from "../shared/keyboard";
import { space, spaceIn } from "../draw/space";
import { about } from "../shared/instants";
import { html, createElement, svg } from "../shared/markup";
import type { Send } from "../shared/pane";
import { formatCount, mark } from "../shared/plot";
import type { Selection } from "../shared/selection";
import css from "./space.css";
import { type Description, TimeAxisPane } from "../shared/time_axis_pane";
import type { IterationSpaceView, Statement } from "../models";

const NEAR = 9; // maximal distance in pixels between the pointer and a mark

export class SpacePane extends TimeAxisPane<IterationSpaceView> {
  #model: IterationSpaceView | null = null;
  #groups: SVGElement[] = [];
  #chips: HTMLElement[] = [];
  #least = { count: 0, size: 0 };
  #legend = html("div", { class: "trl-legend", role: "group", "aria-label": "statements" });

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "space", "Iteration space", css, 236);
    this.body.append(this.#legend);
  }

  /** Set minimal extents of the axes, so that two programs have the same scale. */
  lock(count: number, size: number): void {
    this.#least = { count, size };
    this.repaint();
  }

  override draw(model: IterationSpaceView): void {
    this.#model = model;
    this.note.textContent = about(model.turn);
    this.plot.setAttribute(
      "aria-label",
      `iteration space: ${formatCount(model.turn.count, "executed point")} of ${formatCount(model.statements.length, "statement")}`,
    );
    this.#chips = model.statements.map((one) => this.#chip(one));
    this.#legend.replaceChildren(...this.#chips);
    this.repaint();
    this.select();
  }

  override select(): void {
    const any = this.selection.ids.size > 0;
    this.#model?.statements.forEach((one, k) => {
      const marked = this.selection.marks(one.op_ids);
      this.#chips[k]?.setAttribute("aria-pressed", String(marked));
      this.#groups[k]?.classList.toggle("trl-selected", marked);
      this.#groups[k]?.classList.toggle("trl-faint", any && !marked);
    });
  }

  override picture(): string | null {
    return this.#model?.turn.dim ? space(this.#model, "", this.#least) : null;
  }

  protected override get count(): number {
    return this.#model?.turn.count ?? 0;
  }

  protected override get extent(): number {
    return Math.max(this.count, this.#least.count);
  }

  protected override paint(width: number): SVGElement[] {
    const drawn = spaceIn(this.#model!, this.box(width, 20, 34), this.#least, this.visible);
    this.scale = drawn.scale;
    this.#groups = drawn.marks.map(createElement);
    return [createElement(drawn.axes), ...this.#groups];
  }

  protected override describe(px: number, py: number): Description | null {
    const { box } = this.scale;
    const at = Math.floor(this.scale.at(px));
    if (!this.instants || at < 0 || at >= this.instants.count) return null;
    if (py < box.top - 4 || py > box.top + box.height + 4) return null;
    const found = this.#nearest(px, py);
    if (found < 0) return null;
    const one = this.instants.statement(found)!;
    const region = one.region.join(" / ");
    return {
      text: `${this.instants.text(found)}\n${region ? `${region}, ` : ""}instant ${found}`,
      ids: one.op_ids,
    };
  }

  /** The instant of the nearest mark; -1 if none is near. */
  #nearest(px: number, py: number): number {
    const { statements } = this.#model!;
    let [best, found] = [NEAR ** 2, -1];
    statements.forEach((one) => {
      one.times.forEach((time, k) => {
        const dx = this.scale.px(time + 0.5) - px;
        const [low, high] = [one.low[k]!, one.low[k]! + one.tall];
        const dy = this.scale.py(Math.min(Math.max(this.scale.up(py), low + 0.5), high - 0.5)) - py;
        const far = dx * dx + dy * dy;
        if (far < best) [best, found] = [far, time];
      });
    });
    return found;
  }

  #chip(one: Statement): HTMLElement {
    const key = svg("svg", { class: "trl-keys", viewBox: "-6 -6 12 12", "aria-hidden": "true" });
    key.append(svg("path", { d: mark(one.shape, 0, 0, 4), fill: one.colour }));
    const where = [one.region.join(" / ") || "no region", one.each ? "" : "once"];
    const chip = html(
      "button",
      {
        class: "trl-chip",
        "aria-pressed": "false",
        title: `${one.name}: ${where.filter(Boolean).join(", ")}`,
      },
      key,
      html("span", {}, one.name),
    );
    chip.addEventListener("click", (event) => this.selection.click(one.op_ids, isAdding(event)));
    return chip;
  }
}
