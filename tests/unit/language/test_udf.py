"""Host functions: pure ones, ordered resources, effects, and failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.eager import eagerly
from tests.unit.checks import assert_memory_is_sound, assert_same
from timerl_nb.base import errors
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.reference.evaluator import Reference

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"vectorize": False},
    {"fuse": False},
    {"trial": False},
    {"simplify": False, "accumulate": False},
)
BOUNDS = {"B": 3, "I": 2, "T": 4}


class Counters:
    """A counter per instance, and a log of all calls in order."""

    made: list[Counters] = []

    def __init__(self, sizes: dict[str, int], seed: int) -> None:
        self.counts = np.full(tuple(sizes.values()), seed % 7, np.int64)
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self.closed = False
        Counters.made.append(self)

    def close(self) -> None:
        self.closed = True

    def reset(self, at: tuple[Any, ...]) -> Any:
        self.log.append(("reset", at))
        self.counts[at] = 0
        return self.counts[at].astype(np.float32)

    def step(self, at: tuple[Any, ...], a: np.ndarray) -> Any:
        self.log.append(("step", at))
        self.counts[at] += 1 + (a > 0.5)
        return self.counts[at].astype(np.float32), self.counts[at] > 4


def counting(batched: bool, calls: list[Any] | None = None) -> trl.Context:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        counters = trl.Resource(Counters, instances=(b,), name="counters")
        o = trl.tensor((), domain=(b, i, t))
        o[b, i, 0] = trl.udf(
            Counters.reset, out="f32", domain=(b, i), resource=counters, batched=batched
        )
        a = (o * 0.3 + trl.random.uniform(domain=(b, i, t))) % 1.0
        after, done = trl.udf(
            Counters.step, a, out=["f32", "bool"], resource=counters, batched=batched
        )
        o[b, i, t + 1] = after
        ctx.output("o", o)
        ctx.output("done", done)
        if calls is not None:
            see = lambda point, x: calls.append((point, x.item()))  # noqa: E731
            trl.udf(see, after, out=[], where=(t == 2) & (i == 1), name="see")
    return ctx


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("batched", [False, True])
def test_a_resource_is_used_in_order(batched: bool, options: dict[str, Any]) -> None:
    ctx = counting(batched)
    want = Reference(ctx.pdg(), BOUNDS, seed=5).outputs()
    program = ctx.compile(BOUNDS, trl.Options(**options))
    assert_same(want, Reference(program.fused, BOUNDS, seed=5).outputs(), "fused graph")
    events: list[Event] = []
    with eagerly():
        result = program.execute(seed=5, on_event=events.append)
    assert_same(want, result, "run")
    assert_memory_is_sound(program, result, events)
    used = Counters.made[-1]
    assert used.closed
    for instance in range(3):
        mine = [name for name, at in used.log if at in ((instance,), (slice(None),))]
        assert mine == ["reset", *["step"] * 4] * 2
    together = batched and options.get("vectorize", True)
    assert len(used.log) == (10 if together else 30)


def test_effects_are_called_at_their_points_in_order() -> None:
    calls: list[Any] = []
    ctx = counting(True, calls)
    reference = Reference(ctx.pdg(), BOUNDS, seed=5)
    want = [(point, x.item()) for _, point, (x,) in reference.calls()]
    ctx.compile(BOUNDS).execute(seed=5)
    assert calls == want
    assert [point for point, _ in calls] == [{"b": b, "i": 1, "t": 2} for b in range(3)]


def _backwards(t: Any, T: Any, x: Any) -> Any:
    g = trl.like(x)
    g[T - 1] = x[T - 1]
    g[t - 1] = (g * 0.5 + x[t - 1]).tanh()
    return g


def _by_windows(t: Any, T: Any, x: Any) -> Any:
    g = trl.like(x)
    found = trl.udf(lambda part: part.sum(), g[t + 1 : trl.min(t + 3, T)], out="f32", name="sum")
    g[t] = (found * 0.5 + x).tanh()
    return g


def _along_another(t: Any, T: Any, x: Any) -> Any:
    i, _ = x.ctx.dims[0]
    y = trl.data(np.arange(4, dtype=np.float32), domain=(i,))
    g = trl.like(y)
    g[0] = y[0]
    g[i + 1] = (g + y).tanh()
    return g[T - 1 - t]


def _as_ordered(t: Any, T: Any, x: Any) -> Any:
    first = trl.udf(lambda v: v, x.exp(), out="f32", name="first")
    second = trl.udf(lambda v: v, first * 2, out="f32", name="second")
    x.ctx.before(second[t + 1], first)
    return second


@pytest.mark.parametrize("executor", ["interpret", "xla"])
@pytest.mark.parametrize("write", [_backwards, _by_windows, _along_another, _as_ordered])
def test_effects_do_not_follow_what_runs_backwards(write: Any, executor: str) -> None:
    """All its operands run from their last point on, or could."""
    calls: list[Any] = []
    with trl.Context("i", "t") as ctx:
        _, (t, T) = ctx.dims
        x = write(t, T, trl.data(np.arange(4, dtype=np.float32), domain=(t,)))
        see = lambda point, x: calls.append((point["t"], x.item()))  # noqa: E731
        trl.udf(see, x, out=[], name="see")
    bounds = {"I": 4, "T": 4}
    want = [(at["t"], x.item()) for _, at, (x,) in Reference(ctx.pdg(), bounds, seed=0).calls()]
    ctx.compile(bounds, trl.Options(vectorize=False, executor=executor)).execute()
    assert [t for t, _ in calls] == [0, 1, 2, 3]
    np.testing.assert_allclose([x for _, x in calls], [x for _, x in want], rtol=1e-6)


def test_effects_of_several_dimensions_are_in_their_order() -> None:
    calls: list[Any] = []
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        x = trl.data(np.ones((2, 2, 3), np.float32), domain=(b, i, t))
        g, w = trl.like(x), trl.tensor((), domain=(b, i))
        w[b, I - 1] = 1.0
        w[b, i - 1] = (w + x[b, i, 0:T].sum(axis=0)).tanh()
        g[b, i, 0] = w
        g[b, i, t + 1] = (g + x).tanh()
        trl.udf(lambda point, _: calls.append((*point.values(),)), g, out=[], name="see")
    ctx.compile({B: 2, I: 2, T: 3}).execute()
    for instance in range(2):
        mine = [(i, t) for b, i, t in calls if b == instance]
        assert mine == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_operations_of_three_depths_take_turns() -> None:
    log: list[str] = []

    def note(name: str) -> Any:
        def run(state: Any, at: Any, *args: Any) -> np.float32:
            log.append(name)
            return np.float32(len(log))

        return run

    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        book = trl.Resource(lambda sizes, seed: None, name="book")
        outs = [
            trl.udf(note("open"), out="f32", resource=book),
            trl.udf(note("start"), out="f32", domain=(i,), resource=book),
            trl.udf(note("a"), out="f32", domain=(i, t), resource=book),
            trl.udf(note("b"), out="f32", domain=(i, t), resource=book),
            trl.udf(note("end"), out="f32", domain=(i,), resource=book),
            trl.udf(note("close"), out="f32", resource=book),
        ]
        for k, x in enumerate(outs):
            ctx.output(str(k), x)
    program = ctx.compile({I: 2, T: 3})
    log.clear()
    program.execute()
    turn = ["start", *["a", "b"] * 3, "end"]
    assert log == ["open", *turn, *turn, "close"]


@pytest.mark.parametrize("computed", [False, True])
def test_pure_functions_get_slices_at_their_length(computed: bool) -> None:
    lengths: list[int] = []

    def median(x: np.ndarray) -> np.ndarray:
        lengths.append(len(x))
        return np.median(x, axis=0).astype(np.float32)

    values = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(values, domain=(t,))
        part = -x[0 : t + 1] if computed else x[0 : t + 1]
        ctx.output("y", trl.udf(median, part, out=((2,), "f32")) * 2.0)
    result = ctx.compile({T: 5}).execute()
    want = np.stack([np.median(values[: k + 1], axis=0) for k in range(5)]) * (
        -2 if computed else 2
    )
    np.testing.assert_allclose(result["y"], want, rtol=1e-6)
    assert sorted(lengths) == [1, 2, 3, 4, 5]


def test_slices_have_their_length_in_a_loop_that_xla_runs_around_the_host() -> None:
    lengths: list[int] = []

    def last(part: np.ndarray) -> np.float32:
        lengths.append(len(part))
        return part[-1] + part.min()

    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 2.0
        x[t + 1] = (trl.udf(last, x[0 : t + 1], out="f32") * 0.25 + 1.5).exp() * 0.25
        ctx.output("x", x)
    options = trl.Options(executor="xla", vectorize=False, fuse=False)
    program = ctx.compile({T: 5}, options)
    assert program.executable.xla_program is not None, program.executable.how
    want = [2.0]
    for _ in range(4):
        want.append(np.exp((want[-1] + min(want)) * 0.25 + 1.5) * 0.25)
    np.testing.assert_allclose(program.execute()["x"], want, rtol=1e-5)
    assert lengths[:4] == [1, 2, 3, 4]


def test_batched_functions_run_once() -> None:
    shapes: list[tuple[int, ...]] = []

    def double(x: np.ndarray) -> np.ndarray:
        shapes.append(x.shape)
        return x * 2

    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        x = trl.data(np.arange(24, dtype=np.float32).reshape(2, 3, 4), domain=(b, t))
        ctx.output("y", trl.udf(double, x, out=x, batched=True))
    result = ctx.compile({B: 2, T: 3}).execute()
    np.testing.assert_array_equal(result["y"], np.arange(24).reshape(2, 3, 4) * 2)
    assert len(shapes) == 1 and sorted(shapes[0]) == [2, 3, 4]


def failing(*args: Any) -> Any:
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (failing, "failing raised KeyError at t = 0: 'lost'"),
        (lambda x: np.zeros(3, np.float32), r"but float32\[\] is declared"),
        (lambda x: (x, x), "returned 2 values, but 1 are declared"),
        (lambda x: "text", r"but float32\[\] is declared"),
        (lambda x: [[1], [1, 2]], "raised ValueError"),
    ],
)
def test_functions_that_fail(function: Any, message: str) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", trl.udf(function, trl.value(t), out="f32"))
    program = ctx.compile({T: 3})
    for _ in range(2):  # the first failure leaves no trace
        with pytest.raises(errors.ExecutionError, match=message) as caught:
            program.execute()
        assert "trl.udf(function, trl.value(t)" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda b, t, r: trl.udf(3, out="f32"), errors.ShapeError, "is not a function"),
        (lambda b, t, r: trl.udf(failing, out=7), errors.ShapeError, "does not declare an output"),
        (lambda b, t, r: trl.udf(failing, out="c64"), errors.ShapeError, "not an element type"),
        (
            lambda b, t, r: trl.udf(failing, trl.value(t), out="f32", resource=r),
            errors.DomainError,
            "has an instance for each b",
        ),
        (
            lambda b, t, r: trl.udf(failing, out=[], domain=(b, t), resource=r, where=t == 1),
            errors.DomainError,
            "at every point",
        ),
        (
            lambda b, t, r: trl.udf(failing, out="f32", where=t == 1),
            errors.DomainError,
            "a function with outputs cannot",
        ),
        (lambda b, t, r: trl.Resource(3), errors.DomainError, "needs a function that creates it"),
    ],
)
def test_wrong_calls(wrong: Any, kind: Any, message: str) -> None:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        resource = trl.Resource(Counters, instances=(b,))
        with pytest.raises(kind, match=message):
            wrong(b, t, resource)


def test_gradients_stop_at_host_functions() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.data(np.ones(3, np.float32), domain=(t,))
        y = trl.udf(lambda x: x, x * 2.0, out="f32")
        with pytest.raises(errors.GradientError, match="without a derivative"):
            trl.grad(y, x)


def test_effects_on_a_resource_are_in_order() -> None:
    lines: list[str] = []
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        file = trl.Resource(lambda sizes, seed: lines, name="file")
        trl.udf(lambda f, at: f.append("begin"), out=[], domain=(i,), resource=file)
        x = trl.value(t) + 10 * trl.value(i)
        trl.udf(lambda f, at, x: f.append(str(int(x))), x, out=[], resource=file)
        ctx.output("x", x)
    ctx.compile({I: 2, T: 2}).execute()
    assert lines == ["begin", "0", "1", "begin", "10", "11"]


def test_integers_that_do_not_fit() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", trl.udf(lambda x: np.int64(2**40), trl.value(t), out="i32"))
    with pytest.raises(errors.ExecutionError, match="do not fit into int32"):
        ctx.compile({T: 1}).execute()


@pytest.mark.parametrize("batched", [False, True])
def test_instances_differ_though_they_are_given_the_same(batched: bool) -> None:
    """An instance's state is enough to vary. Regression: all instances were merged."""
    places: list[Any] = []

    def advance(state: np.ndarray, at: Any, x: np.ndarray) -> np.ndarray:
        places.append(at)
        state[at] += x
        return state[at]

    with trl.Context("b") as ctx:
        ((b, B),) = ctx.dims
        x = trl.tensor((), domain=(b,))
        x[b] = trl.constant(1.0)
        counts = trl.Resource(
            lambda sizes, seed: np.arange(sizes["b"], dtype=np.float32), instances=(b,)
        )
        ctx.output("y", trl.udf(advance, x, out=x, resource=counts, batched=batched))
    found = ctx.compile({B: 3}).execute()["y"]
    np.testing.assert_array_equal(found, [1, 2, 3])
    assert places == ([(slice(None),)] if batched else [(0,), (1,), (2,)])
