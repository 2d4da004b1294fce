"""Networks, policies, optimisers and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.runtime.state.checkpoint_reader import load
from timerl_nb.runtime.state.checkpoint_writer import checkpoint_file, write_checkpoint


def quadratic(make: Any, steps: int = 6) -> trl.Result:
    """Minimise |w - target|^2 from a given start."""
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        w = trl.parameter(np.array([3.0, -2.0], np.float32), domain=(i,), name="w")
        ((w - np.array([1.0, 1.0], np.float32)).square().sum()).backward()
        make([w]).step()
        ctx.output("w", w)
    return ctx.compile({I: steps}).execute()


def test_sgd_with_momentum() -> None:
    result = quadratic(lambda ps: trl.optim.SGD(ps, lr=0.1, momentum=0.9))
    w, m = np.array([3.0, -2.0]), np.zeros(2)
    for k in range(6):
        np.testing.assert_allclose(result["w"][k], w, rtol=1e-5)
        m = 0.9 * m + 2 * (w - 1)
        w = w - 0.1 * m
    np.testing.assert_allclose(result.parameters["w"], w, rtol=1e-5)


def test_adam() -> None:
    result = quadratic(lambda ps: trl.optim.Adam(ps, lr=0.1))
    w, m, v = np.array([3.0, -2.0]), np.zeros(2), np.zeros(2)
    for k in range(6):
        np.testing.assert_allclose(result["w"][k], w, rtol=1e-5)
        g = 2 * (w - 1)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-8)
        w = w - 0.1 * step
    np.testing.assert_allclose(result.parameters["w"], w, rtol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda ps, **how: trl.optim.SGD(ps, lr=0.1, momentum=0.9, **how),
        lambda ps, **how: trl.optim.Adam(ps, lr=0.1, **how),
        lambda ps, **how: trl.optim.AdamW(ps, lr=0.1, **how),
        lambda ps, **how: trl.optim.RMSProp(ps, lr=0.1, momentum=0.8, **how),
    ],
    ids=["sgd", "adam", "adamw", "rmsprop"],
)
def test_an_optimiser_steps_only_where_its_condition_holds(make: Any) -> None:
    """The values at the steps are those of an unconditional run; between them nothing changes."""
    every = quadratic(make, steps=4)

    def third(ps: list[trl.Parameter]) -> Any:
        (i,) = (dim for dim, _ in ps[0].ctx.dims)
        return make(ps, when=trl.value(i) % 3 == 1)

    found = quadratic(third, steps=10)
    steps = np.cumsum([k % 3 == 1 for k in range(-1, 9)])  # made before point k
    np.testing.assert_allclose(found["w"], [every["w"][n] for n in steps], rtol=1e-6)


def test_a_condition_of_steps_is_a_boolean_scalar() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        w = trl.parameter((2,), domain=(i,), name="w")
        for wrong in (True, trl.value(i), w > 0):
            with pytest.raises(ShapeError, match="when must be a boolean scalar tensor"):
                trl.optim.SGD([w], lr=0.1, when=wrong)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_rmsprop(momentum: float) -> None:
    result = quadratic(lambda ps: trl.optim.RMSProp(ps, lr=0.1, alpha=0.9, momentum=momentum))
    w, s, m = np.array([3.0, -2.0]), np.zeros(2), np.zeros(2)
    for k in range(6):
        np.testing.assert_allclose(result["w"][k], w, rtol=1e-5)
        g = 2 * (w - 1)
        s = 0.9 * s + 0.1 * g * g
        m = momentum * m + g / (np.sqrt(s) + 1e-8)
        w = w - 0.1 * m


def test_adamw_lets_weights_decay_at_the_rate_of_the_iteration() -> None:
    def make(ps: list[trl.Parameter]) -> trl.optim.AdamW:
        i = ps[0].ctx.dims[0][0]
        rate = trl.optim.schedules.linear(i, 0.1, 0.0)
        return trl.optim.AdamW(ps, lr=rate, weight_decay=0.5)

    result = quadratic(make)
    w, m, v = np.array([3.0, -2.0]), np.zeros(2), np.zeros(2)
    for k in range(6):
        np.testing.assert_allclose(result["w"][k], w, rtol=1e-5)
        g, lr = 2 * (w - 1), 0.1 * (1 - k / 6)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-8)
        w = w * (1 - lr * 0.5) - lr * step


def test_gradients_are_clipped_by_value_and_then_by_norm() -> None:
    result = quadratic(lambda ps: trl.optim.SGD(ps, lr=0.1, max_value=3.0, max_norm=2.0))
    w = np.array([3.0, -2.0])
    for k in range(6):
        np.testing.assert_allclose(result["w"][k], w, rtol=1e-5)
        g = np.clip(2 * (w - 1), -3, 3)
        w = w - 0.1 * g * min(1.0, 2.0 / np.linalg.norm(g))


def test_numbers_may_be_numpys() -> None:
    plain = quadratic(lambda ps: trl.optim.Adam(ps, lr=0.125, betas=(0.5, 0.0)))
    numpys = quadratic(
        lambda ps: trl.optim.Adam(ps, lr=np.float32(0.125), betas=(np.float64(0.5), np.int64(0)))
    )
    np.testing.assert_array_equal(plain["w"], numpys["w"])
    np.testing.assert_allclose(
        quadratic(lambda ps: trl.optim.Adam(ps, lr=0.1), steps=2)["w"][1], [2.9, -1.9], rtol=2e-7
    )
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.zeros((2, 3))
        assert x.unsqueeze(np.int64(0)).shape == (1, 2, 3)
        assert trl.random.permutation(x, axis=np.int64(1)).shape == (2, 3)
        assert trl.optim.schedules.linear(t, 1.0, 0.0, np.int64(3)).domain == ("t",)
        assert trl.nn.Linear(np.int64(3), 2)(np.ones(3)).shape == (2,)


def test_a_parameter_has_the_shape_and_the_type_that_it_is_asked_for() -> None:
    with trl.Context("i") as ctx:
        for init in (lambda s: 0.5, lambda s: trl.constant(0.5), np.full(3, 0.5), 0.5):
            w = trl.parameter((3,), init=init, dtype="bf16")
            assert str(w.type) == "bf16[3]"
            ctx.output(w.name, w)
    result = ctx.compile({"I": 1}).execute()
    assert all((np.asarray(result[f"p{k}"], np.float32) == 0.5).all() for k in range(4))


def test_schedules() -> None:
    of = trl.optim.schedules
    with trl.Context("i", "e") as ctx:
        (i, I), (e, E) = ctx.dims
        rates = {
            "linear": of.linear(i, 1.0, 0.2),
            "to the half": of.linear(i, 1.0, 0.2, I // 2),
            "cosine": of.cosine(i, 1.0, 0.1, 8),
            "exponential": of.exponential(i, 0.5, 0.9, 2),
            "piecewise": of.piecewise(i, 1.0, {6: 0.01, 3: 0.1}),
            "warmup": of.warmup(i, of.cosine(i, 1.0), 4),
            "of two": of.linear(i * 2 + e, 1.0, 0.0, 20),
        }
        for name, rate in rates.items():
            ctx.output(name, rate)
        wrong = [
            lambda: of.linear(3, 1.0, 0.0),
            lambda: of.linear(i, 1.0, 0.0, 0),
            lambda: of.linear(i + e, 1.0, 0.0),
            lambda: of.exponential(i, 1.0, -1.0),
        ]
        for one in wrong:
            with pytest.raises((ShapeError, DomainError)) as raised:
                one()
            assert raised.value.origin.file == __file__
    result = ctx.compile({I: 10, E: 2}).execute()
    k = np.arange(10)
    fall = 0.5 * (1 + np.cos(np.pi * k / 10))
    want = {
        "linear": 1 - 0.8 * k / 10,
        "to the half": 1 - 0.8 * np.minimum(k / 5, 1),
        "cosine": 0.1 + 0.45 * (1 + np.cos(np.pi * np.minimum(k / 8, 1))),
        "exponential": 0.5 * 0.9 ** (k / 2),
        "piecewise": np.select([k < 3, k < 6], [1.0, 0.1], 0.01),
        "warmup": fall * np.minimum(k / 4, 1),
        "of two": 1 - (2 * k[:, None] + np.arange(2)) / 20,
    }
    for name, values in want.items():
        np.testing.assert_allclose(result[name], values, rtol=1e-5, atol=1e-6)


def test_training_a_network_is_training_it_in_jax() -> None:
    """Ten steps of gradient descent on a two-layer network, against jax.grad."""
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(16, 3)).astype(np.float32), rng.normal(size=16).astype(np.float32)
    first = [rng.normal(size=s).astype(np.float32) for s in ((3, 8), (8,), (8, 1), (1,))]
    with trl.Context("b", "i") as ctx:
        (b, B), (i, I) = ctx.dims
        x, y = trl.data(xs, domain=(b,)), trl.data(ys, domain=(b,))
        w1, b1, w2, b2 = (trl.parameter(v, domain=(i,), name=f"p{k}") for k, v in enumerate(first))
        out = ((x @ w1 + b1).tanh() @ w2 + b2).reshape(())
        loss = (out - y).square().mean(over=b)
        loss.backward()
        trl.optim.SGD([w1, b1, w2, b2], lr=0.05).step()
        ctx.output("loss", loss)
    result = ctx.compile({B: 16, I: 10}).execute()

    def f(ps: Any) -> Any:
        h = jnp.tanh(xs @ ps[0] + ps[1])
        return jnp.mean(((h @ ps[2] + ps[3])[:, 0] - ys) ** 2)

    ps, want = [jnp.asarray(p) for p in first], []
    for _ in range(10):
        value, grads = jax.value_and_grad(f)(ps)
        want.append(value)
        ps = [p - 0.05 * g for p, g in zip(ps, grads, strict=True)]
    np.testing.assert_allclose(result["loss"], want, rtol=1e-4)
    for k, p in enumerate(ps):
        np.testing.assert_allclose(result.parameters[f"p{k}"], p, rtol=1e-3, atol=1e-5)


def test_policy_gradient_is_that_of_jax() -> None:
    """One REINFORCE update, recomputed from the recorded episode with jax.grad."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[8]).build()
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn.sample(o)
        step = env.step(a)
        o[b, i, t + 1], r, d = step
        g = r[b, i, t:T].discounted_sum(0.9)
        (-dnn.log_prob(a) * g * step.alive).mean(over=(b, t)).backward()
        trl.optim.SGD(dnn.params, lr=1.0).step()
        for name, x in {"o": o, "a": a, "r": r, "alive": step.alive}.items():
            ctx.output(name, x)
        for p in dnn.params:
            ctx.output(p.name, p)
            ctx.output(f"grad {p.name}", p.grad)
    result = ctx.compile({B: 4, I: 1, T: 15}).execute(seed=2)
    o, a, r, alive = (jnp.asarray(result[n])[:, 0] for n in ("o", "a", "r", "alive"))
    names = [p.name for p in dnn.params]
    params = {n: jnp.asarray(result[n][0]) for n in names}
    weights = 0.9 ** jnp.arange(15)
    returns = jnp.stack([(r[:, k:] * weights[: 15 - k]).sum(1) for k in range(15)], 1)
    assert not alive.all(), "some episodes end"

    def f(ps: dict[str, Any]) -> Any:
        h = jnp.tanh(o @ ps["trunk.0.weight"] + ps["trunk.0.bias"])
        logp = jax.nn.log_softmax(h @ ps["actor.weight"] + ps["actor.bias"])
        chosen = jnp.take_along_axis(logp, a[..., None], -1)[..., 0]
        return jnp.mean(-chosen * returns * alive)

    for name, grad in jax.grad(f)(params).items():
        np.testing.assert_allclose(result[f"grad {name}"][0], grad, rtol=1e-4, atol=1e-5)


