"""User-defined gradient rules and gradients of functions, with JAX's semantics."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import CallError, GradientError, ShapeError

XS = np.random.default_rng(0).normal(size=(3, 5, 2)).astype(np.float32)
WS = np.random.default_rng(1).normal(size=(2,)).astype(np.float32)


@trl.custom_vjp
def cubed(x: Any, w: Any, power: int) -> Any:
    """The rule is wrong on purpose, to prove that it is used."""
    return (x * w) ** power


cubed.defvjp(
    lambda x, w, power: ((x * w) ** power, (x, w)),
    lambda kept, g: (g * kept[1] * 7.0, (g * kept[0]).clip(-1.0, 1.0), None),
)


@jax.custom_vjp
def theirs(x: Any, w: Any) -> Any:
    return (x * w) ** 3


theirs.defvjp(
    lambda x, w: ((x * w) ** 3, (x, w)),
    lambda kept, g: (g * kept[1] * 7.0, jnp.clip(g * kept[0], -1.0, 1.0)),
)


@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"executor": "xla"}], ids=str)
def test_a_rule_is_the_gradient(options: dict[str, Any]) -> None:
    """In a recurrence through time, with an argument that has other readers and one that is shifted."""
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        x, w = trl.data(XS, domain=(b, t)), trl.parameter(WS, name="w")
        s = trl.tensor((2,), domain=(b, t))
        s[b, 0] = x[b, 0]
        s[b, t + 1] = cubed(s * 0.5 + x[b, t + 1], power=3, w=w).tanh() + s * w
        s.square().sum().backward()
        ctx.output("s", s)
        ctx.output("dw", w.grad)
        ctx.output("dx", trl.grad(s.square().sum(), x))

    def f(xs: Any, w: Any) -> Any:
        found = [xs[:, 0]]
        for k in range(4):
            many = jnp.broadcast_to(w, found[-1].shape)
            found.append(jnp.tanh(theirs(found[-1] * 0.5 + xs[:, k + 1], many)) + found[-1] * w)
        return jnp.stack(found, 1)

    want = f(jnp.asarray(XS), jnp.asarray(WS))
    dx, dw = jax.grad(lambda xs, w: (f(xs, w) ** 2).sum(), (0, 1))(XS, jnp.asarray(WS))
    result = ctx.compile({B: 3, T: 5}, trl.Options(**options)).execute()
    np.testing.assert_allclose(result["s"], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result["dx"], dx, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(result["dw"], dw, rtol=1e-3, atol=1e-4)


def test_several_results_and_those_that_nobody_reads() -> None:
    @trl.custom_vjp
    def both(x: Any, y: Any) -> Any:
        return x + y, x * y

    both.defvjp(
        lambda x, y: ((x + y, x * y), (x, y)),
        lambda kept, g: (g[0] + g[1] * kept[1], g[0] * 10.0 + g[1] * kept[0]),
    )
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x, y = trl.data(XS[0, :, 0], domain=(t,)), trl.data(XS[1, :, 0], domain=(t,))
        total, product = both(x, y)
        alone, _ = both(x, y)
        for name, loss in {"both": total.sin() + product * 2.0, "alone": alone * 3.0}.items():
            for k, g in enumerate(trl.grad(loss, [x, y])):
                ctx.output(f"{name} {k}", g)
    result = ctx.compile({T: 5}).execute()
    x, y = XS[0, :, 0], XS[1, :, 0]
    slope = np.cos(x + y)
    np.testing.assert_allclose(result["both 0"], slope + 2 * y, rtol=1e-5)
    np.testing.assert_allclose(result["both 1"], slope * 10 + 2 * x, rtol=1e-5)
    np.testing.assert_allclose(result["alone 0"], np.full(5, 3.0))
    np.testing.assert_allclose(result["alone 1"], np.full(5, 30.0))


def test_a_result_that_forgets_its_argument_has_the_rule_still() -> None:
    @trl.custom_vjp
    def straight_through(x: Any) -> Any:
        return (x > 0.0).cast("f32")

    straight_through.defvjp(lambda x: ((x > 0.0).cast("f32"), None), lambda _, g: (g,))
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(XS[0, :, 0], domain=(t,))
        ctx.output("dx", trl.grad((straight_through(x) * x).sum(), x))
    result = ctx.compile({T: 5}).execute()
    x = XS[0, :, 0]
    np.testing.assert_allclose(result["dx"], x + (x > 0), rtol=1e-6)


class Weights(NamedTuple):
    w: Any
    v: Any


def test_functions_are_differentiated_by_their_arguments_alone() -> None:
    def f(p: Any, x: Any) -> Any:
        return ((x * p["w"] + p["v"][0]) ** 2 * x).sum()

    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(XS[0], domain=(t,))
        w = trl.constant(WS)
        params = {"w": w, "v": [w * 2.0]}
        loss, slopes = trl.value_and_grad(f)(params, x * w)
        by_both = trl.grad(f, argnums=(0, 1))(params, x * w)
        named = trl.grad(lambda p, x: f(p._asdict(), x))(Weights(**params), x=x * w)
        assert isinstance(named, Weights)
        ctx.output("loss", loss)
        ctx.output("dw", slopes["w"])
        ctx.output("dv", slopes["v"][0])
        ctx.output("dw too", by_both[0]["w"] * 0.5 + named.w * 0.5)
        ctx.output("dx", by_both[1])
    result = ctx.compile({T: 5}).execute()
    at = {"w": jnp.asarray(WS), "v": [jnp.asarray(WS) * 2]}, jnp.asarray(XS[0] * WS)

    def whole(p: Any, x: Any) -> Any:
        return jnp.stack([f(p, row) for row in x])

    by_p, by_x = jax.grad(lambda p, x: whole(p, x).sum(), (0, 1))(*at)
    np.testing.assert_allclose(result["loss"], whole(*at), rtol=1e-4)
    for name, want in {"dw": by_p["w"], "dv": by_p["v"][0], "dw too": by_p["w"]}.items():
        np.testing.assert_allclose(result[name], want, rtol=1e-4)
    np.testing.assert_allclose(result["dx"], by_x, rtol=1e-4)


def test_wrong_rules_are_said() -> None:
    def rule(backward: Any) -> Any:
        made = trl.custom_vjp(lambda x: x)
        made.defvjp(lambda x: (x, None), backward)
        return lambda x: trl.grad(made(x).sum(), x)

    def forward(value: Any) -> Any:
        made = trl.custom_vjp(lambda x: x)
        made.defvjp(lambda x: value(x), lambda kept, g: (g,))
        return made

    wrong: dict[str, Any] = {
        "no rule for its gradient": trl.custom_vjp(lambda x: x),
        "partial.* has no rule": trl.custom_vjp(partial(lambda y, x: x, 1)),
        "takes 1 positional argument but 2": lambda x: forward(lambda x: (x, x))(x, x),
        r"the signature is <lambda>\(x\)": lambda x: forward(lambda x: (x, x))(x, k=3),
        r"the signature is <lambda>\(kept\)": rule(lambda kept: (kept,)),
        r"returns 2 value\(s\) for 1": rule(lambda kept, g: (g, g)),
        r"returns f32\[2\] for 1": rule(lambda kept, g: g),
        r"returns f32\[\] as the gradient of f32\[2\]": rule(lambda kept, g: (g.sum(),)),
        "returns float as": rule(lambda kept, g: (1.0,)),
        "does not return a pair": forward(lambda x: x),
        "neither a tensor nor a tuple": forward(lambda x: (1.0, x)),
        "no argument 1": lambda x: trl.value_and_grad(lambda y: y.sum(), 1)(x),
        "is not a tensor to differentiate by": lambda x: trl.grad(lambda y: x.sum())(3.0),
        "does not depend": lambda x: trl.grad(lambda y: x.sum())(x),
    }
    with trl.Context("t") as ctx:
        x = trl.constant(WS)
        for said, write in wrong.items():
            with pytest.raises((CallError, GradientError, ShapeError), match=said) as raised:
                write(x)
            assert raised.value.origin.file == __file__
        ctx.output("x", trl.grad(x.sum(), x))  # none of these remains
    np.testing.assert_array_equal(ctx.compile({"T": 1}).execute()["x"], np.ones(2))
