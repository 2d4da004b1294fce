"""Random bits as a pure function of (seed, stream, point).

The generator is threefry2x32 with 20 rounds (Salmon et al. 2011). A key starts as the seed, and the
stream and every original coordinate but the first are folded into it; the first coordinate is the
instance (environments come first in a context), and counts: element e of instance n of a value with
m elements has the 64-bit counter n * m + e, and its bits are the exclusive or of the two words.
Of a dimension without an end the coordinate has two words, of which the high one is folded in first.
So a draw does not depend on when, in what batch, or how often it is made. The coordinate of a
dimension that counts seeds is none of these: it is added to the seed.

The arithmetic works on any arrays of unsigned 32-bit integers, NumPy's and JAX's alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

Words = tuple[Any, Any]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
# The most elements whose rounds are a loop, which holds all of them; those of more are written out, and
# fused with what reads them.
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
    """A constant of the array's own type."""
    return array.dtype.type(value)


def zero(array: Any) -> Any:
    return array ^ array


def stream_words(stream: int | str) -> tuple[int, int]:
    """The counter that stands for a stream; named streams never meet numbered ones."""
    return (1, crc32(stream.encode())) if isinstance(stream, str) else (0, stream)


def advance_seed(seed: Words, by: Any) -> Words:
    """The seed of 64 bits that is `by` after another; `by` is an unsigned 32-bit array."""
    high, low = seed
    later = low + by
    return high + (later < by).astype(high.dtype), later


def counter(coord: Any, count: int, element: Any) -> Words:
    """coord * count + element as two words, high and low.

    The factors are multiplied in halves of 16 bits, whose products fit into one word.
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
    """The bits of element `element` of the value, of `count` elements, at the given coordinates.

    The coordinates stand in the order of the draw's domain. They, the words and the element are
    unsigned 32-bit arrays that broadcast against each other.

    Args:
        count: less than 2**32.
        encrypt: `threefry`, maybe compiled.
        far: the high word of the coordinate of a dimension without an end, whose low word is among
            `coords`; it counts where it is not 0, so that all other draws are as without it.
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