def test_policy_with_a_critic() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4], critic=True).build()
        o = trl.random.normal((4,), domain=(b, i, t))
        assert dnn.value(o).shape == ()
        assert dnn.value(o).domain == ("b", "i", "t")
        names = [p.name for p in dnn.params]
    assert names == [
        f"{part}.{kind}" for part in ("trunk.0", "actor", "critic") for kind in ("weight", "bias")
    ]
    plain = trl.Context("i")
    with plain, pytest.raises(trl.errors.TimeRLError, match="has no critic"):
        trl.DNNBuilder().from_env(trl.env.make("CartPole-v1")).build().value(trl.zeros((4,)))


# --- checkpoints -------------------------------------------------------------------------------------


def test_names_by_default_are_unique() -> None:
    env = trl.env.make("CartPole-v1")
    with trl.Context() as ctx:
        for name in ("dnn2", "", "", "dnn5"):
            trl.DNNBuilder(name=name).from_env(env, ()).build()
    found = [p.name for p in ctx.parameters.values() if p.name.endswith("actor.bias")]
    assert found == ["dnn2.actor.bias", "dnn3.actor.bias", "dnn4.actor.bias", "dnn5.actor.bias"]


def test_checkpoints_hold_the_parameters_after_the_update(tmp_path: Path) -> None:
    ctx = reinforce(3, hidden=(4,), checkpoint=str(tmp_path / "saved"))
    result = ctx.compile({"B": 2, "I": 20, "T": 4}).execute()
    files = sorted(p.name for p in (tmp_path / "saved").iterdir())
    assert files == ["i=19.safetensors", "i=9.safetensors"]
    last = load(tmp_path / "saved" / "i=19.safetensors")
    assert set(last) == set(result.parameters)
    for name, value in result.parameters.items():
        np.testing.assert_array_equal(last[name], value)
    assert not (
        load(tmp_path / "saved/i=9.safetensors")["actor.weight"] == last["actor.weight"]
    ).all()


