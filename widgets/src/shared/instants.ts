// The axis of time that all views share: the executed points of a turn, in order.
import type { Numbers } from "./buffers";
import type { IterationSpaceView, Statement, Turn } from "../models";

/** What runs at an instant, where, and in which line. */
export class Instants {
  readonly #point: Int32Array; // of a marked instant among its statement's points
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

  /** The place of an instant among those that are marked: of many instants, not all are. */
  #place(at: number): number {
    return place(this.model.instants.at, at);
  }

  get count(): number {
    return this.model.turn.count;
  }

  statement(at: number): Statement | undefined {
    return this.model.statements[this.model.instants.statement[this.#place(at)] ?? -1];
  }

  /** The line of the loop nest that runs at an instant; -1 where there is none. */
  line(at: number): number {
    return this.model.instants.line[this.#place(at)] ?? -1;
  }

  /** The first instant of a line; -1 where it does not run in the turn. */
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

  /** The marked instant that is nearest, or so many marked ones further. */
  near(at: number, by = 0): number {
    const { at: marked } = this.model.instants;
    let k = this.#place(at);
    if (marked[k + 1]! - at < at - marked[k]!) k++;
    return marked[Math.min(Math.max(k + by, 0), marked.length - 1)] ?? 0;
  }
}

/** Which of some rising numbers is the last that is not beyond another; the first where all are. */
export function place(rising: Numbers, value: number): number {
  let [low, high] = [0, rising.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (rising[middle]! <= value) low = middle;
    else high = middle;
  }
  return low;
}

/** Which turn it is; or why it is not drawn. */
export function about({ fixed, problem }: Turn): string {
  const held = Object.entries(fixed).map(([dim, value]) => `${dim} = ${value}`);
  return problem || (held.length ? `at ${held.join(", ")}` : "");
}
