// Values pane: heat maps of the selected tensors while the run is paused.
import { draw } from "../draw/draw";
import { values } from "../draw/values";
import { createElement } from "../shared/markup";
import type { Send } from "../shared/pane";
import { Panel } from "../shared/panel";
import type { Selection } from "../shared/selection";
import type { ValuesView } from "../models";

export class ValuesPane extends Panel<ValuesView | null> {
  #model: ValuesView | null = null;

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "values", "Values");
    this.offerPictures();
    this.draw(null);
  }

  override draw(model: ValuesView | null): void {
    this.#model = model;
    this.root.hidden = !model;
    this.note.textContent = model?.at ?? "";
    this.body.replaceChildren(...(model ? [createElement(values(model))] : []));
  }

  override picture(): string | null {
    return this.#model && draw(this.#model, "");
  }
}
