"""Data parallelism: buffers with an axis for one dimension lie on several devices, a part on each.

Buffers are placed, and what is made of nothing: data and random draws. Which part of what follows is computed where, and what the devices tell
each other (a gradient is a sum over all of them), XLA derives from that; any placement is right, this
one leaves nothing to say but sums where the instances of a dimension have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from jax import device_put, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from timerl_nb.errors import BoundsError, OptionError
from timerl_nb.ir.pdg import Pdg
from timerl_nb.memory.layout import Buffer
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.runtime.backends import jax as backend
from timerl_nb.runtime.backends.jax_scope import Division, JaxArray
from timerl_nb.symbolic.domain import Dim
from timerl_nb.symbolic.expr import Lin


class Shards:
    """Where each buffer of a program lies on `count` devices.

    Attributes:
        dim: the outermost dimension that is nothing but an axis; buffers with that axis are divided,
            the others are on every device.

    Raises:
        OptionError: there are not so many devices, or there is no such dimension.
        BoundsError: the dimension's points cannot be divided equally.
    """

    def __init__(self, plan: MemoryPlan, buffers: Iterable[Buffer], count: int) -> None:
        self.count = count
        devices = _devices(count)
        self.dim = _dimension(plan.pdg, list(buffers), count)
        size = plan.bounds[self.dim.bound]
        if size % count:
            fits = sorted({max(count, size - size % count), size - size % count + count})
            raise BoundsError(
                f"{self.dim.bound} = {size} points of {self.dim.name} cannot be divided equally among "
                f"{count} devices.",
                hint=f"let {self.dim.bound} be {' or '.join(map(str, fits))}, or change devices.",
            )
        self._mesh = Mesh(np.array(devices), (self.dim.name,))

    def placement(self, buffer: Buffer | None) -> NamedSharding:
        """Where a buffer lies; None stands for what every device has."""
        return self._along(None if buffer is None else self.axis(buffer))

    def everywhere(self, array: JaxArray) -> JaxArray:
        """An array that every device has."""
        return device_put(array, self._along(None))

    @property
    def division(self) -> Division:
        """As what is computed has to know it."""
        place = lambda x, axis: lax.with_sharding_constraint(x, self._along(axis))  # noqa: E731
        return Division(self.dim.bound, place)

    def _along(self, axis: int | None) -> NamedSharding:
        parts = () if axis is None else (*[None] * axis, self.dim.name)
        return NamedSharding(self._mesh, PartitionSpec(*parts))

    def axis(self, buffer: Buffer) -> int | None:
        """The axis along which a buffer is divided."""
        return _axis(buffer, self.dim)

    def nbytes(self, buffer: Buffer) -> int:
        """What one device holds of a buffer."""
        return buffer.nbytes if self.axis(buffer) is None else buffer.nbytes // self.count


def _axis(buffer: Buffer, dim: Dim) -> int | None:
    for k, size in enumerate(buffer.sizes):
        if isinstance(size, Lin) and size.as_symbol == dim.bound:
            return len(buffer.axes) + k
    return None


def _dimension(pdg: Pdg, buffers: list[Buffer], count: int) -> Dim:
    """The outermost dimension that no operation runs over, and that buffers have an axis for."""
    over: dict[str, str] = {}
    for op in pdg:
        for name in op.domain:
            over.setdefault(name, op.name)
    for dim in pdg.dims:
        if dim.name not in over and any(_axis(buffer, dim) is not None for buffer in buffers):
            return dim
    names = [dim.name for dim in pdg.dims if dim.name in over]
    raise OptionError(
        f"devices={count} is not possible: no dimension is an axis throughout, whose points could be "
        "divided among devices.",
        evidence=[f"{over[name]} runs point by point over {name}" for name in names],
        hint="let vectorize make the dimension of the instances (environments) an axis: "
        'program.stages["vectorize"].why(op) says why it did not; or leave out devices.',
    )


def _devices(count: int) -> list[Any]:
    found = backend.beside(backend.device())
    if len(found) < count:
        platform = found[0].platform
        more = "start with XLA_FLAGS=--xla_force_host_platform_device_count=" + str(count)
        raise OptionError(
            f"devices={count} is not possible: JAX sees {len(found)} ({platform}).",
            hint=f"{more} for virtual ones, or let devices be at most {len(found)}."
            if platform == "cpu"
            else f"let devices be at most {len(found)}.",
        )
    return found[:count]
