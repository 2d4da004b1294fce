"""`p.next` and other reads before a definition: one meaning in every order of statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.canonical import meaning
from tests.unit.checks import assert_same
from timerl_nb.base.errors import (
    BranchError,
    DomainError,
    GradientError,
    ScheduleError,
    TimeRLError,
)
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.runtime.state.checkpoint_reader import load

Piece = Callable[[], None]


def written(pieces: dict[str, Piece], order: Iterable[str]) -> None:
    for name in order:
        pieces[name]()


def run(ctx: trl.Context, bounds: dict[Any, int], **options: Any) -> Any:
    """Return the outputs; the reference and both executors must agree."""
    want = Reference(ctx.pdg(), {str(bound): size for bound, size in bounds.items()}).outputs()
    for executor in ("xla", "interpret"):
        assert_same(
            want, ctx.compile(bounds, trl.Options(executor=executor, **options)).execute(), executor
        )
    return want


def scalar(i: Any, first: float = 2.0, name: str = "w") -> Any:
    return trl.parameter(np.float32(first), domain=(i,), name=name)


# --- every order is one graph -------------------------------------------------------------------------


def _regression(order: Sequence[str], folder: Path) -> tuple[trl.Context, Any]:
    """A network that fits data, and its target network, written in a given order."""
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.data(np.linspace(-1, 1, 8, dtype=np.float32), domain=(i,))
        net = trl.nn.Linear(1, 1, domain=(i,), name="net", init=_ones)
        target = trl.nn.Linear(1, 1, domain=(i,), name="target", init=_ones)
        losses: list[Any] = []

        def targets() -> None:
            for p, q in zip(net.params, target.params, strict=True):
                q.update(q * 0.9 + p.next * 0.1)

        def loss() -> None:
            given = x.reshape((1,))
            followed = net(given) - (3.0 * given + 0.5) - 0.1 * target(given)
            losses.append(followed.square().sum() + net.weight.next.sum() * 0.5)

        def checkpoint() -> None:
            net[(i + 1) % 3 == 0].checkpoint(folder / "net")
            target.weight.next.checkpoint(folder / "target")

        def outputs() -> None:
            for p in (*net.params, *target.params):
                ctx.output(p.name, p)
                ctx.output(f"{p.name}.next", p.next)

        pieces: dict[str, Piece] = {
            "targets": targets,
            "loss": loss,
            "backward": lambda: losses[0].backward(),
            "step": lambda: trl.optim.SGD(net.params, lr=0.2, momentum=0.5).step(),
            "checkpoint": checkpoint,
            "outputs": outputs,
        }
        written(pieces, order)
    return ctx, I


def _ones(gain: float) -> Any:
    return lambda shape: trl.ones(shape)


NATURAL = ("targets", "loss", "backward", "step", "checkpoint", "outputs")


def test_every_order_of_writing_is_one_graph(tmp_path: Path) -> None:
    orders = [
        order
        for order in permutations(NATURAL)
        if order.index("loss") < order.index("backward") < order.index("step")
    ]
    assert len(orders) == 120
    assert len({meaning(_regression(order, tmp_path)[0].pdg()) for order in orders}) == 1


def test_target_networks_in_the_natural_order(tmp_path: Path) -> None:
    ctx, I = _regression(NATURAL, tmp_path)
    result = ctx.compile({I: 8}).execute()
    w, c, tw, tc, mw, mc = 1.0, 0.0, 1.0, 0.0, 0.0, 0.0
    for k, x in enumerate(np.linspace(-1, 1, 8)):
        np.testing.assert_allclose(result["net.weight"][k], w, rtol=1e-5)
        np.testing.assert_allclose(result["target.bias"][k], tc, rtol=1e-5, atol=1e-6)
        g = 2 * (w * x + c - (3 * x + 0.5) - 0.1 * (tw * x + tc))
        mw, mc = 0.5 * mw + g * x, 0.5 * mc + g
        w, c = w - 0.2 * mw, c - 0.2 * mc
        tw, tc = 0.9 * tw + 0.1 * w, 0.9 * tc + 0.1 * c
        np.testing.assert_allclose(result["net.weight.next"][k], w, rtol=1e-5)
        np.testing.assert_allclose(result["target.weight.next"][k], tw, rtol=1e-5)
    saved = load(tmp_path / "net" / "i=5.safetensors")
    np.testing.assert_array_equal(saved["net.weight"], result["net.weight.next"][5])
    saved = load(tmp_path / "target" / "i=7.safetensors")
    np.testing.assert_array_equal(saved["target.weight.next"], result.parameters["target.weight"])


# --- where it is read -----------------------------------------------------------------------------------


def test_next_alone_and_next_without_an_update() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        w, still, everywhere = scalar(i), scalar(i, 3.0, "still"), trl.parameter((), name="e")
        ctx.output("next", w.next * 2.0)
        ctx.output("still", still.next + everywhere.next)
        ctx.output("before", still.next[i // 2])
        w.update(w * 0.5)
    found = run(ctx, {I: 4})
    np.testing.assert_allclose(found["next"], [2.0, 1.0, 0.5, 0.25])
    np.testing.assert_allclose(found["still"], [3.0] * 4)
    np.testing.assert_allclose(found["before"], [3.0] * 4)


def test_next_over_several_dimensions() -> None:
    with trl.Context("i", "k") as ctx:
        (i, I), (k, K) = ctx.dims
        w = trl.parameter(np.float32(1.0), domain=(i, k), name="w")
        ctx.output("next", w.next)
        ctx.output("sums", w.next[i, 0 : k + 1].sum(axis=0))
        ctx.output("last", w.next[i, K - 1])
        w.update(w + 1.0, along=(i, k))
    found = run(ctx, {I: 2, K: 3})
    np.testing.assert_allclose(found["next"], [[2, 3, 4], [5, 6, 7]])
    np.testing.assert_allclose(found["sums"], [[2, 5, 9], [5, 11, 18]])
    np.testing.assert_allclose(found["last"], [4, 7])


def test_next_in_conditions_and_of_a_constant_update() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        w, c = scalar(i, 1.0), scalar(i, 1.0, "c")
        second = w.next[(i + 1) % 2 == 0]
        ctx.output("second", second)
        ctx.output("total", (second * w.next).sum(over=i))
        ctx.output("large", trl.where(w.next > 2.0, w.next, 0.0))
        ctx.output("constant", c.next)
        w.update(w + 1.0)
        c.update(trl.constant(5.0))
    found = run(ctx, {I: 5})
    np.testing.assert_allclose(found["second"], [3, 5])
    assert found["total"] == 34
    np.testing.assert_allclose(found["large"], [0, 3, 4, 5, 6])
    np.testing.assert_allclose(found["constant"], [5] * 5)


def test_hard_updates_and_updates_by_another_next() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        w, hard, copy = scalar(i, 1.0), scalar(i, 0.0, "hard"), scalar(i, 0.0, "copy")
        hard.update(trl.where((i + 1) % 3 == 0, w.next, hard))
        copy.update(w.next)
        ctx.output("hard", hard)
        ctx.output("copy", copy)
        w.update(w * 2.0)
    found = run(ctx, {I: 7})
    np.testing.assert_allclose(found["hard"], [0, 0, 0, 8, 8, 8, 64])
    np.testing.assert_allclose(found["copy"], [0, 2, 4, 8, 16, 32, 64])


def test_an_update_by_its_own_next_is_a_circle() -> None:
    for written_as in (lambda w, v: w.next, lambda w, v: w.next * 2.0, lambda w, v: v.next):
        with trl.Context("i") as ctx:
            ((i, I),) = ctx.dims
            w, v = scalar(i), scalar(i, 1.0, "v")
            w.update(written_as(w, v))
            v.update(w.next + 1.0)
            ctx.output("w", w)
        with pytest.raises(ScheduleError, match="depend on each other in a cycle"):
            ctx.compile({I: 3})


def test_only_parameters_have_a_next() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        w = scalar(i)
        for x in (w.next, w * 2.0, w[i + 1]):
            with pytest.raises(DomainError, match="only a parameter has a next value"):
                _ = x.next
        assert w.next is w.next


# --- gradients --------------------------------------------------------------------------------------------


def test_backward_stops_at_next() -> None:
    """As at the parameter's update, with or without one, in any order."""
    found: list[float] = []
    for update in (None, "before", "after"):
        with trl.Context("i") as ctx:
            ((i, I),) = ctx.dims
            w, v = scalar(i, 2.0), scalar(i, 3.0, "v")
            if update == "before":
                w.update(w * v)
            (w.next.detach() * 0.0 + w.next * 0.0 + w * v + w.next * 7.0).backward()
            if update == "after":
                w.update(w * v)
            ctx.output("dw", w.grad)
            ctx.output("dv", v.grad)
        result = run(ctx, {I: 1})
        found += [float(result["dw"][0]), float(result["dv"][0])]
    assert found == [3.0, 2.0] * 3
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        with pytest.raises(GradientError, match="reaches no parameter"):
            (scalar(i).next * 2.0).backward()


