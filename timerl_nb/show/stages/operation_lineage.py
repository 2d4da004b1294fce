"""Lineage of operations: relates the ids of each stage to those of the previous stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.driver.program import Program, a_program
from timerl_nb.driver.stages import Stage
from timerl_nb.show.view_model import HIDDEN, Key, View, shown

# stages after memory planning; their graph has additional outputs for blocks
_OF_THE_PLAN = ("memory", "ast", "tile", "executable")


def operations(pdg: Pdg) -> dict[int, Op]:
    """Return all operations by id, including those inside kernels."""
    found = dict(pdg.ops)
    for op in pdg:
        for inner in op.body:
            found.setdefault(inner.id, inner)
    return found


@dataclass(frozen=True)
class Generation:
    """One stage of a lineage: its operations, and their origins in the previous stage.

    An id missing from `parents` is unchanged if the previous stage has it, and new otherwise.
    """

    stage: str
    ops: Mapping[int, Op]
    parents: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class StageIds:
    """Operations of a stage, including those inside kernels.

    Attributes:
        ids: None if they equal those of the previous stage.
        came: by id, its origins in the previous stage, unless it is unchanged.
        kernels: by id, the ids inside each kernel; empty if `ids` is None.
    """

    name: str
    ids: tuple[int, ...] | None
    came: Annotated[Mapping[int, tuple[int, ...]], Key("from")]
    kernels: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class Lineage(View):
    """Operations of all stages and their descent.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> lineage = trl.show.Lineage.from_program(program)
        >>> 1 in lineage.relatives([1])["pdg"]
        True
    """

    view = "lineage"

    generations: Annotated[tuple[Generation, ...], HIDDEN]

    @classmethod
    def from_program(cls, program: Program) -> Lineage:
        """Return the lineage of a program's operations through all stages except `source`."""
        found: list[Generation] = []
        known: Mapping[int, Op] = {}
        for stage in a_program(program).stages.values():
            if stage.name == "source":
                continue
            if isinstance(stage.artifact, Pdg):
                ops = operations(stage.artifact)
            else:
                ops = operations(program.memory.pdg) if stage.name in _OF_THE_PLAN else known
            found.append(Generation(stage.name, ops, _parents(stage, known, ops)))
            known = ops
        return cls(tuple(found))

    @cached_property
    def _children(self) -> tuple[Mapping[int, frozenset[int]], ...]:
        """For every stage but the last, the descendants of each id in the next stage."""
        made: list[Mapping[int, frozenset[int]]] = []
        for k in range(1, len(self.generations)):
            found: dict[int, set[int]] = {}
            for op_id in self.generations[k].ops:
                for parent in self.predecessors(k, op_id):
                    found.setdefault(parent, set()).add(op_id)
            made.append({op_id: frozenset(ids) for op_id, ids in found.items()})
        return tuple(made)

    def predecessors(self, k: int, op_id: int) -> tuple[int, ...]:
        """Return the origins of an operation of stage `k` in the previous stage."""
        one = self.generations[k]
        if k == 0 or op_id in one.parents:
            return one.parents.get(op_id, ())
        return (op_id,) if op_id in self.generations[k - 1].ops else ()

    def relatives(self, ids: Iterable[int]) -> dict[str, frozenset[int]]:
        """Return the ancestors and descendants of operations, and the operations, by stage.

        Args:
            ids: operations of any stages. An id denotes the same operation in all stages.
        """
        chosen = set(ids)
        count = len(self.generations)
        own = [chosen & set(one.ops) for one in self.generations]
        down = [set(found) for found in own]
        for k in range(1, count):
            for parent in down[k - 1]:
                down[k] |= self._children[k - 1].get(parent, frozenset())
        up = [set(found) for found in own]
        for k in reversed(range(1, count)):
            for op_id in up[k]:
                up[k - 1].update(self.predecessors(k, op_id))
        return {one.stage: frozenset(down[k] | up[k]) for k, one in enumerate(self.generations)}

    @shown
    def stages(self) -> tuple[StageIds, ...]:
        found: list[StageIds] = []
        known: tuple[int, ...] | None = None
        for one in self.generations:
            ids = tuple(sorted(one.ops))
            came = dict(sorted(one.parents.items()))
            if ids == known:
                found.append(StageIds(one.stage, None, came, {}))
            else:
                kernels = {k: one.ops[k].op_ids[1:] for k in ids if one.ops[k].kind == "dataflow"}
                found.append(StageIds(one.stage, ids, came, kernels))
            known = ids
        return tuple(found)

    def __str__(self) -> str:
        lines: list[str] = []
        for one in self.generations:
            lines.append(f"{one.stage}: {format_count(len(one.ops), 'operation')}")
            for op_id, parents in sorted(one.parents.items()):
                came = ", ".join(f"%{k}" for k in parents)
                lines.append(f"  %{op_id} from {came or 'nothing'}")
        return "\n".join(lines)


def _parents(
    stage: Stage, before: Mapping[int, Op], after: Mapping[int, Op]
) -> dict[int, tuple[int, ...]]:
    """Return the origins of operations that differ from an unchanged operation."""
    found: dict[int, set[int]] = {}
    for old, became in stage.rewritten.ids.items() if stage.rewritten is not None else ():
        for new in became:
            found.setdefault(new, set()).add(old)
    for op_id, op in after.items():
        if op_id in before:
            if op_id in found and op.kind != "dataflow":
                found[op_id].add(op_id)
        elif before and op_id not in found and stage.rewritten is None:
            alike = [k for k, old in before.items() if _is_merge_copy(old, op)]
            found[op_id] = set(alike)
    return {
        op_id: tuple(sorted(parents))
        for op_id, parents in found.items()
        if op_id in after and parents != {op_id}
    }


def _is_merge_copy(old: Op, new: Op) -> bool:
    """Return whether a merge is a copy of another that reads blocks."""
    same = (old.kind, old.domain, old.outputs, old.label) == (
        new.kind,
        new.domain,
        new.outputs,
        new.label,
    )
    return same and old.kind == "merge" and old.origin == new.origin
