"""Random bits as a pure function of seed, stream and point.

The key starts as the seed; threefry2x32 with 20 rounds (Salmon et al. 2011) folds the stream and every
original coordinate but the first into it. The first coordinate is the instance, such as the environment,
and enters the counter: element e of instance n of a value with m elements has the 64-bit counter n * m + e.
A generator computes the bits from the key and the counter (`GENERATORS`).

An unbounded dimension has a coordinate of two words; the high word is folded in first. The coordinate of a
seed dimension is added to the seed. A draw does not depend on the order of execution, the batch size or earlier draws.

The arithmetic works on arrays of unsigned 32-bit integers from NumPy or JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from zlib import crc32

Words = tuple[Any, Any]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
ROUNDS = 20
# Up to this number of elements, the rounds may be a loop, which compiles faster. A loop passes over the whole
# array in every round.
MOST_LOOPED = 1 << 14


def threefry(key: Words, counter: Words, rounds: int = ROUNDS) -> Words:
    """Encrypt a 64-bit counter with a 64-bit key, both as two unsigned 32-bit words."""
    k0, k1 = key
    keys = (k0, k1, k0 ^ k1 ^ type_like(k0, PARITY))
    x0, x1 = counter[0] + k0, counter[1] + k1
    for done in range(1, rounds + 1):
        group, r = (done - 1) // 4, ROTATIONS[(done - 1) // 4 % 2][(done - 1) % 4]
        x0 = x0 + x1
        x1 = x0 ^ ((x1 << type_like(x1, r)) | (x1 >> type_like(x1, 32 - r)))
        if done % 4 == 0:
            x0 = x0 + keys[(group + 1) % 3]
            x1 = x1 + keys[(group + 2) % 3] + type_like(x1, group + 1)
    return x0, x1


def _threefry20(key: Words, counter: Words) -> Any:
    x0, x1 = threefry(key, counter)
    return x0 ^ x1


def _threefry13(key: Words, counter: Words) -> Any:
    x0, x1 = threefry(key, counter, 13)
    return x0 ^ x1


def _hash32(key: Words, counter: Words) -> Any:
    """Hash a counter under a key.

    Each word is mixed once. The last exclusive or makes the function not invertible, so equal bits are as
    frequent as among independent numbers.
    """
    first = _mix(counter[1] ^ key[0])
    return _mix(first + (counter[0] ^ key[1])) ^ first


def _mix(x: Any) -> Any:
    """Mix the bits of a word: Wellons' invertible hash `lowbias32`."""
    x = (x ^ (x >> type_like(x, 16))) * type_like(x, 0x7FEB352D)
    x = (x ^ (x >> type_like(x, 15))) * type_like(x, 0x846CA68B)
    return x ^ (x >> type_like(x, 16))


DEFAULT: Final = "threefry"
# The generators by the values of `Options.random`.
GENERATORS: Final[Mapping[str, Callable[[Words, Words], Any]]] = MappingProxyType(
    {DEFAULT: _threefry20, "threefry13": _threefry13, "hash32": _hash32}
)


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
    """Return coord * count + element as two words, high and low; without a coordinate, the element.

    The factors are multiplied in halves of 16 bits, so products fit into one word.
    """
    if coord is None:
        return zero(element), element
    half, mask = type_like(coord, 16), type_like(coord, 0xFFFF)
    upper, lower = type_like(coord, count >> 16), type_like(coord, count & 0xFFFF)
    middle = (coord >> half) * lower + ((coord & mask) * lower >> half)
    other = (coord & mask) * upper + (middle & mask)
    high = (coord >> half) * upper + (middle >> half) + (other >> half)
    low = coord * type_like(coord, count) + element
    return high + (low < element).astype(high.dtype), low


def generate(generator: str, key: Words, coord: Any, count: int, element: Any) -> Any:
    """Return the bits of one element under a key.

    Args:
        generator: the name of the generator.
        key: the key, as two words.
        coord: the first coordinate; None for a draw without coordinates.
        count: the number of elements of the value, less than 2**32.
        element: the number of the element.
    """
    return GENERATORS[generator](key, counter(coord, count, element))


def bits(
    seed: Words,
    stream: Words,
    coords: Sequence[Any],
    element: Any,
    count: int,
    *,
    generator: str = DEFAULT,
    encrypt: Callable[[Words, Words], Words] = threefry,
    generate: Callable[[str, Words, Any, int, Any], Any] = generate,
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
        generator: the name of the generator.
        encrypt: `threefry` for keys, possibly compiled.
        generate: the function `generate`, possibly compiled.
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
    return generate(generator, key, coords[0] if coords else None, count, element)
