// The iteration space: time across, one dimension up, a mark for every executed point of a turn.
import { about, type SpaceModel, type SpaceStatement } from "./instants";
import { html, svg } from "./markup";
import type { Send } from "./pane";
import { axes, colour, counts, mark, Scale, type Shape } from "./plot";
import type { Selection } from "./selection";
import css from "./space.css";
import { MARGIN, TimedPane } from "./timed";

// Acting is round and learning pointed; what belongs to neither has corners.
const OF_ROLE: Record<string, readonly Shape[]> = {
  acting: ["circle"],
  learning: ["triangle", "diamond"],
};
const OTHERS: readonly Shape[] = ["square", "cross", "diamond"];
const NEAR = 9; // pixels within which a mark is meant

interface Look {
  readonly shape: Shape;
  readonly colour: string;
}

export class SpacePane extends TimedPane<SpaceModel> {
  #model: SpaceModel | null = null;
  #looks: Look[] = [];
  #groups: SVGElement[] = [];
  #chips: HTMLElement[] = [];
  #names: readonly string[] = [];
  #least = { count: 0, size: 0 };
  #legend = html("div", { class: "trl-legend", role: "group", "aria-label": "statements" });

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "space", "Iteration space", css, 236);
    this.body.append(this.#legend);
  }

  /**
   * Draw so many instants and points at least, and statements of these names in these colours, so that
   * two programs can be compared.
   */
  lock(count: number, size: number, names: readonly string[]): void {
    this.#least = { count, size };
    this.#names = names;
    this.repaint();
  }

  override draw(model: SpaceModel): void {
    this.#model = model;
    this.#looks = looks(model.statements, this.#names);
    this.note.textContent = about(model.turn);
    this.plot.setAttribute(
      "aria-label",
      `iteration space: ${model.turn.count} executed points of ${model.statements.length} statements`,
    );
    this.#chips = model.statements.map((one, k) => this.#chip(one, this.#looks[k]!));
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

  protected override get count(): number {
    return this.#model?.turn.count ?? 0;
  }

  protected override paint(width: number): SVGElement[] {
    const { turn, statements } = this.#model!;
    const box = {
      left: MARGIN.left,
      top: 20,
      width: width - MARGIN.left - MARGIN.right,
      height: this.height - 54,
    };
    const count = Math.max(turn.count, this.#least.count, 1);
    const size = Math.max(turn.size, this.#least.size);
    this.scale = new Scale(box, [0, count], [0, size]);
    const column = box.width / count;
    const r = Math.min(5, Math.max(1.7, Math.min(column * 1.5, box.height / size / 2.1)));
    this.#groups = statements.map((one, k) => this.#marks(one, this.#looks[k]!, column, r));
    const x = { label: "time: executed points, in order", ticks: counts(0, count, 8) };
    const y = { label: turn.dim ?? "", ticks: counts(0, size, 5) };
    return [axes(this.scale, x, y), ...this.#groups];
  }

  protected override describe(px: number, py: number): { text: string; ids: number[] } | null {
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

  /** The instant of the mark that is meant; -1 where none is near. */
  #nearest(px: number, py: number): number {
    const { statements } = this.#model!;
    let [best, found] = [NEAR ** 2, -1];
    statements.forEach((one) => {
      const up = this.#up(one);
      one.times.forEach((time, k) => {
        const dx = this.scale.px(time + 0.5) - px;
        const dy = up ? this.scale.py(up[k]! + 0.5) - py : 0;
        const far = dx * dx + dy * dy;
        if (far < best) [best, found] = [far, time];
      });
    });
    return found;
  }

  #up(one: SpaceStatement): SpaceStatement["times"] | undefined {
    const { dim } = this.#model!.turn;
    return one.each && dim !== null ? one.coordinates[dim] : undefined;
  }

  #marks(one: SpaceStatement, look: Look, column: number, r: number): SVGElement {
    const up = this.#up(one);
    const { top, height } = this.scale.box;
    const parts: string[] = [];
    one.times.forEach((time, k) => {
      const x = this.scale.px(time + 0.5);
      if (up) parts.push(mark(look.shape, x, this.scale.py(up[k]! + 0.5), r));
      else {
        const w = Math.min(Math.max(column * 0.8, 2), 12);
        parts.push(
          `M${(x - w / 2).toFixed(1)} ${top}h${w.toFixed(1)}v${height}h${(-w).toFixed(1)}z`,
        );
        parts.push(mark(look.shape, x, top - 7, 4));
      }
    });
    return svg("path", { class: "trl-marks", d: parts.join(""), fill: look.colour });
  }

  #chip(one: SpaceStatement, look: Look): HTMLElement {
    const key = svg("svg", { class: "trl-keys", viewBox: "-6 -6 12 12", "aria-hidden": "true" });
    key.append(svg("path", { d: mark(look.shape, 0, 0, 4), fill: look.colour }));
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
    chip.addEventListener("click", (event) =>
      this.selection.click(one.op_ids, event.shiftKey || event.ctrlKey || event.metaKey),
    );
    return chip;
  }
}

function looks(statements: readonly SpaceStatement[], names: readonly string[]): Look[] {
  const used = new Map<string, number>();
  return statements.map((one, k) => {
    const shapes = OF_ROLE[one.role] ?? OTHERS;
    const n = used.get(one.role) ?? 0;
    used.set(one.role, n + 1);
    const known = names.indexOf(one.name);
    return { shape: shapes[n % shapes.length]!, colour: colour(known < 0 ? k : known) };
  });
}
