"""Operations in the loop of acting: the loop over a dimension with sequential operations.

They should stay in this loop; otherwise memory grows with the dimension.
`compiler/scheduling/vectorization_trials` finds them once. Passes receive their ids, and every rewrite maps
them to the new graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Rewritten
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import cycles_of


@dataclass(frozen=True)
class Acting:
    """Operations in one loop with sequential operations, by dimension."""

    loops: tuple[tuple[str, frozenset[int]], ...] = ()

    @classmethod
    def from_loops(cls, loops: Mapping[str, Iterable[int]]) -> Acting:
        found = ((name, frozenset(ids)) for name, ids in loops.items())
        return cls(tuple((name, ids) for name, ids in found if ids))

    def operations_over(self, dim: str) -> frozenset[int]:
        """Return the operations in the loop over a dimension."""
        return dict(self.loops).get(dim, frozenset())

    def map_to_rewritten(self, before: Pdg, made: Rewritten) -> Acting:
        """Return the same operations in a rewritten graph.

        Added operations belong to the loops of their readers. An operation with a dimension turned into an
        axis runs outside the loop over the dimension, and outside all inner loops.
        """
        after = made.pdg
        if after is before:
            return self
        added = set(after.ops).difference(*made.ids.values())
        loops: dict[str, Iterable[int]] = {}
        for name, ids in self.loops:
            core = cycles_of(before, name).sequential
            around = [set(after[new].domain) for old in core for new in made.ids[old]]
            common = set[str].intersection(*around) if around else set(before.dims.names)
            stay = {
                new
                for old in ids
                for new in made.ids[old]
                if common.isdisjoint(set(before[old].domain) - set(after[new].domain))
            }
            loops[name] = with_operands(after, stay, added)
        return Acting.from_loops(loops)


def with_operands(pdg: Pdg, ids: AbstractSet[int], among: AbstractSet[int]) -> frozenset[int]:
    """Return operations with their direct and indirect operands from another set."""
    found = set(ids)
    for op_id in reversed(pdg.order):
        if op_id in among and any(reader in found for reader, _ in pdg.readers[op_id]):
            found.add(op_id)
    return frozenset(found)
