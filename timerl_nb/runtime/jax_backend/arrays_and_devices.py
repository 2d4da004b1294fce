"""Access to JAX: compilation of kernels, creation and movement of arrays, devices and settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import NamedSharding, PartitionSpec

from timerl_nb.base.array_conversion import Array, convert_array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray


def compile_kernel(
    f: Callable[..., Any], taken: tuple[int, ...] = (), bound: Any = None
) -> Callable[..., Any]:
    """Compile a function to one XLA program per operand types. It may overwrite the arguments `taken`.

    JAX pairs each output, in order, with the first unused array of the same type among these arguments.

    Args:
        f: The function.
        taken: Numbers of the donated arguments.
        bound: Device to bind the results to, like copies from the host. A mixture of bound and
            unbound arrays would be compiled twice. None binds nothing.
    """
    f = as_jax_promotes(f)
    if bound is None:
        return jax.jit(f, donate_argnums=taken)
    return jax.jit(f, donate_argnums=taken, out_shardings=_memory(bound))


def as_jax_promotes(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function traced under JAX's default promotion rules.

    The user's settings (`jax_numpy_rank_promotion`, `jax_numpy_dtype_promotion`) apply to the user's code.
    """

    @wraps(f)
    def call(*args: Any, **named: Any) -> Any:
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            return f(*args, **named)

    return call


def prevent_inlining(f: Callable[..., Any], static: tuple[int, ...] = ()) -> Callable[..., Any]:
    """Return a function whose calls XLA does not inline on a CPU.

    XLA then computes and stores the results once. Inlined, they would be computed again by each fused reader.

    Args:
        f: The function.
        static: Numbers of the arguments that are not arrays.
    """
    jitted = jax.jit(as_jax_promotes(f), static_argnums=static)

    def call(*args: Any) -> Any:
        with set_xla_metadata(inlineable="false"):
            return jitted(*args)

    return call


def check_transfers() -> None:
    """Check that no JAX transfer guard forbids transfers to the device.

    Raises:
        ExecutionError: The guard forbids them.
    """
    jax_config: Any = jax.config
    for name in ("jax_transfer_guard", "jax_transfer_guard_host_to_device"):
        value = getattr(jax_config, name, None)
        if value in ("disallow", "disallow_explicit"):
            raise ExecutionError(
                f"{name}={value!r} forbids transfers that every run needs, for its seed and its data.",
                hint='run the program inside `with jax.transfer_guard("allow"):`.',
            )


def device() -> Any:
    """Return the device of programs: JAX's default device of this thread."""
    given = cast(Any, jax.config).jax_default_device
    if given is None or isinstance(given, str):
        return jax.local_devices(backend=given)[0]
    return given


def list_peer_devices(first: Any) -> list[Any]:
    """List all devices of the same kind, of all processes.

    `first` is at the front, unless there are several processes, which must agree on the order.
    """
    found = first.client.devices()
    if len({one.process_index for one in found}) > 1:
        return sorted(found, key=lambda one: (one.process_index, one.id))
    return [first, *(other for other in found if other != first)]


def device_count() -> int:
    """Return the number of devices of the kind in use, in all processes."""
    return len(list_peer_devices(device()))


def own_device_count() -> int:
    """Return the number of devices of the kind in use in this process."""
    return len(own_devices(list_peer_devices(device())))


def own_devices(found: Sequence[Any]) -> list[Any]:
    """Return the devices of this process among others."""
    return [one for one in found if one.process_index == one.client.process_index()]


def capture_jax_settings() -> Callable[[], AbstractContextManager[object]]:
    """Return a context manager for other threads: this thread's device, precision and 64-bit setting."""
    here, now = device(), cast(Any, jax.config)
    precision, wide = now.jax_default_matmul_precision, now.jax_enable_x64

    @contextmanager
    def restore_settings() -> Iterator[None]:
        with (
            jax.default_device(here),
            jax.default_matmul_precision(precision),
            jax.enable_x64(wide),
        ):
            yield

    return restore_settings


def jax_settings() -> dict[str, Any]:
    """Return the settings of JAX with an influence on results, for `set_jax_settings` in another process."""
    return {name: getattr(jax.config, name) for name in _SETTINGS}


def set_jax_settings(settings: Mapping[str, Any]) -> None:
    """Apply the settings of another process to this one."""
    for name, value in settings.items():
        jax.config.update(name, value)


_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_threefry_partitionable")


@cache
def _memory(device: Any) -> Any:
    """Return the default memory of a device."""
    return jnp.zeros((), device=device).sharding


@cache
def _stacker(count: int) -> Callable[..., JaxArray]:
    return jax.jit(lambda *xs: jnp.stack(xs))


def stack(values: Sequence[JaxArray]) -> JaxArray:
    """Stack arrays of one shape along a new leading axis."""
    return _stacker(len(values))(*values)


def stack_points(
    values: JaxArray | Sequence[JaxArray], shape: tuple[int, ...], dtype: str
) -> JaxArray:
    """Return a gathered slice in the given shape, from its points or from a stacked array."""
    if isinstance(values, tuple | list) and not values:
        return zeros(shape, dtype)
    if not isinstance(values, tuple | list):
        return values.reshape(shape)  # pyrefly: ignore[missing-attribute]
    each = [fitted(x, shape[len(shape) - x.ndim :]) for x in values]
    return jnp.stack(each).reshape(shape)


