// Settings bar: executor, bounds, options, search, and the result of the last change.
import { html } from "../shared/markup";
import { Pane, type Send } from "../shared/pane";
import type { Selection } from "../shared/selection";
import css from "./settings.css";
import { parseOption, formatOption } from "../shared/option_values";
import type { BoundRow, Option, PipelineView, SearchView } from "../models";

/** Python's report on its work. */
export interface Status {
  state: "ready" | "compiling" | "failed";
  text?: string;
  hint?: string;
  seconds?: number;
  known?: boolean;
  warnings?: string[];
}

/** The number of likely changes that are not compiled yet; empty without speculation. */
export interface Foreseen {
  left?: number;
  of?: number;
}

const TYPING = 180; // milliseconds without a key before a search starts

export class Settings extends Pane<PipelineView> {
  #executor = html("span");
  #bounds = html("span", { class: "trl-fields", role: "group", "aria-label": "bounds" });
  #options = html("div", { class: "trl-menu trl-options" });
  #details = html("details", {}, html("summary", {}, "options"), this.#options);
  #status = html("output", { class: "trl-status", role: "status" });
  #rest = html("div", { class: "trl-menu trl-more", hidden: true });
  #more = html("button", { disabled: true, "aria-expanded": "false" }, "more");
  #cancel = html("button", { class: "trl-cancel" }, "cancel");
  #query = html("input", {
    type: "search",
    placeholder: "search all stages",
    "aria-label": "search",
  });
  #kind = html("select", { "aria-label": "kind" });
  #region = html("select", { "aria-label": "region" });
  #changed = html("input", { type: "checkbox" });
  #compare = html(
    "button",
    { title: "compare this program with the ones after later changes" },
    "compare",
  );
  #names = "";
  #drawing = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Called when the user ends the search by Enter. */
  enter: (text: string) => void = () => {};

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "settings", css);
    const changed = html(
      "label",
      { title: "only operations that a stage added or changed" },
      this.#changed,
      "changed operations",
    );
    const search = html(
      "span",
      { class: "trl-search", role: "search" },
      this.#query,
      this.#kind,
      this.#region,
      changed,
    );
    this.root.append(
      this.#executor,
      this.#bounds,
      this.#details,
      this.#compare,
      search,
      this.#cancel,
      this.#status,
      this.#more,
      this.#rest,
    );
    this.#more.addEventListener("click", () => this.#open(this.#rest.hidden !== false));
    this.#cancel.addEventListener("click", () => send({ kind: "cancel" }));
    this.#compare.addEventListener("click", () => send({ kind: "compare" }));
    this.#query.title =
      "an operation, a line, a kind, or the name of a stage; Enter shows this stage";
    this.#query.addEventListener(
      "keydown",
      ({ key }) => key === "Enter" && this.enter(this.#query.value),
    );
    this.#query.addEventListener("input", () => this.#search());
    for (const filter of [this.#kind, this.#region, this.#changed]) {
      filter.addEventListener("change", () => this.#search());
    }
    this.#filters([], []);
    const close = (event: Event) => {
      const path = event.composedPath();
      for (const menu of this.root.querySelectorAll("details")) {
        if (!path.includes(menu)) menu.open = false;
      }
      if (!path.includes(this.#rest) && !path.includes(this.#more)) this.#open(false);
    };
    document.addEventListener("pointerdown", close);
    this.onDispose(() => document.removeEventListener("pointerdown", close));
    this.root.addEventListener("input", ({ target }) => note(target, false));
    this.root.addEventListener("change", ({ target }) => note(target, true));
    // redrawing removes a field from the page, which browsers treat as the end of typing
    const left = (event: Event) => this.#drawing && event.stopPropagation();
    this.root.addEventListener("change", left, true);
  }

  override draw(model: PipelineView): void {
    const active = document.activeElement as HTMLInputElement | null;
    const field = this.root.contains(active) ? active : null; // not that of a second view
    const focused = field?.dataset?.key;
    const typed = field && isTyped(field) && !isEntered(field) ? field.value : null;
    const executor = model.options.find((option) => option.name === "executor");
    this.#drawing = true;
    if (executor) {
      const choice = this.#choice(executor);
      choice.setAttribute("aria-label", "executor");
      choice.title = `executor: ${executor.doc}`;
      this.#executor.replaceChildren(choice);
    }
    this.#bounds.replaceChildren(...model.bounds.map((bound) => this.#bound(bound)));
    const others = model.options.filter((option) => option.name !== "executor");
    this.#options.replaceChildren(...others.map((option) => this.#option(option)));
    this.#drawing = false;
    const given = others.filter((option) => !same(option.value, option.default)).length;
    this.#details.querySelector("summary")!.textContent = given ? `options (${given})` : "options";
    if (!focused) return;
    const now = this.root.querySelector<HTMLInputElement>(`[data-key="${focused}"]`);
    now?.focus();
    if (!now) return;
    if (typed !== null)
      now.value = typed; // keep the text being typed over the redrawn value
    else if (now.matches("input:not([type=checkbox])")) now.select(); // the next key replaces it, as before
  }

  protected override onKernelEnd(): void {
    this.#status.textContent = "the kernel has ended";
    this.#refuse();
  }

  protected override leave(): void {
    const menus = [...this.root.querySelectorAll("details")].filter(({ open }) => open);
    if (!menus.length && this.#rest.hidden) super.leave();
    menus.forEach((menu) => (menu.open = false));
    this.#open(false);
  }

  /** Show or hide the controls that do not fit into the row, above the content below. */
  #open(open: boolean): void {
    this.#rest.hidden = !open;
    this.#more.setAttribute("aria-expanded", String(open));
  }

  /** Show the result of a change; `drawn` is the page's time in milliseconds. */
  status(status: Status, drawn?: number): void {
    const box = this.#status;
    box.className = `trl-status trl-${status.state}`;
    let [line, ...rest] = (status.text ?? "").split("\n") as [string, ...string[]];
    if (status.state === "compiling") line ||= "compiling …";
    else if (status.state === "failed") {
      if (status.hint) rest.push(status.hint);
      this.#refuse();
    } else if (status.seconds !== undefined) {
      const compiled = status.known
        ? "compiled before"
        : `compiled in ${(status.seconds * 1e3).toFixed(0)} ms`;
      const took = drawn === undefined ? "" : `, drawn after ${drawn.toFixed(0)} ms`;
      rest = status.warnings ?? [];
      const warned = rest.length ? ` · ${rest.length} warning${rest.length > 1 ? "s" : ""}` : "";
      line = compiled + took + warned;
      if (drawn !== undefined) box.dataset.drawn = drawn.toFixed(0);
    }
    box.textContent = line;
    const failed = status.state === "failed";
    const listed = status.state === "compiling" && rest.length > 0; // the candidates of a search
    if (failed || listed) rest.unshift(line); // the row may be too short for it
    this.#rest.textContent = rest.join("\n");
    this.#more.disabled = !rest.length;
    this.#open(failed || (listed && !this.#rest.hidden));
  }

  /** Show the number of likely changes that are compiled. */
  foreseen({ left, of }: Foreseen): void {
    const known = of !== undefined && left !== undefined;
    this.#status.title = known
      ? `${of - left} of ${of} changes by one click are compiled in advance`
      : "";
    this.#status.dataset.left = known ? `${left}` : "";
  }

  /** Set the available filters of a search. */
  filters({ kinds, regions }: SearchView): void {
    const names = JSON.stringify([kinds, regions]);
    if (names !== this.#names) this.#filters(kinds, regions);
    this.#names = names;
  }

  /** Reset switches and fields to the values of the shown program. */
  #refuse(): void {
    for (const field of this.root.querySelectorAll<HTMLElement>("[data-key]")) {
      if (field instanceof HTMLSelectElement) {
        for (const option of field.options) option.selected = option.defaultSelected;
      } else if (field instanceof HTMLInputElement) {
        if (field.type === "checkbox") field.checked = field.defaultChecked;
        else if (isTyped(field) && isEntered(field)) {
          field.value = field.defaultValue; // the value of the shown program
          delete field.dataset.entered;
        }
      }
    }
  }

  #filters(kinds: readonly string[], regions: readonly string[]): void {
    const fill = (select: HTMLSelectElement, all: string, names: readonly string[]) => {
      const kept = select.value;
      const options = names.map((name) => html("option", { value: name }, name));
      select.replaceChildren(html("option", { value: "" }, all), ...options);
      select.value = names.includes(kept) ? kept : "";
    };
    fill(this.#kind, "any kind", kinds);
    fill(this.#region, "any region", regions);
  }

  #search(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.send({
        kind: "search",
        query: this.#query.value,
        of_kind: this.#kind.value || null,
        region: this.#region.value || null,
        changed: this.#changed.checked,
      });
    }, TYPING);
  }

  #set(name: string, value: unknown): void {
    this.send({ kind: "options", changes: { [name]: value } });
  }

  #bound(bound: BoundRow): HTMLElement {
    const field = html("input", {
      type: "number",
      min: 1,
      value: bound.value,
      "data-key": `bound-${bound.name}`,
      disabled: bound.dynamic,
      title: bound.dynamic
        ? `ends where ${bound.until} holds; at most ${bound.value}`
        : `the size of ${bound.dims.join(", ")}`,
    });
    field.addEventListener("change", () => {
      this.send({ kind: "bounds", changes: { [bound.name]: field.valueAsNumber } });
    });
    return html("label", {}, `${bound.name} ${bound.dynamic ? "≤" : "="}`, field);
  }

  #option(option: Option): HTMLElement {
    const given = same(option.value, option.default) ? "" : " trl-given";
    const id = `${option.name}-${Math.random().toString(36).slice(2)}`;
    const control = this.#control(option);
    control.id = id;
    return html(
      "div",
      { class: `trl-option${given}` },
      html("label", { for: id }, option.name),
      control,
      html("span", { class: "trl-doc" }, option.doc),
    );
  }

  #control(option: Option): HTMLInputElement | HTMLSelectElement {
    const key = `option-${option.name}`;
    if (option.kind === "bool") {
      const box = html("input", { type: "checkbox", "data-key": key });
      box.defaultChecked = option.value === true;
      box.addEventListener("change", () => this.#set(option.name, box.checked));
      return box;
    }
    if (option.kind === "choice") return this.#choice(option);
    const placeholder = { bytes: "the device's", dims: "all", blocks: "auto", int: "" }[
      option.kind
    ];
    const field = html("input", {
      type: option.kind === "int" ? "number" : "text",
      min: option.kind === "int" ? 1 : undefined,
      value: formatOption(option.value),
      placeholder,
      "data-key": key,
    });
    field.addEventListener("change", () =>
      this.#set(option.name, parseOption(option.kind, field.value)),
    );
    return field;
  }

  #choice(option: Option): HTMLSelectElement {
    const select = html("select", { "data-key": `option-${option.name}`, title: option.doc });
    option.choices.forEach((choice, k) => {
      const selected = same(choice, option.value);
      select.append(html("option", { value: k, selected }, formatOption(choice)));
    });
    select.addEventListener("change", () => {
      this.#set(option.name, option.choices[Number(select.value)]);
    });
    return select;
  }
}

/** Whether the text of a field differs from its drawn value. */
function isTyped(field: HTMLInputElement): boolean {
  return field.defaultValue !== undefined && field.value !== field.defaultValue;
}

/** Whether the text of a field has been sent to Python, rather than still being typed. */
function isEntered(field: HTMLElement): boolean {
  return field.dataset.entered !== undefined;
}

function note(target: EventTarget | null, entered: boolean): void {
  if (!(target instanceof HTMLInputElement)) return;
  if (entered) target.dataset.entered = "";
  else delete target.dataset.entered;
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
