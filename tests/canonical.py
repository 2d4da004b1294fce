"""Canonical form of a graph: operations are numbered from the sinks, independently of the order of the source."""

from __future__ import annotations

from dataclasses import replace

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_digest import digest
from timerl_nb.compiler.ir.operation_attributes import MergeAttrs


def canonical(pdg: Pdg) -> Pdg:
    """Return the graph without source lines and with ids that depend on the readers of each operation."""
    numbers: dict[int, int] = {}
    sinks = sorted(pdg.sinks, key=lambda op: (op.kind, str(op.attrs)))
    stack = [op.id for op in reversed(sinks)]
    while stack:
        op_id = stack.pop()
        if op_id not in numbers:
            numbers[op_id] = len(numbers)
            stack += [read.source for read in reversed(pdg[op_id].inputs)]
    renamed = {
        new: pdg[old].with_(
            id=new,
            inputs=tuple(replace(r, source=numbers[r.source]) for r in pdg[old].inputs),
            origin=Origin(),
            attrs=MergeAttrs() if pdg[old].kind == "merge" else pdg[old].attrs,
        )
        for old, new in numbers.items()
    }
    return Pdg(pdg.dims, renamed)


def meaning(pdg: Pdg) -> str:
    """Return a hash that two graphs share if they are equal up to ids and dead code."""
    found = digest(canonical(pdg))
    assert found is not None
    return found.text