def fitted(x: JaxArray, shape: tuple[int, ...]) -> JaxArray:
    """Cut an array to a shape of the same rank, or pad it with zeros."""
    if x.shape == shape:
        return x
    cut = x[tuple(slice(n) for n in shape)]
    return jnp.pad(cut, [(0, n - have) for n, have in zip(shape, cut.shape, strict=True)])


def zeros(shape: tuple[int, ...], dtype: str) -> JaxArray:
    return jnp.zeros(shape, NUMPY[dtype])


def full(shape: tuple[int, ...], dtype: str, fill: Any) -> JaxArray:
    return jnp.full(shape, fill, NUMPY[dtype])


@cache
def fresh(shape: tuple[int, ...], dtype: str, fill: float = 0) -> Callable[[], JaxArray]:
    """Return a constructor of arrays filled with one value."""
    return jax.jit(lambda: full(shape, dtype, fill))


copied = jax.jit(jnp.copy)  # a new array without shared memory
all_copied = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))  # the same for a tree of arrays


def seed_words(seed: int) -> tuple[JaxArray, JaxArray]:
    """Return the seed of a run as two unsigned words."""
    high, low = (np.array([w & 0xFFFFFFFF], np.uint32) for w in (seed >> 32, seed))
    return hand_over(high), hand_over(low)


def has_wide_types() -> bool:
    """Whether 64-bit types are enabled in JAX."""
    jax_config: Any = jax.config
    return bool(jax_config.jax_enable_x64)


def to_device(array: Array) -> JaxArray:
    """Copy an array of the host to the device, after conversion by `storable`."""
    return jnp.asarray(storable(array))


def hand_over(array: Array) -> JaxArray:
    """Move an array to the device. Nobody may change it later, as JAX may share its memory on a CPU.

    Unlike `to_device`, it compiles no program for each shape.
    """
    return jax.device_put(storable(array))


def storable(array: Any) -> Any:
    """Convert 64-bit types to 32 bits, unless 64-bit types are enabled in JAX.

    Raises:
        ShapeError: An integer is out of range.
    """
    if array.dtype.itemsize < 8 or array.dtype.kind not in "iuf" or has_wide_types():
        return array
    kind = {"f": np.float32, "u": np.uint32}.get(array.dtype.kind, np.int32)
    hint = 'call jax.config.update("jax_enable_x64", True) first, or subtract a common value.'
    return convert_array("an array for JAX", array, np.dtype(kind), hint=hint)


def bind(array: JaxArray | Array) -> JaxArray:
    """Bind an array to the device, like the results of kernels compiled with `bound`."""
    return jax.device_put(array, _memory(device()))


def wait(made: Any) -> Any:
    """Wait until all arrays are computed, and return them."""
    return jax.block_until_ready(made)


def is_taken_over(value: Any) -> bool:
    """Whether a value is an array donated to a kernel."""
    return isinstance(value, jax.Array) and value.is_deleted()


def to_host(array: JaxArray) -> JaxArray:
    """Copy an array to page-locked memory of the host, and wait for the copy."""
    there = array.sharding.with_memory_kind("pinned_host")
    return jax.block_until_ready(jax.device_put(array, there))


def from_host(array: JaxArray, home: Any) -> JaxArray:
    """Copy an array of `to_host` back to `home`, the sharding of the original, and wait for the copy."""
    return jax.block_until_ready(jax.device_put(array, home))


def device_memory() -> int | None:
    """Return the bytes of memory available to JAX on the device; None on a CPU."""
    stats = device().memory_stats() or {}
    return stats.get("bytes_limit")


def memory_in_use() -> Callable[[], int | None]:
    """Return a function for any thread: the bytes of arrays on this thread's device, or None on a CPU."""
    here = device()
    return lambda: (here.memory_stats() or {}).get("bytes_in_use")


def is_accelerated() -> bool:
    """Whether programs run on a device other than the CPU."""
    return device().platform != "cpu"


def device_name() -> str:
    """Describe the device of programs."""
    here = device()
    cores = f" of {os.cpu_count()} cores" if not is_accelerated() else ""
    return f"{here.platform} {here.device_kind}{cores}"


def to_numpy(array: JaxArray) -> Array:
    """Return an array's values.

    If parts are in other processes, all processes must call the function together.
    """
    if isinstance(array, jax.Array) and not (
        array.is_fully_addressable or array.is_fully_replicated
    ):
        whole = cast(Any, NamedSharding(cast(Any, array.sharding).mesh, PartitionSpec()))
        return np.asarray(_gatherer(whole)(array))
    return np.asarray(array)


def to_own_numpy(array: JaxArray | Array, axis: int, points: range) -> Array:
    """Return the values of this process's points of an axis. No process waits for another.

    Args:
        array: An array that is complete in this process, or divided along this axis among the devices of all processes.
        axis: The axis.
        points: The points on this process's devices.
    """
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        if not array.is_fully_replicated:
            parts = sorted(array.addressable_shards, key=lambda part: part.index[axis].start or 0)
            return np.concatenate([np.asarray(part.data) for part in parts], axis)
        array = array.addressable_data(0)
    return np.asarray(array)[(slice(None),) * axis + (slice(points.start, points.stop),)]


@cache
def _gatherer(whole: Any) -> Callable[[JaxArray], JaxArray]:
    """Return a function that copies all parts of an array to all devices."""
    return jax.jit(lambda x: x, out_shardings=whole)
