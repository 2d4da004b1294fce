// The cost of operations by one measure, as a colour of nodes and lines.
import type { Measure } from "../models";
import { formatBytes, formatCount, formatSeconds } from "./plot";

/** A cost per group of operations, such as that of a node. */
export class CostMeasure {
  readonly #rowsOf = new Map<number, number[]>();

  constructor(readonly measure: Measure) {
    measure.rows.forEach((row, k) => {
      for (const id of row.op_ids) this.#rowsOf.set(id, [...(this.#rowsOf.get(id) ?? []), k]);
    });
  }

  /** The sum over the tensors or kernels that belong to some operations. */
  of(ids: readonly number[]): number {
    const found = new Set(ids.flatMap((id) => this.#rowsOf.get(id) ?? []));
    // a constant may be part of several kernels: a node for a kernel has the cost of this kernel alone
    const own = [...found].filter((k) => ids.includes(this.measure.rows[k]!.op_ids[0]!));
    const rows = own.length ? own : found;
    return [...rows].reduce((sum, k) => sum + this.measure.rows[k]!.value, 0);
  }

  text(value: number): string {
    const { unit } = this.measure;
    if (unit === "bytes") return formatBytes(value);
    return unit === "seconds" ? formatSeconds(value) : formatCount(value, "launch", "launches");
  }
}

/** Colour elements by the costs of their operations, relative to the greatest; null removes the colours. */
export function colourByCost(
  items: Iterable<[Element, readonly number[]]>,
  cost: CostMeasure | null,
): number {
  const found = [...items].map(([one, ids]) => [one, cost?.of(ids) ?? 0] as const);
  const most = Math.max(...found.map(([, value]) => value), 0);
  for (const [element, value] of found) {
    const { style } = element as HTMLElement | SVGElement;
    element.classList.toggle("trl-costly", value > 0);
    if (value) {
      style.setProperty("--cost", String(value / most));
      element.setAttribute("data-cost", cost!.text(value));
      element.setAttribute("aria-description", `${cost!.measure.name}: ${cost!.text(value)}`);
    } else {
      style.removeProperty("--cost");
      element.removeAttribute("data-cost");
      element.removeAttribute("aria-description");
    }
  }
  return most;
}
