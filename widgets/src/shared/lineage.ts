// Lineage as Python sends it, by stage; a selection needs that of all stages together.
import type { Parents, Selection } from "./selection";
import type { Lineage } from "../models";

/** Let a selection know who came from whom. */
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
      found[id] = [...new Set([...(found[id] ?? []), ...ids])];
    }
  }
  return found;
}
