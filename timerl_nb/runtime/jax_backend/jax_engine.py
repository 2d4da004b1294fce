"""JAX: how kernels are compiled, and arrays made and moved; `jax_rules` says what they compute."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray


def compile_kernel(
    f: Callable[..., Any], taken: tuple[int, ...] = (), bound: Any = None
) -> Callable[..., Any]:
    """The function as one XLA program per operand types; it may overwrite the arguments `taken`.

    JAX gives each output, in order, the first array of its type among them that is left.

    Args:
        bound: the device that its results are bound to, as copies from the host are: a mixture of
            both would be compiled twice. None for none.
    """
    f = as_jax_promotes(f)
    if bound is None:
        return jax.jit(f, donate_argnums=taken)
    return jax.jit(f, donate_argnums=taken, out_shardings=_memory(bound))


def as_jax_promotes(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function traced under JAX's default promotion rules.

    The user's rules (`jax_numpy_rank_promotion`, `jax_numpy_dtype_promotion`) are for the user's code.
    """

    @wraps(f)
    def call(*args: Any, **named: Any) -> Any:
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            return f(*args, **named)

    return call


def check_transfers() -> None:
    """Refuse to run a program where JAX is told to let nothing pass between host and device.

    Raises:
        ExecutionError: it is.
    """
    asked: Any = jax.config
    for name in ("jax_transfer_guard", "jax_transfer_guard_host_to_device"):
        value = getattr(asked, name, None)
        if value in ("disallow", "disallow_explicit"):
            raise ExecutionError(
                f"{name}={value!r} forbids what every run does: its seed and its data go to the device.",
                hint='run it inside `with jax.transfer_guard("allow"):`.',
            )


def device() -> Any:
    """The device that programs run on: the default of this thread, as JAX has it."""
    given = cast(Any, jax.config).jax_default_device
    if given is None or isinstance(given, str):
        return jax.local_devices(backend=given)[0]
    return given


def list_peer_devices(first: Any) -> list[Any]:
    """All devices of the kind of one, that one first."""
    return [first, *(other for other in first.client.devices() if other != first)]


def device_count() -> int:
    """How many devices there are of the kind that programs run on."""
    return len(list_peer_devices(device()))


def capture_jax_settings() -> Callable[[], AbstractContextManager[object]]:
    """What makes any thread compute as this one does now: on its device, and as precisely."""
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


@cache
def _memory(device: Any) -> Any:
    """The memory of a device that arrays are made in."""
    return jnp.zeros((), device=device).sharding


@cache
def _stacker(count: int) -> Callable[..., JaxArray]:
    return jax.jit(lambda *xs: jnp.stack(xs))


def stack(values: Sequence[JaxArray]) -> JaxArray:
    """Arrays of one shape along a new leading axis."""
    return _stacker(len(values))(*values)


def stack_points(
    values: JaxArray | Sequence[JaxArray], shape: tuple[int, ...], dtype: str
) -> JaxArray:
    """A gathered slice inside a kernel: its points, stacked already or not, in the given shape."""
    if isinstance(values, tuple | list) and not values:
        return zeros(shape, dtype)
    if not isinstance(values, tuple | list):
        return values.reshape(shape)  # pyrefly: ignore[missing-attribute]
    each = [fitted(x, shape[len(shape) - x.ndim :]) for x in values]
    return jnp.stack(each).reshape(shape)


def fitted(x: JaxArray, shape: tuple[int, ...]) -> JaxArray:
    """The values in a shape of the same rank, cut or padded with zeros."""
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
    """What makes arrays of one value that nobody else has."""
    return jax.jit(lambda: full(shape, dtype, fill))


copied = jax.jit(jnp.copy)  # an array of the same values that nobody else has
all_copied = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))  # such copies of a tree's arrays


def seed_words(seed: int) -> tuple[JaxArray, JaxArray]:
    """The run's seed as two unsigned words."""
    high, low = (np.array([w & 0xFFFFFFFF], np.uint32) for w in (seed >> 32, seed))
    return jnp.asarray(high), jnp.asarray(low)


def has_wide_types() -> bool:
    """Whether JAX was told to have 64-bit types; it would narrow them otherwise."""
    asked: Any = jax.config
    return bool(asked.jax_enable_x64)


def to_device(array: Array) -> JaxArray:
    """Return an array of the host on the device; see `storable`."""
    return jnp.asarray(storable(array))


def storable(array: Any) -> Any:
    """Return an array of the host in a type of JAX: 64 bits become 32 if it has no wider types.

    Raises:
        ShapeError: it holds integers out of range.
    """
    if array.dtype.itemsize < 8 or array.dtype.kind not in "iuf" or has_wide_types():
        return array
    kind = {"f": np.float32, "u": np.uint32}.get(array.dtype.kind, np.int32)
    hint = 'call jax.config.update("jax_enable_x64", True) first, or subtract a common value.'
    return convert_array("an array for JAX", array, np.dtype(kind), hint=hint)


def bind(array: JaxArray | Array) -> JaxArray:
    """The array bound to the device, as what `bound` kernels make."""
    return jax.device_put(array, _memory(device()))


def wait(made: Any) -> Any:
    """The arrays in it, once they are there."""
    return jax.block_until_ready(made)


def is_taken_over(value: Any) -> bool:
    """Whether it is an array that a kernel was given to overwrite."""
    return isinstance(value, jax.Array) and value.is_deleted()


def to_host(array: JaxArray) -> JaxArray:
    """A copy in the host's page-locked memory; returns when it is complete."""
    there = array.sharding.with_memory_kind("pinned_host")
    return jax.block_until_ready(jax.device_put(array, there))


def from_host(array: JaxArray, home: Any) -> JaxArray:
    """A copy of what `to_host` made, where the original was (its `sharding`); returns when complete."""
    return jax.block_until_ready(jax.device_put(array, home))


def device_memory() -> int | None:
    """The bytes that the device has for us; None where it does not say, as a CPU."""
    stats = device().memory_stats() or {}
    return stats.get("bytes_limit")


def memory_in_use() -> Callable[[], int | None]:
    """What says, on any thread, how many bytes arrays take on this one's device; None on a CPU."""
    here = device()
    return lambda: (here.memory_stats() or {}).get("bytes_in_use")


def is_accelerated() -> bool:
    """Whether programs run on another device than the CPU."""
    return device().platform != "cpu"


def device_name() -> str:
    """What programs run on."""
    here = device()
    cores = f" of {os.cpu_count()} cores" if not is_accelerated() else ""
    return f"{here.platform} {here.device_kind}{cores}"


def to_numpy(array: JaxArray) -> Array:
    return np.asarray(array)
