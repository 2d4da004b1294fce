"""Random bits as a pure function of seed, stream and point.

The generator is threefry2x32 with 20 rounds (Salmon et al. 2011). The key starts as the seed; the stream
and every original coordinate but the first are folded into it. The first coordinate is the instance, such
as the environment, and enters the counter: element e of instance n of a value with m elements has the
64-bit counter n * m + e. The bits are the exclusive or of the two output words.

An unbounded dimension has a coordinate of two words; the high word is folded in first. The coordinate of a
seed dimension is added to the seed. So a draw depends neither on time nor on batch size nor on repetition.

The arithmetic works on arrays of unsigned 32-bit integers from NumPy or JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

Words = tuple[Any, Any]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
# Up to this number of elements, the rounds are a loop, which stores all elements. Above it, the rounds are
# unrolled, so XLA can fuse them with their readers.
MOST_LOOPED = 1 << 14


def threefry(key: Words, counter: Words) -> Words:
    """Encrypt a 64-bit counter with a 64-bit key, both as two unsigned 32-bit words."""
    k0, k1 = key
    keys = (k0, k1, k0 ^ k1 ^ type_like(k0, PARITY))
    x0, x1 = counter[0] + k0, counter[1] + k1
    for group in range(5):
        for r in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << type_like(x1, r)) | (x1 >> type_like(x1, 32 - r)))
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + type_like(x1, group + 1)
    return x0, x1


def type_like(array: Any, value: int) -> Any:
    """Return a constant of the array's own type."""
    return array.dtype.type(value)


def zero(array: Any) -> Any:
    return array ^ array


def stream_words(stream: int | str) -> tuple[int, int]:
    """Return the counter of a stream; named and numbered streams never collide."""
    return (1, crc32(stream.encode())) if isinstance(stream, str) else (0, stream)


def advance_seed(seed: Words, by: Any) -> Words:
    """Return a 64-bit seed plus `by`, an unsigned 32-bit array."""
    high, low = seed
    later = low + by
    return high + (later < by).astype(high.dtype), later


def counter(coord: Any, count: int, element: Any) -> Words:
    """Return coord * count + element as two words, high and low.

    The factors are multiplied in halves of 16 bits, so products fit into one word.
    """
    half, mask = type_like(coord, 16), type_like(coord, 0xFFFF)
    upper, lower = type_like(coord, count >> 16), type_like(coord, count & 0xFFFF)
    middle = (coord >> half) * lower + ((coord & mask) * lower >> half)
    other = (coord & mask) * upper + (middle & mask)
    high = (coord >> half) * upper + (middle >> half) + (other >> half)
    low = coord * type_like(coord, count) + element
    return high + (low < element).astype(high.dtype), low


def bits(
    seed: Words,
    stream: Words,
    coords: Sequence[Any],
    element: Any,
    count: int,
    encrypt: Callable[[Words, Words], Words] = threefry,
    far: Any = None,
) -> Any:
    """Return the bits of one element of a value at the given coordinates.

    All arrays are unsigned 32-bit arrays that broadcast against each other.

    Args:
        seed: the seed, as two words.
        stream: the stream, as two words.
        coords: the coordinates, in the order of the draw's domain.
        element: the number of the element.
        count: the number of elements of the value, less than 2**32.
        encrypt: `threefry`, possibly compiled.
        far: the high word of an unbounded dimension's coordinate; its low word is in `coords`. It has an
            effect only if it is not 0, so other draws are unchanged.
    """
    key = encrypt(seed, stream)
    if far is not None:
        key = tuple(
            x ^ (y ^ x) * (far != 0)
            for x, y in zip(key, encrypt(key, (far, zero(far))), strict=True)
        )
    for coord in coords[1:]:
        key = encrypt(key, (zero(coord), coord))
    x0, x1 = encrypt(
        key, counter(coords[0], count, element) if coords else (zero(element), element)
    )
    return x0 ^ x1
