"""Tuning by measurement: times some combinations of block sizes and rematerialisation.

The cost models of the passes use estimates. Tuning runs each combination for a few iterations, and stores
the times in the cache folder, for this program and machine.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from timerl_nb.base.errors import BudgetError
from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_milliseconds
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.passes.tiling.reduction_block_size_model import BandwidthModel
from timerl_nb.compiler.passes.tiling.reduction_tiling import find_tiling, freed_by
from timerl_nb.driver.search.machine_constants import machine_here
from timerl_nb.runtime.state.disk_cache import CacheEntry

_CHOSEN: Final = "chosen by the passes"


@dataclass(frozen=True)
class Tuning:
    """Measured times, and the fastest options.

    Attributes:
        seconds: the shortest duration of one iteration of the outermost loop, by plan. Plans beyond the
            available memory are left out.
        taken: the fastest plan.
        options: the options of the fastest plan.
        remembered: whether an earlier process has measured the times.
    """

    seconds: Mapping[str, float]
    taken: str
    options: Options
    remembered: bool = False

    def __str__(self) -> str:
        width = max(map(len, self.seconds))
        lines = [
            f"{'*' if plan == self.taken else ' '} {plan:<{width}}  {format_milliseconds(seconds, '10.3f')} a turn"
            for plan, seconds in sorted(self.seconds.items(), key=lambda pair: pair[1])
        ]
        return "\n".join(["tuned, " + ("remembered:" if self.remembered else "measured:"), *lines])

    __repr__ = __str__


def tune_plan(
    before: Pdg,
    bounds: Mapping[str, int],
    options: Options,
    measure: Callable[[Options], float],
    entry: CacheEntry | None = None,
) -> Tuning:
    """Return the times of some plans; if none fits, only of the passes' own choice, which may swap.

    Args:
        before: the graph before tiling.
        bounds: actual bounds.
        options: the common options of all plans.
        measure: returns the seconds of one iteration under some options.
        entry: the cache entry of the measurements.

    Raises:
        BudgetError: nothing fits.
    """
    plans = _plans(before, bounds, options)
    seconds: dict[str, float] | None = None if entry is None else entry.load()
    remembered = seconds is not None
    if seconds is None:
        seconds = {}
        for plan, one in plans.items():
            with suppress(BudgetError):
                seconds[plan] = measure(one)
        if not seconds:
            seconds[_CHOSEN] = measure(options)
        if entry is not None:
            entry.write(seconds)
    plans[_CHOSEN] = options
    taken = min(seconds, key=lambda plan: seconds[plan])
    return Tuning(seconds, taken, plans[taken], remembered)


def _plans(before: Pdg, bounds: Mapping[str, int], options: Options) -> dict[str, Options]:
    """Return the plans by name: untiled, and tiled with a few block sizes, each stored or recomputed."""
    whole = options.with_(incrementalize=False, rematerialize=False)
    plans = {"whole": whole}
    model = BandwidthModel(before, bounds, machine_here())
    for dim in [d for d in freed_by(before, bounds) if d.over is None][:1]:
        points = dim.count(bounds)
        sizes = [n for n in range(1, points) if points % n == 0]
        best = model.block(find_tiling(before, dim)) or points
        at = bisect(sizes, best)
        for size in sizes[max(0, at - 2) : at + 1]:  # the model's choice and its neighbours
            for recompute in (False, True):
                plan = f"blocks of {size} along {dim.name}, " + (
                    "recomputed" if recompute else "stored"
                )
                plans[plan] = whole.with_(incrementalize={dim.name: size}, rematerialize=recompute)
    return plans
