// The pipeline strip: stages as tabs with what they cost, a switch beside every pass that has one.
import { html } from "./markup";
import { Pane, type Send } from "./pane";
import { keys } from "./panel";
import { seconds } from "./plot";
import type { Selection } from "./selection";
import css from "./strip.css";

export interface StageRow {
  name: string;
  ran: boolean;
  seconds: number;
  summary: string;
  changed: boolean | null;
  operations: number | null;
  option: string | null;
  is_on: boolean | null;
  off: unknown;
  on: unknown;
}

export interface Option {
  name: string;
  kind: "bool" | "choice" | "dims" | "blocks" | "bytes" | "int";
  value: unknown;
  default: unknown;
  choices: unknown[];
  doc: string;
}

export interface Bound {
  name: string;
  value: number;
  dims: string[];
  dynamic: boolean;
  until: string | null;
}

/** What `PipelineView.to_json` gives. */
export interface PipelineModel {
  seconds: number;
  stages: StageRow[];
  options: Option[];
  bounds: Bound[];
}

export class Strip extends Pane<PipelineModel> {
  #model: PipelineModel | null = null;
  #stage = "";
  #hits = new Map<string, number>();
  // switches stand between the tabs, and a list of tabs may have nothing else in it: it owns its tabs
  #list = html("div", { role: "tablist", "aria-label": "stages" });
  #tabs = html("div", { class: "trl-tabs", role: "group", "aria-label": "pipeline" });
  readonly #own = `trl-${Math.random().toString(36).slice(2)}`;
  #hide = html("input", { type: "checkbox" });

  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    private readonly show: (stage: string) => void,
  ) {
    super(host, selection, send, "strip", css);
    const quiet = html(
      "label",
      { class: "trl-hide", title: "hide passes that changed nothing" },
      this.#hide,
      "changed only",
    );
    this.#hide.addEventListener("change", () => this.#paint());
    this.root.append(this.#list, this.#tabs, quiet);
    keys(this.#tabs, () => {
      const tabs = [...this.#tabs.querySelectorAll<HTMLElement>('[role="tab"]:not([disabled])')];
      const at = tabs.indexOf(document.activeElement as HTMLElement);
      if (at < 0) return {};
      const go = (k: number) => {
        const name = tabs[(k + tabs.length) % tabs.length]!.dataset.stage!;
        this.show(name);
        this.#tab(name)?.focus();
      };
      return {
        ArrowRight: () => go(at + 1),
        ArrowLeft: () => go(at - 1),
        Home: () => go(0),
        End: () => go(tabs.length - 1),
      };
    });
  }

  override draw(model: PipelineModel): void {
    this.#model = model;
    this.#paint();
  }

  /** Mark the stage that is shown. */
  stage(name: string): void {
    this.#stage = name;
    for (const tab of this.#tabs.querySelectorAll<HTMLElement>('[role="tab"]')) {
      const chosen = tab.dataset.stage === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      tab.parentElement!.classList.toggle("trl-shown", chosen);
    }
  }

  /** Say how many operations a search found in each stage. */
  found(hits: ReadonlyMap<string, number>): void {
    this.#hits = new Map(hits);
    this.#paint();
  }

  #id(row: StageRow): string {
    return `${this.#own}-${row.name}`;
  }

  #tab(name: string): HTMLElement | undefined {
    const tabs = this.#tabs.querySelectorAll<HTMLElement>('[role="tab"]');
    return [...tabs].find((tab) => tab.dataset.stage === name);
  }

  #paint(): void {
    if (!this.#model) return;
    const focused = (document.activeElement as HTMLElement | null)?.dataset?.key;
    const longest = Math.max(...this.#model.stages.map((row) => row.seconds), 1e-9);
    const shown = this.#model.stages.filter(
      (row) => !this.#hide.checked || row.changed !== false || row.name === this.#stage,
    );
    this.#tabs.replaceChildren(...shown.map((row) => this.#cell(row, row.seconds / longest)));
    const ids = shown.map((row) => this.#id(row));
    this.#list.setAttribute("aria-owns", ids.join(" "));
    this.stage(this.#stage);
    // a switch keeps the focus while its program is compiled and drawn anew
    if (focused) this.#tabs.querySelector<HTMLElement>(`[data-key="${focused}"]`)?.focus();
  }

  #cell(row: StageRow, share: number): HTMLElement {
    const hits = this.#hits.get(row.name);
    const idle = row.is_on ? "not needed" : "off";
    const figures = row.ran ? [seconds(row.seconds)] : [idle];
    if (row.operations !== null) figures.push(`${row.operations} ops`);
    const name = html("span", { class: "trl-name" }, row.name);
    if (row.changed === false) name.append(html("span", { class: "trl-same" }, " ="));
    if (hits) name.append(html("span", { class: "trl-hits" }, String(hits)));
    const tab = html(
      "button",
      {
        id: this.#id(row),
        role: "tab",
        "data-stage": row.name,
        "data-key": `tab-${placeOf(row)}`,
        disabled: !row.ran,
        title: row.ran ? row.summary : `${row.name} is ${idle}`,
        style: `--share: ${share.toFixed(3)}`,
      },
      name,
      html("span", { class: "trl-figures" }, figures.join(" · ")),
    );
    tab.addEventListener("click", () => this.show(row.name));
    const same = row.changed === false ? " trl-unchanged" : "";
    const rest = row.ran ? "" : row.is_on ? " trl-idle" : " trl-off";
    const cell = html("div", { class: `trl-tabbed${rest}${same}` }, tab);
    if (row.option !== null) cell.prepend(this.#switch(row));
    return cell;
  }

  #switch(row: StageRow): HTMLElement {
    const box = html("input", {
      type: "checkbox",
      "aria-label": `run ${placeOf(row)}`,
      "data-key": `switch-${placeOf(row)}`,
      title: `${row.option}: ${row.is_on ? "on" : "off"}`,
    });
    box.checked = row.is_on === true;
    box.addEventListener("change", () => {
      const value = box.checked ? row.on : row.off;
      this.send({ kind: "options", changes: { [row.option!]: value } });
    });
    return box;
  }
}

/** What one of two passes that run in place of each other is known by: the focus stays on it. */
function placeOf(row: StageRow): string {
  return row.name === "separate" ? "fuse" : row.name;
}
