"""In-run delta calibration: what recording costs, from blocks of the same run that are silent at random.

RL-Scope (paper 002, appendix C.1) runs a program with and without book-keeping, and takes what is between two runs
for its cost. Here it is what is between two neighbouring blocks of a run, which do the same at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.errors import ExecutionError
from timerl_nb.scope.blocks import FEWEST
from timerl_nb.scope.calibration import ANNOTATION, CALL, Calibration, Cost, interval
from timerl_nb.scope.edges import NAME_BITS, Kind, Library
from timerl_nb.scope.lanes import Lane, Lanes

KINDS: Final = (CALL, ANNOTATION)
_NAME: Final = (1 << NAME_BITS) - 1
_NAMES: Final = 6  # that operations are told apart by, the most frequent ones; others are one
_DRAWS: Final = 200
_ROUNDS: Final = 6  # of weighing
_FAR: Final = 1.345  # deviations from which on a pair weighs less (Huber)
_LOOSE: Final = (
    0.5  # by how much the kinds' costs may differ from one common factor, as a deviation
)
_DRIFT: Final = 3.5  # deviations between both halves of a run


@dataclass(frozen=True, eq=False)
class Pairs:
    """Neighbouring blocks, one recorded and one silent: a row for each, in order.

    Attributes:
        cpu: nanoseconds by which the recorded one took longer.
        counts: calls and annotations that were recorded in it.
        recorded, silent: outermost operations in each, by name.
    """

    cpu: Array
    counts: Array
    recorded: Array
    silent: Array

    def __len__(self) -> int:
        return len(self.cpu)

    def rows(self, which: Array) -> Pairs:
        """Some of them."""
        return Pairs(self.cpu[which], self.counts[which], self.recorded[which], self.silent[which])

    @property
    def expected(self) -> Array:
        """Calls and annotations, as many as operations of these names have on average.

        A block with more of them than its like does more, which is no cost of recording.
        """
        each, *_ = np.linalg.lstsq(self.recorded, self.counts, rcond=None)
        found = self.recorded @ each
        return found * (self.counts.sum(0) / np.maximum(found.sum(0), 1e-9))


def in_run(recording: Lanes) -> Calibration:
    """What recording has cost a program, by its own silent blocks.

    Raises:
        ExecutionError: too few blocks were left out; or what they say contradicts itself, and how.
    """
    pairs = pairs_of(recording)
    if 2 * len(pairs) < FEWEST:
        raise ExecutionError(
            f"{len(pairs)} pairs of blocks were recorded and left out; it takes {FEWEST // 2}.",
            hint="record with taps, for some seconds, in operations of some milliseconds; or calibrate by whole "
            "runs: `timerl scope calibrate script.py ...`.",
        )
    timed = [p.costs for p in recording.processes if p.costs]
    least = {
        f"{part}{kind}": float(np.median([one[f"{part}{kind}"] for one in timed]))
        for part in ("", "silent ", "inside ")
        for kind in KINDS
    }
    loop = np.array([max(least[kind] - least[f"silent {kind}"], 1.0) for kind in KINDS])
    found = _fitted(pairs, loop)
    chosen = np.random.default_rng(0).integers(len(pairs), size=(_DRAWS, len(pairs)))
    draws = np.array([_fitted(pairs.rows(which), loop) for which in chosen])
    _contradicts(pairs, loop, found, draws)
    # nothing costs less in place than in a tight loop
    found, draws = np.maximum(found, loop), np.maximum(draws, loop)
    costs: dict[str, Cost] = {}
    for k, kind in enumerate(KINDS):
        silent = least[f"silent {kind}"]
        total = found[k] + silent
        inside = total * min(1.0, least[f"inside {kind}"] / max(least[kind], 1.0))
        costs[kind] = Cost(inside, total - inside, tuple((draws[:, k] + silent).tolist()))
    return Calibration(
        way="in-run delta",
        costs=costs,
        silent={kind: least[f"silent {kind}"] for kind in KINDS},
        program=recording.processes[0].command,
        made_by=recording.processes[0].made_by,
        measured=2 * len(pairs),
    )


def _contradicts(pairs: Pairs, loop: Array, found: Array, draws: Array) -> None:
    """Raise where what blocks say cannot be."""
    each = draws @ pairs.counts.mean(0)  # a block
    low, high = interval(each)
    if high < 0:
        raise ExecutionError(
            f"recorded blocks took less time than silent ones, by {-high:,.0f} to {-low:,.0f} ns each.",
            hint="something else differs between them; calibrate by whole runs: `timerl scope calibrate`.",
        )
    half = len(pairs) // 2
    parts = [_fitted(pairs.rows(x), loop) for x in (np.arange(half), np.arange(half, len(pairs)))]
    first, second = (float(part @ pairs.counts.mean(0)) for part in parts)
    # each half has about twice the variance of all, and their difference twice that
    if abs(first - second) > _DRIFT * 2 * float(each.std()) and abs(first - second) > first / 2:
        raise ExecutionError(
            f"what recording costs a block drifts from {first:,.0f} to {second:,.0f} ns within the run.",
            hint="record the parts of the program apart.",
        )


def _fitted(pairs: Pairs, loop: Array) -> Array:
    """Nanoseconds of each kind, by least squares that far pairs weigh little in.

    A difference of two blocks has a symmetric distribution, which weighing leaves where it is. All kinds share one
    factor by which they are dearer than in a tight loop, as far as blocks do not tell them apart.
    """
    scale = 1 / np.maximum(pairs.recorded.sum(1) + pairs.silent.sum(1), 1)
    y = pairs.cpu * scale
    other = (pairs.recorded - pairs.silent) * scale[:, None]
    x = pairs.expected * scale[:, None]
    common, weights, _ = _weighed(np.column_stack([x @ loop, other]), y)
    factor = max(float(common[0]), 1.0)
    middle = factor * loop
    design = np.column_stack([x * loop, other])
    left = y - x @ middle
    spread = _spread(left - other @ common[1:])
    prior = np.zeros((len(loop), design.shape[1]))
    prior[np.arange(len(loop)), np.arange(len(loop))] = max(spread, 1e-9) / (_LOOSE * factor)
    root = np.sqrt(weights)
    rows = np.vstack([design * root[:, None], prior])
    moved, *_ = np.linalg.lstsq(rows, np.append(left * root, np.zeros(len(loop))), rcond=None)
    if common[0] <= 1:  # no more than the tight loop: what kind it is cannot be said
        return common[0] * loop
    return middle + moved[: len(loop)] * loop


def _weighed(design: Array, y: Array) -> tuple[Array, Array, float]:
    """Coefficients, the weights of rows, and the deviation of what is left."""
    weights, spread = np.ones(len(y)), 0.0
    found = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        found, *_ = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)
        left = y - design @ found
        spread = _spread(left)
        weights = np.minimum(1, _FAR * spread / np.maximum(np.abs(left), 1e-12))
    return found, weights, spread


def _spread(left: Array) -> float:
    """The deviation of a distribution with far outliers."""
    return 1.4826 * float(np.median(np.abs(left)))


def pairs_of(recording: Lanes) -> Pairs:
    """All pairs of neighbouring blocks of all lanes."""
    lanes = [_blocks(lane, len(recording.names)) for lane in recording.lanes]
    rows: list[tuple[int, Array, Array, Array]] = []
    for silent, cpu, counts, tallies in lanes:
        free = ~silent
        for k in np.flatnonzero(silent).tolist():
            near = next((j for j in (k - 1, k + 1) if 0 <= j < len(free) and free[j]), None)
            if near is not None:
                free[near] = False
                rows.append((cpu[near] - cpu[k], counts[near], tallies[near], tallies[k]))
    if not rows:
        return Pairs(*(np.zeros((0, 0)) for _ in range(4)))
    cpu, counts, *both = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    most = np.argsort(-(both[0] + both[1]).sum(0), kind="stable")[:_NAMES]
    rest = [x.sum(1, keepdims=True) - x[:, most].sum(1, keepdims=True) for x in both]
    named = [np.hstack([x[:, most], y]) for x, y in zip(both, rest, strict=True)]
    return Pairs(cpu, counts, *named)


def _blocks(lane: Lane, names: int) -> tuple[Array, Array, Array, Array]:
    """Of each block of a lane: whether it is silent, its CPU time, its calls and annotations, and its tallies by name."""
    edges = lane.edges
    kind, top = edges["kind"], edges["top"]
    first, last = (np.flatnonzero(kind == one) for one in (Kind.BLOCK_ENTER, Kind.BLOCK_EXIT))
    after = np.searchsorted(last, first)
    whole = after < len(last)
    first, last = first[whole], last[after[whole]]
    cpu = edges["top"].astype(np.int64) + (edges["depth"].astype(np.int64) << 32)
    switched = np.flatnonzero((kind == Kind.OFF) | (kind == Kind.ON))
    before = np.searchsorted(switched, first) - 1
    silent = np.zeros(len(first), bool)
    silent[before >= 0] = kind[switched[before[before >= 0]]] == Kind.OFF
    called = (kind == Kind.CALL_ENTER) & (top >> NAME_BITS != Library.API)
    annotated = (kind == Kind.OPERATION_ENTER) | (kind == Kind.PHASE_ENTER)
    counts = [_between(np.flatnonzero(one), first, last) for one in (called, annotated)]
    told = np.flatnonzero(kind == Kind.TALLY)
    tallies = np.zeros((len(first), names), np.int64)
    of = np.searchsorted(last, told, side="right") - 1
    known = of >= 0
    np.add.at(tallies, (of[known], top[told[known]] & _NAME), edges["depth"][told[known]])
    return silent, cpu[last] - cpu[first], np.column_stack(counts), tallies


def _between(where: Array, first: Array, last: Array) -> Array:
    return np.searchsorted(where, last) - np.searchsorted(where, first)
