"""Tuning: a few ways to keep or compute again, in blocks of a few sizes, measured; the best is remembered.

The cost models of the passes compare by nominal figures. Here each way runs for a few turns on the
machine that is there, and what was found is kept in the cache folder, for this program and machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from bisect import bisect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timerl_nb.config import Options, cache_folder
from timerl_nb.ir.pdg import Pdg
from timerl_nb.passes.cut import by_freed, find_cut
from timerl_nb.passes.traffic import Machine, Traffic
from timerl_nb.runtime.backends.jax import device_name
from timerl_nb.symbolic.domain import bounds_text


@dataclass(frozen=True)
class Tuning:
    """What was measured, and the options that were fastest.

    Attributes:
        seconds: of one turn of the outermost loop, the least of a few, by way.
        taken: the fastest way.
        options: the options with that way.
        remembered: whether it was measured in an earlier process.
    """

    seconds: Mapping[str, float]
    taken: str
    options: Options
    remembered: bool = False

    def __str__(self) -> str:
        width = max(map(len, self.seconds))
        lines = [
            f"{'*' if way == self.taken else ' '} {way:<{width}}  {seconds * 1e3:10.3f} ms a turn"
            for way, seconds in sorted(self.seconds.items(), key=lambda pair: pair[1])
        ]
        return "\n".join(["tuned, " + ("remembered:" if self.remembered else "measured:"), *lines])

    __repr__ = __str__


def tuned(
    pdg: Pdg,
    before: Pdg,
    bounds: Mapping[str, int],
    options: Options,
    measure: Callable[[Options], float],
) -> Tuning:
    """The fastest of a few ways.

    Args:
        pdg: the program as written.
        before: the graph that is cut into blocks.
        options: those that all ways share.
        measure: the seconds that a turn takes under some options.
    """
    ways = _ways(before, bounds, options)
    file = _file(pdg, bounds, options)
    known = _read(file)
    if known is not None and known.keys() == ways.keys():
        seconds, remembered = known, True
    else:
        seconds, remembered = {way: measure(one) for way, one in ways.items()}, False
        _write(file, seconds)
    taken = min(seconds, key=lambda way: seconds[way])
    return Tuning(seconds, taken, ways[taken], remembered)


def _ways(before: Pdg, bounds: Mapping[str, int], options: Options) -> dict[str, Options]:
    """Whole; and in blocks of a few sizes, with what acting made kept or computed again."""
    whole = options.with_(incrementalize=False, rematerialize=False)
    ways = {"whole": whole}
    traffic = Traffic(before, bounds, Machine())
    for dim in [d for d in by_freed(before, bounds) if d.over is None][:1]:
        points = dim.count(bounds)
        sizes = [n for n in range(1, points) if points % n == 0]
        best = traffic.block(find_cut(before, dim)) or points
        at = bisect(sizes, best)
        for size in sizes[max(0, at - 2) : at + 1]:  # what the model takes, and both neighbours
            for again in (False, True):
                way = f"blocks of {size} along {dim.name}, " + ("again" if again else "kept")
                ways[way] = whole.with_(incrementalize={dim.name: size}, rematerialize=again)
    return ways


def _file(pdg: Pdg, bounds: Mapping[str, int], options: Options) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    told = "\n".join([str(pdg), bounds_text(bounds), repr(options), device_name()])
    return folder / f"tuned-{hashlib.sha256(told.encode()).hexdigest()}.json"


def _read(file: Path | None) -> dict[str, float] | None:
    """What was measured before; None where nothing was, or the file is no such thing."""
    if file is None:
        return None
    try:
        found: Any = json.loads(file.read_text())
        return {str(way): float(seconds) for way, seconds in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _write(file: Path | None, seconds: Mapping[str, float]) -> None:
    """Keep what was measured, whole or not at all."""
    if file is None:
        return
    with suppress(OSError):  # not to be remembered is no harm
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
        with os.fdopen(handle, "w") as out:
            json.dump(seconds, out)
        os.replace(name, file)
