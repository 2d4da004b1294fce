// What is selected, and when: shared by all panes of a widget.
//
// A selection is a set of operation ids of any stages. What belongs to it are the items whose ids meet
// its own, or those of ancestors and descendants by lineage. Siblings are not relatives: what was
// fused with a selected operation is not marked because of it, its kernel is. A tensor is selected as
// the operation behind it, and narrows that to one of its outputs.

/** For each operation id, the ids of the stage before that it came from. */
export type Parents = Readonly<Record<string, readonly number[]>>;

/** What has changed: the ids that are selected (or what they are related to), or the instant. */
export type Change = "ids" | "instant";

/** An output of a statement: the operation behind it comes first in `op_ids`. */
export interface Tensor {
  readonly tensor: readonly [op: number, output: number];
  readonly op_ids: readonly number[];
  readonly read_by: readonly number[];
}

export type Listener = (change: Change) => void;

export class Selection {
  #ids: ReadonlySet<number> = new Set();
  #related: ReadonlySet<number> = new Set();
  #tensors: ReadonlyMap<string, Tensor> = new Map();
  #reading: ReadonlySet<number> = new Set();
  #instant: number | null = null;
  #parents = new Map<number, readonly number[]>();
  #children = new Map<number, number[]>();
  #kernels: Parents = {};
  #known = new WeakMap<readonly number[], readonly number[]>();
  #listeners = new Set<Listener>();
  #running: ReadonlySet<number> = new Set();
  #elsewhere: ReadonlySet<number> = new Set(); // what is in kernels that do not
  #runs: (instant: number) => readonly number[] = () => [];

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

  /** The tensors that were selected, by operation and output. */
  get tensors(): readonly Tensor["tensor"][] {
    return [...this.#tensors.values()].map(({ tensor }) => tensor);
  }

  /** Select these operations, of which some are `tensors`, instead of what was. */
  choose(ids: Iterable<number>, tensors: Iterable<Tensor> = []): void {
    const next = new Set(ids);
    const narrowed = new Map([...tensors].map((one) => [String(one.tensor), one]));
    if (alike(next, this.#ids) && alike(narrowed, this.#tensors)) return;
    this.#ids = next;
    this.#tensors = narrowed;
    this.#relate();
  }

  /** What a click on a tensor means; see `click`. */
  pick(one: Tensor, more = false): void {
    const key = String(one.tensor);
    const others = [...this.#tensors.values()].filter(({ tensor }) => String(tensor) !== key);
    const was = others.length < this.#tensors.size;
    const behind = one.op_ids[0]!;
    const rest = [...this.#ids].filter((id) => id !== behind || others.some((o) => of(o, id)));
    if (more) this.choose(was ? rest : [...rest, behind], was ? others : [...others, one]);
    else if (was && this.#ids.size === 1 && !others.length) this.choose([]);
    else this.choose([behind], [one]);
  }

  /** Whether a tensor is to be marked: it was selected, or an operation behind all of its kind. */
  holds(one: Tensor): boolean {
    const behind = one.op_ids[0]!;
    const narrowed = [...this.#tensors.values()].some((other) => of(other, behind));
    return narrowed ? this.#tensors.has(String(one.tensor)) : this.#related.has(behind);
  }

  /** Whether an item that stands for these operations reads a tensor that was selected. */
  reads(ids: readonly number[]): boolean {
    return this.heads(ids).some((id) => this.#reading.has(id));
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
    const heads = this.heads(ids);
    if (more) this.toggle(heads);
    else this.choose(this.isExactly(ids) ? [] : heads);
  }

  /** Show an instant, or none. */
  at(instant: number | null): void {
    if (instant === this.#instant) return;
    this.#instant = instant;
    this.#run();
  }

  /** Take over what runs at each instant. */
  follow(runs: (instant: number) => readonly number[]): void {
    this.#runs = runs;
    this.#run();
  }

  /**
   * Whether an item that stands for these operations runs at the instant: what of it is in no other
   * kernel does, or all of it.
   */
  runs(ids: readonly number[]): boolean {
    const heads = this.heads(ids);
    if (heads.some((id) => this.#running.has(id) && !this.#elsewhere.has(id))) return true;
    return heads.length > 0 && heads.every((id) => this.#running.has(id));
  }

  /**
   * Take over who came from whom: `parents` names every id that is not its own only parent, and
   * `kernels` what is inside each kernel.
   */
  descend(parents: Parents, kernels: Parents = {}): void {
    this.#parents.clear();
    this.#children.clear();
    this.#kernels = kernels;
    this.#known = new WeakMap();
    for (const [key, ids] of Object.entries(parents)) this.#adopt(Number(key), ids);
    for (const [key, ids] of Object.entries(kernels)) this.#adopt(Number(key), ids);
    this.#relate();
  }

  /** Whether an item that stands for these operations is to be marked. */
  marks(ids: readonly number[]): boolean {
    return this.heads(ids).some((id) => this.#related.has(id));
  }

  /** Whether an item alone was selected. */
  isExactly(ids: readonly number[]): boolean {
    const heads = this.heads(ids);
    return heads.length === this.#ids.size && heads.every((id) => this.#ids.has(id));
  }

  /** Call `listener` after every change, until the function that is returned is called. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * An item's operations without those inside its kernels: what was fused into several kernels does not
   * make these relatives.
   */
  heads(ids: readonly number[]): readonly number[] {
    const known = this.#known.get(ids);
    if (known) return known;
    const inside = new Set(ids.flatMap((id) => this.#kernels[id] ?? []));
    const heads = inside.size ? ids.filter((id) => !inside.has(id)) : ids;
    this.#known.set(ids, heads);
    return heads;
  }

  #adopt(child: number, parents: readonly number[]): void {
    const all = new Set([...(this.#parents.get(child) ?? []), ...parents]);
    this.#parents.set(child, [...all]);
    for (const id of parents) {
      const known = this.#children.get(id);
      if (!known) this.#children.set(id, [child]);
      else if (!known.includes(child)) known.push(child);
    }
  }

  #relate(): void {
    this.#related = this.#relatives(this.#ids);
    this.#reading = this.#relatives([...this.#tensors.values()].flatMap((one) => one.read_by));
    this.#tell("ids");
  }

  #run(): void {
    const now = this.#instant === null ? [] : this.#runs(this.#instant);
    const others = Object.keys(this.#kernels).map(Number);
    this.#running = this.#relatives(now);
    this.#elsewhere = closure(
      others.filter((id) => !now.includes(id)),
      this.#parents,
    );
    this.#tell("instant");
  }

  #relatives(ids: Iterable<number>): ReadonlySet<number> {
    const given = [...ids];
    return new Set([...closure(given, this.#parents), ...closure(given, this.#children)]);
  }

  #tell(change: Change): void {
    for (const listener of [...this.#listeners]) listener(change);
  }
}

/** Whether an operation is the one behind a tensor. */
function of({ op_ids }: Tensor, id: number): boolean {
  return op_ids[0] === id;
}

type Keys<K> = ReadonlySet<K> | ReadonlyMap<K, unknown>;

function alike<K>(a: Keys<K>, b: Keys<K>): boolean {
  return a.size === b.size && [...a.keys()].every((key) => b.has(key));
}

function closure(
  ids: Iterable<number>,
  next: ReadonlyMap<number, readonly number[]>,
): ReadonlySet<number> {
  const found = new Set(ids);
  for (const id of found) for (const other of next.get(id) ?? []) found.add(other);
  return found; // a set's iteration also visits what is added on the way
}
