"""The sum tree in programs: distribution of draws, dependence on leaves only, in-place updates."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.rl import in_program_priority_tree as module

XLA = trl.Options(executor="xla")


def draws(priorities: np.ndarray, fanout: int, steps: int, count: int) -> dict[str, np.ndarray]:
    """Draw `count` leaves of fixed priorities at each of some steps."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        leaves = trl.constant(np.arange(len(priorities), dtype=np.int32))
        tree = trl.replay.device_tree(len(priorities), fanout)
        tree = tree.with_leaves(leaves, trl.constant(priorities.astype(np.float32)))
        drawn = tree.draw(count, domain=(t,))
        ctx.output("index", drawn.index)
        ctx.output("priority", drawn.priority)
        ctx.output("probability", drawn.probability)
    options = trl.Options(executor="xla", vectorize=False)  # draws of a step are stratified
    return dict(ctx.compile({"T": steps}, options).execute(seed=7))


def misfit(index: np.ndarray, priorities: np.ndarray) -> float:
    """Return the p-value of draws in a chi-squared test."""
    counts = np.bincount(index.ravel(), minlength=len(priorities))[: len(priorities)]
    some = priorities > 0
    want = priorities[some] / priorities.sum() * index.size
    statistic = ((counts[some] - want) ** 2 / want).sum()
    return float(stats.chi2.sf(statistic, max(some.sum() - 1, 1)))


