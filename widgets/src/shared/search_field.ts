// Search field of a pane: finds items by their texts, and moves between them.
import { html } from "./markup";

/** The items of a pane, by their ids. An item is found if its text contains the query, or by `find`. */
export interface SearchItems {
  /** The id and the text of each item. */
  items?(): readonly (readonly [id: number, text: string])[];
  /** The ids of the items that a query finds. */
  find?(query: string): readonly number[];
  /** Mark the items in `hits`. */
  mark(): void;
  /** Go to a found item. */
  go(id: number): void;
}

export class SearchField {
  readonly input: HTMLInputElement;
  readonly count = html("output", { class: "trl-hits" });
  /** The ids of the found items; null without a search. */
  hits: ReadonlySet<number> | null = null;
  #at = -1;

  constructor(
    label: string,
    private readonly searched: SearchItems,
  ) {
    this.input = html("input", { type: "search", placeholder: "find", "aria-label": label });
    this.input.addEventListener("input", () => this.refresh());
    this.input.addEventListener("keydown", ({ key, shiftKey }) => {
      if (key === "Enter") this.#step(shiftKey ? -1 : 1);
    });
  }

  /** Search again, after a change of the items. */
  refresh(): void {
    const query = this.input.value.trim().toLowerCase();
    const { items, find } = this.searched;
    const contains = ([, text]: readonly [number, string]) => text.toLowerCase().includes(query);
    const found = find
      ? find(query)
      : items!()
          .filter(contains)
          .map(([id]) => id);
    this.hits = query ? new Set(found) : null;
    this.#tell();
    this.searched.mark();
  }

  /** End the search; false if there is none. */
  clear(): boolean {
    if (!this.input.value) return false;
    this.input.value = "";
    this.refresh();
    return true;
  }

  #step(by: number): void {
    const ids = [...(this.hits ?? [])];
    if (!ids.length) return;
    const place = ids.indexOf(this.#at);
    this.#at = ids.at(place >= 0 ? (place + by) % ids.length : by > 0 ? 0 : -1)!;
    this.#tell();
    this.searched.go(this.#at);
  }

  #tell(): void {
    const ids = [...(this.hits ?? [])];
    const place = ids.indexOf(this.#at);
    const count = ids.length.toLocaleString("en");
    this.count.textContent = !this.hits ? "" : place < 0 ? count : `${place + 1} of ${count}`;
  }
}
