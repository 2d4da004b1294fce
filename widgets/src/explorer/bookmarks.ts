// Bookmarks: named positions in the explorer, each a stage, the selected operations and the instant.
import { button, html } from "../shared/markup";
import { Pane } from "../shared/pane";
import type { Selection } from "../shared/selection";

/** A position in the explorer. */
export interface Bookmark {
  readonly name: string;
  readonly stage: string;
  readonly ids: readonly number[];
  readonly instant: number | null;
}

/** A menu of bookmarks; `store` receives the changed list. */
export class Bookmarks extends Pane<readonly Bookmark[]> {
  #all: readonly Bookmark[] = [];
  readonly #name = html("input", { type: "text", "aria-label": "name of the bookmark" });
  readonly #list = html("div");

  constructor(
    host: HTMLElement,
    selection: Selection,
    private readonly stage: () => string,
    private readonly show: (stage: string) => void,
    private readonly store: (all: readonly Bookmark[]) => void,
  ) {
    super(host, selection, () => {}, "bookmarks");
    const add = html("button", { title: "add this stage, selection and instant" }, "add");
    const form = html("form", {}, this.#name, add);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#add();
    });
    const menu = html("div", { class: "trl-menu trl-layout-menu" }, this.#list, form);
    const box = html("details", {}, html("summary", {}, "bookmarks"), menu);
    box.addEventListener("toggle", () => (this.#name.placeholder = this.#describePosition()));
    this.root.append(box);
  }

  override draw(all: readonly Bookmark[]): void {
    this.#all = all;
    this.#list.replaceChildren(
      ...all.map((one, k) => {
        const look = { class: "trl-link", title: `in ${one.stage}` };
        const remove = () => this.store(all.filter((_, other) => other !== k));
        return html(
          "div",
          {},
          button(one.name, () => this.#go(one), look),
          button("×", remove, { label: `remove ${one.name}` }),
        );
      }),
    );
  }

  #add(): void {
    const { ids, instant } = this.selection;
    const name = this.#name.value.trim() || this.#describePosition();
    this.#name.value = "";
    this.store([...this.#all, { name, stage: this.stage(), ids: [...ids], instant }]);
  }

  #go({ stage, ids, instant }: Bookmark): void {
    this.show(stage);
    this.selection.choose(ids);
    this.selection.at(instant);
  }

  /** The name of the current position. */
  #describePosition(): string {
    const { ids, instant } = this.selection;
    const some = [...ids].slice(0, 3).map((id) => `%${id}`);
    const at = instant === null ? [] : [`instant ${instant}`];
    return [this.stage(), ...some, ...at].join(", ");
  }
}
