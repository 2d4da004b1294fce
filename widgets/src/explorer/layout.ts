// Layout of the explorer: rows of panes with movable borders, hidden panes, full screen, and a second view.
import type { CostView } from "../models";
import { CostMeasure } from "../shared/cost";
import { button, html } from "../shared/markup";
import { Pane } from "../shared/pane";
import type { Selection } from "../shared/selection";

/** The panes of the explorer that can be hidden, with their names for users. */
const NAMES: Record<string, string> = {
  source: "source",
  graph: "graph",
  loops: "loop nest",
  time: "iteration space, memory",
  inspector: "inspector",
};
/** The rows of panes, by the class of the width; a narrow explorer has one column. */
const ROWS = {
  wide: [
    ["source", "graph", "loops"],
    ["time", "inspector"],
  ],
  medium: [["graph", "loops"], ["source", "inspector"], ["time"]],
  narrow: Object.keys(NAMES).map((name) => [name]),
};
type Width = keyof typeof ROWS;
const WIDE = 900; // least pixels
const MEDIUM = 700;
const LEAST = 0.15; // least share of a pane
const MOST = 3;
const DEFAULTS: Record<string, number> = { graph: 1.4, time: 1.6, "time+inspector": 1.2 };
const LINES = "source line";
const STORED = "timerl-explorer-layout";

/** Stored in the browser: hidden panes, and sizes of panes and rows relative to their neighbours. */
interface Arrangement {
  hidden: string[];
  shares: Record<string, number>;
}

/** Sent to the extension of JupyterLab, which opens the cell's output a second time. */
const BESIDE = "timerl-beside";

