"""Cost of recording, estimated from pairs of equal work with and without recording.

The time difference is divided by the number of recorded calls and annotations. Kinds with
correlated counts share the difference in proportion to their costs in a tight loop. Source:
RL-Scope, appendix C.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.analysis.thread_timelines import Lane, Process
from timerl_nb.scope.calibration.calibration import ANNOTATION, CALL, Calibration, Cost, interval
from timerl_nb.scope.storage.event_format import Kind

KINDS: Final = (CALL, ANNOTATION)
DRAWS: Final = 200  # number of bootstrap samples
_ROUNDS: Final = 6  # iterations of the robust fit
_FAR: Final = 1.345  # residuals beyond this many standard deviations get a lower weight (Huber)
_LOOSE: Final = (
    # prior of the ridge regression: standard deviation of the kinds' costs from their common factor
    0.5
)
_DRIFT: Final = 3.5  # maximum difference of both halves of a run, in standard deviations
_ELSE: Final = (
    "other load disturbs the measurement; calibrate with whole runs on an idle machine: "
    "`timerl scope calibrate script.py ...`."
)


def entry_edge_masks(lane: Lane) -> tuple[Array, Array]:
    """Return masks of the entry events of wrapped calls and of annotations, as in `KINDS`."""
    kind = lane.edges["kind"]
    called = kind == Kind.CALL_ENTER
    called[lane.traced] = False
    return called, (kind == Kind.OPERATION_ENTER) | (kind == Kind.PHASE_ENTER)


def unrecorded_counts(lane: Lane) -> list[tuple[Array, Array]]:
    """Return the indices of PASSED events and their counts, for each of `KINDS`."""
    edges = lane.edges
    said = [
        np.flatnonzero((edges["kind"] == Kind.PASSED) & (edges["depth"] == k))
        for k in range(len(KINDS))
    ]
    return [(at, edges["top"][at].astype(np.int64)) for at in said]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of equal work, one recorded and one not; one row per pair, in order of time.

    Attributes:
        cpu: additional CPU time of the recorded one, in nanoseconds.
        counts: recorded calls and annotations.
        recorded, silent: content of the recorded and the other one, such as numbers of outermost
            operations by name.
        share: weight of the pair: the part of the recording closest to it, relative to the mean.
    """

    cpu: Array
    counts: Array
    recorded: Array
    silent: Array
    share: Array

    def __len__(self) -> int:
        return len(self.cpu)

    def rows(self, which: Array) -> Pairs:
        """Return some of the pairs."""
        return Pairs(*(column[which] for column in vars(self).values()))

    @property
    def expected(self) -> Array:
        """Calls and annotations, predicted from the operations.

        A block with more calls than average for its operations also does more work; that is no cost
        of recording.
        """
        each, *_ = np.linalg.lstsq(self.recorded, self.counts, rcond=None)
        found = self.recorded @ each
        return found * (self.counts.sum(0) / np.maximum(found.sum(0), 1e-9))


def by_difference(
    pairs: Pairs, loop: Mapping[str, float], process: Process, *, way: str, silent: bool
) -> Calibration:
    """Return the costs of recording, estimated from pairs.

    Args:
        pairs: the pairs.
        loop: nanoseconds in a tight loop; see `microbenchmark_cost`.
        process: the recorded process.
        way: name of the method.
        silent: whether the unrecorded blocks have disabled wrappers, with a cost of their own;
            otherwise the unrecorded runs have no wrappers.

    Raises:
        ExecutionError: the measurements are contradictory.
    """
    still = np.array([loop[f"silent {kind}"] if silent else 0.0 for kind in KINDS])
    least = np.maximum(np.array([loop[kind] for kind in KINDS]) - still, 1.0)
    recorded, other = ("blocks", "disabled") if silent else ("runs", "unrecorded")
    counts = pairs.counts.mean(0)
    found, draws, halves = bootstrap_fit(
        len(pairs), lambda which: _fit_costs(pairs.rows(which), least)
    )
    each = draws @ counts
    low, high = interval(each)
    if high < 0:
        raise ExecutionError(
            f"recorded {recorded} take less time than {other} ones, by {-high:,.0f} to {-low:,.0f} ns each.",
            hint=_ELSE,
        )
    check_drift(halves @ counts, float(each.std()), f"the overhead of {recorded}")
    # lower bound: a call costs at least its time in a tight loop
    found, draws = np.maximum(found, least) + still, np.maximum(draws, least) + still
    costs: dict[str, Cost] = {}
    for k, kind in enumerate(KINDS):
        inside = float(found[k]) * min(1.0, loop[f"inside {kind}"] / max(loop[kind], 1.0))
        costs[kind] = Cost(inside, float(found[k]) - inside, tuple(draws[:, k].tolist()))
    return Calibration(
        way=way,
        costs=costs,
        silent={kind: loop[f"silent {kind}"] for kind in KINDS},
        program=process.command,
        made_by=process.made_by,
        measured=2 * len(pairs),
    )


