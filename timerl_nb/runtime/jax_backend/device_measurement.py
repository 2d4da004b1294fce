"""Measurement of the device's speed by small programs; the best of a few runs counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.base.interleaved_timing import time_shortest_call
from timerl_nb.runtime.jax_backend.arrays_and_devices import device

_TIMES: Final = 5  # runs per measurement
_SIDE: Final = 512  # rows and columns of the large matrix
_CHAIN: Final = 32  # consecutive operations
_SIZES: Final = tuple(
    1 << k for k in range(17, 28)
)  # sizes of arrays in bytes, within and beyond caches
_MOVED: Final = 1 << 28  # bytes to read in total, for each size
_NEARLY: Final = 1.4  # ratio up to which two rates count as equal


def measure_device() -> dict[str, float]:
    """Return the fields `call`, `flops`, `elements`, `bandwidth`, `host`, `near` and `far` of `Machine`."""
    with jax.default_device(device()):
        large, small = jnp.ones((_SIDE, _SIDE)), jnp.ones((8, 8))
        inside = jnp.ones(_SIZES[0] // 4)
        flops = 2 * _SIDE**3 / _least(jax.jit(lambda x: x @ x), large)
        call = _least(jax.jit(_products), small) / _CHAIN
        elements = 2 * _CHAIN * inside.size / _least(jax.jit(_line), inside)
        rates = {nbytes: _rate(nbytes) for nbytes in _SIZES}
        near = max(n for n, rate in rates.items() if rate * _NEARLY >= max(rates.values()))
        far = min(n for n, rate in rates.items() if rate <= min(rates.values()) * _NEARLY)
        host = jnp.ones(_SIZES[-1] // 4)
        return {
            "call": call,
            "flops": flops,
            "elements": elements,
            "bandwidth": rates[_SIZES[-1]],
            "host": host.nbytes / _least(lambda x: np.array(x, copy=True), host),
            "near": near,
            "far": max(far, 2 * near),
        }


def _products(x: Any) -> Any:
    y = x
    for _ in range(_CHAIN):
        y = x @ y
    return y


def _line(x: Any) -> Any:
    for _ in range(_CHAIN):
        x = x * 0.999 + 0.5
    return x


def _rate(nbytes: int) -> float:
    """Return the bytes per second, read and written, of passes over an array of the given size."""
    passes = _MOVED // nbytes
    run = jax.jit(lambda x: jax.lax.fori_loop(0, passes, lambda _, y: y * 0.999 + 0.5, x))
    return 2 * passes * nbytes / _least(run, jnp.ones(nbytes // 4))


def _least(run: Callable[[Any], Any], x: Any) -> float:
    return time_shortest_call(lambda: jax.block_until_ready(run(x)), _TIMES, warm_ups=1)
