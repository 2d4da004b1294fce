// Time axis shared by all views: the executed points of a turn, in order.
import type { Numbers } from "./buffers";
import type { IterationSpaceView, Statement, Turn } from "../models";

/** The statement, point and line of each instant. */
export class Instants {
  readonly #point: Int32Array; // of a marked instant, among the points of its statement
  readonly #first = new Map<number, number>();

  constructor(readonly model: IterationSpaceView) {
    const { at, line } = model.instants;
    this.#point = new Int32Array(at.length);
    for (const { times } of model.statements) {
      times.forEach((one, k) => (this.#point[this.#place(one)] = k));
    }
    line.forEach((one, k) => {
      if (!this.#first.has(one)) this.#first.set(one, at[k]!);
    });
  }

  /** The index of an instant among the marked ones; a long turn has unmarked instants. */
  #place(at: number): number {
    return place(this.model.instants.at, at);
  }

  get count(): number {
    return this.model.turn.count;
  }

  statement(at: number): Statement | undefined {
    return this.model.statements[this.model.instants.statement[this.#place(at)] ?? -1];
  }

  /** The line of the loop nest that runs at an instant; -1 for none. */
  line(at: number): number {
    return this.model.instants.line[this.#place(at)] ?? -1;
  }

  /** The first instant of a line; -1 if it does not run in the turn. */
  firstOfLine(line: number): number {
    return this.#first.get(line) ?? -1;
  }

  /** `step(i = 1, t = 3)`. */
  text(at: number): string {
    const statement = this.statement(at);
    if (!statement) return "";
    const k = this.#point[this.#place(at)]!;
    const point = Object.entries(statement.coordinates).map(([dim, xs]) => `${dim} = ${xs[k]}`);
    return `${statement.name}(${point.join(", ")})`;
  }

  /** The nearest marked instant at which a statement runs; `at` if there is none. */
  nearOf(op: number, at: number): number {
    const times = this.model.statements.find(({ op_id }) => op_id === op)?.times;
    if (!times?.length) return at;
    const k = place(times, at);
    const next = times[k + 1];
    return next !== undefined && next - at < at - times[k]! ? next : times[k]!;
  }

  /** The nearest marked instant, or the one `by` marked instants further. */
  near(at: number, by = 0): number {
    const { at: marked } = this.model.instants;
    let k = this.#place(at);
    if (marked[k + 1]! - at < at - marked[k]!) k++;
    return marked[Math.min(Math.max(k + by, 0), marked.length - 1)] ?? 0;
  }
}

/** The index of the last number that does not exceed a value; 0 if all do. The numbers ascend. */
export function place(rising: Numbers, value: number): number {
  let [low, high] = [0, rising.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (rising[middle]! <= value) low = middle;
    else high = middle;
  }
  return low;
}

/** The turn in words, or the reason that it is not drawn. */
export function about({ fixed, problem }: Turn): string {
  const held = Object.entries(fixed).map(([dim, value]) => `${dim} = ${value}`);
  return problem || (held.length ? `at ${held.join(", ")}` : "");
}
