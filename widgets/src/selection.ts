// What is selected, and when: shared by all panes of a widget.
//
// A selection is a set of operation ids of any stages. What belongs to it are the items whose ids meet
// its own, or those of ancestors and descendants by lineage. Siblings are not relatives: what was
// fused with a selected operation is not marked because of it, its kernel is.

/** For each operation id, the ids of the stage before that it came from. */
export type Parents = Readonly<Record<string, readonly number[]>>;

/** What has changed: the ids that are selected (or what they are related to), or the instant. */
export type Change = "ids" | "instant";

export type Listener = (change: Change) => void;

export class Selection {
  #ids: ReadonlySet<number> = new Set();
  #related: ReadonlySet<number> = new Set();
  #instant: number | null = null;
  #parents = new Map<number, readonly number[]>();
  #children = new Map<number, number[]>();
  #listeners = new Set<Listener>();

  /** The ids that were selected, in the order in which they were. */
  get ids(): ReadonlySet<number> {
    return this.#ids;
  }

  /** These ids with their ancestors and descendants. */
  get related(): ReadonlySet<number> {
    return this.#related;
  }

  /** The position of an executed point in the order of the drawn turn; null where none is shown. */
  get instant(): number | null {
    return this.#instant;
  }

  /** Select these operations instead of what was. */
  choose(ids: Iterable<number>): void {
    const next = new Set(ids);
    if (next.size === this.#ids.size && [...next].every((id) => this.#ids.has(id))) return;
    this.#ids = next;
    this.#relate();
  }

  /** Select these operations as well; where all of them are, let go of them. */
  toggle(ids: readonly number[]): void {
    const next = new Set(this.#ids);
    if (ids.every((id) => next.has(id))) ids.forEach((id) => next.delete(id));
    else ids.forEach((id) => next.add(id));
    this.choose(next);
  }

  /** What a click on an item means: select it alone, with shift or control as well. */
  click(ids: readonly number[], more = false): void {
    if (more) this.toggle(ids);
    else this.choose(this.isExactly(ids) ? [] : ids);
  }

  /** Show an instant, or none. */
  at(instant: number | null): void {
    if (instant === this.#instant) return;
    this.#instant = instant;
    this.#tell("instant");
  }

  /** Take over who came from whom; `parents` names every id that is not its own only parent. */
  descend(parents: Parents): void {
    this.#parents.clear();
    this.#children.clear();
    for (const [key, ids] of Object.entries(parents)) {
      const child = Number(key);
      this.#parents.set(child, ids);
      for (const id of ids) {
        const known = this.#children.get(id);
        if (known) known.push(child);
        else this.#children.set(id, [child]);
      }
    }
    this.#relate();
  }

  /** Whether an item that stands for these operations is to be marked. */
  marks(ids: Iterable<number>): boolean {
    for (const id of ids) if (this.#related.has(id)) return true;
    return false;
  }

  isExactly(ids: readonly number[]): boolean {
    return ids.length === this.#ids.size && ids.every((id) => this.#ids.has(id));
  }

  /** Call `listener` after every change, until the function that is returned is called. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #relate(): void {
    const up = closure(this.#ids, this.#parents);
    this.#related = new Set([...up, ...closure(this.#ids, this.#children)]);
    this.#tell("ids");
  }

  #tell(change: Change): void {
    for (const listener of [...this.#listeners]) listener(change);
  }
}

function closure(
  ids: Iterable<number>,
  next: ReadonlyMap<number, readonly number[]>,
): ReadonlySet<number> {
  const found = new Set(ids);
  for (const id of found) for (const other of next.get(id) ?? []) found.add(other);
  return found; // a set's iteration also visits what is added on the way
}
