"""Data parallelism: buffers with an axis for one dimension lie on several devices, a part on each.

Buffers are placed, and what is made of nothing: data and random draws. Which part of what follows is computed where, and what the devices tell
each other (a gradient is a sum over all of them), XLA derives from that; any placement is right, this
one leaves nothing to say but sums where the instances of a dimension have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from jax import device_put, lax, shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.per_device_memory import Share
from timerl_nb.runtime.jax_backend import jax_engine as backend
from timerl_nb.runtime.jax_backend.trace_context_and_masks import Division, JaxArray


class Shards:
    """Where each buffer of a program lies on several devices.

    Args:
        share: what one of them holds.

    Raises:
        OptionError: there are not so many devices.
    """

    def __init__(self, share: Share) -> None:
        self.share, self.count, self.dim = share, share.count, share.dim
        self.axis, self.nbytes = share.axis, share.nbytes
        self._mesh = Mesh(np.array(devices(share.count)), (share.dim.name,))

    def placement(self, buffer: Buffer | None) -> NamedSharding:
        """Where a buffer lies; None stands for what every device has."""
        return self._sharding_along(None if buffer is None else self.axis(buffer))

    def replicate(self, array: JaxArray) -> JaxArray:
        """An array that every device has."""
        return device_put(array, self._sharding_along(None))

    @property
    def division(self) -> Division:
        """As what is computed has to know it."""
        place = lambda x, axis: lax.with_sharding_constraint(x, self._sharding_along(axis))  # noqa: E731
        return Division(self.dim.bound, place)

    def map_per_device(
        self,
        run: Callable[[dict[str, JaxArray], Any, JaxArray], dict[str, JaxArray]],
        axes: Mapping[str, int],
        made: Collection[str],
        arrays: dict[str, JaxArray],
        shared: Any,
    ) -> dict[str, JaxArray]:
        """What each device makes of its parts of arrays by itself.

        Args:
            run: from parts by name, what all devices have, and the device's number, to parts.
            axes: by name, along which an array is divided; every device has others.
            made: the names of what it returns, which are among those of the arrays.
        """
        specs = {name: self._spec(axes.get(name)) for name in arrays}
        mapped = shard_map(
            lambda parts, shared: run(parts, shared, lax.axis_index(self.dim.name)),
            mesh=self._mesh,
            in_specs=(specs, PartitionSpec()),
            out_specs={name: specs[name] for name in made},
            check_vma=False,  # which loops from constants on do not pass
        )
        return mapped(arrays, shared)

    def _sharding_along(self, axis: int | None) -> NamedSharding:
        return NamedSharding(self._mesh, self._spec(axis))

    def _spec(self, axis: int | None) -> PartitionSpec:
        return PartitionSpec(*() if axis is None else (*[None] * axis, self.dim.name))


def devices(count: int) -> list[Any]:
    """So many devices, this thread's the first.

    Raises:
        OptionError: there are not so many.
    """
    found = backend.list_peer_devices(backend.device())
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
