// Common parts of the explorer's panes: title, controls, search, and export of pictures.
import type { Shape } from "../draw/shapes";
import { keys } from "./keyboard";
import { html, createElement } from "./markup";
import { Pane, type Send } from "./pane";
import css from "./panel.css";
import { pictureButtons } from "./picture";
import { SearchField, type SearchItems } from "./search_field";
import type { Selection } from "./selection";

const TYPED = "textarea, input:not([type=range], [type=checkbox])";

/** A pane with a title bar; subclasses draw into `body`. */
export abstract class Panel<Model> extends Pane<Model> {
  protected readonly body = html("div", { class: "trl-body" });
  /** Controls of the pane, between its title and the export buttons. */
  protected readonly tools = html("div", { class: "trl-tools" });
  protected readonly note = html("span", { class: "trl-note" });
  /** Width of the body in pixels, set by `onWidth`. */
  protected width = 0;
  #search: SearchField | null = null;

  constructor(
    host: HTMLElement,
    selection: Selection,
    send: Send,
    readonly name: string,
    title: string,
    style = "",
  ) {
    super(host, selection, send, name, css + style);
    this.root.setAttribute("role", "region");
    this.root.setAttribute("aria-label", title);
    const bar = html("div", { class: "trl-bar" }, html("h3", {}, title), this.note, this.tools);
    this.root.append(bar, this.body);
  }

  /** Add controls before the others. */
  addTools(...tools: HTMLElement[]): void {
    this.tools.prepend(...tools);
  }

  /** The pane as a separate SVG picture; null while it is empty. */
  abstract picture(): string | null;

  /** Add buttons that save the pane's picture. */
  protected offerPictures(): void {
    this.tools.append(...pictureButtons(this.name, () => this.picture()));
  }

  /** Add a search field, which the key / enters. */
  protected offerSearch(label: string, items: SearchItems): SearchField {
    const field = new SearchField(label, items);
    this.#search = field;
    this.tools.prepend(field.count, field.input);
    keys(this.root, ({ target }) => ({
      "/": (target as Element).matches(TYPED) ? undefined : () => field.input.focus(),
    }));
    return field;
  }

  /** Call `act` when the width of the body has changed. */
  protected onWidth(act: () => void): void {
    this.onResize(this.body, () => {
      const width = Math.floor(this.body.clientWidth);
      if (width === this.width || !width) return;
      this.width = width;
      act();
    });
  }

  /**
   * Mark the elements of items, whose attribute `data-name` is an id: selected, found, and faint while others are.
   */
  protected markItems(name: string, selected: ReadonlySet<number>): void {
    const hits = this.#search?.hits;
    for (const one of this.root.querySelectorAll<HTMLElement>(`[data-${name}]`)) {
      const id = Number(one.dataset[name]);
      const isSelected = selected.has(id);
      const isFound = !!hits?.has(id);
      one.classList.toggle("trl-selected", isSelected);
      one.classList.toggle("trl-found", isFound);
      const isFaint = (selected.size > 0 && !isSelected) || (!!hits && !isFound);
      one.classList.toggle("trl-faint", isFaint);
      if (one.role === "option") one.ariaSelected = String(isSelected);
    }
  }

  /** Scroll the pane, never the page, to a row; `margin` pixels of its neighbours are visible too. */
  protected reveal(row: HTMLElement | undefined, margin = 8): void {
    if (!row || row.hidden) return;
    const { scrollTop, clientHeight } = this.body;
    const [top, bottom] = [row.offsetTop, row.offsetTop + row.offsetHeight];
    if (top < scrollTop) this.body.scrollTop = top - margin;
    else if (bottom > scrollTop + clientHeight) {
      this.body.scrollTop = bottom - clientHeight + margin;
    }
  }

  /** End the search; false if there is none. */
  protected endSearch(): boolean {
    return this.#search?.clear() ?? false;
  }

  protected override leave(): void {
    if (!this.endSearch()) super.leave();
  }
}

/** Draw shapes into an element of a size in pixels. */
export function fill(
  element: SVGSVGElement,
  width: number,
  height: number,
  shapes: readonly (Shape | SVGElement)[],
): void {
  element.setAttribute("width", String(width));
  element.setAttribute("height", String(height));
  element.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const elements = shapes.map((one) => (one instanceof Element ? one : createElement(one)));
  element.replaceChildren(...elements);
}
