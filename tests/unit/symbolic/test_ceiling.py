"""isl's work is limited per call: hard index expressions end, and interrupts are handled."""

from __future__ import annotations

import contextlib
import gc
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import islpy as isl
import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.torture.growth import allocated
from timerl_nb.base.errors import CeilingError
from timerl_nb.base.lru_cache import Lru
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.isl import isl_scheduler as scheduling
from timerl_nb.compiler.isl import operation_limit as ceiling
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.index_expressions import const, eq, maximum, minimum, pick, sym
from timerl_nb.driver.compiling import compiler

BOUNDS = {"B": 3, "I": 4, "T": 5}


def nested(x: Any, b: Any, i: Any, t: Any, bounds: Any) -> Any:
    _, length, steps = bounds
    return x[b, trl.max(length - 1 - t, 0), trl.min(trl.max(t - 2, 0) + 1, steps - 1)]


def remainders(x: Any, b: Any, i: Any, t: Any, bounds: Any) -> Any:
    return x[trl.min((b + i) % 3, bounds[0] - 1), i // 2 : i + 1, t].sum(axis=0)


def written(read: Any, x: np.ndarray) -> trl.Context:
    with trl.Context("b", "i", "t") as ctx:
        symbols, bounds = zip(*ctx.dims, strict=True)
        tensor = trl.data(x, domain=symbols)
        y = read(tensor, *symbols, bounds)
        loss = (y * y * y).sum(over=y.domain)
        ctx.output("loss", loss)
        ctx.output("gradient", trl.grad(loss, tensor))
    return ctx


@pytest.mark.parametrize("read", [nested, remainders])
def test_what_never_returned_has_its_values_and_gradient(read: Any) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, (3, 4, 5)).astype(np.float32)
    ctx = written(read, x)
    graph = ctx.pdg()
    want = Reference(graph, BOUNDS, precise=True).outputs()
    found = ctx.compile(BOUNDS).execute()
    np.testing.assert_allclose(found["loss"], want["loss"], rtol=1e-4)
    np.testing.assert_allclose(found["gradient"], want["gradient"], rtol=1e-4)

    def value(at: np.ndarray) -> float:
        total = 0.0
        for b, i, t in np.ndindex(3, 4, 5):
            if read is nested:  # it does not vary over i
                total += at[b, max(3 - t, 0), min(max(t - 2, 0) + 1, 4)] ** 3 / 4
            else:
                total += at[min((b + i) % 3, 2), i // 2 : i + 1, t].sum() ** 3
        return float(total)

    exact, step = x.astype(np.float64), 1e-6
    np.testing.assert_allclose(want["loss"], value(exact), rtol=1e-6)
    for where in [(0, 0, 0), (1, 2, 3), (2, 3, 1), (0, 1, 4)]:
        up, down = exact.copy(), exact.copy()
        up[where] += step
        down[where] -= step
        rise = (value(up) - value(down)) / (2 * step)
        np.testing.assert_allclose(want["gradient"][where], rise, rtol=1e-4, atol=1e-5)


def test_pieces_agree_with_the_expressions() -> None:
    dims = Dims((Dim("i", "I"), Dim("t", "T")))
    i, t, T = sym("i"), sym("t"), sym("T")
    e = minimum(maximum(t - 2, 0) // 2 + i % 3, pick(eq(i, 1), t, T - 1 - t), const(4))
    pairs = Relation.reads(
        Set.from_condition(dims, ("i", "t")), (e,), Set.from_condition(dims, ("t",))
    )
    for at, (to,) in zip(*_pairs(pairs), strict=True):
        a, b = at
        want = min(max(b - 2, 0) // 2 + a % 3, b if a == 1 else 6 - b, 4)
        assert to == want
    assert len(_pairs(pairs)[0]) == 3 * 7


def _pairs(pairs: Relation) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    whole = Set(pairs.dims, ("i", "t", "t'"), pairs.raw.wrap().flatten())
    rows = list(whole.points({"I": 3, "T": 7}))
    return [row[:2] for row in rows], [row[2:] for row in rows]


def test_a_stopped_coalescing_leaves_its_function_whole() -> None:
    """isl coalesces a function in place; an abort in the middle would corrupt it."""
    text = (
        "[B, I] -> { [b, i] -> [(0)] : (b < I and -1 + b <= 2i <= b) or (3*floor((-1 - i)/3) >= "
        "-2 + b - 2i and 3*floor((b - i)/3) > -I + b); [b, i] -> [(1 - I + i)] : b >= I + 3 }"
    )
    for limit in range(1, 4_000, 97):
        function = isl.PwAff(text)
        want = str(function)
        with ceiling.at_most(limit):
            try:
                ceiling.coalesce_pieces(function)
            except ceiling.TooMuchWork:
                assert ceiling.remaining_operations() == 0
        assert str(function.scale_val(isl.Val(2))).count("[b, i]") == want.count("[b, i]")


def test_a_budget_is_of_many_calls() -> None:
    one = isl.Set("[N] -> { [i, j] : 0 <= i < N and i <= j < 2N and j mod 3 = i mod 2 }")
    with pytest.raises(ceiling.TooMuchWork), ceiling.at_most(5_000):
        for _ in range(1_000):
            ceiling.spend(isl.Set.complement, one)
    assert str(ceiling.spend(isl.Set.complement, one)) == str(one.complement())


HARD = "[n] -> { [i, j, k, l] : 0 <= i, j, k, l < n and (i + 2 j + 3 k) mod 7 = (l + i) mod 5 }"
OTHER = (
    "[n] -> { [i, j, k, l] : 0 <= i, j, k, l < n and (i + j) mod 3 = 0 and (k + 2 l) mod 4 = 1 }"
)


def test_a_ceiling_is_met_by_its_own_call_alone() -> None:
    """Other threads' calls without a budget continue, under frequent thread switches.

    Garbage collection may switch threads too: callbacks such as JAX's run Python code.
    """
    hard, other, easy = isl.Set(HARD), isl.Set(OTHER), isl.Set("{ [i] : 0 <= i < 20 }")
    stopped, failed, over = 0, list[Exception](), threading.Event()

    def unbounded() -> None:
        while not over.is_set() and not failed:
            try:
                easy.sample_point()
            except isl.Error as error:
                failed.append(error)

    threads = [threading.Thread(target=unbounded) for _ in range(2)]
    before, every = sys.getswitchinterval(), gc.get_threshold()

    def listen(*_: object) -> None:
        time.sleep(0)

    sys.setswitchinterval(1e-6)
    gc.callbacks.append(listen)
    gc.set_threshold(1)
    try:
        for thread in threads:
            thread.start()
        for _ in range(300):
            try:
                ceiling.spend_once(50, isl.Set.subtract, hard, other)
            except ceiling.TooMuchWork:
                stopped += 1
    finally:
        over.set()
        sys.setswitchinterval(before)
        gc.set_threshold(*every)
        gc.callbacks.remove(listen)
        for thread in threads:
            thread.join()
    assert stopped == 300 and not failed and gc.isenabled()


def test_a_ceiling_is_set_around_isl_alone() -> None:
    """Python inside would let threads change under the ceiling of one of them."""
    with pytest.raises(TypeError, match=r"<lambda> is a Python function, but only isl functions"):
        ceiling.spend_once(50, lambda: isl.Set(HARD).subtract(isl.Set(OTHER)))


def test_an_interrupted_call_leaves_no_ceiling_behind() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    hard, other, easy = isl.Set(HARD), isl.Set(OTHER), isl.Set("{ [i] : 0 <= i < 20 }")
    before = signal.signal(signal.SIGALRM, interrupt)
    seen = 0
    try:
        for k in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + k % 60))
                while True:
                    with contextlib.suppress(ceiling.TooMuchWork):
                        ceiling.spend_once(50, isl.Set.subtract, hard, other)
            except Interrupted:
                seen += 1
            assert easy.sample_point() is not None
            assert ceiling.CONTEXT.get_max_operations() == ceiling.CALL
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == 300


def test_isl_elsewhere_is_the_one_that_is_imported_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The warnings describe the end of isl's process; the program is then scheduled in parts."""
    (tmp_path / "islpy.py").write_text("raise ImportError('another isl')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(scheduling, "_HERE", 1)
    monkeypatch.setattr(
        ceiling, "_known", Lru[Any, Any](1 << 14)
    )  # no cached results of other tests
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("x", trl.data(np.arange(3.0), domain=(t,)).sum(over=t))
    # recorded as a value, because other tests' threads may issue warnings meanwhile
    program = ctx.compile({T: 3}, trl.Options(fuse=False), tell=False)
    (told,) = program.warnings
    assert re.search(r"status 1 ImportError: another isl(.|\n)*by parts", told), told
    assert program.execute()["x"] == 3.0


def test_what_isl_answered_is_remembered_and_paid_for() -> None:
    space = "[n] -> {{ [i, j] : 0 <= i < n and {} <= j < i }}"
    one, other = (isl.Set.read_from_str(ceiling.CONTEXT, space.format(k)) for k in (2, 3))
    with ceiling.at_most(10_000):
        made = ceiling.spend(isl.Set.intersect, one, other)
        fee = 10_000 - ceiling.remaining_operations()
        assert fee > 0
        assert ceiling.spend(isl.Set.intersect, one, other) is made
        assert ceiling.remaining_operations() == 10_000 - 2 * fee
    with pytest.raises(ceiling.TooMuchWork), ceiling.at_most(fee):
        ceiling.spend(isl.Set.intersect, one, other)
    again = isl.Set.read_from_str(ceiling.CONTEXT, space.format(2))
    assert ceiling.spend(isl.Set.intersect, again, other) is not made  # by identity


def test_few_answers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "_known", known := Lru[Any, Any](3))
    texts = [f"{{ [i] : 0 <= i < {k + 1} }}" for k in range(5)]
    sets = [isl.Set.read_from_str(ceiling.CONTEXT, text) for text in texts]
    for one in (*sets[:3], sets[0], *sets[3:]):
        assert not ceiling.spend(isl.Set.is_empty, one)
    spend: Any = ceiling.spend
    held = [
        k for k, one in enumerate(sets) if (spend.__wrapped__, isl.Set.is_empty, id(one)) in known
    ]
    assert held == [0, 3, 4] and len(known) == 3


def test_a_program_compiled_again_asks_isl_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither if its schedule is cached in memory, nor if it is read from disk, repeatedly."""
    monkeypatch.setattr(ceiling, "_known", known := Lru[Any, Any](1 << 14))
    counts: list[int] = []
    for _ in range(4):
        written(nested, np.ones((3, 4, 5), np.float32)).compile(BOUNDS)
        counts.append(len(known))
    assert counts[0] > 0 and counts[1] == counts[2] == counts[3], counts


@pytest.mark.skipif(not allocated(), reason="this C library does not say what it has given out")
def test_a_budget_that_changes_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MOST", 1)  # cached plans
    program = reinforce(None, hidden=(8,)).compile({"B": 4, "I": 3, "T": 20})

    def changed(times: int) -> float:
        for k in range(times):
            share = 0.9 - 0.1 * (k % 2)
            program.with_options(device_memory=int(program.memory.needed * share))
        gc.collect()
        return allocated()

    known = changed(4)
    assert changed(10) - known < 10 * 0.05  # MiB; each would leave 0.44 without caching


def test_who_reads_last_by_many_remainders_is_refused_with_the_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For coprime moduli any may be the last reader, and isl examines all together."""
    monkeypatch.setattr(scheduling, "_LATEST", 1000)
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x, y = trl.tensor((), domain=(i,)), trl.tensor((), domain=(i,))
        x[0] = 1.0
        x[i + 1] = x * 0.5
        y[0] = 0.0
        y[i + 1] = y * 0.5 + x[i - i % 2] + x[i - i % 3] + x[i - i % 5] + x[i - i % 7]
        ctx.output("y", y)
    by_turns = trl.Options(vectorize=False, lift=False)
    with pytest.raises(CeilingError) as caught:
        ctx.compile({I: 100}, by_turns)
    said = str(caught.value)
    assert re.search(
        r"cannot find the last reader .*\n  at test_ceiling\.py:\d+: x\[i \+ 1\] = x", said
    )
    assert "indices: [i - (i % 2)], [i - (i % 3)], [i - (i % 5)], [i - (i % 7)]" in said
    assert ": y[i + 1] = y * 0.5" in said and "are multiples of the smaller ones" in said
