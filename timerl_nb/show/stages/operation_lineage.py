"""Where operations came from: the ids of every stage, and which of the stage before each one was."""

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

# Their graph has outputs of its own for blocks.
_OF_THE_PLAN = ("memory", "ast", "tile", "executable")


def operations(pdg: Pdg) -> dict[int, Op]:
    """All operations by id, those inside kernels among them."""
    found = dict(pdg.ops)
    for op in pdg:
        for inner in op.body:
            found.setdefault(inner.id, inner)
    return found


@dataclass(frozen=True)
class Generation:
    """One stage of a lineage: the operations that it has, and what each was in the stage before.

    `parents` names those that were something else before: an id that is not in it, but in the stage
    before, was itself; one that is in neither is new.
    """

    stage: str
    ops: Mapping[int, Op]
    parents: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class StageIds:
    """The operations of a stage, those inside kernels among them.

    Attributes:
        ids: None where they are those of the stage before.
        came: by id, the ids of the stage before that it came from, where it is not just itself.
        kernels: by id, the ids inside each kernel; empty where `ids` is None.
    """

    name: str
    ids: tuple[int, ...] | None
    came: Annotated[Mapping[int, tuple[int, ...]], Key("from")]
    kernels: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class Lineage(View):
    """The operations of all stages and their descent."""

    view = "lineage"

    generations: Annotated[tuple[Generation, ...], HIDDEN]

    @classmethod
    def from_program(cls, program: Program) -> Lineage:
        """The lineage of a program's operations through its stages, `source` left out."""
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
        """For every generation but the last, the ids of the next that came from each of its ids."""
        made: list[Mapping[int, frozenset[int]]] = []
        for k in range(1, len(self.generations)):
            found: dict[int, set[int]] = {}
            for op_id in self.generations[k].ops:
                for parent in self.predecessors(k, op_id):
                    found.setdefault(parent, set()).add(op_id)
            made.append({op_id: frozenset(ids) for op_id, ids in found.items()})
        return tuple(made)

    def predecessors(self, k: int, op_id: int) -> tuple[int, ...]:
        """What an operation of generation `k` was in the one before."""
        one = self.generations[k]
        if k == 0 or op_id in one.parents:
            return one.parents.get(op_id, ())
        return (op_id,) if op_id in self.generations[k - 1].ops else ()

    def relatives(self, ids: Iterable[int]) -> dict[str, frozenset[int]]:
        """Ancestors and descendants of operations, by stage; themselves among them.

        Args:
            ids: operations of any stages. An id means the same operation wherever it is met.
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
    """What is not itself, or not itself alone, of the stage before."""
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
    """Whether a merge is another's copy, made to read blocks."""
    same = (old.kind, old.domain, old.outputs, old.label) == (
        new.kind,
        new.domain,
        new.outputs,
        new.label,
    )
    return same and old.kind == "merge" and old.origin == new.origin
