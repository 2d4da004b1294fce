// Steps pane: the rewrites of a pass, its refusals and its choices.
import { button, html } from "../shared/markup";
import { Pane, type Send } from "../shared/pane";
import { formatBytes, formatCount } from "../shared/plot";
import type { Selection } from "../shared/selection";
import css from "./steps.css";
import type { DetailModel } from "../outline/outline";
import type { Rewrite, Rule, StepsView, CandidateRow } from "../models";

export class StepsPane extends Pane<StepsView | null> {
  #steps: Rewrite[] = [];
  #at = -1;
  #slider = html("input", { type: "range", min: -1, value: -1, "aria-label": "step of the pass" });
  #text = html("output", { class: "trl-step", "aria-live": "polite" });
  #rule = html("p", { class: "trl-rule", hidden: true });
  #diff = html("div", { class: "trl-diff", hidden: true });
  #lines = html("div", { class: "trl-diff trl-whole", hidden: true });
  #whole = html(
    "button",
    { class: "trl-text", "aria-pressed": "false", title: "all changes of this stage as text" },
    "text",
  );
  #stage = "";
  #rules = new Map<string, Rule>();
  #rest = html("div", { class: "trl-rest" });
  #walk: HTMLElement;

  /** `show` moves the graph to the operations of a step. */
  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    private readonly show: (ids: readonly number[]) => void = () => {},
  ) {
    super(host, selection, send, "steps", css);
    this.#slider.addEventListener("input", () => this.#go(this.#slider.valueAsNumber));
    this.#walk = html(
      "div",
      { class: "trl-walk" },
      button("‹", () => this.#go(this.#at - 1), { label: "previous step" }),
      this.#slider,
      button("›", () => this.#go(this.#at + 1), { label: "next step" }),
      this.#text,
      this.#whole,
    );
    this.#whole.addEventListener("click", () => {
      this.#whole.setAttribute("aria-pressed", String(this.#lines.hidden));
      this.#lines.hidden = !this.#lines.hidden;
      this.#askForLines();
    });
    this.root.append(this.#walk, this.#rule, this.#diff, this.#rest, this.#lines);
  }

  override draw(model: StepsView | null): void {
    this.#steps = model?.steps ?? [];
    this.#at = -1;
    this.#rules = new Map((model?.rules ?? []).map((one) => [one.rule, one]));
    this.#stage = model?.stage ?? "";
    this.#askForLines();
    this.#rule.hidden = this.#diff.hidden = true;
    this.#slider.max = String(this.#steps.length - 1);
    this.#slider.valueAsNumber = -1;
    this.#walk.hidden = !this.#steps.length;
    this.root.hidden =
      !model || !(model.steps.length + model.refused.length + model.choices.length);
    this.#rest.replaceChildren(...(model ? this.#listChoices(model) : []));
    const rules = (model?.rules ?? []).map(({ rule, count }) => `${rule} ×${count}`);
    this.#text.textContent = `${formatCount(this.#steps.length, "step")}: ${rules.slice(0, 6).join(", ")}`;
    this.#text.title = rules.join("\n");
  }

  #go(k: number): void {
    const at = Math.min(Math.max(k, 0), this.#steps.length - 1);
    const step = this.#steps[at];
    if (!step) return;
    this.#at = at;
    this.#slider.valueAsNumber = at;
    const note = step.note ? html("span", { class: "trl-soft" }, ` ${step.note}`) : "";
    this.#text.replaceChildren(
      `${at + 1}/${this.#steps.length} `,
      html("b", {}, step.rule),
      " ",
      this.#ids(step.before, "before"),
      " → ",
      step.after.length ? this.#ids(step.after, "after") : "nothing",
      note,
    );
    this.#text.title = step.text;
    const rule = this.#rules.get(step.rule);
    this.#rule.replaceChildren(rule?.text ?? "", " ", rule?.page ? this.#page(rule.page) : "");
    this.#rule.hidden = !rule?.text;
    this.#diff.hidden = true;
    this.send({ kind: "detail", name: this.#nameOf(at) });
    this.selection.choose([...step.before, ...step.after]);
    this.show(step.after.length ? step.after : step.before);
  }

  /** Show the requested text of a step, or the difference of the whole pass. */
  detail(found: DetailModel): void {
    const isStep = this.#at >= 0 && found.stage === this.#nameOf(this.#at);
    if (!isStep && found.stage !== `diff ${this.#stage}`) return;
    const rows = found.lines.map(({ text, op_ids }) => {
      const sign = { "+": "trl-became", "-": "trl-was" }[text[0]!];
      const row = html("div", { class: sign, title: op_ids.length ? "select" : undefined }, text);
      if (op_ids.length) row.addEventListener("click", () => this.selection.click(op_ids));
      return row;
    });
    if (isStep) {
      this.#diff.hidden = !rows.length;
      this.#diff.replaceChildren(...rows);
    } else {
      this.#lines.replaceChildren(...(rows.length ? rows : [found.problem || "no line differs"]));
    }
  }

  /** The name of a step's text, which Python creates on request. */
  #nameOf(step: number): string {
    return `step ${this.#stage} ${step}`;
  }

  #askForLines(): void {
    if (this.#lines.hidden || !this.#steps.length) return;
    this.#lines.replaceChildren("comparing …");
    this.send({ kind: "detail", name: `diff ${this.#stage}` });
  }

  /** A link to a page of the documentation; see the extension of JupyterLab. */
  #page(path: string): HTMLElement {
    const link = html("button", { class: "trl-link trl-page", title: "open this page" }, path);
    link.addEventListener("click", () => {
      const detail = { path };
      link.dispatchEvent(new CustomEvent("timerl-page", { bubbles: true, detail }));
    });
    return link;
  }

  #ids(ids: readonly number[], when: string): HTMLElement {
    const few = ids.slice(0, 4).map((id) => `%${id}`);
    const more = ids.length > few.length ? ` +${ids.length - few.length}` : "";
    const look = { class: "trl-ids", title: `select the operations ${when} the step` };
    return button(few.join(" ") + more, () => this.selection.choose(ids), look);
  }

  #listChoices(model: StepsView): HTMLElement[] {
    const found: HTMLElement[] = [];
    if (model.refused.length) {
      const rows = model.refused.map(({ reason, op_ids }) => {
        const select = this.#ids(op_ids, "refused");
        return html("li", {}, select, ` ${reason}`);
      });
      const head = html("summary", {}, `refused, by reason (${model.refused.length})`);
      found.push(html("details", {}, head, html("ul", {}, ...rows)));
    }
    for (const choice of model.choices) {
      const rows = choice.candidates.map((one) =>
        html(
          "li",
          { class: one.taken ? "trl-taken" : undefined },
          html("b", {}, one.name),
          ` ${one.doc}`,
          html("span", { class: "trl-soft" }, forecast(one.forecast)),
        ),
      );
      const head = html("summary", {}, `${choice.what}: `, html("b", {}, choice.taken));
      const why = html("p", { class: "trl-soft" }, `because ${choice.why}`);
      found.push(html("details", {}, head, why, html("ul", {}, ...rows)));
    }
    return found;
  }
}

function forecast(one: CandidateRow["forecast"]): string {
  if (!one) return "";
  if ("problem" in one) return ` (${one.problem})`;
  return ` (peak ${formatBytes(one.peak)}, ${formatCount(one.launches, "launch", "launches")})`;
}
