// Selection and instant shared by all panes of a widget. A selection is a set of operation ids of any stages.
// It marks the items with some of these ids, or with ids of their ancestors and descendants. Siblings are not
// relatives: an operation fused with a selected one is not marked, but their kernel is. Selecting a tensor
// selects its operation, narrowed to one output.

/** For each operation id, the ids of its origins in the previous stage. */
export type Parents = Readonly<Record<string, readonly number[]>>;

/** Kind of a change: the selected ids (or their relatives), the instant, or the visible range of instants. */
export type Change = "ids" | "instant" | "range";

/** Instants from the first to the second, which is exclusive; not necessarily whole numbers. */
export type Range = readonly [number, number];

/** Output of a statement; the operation that computes it is the first of `op_ids`. */
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
  #range: Range | null = null;
  #parents = new Map<number, readonly number[]>();
  #children = new Map<number, number[]>();
  #kernels: Parents = {};
  #known = new WeakMap<readonly number[], readonly number[]>();
  #listeners = new Set<Listener>();
  #running: ReadonlySet<number> = new Set();
  #elsewhere: ReadonlySet<number> = new Set(); // operations in kernels that do not run now
  #runs: (instant: number) => readonly number[] = () => [];

  /** The selected ids, in the order of selection. */
  get ids(): ReadonlySet<number> {
    return this.#ids;
  }

  /** The selected ids with their ancestors and descendants. */
  get related(): ReadonlySet<number> {
    return this.#related;
  }

  /** The position of an executed point in the drawn turn; null for none. */
  get instant(): number | null {
    return this.#instant;
  }

  /** The visible range of the time axes; null for the whole turn. */
  get range(): Range | null {
    return this.#range;
  }

  /** The selected tensors, by operation and output. */
  get tensors(): readonly Tensor["tensor"][] {
    return [...this.#tensors.values()].map(({ tensor }) => tensor);
  }

  /** Replace the selection by these operations, some of which are `tensors`. */
  choose(ids: Iterable<number>, tensors: Iterable<Tensor> = []): void {
    const next = new Set(ids);
    const narrowed = new Map([...tensors].map((one) => [String(one.tensor), one]));
    if (alike(next, this.#ids) && alike(narrowed, this.#tensors)) return;
    this.#ids = next;
    this.#tensors = narrowed;
    this.#relate();
  }

  /** Handle a click on a tensor; see `click`. */
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

  /** Whether a tensor is marked: it is selected, or its operation is. */
  holds(one: Tensor): boolean {
    const behind = one.op_ids[0]!;
    const narrowed = [...this.#tensors.values()].some((other) => of(other, behind));
    return narrowed ? this.#tensors.has(String(one.tensor)) : this.#related.has(behind);
  }

  /** Whether an item with these operations reads a selected tensor. */
  reads(ids: readonly number[]): boolean {
    return this.heads(ids).some((id) => this.#reading.has(id));
  }

  /** Add these operations to the selection, or remove them if all are selected. */
  toggle(ids: readonly number[]): void {
    const next = new Set(this.#ids);
    if (ids.every((id) => next.has(id))) ids.forEach((id) => next.delete(id));
    else ids.forEach((id) => next.add(id));
    this.choose(next);
  }

  /** Handle a click on an item: select only it, or add it with shift or control. */
  click(ids: readonly number[], more = false): void {
    const heads = this.heads(ids);
    if (more) this.toggle(heads);
    else this.choose(this.isExactly(ids) ? [] : heads);
  }

  /** Set the instant, or null for none; the visible range moves with it. */
  at(instant: number | null): void {
    if (instant === this.#instant) return;
    this.#instant = instant;
    this.#run();
    if (instant === null || !this.#range) return;
    const [from, to] = this.#range;
    if (instant < from) this.zoom([instant, instant + to - from]);
    else if (instant + 1 > to) this.zoom([instant + 1 - (to - from), instant + 1]);
  }

  /** Set the visible range of the time axes; null for the whole turn. */
  zoom(range: Range | null): void {
    if (String(range) === String(this.#range)) return;
    this.#range = range;
    this.#tell("range");
  }

  /** Set the function from instants to running operations. */
  follow(runs: (instant: number) => readonly number[]): void {
    this.#runs = runs;
    this.#run();
  }

  /**
   * Whether an item with these operations runs at the instant: one of its operations runs and is in no other
   * kernel, or all of them run.
   */
  runs(ids: readonly number[]): boolean {
    const heads = this.heads(ids);
    if (heads.some((id) => this.#running.has(id) && !this.#elsewhere.has(id))) return true;
    return heads.length > 0 && heads.every((id) => this.#running.has(id));
  }

  /**
   * Set the lineage: `parents` contains every id whose only parent is not itself, and `kernels` the
   * operations inside each kernel.
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

  /** Whether an item with these operations is marked. */
  marks(ids: readonly number[]): boolean {
    return this.heads(ids).some((id) => this.#related.has(id));
  }

  /** Whether an item is the whole selection. */
  isExactly(ids: readonly number[]): boolean {
    const heads = this.heads(ids);
    return heads.length === this.#ids.size && heads.every((id) => this.#ids.has(id));
  }

  /** Call `listener` after every change, until the returned function is called. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * The operations of an item without those inside its kernels: an operation fused into several kernels does
   * not make these relatives.
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
    this.#related = this.relatives(this.#ids);
    this.#reading = this.relatives([...this.#tensors.values()].flatMap((one) => one.read_by));
    this.#tell("ids");
  }

  #run(): void {
    const now = this.#instant === null ? [] : this.#runs(this.#instant);
    const others = Object.keys(this.#kernels).map(Number);
    this.#running = this.relatives(now);
    this.#elsewhere = closure(
      others.filter((id) => !now.includes(id)),
      this.#parents,
    );
    this.#tell("instant");
  }

  /** Operations with their ancestors and descendants. */
  relatives(ids: Iterable<number>): ReadonlySet<number> {
    const given = [...ids];
    return new Set([...closure(given, this.#parents), ...closure(given, this.#children)]);
  }

  #tell(change: Change): void {
    for (const listener of [...this.#listeners]) listener(change);
  }
}

/** Whether an operation computes a tensor. */
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
  return found; // iteration over a set includes elements added meanwhile
}
