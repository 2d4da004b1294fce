"""The sum tree: draws, their frequencies, and dependence on leaves only."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.replay import SumTree
from timerl_nb.replay.prioritization import tree_numba as tree_loops
from timerl_nb.replay.prioritization import tree_numpy as tree_arrays
from timerl_nb.replay.prioritization.sum_tree import FANOUTS

CAPACITIES = (1, 2, 7, 8, 9, 100, 1000)


def priorities(rng: np.random.Generator, count: int) -> np.ndarray:
    """Priorities over twelve decades, a third of them zero."""
    return rng.random(count) * 10.0 ** rng.integers(-9, 4, count) * (rng.random(count) > 0.3)


@pytest.mark.parametrize("fanout", FANOUTS)
def test_the_tree_is_a_function_of_its_leaves(fanout: int) -> None:
    rng = np.random.default_rng(fanout)
    for capacity in CAPACITIES:
        tree, at_once = SumTree(capacity, fanout), SumTree(capacity, fanout)
        for _ in range(30):
            index = rng.integers(0, capacity, rng.integers(1, 40))
            tree.update(index, priorities(rng, len(index)))
        at_once.insert(0, tree.priorities)
        assert tree._sums.tobytes() == at_once._sums.tobytes()
        assert tree._least.tobytes() == at_once._least.tobytes()
        assert tree.total == pytest.approx(tree.priorities.sum(), rel=1e-12)
        positive = tree.priorities[tree.priorities > 0]
        assert tree.least_priority == (positive.min() if len(positive) else np.inf)


@pytest.mark.parametrize("fanout", FANOUTS)
def test_loops_and_arrays_make_the_same_bits(fanout: int) -> None:
    rng = np.random.default_rng(fanout)
    for capacity in CAPACITIES[:-1]:
        tree = SumTree(capacity, fanout, engine="numpy")
        sums, least = tree.levels.zeros(), tree.levels.zeros(np.inf)
        starts, shift = tree.levels.starts, tree.levels.shift
        for _ in range(4):
            index = rng.integers(0, capacity, rng.integers(1, 20))
            index = index[np.unique(index, return_index=True)[1]]
            p = priorities(rng, len(index))
            tree.update(index, p)
            assert tree_loops.change(sums, least, starts, shift, capacity, 1e300, index, p) == -1
            assert sums.tobytes() == tree._sums.tobytes()
            assert least.tobytes() == tree._least.tobytes()
            targets = np.array([*rng.random(8), 0.0, 1.0, 1 + 1e-9]) * tree.total
            if tree.total:
                by_arrays = tree_arrays.descend(sums, starts, shift, targets)
                by_loops = tree_loops.descend(sums, starts, shift, targets)
                assert by_arrays.tolist() == by_loops.tolist()
                assert (tree.priorities[by_arrays] > 0).all()


def test_numba_makes_the_same_bits() -> None:
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    for fanout, capacity in product((2, 8, 256), (1, 9, 1000)):
        trees = [SumTree(capacity, fanout, engine=e) for e in ("numba", "numpy")]
        for _ in range(20):
            index = rng.integers(0, capacity, 64)
            p = priorities(rng, 64) + 1e-12
            for tree in trees:
                tree.update(index, p)
        assert trees[0]._sums.tobytes() == trees[1]._sums.tobytes()
        draws = [t.draw(500, np.random.default_rng(1)).tolist() for t in trees]
        assert draws[0] == draws[1]


def squares(found: np.ndarray, p: np.ndarray) -> float:
    """Return χ² per degree of freedom of the draw counts."""
    expected = p / p.sum() * len(found)
    seen = np.bincount(found, minlength=len(p))
    assert not seen[p == 0].any()
    kept = p > 0
    return float(((seen - expected)[kept] ** 2 / expected[kept]).sum() / (kept.sum() - 1))


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("fanout", FANOUTS)
def test_entries_are_drawn_in_proportion(fanout: int, stratified: bool) -> None:
    rng = np.random.default_rng(3)
    p = rng.random(300) * (rng.random(300) > 0.3)
    tree = SumTree(300, fanout)
    tree.insert(0, p)
    draws = [tree.draw(64, rng, stratified=stratified) for _ in range(600)]
    # Range of χ² with some 210 degrees of freedom at a level of 10⁻⁵; stratified draws vary less
    low, high = (0.0, 1.45) if stratified else (0.62, 1.45)
    assert low < squares(np.concatenate(draws), p) < high


def test_wrong_descents_are_found_out() -> None:
    rng = np.random.default_rng(3)
    p = rng.random(300) * (rng.random(300) > 0.3)
    tree = SumTree(300, 8)
    tree.insert(0, p)

    def descended(targets: np.ndarray, keeps_prefix: bool) -> np.ndarray:
        found, left = np.zeros(len(targets), np.int64), targets.copy()
        for level in range(len(tree.levels.starts) - 3, -1, -1):
            part = tree._sums[tree.levels.starts[level] + (found[:, None] << 3) + np.arange(8)]
            ahead = np.cumsum(part, axis=1)
            child = np.minimum((ahead <= left[:, None]).sum(axis=1), 7)
            if not keeps_prefix:
                before = np.where(child > 0, ahead[range(len(child)), child - 1], 0)
                left = left - before
            found = (found << 3) + child
        return np.minimum(found, 299)

    targets = rng.random(64 * 600) * tree.total
    right = descended(targets, keeps_prefix=False)
    assert right.tolist() == tree.entries_at(targets / tree.total).tolist()
    with pytest.raises(AssertionError):
        assert squares(descended(targets, keeps_prefix=True), p) < 1.45


def test_a_zero_is_never_drawn() -> None:
    tree = SumTree(1000, 8)
    p = np.zeros(1000)
    p[[3, 500, 998]] = 1e-300, 1e-9, 1e9  # sums absorb the small ones
    tree.insert(0, p)
    drawn = tree.draw(100_000, np.random.default_rng(0), stratified=False)
    assert set(drawn) <= {3, 500, 998}
    assert set(tree.entries_at([0.0, 1.0, 1 - 2**-53])) <= {3, 998}
    tree.update([998], [0.0])
    assert set(tree.draw(1000, np.random.default_rng(0))) <= {3, 500}


def test_the_last_of_duplicates_counts() -> None:
    tree = SumTree(10)
    tree.update([4, 4, 4, 5], [1.0, 2.0, 3.0, 4.0])
    assert tree.retrieve([4, 5]).tolist() == [3.0, 4.0]
    assert tree.total == 7.0


def test_entries_are_inserted_round() -> None:
    tree = SumTree(10, 4)
    tree.insert(8, [1.0, 2.0, 3.0])
    assert tree.priorities.tolist() == [3.0, *[0.0] * 7, 1.0, 2.0]
    tree.insert(0, 1.0, 10)
    assert tree.total == 10.0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((10, 1.0, 2), "entry 10 is out of range for 10 entries"),
        ((-1, 1.0, 2), "the first entry must be an integer of at least 0"),
        ((0, 1.0), "needs a count of entries"),
        ((0, 1.0, 2.5), "count must be an integer"),
        ((0, 1.0, -2), "count must be an integer of at least 0"),
    ],
)
def test_insertions_that_do_not_fit_change_nothing(arguments: tuple[Any, ...], what: str) -> None:
    tree = SumTree(10)
    with pytest.raises(trl.errors.ShapeError, match=what):
        tree.insert(*arguments)
    assert tree.total == 0.0


def test_refused_indices_are_named() -> None:
    tree = SumTree(10)
    with pytest.raises(trl.errors.ShapeError, match=f"int64, such as {2**63}") as told:
        tree.update(np.array([2**63], np.uint64), 1.0)
    assert "fractions" not in str(told.value)
    with pytest.raises(trl.errors.ShapeError, match="choose entries from 0 to 9"):
        tree.update([10], 1.0)
    with pytest.raises(trl.errors.ShapeError, match="integers of more than 64 bits"):
        tree.update([1], 2**70)


@pytest.mark.parametrize("engine", ["numpy", "numba", None])
@pytest.mark.parametrize(
    ("index", "value", "what"),
    [
        ([10], [1.0], "entry 10 at index 0 is out of range"),
        ([0, -1], [1.0, 1.0], "entry -1 at index 1 is out of range"),
        ([3, 4], [1.0, np.nan], "the priority nan of entry 4"),
        ([3], [np.inf], "the priority inf of entry 3"),
        ([3], [-1.0], "the priority -1.0 of entry 3"),
        ([3, 4], [1.0, 2.0, 3.0], r"priorities of the shape \[3\] do not match 2 entries"),
    ],
)
def test_what_is_no_priority_changes_nothing(
    engine: str | None, index: list[int], value: list[float], what: str
) -> None:
    tree = SumTree(10, engine=engine)
    tree.insert(0, 1.0, 10)
    with pytest.raises(trl.errors.ShapeError, match=what):
        tree.update(index, value)
    assert tree.total == 10.0


def test_there_is_nothing_to_draw() -> None:
    with pytest.raises(trl.errors.ExecutionError, match="all priorities are zero"):
        SumTree(10).draw(1, np.random.default_rng(0))


def test_fan_outs_and_engines_are_named() -> None:
    with pytest.raises(trl.errors.OptionError, match="2, 4, 8, 16, 32, 64, 128, 256"):
        SumTree(10, 3)
    with pytest.raises(trl.errors.OptionError, match="numba"):
        SumTree(10, engine="fortran")
