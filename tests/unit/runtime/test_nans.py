"""`ctx.debug(nan=True)` reports the first NaN with operation, point and user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.frozen import PROGRAMS
from timerl_nb.base.errors import ExecutionError, OptionError

BOUNDS = {"B": 2, "I": 3, "T": 5}
WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "xla"},
    {"executor": "interpret"},
    {"executor": "interpret", "vectorize": False},
    {"executor": "xla", "fuse": False},
    {"executor": "xla", "stores": "point", "donate": False},
)


def first_nan(write: Callable[[Any, Any, Any], Any], **options: Any) -> ExecutionError:
    """Return the error of a program with an output."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        ctx.output("y", write(b, i, t))
    ctx.debug(nan=True)
    with pytest.raises(ExecutionError) as stopped:
        ctx.compile(BOUNDS, trl.Options(**options)).execute(seed=1)
    return stopped.value


def falling(b: Any, i: Any, t: Any) -> Any:
    """Values that are negative from i = 1, t = 3 on."""
    x = (3.0 - trl.value(t).floating()) * trl.value(i).floating() + 0.5
    draws = trl.random.uniform((2,), domain=(b, i, t))
    y = (x - draws * 0.25).named("y")
    return (y - 0.25).sqrt()  # the line


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if text in line)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_operation_point_and_line(options: dict[str, Any]) -> None:
    def write(b: Any, i: Any, t: Any) -> Any:
        return falling(b, i, t).sum() + trl.random.normal((3,), domain=(i, t))

    error = first_nan(write, **options)
    # x = 0.5 - i at t = 4: the first root of a negative number
    assert "(sqrt) at b = 0, i = 1, t = 4, element (0,)" in error.what
    assert (error.origin.file, error.origin.line) == (__file__, line_of(falling, "# the line"))
    (given,) = error.evidence
    name, value = given.removesuffix(" there").rsplit(" is ", 1)
    assert name and -1.0 < float(value) < -0.5


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_a_gradient_names_the_line_that_it_belongs_to(options: dict[str, Any]) -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        w = trl.parameter(np.array([1.0, 4.0], np.float32), domain=(i,), name="w")
        root = (w - 1.0).sqrt()
        loss = trl.where(w > 1.0, root, 0.0).sum()
        loss.backward()
        trl.optim.SGD([w], lr=0.1).step()
        ctx.output("w", w)
    ctx.debug(nan=True)
    program = ctx.compile({"I": 3}, trl.Options(**options))
    with pytest.raises(ExecutionError) as stopped:
        program.execute()
    text = str(stopped.value)
    here = test_a_gradient_names_the_line_that_it_belongs_to
    assert stopped.value.origin.line == line_of(here, "loss.backward()")
    assert stopped.value.origin.call == "backward"
    (of,) = stopped.value.others.values()
    assert of.line == line_of(here, "root = ")
    assert "it belongs to the gradient of" in text and "element (0,)" in text
    assert "is 0.0 there" in text and "What to do: trl.where(x > 0, x.log(), 0.0) keeps" in text


def test_what_a_where_sets_aside_inside_a_kernel_is_none() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.value(t).floating() - 2.0
        ctx.output("y", trl.where(x > 0.0, x.log(), -1.0))
    ctx.debug(nan=True)
    result = ctx.compile({"T": 5}).execute()
    np.testing.assert_allclose(result["y"], [-1, -1, -1, 0, np.log(2)])


def test_what_a_where_chooses_is_followed() -> None:
    def write(b: Any, i: Any, t: Any) -> Any:
        x = trl.value(t).floating() - 2.0
        return trl.where(x > 1.0, (x - 4.0).sqrt(), x.log() * 0.0 + 1.0)

    # both branches have NaNs; the first selected element decides
    assert "(log) at t = 0" in first_nan(write).what


def test_infinities_that_are_added_up() -> None:
    def write(b: Any, i: Any, t: Any) -> Any:
        x = trl.value(t).floating() - 1.5
        huge = (x / abs(x)) * (x * x * 1e30).exp()
        return huge[0:5].cumsum(axis=0).take(2)

    error = first_nan(write)
    assert "cumsum" in str(error) or "add" in str(error) or "sum" in str(error)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_sums_over_points(options: dict[str, Any]) -> None:
    def write(b: Any, i: Any, t: Any) -> Any:
        sign = trl.where(t == 3, -1.0, 1.0)
        huge = sign * (trl.value(t).floating() * 0.0 + 100.0).exp() + trl.random.uniform(
            domain=(t,)
        )
        return huge.sum(over=t)

    error = first_nan(write, accumulate=True, **options)
    assert "the first NaN is made by" in error.what and "sum" in error.what
    assert line_of(write, "huge = ") <= error.origin.line <= line_of(write, "huge.sum")


