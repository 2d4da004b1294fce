"""Windows of the past (frame stacks), compared with a plain Python loop."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from tests.eager import eagerly
from tests.pixels import Pixels
from tests.unit.checks import assert_same
from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.ir.graph_verifier import prove_reads, verify
from timerl_nb.compiler.ir.reference.evaluator import Reference


def _numbers(*shape: int) -> np.ndarray:
    drawn = np.random.default_rng(1).uniform(-1, 1, shape)
    return (np.round(drawn * 4096) / 4096).astype(np.float32)


def _sources(points: int, n: int, starts: Any = None, *, first: bool = False) -> np.ndarray:
    """Return the source points of each point's window, oldest first; -1 for none."""
    found = np.full((points, n), -1)
    seen: list[int] = []
    for t in range(points):
        if starts is not None and t > 0 and starts[t - 1]:
            seen = []
        seen.append(t)
        for k in range(n):
            if k < len(seen):
                found[t, n - 1 - k] = seen[-1 - k]
            elif first:
                found[t, n - 1 - k] = seen[0]
    return found


def _stacked(x: np.ndarray, n: int, fill: Any, starts: Any = None) -> np.ndarray:
    made = np.zeros((*x.shape[:2], n, *x.shape[2:]), x.dtype)
    for b, row in enumerate(x):
        of = _sources(len(row), n, None if starts is None else starts[b], first=fill == "first")
        for t, k in np.ndindex(*of.shape):
            made[b, t, k] = fill if of[t, k] < 0 else row[of[t, k]]
    return made


@pytest.mark.parametrize(
    ("dtype", "n", "points", "fill"),
    [
        ("f32", 4, 6, 0),
        ("f32", 4, 6, "first"),
        ("f32", 3, 6, -1.5),
        ("f32", 1, 4, 0),
        ("f32", 5, 3, 0),
        ("bool", 4, 6, 0),
        ("bool", 3, 5, True),
        ("i32", 4, 6, 7),
        ("i32", 5, 3, "first"),
    ],
)
@pytest.mark.parametrize("episodes", [False, True])
def test_a_window_is_what_a_loop_remembers(
    dtype: str, n: int, points: int, fill: Any, episodes: bool
) -> None:
    x = _numbers(3, points, 2)
    x = {"f32": x, "bool": x > 0, "i32": (x * 9).astype(np.int32)}[dtype]
    done = np.random.default_rng(3).random((3, points)) < 0.3
    weight = _numbers(n, 2)
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        given, over = trl.data(x, domain=(b, t)), trl.data(done, domain=(b, t))
        w = given.window(n, over=t, fill=fill, starts=over if episodes else None)
        assert w.domain == ("b", "t")
        ctx.output("w", w)
        if dtype == "f32":
            ctx.output("dx", trl.grad((w * w * weight).sum(), given))
    bounds = {"B": 3, "T": points}
    graph = ctx.pdg()
    verify(graph)
    prove_reads(graph, bounds)
    found = Reference(graph, bounds).outputs()
    starts = done if episodes else None
    np.testing.assert_array_equal(found["w"], _stacked(x, n, fill, starts))
    if dtype == "f32":
        want = np.zeros_like(x)
        for b in range(3):
            of = _sources(points, n, done[b] if episodes else None, first=fill == "first")
            for t, k in np.ndindex(*of.shape):
                if of[t, k] >= 0:
                    want[b, of[t, k]] += 2 * x[b, of[t, k]] * weight[k]
        np.testing.assert_allclose(found["dx"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"executor": "interpret", "vectorize": False}, {}], ids=str)
def test_windows_run(options: dict[str, Any]) -> None:
    """Windows with a padding number, with the first frame, nested, over the outer dimension, and with ends."""
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        x = trl.data(_numbers(3, 5, 2), domain=(b, t))
        done = trl.data(_numbers(3, 5) > 0.4, domain=(b, t))
        w = x.window(3, over=t, fill="first", starts=done)
        both = x.sin().window(2, over=b, fill=0.5).window(3, over=t)
        assert both.shape == (3, 2, 2)
        ctx.output("w", w)
        ctx.output("both", both)
        ctx.output("dx", trl.grad((w * both.sum(axis=1)).square().sum(), x))
    bounds = {"B": 3, "T": 5}
    want = Reference(ctx.pdg(), bounds).outputs()
    rows = np.sin(_numbers(3, 5, 2))
    outer = np.stack([np.concatenate([np.full((1, 5, 2), 0.5), rows[:-1]]), rows], axis=2)
    np.testing.assert_allclose(want["both"], _stacked(outer, 3, 0), rtol=1e-6)
    with jax.disable_jit(options.get("executor") == "interpret"):
        assert_same(want, ctx.compile(bounds, trl.Options(**options)).execute(), "windows")


def test_a_window_ends_where_a_dynamic_dimension_does() -> None:
    ends = np.zeros((2, 6), np.bool_)
    ends[0, 3] = ends[1, 5] = True
    x = _numbers(2, 6)
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        given, done = trl.data(x, domain=(i, t)), trl.data(ends, domain=(i, t))
        w = given.window(3, over=t)
        ctx.output("w", w)
        ctx.output("dx", trl.grad(w.square().sum(), given))
    found = ctx.compile({I: 2, T: trl.until(done, at_most=6)}).execute()
    want = _stacked(x, 3, 0)
    np.testing.assert_array_equal(found["w"][0, :4], want[0, :4])
    np.testing.assert_array_equal(found["w"][1], want[1])
    seen = np.array([[3, 3, 2, 1, 0, 0], [3, 3, 3, 3, 2, 1]])  # number of windows that contain each
    np.testing.assert_allclose(np.where(seen, found["dx"], 0), 2 * x * seen, rtol=1e-5)


