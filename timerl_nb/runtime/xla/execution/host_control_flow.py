"""Control flow on the host between two calls to XLA: loop counters, guards, dynamic bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.loops.loop_nodes import Guard, Loop
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Lin
from timerl_nb.runtime.xla.lowering.host_regions import HostControlFlow

# A point of the outer dimensions, as index expressions; None for all points.
At: TypeAlias = Sequence[Lin] | None
# Returns a dynamic bound at a point, from its name and the values of the point's variables.
Length: TypeAlias = Callable[[str, At, Mapping[str, int]], int]


def find_length(lengths: Array, at: At, env: Mapping[str, int]) -> int:
    """Return the dynamic bound at a point of the outer dimensions, or its maximum."""
    if at is None:
        return int(lengths.max())
    return int(lengths[tuple(evaluate(e, env) for e in at)])


def is_true(guard: Guard, env: Mapping[str, int], length: Length) -> bool:
    """Whether a guard holds for these counters."""
    return evaluate(guard.cond, {**env, **guard_lengths(guard, env, length)})


def guard_lengths(guard: Guard, env: Mapping[str, int], length: Length) -> dict[str, int]:
    """Return the values of the dynamic bounds of a guard, by name."""
    return {name: length(name, at, env) for name, at in guard.lengths}


def iterate_loop(
    part: HostControlFlow, loop: Loop, at: tuple[int, ...], length: Length, begin: int | None = None
) -> Iterator[int]:
    """Yield the counters of a loop until it ends.

    Args:
        part: The loop as a part of the program.
        loop: The loop.
        at: Counters of the loops around it.
        length: Returns a dynamic bound at a point.
        begin: First counter of a resumed run; None to start at the beginning.
    """
    env = dict(zip(part.counters, at, strict=True))
    first, last = evaluate(loop.first, env), evaluate(loop.last, env)
    first = first if begin is None else begin
    turns = loop.turns
    if turns is not None and loop.late:
        (ends,) = guard_lengths(turns, env, length).items()
        begins = evaluate(loop.begins, {**env, ends[0]: 0, loop.counter: 0})
        first = max(first, begins - ends[1])
    for k in range(first, last + 1, loop.step):
        if (
            turns is not None
            and not loop.late
            and not is_true(turns, {**env, loop.counter: k}, length)
        ):
            break
        yield k
