// Lineage by stage, as sent by Python, merged over all stages for the selection.
import type { Parents, Selection } from "./selection";
import type { Lineage } from "../models";

/** Give a selection the lineage of the operations. */
export function descend(selection: Selection, { stages }: Lineage): void {
  selection.descend(
    union(stages.map((stage) => stage.from)),
    union(stages.map((stage) => stage.kernels)),
  );
}

function union(stages: readonly Parents[]): Parents {
  const found: Record<string, readonly number[]> = {};
  for (const stage of stages) {
    for (const [id, ids] of Object.entries(stage)) {
      const others = found[id];
      found[id] = others ? [...new Set([...others, ...ids])] : ids;
    }
  }
  return found;
}