def test_gradients_through_next_follow_the_update_or_say_that_it_came_too_late() -> None:
    def program(order: Sequence[str], of: str) -> tuple[trl.Context, Any]:
        with trl.Context("i") as ctx:
            ((i, I),) = ctx.dims
            w, q = scalar(i), scalar(i, 3.0, "q")
            x = trl.data(np.arange(1, 4, dtype=np.float32), domain=(i,))
            leaf = {"w": w, "q": q, "x": x, "next": w.next}[of]
            written(
                {
                    "update": lambda: w.update(w * w * q),
                    "grad": lambda: ctx.output("g", trl.grad(w.next * 3.0 * x + q + w, leaf)),
                },
                order,
            )
        return ctx, I

    w, want = 2.0, {"w": [], "q": [], "x": [], "next": []}
    for k in range(3):
        want["w"].append(2 * w * 3.0 * 3.0 * (k + 1) + 1)
        want["q"].append(w * w * 3.0 * (k + 1) + 1)
        want["x"].append(w * w * 3.0 * 3.0)
        want["next"].append(3.0 * (k + 1))
        w = w * w * 3.0
    for of in want:
        ctx, I = program(("update", "grad"), of)
        np.testing.assert_allclose(run(ctx, {I: 3})["g"], want[of], rtol=1e-5)
        ctx, I = program(("grad", "update"), of)
        if of in ("x", "next"):  # independent of the update
            np.testing.assert_allclose(run(ctx, {I: 3})["g"], want[of], rtol=1e-5)
            continue
        with pytest.raises(BranchError, match="gets its update after a gradient") as caught:
            ctx.compile({I: 3})
        assert "w.update(w * w * q)" in str(caught.value) and "trl.grad(w.next" in str(caught.value)
    ctx, I = program(("grad",), "w")  # no update: w.next is w
    np.testing.assert_allclose(run(ctx, {I: 3})["g"], [4.0, 7.0, 10.0])


