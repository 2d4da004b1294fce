// Pipeline strip: stages as tabs with their durations, and a switch for every pass with an option.
import { html } from "../shared/markup";
import { Pane, type Send } from "../shared/pane";
import { keys } from "../shared/keyboard";
import { cost } from "../draw/pipeline";
import type { Selection } from "../shared/selection";
import css from "./strip.css";
import type { PipelineView, StageRow } from "../models";

const KNOWN = "; reused: computed during a search, so this stage took no further time";
const WITH = "; also in the stage of this name";

export class Strip extends Pane<PipelineView> {
  #model: PipelineView | null = null;
  #stage = "";
  #hits: ReadonlyMap<string, number> = new Map();
  #sought = "";
  // switches stand between the tabs, but a tab list may contain only tabs, so it refers to them
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
      "changed stages",
    );
    this.#hide.addEventListener("change", () => this.#paint());
    this.root.append(this.#list, this.#tabs, quiet);
    this.onResize(this.#tabs, () => {
      const tab = this.#tab(this.#stage);
      if (tab) this.#reveal(tab.parentElement!);
    });
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

  override draw(model: PipelineView): void {
    this.#model = model;
    this.#paint();
  }

  /** Mark the stage that is shown. */
  stage(name: string): void {
    this.#stage = name;
    for (const tab of this.#tabs.querySelectorAll<HTMLElement>('[role="tab"]')) {
      const chosen = tab.dataset.stage === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.toggleAttribute("data-first", chosen);
      tab.parentElement!.classList.toggle("trl-shown", chosen);
      // in the next frame, when the browser computes the layout anyway
      if (chosen) requestAnimationFrame(() => this.#reveal(tab.parentElement!));
    }
  }

  /** Scroll the row of tabs, never the page. */
  #reveal(cell: HTMLElement): void {
    const { offsetLeft, offsetWidth } = cell;
    const { scrollLeft, clientWidth } = this.#tabs;
    if (offsetLeft < scrollLeft) this.#tabs.scrollLeft = offsetLeft - 20;
    const over = offsetLeft + offsetWidth - scrollLeft - clientWidth;
    if (over > 0) this.#tabs.scrollLeft = scrollLeft + over + 20;
  }

  /** Show the number of search results in each stage, and mark the stages with this text in their names. */
  found(hits: ReadonlyMap<string, number>, text: string): void {
    const sought = text.trim().toLowerCase();
    const same = sought === this.#sought && String([...hits]) === String([...this.#hits]);
    this.#hits = hits;
    this.#sought = sought;
    if (same) return;
    this.#paint();
    const first = this.#named()[0];
    if (first) this.#reveal(this.#tab(first.name)!.parentElement!);
  }

  /** Show the first stage whose name begins with a text. */
  open(text: string): void {
    const name = text.trim().toLowerCase();
    const first = this.#model?.stages.find((row) => row.ran && name && row.name.startsWith(name));
    if (first) this.show(first.name);
  }

  #named(): readonly StageRow[] {
    const stages = this.#sought ? (this.#model?.stages ?? []) : [];
    return stages.filter(({ name }) => name.includes(this.#sought));
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
      (row) =>
        !this.#hide.checked ||
        row.changed !== false ||
        row.name === this.#stage ||
        this.#named().includes(row),
    );
    this.#tabs.replaceChildren(...shown.map((row) => this.#cell(row, row.seconds / longest)));
    const ids = shown.map((row) => this.#id(row));
    this.#list.setAttribute("aria-owns", ids.join(" "));
    this.stage(this.#stage);
    // a switch keeps the focus while its program is compiled and redrawn
    if (focused) this.#tabs.querySelector<HTMLElement>(`[data-key="${focused}"]`)?.focus();
  }

  #cell(row: StageRow, share: number): HTMLElement {
    const hits = this.#hits.get(row.name);
    const idle = cost({ ...row, ran: false });
    const figures = [cost(row)];
    if (row.operations !== null) figures.push(`${row.operations} ops`);
    if (isOfAnother(row)) figures.push(`option ${row.option}`);
    const sought = this.#named().includes(row) ? " trl-sought" : "";
    const name = html("span", { class: `trl-name${sought}` }, row.name);
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
        title: row.ran ? row.summary + (row.known ? KNOWN : "") : `${row.name} is ${idle}`,
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
      "aria-label": isOfAnother(row)
        ? `${row.option}, which also switches ${row.name}`
        : `run ${placeOf(row)}`,
      "data-key": `switch-${placeOf(row)}`,
      title: `${row.option}: ${row.is_on ? "on" : "off"}${isOfAnother(row) ? WITH : ""}`,
    });
    box.checked = row.is_on === true;
    box.addEventListener("change", () => {
      const value = box.checked ? row.on : row.off;
      this.send({ kind: "options", changes: { [row.option!]: value } });
    });
    return box;
  }
}

/** Whether a pass is switched by the option of another pass. */
function isOfAnother(row: StageRow): boolean {
  return row.option !== null && row.option !== placeOf(row);
}

/** The common key of two alternative passes, on which the focus stays. */
function placeOf(row: StageRow): string {
  return row.name === "separate" ? "fuse" : row.name;
}
