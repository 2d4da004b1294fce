"""Remedies in error messages: the proposed code runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb import errors


def test_the_remedy_for_a_loss_that_should_not_train_a_network() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        critic = trl.nn.Linear(2, 1, domain=(i,), name="critic")
        actor = trl.nn.Linear(2, 2, domain=(i,), name="actor")
        x = trl.random.normal(2, domain=i)
        critic(x).square().mean().backward()
        trl.optim.SGD(critic.params, lr=0.1).step()
        with pytest.raises(errors.GradientError) as caught:
            (-critic(actor(x))).mean().backward()
        assert "net.with_values([p.detach() for p in net.params])" in str(caught.value)
        frozen = critic.with_values([p.detach() for p in critic.params])
        (-frozen(actor(x))).mean().backward()
        trl.optim.SGD(actor.params, lr=0.1).step()
        ctx.output("x", actor(x))
    ctx.compile({"I": 3})


def test_the_remedy_for_an_update_rule_with_gradients() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        w = trl.tensor(2, domain=i)
        w[0] = trl.ones(2)
        g = trl.grad(w.square().sum(), [w])[0]
        with pytest.raises(errors.BranchError) as caught:
            w[i + 1] = w - 0.1 * g
        assert "trl.parameter and write p.update(next_value)" in str(caught.value)
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        w = trl.parameter(np.ones(2, "f4"), domain=(i,), name="w")
        w.update(w - 0.1 * trl.grad(w.square().sum(), [w])[0])
        ctx.output("w", w)
    assert np.allclose(ctx.compile({"I": 3}).execute(seed=0, progress=False)["w"][2], 0.64)


@pytest.mark.parametrize(
    ("write", "hint"),
    [
        (lambda t, T: T * t, "trl.value(T) * trl.value(t)"),
        (lambda t, T: T // t, "trl.value(T) // trl.value(t)"),
        (lambda t, T: T % t, "trl.value(T) % trl.value(t)"),
        (lambda t, T: t // -2, "trl.value(t) // -2"),
        (lambda t, T: 5 // t, "5 // trl.value(t)"),
        (lambda t, T: t**2, "trl.value(t) ** 2"),
        (lambda t, T: t // 0, "choose a positive divisor"),
    ],
)
def test_the_remedy_for_an_index_that_is_not_affine(write: Callable[..., Any], hint: str) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        with pytest.raises(errors.IndexExpressionError) as caught:
            write(t, T)
        assert hint in str(caught.value)
        if "trl.value" in hint:
            eval(hint, {"trl": trl, "t": t, "T": T})


def test_the_remedy_for_numbers_of_a_window() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        with pytest.raises(errors.ShapeError) as caught:
            trl.arange(T - t)
        assert "trl.value(t)[t:T] - trl.value(t)" in str(caught.value)
        ctx.output("y", (trl.value(t)[t:T] - trl.value(t)).sum(axis=0))
    result = ctx.compile({"T": 5}).execute(seed=0, progress=False)
    assert result["y"].tolist() == [10, 6, 3, 1, 0]


@pytest.mark.parametrize(("shape", "text"), [((8,), "8"), ((2, 3), "(2, 3)")])
def test_the_remedy_for_a_number_as_a_branch(shape: tuple[int, ...], text: str) -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        h = trl.tensor(shape, domain=t)
        with pytest.raises(errors.ShapeError) as caught:
            h[0] = 0.0
        assert f"trl.zeros({text})" in str(caught.value)
        h[0] = trl.zeros(shape)
        h[t + 1] = trl.constant(1.0).expand(shape)


@pytest.mark.parametrize("kind", [trl.nn.LSTMCell, trl.nn.GRUCell])
def test_a_call_of_a_layer_with_other_arguments_names_them(kind: Any) -> None:
    with trl.Context("t"):
        cell = kind(3, 8)
        with pytest.raises(errors.CallError) as caught:
            cell((trl.zeros(8), trl.zeros(8)))
    arguments = "(h, c, x)" if kind is trl.nn.LSTMCell else "(h, x)"
    assert f"the signature of a call is {arguments}" in str(caught.value)


def test_the_remedy_for_an_axis_read_as_a_dimension() -> None:
    with trl.Context("p", "i") as ctx:
        (p, _), (i, _) = ctx.dims
        r = trl.random.normal(3, domain=i)
        ctx.output("y", r[p] * 2.0)
    with pytest.raises(errors.ReadError) as caught:
        ctx.compile({"P": 3, "I": 2})
    assert "for an axis, write x.take(p)" in str(caught.value)
    with trl.Context("p", "i") as ctx:
        (p, _), (i, _) = ctx.dims
        ctx.output("y", trl.random.normal(3, domain=i).take(p) * 2.0)
    ctx.compile({"P": 3, "I": 2})


def test_a_read_beyond_the_end_does_not_mention_axes() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("y", trl.random.normal(3, domain=t)[t + 1])
    with pytest.raises(errors.ReadError) as caught:
        ctx.compile({"T": 3})
    assert "take" not in str(caught.value)


def test_bernoulli_with_the_arguments_in_another_order_names_their_order() -> None:
    with trl.Context("t"), pytest.raises(errors.ShapeError) as caught:
        trl.random.bernoulli((), 0.5)
    assert "bernoulli(p, shape)" in str(caught.value)
