"""Data parallelism: buffers with an axis for one dimension are divided among several devices.

Buffers are placed explicitly, and so are arrays without operands (data, random draws). XLA derives the rest
of the placement, and the communication between devices. Every placement is correct. With this one,
instances that do not depend on each other need no communication except sums, for example of gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from jax import device_put, lax, make_array_from_callback, shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.per_device_memory import Share
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend.trace_context_and_masks import Division, JaxArray


class Shards:
    """Placement of a program's buffers on several devices.

    Args:
        share: Part of the memory plan for one device.

    Raises:
        OptionError: There are fewer devices.
    """

    def __init__(self, share: Share) -> None:
        self.share, self.count, self.dim = share, share.count, share.dim
        self.axis, self.nbytes = share.axis, share.nbytes
        used = devices(share.count)
        self._mesh = Mesh(np.array(used), (share.dim.name,))
        self.processes = len({one.process_index for one in used})

    def placement(self, buffer: Buffer | None) -> NamedSharding:
        """Return the sharding of a buffer; None replicates it on every device."""
        return self._sharding_along(None if buffer is None else self.axis(buffer))

    def replicate(self, array: Any) -> JaxArray:
        """Copy an array to every device."""
        return self._put(array, self._sharding_along(None))

    def put(self, array: Any, buffer: Buffer | None) -> JaxArray:
        """Copy the values of a buffer to the devices."""
        return self._put(array, self.placement(buffer))

    def _put(self, array: Any, sharding: NamedSharding) -> JaxArray:
        if self.processes == 1:
            return device_put(array, sharding)
        # every process has the whole array, and places the parts of its own devices
        whole = backend.storable(np.asarray(array))
        return make_array_from_callback(whole.shape, sharding, lambda part: whole[part])

    @property
    def own_devices(self) -> range:
        """Positions of this process's devices among all, which are in the order of processes."""
        used = list(self._mesh.devices.flat)
        first = used.index(backend.own_devices(used)[0])
        return range(first, first + len(backend.own_devices(used)))

    @property
    def division(self) -> Division:
        """Distribution in the form used by kernels during tracing."""
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
        """Run a function separately on each device, on its parts of arrays.

        Args:
            run: Maps the parts by name, the shared values, and the device's number to changed parts.
            axes: Divided axis of each array; other arrays are replicated.
            made: Names of the returned arrays, a subset of `arrays`.
            arrays: Arrays by name.
            shared: Replicated values.
        """
        specs = {name: self._spec(axes.get(name)) for name in arrays}
        mapped = shard_map(
            lambda parts, shared: run(parts, shared, lax.axis_index(self.dim.name)),
            mesh=self._mesh,
            in_specs=(specs, PartitionSpec()),
            out_specs={name: specs[name] for name in made},
            check_vma=False,  # the check rejects loops with constant initial values
        )
        return mapped(arrays, shared)

    def _sharding_along(self, axis: int | None) -> NamedSharding:
        return NamedSharding(self._mesh, self._spec(axis))

    def _spec(self, axis: int | None) -> PartitionSpec:
        return PartitionSpec(*() if axis is None else (*[None] * axis, self.dim.name))


def devices(count: int) -> list[Any]:
    """Return `count` devices, with this thread's device first.

    Raises:
        OptionError: There are fewer devices. Or there are several processes, and neither all devices nor
            only those of this process are requested.
    """
    found = backend.list_peer_devices(backend.device())
    own = backend.own_devices(found)
    if len(own) < len(found) and count != len(found):
        if count > len(own):
            raise OptionError(
                f"devices={count} is not possible: of the {len(found)} devices of all processes, this process "
                f"has {len(own)}.",
                hint=f'write devices="all" for all {len(found)}, or at most {len(own)} for a program of this '
                "process alone.",
            )
        found = own
    if len(found) < count:
        platform = found[0].platform
        more = "start with XLA_FLAGS=--xla_force_host_platform_device_count=" + str(count)
        raise OptionError(
            f"devices={count} is not possible: JAX finds {len(found)} ({platform}).",
            hint=f"{more} for virtual devices, or set devices to at most {len(found)}."
            if platform == "cpu"
            else f"set devices to at most {len(found)}.",
        )
    return found[:count]