def test_a_single_tensor_can_be_saved(tmp_path: Path) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(np.arange(6.0), domain=(t,)).named("x")
        x[t % 3 == 2].checkpoint(str(tmp_path))
    ctx.compile({T: 6}).execute()
    saved = {p.name: float(load(p)["x"]) for p in tmp_path.iterdir()}
    assert saved == {"t=2.safetensors": 2.0, "t=5.safetensors": 5.0}


def test_a_checkpoint_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    write_checkpoint(folder, {"i": 1}, {"w": np.ones(3, np.float32)})

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(trl.errors.ExecutionError, match="No space left on device"):
        write_checkpoint(folder, {"i": 1}, {"w": np.zeros(3, np.float32)})
    assert [p.name for p in tmp_path.iterdir()] == ["i=1.safetensors"]
    np.testing.assert_array_equal(load(checkpoint_file(folder, {"i": 1}))["w"], 1)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(trl.errors.ExecutionError, match="cannot be written"):
        write_checkpoint(str(tmp_path / "file" / "x"), {}, {"w": np.zeros(1, np.float32)})


# --- learning ----------------------------------------------------------------------------------------


@pytest.mark.some_of("seed", 1)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_monte_carlo_learns_cartpole(seed: int) -> None:
    program = reinforce().compile({"B": 64, "I": 60, "T": 500})
    assert program.execute(seed=seed)["return"].max() > 475
