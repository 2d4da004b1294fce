"""Statistical quality of every generator: bits, bytes, pairs of neighbours, repetitions, avalanche.

Limits are 5.5 standard deviations. All inputs are fixed, so results are equal in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from timerl_nb.compiler.ir import random_bits

Array = np.ndarray[Any, Any]

LIMIT = 5.5
ALL = pytest.mark.parametrize("generator", random_bits.GENERATORS)


def word(value: Any) -> Array:
    return np.atleast_1d(np.asarray(value, np.uint32))


def drawn(
    generator: str,
    shape: tuple[int, int, int],
    seed: int = 0,
    stream: int = 0,
    first: int = 0,
) -> Array:
    """Return the bits of a draw over (b, t): instances, steps, elements; `first` is the first step."""
    instances, steps, count = shape
    coords = [
        np.arange(instances, dtype=np.uint32).reshape(-1, 1, 1),
        np.arange(first, first + steps, dtype=np.uint32).reshape(1, -1, 1),
    ]
    elements = np.arange(count, dtype=np.uint32)
    words = (word(0), word(seed)), (word(0), word(stream))
    return random_bits.bits(*words, coords, elements, count, generator=generator)


def deviation_of_bits(x: Array) -> float:
    """Return the largest deviation of a bit's frequency from one half, in standard deviations."""
    ones = np.unpackbits(x.ravel().view(np.uint8).reshape(-1, 4), axis=1).sum(0, dtype=np.int64)
    return float(np.abs(ones - x.size / 2).max() / np.sqrt(x.size / 4))


def deviation_of_counts(values: Array, cells: int) -> float:
    """Return the deviation of chi-squared from its mean, in standard deviations."""
    expected = values.size / cells
    chi = ((np.bincount(values.ravel(), minlength=cells) - expected) ** 2 / expected).sum()
    return float(abs(chi - (cells - 1)) / np.sqrt(2 * (cells - 1)))


def bytes_of(x: Array) -> Iterator[Array]:
    return ((x >> np.uint32(shift)) & np.uint32(255) for shift in (0, 8, 16, 24))


def neighbours(generator: str) -> dict[str, tuple[Array, Array]]:
    """Return arrays of equal shape whose inputs differ by one."""
    x = drawn(generator, (256, 16, 16))
    y = drawn(generator, (1 << 16, 1, 1))
    return {
        "instance": (x[1:], x[:-1]),
        "step": (x[:, 1:], x[:, :-1]),
        "element": (x[..., 1:], x[..., :-1]),
        "instance of scalars": (y[1:], y[:-1]),
        "second next instance": (y[2:], y[:-2]),
        "instance 256": (y[256:], y[:-256]),
        "seed": (x, drawn(generator, (256, 16, 16), seed=1)),
        "stream": (x, drawn(generator, (256, 16, 16), stream=1)),
        "high seed": (x, drawn(generator, (256, 16, 16), seed=1 << 31)),
    }


@ALL
def test_bits_and_bytes_are_uniform(generator: str) -> None:
    for x in (drawn(generator, (1 << 16, 1, 1)), drawn(generator, (64, 1, 1 << 10), seed=9)):
        assert deviation_of_bits(x) < LIMIT
        assert max(deviation_of_counts(byte, 256) for byte in bytes_of(x)) < LIMIT


@ALL
def test_neighbours_are_independent(generator: str) -> None:
    for name, (x, y) in neighbours(generator).items():
        assert deviation_of_bits(np.ascontiguousarray(x ^ y)) < LIMIT, name
        for one, other in zip(bytes_of(x), bytes_of(y), strict=True):
            both = (one >> np.uint32(2)) * np.uint32(64) + (other >> np.uint32(2))
            assert deviation_of_counts(both, 4096) < LIMIT, name
        units = [z.ravel().astype(np.float64) for z in (x, y)]
        assert abs(np.corrcoef(*units)[0, 1]) * np.sqrt(x.size) < LIMIT, name


@ALL
def test_equal_numbers_are_as_frequent_as_by_chance(generator: str) -> None:
    """A function that is invertible for one key never repeats a number."""
    count, keys = 1 << 18, 4
    repeated = sum(
        count - len(np.unique(drawn(generator, (count, 1, 1), first=step))) for step in range(keys)
    )
    expected = keys * count**2 / 2**33
    assert abs(repeated - expected) < LIMIT * np.sqrt(expected)


@ALL
def test_each_bit_of_key_and_counter_changes_half_of_the_bits(generator: str) -> None:
    rng, count = np.random.default_rng(0), 1 << 12
    inputs = [rng.integers(0, 2**32, count, dtype=np.uint32) for _ in range(3)]
    inputs += [rng.integers(0, 2**16, count, dtype=np.uint32)]  # usual counters are small
    inputs[2][:] = 0
    make = random_bits.GENERATORS[generator]
    before = make((inputs[0], inputs[1]), (inputs[2], inputs[3]))
    for k in range(4):
        for bit in range(32):
            now = list(inputs)
            now[k] = now[k] ^ np.uint32(1 << bit)
            after = make((now[0], now[1]), (now[2], now[3]))
            assert deviation_of_bits(before ^ after) < LIMIT, (k, bit)


def test_the_tests_find_weak_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round of threefry is not random, and a mixed word under one key is a permutation."""
    weak = {
        "one round": lambda key, at: random_bits.threefry(key, at, 1)[1],
        "invertible": lambda key, at: random_bits._mix(at[1] ^ key[0]),
    }
    monkeypatch.setattr(random_bits, "GENERATORS", weak)
    with pytest.raises(AssertionError):
        test_each_bit_of_key_and_counter_changes_half_of_the_bits("one round")
    with pytest.raises(AssertionError):
        test_neighbours_are_independent("one round")
    with pytest.raises(AssertionError):
        test_equal_numbers_are_as_frequent_as_by_chance("invertible")
