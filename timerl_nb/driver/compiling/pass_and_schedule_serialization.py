"""Serialisation of passes and schedule, so that a later process can continue the compilation.

The bytes belong to one source graph. Objects of the process are stored as references: the source graph with
its operations and data arrays, and the source lines.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.driver.compiling.compile_pipeline import Front
from timerl_nb.runtime.state.safe_unpickling import CLASSES, Allowed

_GRAPH: Final = (
    "dependence_graph",
    "graph_rewriting",
    "operation_attributes",
    "operations",
    "shapes",
)
# Immutable values of plain types, and their constructors.
_TABLE: Final[Mapping[str, Collection[str]]] = {
    **dict.fromkeys((f"timerl_nb.compiler.ir.{name}" for name in _GRAPH), (CLASSES,)),
    "timerl_nb.compiler.ir.recorded_pass_decisions": (CLASSES,),
    "timerl_nb.compiler.ir.analysis.requested_orders": (CLASSES,),
    "timerl_nb.compiler.symbolic.dimensions": (CLASSES,),
    "timerl_nb.compiler.symbolic.index_expressions": (CLASSES, "_make"),
    "timerl_nb.driver.compiling.compile_decision": ("Decision",),
    "timerl_nb.driver.stages": ("Stage",),
    "ml_dtypes": ("bfloat16",),
    "numpy": ("dtype", "ndarray"),
    "numpy._core.multiarray": ("_reconstruct",),
    "numpy._core.numeric": ("_frombuffer",),
}


def serialize_front(
    front: Front, pdg: Pdg, lines: Sequence[Origin], *, complete: bool = True
) -> bytes | None:
    """Return a front as bytes; None if isl or a trial stopped early.

    Args:
        front: the passes and the schedule.
        pdg: the source graph.
        lines: the source lines of the graph.
        complete: whether all trials were complete.
    """
    if front.parts is not None or not complete:
        return None
    file = io.BytesIO()
    # objects of isl are rebuilt from text, so they are left out
    stages = [replace(stage, artifact=None) for stage in front.stages]  # pyrefly: ignore[bad-argument-type]
    last, tree = front.constraints.pdg, front.tree.text()
    value = stages, last, tree, front.seconds, front.decision, front.search_choices
    with suppress(pickle.PicklingError, AttributeError, TypeError, ValueError):
        _Pickler(file, pdg, lines).dump(value)
        return file.getvalue()
    return None


def deserialize_front(payload: bytes, pdg: Pdg, lines: Sequence[Origin]) -> Front | None:
    """Return the front of bytes; None for invalid bytes."""
    with suppress(Exception):  # invalid bytes can raise any exception
        stages, last, tree, seconds, *found = _Unpickler(io.BytesIO(payload), pdg, lines).load()
        decision, search_choices = found
        whole = tuple(replace(stage, artifact=stage.rewritten.pdg) for stage in stages)
        constraints = Constraints(last)
        schedule = ScheduleTree.parse(last.dims, constraints.points, tree)
        return Front(
            whole,
            constraints,
            schedule,
            None,
            seconds,
            decision=decision,
            search_choices=search_choices,
        )
    return None


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, pdg: Pdg, lines: Sequence[Origin]) -> None:
        super().__init__(file, protocol=5)
        self._lines = {line: k for k, line in enumerate(lines)}
        self._named: dict[int, tuple[str, int]] = {id(pdg): ("source", 0)}
        for op in pdg:
            self._named[id(op.attrs)] = ("attrs", op.id)
            self._named[id(op)] = ("op", op.id)

    def persistent_id(self, obj: Any) -> tuple[str, int] | None:
        if type(obj) is Origin and obj in self._lines:
            return "line", self._lines[obj]
        return self._named.get(id(obj))


class _Unpickler(Allowed):
    table = _TABLE

    def __init__(self, file: io.BytesIO, pdg: Pdg, lines: Sequence[Origin]) -> None:
        super().__init__(file)
        self._lines, self._pdg = lines, pdg

    def persistent_load(self, pid: tuple[str, int]) -> Any:
        what, number = pid
        if what == "line":
            return self._lines[number]
        if what == "source":
            return self._pdg
        return self._pdg[number] if what == "op" else self._pdg[number].attrs
