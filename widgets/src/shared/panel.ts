// Common parts of the explorer's panes: title, buttons, and export of pictures.
import { html } from "./markup";
import { Pane, type Send } from "./pane";
import css from "./panel.css";
import { pictureButtons } from "./picture";
import type { Selection } from "./selection";

/** A pane with a title bar; subclasses draw into `body`. */
export abstract class Panel<Model> extends Pane<Model> {
  protected readonly body = html("div", { class: "trl-body" });
  /** Controls of the pane, between its title and the export buttons. */
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
}