def test_a_branch_that_opens_a_path_comes_before_the_gradient() -> None:
    """Also if the tensor had no path to a parameter yet, so that none could be followed."""

    def program(late: bool, stopped: bool) -> tuple[trl.Context, Any, Any]:
        with trl.Context("i", "t") as ctx:
            (i, I), (t, T) = ctx.dims
            w = scalar(i, 0.5)
            x = trl.tensor((), domain=(i, t)).named("x")
            x[i, 0] = trl.constant(1.0)

            def branch() -> None:
                x[i, t + 1] = x * (w.detach() if stopped else w)

            def gradient() -> None:
                (x * 2.0 * w).sum(over=t).backward()

            for piece in (gradient, branch) if late else (branch, gradient):
                piece()
            ctx.output("dw", w.grad)
        return ctx, I, T

    def found(late: bool, stopped: bool) -> float:
        ctx, I, T = program(late, stopped)
        return float(run(ctx, {I: 1, T: 3})["dw"][0])

    assert found(False, False) == 2.0 * (1 + 2 * 0.5 + 3 * 0.25)
    assert found(False, True) == found(True, True) == 2.0 * (1 + 0.5 + 0.25)
    ctx, I, T = program(late=True, stopped=False)
    with pytest.raises(BranchError, match="gets a branch after a gradient") as caught:
        ctx.compile({I: 1, T: 3})
    assert "x[i, t + 1] = x *" in str(caught.value) and "backward()" in str(caught.value)


