"""What recording costs, from pairs of the same work with and without it (RL-Scope, paper 002, appendix C.1).

The increase in time, divided by how often book-keeping was done; kinds of it that come together share it as in a
tight loop.
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
DRAWS: Final = 200  # samples of a measurement
_ROUNDS: Final = 6  # of weighing
_FAR: Final = 1.345  # deviations from which on a pair weighs less (Huber)
_LOOSE: Final = (
    0.5  # by how much the kinds' costs may differ from one common factor, as a deviation
)
_DRIFT: Final = 3.5  # deviations between both halves of a run
_ELSE: Final = (
    "something else differs between them; calibrate by whole runs, on a machine that does less meanwhile: "
    "`timerl scope calibrate script.py ...`."
)


def entry_edge_masks(lane: Lane) -> tuple[Array, Array]:
    """Which edges enter calls that are tapped, and which annotations: what there is of `KINDS`."""
    kind = lane.edges["kind"]
    called = kind == Kind.CALL_ENTER
    called[lane.traced] = False
    return called, (kind == Kind.OPERATION_ENTER) | (kind == Kind.PHASE_ENTER)


def unrecorded_counts(lane: Lane) -> list[tuple[Array, Array]]:
    """What was not written, of each of `KINDS`: the edges that say so, and how many."""
    edges = lane.edges
    said = [
        np.flatnonzero((edges["kind"] == Kind.PASSED) & (edges["depth"] == k))
        for k in range(len(KINDS))
    ]
    return [(at, edges["top"][at].astype(np.int64)) for at in said]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The same work, recorded and not: a row for each pair, in order.

    Attributes:
        cpu: nanoseconds by which the recorded one took longer.
        counts: calls and annotations that were recorded in it.
        recorded, silent: what is in the recorded and in the other one, such as outermost operations, by name.
        share: of all that was recorded, for which a pair stands, as a multiple of what it is on average.
    """

    cpu: Array
    counts: Array
    recorded: Array
    silent: Array
    share: Array

    def __len__(self) -> int:
        return len(self.cpu)

    def rows(self, which: Array) -> Pairs:
        """Some of them."""
        return Pairs(*(column[which] for column in vars(self).values()))

    @property
    def expected(self) -> Array:
        """Calls and annotations, as many as operations of these names have on average.

        What has more of them than its like does more, which is no cost of recording.
        """
        each, *_ = np.linalg.lstsq(self.recorded, self.counts, rcond=None)
        found = self.recorded @ each
        return found * (self.counts.sum(0) / np.maximum(found.sum(0), 1e-9))


def by_difference(
    pairs: Pairs, loop: Mapping[str, float], process: Process, *, way: str, silent: bool
) -> Calibration:
    """What recording costs by pairs.

    Args:
        loop: nanoseconds in a tight loop (`tight_loop`).
        process: what was recorded.
        silent: whether the other ones of pairs are silent, and cost what that does; or have no taps.

    Raises:
        ExecutionError: what pairs say contradicts itself, and how.
    """
    still = np.array([loop[f"silent {kind}"] if silent else 0.0 for kind in KINDS])
    least = np.maximum(np.array([loop[kind] for kind in KINDS]) - still, 1.0)
    recorded, other = ("blocks", "silent") if silent else ("runs", "other")
    counts = pairs.counts.mean(0)
    found, draws, halves = bootstrap_fit(
        len(pairs), lambda which: _fit_costs(pairs.rows(which), least)
    )
    each = draws @ counts
    low, high = interval(each)
    if high < 0:
        raise ExecutionError(
            f"recorded {recorded} took less time than {other} ones, by {-high:,.0f} to {-low:,.0f} ns each.",
            hint=_ELSE,
        )
    check_drift(halves @ counts, float(each.std()), f"what recording costs {recorded}")
    # nothing costs less in place than in a tight loop
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
    """What so many measurements say: all of them, `DRAWS` samples of as many (a bootstrap), and both halves.

    Args:
        fitted: what some of them say, by their numbers.
    """
    every = np.arange(count)
    chosen = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    halves = every[: count // 2], every[count // 2 :]
    return fitted(every), np.array([*map(fitted, chosen)]), np.array([*map(fitted, halves)])


def check_drift(halves: Array, deviation: float, what: str) -> None:
    """Say that both halves of what was measured say the same.

    Args:
        halves: nanoseconds that a block or a run costs, by each.
        deviation: of that by all.

    Raises:
        ExecutionError: they do not.
    """
    first, second = halves.tolist()
    # each half has about twice the variance of all, and their difference twice that
    if abs(first - second) > _DRIFT * 2 * deviation and max(first, second) > 2 * min(first, second):
        raise ExecutionError(
            f"{what} drifts from {first:,.0f} to {second:,.0f} ns each.",
            hint="record the parts of the program apart, or on a machine that does less meanwhile.",
        )


def _fit_costs(pairs: Pairs, loop: Array) -> Array:
    """Nanoseconds of each kind, by least squares that far pairs weigh little in.

    A difference of two blocks has a symmetric distribution, which weighing leaves where it is. All kinds share one
    factor by which they are dearer than in a tight loop, as far as blocks do not tell them apart.
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
    if common[0] <= 1:  # no more than the tight loop: what kind it is cannot be said
        return common[0] * loop
    return middle + fit_deviations(design, left, weights, len(loop), spread / factor) * loop


def fit_deviations(design: Array, left: Array, weights: Array, kinds: int, spread: float) -> Array:
    """What the first coefficients, of so many kinds, differ by from one that they share, as far as rows tell them apart.

    Args:
        left: what that one leaves.
        spread: the deviation of that, by what is shared.
    """
    root, prior = np.sqrt(weights), np.eye(kinds, design.shape[1]) * (spread / _LOOSE)
    rows = np.vstack([design * root[:, None], prior])
    found, *_ = np.linalg.lstsq(rows, np.append(left * root, np.zeros(kinds)), rcond=None)
    return found[:kinds]


def robust_least_squares(
    design: Array, y: Array, given: Array | float = 1.0
) -> tuple[Array, Array, float]:
    """Coefficients, the weights of rows, some `given`, and the deviation of what is left."""
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
    """The deviation of a distribution with far outliers."""
    return 1.4826 * float(np.median(np.abs(left)))
