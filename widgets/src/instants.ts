// The axis of time that all views share: the executed points of a turn, in order.
import type { Numbers } from "./buffers";

/** What all views of a turn say of it. */
export interface Turn {
  dim: string | null;
  size: number;
  fixed: Record<string, number>;
  bounds: Record<string, number>;
  program_bounds: Record<string, number>;
  reduced: string[];
  count: number;
}

export interface SpaceStatement {
  op_id: number;
  op_ids: number[];
  name: string;
  region: string[];
  role: string;
  each: boolean;
  times: Numbers;
  coordinates: Record<string, Numbers>;
}

/** What `IterationSpaceView.to_json` gives. */
export interface SpaceModel {
  turn: Turn;
  statements: SpaceStatement[];
  instants: { statement: Numbers; line: Numbers };
}

/** What runs at an instant, where, and in which line. */
export class Instants {
  readonly #place: Int32Array; // of an instant among its statement's points
  readonly #first = new Map<number, number>();

  constructor(readonly model: SpaceModel) {
    this.#place = new Int32Array(this.count);
    for (const { times } of model.statements) times.forEach((at, k) => (this.#place[at] = k));
    model.instants.line.forEach((line, at) => {
      if (!this.#first.has(line)) this.#first.set(line, at);
    });
  }

  get count(): number {
    return this.model.turn.count;
  }

  statement(at: number): SpaceStatement | undefined {
    return this.model.statements[this.model.instants.statement[at] ?? -1];
  }

  /** The line of the loop nest that runs at an instant; -1 where there is none. */
  line(at: number): number {
    return this.model.instants.line[at] ?? -1;
  }

  /** The first instant of a line; -1 where it does not run in the turn. */
  firstOfLine(line: number): number {
    return this.#first.get(line) ?? -1;
  }

  /** `step(i = 1, t = 3)`. */
  text(at: number): string {
    const statement = this.statement(at);
    if (!statement) return "";
    const k = this.#place[at]!;
    const point = Object.entries(statement.coordinates).map(([dim, xs]) => `${dim} = ${xs[k]}`);
    return `${statement.name}(${point.join(", ")})`;
  }

  /** An instant within the axis. */
  clamp(at: number): number {
    return Math.min(Math.max(Math.round(at), 0), Math.max(this.count - 1, 0));
  }
}

/** How a turn that stands for a run is introduced. */
export function about(turn: Turn): string {
  const fixed = Object.entries(turn.fixed).map(([dim, value]) => `${dim} = ${value}`);
  const drawn = turn.reduced.map(
    (name) => `${name} = ${turn.bounds[name]} of ${turn.program_bounds[name]}`,
  );
  const parts = [
    fixed.length ? `at ${fixed.join(", ")}` : "",
    drawn.length ? `drawn for ${drawn.join(", ")}` : "",
  ];
  return parts.filter(Boolean).join("; ");
}
