"""Recorder of jitted JAX functions: derives the launched kernels from the optimised HLO, with loops unrolled.

A kernel has one block per 256 new elements; in-place updates and scatters count only the new values. Kernels
are counted as in `executable.launches`, except that short loops are always unrolled, while XLA on a CPU makes
one kernel of them. Each result has a separate buffer, so the stream has no dependences from reused memory.
Constants are never written, so they create no dependences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from timerl_nb.base.errors import CallError, ExecutionError
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Counting
from timerl_nb.runtime.xla.hlo.hlo_parser import NAMES, Computation, Instruction, computations
from timerl_nb.streams.kernel_declaration import Kernel, blocks_of
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import Segment

MOST: Final = 1_000_000  # maximal number of kernels

# Result of an instruction: a buffer, several, or None for constants.
_Value: TypeAlias = "Segment | tuple[_Value, ...] | None"


def record_xla(function: Any, *args: Any, at_most: int | None = None, **kwargs: Any) -> Stream:
    """Record the kernels of a call of a jitted function, without running it.

    Args:
        function: a function of `jax.jit`.
        args, kwargs: the arguments: arrays, or objects with a shape and a dtype.
        at_most: the number of iterations of loops whose length XLA does not know.

    Raises:
        CallError: the function is not jitted.
        ExecutionError: the length of a loop is unknown and `at_most` is not set, or there are more than a
            million kernels.
    """
    if isinstance(function, str | bytes) or not callable(getattr(function, "lower", None)):
        raise CallError(
            f"{getattr(function, '__name__', function)!r} is not a jitted function.",
            hint="record jax.jit(function), or a function that calls kernels of trl.kernel.",
        )
    text = function.lower(*args, **kwargs).compile().as_text()
    return stream_of(text, getattr(function, "__name__", "jitted"), at_most)


def stream_of(text: str, name: str, at_most: int | None = None) -> Stream:
    """Return the stream of a call from its optimised HLO. Of a conditional, the branch with the most kernels
    counts.
    """
    if at_most is not None:
        at_most = integer("at_most", at_most, least=0)
    entry, named = computations(text)
    walk = _Walk(named, at_most)
    walk.run(entry, None)
    return Stream(name, tuple(walk.kernels))


class _Walk:
    def __init__(self, named: Mapping[str, Computation], at_most: int | None) -> None:
        self._named, self._at_most = named, at_most
        self._counting = Counting(named)
        self._buffers = 0
        self._conditions: tuple[
            Segment, ...
        ] = ()  # the conditions under which the current code runs
        self._costs: dict[int, tuple[int, float, float]] = {}
        self.kernels: list[Kernel] = []

    def run(self, computation: Computation, given: Sequence[_Value] | None) -> _Value:
        """Record the kernels of a computation, and return its result; `given` are the values of its parameters."""
        values: dict[str, _Value] = {}
        for one in computation.values():
            if one.kind == "parameter":
                number = int(one.rest[: one.rest.index(")")])
                values[one.name] = self._allocate_buffers(one) if given is None else given[number]
            else:
                values[one.name] = self._value(one, computation, values)
        return values[computation.root.name]

    def _value(self, one: Instruction, around: Computation, values: Mapping[str, _Value]) -> _Value:
        operands = [values[name] for name in one.operands]
        if one.kind == "constant":
            return None
        if one.kind == "tuple":
            return tuple(operands)
        if one.kind == "get-tuple-element":
            of = operands[0]
            index = re.search(r"index=(\d+)", one.rest)
            assert isinstance(of, tuple) and not isinstance(of, Segment) and index is not None
            return of[int(index[1])]
        if one.kind in NAMES:
            return self._named_anew(one, operands)
        if one.kind == "while":
            return self._loop(one, operands[0])
        if one.kind == "conditional":
            branches = [self._named[name] for name in one.branches]
            most = max(
                range(len(branches)),
                key=lambda k: self._counting.count_computation(branches[k]).launches,
            )
            return self._run_under_condition(
                operands[0], lambda: self.run(branches[most], [operands[1 + most]])
            )
        if one.kind == "call":
            return self.run(self._named[one.called_computation("to_apply")], operands)
        return self._launch(one, around, operands)

    def _launch(self, one: Instruction, around: Computation, operands: Sequence[_Value]) -> _Value:
        if len(self.kernels) == MOST:
            raise ExecutionError(
                f"the function launches more than {MOST:,} kernels.",
                hint="record fewer iterations of its loops.",
            )
        made = self._allocate_buffers(one)
        if id(one) not in self._costs:
            work = self._counting.launch(one, around)
            most = self._counting.count_written_elements(one, around)
            operations = float(work.products + work.elements)
            self._costs[id(one)] = blocks_of(most), operations, float(work.nbytes)
        read = dict.fromkeys(
            (*self._conditions, *(s for value in operands for s in _leaves(value)))
        )
        segments = tuple(read), tuple(_leaves(made))
        self.kernels.append(Kernel(one.name, *segments, None, *self._costs[id(one)]))
        return made

    def _loop(self, one: Instruction, value: _Value) -> _Value:
        body = self._named[one.called_computation("body")]
        if one.turns is not None:
            for _ in range(one.turns):
                value = self.run(body, [value])
            return value
        if self._at_most is None:
            raise ExecutionError(
                f"the number of iterations of the loop {one.name} is unknown to XLA.",
                hint="pass at_most=, the maximal number of iterations, or write the loop as a scan or fori_loop of fixed length.",
            )
        condition = self._named[one.called_computation("condition")]
        conditions = self._conditions
        for _ in range(self._at_most):
            goes_on = self.run(condition, [value])
            self._conditions = (*conditions, *_leaves(goes_on))
            value = self.run(body, [value])
        self._conditions = conditions
        return value

    def _run_under_condition(self, decides: _Value, run: Callable[[], _Value]) -> _Value:
        """Run a recording function whose kernels additionally read the condition's value."""
        conditions = self._conditions
        self._conditions = (*conditions, *_leaves(decides))
        value = run()
        self._conditions = conditions
        return value

    def _allocate_buffers(self, one: Instruction) -> _Value:
        """Return a new buffer for each array of an instruction's result."""
        found = [self._buffer(nbytes) for nbytes in one.sizes]
        return tuple(found) if one.type.startswith("(") else found[0]

    def _buffer(self, nbytes: int) -> Segment | None:
        self._buffers += 1
        return Segment(self._buffers, 0, nbytes) if nbytes else None

    @staticmethod
    def _named_anew(one: Instruction, operands: Sequence[_Value]) -> _Value:
        """Return the value of an instruction that renames or reinterprets its operands without a kernel."""
        found = [s for value in operands for s in _leaves(value)] or [None]
        if not one.type.startswith("("):
            return found[0]
        count = len(one.arrays)
        return tuple((found * count)[:count])


def _leaves(value: _Value) -> Iterator[Segment]:
    if isinstance(value, Segment):
        yield value
    elif value is not None:
        for one in value:
            yield from _leaves(one)
