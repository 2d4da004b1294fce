// Values pane: heat maps of the selected tensors while the run is paused.
import { draw } from "../draw/draw";
import { values } from "../draw/values";
import { createElement } from "../shared/markup";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import { formatCount } from "../shared/plot";
import type { Selection } from "../shared/selection";
import type { ValuesView } from "../models";

/** The first of the selected tensors; `more` others are not drawn. */
export type ValuesModel = ValuesView & { more: number };

export class ValuesPane extends Panel<ValuesModel | null> {
  #model: ValuesModel | null = null;

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "values", "Values");
    this.offerPictures();
    this.draw(null);
  }

  override draw(model: ValuesModel | null): void {
    this.#model = model;
    this.root.hidden = !model;
    const others = model?.more ? `; ${formatCount(model.more, "more tensor")}` : "";
    this.note.textContent = this.note.title = model ? model.at + others : "";
    this.body.replaceChildren(...(model ? [createElement(values(model))] : []));
  }

  override picture(): string | null {
    return this.#model && draw(this.#model, "");
  }
}
