"""Reading of outputs from the buffers of a lowered program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Op, Read, Tensor
from timerl_nb.compiler.ir.shapes import Shape, concrete
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.per_device_memory import divided_axis
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Lin, Slice, const
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.output_assembly import OwnPart
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered


class OutputReader:
    """Reads values from buffers. Each buffer is copied to the host on first use.

    Args:
        lowered: The lowered program.
        state: Buffers by name, between two calls.
        copied: Returns the value of a tensor at a point if it is swapped to the host; None otherwise.
        length: Returns a dynamic bound at a point, from its name.
        bounds: Replacements for bounds of the plan, by name.
        own: Part of this process, if only this part of divided buffers is read. None reads all parts, by an exchange
            with the other processes.
    """

    def __init__(
        self,
        lowered: Lowered,
        state: Mapping[str, Any],
        copied: Callable[[Tensor, tuple[int, ...]], Array | None],
        length: Callable[[str, tuple[int, ...]], int],
        bounds: Mapping[str, int] | None = None,
        own: OwnPart | None = None,
    ) -> None:
        self._lowered, self._state, self._length, self._own = lowered, state, length, own
        self._copied = copied
        self._pdg = lowered.plan.pdg
        self._bounds = {**lowered.plan.bounds, **(bounds or {})}
        self._read: dict[str, Array] = {}

    def output(self, op: Op) -> Callable[..., Array]:
        """Return an output as a function of its point."""
        pdg = self._pdg

        def read_output(*point: int) -> Array:
            env = {**self._bounds, **dict(zip(op.domain, point, strict=True))}
            self._record_lengths(op.domain, env)
            (read,) = op.inputs
            value = self._value(read, env)
            if not pdg.dims.dynamic:
                return value
            true = concrete(pdg.read_type(read).shape, env)
            return value[tuple(map(slice, true))]

        return read_output

    def _record_lengths(self, domain: tuple[str, ...], env: dict[str, int]) -> None:
        """Set the dynamic bounds to their values at a point, if they are defined there."""
        for dim in self._pdg.dims.known(domain):
            env[dim.bound] = self._length(dim.bound, tuple(env[d] for d in dim.over or ()))

    def _value(self, read: Read, env: Mapping[str, int]) -> Array:
        """Return the value of a read at a point."""
        sliced = [k for k, e in enumerate(read.index) if isinstance(e, Slice)]
        if sliced:
            k = sliced[0]
            entry = read.index[k]
            assert isinstance(entry, Slice)
            points = range(evaluate(entry.lo, env), evaluate(entry.hi, env))
            picked = [self._value(_pick_point(read, k, at), env) for at in points]
            return np.stack(picked)
        source = self._pdg[read.source]
        index = [evaluate(e, env) for e in read.index if isinstance(e, Lin)]
        domain = source.outputs[read.out].domain
        inner = {**self._bounds, **dict(zip(domain, index, strict=True))}
        layout = self._lowered.layout
        home = layout.merges.get(source.id)
        if source.kind != "merge":
            copy = self._copied(read.tensor, tuple(index))
            if copy is not None:
                return self._select_own(copy, source.outputs[read.out].type.shape)
            home = layout.home_of(read.tensor)
        if home is not None:
            coordinates = [evaluate(e, inner) for e in home.coordinates]
            return self._buffer(home.buffer)[home.buffer.place(coordinates)]
        self._record_lengths(domain, inner)  # conditions of branches may use it
        holding = (b for b in source.inputs[:-1] if evaluate(b.cond, inner))
        branch = next(holding, source.inputs[-1])
        return self._value(branch, inner)

    def _buffer(self, buffer: Buffer) -> Array:
        if buffer.name not in self._read:
            array = self._state.get(buffer.name)
            if array is None:  # never written
                array = self._lowered.fresh_buffer(buffer.name)
            self._read[buffer.name] = self._copy_to_host(array, buffer)
        return self._read[buffer.name]

    def _copy_to_host(self, array: Any, buffer: Buffer) -> Array:
        axis = None if self._own is None else self._lowered.divided_axis(buffer)
        if self._own is None or axis is None:
            return backend.to_numpy(array)
        return backend.to_own_numpy(array, axis, self._own.points)

    def _select_own(self, value: Array, shape: Shape) -> Array:
        """Return the part of this process of a complete value."""
        if self._own is None:
            return value
        axis = divided_axis(shape, self._pdg.dims[self._own.dim])
        return value if axis is None else backend.to_own_numpy(value, axis, self._own.points)


def _pick_point(read: Read, k: int, at: int) -> Read:
    """Return a read with one point of a slice."""
    return Read(read.source, read.out, (*read.index[:k], const(at), *read.index[k + 1 :]))
