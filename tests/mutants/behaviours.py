"""Behavioural mistakes, each made by replacing one function; they survive edits of its text.

Refactorings must update the names here; a test checks that all names exist.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

Wrapped = Callable[..., Any]


@dataclass(frozen=True)
class Behaviour:
    """A mistake: its description, and the replaced function (`module:name`, in timerl_nb)."""

    says: str
    target: str
    change: Callable[[Wrapped], Wrapped]

    @property
    def file(self) -> str:
        return f"timerl_nb/{self.target.partition(':')[0].replace('.', '/')}.py"

    @property
    def function(self) -> str:
        return self.target.partition(":")[2]

    def is_there(self, root: Path) -> bool:
        """Return whether the file defines the function."""
        name, path = self.function.rpartition(".")[2], root / self.file
        return path.exists() and f"def {name}(" in path.read_text()

    def found(self) -> tuple[Any, str, Any]:
        """Return the owner of the function, its name there, and the function.

        Raises:
            ImportError, AttributeError: The function does not exist.
        """
        owner: Any = import_module(f"timerl_nb.{self.target.partition(':')[0]}")
        *classes, name = self.function.split(".")
        for one in classes:
            owner = getattr(owner, one)
        return owner, name, inspect.getattr_static(owner, name)

    def apply(self) -> None:
        """Inject the mistake into every module and table that holds the function."""
        import timerl_nb  # noqa: F401

        owner, name, before = self.found()
        if isinstance(before, cached_property):
            after: Any = cached_property(self.change(before.func))
            after.__set_name__(owner, name)
        else:
            after = self.change(before)
        setattr(owner, name, after)
        for module in [m for n, m in sys.modules.items() if n.startswith("timerl_nb")]:
            for holder in (vars(module), *(v for v in vars(module).values() if type(v) is dict)):
                for key in [k for k, v in holder.items() if v is before]:
                    holder[key] = after


def _result(change: Callable[[Any], Any]) -> Callable[[Wrapped], Wrapped]:
    """Return a modified result of the call."""
    return lambda before: lambda *args, **named: change(before(*args, **named))


def _a_use_unknown(before: Wrapped) -> Wrapped:
    def last_readers(self: Any, uses: Any) -> Any:
        by_value: dict[str, list[Any]] = {}
        for edge in uses:
            by_value.setdefault(edge.source, []).append(edge)
        fewer = (edges[:-1] if len(edges) > 2 else edges for edges in by_value.values())
        return before(self, [edge for edges in fewer for edge in edges])

    return last_readers


def _later(before: Wrapped) -> Wrapped:
    """Start a loop one iteration late if it has another."""

    def loop(
        self: Any, depth: int, counter: str, first: Any, last: Any, step: int, body: Any
    ) -> Any:
        more = first.is_const and last.is_const and last.const > first.const
        return before(self, depth, counter, first + step if more else first, last, step, body)

    return loop


def _swapped(branches: list[Any]) -> list[Any]:
    if len(branches) < 2:
        return branches
    (a, at_a), (b, at_b), *rest = branches
    return [(b, at_a), (a, at_b), *rest]


BEHAVIOURS: Final = {
    "ring-one-short": Behaviour(
        "a ring has one place less than keeps its values apart",
        "compiler.memory.placement.ring_sizes:ring",
        _result(lambda axis: axis and replace(axis, size=max(1, axis.size - 1))),
    ),
    "place-shared": Behaviour(
        "places are said to keep values apart that live at once",
        "compiler.memory.placement.ring_sizes:have_disjoint_slots",
        _result(lambda apart: True),
    ),
    "dependence-dropped": Behaviour(
        "isl is not told of one dependence, and nobody checks it",
        "compiler.scheduling.dependence_constraints:Constraints.validity",
        _result(lambda edges: edges[1:]),
    ),
    "tokens-dropped": Behaviour(
        "effects are not kept in their order",
        "compiler.scheduling.dependence_constraints:Constraints._tokens",
        lambda before: lambda self, op: [],
    ),
    "guard-dropped": Behaviour(
        "points beyond a dynamic bound run",
        "compiler.loops.dynamic_termination:guard",
        lambda before: lambda dims, domain, where, point: None,
    ),
    "first-turn-left-out": Behaviour(
        "a loop's first turn is left out", "compiler.loops.loop_builder:_Builder.loop", _later
    ),
    "slice-gradient-shifted": Behaviour(
        "the gradient of a slice lies one place behind",
        "compiler.ir.operation_attributes:ReindexAttrs.inverse",
        _result(lambda back: replace(back, at=back.at - 1)),
    ),
    "reader-forgotten": Behaviour(
        "the last of several readers of a point gives it no gradient",
        "compiler.language.autodiff.index_adjoints:_ends",
        _result(
            lambda back: replace(
                back,
                last={d: e if e is back.first[d] else e - 1 for d, e in back.last.items()},
            )
        ),
    ),
    "freed-early": Behaviour(
        "of three or more uses of a value, its life does not know one",
        "compiler.isl.isl_scheduler:ScheduleTree.last_readers",
        _a_use_unknown,
    ),
    "donated-not-copied": Behaviour(
        "an operand is taken over also where it lives on",
        "compiler.memory.placement.operand_donation:_condition",
        lambda before: lambda inside, given: before(given, given),
    ),
    "branches-swapped": Behaviour(
        "a merge takes its second branch where its first one holds",
        "runtime.xla.lowering.node_lowering:Lowering._branches",
        _result(_swapped),
    ),
    "coordinate-dropped": Behaviour(
        "random bits do not depend on their last coordinate",
        "compiler.ir.random_bits:bits",
        lambda before: (
            lambda seed, stream, coords, *rest: before(
                seed, stream, (*coords[:-1], coords[-1] * 0) if coords else coords, *rest
            )
        ),
    ),
    "padding-unmasked": Behaviour(
        "what lies beyond an operand's length counts",
        "runtime.jax_backend.trace_context_and_masks:mask_padding",
        lambda before: lambda scope, x, sizes, axes, fill: x,
    ),
    "sum-not-begun-anew": Behaviour(
        "a sum goes on from what the last one came to",
        "runtime.xla.lowering.node_lowering:Lowering._clear",
        lambda before: lambda self, node, state, env: None,
    ),
    "schedule-of-another": Behaviour(
        "a kept schedule is given to a graph of other constants",
        "compiler.ir.graph_digest:_Walk._array",
        lambda before: lambda self, array: self._write(f"{array.dtype.str}{array.shape}"),
    ),
}
