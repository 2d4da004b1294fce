"""An average over all axes of a tensor that has none warns: the user may mean its dimensions."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import timerl_nb as trl
from timerl_nb.base.errors import TimeRLWarning

METHODS = ["mean", "var", "std", "median", "quantile"]


def reduce(x: trl.RecurrentTensor, method: str, **given: Any) -> trl.RecurrentTensor:
    return getattr(x, method)(*([0.5] if method == "quantile" else []), **given)


@pytest.mark.parametrize("method", METHODS)
def test_a_scalar_over_dimensions_warns_with_the_dimensions_in_the_hint(method: str) -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        w = trl.parameter((), domain=(i,), name="w")
        loss = (trl.random.normal(domain=(b, i, t)) * w).square()
        with pytest.warns(TimeRLWarning) as caught:
            reduce(loss, method)
    (warning,) = caught
    assert warning.filename == __file__
    assert f"{method}() reduces axes" in str(warning.message)
    assert f"{method}(over=(b, t))" in str(warning.message)


@pytest.mark.parametrize("method", METHODS)
def test_reductions_that_state_what_they_reduce_do_not_warn(method: str) -> None:
    with trl.Context("b", "i", "t") as ctx, warnings.catch_warnings():
        warnings.simplefilter("error")
        (b, _), (i, _), (t, _) = ctx.dims
        x = trl.random.normal(domain=(b, i, t))
        reduce(x, method, over=t)
        if method not in ("median", "quantile"):
            reduce(x, method, over=(b, t))
        reduce(x, method, axis=())
        reduce(trl.random.normal(3, domain=(b, t)), method)
        reduce(trl.constant(1.0), method)


def test_functions_warn_as_methods_do() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.random.normal(domain=t)
        with pytest.warns(TimeRLWarning, match=r"mean\(over=t\)"):
            trl.mean(x)


def test_a_loss_per_iteration_does_not_warn() -> None:
    with trl.Context("i", "t") as ctx, warnings.catch_warnings():
        warnings.simplefilter("error")
        (i, _), _ = ctx.dims
        weights = [trl.parameter(shape, domain=(i,)) for shape in ((), (2, 3))]
        for w in weights:
            w.square().mean().backward()


def test_a_sum_does_not_warn_because_gradients_add_up_all_points() -> None:
    with trl.Context("t") as ctx, warnings.catch_warnings():
        warnings.simplefilter("error")
        ((t, _),) = ctx.dims
        trl.random.normal(domain=t).sum().max()


def test_calls_of_the_library_do_not_warn() -> None:
    with trl.Context("b", "i", "t") as ctx, warnings.catch_warnings():
        warnings.simplefilter("error")
        (b, _), (i, _), (t, _) = ctx.dims
        w = trl.parameter((), domain=(i,), name="w")
        x = trl.random.normal(domain=(b, i, t))
        trl.distributions.Normal(x * w, 1.0).log_prob(x).mean(over=(b, t)).backward()
        trl.optim.SGD([w], lr=0.1).step()
