"""Calibration within a run: overhead estimated from randomly disabled blocks.

RL-Scope (appendix C.1) compares whole runs with and without recording. Here,
neighbouring blocks of one run are compared: they do similar work under similar conditions.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.analysis.thread_timelines import Lane, Lanes
from timerl_nb.scope.calibration.bootstrapped_delta import (
    KINDS,
    Pairs,
    by_difference,
    entry_edge_masks,
)
from timerl_nb.scope.calibration.calibration import Calibration
from timerl_nb.scope.calibration.enabled_disabled_blocks import FEWEST, cpu_of
from timerl_nb.scope.storage.event_format import NAME_MASK, Kind

_NAMES: Final = 6  # number of distinguished operation names, the most frequent ones


def in_run(recording: Lanes) -> Calibration:
    """Return the costs of recording, estimated from the disabled blocks of a recording.

    Args:
        recording: the recording.

    Raises:
        ExecutionError: there are too few disabled blocks, or the measurements are contradictory.
    """
    pairs = pairs_of(recording)
    if 2 * len(pairs) < FEWEST:
        raise ExecutionError(
            f"the recording has {len(pairs)} pairs of a recorded and a disabled block, but {FEWEST // 2} are needed.",
            hint="record for some seconds with taps=True. Blocks end between outermost operations: make an operation "
            "around a whole loop a phase. Or calibrate by whole runs: `timerl scope calibrate script.py ...`.",
        )
    timed = [p.costs for p in recording.processes if p.costs]
    least = {
        f"{part}{kind}": float(np.median([one[f"{part}{kind}"] for one in timed]))
        for part in ("", "silent ", "inside ")
        for kind in KINDS
    }
    return by_difference(pairs, least, recording.processes[0], way="in-run delta", silent=True)


def pairs_of(recording: Lanes) -> Pairs:
    """Return the pairs of a recorded and a neighbouring disabled block, over all threads."""
    lanes = [_blocks(lane, len(recording.names)) for lane in recording.lanes]
    rows: list[tuple[int, Array, Array, Array, float]] = []
    for silent, cpu, counts, tallies in lanes:
        free = ~silent
        stand = _stand_for(np.flatnonzero(silent), len(silent))
        for k, share in zip(np.flatnonzero(silent).tolist(), stand.tolist(), strict=True):
            near = next((j for j in (k - 1, k + 1) if 0 <= j < len(free) and free[j]), None)
            if near is not None:
                free[near] = False
                rows.append((cpu[near] - cpu[k], counts[near], tallies[near], tallies[k], share))
    if not rows:
        return Pairs(*(np.zeros((0, 0)) for _ in range(5)))
    cpu, counts, *both, share = (np.array(x, np.float64) for x in zip(*rows, strict=True))
    most = np.argsort(-(both[0] + both[1]).sum(0), kind="stable")[:_NAMES]
    rest = [x.sum(1, keepdims=True) - x[:, most].sum(1, keepdims=True) for x in both]
    named = [np.hstack([x[:, most], y]) for x, y in zip(both, rest, strict=True)]
    return Pairs(cpu, counts, named[0], named[1], share / share.mean())


def _stand_for(silent: Array, count: int) -> Array:
    """Return, for each disabled block, the number of blocks closest to it."""
    middles = (silent[1:] + silent[:-1]) / 2
    return np.diff(middles, prepend=-0.5, append=count - 0.5)[: len(silent)]


def _blocks(lane: Lane, names: int) -> tuple[Array, Array, Array, Array]:
    """Return the complete blocks of a timeline.

    Returns:
        For each block: whether it is disabled, its CPU time, its calls and annotations, and its
        operations by name.
    """
    edges = lane.edges
    kind, top = edges["kind"], edges["top"]
    first, last = (np.flatnonzero(kind == one) for one in (Kind.BLOCK_ENTER, Kind.BLOCK_EXIT))
    after = np.searchsorted(last, first)
    whole = after < len(last)
    first, last = first[whole], last[after[whole]]
    cpu = cpu_of(edges)
    switched = np.flatnonzero((kind == Kind.OFF) | (kind == Kind.ON))
    before = np.searchsorted(switched, first) - 1
    silent = np.zeros(len(first), bool)
    silent[before >= 0] = kind[switched[before[before >= 0]]] == Kind.OFF
    entries = map(np.flatnonzero, entry_edge_masks(lane))
    counts = [np.searchsorted(at, last) - np.searchsorted(at, first) for at in entries]
    told = np.flatnonzero(kind == Kind.TALLY)
    tallies = np.zeros((len(first), names), np.int64)
    of = np.searchsorted(last, told, side="right") - 1
    known = of >= 0
    np.add.at(tallies, (of[known], top[told[known]] & NAME_MASK), edges["depth"][told[known]])
    return silent, cpu[last] - cpu[first], np.column_stack(counts), tallies