def bootstrap_fit(count: int, fitted: Callable[[Array], Array]) -> tuple[Array, Array, Array]:
    """Fit all measurements, `DRAWS` bootstrap samples, and both halves.

    Args:
        count: number of measurements.
        fitted: returns the fit of the measurements with given indices.
    """
    every = np.arange(count)
    chosen = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    halves = every[: count // 2], every[count // 2 :]
    return fitted(every), np.array([*map(fitted, chosen)]), np.array([*map(fitted, halves)])


def check_drift(halves: Array, deviation: float, what: str) -> None:
    """Check that both halves of the measurements agree.

    Args:
        halves: nanoseconds per block or run, in each half.
        deviation: standard deviation of the estimate from all measurements.
        what: name of the quantity in the message.

    Raises:
        ExecutionError: they differ too much.
    """
    first, second = halves.tolist()
    # each half has about twice the variance of the whole; their difference has twice the variance
    # of a half
    if abs(first - second) > _DRIFT * 2 * deviation and max(first, second) > 2 * min(first, second):
        raise ExecutionError(
            f"{what} drifts from {first:,.0f} to {second:,.0f} ns each.",
            hint="record the parts of the program separately, or use an idle machine.",
        )


def _fit_costs(pairs: Pairs, loop: Array) -> Array:
    """Return nanoseconds per call and per annotation, by robust least squares.

    Differences of two blocks have a symmetric distribution, so robust weights cause no bias. All
    kinds share a common factor over their costs in a tight loop, unless the blocks contain enough
    information to separate them.
    """
    scale = 1 / np.maximum(pairs.recorded.sum(1) + pairs.silent.sum(1), 1)
    y = pairs.cpu * scale
    other = (pairs.recorded - pairs.silent) * scale[:, None]
    x = pairs.expected * scale[:, None]
    common, weights, _ = robust_least_squares(np.column_stack([x @ loop, other]), y, pairs.share)
    factor = max(float(common[0]), 1.0)
    middle = factor * loop
    design = np.column_stack([x * loop, other])
    left = y - x @ middle
    spread = max(_spread(left - other @ common[1:]), 1e-9)
    if common[0] <= 1:  # not above the tight loop: the data cannot separate the kinds
        return common[0] * loop
    return middle + fit_deviations(design, left, weights, len(loop), spread / factor) * loop


def fit_deviations(design: Array, left: Array, weights: Array, kinds: int, spread: float) -> Array:
    """Return the deviations of coefficients from their common value, by ridge regression.

    Args:
        design: rows of the regression; the first columns are the kinds.
        left: residuals of the fit with the common value.
        weights: weights of the rows.
        kinds: number of kinds.
        spread: standard deviation of the residuals, relative to the common value.
    """
    root, prior = np.sqrt(weights), np.eye(kinds, design.shape[1]) * (spread / _LOOSE)
    rows = np.vstack([design * root[:, None], prior])
    found, *_ = np.linalg.lstsq(rows, np.append(left * root, np.zeros(kinds)), rcond=None)
    return found[:kinds]


def robust_least_squares(
    design: Array, y: Array, given: Array | float = 1.0
) -> tuple[Array, Array, float]:
    """Return coefficients, weights of the rows, and the standard deviation of the residuals.

    Args:
        design: rows of the regression.
        y: values.
        given: initial weights of the rows.
    """
    weights, spread = given * np.ones(len(y)), 0.0
    found = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        found, *_ = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)
        left = y - design @ found
        spread = _spread(left)
        far = np.maximum(np.abs(left), 1e-12)
        weights = given * np.minimum(1, _FAR * np.maximum(spread, 1e-12) / far)
    return found, weights, spread


def _spread(left: Array) -> float:
    """Return a robust standard deviation, from the median absolute deviation."""
    return 1.4826 * float(np.median(np.abs(left)))
