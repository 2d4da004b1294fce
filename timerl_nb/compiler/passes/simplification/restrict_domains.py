"""Removal of unneeded points: operations run only at the needed points.

`returns[(i + 1) % 10 == 0]` of a separate rollout needs that rollout in every tenth iteration only. The
conditions of operations and sinks are propagated to their operands, through merges, if the dimensions of
the condition are read at the reader's own point. A restriction is applied only if it saves work: a
conditional operation cannot be vectorised along the dimension, or fused with unconditional ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, RewriteStep
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE, SINKS
from timerl_nb.compiler.ir.operations import Op, Read, own_dims, reached_from
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import cycles_of
from timerl_nb.compiler.symbolic.index_expressions import And, Cond, all_of

Parts = frozenset[Cond]  # conditions, joined by and


def restrict_domains(edit: Edit) -> None:
    """Restrict operations to their needed points, to save work."""
    if not any(_parts(op.where) for op in edit.ops.values()):
        return
    work = _Restriction(Pdg(edit.dims, edit.ops))
    needed = work.find_conditions()
    edit.refused |= work.refused
    for op_id, parts in needed.items():
        op = edit.ops[op_id]
        new = [part for part in sorted(parts, key=str) if part not in _parts(op.where)]
        if new and op.kind != "merge":
            edit.insert(op.with_(where=all_of(op.where, *new)))
            note = f"needed where {all_of(*new)}"
            edit.steps.append(RewriteStep("unused points", (op_id,), (op_id,), note))


def _parts(cond: Cond) -> Parts:
    return frozenset(cond.args if isinstance(cond, And) else (cond,))


class _Restriction:
    """Conditions on the needed points of operations, and the decision to apply them."""

    def __init__(self, pdg: Pdg) -> None:
        self.pdg = pdg
        self.refused: dict[int, str] = {}
        self._sequential = {d.name: cycles_of(pdg, d.name).sequential for d in pdg.dims}
        self._behind = {d: self._readers_of(ops) for d, ops in self._sequential.items()}

    def _readers_of(self, ops: Iterable[int]) -> set[int]:
        """Return the operations and all of their transitive readers."""
        return set(reached_from(ops, lambda k: (reader for reader, _ in self.pdg.readers[k])))

    def find_conditions(self) -> Mapping[int, Parts]:
        """Return the conditions of operations with a useful restriction."""
        while True:
            needed = self._propagate_conditions()
            refused = {k: why for part in self._components(needed) for k, why in part.items()}
            if not refused:
                return needed
            self.refused |= refused

    def _propagate_conditions(self) -> dict[int, Parts]:
        """Return, for each operation, the conditions true at all of its needed points."""
        found: dict[int, Parts] = {op.id: _parts(op.where) for op in self.pdg.sinks}
        stack = list(found)
        while stack:
            reader = self.pdg[stack.pop()]
            for read in reader.inputs:
                source = self.pdg[read.source]
                own = _parts(source.where)
                passed = (
                    own
                    if source.id in self.refused
                    else own | self._reader_conditions(reader, read, found)
                )
                before = found.get(source.id)
                joined = passed if before is None else before & passed
                if joined != before:
                    found[source.id] = joined
                    stack.append(source.id)
        return found

    def _reader_conditions(self, reader: Op, read: Read, found: Mapping[int, Parts]) -> Parts:
        """Return the known conditions on the points of a read."""
        own = own_dims(read.index, self.pdg.output(read).domain)
        return frozenset(c for c in found[reader.id] if set(self._dims(c)) <= own)

    def _dims(self, cond: Cond) -> tuple[str, ...]:
        return self.pdg.dims.dims_of_symbols(cond.symbols)

    def _runs_along(self, op_id: int) -> set[str]:
        """Return the sequential dimensions of an operation."""
        return {d for d, ops in self._sequential.items() if op_id in ops}

    def _loops(self, op_id: int) -> frozenset[str]:
        """Return the dimensions of an operation with unavoidable loops."""
        return frozenset(d for d in self.pdg[op_id].domain if self._sequential[d])

    # --- benefit ---------------------------------------------------------------------------------

    def _components(self, needed: Mapping[int, Parts]) -> list[dict[int, str]]:
        """Return, for each connected group of restrictable operations, the reasons against its restriction."""
        new = {
            k: parts - _parts(self.pdg[k].where)
            for k, parts in needed.items()
            if self.pdg[k].kind not in SINKS and parts - _parts(self.pdg[k].where)
        }
        refused: list[dict[int, str]] = []
        seen: set[int] = set()
        for start in new:
            if start in seen:
                continue
            group = set(
                reached_from([start], lambda k, own=new[start]: self._neighbors(k, new, own))
            )
            seen |= group
            why = self._reasons(group, new[start])
            if why:
                refused.append(why)
        return refused

    def _neighbors(self, op_id: int, new: Mapping[int, Parts], own: Parts) -> list[int]:
        """Return operands and readers with the same new conditions."""
        near = [*self.pdg[op_id].sources, *(reader for reader, _ in self.pdg.readers[op_id])]
        return [k for k in near if new.get(k) == own]

    def _reasons(self, group: set[int], conds: Parts) -> dict[int, str]:
        dims = {d for c in conds for d in self._dims(c)}
        text = f"it is needed only if {all_of(*sorted(conds, key=str))}"
        ops = [k for k in group if self.pdg[k].kind != "merge"]
        draws = self._draws(group, dims)
        batches = {
            k: f"{text}, but can be vectorised along {', '.join(sorted(free))}"
            for k in ops
            if k not in draws and (free := {d for d in dims if k not in self._behind[d]})
        }
        if batches:
            return batches
        if ops and not self._saves(group, conds, dims):
            return dict.fromkeys(ops, f"{text}, but runs together with unconditional operations")
        return {}

    def _draws(self, group: set[int], dims: set[str]) -> set[int]:
        """Return the operations that compute random numbers for the group's loops only, as in an evaluation."""
        found: set[int] = set()
        order = [k for k in self.pdg.order if k in group]
        for k in order:
            op = self.pdg[k]
            varying = [source for source in op.sources if self.pdg[source].domain]
            of_draws = op.kind in ELEMENTWISE and bool(varying) and found.issuperset(varying)
            if op.kind == "rng" or of_draws:
                found.add(k)
        for k in reversed(order):
            for reader, _ in self.pdg.readers[k]:
                in_loops = reader in group and all(reader in self._behind[d] for d in dims)
                if reader not in found and not in_loops:
                    found.discard(k)
        return found

    def _saves(self, group: set[int], conds: Parts, dims: set[str]) -> bool:
        """Whether the restriction saves launches, or enables fusion with the group's readers."""
        loops = {self._loops(k) for k in group if self._runs_along(k) - dims}
        others = {self._loops(op.id) for op in self.pdg if op.id not in group}
        if loops - others or any(self.pdg[k].kind == "udf" for k in group):
            return True
        for k in group:
            for reader, _ in self.pdg.readers[k]:
                other = self.pdg[reader]
                if other.kind not in SINKS | {"merge"} and conds <= _parts(other.where):
                    return True
        return False
