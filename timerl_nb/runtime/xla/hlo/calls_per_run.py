"""Number of executions of each call to XLA in a run, and the total work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from timerl_nb.compiler.loops.loop_nodes import If, Loop
from timerl_nb.compiler.symbolic.dimensions import ENDLESS
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Work, work
from timerl_nb.runtime.xla.lowering.host_regions import Call, HostControlFlow, Part
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered


def work_of(lowered: Lowered) -> Work | None:
    """Return the work of a run. For an unbounded program: the work of an iteration after the first.

    None if it depends on values of the run. Waits for XLA to compile all calls.
    """
    made = count_calls(lowered)
    if made is None:
        return None
    found = sum((_call_work(lowered, number) * times for number, times in made.items()), Work())
    return found if found.is_exact else None


def _call_work(lowered: Lowered, number: int) -> Work:
    """Return the work of a call; it is inexact if a call runs several iterations of a loop."""
    repeated = lowered.calls[number - 1].loop is not None
    return work(lowered.hlo(number), 1 if repeated and lowered.fuse == 1 else None)


def count_calls(lowered: Lowered) -> Mapping[int, int] | None:
    """Count how often a run, or an iteration of an unbounded program, makes each call; None if that varies."""
    parts = lowered.regions.parts
    endless = next((part for part in parts if _is_endless(part)), None)
    if isinstance(endless, HostControlFlow) and isinstance(endless.node, Loop):
        return _CallCounter(lowered.fuse).count_parts(
            endless.parts, (endless.node.first.const + endless.node.step,)
        )
    return _CallCounter(lowered.fuse).count_parts(parts, ())


def count_repetitions(call: Call, times: int) -> int:
    """Return how often a run repeats the code of a call that it makes `times` times: once per iteration of its loop."""
    return times if call.loop is None else len(_turns(call.loop, {}))


def _is_endless(part: Part) -> bool:
    node = part.node if isinstance(part, HostControlFlow) else None
    return isinstance(node, Loop) and node.last.is_const and node.last.const + 1 == ENDLESS


class _CallCounter:
    """Counter of the calls in parts of a program.

    Args:
        fuse: Iterations of an outermost loop per call.
    """

    def __init__(self, fuse: int) -> None:
        self._fuse = fuse

    def count_parts(self, parts: Sequence[Part], at: tuple[int, ...]) -> Counter[int] | None:
        """Count the calls of consecutive parts. `at` has the counters of the loops around them."""
        return _sum(self._count_part(part, at) for part in parts)

    def _count_part(self, part: Part, at: tuple[int, ...]) -> Counter[int] | None:
        if isinstance(part, Call):
            turns = 1 if part.loop is None else len(_turns(part.loop, {})[:: self._fuse])
            return Counter({part.number: turns})
        if not isinstance(part, HostControlFlow):
            return Counter()
        node = part.node
        if isinstance(node, If):
            return self.count_parts(part.parts if part.condition_function(*at) else part.other, at)
        if not isinstance(node, Loop) or node.turns is not None:
            return None  # a dynamic bound ends the loop
        turns = _turns(node, dict(zip(part.counters, at, strict=True)))
        if turns and all(map(_is_even, part.parts)):
            once = self.count_parts(part.parts, (*at, turns[0]))
            return None if once is None else Counter({k: n * len(turns) for k, n in once.items()})
        return _sum(self.count_parts(part.parts, (*at, k)) for k in turns)


def _sum(found: Iterable[Counter[int] | None]) -> Counter[int] | None:
    total = Counter[int]()
    for one in found:
        if one is None:
            return None
        total += one
    return total


def _is_even(part: Part) -> bool:
    """Whether a part makes the same calls for all counters of the loops around it."""
    if not isinstance(part, HostControlFlow):
        return True
    loop = part.node
    is_fixed = isinstance(loop, Loop) and loop.first.is_const and loop.last.is_const
    return is_fixed and all(map(_is_even, part.parts))


def _turns(loop: Loop, env: Mapping[str, int]) -> range:
    return range(evaluate(loop.first, env), evaluate(loop.last, env) + 1, loop.step)
