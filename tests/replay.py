"""Symbolic replay of a memory plan: checks every read of a layout, statement by statement.

Slots hold names of values instead of values. The replay derives the value of a read from the graph
alone. It therefore detects layouts that overwrite a live value or read the wrong slot. Dynamic
bounds and swapped values are not covered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.buffer_layout import Home, Layout
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Slice

Value = tuple[int, int, tuple[int, ...]]  # an operation, an output, and a point


class Replay:
    """Run a plan on slots that hold names."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._plan, self._pdg = layout, layout.plan, layout.plan.pdg
        assert not self._pdg.dims.dynamic and not self._plan.swaps.all
        self._held: dict[tuple[str, tuple[int, ...]], Value] = {}

    def wrong(self) -> Iterator[str]:
        """Return a description of every read that finds a wrong value."""
        clock = self._plan.clock
        order = sorted(
            (rank, name, tuple(row))
            for name, ranks in clock.ranks.items()
            for rank, row in zip(ranks.tolist(), clock.points[name].tolist(), strict=True)
        )
        for _, name, point in order:
            op = self._plan.statements.ops[name]
            yield from self._reads(op, point)
            self._writes(op, point)
        for one in self._plan.statements.outputs:
            for row in clock.grid(self._pdg.points(one.op).with_bounds(self._plan.bounds)):
                yield from self._reads(one.op, tuple(map(int, row)))

    def _env(self, domain: tuple[str, ...], point: tuple[int, ...]) -> dict[str, int]:
        return {**self._plan.bounds, **dict(zip(domain, point, strict=True))}

    def _reads(self, op: Op, point: tuple[int, ...]) -> Iterator[str]:
        for slot, read in enumerate(op.inputs):
            if self._pdg.output(read).type.dtype == "token":
                continue
            latest = self._layout.latest.get((op.id, slot), {})
            for index in _points(read, self._env(op.domain, point)):
                want = self._value(read, index)
                home, at = self._place(read, index)
                home = latest.get(home.buffer.name, home)
                found = self._found(home, at)
                if found != want:
                    name = self._pdg.names[op.id]
                    yield f"{name}{point} finds {found} in {home.buffer.name}, not {want}"

    def _value(self, read: Read, index: tuple[int, ...]) -> Value:
        """Return the value that a read refers to at an index."""
        source = self._pdg[read.source]
        if source.kind != "merge":
            return source.id, read.out, index
        branch = self._branch(source, index)
        (inner,) = _points(branch, self._env(source.domain, index))
        return self._value(branch, inner)

    def _branch(self, merge: Op, index: tuple[int, ...]) -> Read:
        env = self._env(merge.domain, index)
        return next((b for b in merge.inputs[:-1] if evaluate(b.cond, env)), merge.inputs[-1])

    def _place(self, read: Read, index: tuple[int, ...]) -> tuple[Home, dict[str, int]]:
        """Return the slot assigned by the layout."""
        source = self._pdg[read.source]
        env = self._env(source.outputs[read.out].domain, index)
        if source.kind != "merge":
            return self._layout.home_of(read.tensor), env
        if source.id in self._layout.merges:
            return self._layout.merges[source.id], env
        branch = self._branch(source, index)
        (inner,) = _points(branch, env)
        return self._place(branch, inner)

    def _found(self, home: Home, env: dict[str, int]) -> Value | None:
        place = _inside(home.buffer, [evaluate(e, env) for e in home.coordinates])
        return None if place is None else self._held.get((home.buffer.name, place))

    def _writes(self, op: Op, point: tuple[int, ...]) -> None:
        at = dict(zip(op.domain, point, strict=True))
        for out, output in enumerate(op.outputs):
            own = tuple(at[d] for d in output.domain)
            for home in self._layout.homes.get((op.id, out), ()):
                env = self._env(output.domain, own)
                place = _inside(home.buffer, [evaluate(e, env) for e in home.coordinates])
                if place is not None:
                    self._held[home.buffer.name, place] = op.id, out, own


def _inside(buffer: Buffer, coordinates: list[int]) -> tuple[int, ...] | None:
    """Return a slot of a buffer, or None outside the buffer."""
    found = buffer.place(coordinates)
    return (
        found if all(0 <= k < n for k, n in zip(found, buffer.slot_counts, strict=True)) else None
    )


def _points(read: Read, env: dict[str, int]) -> Iterator[tuple[int, ...]]:
    """Return the indices of a read at a point."""
    ranges: list[Any] = [
        range(evaluate(e.lo, env), evaluate(e.hi, env))
        if isinstance(e, Slice)
        else (evaluate(e, env),)
        for e in read.index
    ]
    return product(*ranges)
