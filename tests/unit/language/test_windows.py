"""Windows of the past: indexed values are in a ring of the window's length, for any T."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.memory.placement.slice_reads import is_picked

XLA = trl.Options(executor="xla")
INTERPRET = trl.Options(executor="interpret")
N, PICKED = 6, 3


def steps(b: Any, t: Any) -> dict[str, trl.RecurrentTensor]:
    """Tensors of every kind, computed step by step."""
    state = trl.tensor((2,), domain=(b, t))
    state[b, 0] = trl.value(b).cast("f32") + trl.ones((2,))
    state[b, t + 1] = (state * 0.9 + trl.random.uniform((2,), domain=(b, t))).sin()
    count = trl.tensor((), "i32", domain=(b, t))
    count[b, 0] = trl.value(b)
    count[b, t + 1] = (count * 5 + 3) % 17
    return {
        "state": state,
        "real": (state * 2.0 + state[b, trl.max(t - 1, 0)]).named("real"),
        "integer": (count % 7 + count).named("integer"),
        "bool": ((count % 3) == (count // 5)).named("bool"),
    }


def positions(t: Any, now: Any, size: int) -> trl.RecurrentTensor:
    """Positions in a window of `size` points, fewer at first; one is beyond its end."""
    there = trl.min(now + 1, size).floating()
    drawn = trl.random.uniform((PICKED - 1,), domain=(t,)) * there
    return trl.concat([drawn.floor().cast("i32"), trl.constant(np.array([size], np.int32))])


def total(x: trl.RecurrentTensor) -> trl.RecurrentTensor:
    return x.cast("f32").sum(axis=tuple(range(x.rank)))


def remembering(batched: bool) -> trl.Context:
    """A recurrence that depends on values read from windows of its past; returns its last value."""
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        lo, found = trl.max(t - N + 1, 0), trl.constant(0.0)
        at = positions(t, trl.value(t), N)
        if batched:
            there = trl.min(trl.value(t) + 1, N).floating()
            at = (trl.random.uniform((PICKED,), domain=(b, t)) * there).floor().cast("i32")
        for x in steps(b, t).values():
            if batched:
                found = found + total(x[b, lo : t + 1].take(at)).sum(over=b)
            else:
                found = found + total(x[0:B, lo : t + 1].take(at, axis=1))
        learnt = trl.tensor((), domain=(t,))
        learnt[0] = trl.constant(0.0)
        learnt[t + 1] = learnt * 0.5 + (found * 0.1).tanh()
        ctx.output("learnt", learnt[T - 1])
    return ctx


def sizes(program: trl.Program) -> dict[str, tuple[str, int]]:
    """Return the kind and capacity of every store with more than one value."""
    stores = program.memory.stores.values()
    return {s.name: (s.kind, s.size) for s in stores if s.kind != "slot"}


@pytest.mark.parametrize("batched", [False, True], ids=["together", "each its own"])
def test_what_is_picked_from_a_window_is_in_a_ring_of_its_length(batched: bool) -> None:
    ctx = remembering(batched)
    found = dict[int, Any]()
    for T in (N + 3, 24):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            program = ctx.compile({"B": 3, "T": T}, XLA)
        lowered = program.executable.xla_program
        assert lowered is not None and len(lowered.calls) == 1, program.executable.how
        kept = sizes(program)
        assert {kind for kind, _ in kept.values()} == {"ring"}, kept
        assert [kept[name] for name in ("real", "integer", "bool")] == [("ring", N)] * 3
        # values read again one iteration later need one more slot
        assert sorted(size for _, size in kept.values() if size > N) == [N + 1], kept
        found[T] = kept, lowered.layout.nbytes
    assert found[N + 3] == found[24]
    want = Reference(ctx.pdg(), {"B": 3, "T": 24}, 4).outputs()
    assert_same(want, program.execute(seed=4), "run")


def test_a_ring_that_is_picked_from_is_written_in_place() -> None:
    """The loop never copies or materialises rings or windows."""
    program = remembering(batched=False).compile({"B": 3, "T": 4 * N}, XLA)
    lowered = program.executable.xla_program
    assert lowered is not None
    text = lowered.xla_executable(1).as_text()
    for ring in (rf"f32\[{N},3,2\]", rf"f32\[{N + 1},3,2\]", rf"s32\[{N},3\]", rf"pred\[{N},3\]"):
        assert re.search(rf"{ring}\S* dynamic-update-slice\(", text), ring
        assert not re.findall(rf"{ring}\S* (?:copy|gather|concatenate|copy-start)\(", text), ring


@pytest.mark.parametrize(
    "options", [INTERPRET, replace(XLA, vectorize=False)], ids=["interpreted", "not vectorised"]
)
def test_programs_of_other_options_pick_the_same(options: trl.Options) -> None:
    ctx, bounds = remembering(batched=True), {"B": 2, "T": 12}
    want = Reference(ctx.pdg(), bounds, 1).outputs()
    assert_same(want, ctx.compile(bounds, options).execute(seed=1), "run")


def test_readers_of_different_windows_share_the_longest_ring() -> None:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        made = steps(b, t)
        learnt = trl.tensor((), domain=(t,))
        learnt[0] = trl.constant(0.0)
        x, k = made["real"], made["integer"]
        at = positions(t, trl.value(t), 4)
        near = x[0:B, trl.max(t - 3, 0) : t + 1].take(at, axis=1)
        # a window that ends two points ago, and one that is summed
        late = x[0:B, trl.max(t - 9, 0) : trl.max(t - 2, 0) + 1].take(at, axis=1)
        whole = k[0:B, trl.max(t - 4, 0) : t + 1].sum(axis=1).floating()
        some = k[0:B, trl.max(t - 6, 0) : t + 1].take(at, axis=1)
        found = total(near) + total(late) * 0.5 + total(whole) * 0.01 - total(some)
        learnt[t + 1] = learnt * 0.5 + (found * 0.1).tanh()
        ctx.output("learnt", learnt[T - 1])
    bounds = {"B": 2, "T": 24}
    program = ctx.compile(bounds, XLA)
    kept = sizes(program)
    assert kept["real"] == ("ring", 10) and kept["integer"] == ("ring", 7), kept
    want = Reference(ctx.pdg(), bounds, 2).outputs()
    assert_same(want, program.execute(seed=2), "run")


@pytest.mark.parametrize("length", [1, 4])
def test_a_window_has_its_transitions_at_every_point(length: int) -> None:
    """n-step transitions: first and last point of each, oldest first, as many as requested."""
    steps, T = 3, 9
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        memory = trl.replay.window(length, over=t, steps=steps)
        x = trl.value(t) * 10 + trl.value(b)
        at = trl.constant(np.arange(length, dtype=np.int32))
        ctx.output("count", memory.count)
        ctx.output("starts", memory.starts(x, at))
        ctx.output("ends", memory.ends(x, at))
        drawn = memory.draw(200, domain=(b, t))
        ctx.output("drawn", drawn)
        ctx.output("alike", memory.starts(trl.value(b), drawn).sum(axis=0))
    found = ctx.compile({"B": 2, "T": T}, XLA).execute(seed=3)
    assert found["count"].tolist() == [min(max(k - steps + 2, 1), length) for k in range(T)]
    for k in range(steps - 1, T):
        ended = np.arange(max(k - length + 1, steps - 1), k + 1)
        n = len(ended)
        assert found["count"][k] == n
        for env in range(2):
            assert found["ends"][env, k, :n].tolist() == [10 * e + env for e in ended]
            assert found["starts"][env, k, :n].tolist() == [10 * (e - 2) + env for e in ended]
            assert not found["ends"][env, k, n:].any() and not found["starts"][env, k, n:].any()
            assert set(found["drawn"][env, k].tolist()) == set(range(n))
    assert found["alike"].tolist() == [0, 200]
    assert length == 1 or (found["drawn"][0] != found["drawn"][1]).any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda b, t: trl.replay.window(0, over=t), "must be an integer of at least 1"),
        (lambda b, t: trl.replay.window(4, over=(b, t)), "extends along one dimension"),
        (lambda b, t: trl.replay.window(4, over=t, steps=1.5), "must be an integer"),
        (lambda b, t: trl.replay.window(4, over=t).draw(3, domain=(b,)), "but not over t"),
    ],
)
def test_windows_that_are_none(wrong: Any, message: str) -> None:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        with pytest.raises(trl.errors.TimeRLError, match=message):
            wrong(b, t)


def test_which_operands_are_picked_from() -> None:
    """A slice with any other reader is materialised."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((2,), domain=(t,))
        x[0] = trl.ones((2,))
        x[t + 1] = (x * 0.9 + 0.1).sin()
        at = positions(t, trl.value(t), 4)
        s = x[trl.max(t - 3, 0) : t + 1]
        ctx.output("picked", s.take(at).sum(axis=(0, 1)))
        ctx.output("both", (s.take(at).sum(axis=0) + s.max(axis=0)).sum(axis=0))
        ctx.output("within", x[trl.max(t - 3, 0) : t + 1].take(0, axis=1).sum(axis=0))
    program = ctx.compile({"T": 9}, trl.Options(executor="xla", lift=False, fuse=False))
    found = dict[bool, int]()
    for op in program.memory.pdg:
        for slot, read in enumerate(op.inputs):
            if any(str(e).count(":") for e in read.index):
                picked = is_picked(op, slot)
                found[picked] = found.get(picked, 0) + 1
    assert found.get(True) == 1 and found.get(False, 0) >= 1, found
    want = Reference(ctx.pdg(), {"T": 9}, 3).outputs()
    assert_same(want, program.execute(seed=3), "run")