def test_a_gradient_is_read_when_it_is_whole() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        w, target = scalar(i), scalar(i, 0.0, "target")
        target.update(w.next)  # an update outside every gradient may come first
        (w * target).backward()
        ctx.output("dtarget", target.grad)
        ctx.output("dw", w.grad)  # here
        with pytest.raises(GradientError, match="after its grad was read") as caught:
            (w * w).backward()
        assert 'ctx.output("dw", w.grad)  # here' in str(caught.value)
        w.update(w * 2.0)
        with pytest.raises(GradientError, match="after its update was written"):
            (w * w).backward()
    np.testing.assert_allclose(run(ctx, {I: 3})["dtarget"], [2, 4, 8])


# --- similar reads elsewhere
# --------------------------------------------------------------------------


def test_a_module_is_saved_as_it_is_when_complete(tmp_path: Path) -> None:
    class Network(trl.nn.Module):
        def __init__(self, i: Any) -> None:
            self.body = trl.nn.Linear(1, 1, domain=(i,), name="body")

    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        net = Network(i)
        net.checkpoint(tmp_path / "net")
        net.head = trl.nn.Linear(1, 1, domain=(i,), name="head")
        x = trl.value(i) * 2.0
        x.checkpoint(tmp_path / "x")
        x.named("twice")
        optimizer = trl.optim.SGD(net.params)
        net.head.weight.sum().backward()
        net.more = scalar(i, 1.0, "more")
        with pytest.raises(TimeRLError, match="have changed since the optimiser was created") as e:
            optimizer.step()
        assert "more is made at" in str(e.value) and "trl.optim.SGD(net.params)" in str(e.value)
        given = [net.head.weight]
        optimizer = trl.optim.SGD(given)
        given.append(net.more)
        with pytest.raises(DomainError, match="have changed since the optimiser was created"):
            optimizer.step()
    ctx.compile({I: 2}).execute()
    assert set(load(tmp_path / "net" / "i=1.safetensors")) == {
        *("body.weight", "body.bias", "head.weight", "head.bias", "more")
    }
    assert load(tmp_path / "x" / "i=1.safetensors")["twice"] == 2.0


# --- algorithms with target networks --------------------------------------------------------------------

ROWS, STEPS = 5, 12


def _actor_critic(order: Sequence[str]) -> tuple[trl.Context, Any]:
    """Soft actor-critic on given transitions: two critics, their targets, an actor, a temperature."""
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        s, s2, r, a0, eps, eps2 = (trl.data(x, domain=(i,)) for x in _transitions())
        first = {k: trl.parameter(v, domain=(i,), name=k) for k, v in _weights().items()}
        q1, q2, t1, t2 = ([first[f"{n}.{k}"] for k in ("w", "u")] for n in ("q1", "q2", "t1", "t2"))
        actor, log_alpha = first["actor"], first["log_alpha"]
        alpha = log_alpha.exp()

        def value(q: Any, s: Any, a: Any) -> Any:
            return (trl.concat([s, a.unsqueeze(1)], axis=1) @ q[0]).tanh() @ q[1]

        def act(s: Any, e: Any) -> tuple[Any, Any]:
            a = ((s @ actor) + 0.5 * e).tanh()
            return a, -0.5 * e * e - (1.0 - a * a + 1e-3).log()

        def targets() -> None:
            for p, t in zip((*q1, *q2), (*t1, *t2), strict=True):
                t.update(t * 0.9 + p.next * 0.1)

        def critics() -> None:
            a2, logp2 = act(s2, eps2)
            least = trl.min(value(t1, s2, a2), value(t2, s2, a2))
            y = (r + 0.9 * (least - alpha * logp2)).detach()
            loss = sum((value(q, s, a0) - y).square().mean() for q in (q1, q2))
            loss.backward()
            ctx.output("loss", loss)

        def improve() -> None:
            a, logp = act(s, eps)
            best = trl.min(value([p.next for p in q1], s, a), value([p.next for p in q2], s, a))
            (alpha.detach() * logp - best).mean().backward()

        def temperature() -> None:
            _, logp = act(s, eps)
            (-alpha * (logp + 0.5).detach()).mean().backward()

        def step(*params: Any) -> Piece:
            return lambda: trl.optim.SGD(list(params), lr=0.1).step()

        pieces: dict[str, Piece] = {
            "targets": targets,
            "critics": critics,
            "critics' step": step(*q1, *q2),
            "actor": improve,
            "actor's step": step(actor),
            "temperature": temperature,
            "temperature's step": step(log_alpha),
        }
        written(pieces, order)
        for name, p in first.items():
            ctx.output(name, p)
    return ctx, I


