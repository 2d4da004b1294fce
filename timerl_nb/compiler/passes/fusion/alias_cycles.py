"""Copy insertion: breaks cycles of mere aliases."""

from __future__ import annotations

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, Rewritten
from timerl_nb.compiler.ir.operations import Read
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import components


def break_alias_cycles(pdg: Pdg) -> Rewritten:
    """Insert copies into cycles of merges, so every merge refers to a value."""
    edges = {
        op.id: [r.source for r in op.inputs if pdg[r.source].kind == "merge"]
        for op in pdg
        if op.kind == "merge"
    }
    edit = Edit(pdg)
    for component in components(edges):
        if len(component) == 1 and component[0] not in edges[component[0]]:
            continue
        for op_id in component:
            op = edit.ops[op_id]
            inputs: list[Read] = []
            for read in op.inputs:
                if read.source in component:
                    source = edit.ops[read.source]
                    copy = edit.add(
                        "copy", [edit.read_same_point(source)], like=op, label=source.label
                    )
                    read = Read(copy.id, 0, read.index, read.cond)
                inputs.append(read)
            edit.insert(op.with_(inputs=tuple(inputs)))
    return edit.finish()
