"""JAX functions as operations: values, gradients and errors, in one XLA program."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.base import errors
from timerl_nb.compiler.ir.graph_digest import digest
from timerl_nb.compiler.ir.operation_attributes import JaxedAttrs
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.runtime.jax_backend import reduction_rules as jax_sums
from timerl_nb.runtime.jax_backend.user_function_calls import total

BOUNDS = {"B": 3, "T": 4}
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"vectorize": False},
    {"fuse": False},
    {"simplify": False},
    {"executor": "interpret"},
    {"incrementalize": {"b": 2}},
)


def network(params: dict[str, Any], x: Any) -> dict[str, Any]:
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return {"next": hidden[:2], "value": hidden.sum(), "choice": jnp.argmax(hidden)}


def learning() -> trl.Context:
    """A network in a recurrence, with a gradient through all of it."""
    rng = np.random.default_rng(0)
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        params = {
            "w": trl.parameter(rng.normal(size=(2, 3)).astype(np.float32), name="w"),
            "b": trl.parameter(np.zeros(3, np.float32), name="b"),
        }
        x = trl.tensor((2,), domain=(b, t))
        x[b, 0] = trl.random.normal((2,), domain=(b,))
        made = trl.jaxed(network, params, x)
        x[b, t + 1] = made["next"]
        (made["value"] ** 2).backward()
        for name, one in params.items():
            ctx.output(f"d{name}", one.grad)
        ctx.output("x", x)
        ctx.output("choice", made["choice"])
    return ctx


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_values_and_gradients_are_those_of_jax(options: dict[str, Any]) -> None:
    ctx = learning()
    found = ctx.compile(BOUNDS, trl.Options(**options)).execute(seed=3)
    assert_same(Reference(ctx.pdg(), BOUNDS, seed=3).outputs(), found, "run")
    params = {name: jnp.asarray(found.parameters[name]) for name in "wb"}

    def loss(params: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            made = network(params, x)
            return made["next"], made["value"]

        def episode(first: Any) -> Any:
            return (jax.lax.scan(step, first, length=BOUNDS["T"])[1] ** 2).sum()

        return jax.vmap(episode)(found["x"][:, 0]).sum()

    for name, want in jax.grad(loss)(params).items():
        np.testing.assert_allclose(found[f"d{name}"], want, rtol=2e-5, atol=1e-6)


def test_it_is_one_kernel_of_one_program() -> None:
    """One kernel computes all results of a call and the operations around it."""
    traced: list[int] = []

    def step(x: Any) -> tuple[Any, Any, Any]:
        traced.append(1)
        return jnp.sin(x), x > 0, x * 2

    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        x = trl.tensor((2,), domain=(b, t))
        x[b, 0] = trl.random.normal((2,), domain=(b,))
        after, above, twice = trl.jaxed(step, x)
        x[b, t + 1] = after + 0.5
        ctx.output("above", above)
        ctx.output("twice", twice)
    program = ctx.compile(BOUNDS)
    holding = [op for op in program.fused if any(o.kind == "jaxed" for o in op.body)]
    assert len(holding) == 1 and len([o for o in holding[0].body if o.kind == "jaxed"]) == 3
    (call,) = {o.attrs.function for o in holding[0].body if isinstance(o.attrs, JaxedAttrs)}
    program.execute()
    assert len(traced) == 1, "traced anew"
    assert len([*call(np.zeros(2, np.float32))]) == 3


def test_what_does_not_vary_is_not_repeated() -> None:
    with trl.Context("b") as ctx:
        w = trl.parameter(np.ones((4, 4), np.float32), name="w")
        x = trl.random.normal((4,), domain=("b",))
        ctx.output("y", trl.jaxed(lambda w, x: w @ x, w, x))
    fused = ctx.compile({"B": 5}).fused
    (one,) = (o for op in fused for o in op.body if o.kind == "jaxed")
    assert one.attrs.axes == ("b",) and one.attrs.along == ((False, True),)


def test_bits_become_a_key() -> None:
    def draw(bits: Any, mean: Any) -> Any:
        return mean + jax.random.normal(jax.random.wrap_key_data(bits), (3,))

    with trl.Context("b", "t") as ctx:
        bits = trl.random.bits((2,), domain=("b", "t"))
        ctx.output("y", trl.jaxed(draw, bits, 0.5))
        ctx.output("bits", bits)
    found = ctx.compile(BOUNDS).execute(seed=5)
    want = jax.vmap(jax.vmap(partial(draw, mean=jnp.float32(0.5))))(found["bits"])
    np.testing.assert_allclose(found["y"], want, rtol=1e-6)
    assert len(np.unique(found["y"])) == found["y"].size


def test_equal_calls_are_one() -> None:
    with trl.Context("t") as ctx:
        x = trl.random.normal((2,), domain=("t",))
        y = trl.jaxed(network_sum, x) + trl.jaxed(network_sum, x)
        ctx.output("y", y + trl.jaxed(lambda x: x.sum(), x))
    fused = ctx.compile({"T": 3}).fused
    assert sum(inner.kind == "jaxed" for op in fused for inner in op.body) == 2


def network_sum(x: Any) -> Any:
    return x.sum()


def test_element_types_are_kept() -> None:
    def seen(x: Any, n: Any, flag: Any) -> Any:
        assert (x.dtype, n.dtype, flag.dtype) == (jnp.bfloat16, jnp.uint8, jnp.bool_)
        return x * 2, n + n, ~flag

    with trl.Context("t") as ctx:
        at = trl.value(ctx.dims[0][0])
        xs = at.cast("bf16"), at.cast("u8"), at > 1
        for k, y in enumerate(trl.jaxed(seen, *xs)):
            ctx.output(f"y{k}", y)
    found = ctx.compile({"T": 3}).execute()
    assert [str(found[f"y{k}"].dtype) for k in range(3)] == ["bfloat16", "uint8", "bool"]
    assert_same(Reference(ctx.pdg(), {"T": 3}).outputs(), found, "run")


def test_slices_are_of_one_length_or_refused() -> None:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, _) = ctx.dims
        x = trl.random.normal((), domain=(b, t))
        ctx.output("y", trl.jaxed(lambda s: s - s.mean(), x[0:B, t], out=((B,), "f32"))[0])
        with pytest.raises(errors.ShapeError, match="differs from point to point"):
            trl.jaxed(jnp.sum, x[b, 0 : t + 1])
        with pytest.raises(errors.ShapeError, match="not known yet"):
            trl.jaxed(jnp.sum, x[0:B, t])
    found = ctx.compile(BOUNDS).execute()
    assert_same(Reference(ctx.pdg(), BOUNDS).outputs(), found, "run")


def test_a_length_that_the_run_finds_is_refused() -> None:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims
        x = trl.random.normal((), domain=(b, t))
        ctx.output("y", trl.jaxed(jnp.sum, x[b, 0:T], out="f32"))
        done = trl.random.uniform(domain=(t,)) < 0.5
    with pytest.raises(errors.ExecutionError, match="along an axis of varying length"):
        ctx.compile({"B": 2, "T": trl.until(done, at_most=4)})


def test_values_that_cannot_vary_have_no_gradient() -> None:
    with trl.Context("t") as ctx:
        w = trl.parameter(np.float32(1.5), name="w")
        x = trl.random.normal(domain=("t",)) * w
        with pytest.raises(errors.GradientError, match="without a derivative"):
            trl.grad(trl.jaxed(lambda x: (x > 0).astype(jnp.int32), x).cast("f32"), w)
        both = trl.jaxed(lambda x, n: (x * n, n + 1), x, trl.value(ctx.dims[0][0]))
        ctx.output("g", trl.grad(both[0] + both[1].cast("f32"), w))
        ctx.output("x", x)
    found = ctx.compile({"T": 3}).execute()
    np.testing.assert_allclose(found["g"], (found["x"] / 1.5) @ np.arange(3), rtol=1e-5)


def affine(w: Any, x: Any, shift: Any) -> Any:
    return {"y": jnp.tanh(x @ w) * shift, "mean": (x @ w).mean()}


def test_weights_have_one_gradient_for_all_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gradient per point, whichever axes are summed, even if all points have the same gradient."""
    made: list[tuple[int, ...]] = []

    def summed(scope: Any, x: Any, axes: Any) -> Any:
        found = total(scope, x, axes)
        made.extend([found.shape] if found is not None else [])
        return found

    monkeypatch.setattr(jax_sums, "total", summed)
    with trl.Context("b", "t", "k") as ctx:
        (b, _), (t, _), (k, _) = ctx.dims
        w = trl.parameter(np.arange(6, dtype=np.float32).reshape(2, 3) * 0.1, name="w")
        v = trl.parameter(np.ones(3, np.float32), domain=(t,), name="v")
        x = trl.random.normal((2,), domain=(b, t))
        out = trl.jaxed(affine, w, x, v)
        ctx.output("dw", trl.grad(out["y"].sum() + out["mean"], w))
        ctx.output("dv", trl.grad(out["y"].sum() * trl.random.normal(domain=(b, k)), v))
        ctx.output("x", x)
    bounds = {"B": 4, "T": 5, "K": 2}
    found = ctx.compile(bounds, trl.Options(executor="xla")).execute(seed=2)
    assert_same(Reference(ctx.pdg(), bounds, seed=2).outputs(), found, "run")
    assert (2, 3) in made and (5, 3) in made

    def loss(w: Any) -> Any:
        out = jax.vmap(jax.vmap(lambda x: affine(w, x, jnp.ones(3))))(found["x"])
        return out["y"].sum() + out["mean"].sum()

    weights = jnp.arange(6, dtype=jnp.float32).reshape(2, 3) * 0.1
    np.testing.assert_allclose(found["dw"], jax.grad(loss)(weights), rtol=2e-5)