def _transitions() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = ((3,), (3,), (), (), (), ())
    return [rng.normal(size=(STEPS, ROWS, *shape)).astype(np.float32) for shape in shapes]


def _weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    found = {"actor": rng.normal(size=3), "log_alpha": np.array(-1.0)}
    for n in ("1", "2"):
        found[f"q{n}.w"], found[f"q{n}.u"] = rng.normal(size=(4, 4)), rng.normal(size=4)
        found[f"t{n}.w"], found[f"t{n}.u"] = found[f"q{n}.w"] * 0.5, found[f"q{n}.u"] * 0.5
    return {k: v.astype(np.float32) for k, v in found.items()}


def _actor_critic_by_hand() -> tuple[list[dict[str, Any]], list[float]]:
    p: dict[str, Any] = {k: jnp.asarray(v) for k, v in _weights().items()}
    critics = [k for k in p if k.startswith("q")]

    def value(p: Any, n: str, s: Any, a: Any) -> Any:
        return jnp.tanh(jnp.concatenate([s, a[:, None]], 1) @ p[f"{n}.w"]) @ p[f"{n}.u"]

    def act(w: Any, s: Any, e: Any) -> tuple[Any, Any]:
        a = jnp.tanh(s @ w + 0.5 * e)
        return a, -0.5 * e * e - jnp.log(1.0 - a * a + 1e-3)

    def critic_loss(q: Any, p: Any, s: Any, s2: Any, r: Any, a0: Any, e2: Any) -> Any:
        a2, logp2 = act(p["actor"], s2, e2)
        least = jnp.minimum(value(p, "t1", s2, a2), value(p, "t2", s2, a2))
        y = r + 0.9 * (least - jnp.exp(p["log_alpha"]) * logp2)
        return sum(((value(q, n, s, a0) - y) ** 2).mean() for n in ("q1", "q2"))

    def actor_loss(w: Any, q: Any, log_alpha: Any, s: Any, e: Any) -> Any:
        a, logp = act(w, s, e)
        best = jnp.minimum(value(q, "q1", s, a), value(q, "q2", s, a))
        return (jnp.exp(log_alpha) * logp - best).mean()

    kept: list[dict[str, Any]] = []
    losses: list[float] = []
    for s, s2, r, a0, e, e2 in zip(*_transitions(), strict=True):
        kept.append(p)
        q = {k: p[k] for k in critics}
        loss, dq = jax.value_and_grad(critic_loss)(q, p, s, s2, r, a0, e2)
        q = {k: q[k] - 0.1 * dq[k] for k in critics}
        dw = jax.grad(actor_loss)(p["actor"], q, p["log_alpha"], s, e)
        _, logp = act(p["actor"], s, e)
        dalpha = -(jnp.exp(p["log_alpha"]) * (logp + 0.5)).mean()
        losses.append(float(loss))
        p = {
            **q,
            **{f"t{k[1:]}": p[f"t{k[1:]}"] * 0.9 + q[k] * 0.1 for k in critics},
            "actor": p["actor"] - 0.1 * dw,
            "log_alpha": p["log_alpha"] - 0.1 * dalpha,
        }
    return kept, losses


