"""The engines of the replay buffer: C, Numba and NumPy compute the same bits."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.replay import Proportional, SumTree
from timerl_nb.replay.prioritization.sum_tree import FANOUTS
from timerl_nb.replay.prioritization.tree_engine import c_extension

FIELDS = {
    "obs": ((3, 2), "f32"),
    "pixels": ((20, 15), "u8"),
    "action": ((), "i64"),
    "done": ((), "bool"),
    "half": ((2,), "f16"),
    "none": ((2, 0), "f32"),
    "reward": ((), "f32"),
}
STEPS = {"next_obs": ((3, 2), "f32"), "terminated": ((), "bool")}
OPTIONS: list[dict[str, Any]] = [
    {"capacity": 1},
    {"capacity": 37, "fanout": 2, "weights": "batch"},
    {"capacity": 600, "above": 0},
    {"capacity": 100, "fanout": 4, "n_step": 3, "fields": FIELDS | STEPS},
    {"capacity": 2_000, "fanout": 256, "priority": Proportional(alpha=1.3, eps=0.0)},
    {"capacity": 65, "fanout": 16, "fields": {"x": ((), "f32"), "y": ((3,), "bf16")}},
    {"capacity": 50, "priority": None},
]


@pytest.fixture(autouse=True)
def needs_c() -> None:
    """Skip the tests without the C extension."""
    if c_extension() is None:
        if os.environ.get("TIMERL_REQUIRE_C"):
            pytest.fail("the C extension of the replay buffer was not built")
        pytest.skip("the C extension of the replay buffer was not built")


def buffers(capacity: int, **options: Any) -> list[trl.Replay]:
    """Return equal buffers with the engines C, Numba and NumPy."""
    given = {"priority": Proportional(), "seed": 3, "fields": FIELDS} | options
    return [trl.Replay(capacity, engine=engine, **given) for engine in ("c", "numba", "numpy")]


def random_rows(random: np.random.Generator, buffer: trl.Replay, count: int) -> dict[str, Any]:
    """Return rows as arrays of different memory layouts, or as lists."""
    found: dict[str, Any] = {}
    names = [n for n in buffer.fields if n != "discount"]
    usual = random.random() < 0.7
    for name in names:
        shape, kind = buffer.fields[name].shape, buffer.fields[name].dtype
        x = (200 * random.random((2 * count, *shape))).astype(kind)
        layouts = [
            x[:count],
            x[::2],
            x[::-2],
            x[:count].astype(kind, order="F"),
            x[:1].repeat(count, 0),
        ]
        layouts += [np.broadcast_to(x[:1], (count, *shape)) if count else x[:0]]
        # a view with unaligned elements, and one that is no NumPy array
        raw = np.zeros(x[:count].nbytes + 1, np.uint8)[1:].view(kind).reshape(x[:count].shape)
        raw[:] = x[:count]
        layouts += [raw, memoryview(x[:count]) if kind.kind != "V" else x[:count]]
        found[name] = layouts[0] if usual else layouts[random.integers(len(layouts))]
    if not usual and random.random() < 0.3:
        found = dict(reversed(found.items()))
    if buffer._steps is not None:
        found["terminated"] = random.random(count) < 0.1
    return found


def bits(buffer: trl.Replay) -> list[bytes]:
    """Return everything that an operation can change."""
    tree = () if buffer.priority is None else (buffer.tree._sums, buffer.tree._least)
    state = buffer.state()
    about = state.pop("about").tobytes()
    names = sorted(state)
    own = buffer._name.encode()
    about = about.replace(own, b"").replace(buffer._epochs[-1].name.encode(), b"")
    return [*(x.tobytes() for x in (*(state[n] for n in names), *tree)), about]


def sampled(sample: Any) -> list[bytes]:
    arrays = [*sample.rows.values(), sample.index, sample.weight, sample.probability]
    assert all(x.flags.c_contiguous and x.flags.writeable for x in arrays)
    return [x.tobytes() for x in (*arrays, sample.ticket.serial)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_all_engines_make_the_same_bits(options: dict[str, Any]) -> None:
    ours = buffers(**options)
    random = np.random.default_rng(7)
    capacity, prioritised = ours[0].capacity, ours[0].priority is not None
    tickets: list[list[Any]] = []
    fields = [n for n in ours[0].fields if n != "discount"]
    for k in range(60):
        envs = 5 if ours[0]._steps is not None else int(random.integers(0, 12))
        count = 2 * capacity + 3 if k % 20 == 9 and envs != 5 else envs
        rows = random_rows(random, ours[0], count)
        errors = random.normal(size=count) if k % 7 == 3 and ours[0]._steps is None else None
        assert len({buffer.insert(rows, errors) for buffer in ours}) == 1
        if not len(ours[0]):
            continue
        many = [1, 2, 31, 700][k % 4]
        samples = [buffer.sample(many, beta=0.1 * (k % 11)) for buffer in ours]
        parts = [[sampled(s) for s in b.sample_in_parts(many, chunks=3)] for b in ours]
        assert sampled(samples[0]) == sampled(samples[1]) == sampled(samples[2])
        assert parts[0] == parts[1] == parts[2]
        assert list(samples[0].rows) == list(ours[0].fields) and set(fields) <= set(samples[0].rows)
        tickets.append([sample.ticket for sample in samples])
        if prioritised:  # tickets of the past have rows that are gone, and all have duplicates
            old = tickets[max(len(tickets) - 1 - k % 3, 0)]
            errors = random.normal(size=len(old[0])) * 10.0 ** random.integers(-6, 3)
            skipped = {b.update(t, errors) for b, t in zip(ours, old, strict=True)}
            assert len(skipped) == 1
        assert bits(ours[0]) == bits(ours[1]) == bits(ours[2])
    if prioritised:
        assert [buffer.tree.engine for buffer in ours] == ["c", "numba", "numpy"]


@pytest.mark.parametrize("fanout", FANOUTS)
def test_trees_of_all_engines_are_equal(fanout: int) -> None:
    random = np.random.default_rng(fanout)
    for capacity in (1, 2, 7, 9, 100, 1000):
        trees = [SumTree(capacity, fanout, engine=engine) for engine in ("c", "numba", "numpy")]
        for size in (1, 20, 600):
            index = random.integers(0, capacity, size)
            values = random.random(size) * 10.0 ** random.integers(-9, 4, size)
            values *= random.random(size) > 0.3
            for tree in trees:
                tree.update(index, values)
            assert len({tree._sums.tobytes() for tree in trees}) == 1
            assert len({tree._least.tobytes() for tree in trees}) == 1
            if trees[0].total:
                shares = [*random.random(601), 0.0, 1.0, 1 + 1e-9]
                assert len({tree.entries_at(shares).tobytes() for tree in trees}) == 1


def test_plain_rows_take_the_compiled_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({}, {"priority": None}, {"above": 0}):
        ours, *_ = buffers(20, **options)
        random = np.random.default_rng(0)
        x = {n: np.ones((3, *f.shape), f.dtype) for n, f in ours.fields.items()}
        for name in ("_insert", "_entries", "_serial"):
            if name != "_serial" or ours.priority is not None:
                monkeypatch.setattr(ours, name, None, raising=False)
        assert ours.insert(x) == ours.insert({n: y[::-1] for n, y in x.items()}) == 3
        sample = ours.sample(8)
        if ours.priority is not None:
            monkeypatch.setattr(ours, "_shared_serial_range", None, raising=False)
            assert ours.update(sample.ticket, random.random(8)) == 0


def test_targets_at_the_limits_between_entries_are_rounded_alike() -> None:
    for count in range(1, 130):
        found = set()
        for ours in buffers(count, priority=Proportional(1.0, 0.0), fields={"x": ((), "f32")}):
            ours.insert({"x": np.arange(count, dtype=np.float32)})
            ours._random = SimpleNamespace(random=np.zeros)
            found.add(ours.sample(count).index.tobytes())
        assert len(found) == 1


def test_samples_own_their_rows() -> None:
    for ours in buffers(20):
        ours.insert({n: np.ones((20, *f.shape), f.dtype) for n, f in ours.fields.items()})
        first, second = ours.sample(6), ours.sample(6)
        for name, x in first.rows.items():
            assert not any(np.shares_memory(x, y) for y in (second[name], ours._rows._arrays[name]))
        first["obs"][:] = 7
        assert (ours.sample(6)["obs"] == 1).all()


def refused_calls(ours: trl.Replay) -> list[Callable[[], Any]]:
    """Return calls with wrong arguments, for a buffer of five rows."""
    x, n = np.ones((4, 2), np.float32), np.arange(4)
    ticket = ours.sample(4).ticket
    later, negative = ours.ticket(np.array([3, 5])), ours.ticket(np.array([-1]))
    return [
        lambda: ours.insert({"x": x}),
        lambda: ours.insert({"x": x, "n": n, "m": n}),
        lambda: ours.insert({"x": x[:, :1], "n": n}),
        lambda: ours.insert({"x": x[:3], "n": n}),
        lambda: ours.insert({"x": x[0, 0], "n": n}),
        lambda: ours.insert({"x": x, "n": n + 0.5}),
        lambda: ours.insert([x, n]),
        lambda: ours.insert({"x": x, "n": n}, errors=np.full(4, np.nan)),
        lambda: ours.insert({"x": x, "n": n}, errors=np.ones(3)),
        lambda: ours.sample(0),
        lambda: ours.update(ticket, np.ones(3)),
        lambda: ours.update(ticket, [1.0, 2.0, np.nan, 1.0]),
        lambda: ours.update(later, [1.0, 1.0]),
        lambda: ours.update(negative, [1.0]),
        lambda: ours._rows.gather(np.array([20])),
        lambda: ours._rows.gather(np.array([0, -21])),
    ]


def test_errors_are_the_same_and_change_nothing() -> None:
    told: list[list[str]] = []
    for ours in buffers(20, fields={"x": ((2,), "f32"), "n": ((), "i64")}):
        ours.insert({"x": np.ones((5, 2), np.float32), "n": np.arange(5)})
        told.append([])
        calls, before = refused_calls(ours), bits(ours)
        for call in calls:
            with pytest.raises((trl.errors.TimeRLError, IndexError)) as caught:
                call()
            is_ours = isinstance(caught.value, trl.errors.TimeRLError)
            told[-1].append(str(caught.value).partition("\n")[0] if is_ours else "IndexError")
        assert bits(ours) == before
    assert told[0] == told[1] == told[2]


def test_priorities_that_overflow_are_refused_alike() -> None:
    for ours in buffers(20, priority=Proportional(alpha=2.0)):
        ours.insert({n: np.ones((3, *f.shape), f.dtype) for n, f in ours.fields.items()})
        ticket, before = ours.sample(4).ticket, bits(ours)
        with pytest.raises(trl.errors.ShapeError, match="the priority inf of entry"):
            ours.update(ticket, np.full(4, 1e200))
        assert bits(ours) == before


def test_changed_tickets_use_the_other_way() -> None:
    found = []
    for ours in buffers(20):
        ours.insert({n: np.ones((9, *f.shape), f.dtype) for n, f in ours.fields.items()})
        ticket = ours.sample(8).ticket
        for serial in (ticket.serial[::2], ticket.serial[:4].astype(np.int32)):
            made = type(ticket)(ticket.buffer, serial, ticket.epochs)
            assert ours.update(made, np.arange(4.0)) == 0
        assert ours.update(ours.ticket(np.zeros(0, np.int64)), []) == 0
        found.append(bits(ours))
    assert found[0] == found[1] == found[2]


def test_misuse_of_the_extension_raises() -> None:
    c = c_extension()
    tree = SumTree(10, engine="c")
    index, values = np.arange(3), np.ones(3)
    for function, arguments in (
        (c.change, (*tree.arguments, index)),
        (c.change, (*tree.arguments, index, values[:2])),
        (c.change, (*tree.arguments, values, values)),
        (c.change, (*tree.arguments, index.astype(np.int32), values)),
        (c.change, (tree._sums[:8].copy(), *tree.arguments[1:], index, values)),
        (c.gather, ({"x": values}, index, {})),
        (c.gather, ({"x": values}, index, {"x": values[:2]})),
        (c.gather, ([values], index, [values])),
    ):
        with pytest.raises((TypeError, ValueError)):
            function(*arguments)
    assert tree.total == 0.0