def mixed(size: int) -> np.ndarray:
    rng = np.random.default_rng(size)
    made = rng.uniform(0.1, 2.0, size) * (rng.random(size) > 0.3)
    made[size // 2] = 1.5
    return made


@pytest.mark.parametrize(("size", "fanout"), [(1, 16), (13, 16), (40, 2), (300, 16)])
def test_draws_are_in_proportion_and_stratified(size: int, fanout: int) -> None:
    priorities, count = mixed(size), 500
    found = draws(priorities, fanout, 100, count)
    index = found["index"]
    assert index.min() >= 0 and index.max() < size
    assert not (priorities[index] == 0).any()
    np.testing.assert_array_equal(found["priority"], priorities.astype(np.float32)[index])
    share = priorities[index] / priorities.sum()
    np.testing.assert_allclose(found["probability"], share, rtol=1e-5)
    assert misfit(index, priorities) > 1e-4
    # draw k lies in stratum k, except in the group at a stratum's border
    ends = np.concatenate([[0], np.cumsum(priorities)]) / priorities.sum()
    if size <= fanout:
        k = np.arange(count)
        assert (ends[index] <= (k + 1) / count + 1e-6).all()
        assert (ends[index + 1] >= k / count - 1e-6).all()


Descent = Callable[[Any, Any, int], Any]


def _same_bits(right: Descent) -> Descent:
    """Descend with the first level's random numbers at all levels (a mistake)."""
    first: list[Any] = []

    def chosen(sums: Any, share: Any, size: int) -> Any:
        first.append(share)
        return right(sums, first[0], size)

    return chosen


def _one_further(right: Descent) -> Descent:
    """Descend with an inclusive comparison (a mistake)."""
    return lambda sums, share, size: trl.min(right(sums, share, size) + 1, size - 1)


@pytest.mark.parametrize("wrong", [_same_bits, _one_further])
def test_wrong_descents_are_noticed(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    priorities = mixed(300)
    monkeypatch.setattr(module, "chosen", wrong(module.chosen))
    index = draws(priorities, 16, 100, 500)["index"]
    assert misfit(index, priorities) < 1e-9


def test_a_leaf_of_no_priority_is_never_drawn() -> None:
    """Even under rounding of sums over twelve decades."""
    rng = np.random.default_rng(1)
    priorities = (10.0 ** rng.uniform(-6, 6, 256)) * (rng.random(256) < 0.5)
    found = draws(priorities, 16, 250, 4000)
    assert found["index"].size == 1_000_000
    assert (priorities[found["index"]] > 0).all() and (found["priority"] > 0).all()


def test_a_tree_is_a_function_of_its_leaves() -> None:
    """Bitwise equal to a newly built tree, after updates with duplicates and of no leaves."""
    size, fanout, steps, count = 50, 4, 40, 12
    rng = np.random.default_rng(3)
    at = rng.integers(-3, size + 20, (steps, count)).astype(np.int32)
    given = (10.0 ** rng.uniform(-4, 4, (steps, count)) - 1e-3).astype(np.float32)
    given[3, 4] = np.nan
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        tree = trl.replay.device_tree(size, fanout, domain=(t,))
        tree[0] = trl.replay.device_tree(size, fanout)
        new = tree.with_leaves(trl.data(at, domain=t), trl.data(given, domain=t))
        tree[t + 1] = new
        every = trl.constant(np.arange(size, dtype=np.int32))
        again = trl.replay.device_tree(size, fanout).with_leaves(every, new[T - 1].leaves)
        for k, (one, other) in enumerate(zip(new.levels, again.levels, strict=True)):
            ctx.output(f"one {k}", one[T - 1])
            ctx.output(f"other {k}", other)
        ctx.output("total", new[T - 1].total)
    found = ctx.compile({"T": steps}, XLA).execute()
    want = np.zeros(size, np.float32)
    for row, values in zip(at, given, strict=True):
        for place, value in zip(row.tolist(), values, strict=True):
            if 0 <= place < size:
                want[place] = value if value > 0 else 0
    assert len(new.levels) == 3 and [level.shape for level in new.levels] == [(4,), (16,), (52,)]
    np.testing.assert_array_equal(found["one 2"], np.pad(want, (0, 2)))
    for k in range(3):
        np.testing.assert_array_equal(found[f"one {k}"], found[f"other {k}"])
    np.testing.assert_allclose(found["total"], want.astype(np.float64).sum(), rtol=1e-6)


def remembering(size: int, fanout: int, count: int, over: tuple[str, ...]) -> trl.Context:
    """A tree that gets a leaf at each step, and updates its drawn leaves."""
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        dims = {"b": b, "t": t}
        *outer, _ = key = [dims[name] for name in over]
        tree = trl.replay.device_tree(size, fanout, domain=tuple(key))
        tree[(*outer, 0)] = trl.replay.device_tree(size, fanout)
        place = (trl.value(t) + (trl.value(b) if outer else 0)) % size
        full = tree.with_leaves(place.reshape(1), 4.0)
        drawn = full.draw(count)
        changed = (drawn.index % 8 + 1).floating() * 0.5  # their sums are exact
        tree[(*outer, t + 1)] = full.with_leaves(drawn.index, changed)
        ctx.output("index", drawn.index)
        ctx.output("weight", drawn.weight(0.5))
        ctx.output("probability", drawn.probability)
    return ctx


@pytest.mark.parametrize("over", [("t",), ("b", "t")], ids=["one", "each its own"])
@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_a_program_with_a_tree_runs(over: tuple[str, ...], executor: Any) -> None:
    ctx, bounds = remembering(11, 4, 3, over), {"B": 2, "T": 7}
    want = Reference(ctx.pdg(), bounds, 5).outputs()
    found = ctx.compile(bounds, trl.Options(executor=executor)).execute(seed=5)
    assert_same(want, found, "run")
    assert (found["weight"] <= 1).all() and found["weight"].max() == 1


@pytest.mark.parametrize("over", [("t",), ("b", "t")], ids=["one", "each its own"])
def test_levels_are_written_in_place(over: tuple[str, ...]) -> None:
    """Each is one array, and the loop copies none."""
    program = remembering(1000, 16, 32, over).compile({"B": 2, "T": 40}, XLA)
    kept = {s.name: s for s in program.memory.stores.values() if s.name.startswith("level")}
    assert len(kept) == 6 and all(store.kind == "slot" for store in kept.values())
    lowered = program.executable.xla_program
    assert lowered is not None and len(lowered.calls) == 1
    text, start = lowered.xla_executable(1).as_text().split("\nENTRY ")
    many = "2," * (len(over) - 1)
    assert f"f32[{many}1008]" in start
    for size in (1008, 64, 16):
        assert re.search(rf"f32\[{many}{size}\]\S* (?:scatter|fusion)\(", text), size
        if size > 16:  # running sums of the first level have its shape
            assert not re.findall(rf"f32\[{many}{size}\]\S* copy\(", text), size


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: trl.replay.device_tree(0), "at least 1"),
        (lambda: trl.replay.device_tree(8, fanout=1), "at least 2"),
        (lambda: trl.replay.device_tree(2**30 + 1), "at most"),
        (lambda: trl.replay.device_tree(8).draw(0), "at least 1"),
        (lambda: trl.replay.device_tree(8).with_leaves(3, 1.0), "do not match leaves"),
        (lambda: trl.replay.device_tree(8).with_leaves([3], np.ones(2)), "do not match leaves"),
    ],
)
def test_trees_that_are_none(wrong: Any, message: str) -> None:
    with trl.Context("t"), pytest.raises(trl.errors.TimeRLError, match=message):
        wrong()


def test_trees_of_different_sizes_are_not_the_same() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        tree = trl.replay.device_tree(8, domain=(t,))
        with pytest.raises(
            trl.errors.ShapeError, match="is assigned to one of 8 leaves with fanout 8"
        ):
            tree[0] = trl.replay.device_tree(9)
