"""Random draws of many domains, shapes, streams and kinds in one program; `golden/draws.json` has their values.

The file must never be regenerated: results of a seed are stable across versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from zlib import crc32

import numpy as np

import timerl_nb as trl

BOUNDS: Final = {"B": 4, "I": 3, "T": 5}
SEEDS: Final = (0, 3, 2**32 + 5, -1, 2**63 - 1)
KINDS: Final[dict[str, Callable[..., trl.RecurrentTensor]]] = {
    "bits": trl.random.bits,
    "uniform": trl.random.uniform,
    "normal": trl.random.normal,
    "gumbel": trl.random.gumbel,
}
# Kind, domain, shape, stream; draws without a stream are numbered by their order.
DRAWS: Final[tuple[tuple[str, str, tuple[int, ...], int | str | None], ...]] = (
    ("bits", "", (), None),
    ("bits", "", (7,), "noise"),
    ("bits", "t", (2, 3), "t"),
    ("bits", "b", (40000,), None),
    ("bits", "bt", (600,), ""),
    ("bits", "it", (2, 1, 3), 0),
    ("bits", "bit", (), None),
    ("bits", "bit", (4, 2), "grüße"),
    ("bits", "bi", (5,), -1),
    ("uniform", "t", (3,), None),
    ("uniform", "bt", (2,), "u"),
    ("normal", "bt", (3,), "n"),
    ("normal", "bit", (2, 2), None),
    ("gumbel", "it", (), "g"),
)
EXACT: Final = (
    "bits",
    "uniform",
)  # other kinds are functions of these, with the rounding of the machine


def written() -> tuple[trl.Context, list[str]]:
    """Return a program that returns every draw, and the outputs' names."""
    names: list[str] = []
    with trl.Context("b", "i", "t") as ctx:
        of = dict(zip("bit", (var for var, _ in ctx.dims), strict=True))
        for k, (kind, domain, shape, stream) in enumerate(DRAWS):
            x = KINDS[kind](shape, domain=tuple(of[d] for d in domain), stream=stream)
            names.append(f"{k} {kind}")
            ctx.output(names[-1], x)
    return ctx, names


def summary(kind: str, x: np.ndarray[Any, Any]) -> list[Any]:
    """Summarise a draw: a checksum and some elements, or only some elements."""
    some = np.ravel(x)[:: max(1, x.size // 4)][:5]
    if kind in EXACT:
        return [crc32(np.ascontiguousarray(x).tobytes()), *map(float, some)]
    return [round(float(v), 4) for v in some]


# Coordinates, element and count of single draws; counters up to the last 32-bit value.
NEAR: Final[tuple[tuple[tuple[int, ...], int, int], ...]] = (
    ((2**20 - 1,), 4095, 4096),
    ((2**20 - 1, 5, 2**31 - 1), 0, 4096),
    ((4095, 1), 2**20 - 1, 2**20),
    ((2**31 - 1,), 1, 2),
    ((0, 2**31 - 1), 2**32 - 1, 2**32 - 1),
    ((65536,), 65534, 65535),
    ((1, 2, 3), 2**31 - 7, 2**31 + 5),
)