def test_soft_actor_critic_in_every_order() -> None:
    names = ["targets", "critics", "critics' step", "actor", "actor's step"]
    names += ["temperature", "temperature's step"]

    def is_legal(order: Sequence[str]) -> bool:
        at = order.index
        return all(at(n.split("'")[0]) < at(n) for n in order if n.endswith("step"))

    orders = [order for order in permutations(names) if is_legal(order)]
    last = (*names[1:], "targets")
    some = [tuple(names), last, *Random(0).sample(orders, 3)]
    assert len({meaning(_actor_critic(order)[0].pdg()) for order in some}) == 1

    ctx, I = _actor_critic(names)
    result = ctx.compile({I: STEPS}).execute()
    want, losses = _actor_critic_by_hand()
    for name in want[0]:
        expected = np.stack([p[name] for p in want])
        np.testing.assert_allclose(result[name], expected, rtol=2e-3, atol=2e-4, err_msg=name)
    np.testing.assert_allclose(result["loss"], losses, rtol=2e-3)
    assert np.mean(losses[-3:]) < np.mean(losses[:3])  # it learns


def _q_learning(targets_first: bool, steps: int) -> tuple[trl.Context, Any, Any]:
    """Q-learning in a corridor of four cells, from a replay window, with a target network."""
    coins, places = _chances(steps)
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        w = trl.parameter(np.zeros((4, 2), np.float32), domain=(t,), name="w")
        target = trl.parameter(np.zeros((4, 2), np.float32), domain=(t,), name="target")

        def targets() -> None:
            target.update(trl.where((t + 1) % 5 == 0, w.next, target))

        if targets_first:
            targets()
        s = trl.tensor((), "i32", domain=(b, t)).named("s")
        s[b, 0] = trl.value(b)
        coin = trl.data(coins, domain=(b, t))
        a = trl.where(coin < 2, coin, w.take(s).argmax())
        s2 = trl.where(a == 1, trl.min(s + 1, trl.constant(3)), trl.max(s - 1, trl.constant(0)))
        r = (s2 == 3).cast("f32")
        s[b, t + 1] = s2
        place = trl.data(places, domain=(b, t))
        old_s, old_a, old_r, old_s2 = (
            x[b, trl.max(t - 7, 0) : t + 1].take(place) for x in (s, a, r, s2)
        )
        y = (old_r + 0.8 * target.take(old_s2).max()).detach()
        error = w.take(old_s).take(old_a) - y
        error.square().sum(over=b).backward()
        trl.optim.SGD([w], lr=0.2).step()
        if not targets_first:
            targets()
        ctx.output("w", w)
        ctx.output("target", target)
        ctx.output("s", s)
    return ctx, B, T


def _chances(steps: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    coins = rng.integers(0, 4, (3, steps)).astype(np.int32)  # 0 and 1: explore
    places = np.stack([rng.integers(0, min(k, 7) + 1, 3) for k in range(steps)], 1)
    return coins, places.astype(np.int32)


def test_q_learning_in_both_orders() -> None:
    steps = 60
    (ctx, B, T), other = _q_learning(True, steps), _q_learning(False, steps)
    assert meaning(ctx.pdg()) == meaning(other[0].pdg())
    result = ctx.compile({B: 3, T: steps}).execute()

    coins, places = _chances(steps)
    w, target, s = np.zeros((4, 2)), np.zeros((4, 2)), np.arange(3)
    seen: list[list[tuple[int, int, float, int]]] = [[], [], []]
    for k in range(steps):
        np.testing.assert_array_equal(result["s"][:, k], s)
        np.testing.assert_allclose(result["w"][k], w, atol=1e-5)
        np.testing.assert_allclose(result["target"][k], target, atol=1e-5)
        change = np.zeros((4, 2))
        for n in range(3):
            coin = coins[n, k]
            a = coin if coin < 2 else int(w[s[n]].argmax())
            after = min(s[n] + 1, 3) if a == 1 else max(s[n] - 1, 0)
            seen[n].append((s[n], a, float(after == 3), after))
            s[n] = after
            s0, a0, r0, s1 = seen[n][max(k - 7, 0) :][places[n, k]]
            change[s0, a0] += 2 * (w[s0, a0] - (r0 + 0.8 * target[s1].max()))
        w = w - 0.2 * change
        target = w if (k + 1) % 5 == 0 else target
    assert (w[:3].argmax(axis=1) == 1).all()  # it has learned to go right