/** Arranges the cells of the panes in `main`; its controls are part of the settings, and one stop of Tab with them. */
export class Layout extends Pane<CostView> {
  /** The element of the rows. */
  readonly main = html("div", { class: "trl-main" });
  readonly #measure = html("select", {
    "aria-label": "colour by",
    title: "colour nodes and lines by their cost, or lines by the source lines that they compute",
  });
  #costs: CostView | null = null;
  readonly #menu = html("div", { class: "trl-menu trl-layout-menu" });
  #arrangement = stored();
  #width: Width = "wide";

  constructor(
    host: HTMLElement,
    selection: Selection,
    private readonly explorer: HTMLElement,
    private readonly cells: Readonly<Record<string, HTMLElement>>,
    private readonly colour: (cost: CostMeasure | null) => void,
    private readonly colourLines: (on: boolean) => void,
  ) {
    super(host, selection, () => {}, "layout");
    const beside = button(
      "new view",
      () => this.root.dispatchEvent(new CustomEvent(BESIDE, { bubbles: true })),
      {
        class: "trl-beside",
        title: "show this explorer a second time, next to the notebook",
        "aria-label": "new view",
      },
    );
    this.#measure.addEventListener("change", () => this.#paint());
    this.root.append(
      this.#measure,
      html("details", {}, html("summary", {}, "panes"), this.#menu),
      beside,
      button("full", () => void this.#fill(), {
        title: "full screen: fill the screen; Escape returns",
        "aria-label": "full screen",
      }),
    );
    this.onResize(explorer, () => this.#fitWidth());
    const full = () => this.#mark(document.fullscreenElement === explorer);
    document.addEventListener("fullscreenchange", full);
    this.onDispose(() => document.removeEventListener("fullscreenchange", full));
    const escape = ({ key }: KeyboardEvent) =>
      key === "Escape" && !document.fullscreenElement && this.#mark(false);
    // panes stop the keys that they receive
    explorer.addEventListener("keydown", escape, { capture: true });
    this.onDispose(() => explorer.removeEventListener("keydown", escape, { capture: true }));
    this.#arrange();
  }

  override draw(costs: CostView): void {
    this.#costs = costs;
    const { value } = this.#measure;
    const names = costs.measures.map(({ name }) => name);
    this.#measure.replaceChildren(
      html("option", { value: "" }, "no colours"),
      html("option", { value: LINES }, "colour by source line"),
      ...names.map((name) => html("option", { value: name }, `colour by ${name}`)),
    );
    this.#measure.value = names.includes(value) || value === LINES ? value : "";
    this.#paint();
  }

  #paint(): void {
    const found = this.#costs?.measures.find(({ name }) => name === this.#measure.value);
    this.colour(found ? new CostMeasure(found) : null);
    this.colourLines(this.#measure.value === LINES);
  }

  #fitWidth(): void {
    const width = this.explorer.clientWidth;
    const found = width >= WIDE ? "wide" : width >= MEDIUM ? "medium" : "narrow";
    if (!width || found === this.#width) return;
    this.#width = found;
    this.#arrange();
  }

  /** Put the cells into rows, with borders between the visible ones. */
  #arrange(): void {
    const isShown = (name: string) => !this.#arrangement.hidden.includes(name);
    const rows = ROWS[this.#width].map((names) => names.filter(isShown)).filter((r) => r.length);
    const made = rows.map((names) => {
      const row = html("div", { class: "trl-row", "data-share": names.join("+") });
      for (const name of names) {
        if (row.firstChild) row.append(this.#border("vertical"));
        row.append(this.cells[name]!);
      }
      return row;
    });
    const isColumn = this.#width === "narrow"; // its panes have a fixed height
    const parts = made.flatMap((row, k) =>
      k && !isColumn ? [this.#border("horizontal"), row] : [row],
    );
    const bodies = [...this.main.querySelectorAll(".trl-body, .trl-at-time")];
    const scrolled = bodies.map((one) => [one, one.scrollTop] as const);
    for (const name of Object.keys(NAMES)) if (!isShown(name)) this.cells[name]!.remove();
    this.main.replaceChildren(...parts);
    for (const [one, top] of scrolled) one.scrollTop = top; // moving an element resets it
    this.explorer.dataset.width = this.#width;
    this.#size();
    this.#list();
  }

  /** Apply the shares. */
  #size(): void {
    for (const part of this.main.querySelectorAll<HTMLElement>("[data-share]")) {
      part.style.flexGrow = String(this.#share(part.dataset.share!));
    }
  }

  #share(name: string): number {
    return this.#arrangement.shares[name] ?? DEFAULTS[name] ?? 1;
  }

  /** A border between two neighbours, moved by the pointer; the menu has sliders for the keyboard. */
  #border(orientation: "vertical" | "horizontal"): HTMLElement {
    const border = html("div", { class: `trl-border trl-${orientation}` });
    border.addEventListener("pointerdown", (down) => {
      if (down.button) return;
      const [before, after] = [border.previousElementSibling, border.nextElementSibling].map(
        (one) => one as HTMLElement,
      );
      const isVertical = orientation === "vertical";
      const size = (one: HTMLElement) => (isVertical ? one.offsetWidth : one.offsetHeight);
      const [first, second] = [before!.dataset.share!, after!.dataset.share!];
      const pixels = size(before!) + size(after!);
      const shares = this.#share(first) + this.#share(second);
      const start = size(before!);
      const origin = isVertical ? down.clientX : down.clientY;
      const move = (event: PointerEvent) => {
        const by = (isVertical ? event.clientX : event.clientY) - origin;
        const part = Math.min(1 - LEAST, Math.max(LEAST, (start + by) / pixels));
        const sizes = { [first]: part * shares, [second]: (1 - part) * shares };
        this.#arrangement.shares = { ...this.#arrangement.shares, ...sizes };
        this.#size();
      };
      border.setPointerCapture(down.pointerId);
      border.addEventListener("pointermove", move);
      border.addEventListener(
        "lostpointercapture",
        () => {
          border.removeEventListener("pointermove", move);
          this.#store({});
          this.#list();
        },
        { once: true },
      );
      down.preventDefault();
    });
    return border;
  }

  /** Fill the menu: a box and a size for each pane. */
  #list(): void {
    const rows = this.main.querySelectorAll<HTMLElement>(".trl-row");
    const isRow = (name: string) => name.includes("+");
    const sized = [...rows].map(({ dataset }) => dataset.share!).filter(isRow);
    const slider = (name: string, text: string) => {
      const size = html("input", {
        type: "range",
        min: LEAST,
        max: MOST,
        step: 0.05,
        value: this.#share(name),
        "aria-label": `size of ${text}`,
        hidden: this.#width === "narrow",
      });
      size.addEventListener("input", () => {
        this.#store({ shares: { ...this.#arrangement.shares, [name]: Number(size.value) } });
        this.#size();
      });
      return size;
    };
    const panes = Object.entries(NAMES).map(([name, text]) => {
      const box = html("input", { type: "checkbox", "data-key": `pane-${name}` });
      box.defaultChecked = !this.#arrangement.hidden.includes(name);
      box.addEventListener("change", () => {
        const others = this.#arrangement.hidden.filter((one) => one !== name);
        this.#store({ hidden: box.checked ? others : [...others, name] });
        this.#arrange();
        this.#menu.querySelector<HTMLElement>(`[data-key="pane-${name}"]`)!.focus();
      });
      return html("div", {}, html("label", {}, box, text), slider(name, `the pane ${text}`));
    });
    const reset = button("reset", () => {
      this.#store({ hidden: [], shares: {} });
      this.#arrange();
    });
    const heights = sized.map((name, k) =>
      html("div", {}, `height of row ${k + 1}`, slider(name, `row ${k + 1}`)),
    );
    this.#menu.replaceChildren(...panes, ...heights, reset);
  }

  #store(change: Partial<Arrangement>): void {
    this.#arrangement = { ...this.#arrangement, ...change };
    try {
      localStorage.setItem(STORED, JSON.stringify(this.#arrangement));
    } catch {
      // the page may not store anything
    }
  }

  /** Fill the screen, or the window where the browser refuses. */
  async #fill(): Promise<void> {
    if (document.fullscreenElement === this.explorer) return document.exitFullscreen();
    if (this.explorer.classList.contains("trl-full")) return this.#mark(false);
    try {
      await this.explorer.requestFullscreen();
    } catch {
      this.#mark(true);
    }
  }

  #mark(isFull: boolean): void {
    this.explorer.classList.toggle("trl-full", isFull);
  }
}

/** The arrangement of the last session; the default one if there is none, or if it is not valid. */
function stored(): Arrangement {
  try {
    const { hidden, shares } = JSON.parse(localStorage.getItem(STORED) ?? "") as Arrangement;
    const isKnown = (name: string) => Object.hasOwn(NAMES, name);
    const valid = Object.entries(shares).filter(([, x]) => x >= LEAST / 4 && x <= 4 * MOST);
    return { hidden: hidden.filter(isKnown), shares: Object.fromEntries(valid) };
  } catch {
    return { hidden: [], shares: {} };
  }
}
