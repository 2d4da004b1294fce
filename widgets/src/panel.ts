// What the explorer's panes have in common: a title, buttons beside it, and pictures to take away.
import { html } from "./markup";
import { Pane, type Send } from "./pane";
import css from "./panel.css";
import { pictureButtons } from "./picture";
import type { Selection } from "./selection";

/** A pane with a title bar; what it draws goes into `body`. */
export abstract class Panel<Model> extends Pane<Model> {
  protected readonly body = html("div", { class: "trl-body" });
  /** Controls of the pane itself, between its title and the export buttons. */
  protected readonly tools = html("div", { class: "trl-tools" });
  protected readonly note = html("span", { class: "trl-note" });

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

  /** The pane as a picture of its own, or null while there is nothing to show. */
  abstract picture(): SVGSVGElement | null;

  /** Add buttons that save the pane's picture. */
  protected offerPictures(): void {
    this.tools.append(...pictureButtons(this.name, () => this.picture()));
  }
}

/** Keep what is typed in an element from the notebook; its shortcuts, such as saving, stay its own. */
export function keepKeys(element: Element): void {
  element.addEventListener("keydown", (event) => {
    const { ctrlKey, metaKey, altKey } = event as KeyboardEvent;
    if (!ctrlKey && !metaKey && !altKey) event.stopPropagation();
  });
}

/** The keys that a pane answers: they are not the notebook's then. */
export function keys(
  element: Element,
  acts: (event: KeyboardEvent) => Record<string, (() => void) | undefined>,
): void {
  element.addEventListener("keydown", (event) => {
    const pressed = event as KeyboardEvent;
    if (pressed.ctrlKey || pressed.metaKey || pressed.altKey) return;
    const act = acts(pressed)[pressed.key];
    if (!act) return;
    pressed.preventDefault();
    pressed.stopPropagation();
    act();
  });
}