def test_lengths_that_vary_hide_nothing_and_add_nothing() -> None:
    """Padding zeros beyond a length would give NaN in log(0) * 0."""
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.random.uniform(domain=(t,)) + 1.0
        ctx.output("y", (x[0 : t + 1].log() * 0.0 + x[0 : t + 1] / x[0 : t + 1]).sum(axis=0))
    ctx.debug(nan=True)
    for options in ({}, {"vectorize": False, "lift": False}):
        result = ctx.compile({"T": 5}, trl.Options(**options)).execute()
        np.testing.assert_allclose(result["y"], [1, 2, 3, 4, 5], rtol=1e-6)


def test_given_nans_are_named_where_something_is_computed_of_them() -> None:
    given = np.array([1, np.nan, 3, 4, 5], np.float32)

    def write(b: Any, i: Any, t: Any) -> Any:
        x = trl.data(given, domain=(t,)).named("x")
        return x * 2.0

    error = first_nan(write)
    assert "t = 1" in error.what
    assert error.origin.line == line_of(write, "trl.data(")


def test_what_is_computed_before_the_program_runs() -> None:
    """Simplification folds it to a constant with the same line."""

    def write(b: Any, i: Any, t: Any) -> Any:
        root = (trl.constant([4.0, -4.0])).sqrt()
        return root * trl.random.uniform((2,), domain=(t,))

    error = first_nan(write)
    assert "the first NaN is in the constant" in error.what and error.what.endswith("1).")
    assert line_of(write, "root = ") <= error.origin.line <= line_of(write, "return root")


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_functions_on_the_host(options: dict[str, Any]) -> None:
    def spoiled(x: Any) -> Any:
        return np.float32(np.nan if x > 2.5 else x)

    def write(b: Any, i: Any, t: Any) -> Any:
        return trl.udf(spoiled, trl.value(t).floating(), out="f32") + trl.value(i)

    error = first_nan(write, **options)
    assert error.what.startswith("spoiled returns the first NaN at t = 3")
    assert error.origin.line == line_of(write, "trl.udf")


def test_it_can_be_switched_on_for_a_program_and_off_again() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("y", (trl.value(t).floating() - 2.0).log())
    plain = ctx.compile({"T": 5})
    with pytest.raises(ExecutionError, match=r"\(log\) at t = 0"):
        plain.with_options(check_nan=True).execute()
    with pytest.raises(ExecutionError, match=r"\(log\) at t = 0"):
        plain.with_options(check_nan=True).start().result()
    ctx.debug(nan=True)
    looking = ctx.compile({"T": 5}, trl.Options(executor="xla"))
    assert looking.executable.how == "interpreted: every kernel's result is checked for NaN"
    ctx.debug(nan=False)
    assert np.isnan(ctx.compile({"T": 5}).execute()["y"]).tolist() == [True] * 2 + [False] * 3
    with pytest.raises(OptionError, match="nan=1 is not possible"):
        ctx.debug(nan=1)


def test_it_costs_nothing_where_it_is_off() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 1.0
        x[t + 1] = x.sin()
        ctx.output("x", x)
    program = ctx.compile({"T": 4}, trl.Options(executor="interpret"))
    program.execute()
    kernels = program.executable.kernels.values()
    assert all("run_with_nan_check" not in vars(kernel) and kernel.runs for kernel in kernels)
    assert {kernel.coords for kernel in kernels} == {()}  # what they compute is the same everywhere
    looking = program.with_options(check_nan=True)
    looking.execute()
    looked_at = looking.executable.kernels.values()
    assert all("run_with_nan_check" in vars(kernel) and not kernel.runs for kernel in looked_at)
    assert {kernel.coords for kernel in looked_at} == {(), ("t",)}
    assert program.with_options(executor="xla").executable.xla_program is not None


@pytest.mark.parametrize("name", ["swapped", "episodes"])  # random programs cover the others
def test_programs_without_nans_run_as_they_did(name: str) -> None:
    program = PROGRAMS[name].compile("interpret")
    want = program.execute(seed=2)
    have = program.with_options(check_nan=True).execute(seed=2)
    for key, value in want.items():
        np.testing.assert_allclose(have[key], value, rtol=1e-4, atol=1e-5, err_msg=key)
