// Search field of a pane: counts and marks its hits, and moves between them.
import { html } from "./markup";

/** The searched items of a pane, by their position. */
export interface Searched {
  /** The texts of all items. */
  texts(): readonly string[];
  /** Mark the hits; null without a search. */
  mark(hits: ReadonlySet<number> | null): void;
  /** Go to a hit. */
  go(item: number): void;
}

export class SearchField {
  readonly input: HTMLInputElement;
  readonly count = html("output", { class: "trl-hits" });
  #at = -1;

  constructor(
    label: string,
    private readonly items: Searched,
  ) {
    this.input = html("input", { type: "search", placeholder: "find", "aria-label": label });
    this.input.addEventListener("input", () => this.refresh());
    this.input.addEventListener("keydown", ({ key, shiftKey }) => {
      if (key === "Enter") this.#step(shiftKey ? -1 : 1);
    });
  }

  /** Search again, after a change of the items. */
  refresh(): void {
    const hits = this.#hits();
    if (!hits.includes(this.#at)) this.#at = -1;
    this.items.mark(this.input.value ? new Set(hits) : null);
    this.#tell(hits);
  }

  /** End the search; false if there is none. */
  clear(): boolean {
    if (!this.input.value) return false;
    this.input.value = "";
    this.refresh();
    return true;
  }

  #hits(): number[] {
    const wanted = this.input.value.toLowerCase();
    if (!wanted) return [];
    const texts = this.items.texts();
    return texts.flatMap((text, k) => (text.toLowerCase().includes(wanted) ? [k] : []));
  }

  #step(by: number): void {
    const hits = this.#hits();
    if (!hits.length) return;
    const place = hits.indexOf(this.#at);
    const next = place < 0 ? (by > 0 ? 0 : -1) : (place + by) % hits.length;
    this.#at = hits.at(next)!;
    this.#tell(hits);
    this.items.go(this.#at);
  }

  #tell(hits: readonly number[]): void {
    const place = hits.indexOf(this.#at);
    const of = hits.length.toLocaleString("en");
    this.count.textContent = !this.input.value ? "" : place < 0 ? of : `${place + 1} of ${of}`;
  }
}
