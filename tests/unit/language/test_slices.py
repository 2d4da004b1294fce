"""Gradients through all forms of slices and their uses, and equality of lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.graph_verifier import prove_reads, verify
from timerl_nb.compiler.ir.reference.evaluator import Reference

BOUNDS = {"B": 3, "T": 6}
Rule = Callable[..., Any]

SLICES: dict[str, Rule] = {
    "past": lambda b, B, t, T: (b, slice(trl.max(t - 3, 0), t + 1)),
    "past without now": lambda b, B, t, T: (b, slice(trl.max(t - 2, 0), trl.max(t, 1))),
    "future": lambda b, B, t, T: (b, slice(t, trl.min(t + 3, T))),
    "ahead": lambda b, B, t, T: (b, slice(trl.min(t + 1, T - 1), trl.min(t + 3, T))),
    "around": lambda b, B, t, T: (b, slice(trl.max(t - 2, 0), trl.min(t + 2, T))),
    "block": lambda b, B, t, T: (b, slice(t // 2, t + 1)),
    "blocks": lambda b, B, t, T: (b, slice(t - t % 2, trl.min(t - t % 2 + 2, T))),
    "strided blocks": lambda b, B, t, T: (b, slice(t // 3 * 2, trl.min(t // 3 * 2 + 2, T))),
    "twice as far": lambda b, B, t, T: (
        b,
        slice(trl.min(2 * t, T - 1), trl.min(2 * t + 2, T)),
    ),
    "backwards": lambda b, B, t, T: (b, slice(trl.max(T - 3 - t, 0), T - t)),
    "again and again": lambda b, B, t, T: (b, slice(t % 3, trl.min(t % 3 + 2, T))),
    "prefix": lambda b, B, t, T: (b, slice(0, t + 1)),
    "suffix": lambda b, B, t, T: (b, slice(t, T)),
    "constant": lambda b, B, t, T: (b, slice(1, 4)),
    "from the other index": lambda b, B, t, T: (b, slice(trl.min(b, t), t + 1)),
    "of another row": lambda b, B, t, T: (trl.min(b + 1, B - 1), slice(trl.max(t - 2, 0), t + 1)),
    "two at once": lambda b, B, t, T: (slice(0, b + 1), slice(trl.max(t - 2, 0), t + 1)),
    "two kinds at once": lambda b, B, t, T: (slice(b, B), slice(t // 2, t + 1)),
}
USES: dict[str, Rule] = {
    "sum": lambda s: s.sum(axis=0),
    "mean": lambda s: s.mean(axis=0),
    "max": lambda s: s.max(axis=0),
    "min": lambda s: s.min(axis=0),
    "prod": lambda s: s.prod(axis=0),
    "discounted": lambda s: s.discounted_sum(0.9),
    "cumsum": lambda s: s.cumsum().square().sum(axis=0),
    "cummax": lambda s: s.cummax().square().sum(axis=0),
    "cumprod": lambda s: s.cumprod(reverse=True).square().sum(axis=0),
    "softmax": lambda s: (s.softmax(axis=0) * s).sum(axis=0),
    "logsumexp": lambda s: s.logsumexp(axis=0),
    "var": lambda s: s.var(axis=0),
    "norm": lambda s: s.norm(axis=0),
    "product": lambda s: s @ s,
    "sort": lambda s: s.sort(axis=0).discounted_sum(0.5),
    "take": lambda s: s.take(0) * s.take(np.array([0, 1, 0], np.int32)).sum(axis=0),
    "flip": lambda s: s.flip(0).discounted_sum(0.5),
    "concat": lambda s: trl.concat([s, s * s]).discounted_sum(0.5),
    "scan": lambda s: s.linear_scan(0.5 * s).square().sum(axis=0),
}


def _numbers(*shape: int) -> np.ndarray:
    """Return numbers that are exact when 2**-10 is added."""
    drawn = np.random.default_rng(1).uniform(-1, 1, shape)
    return (np.round(drawn * 4096) / 4096).astype(np.float32)


def _loss(x: Any, b: Any, B: Any, t: Any, T: Any, of: str, use: str) -> Any:
    y = USES[use](x.sin()[SLICES[of](b, B, t, T)])
    return y.sum().square() if y.rank else y.square()


def _conditional(x: Any, b: Any, B: Any, t: Any, T: Any, of: str, use: str) -> Any:
    return USES[use](x.sin()[SLICES[of](b, B, t, T)][t % 2 == 1]).square()


def _recurrence(x: Any, b: Any, B: Any, t: Any, T: Any, of: str, use: str) -> Any:
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, t + 1] = (x + 0.3 * USES[use](y[SLICES[of](b, B, t, T)]).sum()).tanh()
    return y.square()


def _context(x: np.ndarray, loss: Rule, of: str, use: str, *, gradient: bool) -> trl.Context:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        tensor = trl.data(x, domain=(b, t))
        value = loss(tensor, b, B, t, T, of, use)
        ctx.output("y", trl.grad(value, tensor) if gradient else value)
    return ctx


def _value(context: trl.Context) -> np.ndarray:
    return Reference(context.pdg(), BOUNDS, precise=True).outputs()["y"]


def _check_gradient(loss: Rule, of: str, use: str) -> None:
    """Compare the directional derivative with central differences."""
    x = _numbers(3, 6)
    ctx = _context(x, loss, of, use, gradient=True)
    graph = ctx.pdg()
    verify(graph)
    prove_reads(graph, BOUNDS)
    along = np.random.default_rng(2).choice([-1, 1], x.shape).astype(np.float32)
    step = np.float32(2.0**-10)
    ends = (x + along * step, x - along * step)
    up, down = (_value(_context(end, loss, of, use, gradient=False)).sum() for end in ends)
    found = (_value(ctx) * along).sum()
    assert found == pytest.approx((up - down) / (2 * float(step)), rel=3e-4, abs=3e-4)


@pytest.mark.some_of("use", 1)
@pytest.mark.parametrize("use", ["discounted", "softmax"])
@pytest.mark.parametrize("of", SLICES)
def test_a_slice_of_any_form_has_a_gradient(of: str, use: str) -> None:
    _check_gradient(_loss, of, use)


@pytest.mark.parametrize("use", [name for name in USES if name not in ("discounted", "softmax")])
def test_whatever_is_done_with_a_past_window_has_a_gradient(use: str) -> None:
    _check_gradient(_loss, "past", use)


@pytest.mark.parametrize("of", ["past", "block"])
def test_a_slice_under_a_condition_has_a_gradient(of: str) -> None:
    _check_gradient(_conditional, of, "discounted")


@pytest.mark.parametrize("use", ["discounted", "softmax"])
@pytest.mark.parametrize("of", ["past", "block", "prefix", "two at once"])
def test_what_is_defined_through_slices_of_itself_has_a_gradient(of: str, use: str) -> None:
    _check_gradient(_recurrence, of, use)


@pytest.mark.parametrize(
    ("loss", "of", "use", "executor"),
    [
        (_loss, "past", "discounted", "interpret"),
        (_loss, "past", "discounted", "xla"),
        (_loss, "strided blocks", "softmax", "xla"),
        (_recurrence, "block", "discounted", "xla"),
        (_recurrence, "past", "softmax", "interpret"),
        (_recurrence, "past", "softmax", "xla"),
    ],
)
def test_gradients_through_slices_run(loss: Rule, of: str, use: str, executor: str) -> None:
    ctx = _context(_numbers(3, 6), loss, of, use, gradient=True)
    want = Reference(ctx.pdg(), BOUNDS).outputs()
    assert_same(want, ctx.compile(BOUNDS, trl.Options(executor=executor)).execute(), f"{of} {use}")


# --- lengths -------------------------------------------------------------------------------------


def _branch(x: Any, p: Any, q: Any, t: Any) -> Any:
    y = trl.tensor((4, 2), domain=(t,))
    y[t >= 3] = p[t >= 3]  # its length is 4 there
    y[t < 3] = x.unsqueeze(0).expand(4, 2)
    return y.square().sum(axis=0)


TOGETHER: dict[str, Rule] = {
    "add": lambda x, p, q, t: (p + q).square().sum(axis=0),
    "compare": lambda x, p, q, t: trl.where(p < q, p * q, 0.5 * p).sum(axis=0),
    "extremum": lambda x, p, q, t: trl.max(p, q * 2.0).sum(axis=0),
    "concat": lambda x, p, q, t: trl.concat([p, q], axis=1).square().sum(axis=0),
    "stack": lambda x, p, q, t: trl.stack([p, q]).prod(axis=0).sum(axis=0),
    "product": lambda x, p, q, t: (p.transpose() @ q).sum(axis=0) * x,
    "scan": lambda x, p, q, t: p.linear_scan(q).sum(axis=0),
    "positions": lambda x, p, q, t: p.take_along((q < 0.5).cast("i32"), 0).sum(axis=0) * x,
    "put": lambda x, p, q, t: p.transpose().put(1, q.take(0, axis=1)).sum(axis=1),
    "put_add": lambda x, p, q, t: p.transpose().put_add(1, q.take(0, axis=1)).square().sum(axis=1),
    "reshape": lambda x, p, q, t: p.reshape((trl.min(t + 1, 4), 2, 1)).sum(axis=(0, 2)) * x,
    "expand": lambda x, p, q, t: (x.unsqueeze(0).expand(trl.min(4, t + 1), 2) * p).sum(axis=0),
    "a constant where it is one": lambda x, p, q, t: (p[t >= 3] * np.ones((4, 2), np.float32)).sum(
        axis=0
    ),
    "a branch": _branch,
}


@pytest.mark.parametrize("name", TOGETHER)
def test_equal_lengths_written_differently_go_together(name: str) -> None:
    data = _numbers(6, 2)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(data, domain=(t,))
        y = TOGETHER[name](x, x[trl.max(t - 3, 0) : t + 1], x[0 : trl.min(t + 1, 4)], t)
        ctx.output("y", y)
        ctx.output("dx", trl.grad(y.sum(), x))
    with trl.Context("t") as same:
        ((t, T),) = same.dims
        x = trl.data(data, domain=(t,))
        # the same values by slices of one length
        late = trl.min(t + 1, 4)
        y = TOGETHER[name](x, x[t + 1 - late : t + 1], x[0:late], t)
        same.output("y", y)
        same.output("dx", trl.grad(y.sum(), x))
    bounds = {"T": 6}
    want = Reference(same.pdg(), bounds).outputs()
    assert_same(want, Reference(ctx.pdg(), bounds).outputs(), name)


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_equal_lengths_run_together(executor: str) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(_numbers(6, 2), domain=(t,))
        p, q = x[trl.max(t - 3, 0) : t + 1], x[0 : trl.min(t + 1, 4)]
        ctx.output("dx", trl.grad((p.softmax(axis=0).transpose() @ (p + q)).sum(), x))
    want = Reference(ctx.pdg(), {"T": 6}).outputs()
    found = ctx.compile({"T": 6}, trl.Options(executor=executor)).execute()
    assert_same(want, found, "together")


def test_lengths_that_differ_are_shown_where_they_do() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(_numbers(6, 2), domain=(t,))
        past = x[trl.max(t - 3, 0) : t + 1]
        with pytest.raises(ShapeError, match="do not broadcast") as caught:
            past + x[0 : t + 1]
        text = str(caught.value)
        assert "t - max(t - 3, 0) + 1 is 4, and t + 1 is 5 at t = 4, T = 5" in text
        assert "past + x[0 : t + 1]" in text
        with pytest.raises(ShapeError, match="is 1, not 4 at t = 0") as caught:
            past * np.ones((4, 2), np.float32)
        assert "What to do" in str(caught.value)
        with pytest.raises(ShapeError, match="disagree in a size"):
            past.transpose() @ x[t:T]
        later = trl.tensor((4, 2), domain=(t,))
        with pytest.raises(ShapeError, match="(?s)but this branch is.*is 1, not 4 at t = 0"):
            later[t] = past


@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"executor": "xla"}], ids=str)
def test_a_slice_that_begins_beyond_the_end_is_empty(options: dict[str, Any]) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((2,), domain=(t,))
        ctx.output("y", x[t + 2 : T].sum(axis=0))
    for steps in (1, 3):
        want = Reference(ctx.pdg(), {"T": steps}).outputs()
        assert_same(want, ctx.compile({T: steps}, trl.Options(**options)).execute(), str(steps))


@pytest.mark.parametrize("executor", ["interpret", "xla"])
@pytest.mark.parametrize("use", ["sums", "points", "both"])
@pytest.mark.parametrize("is_downwards", [False, True])
def test_starts_of_recurrences_that_are_read_alone(
    is_downwards: bool, use: str, executor: str
) -> None:
    """Initial values may be a tile of their dimension, and start a recurrence along another."""
    with trl.Context("a", "b") as ctx:
        (a, A), (b, B) = ctx.dims
        x = trl.value(a).cast("f32")
        s = trl.tensor((), domain=(a, b))
        starts = [B - 1, B - 2, B - 3] if is_downwards else [0, 1, 2]
        for k, at in enumerate(starts):
            s[a, at] = x + k
        if is_downwards:
            s[a, b - 3] = s[a, trl.max(b - 1, 0)] + s * 2.0
        else:
            s[a, b + 3] = s[a, trl.min(b + 1, B - 1)] + s * 2.0
        for k, at in enumerate(starts):
            if use != "points":
                ctx.output(f"sum{k}", s[0:A, at].sum(axis=0))
            if use != "sums":
                ctx.output(f"one{k}", s[a, at])
        ctx.output("row", s[1, b])
    want = np.zeros((3, 6))
    for k in range(3):
        want[:, k] = np.arange(3) + k
    for k in range(3, 6):
        want[:, k] = want[:, k - 2] + 2 * want[:, k - 3]
    options = trl.Options(vectorize=False, executor=executor)
    found = ctx.compile({A: 3, B: 6}, options).execute(progress=False)
    np.testing.assert_array_equal(found["row"], want[1, ::-1] if is_downwards else want[1])
    for k in range(3):
        if use != "points":
            assert found[f"sum{k}"] == want[:, k].sum()
        if use != "sums":
            np.testing.assert_array_equal(found[f"one{k}"], want[:, k])