def test_a_window_keeps_a_ring() -> None:
    """A loop stores only the last n values, for any number of points."""
    rings: list[list[int]] = []
    for points in (20, 200):
        with trl.Context("t") as ctx:
            ((t, T),) = ctx.dims
            x = trl.tensor((8,), domain=(t,)).named("x")
            x[0] = trl.ones((8,))
            w = x.window(4, over=t)
            x[t + 1] = (w * np.float32([[0.1], [0.2], [0.3], [0.4]])).sum(axis=0).sin()
            ctx.output("last", x[T - 1])
        program = ctx.compile({T: points})
        stores = program.memory.stores
        types = {key: program.fused[key[0]].outputs[key[1]].type for key in stores}
        rings.append(sorted(s.most for k, s in stores.items() if types[k].shape == (8,)))
        kinds = {s.kind for k, s in stores.items() if types[k].shape == (8,)}
        assert kinds <= {"ring", "slot"}
    assert rings[0] == rings[1]
    assert max(rings[0]) == 4


def _player(n: int) -> trl.Context:
    """A convolution over stacked images acts and learns, over several episodes."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        env = Pixels(4)
        env.autoreset, env.max_steps = "same_step", 2
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        frame, done = o.mean(axis=0), trl.tensor((), "bool", domain=(b, i, t))
        kernel = trl.parameter(_numbers(3, n, 2, 2), domain=(i,), name="kernel")
        stack = frame.window(n, over=t, starts=done)
        score = trl.conv(stack, kernel).tanh().sum(axis=(1, 2))
        a = (score + trl.random.uniform((3,), domain=(b, i, t))).argmax()
        o[b, i, t + 1], r, d = env.step(a)
        done[b, i, t] = d
        g = r[b, i, t:T].discounted_sum(0.9)
        loss = -score.log_softmax().take_along(a.unsqueeze(0)).sum() * g
        loss.mean(over=(b, t)).backward()
        trl.optim.SGD([kernel], lr=0.1).step()
        for name, x in {"frame": frame, "done": done, "stack": stack, "loss": loss}.items():
            ctx.output(name, x)
        ctx.output("gradient", kernel.grad)
    return ctx


def test_a_player_sees_nothing_of_the_last_episode() -> None:
    bounds = {"B": 2, "I": 1, "T": 4}
    ctx = _player(3)
    want = Reference(ctx.pdg(), bounds).outputs()
    frame, done, stack = (want[name][:, 0] for name in ("frame", "done", "stack"))
    assert done[:, :-1].any(axis=1).all()
    np.testing.assert_array_equal(stack, _stacked(frame, 3, 0, done))
    assert_same(want, ctx.compile(bounds).execute(), "player")


def test_the_gradient_of_a_convolution_over_stacked_frames_is_the_finite_difference() -> None:
    x, done = _numbers(2, 5, 4, 4), np.random.default_rng(3).random((2, 5)) < 0.3

    bounds = {"B": 2, "T": 5}

    def written(pictures: np.ndarray, *, gradient: bool) -> trl.Context:
        with trl.Context("b", "t") as ctx:
            (b, _), (t, _) = ctx.dims
            given = trl.data(pictures, domain=(b, t))
            w = given.window(3, over=t, fill=0.5, starts=trl.data(done, domain=(b, t)))
            loss = trl.conv(w, _numbers(2, 3, 2, 2)).tanh().square().sum()
            ctx.output("y", trl.grad(loss, given) if gradient else loss)
        return ctx

    def evaluate(pictures: np.ndarray, *, gradient: bool) -> Any:
        graph = written(pictures, gradient=gradient).pdg()
        return Reference(graph, bounds, precise=True).outputs()["y"]

    along = np.random.default_rng(2).choice([-1, 1], x.shape).astype(np.float32)
    step = np.float32(2.0**-10)
    rise = evaluate(x + along * step, gradient=False) - evaluate(x - along * step, gradient=False)
    found = (evaluate(x, gradient=True) * along).sum()
    assert found == pytest.approx(rise.sum() / (2 * float(step)), rel=3e-4, abs=3e-4)
    ctx = written(x, gradient=True)
    want = Reference(ctx.pdg(), bounds).outputs()
    options = trl.Options(executor="interpret", vectorize=False)
    with eagerly():
        assert_same(want, ctx.compile(bounds, options).execute(), "interpret")


def test_what_has_no_window_is_said() -> None:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        x = trl.data(_numbers(2, 5, 3), domain=(b, t))
        assert x.window(np.int64(2), over=t).shape == (2, 3)
        with pytest.raises(ShapeError, match="of a window must be an integer of at least 1, not 0"):
            x.window(0, over=t)
        with pytest.raises(ShapeError, match="does not fill a window"):
            (x > 0).window(2, over=t, fill=0.5)
        with pytest.raises(ShapeError, match="does not fill a window"):
            x.window(2, over=t, fill=x)
        with pytest.raises(ShapeError, match="starts must be booleans"):
            x.window(2, over=t, starts=x)
        with pytest.raises(ShapeError, match="varies over t cannot be stacked"):
            x[b, 0 : t + 1].window(2, over=t)
        with pytest.raises(DomainError, match="along one dimension"):
            x.window(2, over=(b, t))
        with pytest.raises(DomainError, match="does not vary over b"):
            x[0, ...].window(2, over=b)
        with pytest.raises(DomainError, match=r"(?s)undefined.*otherwise"):
            x[t > 2].window(2, over=t)