def test_it_is_not_computed_again() -> None:
    """Its cost is unknown, so acting stores its results."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        env = trl.env.make("synthetic", obs_shape=(6,))
        w = trl.parameter(np.full((6, 1), 0.1, np.float32), domain=(i,), name="w")
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        mean = trl.jaxed(lambda w, o: jnp.tanh(o @ w), w, o)
        chosen = trl.distributions.Normal(mean.square(), 0.0)
        a = chosen.sample()
        step = env.step(a)
        o[b, i, t + 1] = step.obs
        returns = step.reward[b, i, t:T].discounted_sum(0.9)
        (-chosen.log_prob(a) * returns).mean(over=(b, t)).backward()
        trl.optim.SGD([w], lr=0.1).step()
        ctx.output("w", w)
    options = trl.Options(executor="xla", rematerialize=True, incrementalize={"t": 5})
    program = ctx.compile({"B": 16, "I": 2, "T": 20}, options)
    again = {
        k
        for step in program.stages["rematerialize"].steps
        if step.rule == "compute again"
        for k in step.before
    }
    before = program.stages["rematerialize"].previous
    assert before is not None and not any(before[k].kind == "jaxed" for k in again)


def test_second_derivatives() -> None:
    with trl.Context("t") as ctx:
        x = trl.random.normal(domain=("t",))
        slope = trl.grad(trl.jaxed(lambda x: x**3, x), x)
        ctx.output("x", x)
        ctx.output("bend", trl.grad(slope, x))
    found = ctx.compile({"T": 3}).execute()
    np.testing.assert_allclose(found["bend"], 6 * found["x"], rtol=1e-5)


def test_where_a_tensor_is_defined_alone() -> None:
    with trl.Context("t") as ctx:
        t, _ = ctx.dims[0]
        x = trl.random.normal(domain=("t",))
        y = trl.jaxed(jnp.sin, x[t % 2 == 0])
        ctx.output("y", y)
        ctx.output("x", x)
        ctx.output("g", trl.grad(y.sum(over=t), x))
    found = ctx.compile({"T": 5}).execute()
    even = np.arange(5) % 2 == 0
    np.testing.assert_allclose(found["y"], np.sin(found["x"][even]), rtol=1e-6)
    np.testing.assert_allclose(found["g"], np.where(even, np.cos(found["x"]), 0), rtol=1e-6)


def _raising(x: Any) -> Any:
    raise KeyError("missing")


def _branching(x: Any) -> Any:
    return x if x > 0 else -x


def _in_numpy(x: Any) -> Any:
    return np.sin(x)


def _printing(x: Any) -> Any:
    jax.experimental.io_callback(print, None, x)
    return x


WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "raises": (_raising, {}, errors.CallError, "raised KeyError"),
    "branches": (_branching, {}, errors.CallError, "needs the values of an array"),
    "numpy": (_in_numpy, {}, errors.CallError, "needs the values of an array"),
    "effect": (_printing, {}, errors.CallError, "not a pure function"),
    "arguments": (lambda: 0, {}, errors.CallError, "raised TypeError"),
    "shape": (jnp.sin, {"out": ((2,), "f32")}, errors.ShapeError, "is declared to return"),
    "count": (jnp.sin, {"out": ["f32", "f32"]}, errors.ShapeError, "is declared to return"),
    "type": (jnp.sin, {"out": "i32"}, errors.ShapeError, "is declared to return"),
    "complex": (lambda x: x * 1j, {}, errors.ShapeError, "not a supported element type"),
    "nothing": (lambda x: None, {}, errors.ShapeError, "returns no array"),
    "no function": (3, {}, errors.CallError, "is not a function"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_at_its_line(case: str) -> None:
    function, options, kind, text = WRONG[case]
    with trl.Context("t"):
        x = trl.random.normal(domain=("t",))
        with pytest.raises(kind, match=text) as caught:
            trl.jaxed(function, x, **options)  # here
    error = caught.value
    assert isinstance(error, errors.TimeRLError)
    assert "# here" in error.origin.text and error.hint


def test_a_gradient_that_jax_has_not_is_refused_where_it_is_asked_for() -> None:
    def endless(x: Any) -> Any:
        return jax.lax.while_loop(lambda x: x < 10, lambda x: x * 2 + 1, x)

    with trl.Context("t") as ctx:
        w = trl.parameter(np.float32(1.0), name="w")
        y = trl.jaxed(endless, w + trl.random.uniform(domain=("t",)))
        ctx.output("y", y)
        with pytest.raises(errors.GradientError, match="not supported, because") as caught:
            trl.grad(y, w)  # here
    assert "# here" in caught.value.origin.text
    assert (ctx.compile({"T": 3}).execute()["y"] >= 10).all()


def test_what_cannot_be_mapped_is_said_where_it_was_called() -> None:
    def outside(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), x)

    with trl.Context("t") as ctx:
        ctx.output("y", trl.jaxed(outside, trl.random.normal(domain=("t",))))  # here
    with pytest.raises(errors.ExecutionError, match="cannot run in a kernel") as caught:
        ctx.compile({"T": 3}).execute()
    assert "# here" in caught.value.origin.text


def test_a_graph_with_one_has_no_digest() -> None:
    assert digest(learning().pdg()) is None


def branching(params: Any, obs: Any, key: Any) -> Any:
    return 0 if obs[0] > 0 else 1


def test_errors_name_the_function_of_the_user() -> None:
    for function in (branching, partial(branching, None)):
        with trl.Context("t") as ctx:
            ((t, _),) = ctx.dims
            x = trl.data(np.ones((3, 2), np.float32), domain=(t,))
            with pytest.raises(errors.CallError, match="cannot trace branching with"):
                trl.jaxed(function, *[x] * (3 if function is branching else 2))
    sizes: dict[str, Any] = {"envs": 2, "steps": 2, "how": "scan", "params": {}}
    with (
        trl.collect("CartPole-v1", branching, **sizes) as collector,
        pytest.raises(errors.CallError, match="cannot trace branching with"),
    ):
        collector.next()
