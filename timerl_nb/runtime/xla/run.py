"""One run of a lowered program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import jax
import numpy as np

from timerl_nb.errors import ExecutionError
from timerl_nb.ir.ops import Op, Read
from timerl_nb.ir.selected import Coordinates
from timerl_nb.ir.shapes import concrete
from timerl_nb.runtime.backends import jax as backend
from timerl_nb.runtime.ledger import Ledger
from timerl_nb.runtime.returned import Returned
from timerl_nb.runtime.xla.flow import LENGTHS
from timerl_nb.runtime.xla.lowered import Call, Lowered
from timerl_nb.runtime.xla.places import Buffer
from timerl_nb.symbolic.evaluate import evaluate
from timerl_nb.symbolic.expr import Lin, Slice, const

Array = np.ndarray[Any, np.dtype[Any]]


class LoweredRun:
    """A run in progress: its buffers, between two calls.

    Args:
        seed: of all random streams; any integer.
        progress: is called with the number of turns after every call that makes some.
    """

    def __init__(
        self, lowered: Lowered, seed: int, progress: Callable[[int], object] | None = None
    ) -> None:
        self.lowered = lowered
        self.ledger = Ledger()
        self.instructions = 0
        self.finished = False
        self._seed = backend.seed_words(seed)
        self._progress = progress
        self._state: dict[str, Any] = {}
        self._known: dict[tuple[int, ...], int] = {}
        self._returned = Returned(lowered.plan.pdg, lowered.plan, self._known)
        self._read: dict[str, Array] = {}

    def complete(self) -> None:
        """Run all calls."""
        self._state = self.lowered.start()
        for call, function in zip(self.lowered.calls, self.lowered.functions, strict=True):
            loop = call.loop
            if loop is None:
                self._call(call, function)
                continue
            fuse = self.lowered.fuse
            for first in range(loop.first.const, loop.last.const + 1, loop.step * fuse):
                count = min(fuse, (loop.last.const - first) // loop.step + 1)
                self._call(call, function, first, *([count] if fuse > 1 else []))
                if self._progress is not None:
                    jax.block_until_ready(self._state)
                    self._progress(count)
        jax.block_until_ready(self._state)
        self.finished = True

    def _call(self, call: Call, function: Callable[..., Any], *args: int) -> None:
        changed = {name: self._state.pop(name) for name in call.changed}
        constant = {name: self._state[name] for name in call.constant}
        self._state |= function(changed, constant, self._seed, *args)
        self.instructions += 1
        self.ledger.live = self.lowered.nbytes
        self.ledger.trace.append(self.ledger.live)

    # --- looking -----------------------------------------------------------------------------

    def outputs(self, names: Sequence[str] | None = None) -> dict[tuple[str, str], Array]:
        """The values of the program's outputs by (role, name), stacked over their domains."""
        if not self.finished:
            raise ExecutionError("the run has not ended yet.")
        self._find_lengths()
        return self._returned.outputs(self._output, names)

    @property
    def coordinates(self) -> dict[str, Coordinates]:
        """Where the values of conditional outputs are."""
        return self._returned.coordinates

    def lengths(self) -> dict[str, Array]:
        """The values of a dynamic bound, by its name, stacked over what it varies over."""
        return self._returned.lengths()

    def _find_lengths(self) -> None:
        if LENGTHS in self._state:
            lengths = backend.to_numpy(self._state[LENGTHS])
            for point in product(*map(range, lengths.shape)):
                self._known[point] = int(lengths[point])

    def _output(self, op: Op) -> Callable[..., Array]:
        pdg, plan = self.lowered.plan.pdg, self.lowered.plan
        dim = pdg.dims.dynamic

        def at(*point: int) -> Array:
            env = {**plan.bounds, **dict(zip(op.domain, point, strict=True))}
            if dim is not None and pdg.dims.know(op.domain):
                env[dim.bound] = self._returned.length(tuple(env[d] for d in dim.over or ()))
            (read,) = op.inputs
            value = self._value(read, env)
            if pdg.dims.dynamic is None:
                return value
            true = concrete(pdg.read_type(read).shape, env)
            return value[tuple(map(slice, true))]

        return at

    def _value(self, read: Read, env: Mapping[str, int]) -> Array:
        """What a read yields at a point."""
        sliced = [k for k, e in enumerate(read.index) if isinstance(e, Slice)]
        if sliced:
            k = sliced[0]
            entry = read.index[k]
            assert isinstance(entry, Slice)
            points = range(evaluate(entry.lo, env), evaluate(entry.hi, env))
            picked = [self._value(_picked(read, k, at), env) for at in points]
            return np.stack(picked)
        source = self.lowered.plan.pdg[read.source]
        index = [evaluate(e, env) for e in read.index if isinstance(e, Lin)]
        domain = source.outputs[read.out].domain
        inner = {**self.lowered.plan.bounds, **dict(zip(domain, index, strict=True))}
        places = self.lowered.places
        home = places.merges.get(source.id)
        if source.kind != "merge":
            home = places.home((read.source, read.out))
        if home is not None:
            coordinates = [evaluate(e, inner) for e in home.coordinates]
            return self._host(home.buffer)[home.buffer.place(coordinates)]
        holding = (b for b in source.inputs[:-1] if evaluate(b.cond, inner))
        branch = next(holding, source.inputs[-1])
        return self._value(branch, inner)

    def _host(self, buffer: Buffer) -> Array:
        if buffer.name not in self._read:
            array = self._state.get(buffer.name)
            if array is None:  # nothing wrote it
                array = self.lowered.fresh(buffer.name)
            self._read[buffer.name] = backend.to_numpy(array)
        return self._read[buffer.name]

    def release(self) -> int:
        """Let go of the buffers; returns their bytes."""
        self._state.clear()
        self._read.clear()
        kept, self.ledger.live = self.ledger.live, 0
        return kept


def _picked(read: Read, k: int, at: int) -> Read:
    """One point of a slice."""
    return Read(read.source, read.out, (*read.index[:k], const(at), *read.index[k + 1 :]))
