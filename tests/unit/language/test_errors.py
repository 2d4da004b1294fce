"""Errors of wrong programs: right class, user's line, evidence and remedy."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base import errors
from timerl_nb.base.errors import TimeRLError
from timerl_nb.compiler.isl import operation_limit as ceiling

WRONG: dict[str, tuple[type[TimeRLError], str, Callable[..., None]]] = {}


def wrong(kind: type[TimeRLError], message: str) -> Callable[[Callable[..., None]], Any]:
    """Start a wrong program; the error must name its line marked with `# here`."""

    def enter(write: Callable[..., None]) -> Callable[..., None]:
        WRONG[write.__name__] = (kind, message, write)
        return write

    return enter


def series(t: Any, n: int = 6) -> Any:
    return trl.data(np.arange(n, dtype=np.float32), domain=(t,))


# --- indices -------------------------------------------------------------------------------------


@wrong(errors.IndexExpressionError, r"\(t\) \* \(t\) is not affine")
def product_of_symbols(ctx, b, B, t, T):
    series(t)[t * t]  # here


@wrong(errors.IndexExpressionError, r"not affine")
def symbol_times_bound(ctx, b, B, t, T):
    series(t)[t * B]  # here


@wrong(errors.IndexExpressionError, "integers only")
def fraction_in_an_index(ctx, b, B, t, T):
    series(t)[t + 0.5]  # here


@wrong(errors.IndexExpressionError, "rounds down")
def true_division(ctx, b, B, t, T):
    series(t)[t / 2]  # here


@wrong(errors.IndexExpressionError, "divisor must be a positive integer")
def division_by_a_symbol(ctx, b, B, t, T):
    series(t)[t // b]  # here


@wrong(errors.IndexExpressionError, "is negative(.|\\n)*the integer -1")
def negative_index(ctx, b, B, t, T):
    series(t)[t - t - 1]  # here


@wrong(errors.ReadError, r"x\[T - 9\] is read, but x has no value at t = -3")
def position_before_the_first(ctx, b, B, t, T):
    x = series(t).named("x")
    ctx.output("y", x[-9] * 2)  # here


@wrong(errors.ReadError, r"x\[-1\]|x\[where\(t >= 3, t, -1\)\] is read at t = 0")
def negative_piece_of_an_index(ctx, b, B, t, T):
    x = series(t).named("x")
    ctx.output("y", x[trl.where(t > 2, t, -1)] * 2)  # here


@wrong(errors.IndexExpressionError, "no truth value")
def condition_in_an_if(ctx, b, B, t, T):
    if t == 0:  # here
        series(t)


@wrong(errors.IndexExpressionError, "a slice with a step")
def slice_with_a_step(ctx, b, B, t, T):
    series(t)[0:T:2]  # here


@wrong(errors.IndexExpressionError, "ends before it begins")
def slice_downwards(ctx, b, B, t, T):
    series(t)[5:2]  # here


@wrong(errors.IndexExpressionError, r"0.5 \(float\) is not an index expression")
def fraction_in_a_slice(ctx, b, B, t, T):
    series(t)[0.5:T]  # here


@wrong(errors.IndexExpressionError, "is not an index expression")
def tensor_in_a_slice(ctx, b, B, t, T):
    series(t)[0 : trl.value(t) * 2]  # here


@wrong(errors.IndexExpressionError, "is not an index expression")
def condition_in_a_slice(ctx, b, B, t, T):
    series(t)[(t > 2) : T]  # here


@wrong(errors.IndexExpressionError, r"True \(bool\) is not an index expression")
def truth_as_index(ctx, b, B, t, T):
    series(t)[True]  # here


@wrong(errors.IndexExpressionError, "is not an index expression")
def several_positions_at_once(ctx, b, B, t, T):
    series(t)[[0, 2]]  # here


@wrong(errors.IndexExpressionError, "is not affine")
def power_of_a_symbol(ctx, b, B, t, T):
    series(t)[t**2]  # here


@wrong(errors.IndexExpressionError, "divisor must be a positive integer")
def remainder_by_a_negative_number(ctx, b, B, t, T):
    series(t)[t % -3]  # here


@wrong(errors.ReadError, r"x\[T - 9:T\] is read, but x has no value at t = -3")
def slice_before_the_first(ctx, b, B, t, T):
    x = series(t).named("x")
    ctx.output("y", x[-9:] * 2)  # here


@wrong(errors.IndexExpressionError, "the slice T - 1:T - 4 ends before it begins")
def slice_backwards_from_the_end(ctx, b, B, t, T):
    series(t)[-1:-4]  # here


@wrong(errors.IndexExpressionError, "no truth value")
def conditions_joined_by_and(ctx, b, B, t, T):
    series(t)[t > 1 and t < 4]  # here


@wrong(errors.IndexExpressionError, "no truth value")
def condition_from_two_sides(ctx, b, B, t, T):
    series(t)[1 < t < 4]  # here


@wrong(errors.IndexExpressionError, "is not an index expression")
def condition_on_values(ctx, b, B, t, T):
    x = series(t)
    x[(t > 1) & (x > 2.0)]  # here


@wrong(errors.DomainError, r"varies over \(\) and takes at most 0 indices")
def index_of_what_does_not_vary(ctx, b, B, t, T):
    trl.constant(1.0)[t]  # here


@wrong(errors.ExecutionError, "cannot run along an axis of varying length .T - t.")
def reshape_across_a_length_that_varies(ctx, b, B, t, T):
    x = trl.data(np.ones((6, 2)), domain=(t,))
    ctx.output("y", x[t:T].reshape((2, T - t)).sum(axis=1))  # here


@wrong(errors.IndexExpressionError, "is not an index expression")
def tensor_as_index(ctx, b, B, t, T):
    x = series(t)
    x[x]  # here


@wrong(errors.IndexExpressionError, "is not an index expression")
def text_as_index(ctx, b, B, t, T):
    series(t)["t"]  # here


@wrong(errors.IndexExpressionError, "another context")
def symbols_of_two_contexts(ctx, b, B, t, T):
    (s, S) = trl.Context("s").dims[0]
    _ = t + s  # here


@wrong(errors.IndexExpressionError, "another context")
def foreign_symbol(ctx, b, B, t, T):
    (s, S) = trl.Context("t").dims[0]
    series(t)[s]  # here


@wrong(errors.IndexExpressionError, "another context")
def foreign_tensor(ctx, b, B, t, T):
    with trl.Context("t") as other:
        y = trl.data(np.zeros(3), domain=(other.dims[0][0],))
    series(t) + y  # here


@wrong(errors.DomainError, "at most 1 indices")
def too_many_indices(ctx, b, B, t, T):
    series(t)[b, t]  # here


@wrong(errors.IndexExpressionError, "contains more than one")
def two_ellipses(ctx, b, B, t, T):
    series(t)[..., ...]  # here


@wrong(errors.IndexExpressionError, "beside other indices")
def condition_beside_indices(ctx, b, B, t, T):
    trl.data(np.zeros((2, 6)), domain=(b, t))[b, t > 2]  # here


# --- domains -------------------------------------------------------------------------------------


@wrong(errors.DomainError, "does not vary over b")
def reduction_over_a_missing_dimension(ctx, b, B, t, T):
    series(t).sum(over=b)  # here


@wrong(errors.DomainError, "is not a dimension")
def unknown_dimension(ctx, b, B, t, T):
    trl.tensor((), domain=("q",))  # here


@wrong(errors.DomainError, "is named twice")
def dimension_named_twice(ctx, b, B, t, T):
    trl.tensor((), domain=(t, t))  # here


@wrong(errors.DomainError, "two outputs named")
def output_named_twice(ctx, b, B, t, T):
    ctx.output("y", series(t))
    ctx.output("y", series(t))  # here


@wrong(errors.DomainError, "it would have no points")
def condition_that_never_holds(ctx, b, B, t, T):
    series(t)[(t > 2) & (t <= 2)]  # here


@wrong(errors.ReadError, "is read at t = 3, but")
def read_where_a_conditional_is_not_defined(ctx, b, B, t, T):
    x = series(t)
    ctx.output("y", x[t > 2][T - 1 - t] * x)  # here


@wrong(errors.ReadError, r"\[0:T\] is read, but .* has no value at t = ")
def slice_of_a_conditional(ctx, b, B, t, T):
    y = series(t)[t > 2]
    ctx.output("y", y[0:T].sum(axis=0))  # here


@wrong(errors.ReadError, "max of an empty set at t = 0")
def greatest_of_an_empty_slice(ctx, b, B, t, T):
    ctx.output("y", series(t)[0:t].max(axis=0))  # here


@wrong(errors.ReadError, "min of an empty set at t = 5")
def least_of_an_empty_slice(ctx, b, B, t, T):
    ctx.output("y", series(t)[t + 1 : T].min(axis=0) * 2)  # here


@wrong(errors.ReadError, "mean of an empty set at t = 0")
def mean_of_an_empty_slice(ctx, b, B, t, T):
    ctx.output("y", series(t)[0:t].mean(axis=0))  # here


@wrong(errors.ReadError, "mean of an empty set at t = 0")
def variance_of_an_empty_slice(ctx, b, B, t, T):
    ctx.output("y", series(t)[0:t].std(axis=0))  # here


@wrong(errors.ReadError, "argmax of an empty set at t = 0")
def position_in_an_empty_slice(ctx, b, B, t, T):
    ctx.output("y", series(t)[0:t].argmax(axis=0))  # here


@wrong(errors.ReadError, "max of an empty set at b = 1")
def greatest_of_a_conditional_without_points(ctx, b, B, t, T):
    ctx.output("y", series(t)[t > 4 + b].max(over=t))  # here


@wrong(errors.ReadError, "mean of an empty set at b = 1")
def mean_of_a_conditional_without_points(ctx, b, B, t, T):
    ctx.output("y", series(t)[t > 4 + b].mean(over=t))  # here


@wrong(errors.ReadError, "max of an empty set: ")
def greatest_of_no_elements(ctx, b, B, t, T):
    ctx.output("y", trl.zeros((2, 0)).max(axis=1))  # here


@wrong(errors.BranchError, "no branch covers that point")
def branch_by_a_conditional(ctx, b, B, t, T):
    x = series(t)
    y = trl.like(x)  # here
    y[t] = x[t > 2]
    ctx.output("y", y)


@wrong(errors.BranchError, "its branches overlap")
def branches_by_conditionals(ctx, b, B, t, T):
    x = series(t)
    y = trl.like(x)  # here
    y[t] = x[t > 2]
    y[t] = x[t < 4]
    ctx.output("y", y)


@wrong(errors.ReadError, "but .* has no value at")
def branch_beyond_a_conditional(ctx, b, B, t, T):
    x = series(t)
    y = trl.like(x)  # here
    y[t < 2] = x[t > 2][t + 2]
    y[t >= 2] = x
    ctx.output("y", y * 2)


@wrong(errors.IndexExpressionError, "another context")
def condition_of_another_context_as_a_tensor(ctx, b, B, t, T):
    _, other = trl.Context("b", "t").dims
    series(t) * (other[0] > 2)  # here


@wrong(errors.IndexExpressionError, "another context")
def choice_by_another_context(ctx, b, B, t, T):
    _, other = trl.Context("b", "t").dims
    trl.where(other[0] > 2, series(t), 0.0)  # here


@wrong(errors.IndexExpressionError, "t >= 3: a condition is not a number(.|\\n)*floating")
def condition_in_arithmetic(ctx, b, B, t, T):
    series(t) * (1 - (t > 2))  # here


@wrong(errors.IndexExpressionError, "a condition is not a number")
def product_of_conditions(ctx, b, B, t, T):
    (t > 2) * (t < 4)  # here


@wrong(errors.IndexExpressionError, "does not fit into 64 bits")
def position_beyond_all(ctx, b, B, t, T):
    series(t)[10**30]  # here


@wrong(errors.DomainError, "along one dimension")
def window_along_nothing(ctx, b, B, t, T):
    series(t).window(2, over=())  # here


@wrong(errors.GradientError, "3 is not a tensor to differentiate")
def gradient_by_a_number(ctx, b, B, t, T):
    trl.grad(series(t), 3)  # here


@wrong(errors.GradientError, "positions of arguments, not 'a'")
def gradient_by_a_name(ctx, b, B, t, T):
    trl.grad(lambda a: a, argnums="a")  # here


@wrong(errors.IndexExpressionError, "another context")
def condition_of_another_context(ctx, b, B, t, T):
    (s, S) = trl.Context("t").dims[0]
    series(t)[s > 2]  # here


@wrong(errors.IndexExpressionError, "is not an index expression")
def condition_that_is_a_tensor(ctx, b, B, t, T):
    x = series(t)
    x[x > 2.0]  # here


@wrong(errors.IndexExpressionError, "both sides must be conditions")
def condition_joined_with_a_number(ctx, b, B, t, T):
    series(t)[(t > 2) & 1]  # here


@wrong(errors.DomainError, "varies over b, but")
def fill_that_varies_too_much(ctx, b, B, t, T):
    series(t)[t > 2].otherwise(trl.value(b).floating())  # here


@wrong(errors.ShapeError, "but 1.5 is")
def fill_of_another_type(ctx, b, B, t, T):
    trl.value(t)[t > 2].otherwise(1.5)  # here


@wrong(errors.IndexExpressionError, "cannot name a dimension")
def reserved_name(ctx, b, B, t, T):
    trl.Context("lambda")  # here


@wrong(errors.DomainError, "clash")
def clashing_names(ctx, b, B, t, T):
    trl.Context("t", "T")  # here


# --- shapes and types ----------------------------------------------------------------------------


@wrong(errors.ShapeError, "do not broadcast")
def shapes_that_do_not_fit(ctx, b, B, t, T):
    trl.zeros((2,)) + trl.zeros((3,))  # here


@wrong(errors.ShapeError, "disagree in a size")
def matrices_that_do_not_fit(ctx, b, B, t, T):
    trl.zeros((2, 3)) @ trl.zeros((2, 3))  # here


@wrong(errors.ShapeError, "no axis")
def missing_axis(ctx, b, B, t, T):
    trl.zeros((2,)).sum(axis=3)  # here


@wrong(errors.ShapeError, "not both")
def over_and_axis(ctx, b, B, t, T):
    series(t).sum(over=t, axis=0)  # here


@wrong(errors.ShapeError, "cannot become")
def impossible_reshape(ctx, b, B, t, T):
    trl.zeros((2, 3)).reshape(5)  # here


@wrong(errors.ShapeError, "no arithmetic on booleans")
def adding_booleans(ctx, b, B, t, T):
    (series(t) > 0) + (series(t) > 1)  # here


@wrong(errors.ShapeError, "must be boolean")
def condition_that_is_none(ctx, b, B, t, T):
    trl.where(series(t), 1.0, 2.0)  # here


@wrong(errors.ShapeError, "no truth value")
def tensor_in_an_if(ctx, b, B, t, T):
    if series(t) > 0:  # here
        pass


@wrong(errors.ShapeError, "cannot be iterated over")
def iterating_over_a_tensor(ctx, b, B, t, T):
    list(trl.zeros((3,)))  # here


@wrong(errors.ShapeError, "is not an element type")
def unknown_dtype(ctx, b, B, t, T):
    trl.zeros((3,), "complex64")  # here


@wrong(errors.ShapeError, "is not a size")
def negative_size(ctx, b, B, t, T):
    trl.zeros((-3,))  # here


@wrong(errors.ShapeError, "no position 5")
def position_beyond_the_end(ctx, b, B, t, T):
    trl.zeros((3,)).take(5)  # here


@wrong(errors.ShapeError, "the discount must be a number")
def tensor_as_discount(ctx, b, B, t, T):
    x = series(t)
    x[t:T].discounted_sum(x)  # here


@wrong(errors.ShapeError, "cannot vary over")
def data_of_low_rank(ctx, b, B, t, T):
    trl.data(np.zeros(6), domain=(b, t))  # here


@wrong(errors.ShapeError, "whose shapes differ")
def slice_of_ragged_values(ctx, b, B, t, T):
    x = series(t)
    tails = x[t:T].tanh()
    tails[0:T].sum()  # here


# --- branches ------------------------------------------------------------------------------------


@wrong(errors.BranchError, r"overlap(.|\n)*write trl.first_match\(")
def overlapping_shifts(ctx, b, B, t, T):
    y = trl.like(series(t))  # here
    y[t + 1] = 1.0
    y[t] = 0.0
    ctx.output("y", y)


@wrong(errors.BranchError, "its branches overlap")
def constants_of_different_dimensions(ctx, b, B, t, T):
    y = trl.tensor((), domain=(b, t))  # here
    y[0, t] = 1.0
    y[b, 0] = 2.0
    y[b, t] = 0.0
    ctx.output("y", y)


@wrong(errors.BranchError, "its branches overlap")
def two_branches_for_all_points(ctx, b, B, t, T):
    y = trl.like(series(t))  # here
    y[0] = 1.0
    y[t] = 0.0
    y[t] = 2.0
    ctx.output("y", y)


@wrong(errors.ReadError, r"y\[t - 2\] is read at t = 1, but y has no value at t = -1")
def remaining_point_with_a_read_outside(ctx, b, B, t, T):
    y = trl.like(series(t))
    y[0] = 1.0
    y[t] = y[t - 2] + 1.0  # here
    ctx.output("y", y)


@wrong(errors.BranchError, "trl.first_match of y comes after a gradient")
def first_match_after_a_gradient(ctx, b, B, t, T):
    x = series(t)
    y = trl.like(x).named("y")
    y[t] = x
    trl.grad(y, x)
    trl.first_match(y)  # here


@wrong(errors.BranchError, "gets a branch after a gradient")
def constant_branch_after_a_gradient(ctx, b, B, t, T):
    x = series(t)
    y = trl.like(x)
    y[t] = x
    trl.grad(y, x)
    y[0] = 1.0  # here


@wrong(errors.BranchError, "is not a tensor defined by branches")
def first_match_of_a_value(ctx, b, B, t, T):
    trl.first_match(series(t))  # here


@wrong(errors.BranchError, "2 is not a tensor defined by branches")
def first_match_of_a_number(ctx, b, B, t, T):
    trl.first_match(2)  # here


@wrong(errors.BoundsError, "the bound T must be less than 2\\*\\*53, not 9223372036854775808")
def bound_of_more_than_64_bits(ctx, b, B, t, T):
    ctx.output("y", series(t))
    ctx.compile({B: 2, T: 2**63})  # here


@wrong(
    errors.BoundsError, "one value of .* has [0-9,]+ bytes, and sizes must be less than 2\\*\\*53"
)
def bounds_with_a_product_of_more_than_64_bits(ctx, b, B, t, T):
    ctx.output("y", trl.random.normal((), domain=(b, t)))
    ctx.compile({B: 2**40, T: 2**40})  # here


@wrong(errors.BranchError, "no branch covers that point")
def uncovered_points(ctx, b, B, t, T):
    x = series(t)
    y = trl.like(x).named("y")  # here
    y[0] = x[0]
    y[t + 2] = x
    ctx.output("y", y)


@wrong(errors.BranchError, "its branches overlap")
def overlapping_branches(ctx, b, B, t, T):
    x = series(t)
    y = trl.like(x)  # here
    y[0] = x[0]
    y[t < 3] = x
    y[t >= 1] = x
    ctx.output("y", y)


@wrong(errors.BranchError, "it has no branch at all|no branch covers")
def no_branch_at_all(ctx, b, B, t, T):
    ctx.output("y", trl.tensor((), domain=(t,)) * 2)  # here


@wrong(errors.BranchError, "not injective")
def many_to_one_on_the_left(ctx, b, B, t, T):
    x = series(t)
    y = trl.like(x)
    y[t // 2] = x  # here


@wrong(errors.IndexExpressionError, "contains a slice")
def slice_on_the_left(ctx, b, B, t, T):
    y = trl.like(series(t))
    y[0:3] = 1.0  # here


@wrong(errors.DomainError, "but the left-hand side of")
def value_varies_too_much(ctx, b, B, t, T):
    x = series(t)
    y = trl.like(x)
    y[0] = x  # here


@wrong(errors.ShapeError, "but this branch is")
def branch_of_another_shape(ctx, b, B, t, T):
    y = trl.tensor((3,), domain=(t,))
    y[0] = trl.zeros((2,))  # here


@wrong(errors.BranchError, "is not a tensor defined by branches")
def assigning_to_a_value(ctx, b, B, t, T):
    x = series(t)
    x[0] = 1.0  # here


# --- reads ---------------------------------------------------------------------------------------


@wrong(errors.ReadError, r"\[t \+ 1\] is read at t = 5, but")
def read_after_the_end(ctx, b, B, t, T):
    x = series(t).named("x")
    ctx.output("y", x[t + 1] * 2)  # here


@wrong(errors.ReadError, "but .* has no value at")
def read_before_the_start(ctx, b, B, t, T):
    x = series(t)
    ctx.output("y", x[t - 1] * 2)  # here


@wrong(errors.ReadError, "but .* has no value at")
def slice_beyond_the_end(ctx, b, B, t, T):
    x = series(t)
    ctx.output("y", x[t : t + 3].sum(axis=0))  # here


@wrong(errors.ReadError, "but .* has no value at")
def constant_beyond_the_end(ctx, b, B, t, T):
    ctx.output("y", series(t)[9] * 2)  # here


@wrong(errors.ScheduleError, "depend on each other in a cycle")
def circle(ctx, b, B, t, T):
    x = trl.tensor((), domain=(t,))
    y = x * 2.0
    x[...] = y + 1.0  # here
    ctx.output("y", y)


@wrong(errors.ScheduleError, "depend on each other in a cycle")
def circle_over_time(ctx, b, B, t, T):
    x = series(t)
    s = trl.like(x)
    s[0] = x[0]
    s[t + 1] = s - s.mean(over=t)  # here
    ctx.output("s", s)


# --- parameters, optimisers, environments ----------------------------------------------------------


@wrong(errors.TimeRLError, "has no gradient")
def gradient_before_backward(ctx, b, B, t, T):
    _ = trl.parameter((2,), domain=(t,)).grad  # here


@wrong(errors.GradientError, "has no gradient to step with")
def step_before_backward(ctx, b, B, t, T):
    trl.optim.Adam([trl.parameter((2,), domain=(t,))]).step()  # here


@wrong(errors.DomainError, "is updated twice")
def two_optimisers(ctx, b, B, t, T):
    w = trl.parameter((2,), domain=(t,), name="w")
    w.sum().backward()
    trl.optim.SGD([w]).step()
    trl.optim.SGD([w]).step()  # here


@wrong(errors.DomainError, "no dimension to change along")
def update_without_iterations(ctx, b, B, t, T):
    w = trl.parameter((2,))
    w.sum().backward()
    trl.optim.SGD([w]).step()  # here


@wrong(errors.ShapeError, "must be a positive number")
def learning_rate_of_zero(ctx, b, B, t, T):
    trl.optim.SGD([trl.parameter((2,), domain=(t,))], lr=0.0)  # here


@wrong(errors.EnvError, "did you mean 'CartPole-v1'")
def unknown_environment(ctx, b, B, t, T):
    trl.env.make("CartPol-v1")  # here


@wrong(errors.EnvError, "is called before reset")
def step_before_reset(ctx, b, B, t, T):
    trl.env.make("CartPole-v1").step(trl.value(t))  # here


@wrong(errors.EnvError, "stepped already")
def two_steps(ctx, b, B, t, T):
    env = trl.env.make("CartPole-v1")
    env.reset(domain=(b,))
    a = trl.random.bits(domain=(b, t)).cast("i32") % 2
    env.step(a)
    env.step(a)  # here


@wrong(errors.DomainError, "there is no time dimension, which only actions have")
def actions_without_time(ctx, b, B, t, T):
    env = trl.env.make("CartPole-v1")
    env.reset(domain=(b,))
    env.step(trl.random.bits(domain=(b,)).cast("i32"))  # here


@wrong(errors.EnvError, "an action must be")
def action_of_another_type(ctx, b, B, t, T):
    env = trl.env.make("CartPole-v1")
    env.reset(domain=(b,))
    env.step(trl.random.normal(domain=(b, t)))  # here


@wrong(errors.TimeRLError, "exactly the action that sample")
def log_prob_of_another_action(ctx, b, B, t, T):
    env = trl.env.make("CartPole-v1")
    dnn = trl.DNNBuilder(domain=(t,)).from_env(env, hidden=[4]).build()
    dnn.sample(trl.zeros((4,)))
    dnn.log_prob(trl.constant(1))  # here


# --- found in use
# -----------------------------------------------------------------------------------


@wrong(errors.ShapeError, r"has the length t \+ 1, which varies over")
def output_of_varying_length(ctx, b, B, t, T):
    ctx.output("y", series(t)[0 : t + 1])  # here


@wrong(errors.DomainError, "another context")
def output_of_another_context(ctx, b, B, t, T):
    with trl.Context("t"):
        other = trl.zeros(())
    ctx.output("y", other)  # here


@wrong(errors.ReadError, "no position t at t = 3")
def position_beyond_an_axis(ctx, b, B, t, T):
    x = trl.constant(np.zeros(3))
    ctx.output("y", x.take(t))  # here


@wrong(errors.ReadError, r"no position 0:t \+ 1 at t = 2")
def slice_beyond_an_axis(ctx, b, B, t, T):
    x = trl.zeros((2,))
    ctx.output("y", x.slice(0, t + 1).sum())  # here


@wrong(errors.ShapeError, "no positions 2:7")
def positions_beyond_an_axis(ctx, b, B, t, T):
    trl.zeros((3,)).slice(2, 7)  # here


@wrong(errors.ShapeError, "do not fit into int32")
def integers_of_64_bits(ctx, b, B, t, T):
    trl.data(np.arange(6) + 2**40, domain=(t,))  # here


@wrong(errors.DomainError, "varies over b, but")
def learning_rate_over_environments(ctx, b, B, t, T):
    w = trl.parameter((), domain=(t,))
    (w * series(t)).backward()
    rate = trl.value(b).floating() + 1.0
    trl.optim.SGD([w], lr=rate).step()  # here


@wrong(errors.DomainError, "a name must be a string")
def name_that_is_a_number(ctx, b, B, t, T):
    with ctx.region(5):  # here
        pass


@wrong(errors.IndexExpressionError, "an index cannot add an axis")
def none_as_index(ctx, b, B, t, T):
    series(t)[None]  # here


@wrong(errors.ShapeError, "no axis 5 to join along")
def axis_to_join_along(ctx, b, B, t, T):
    trl.concat([trl.zeros((2, 3))] * 2, axis=5)  # here


@wrong(errors.ShapeError, "has a negative size")
def negative_sizes(ctx, b, B, t, T):
    trl.zeros((2, 3)).reshape(-2, -3)  # here


@wrong(errors.ShapeError, "is not a tensor")
def text_as_a_tensor(ctx, b, B, t, T):
    trl.where(t > 1, "a", 2.0)  # here


@wrong(errors.ShapeError, "a layer's size must be an integer of at least 1")
def layer_of_no_width(ctx, b, B, t, T):
    trl.nn.Linear(0, 2)  # here


@wrong(errors.ShapeError, "may have fewer than 9 elements")
def more_than_there_are(ctx, b, B, t, T):
    trl.zeros((4,)).topk(9)  # here


@wrong(errors.ShapeError, "count axes from 0")
def axis_to_sort_along(ctx, b, B, t, T):
    trl.zeros(()).sort()  # here


@wrong(errors.DomainError, "the folder of a checkpoint must be a path, not 3")
def folder_that_is_a_number(ctx, b, B, t, T):
    series(t).checkpoint(3)  # here


@pytest.mark.parametrize("name", WRONG)
def test_error_names_the_line(name: str) -> None:
    kind, message, write = WRONG[name]
    source, first = inspect.getsourcelines(write)
    marked = next(k for k, line in enumerate(source) if "# here" in line)
    with pytest.raises(kind, match=message) as caught, trl.Context("b", "t") as ctx:
        write(ctx, *(symbol for pair in ctx.dims for symbol in pair))
        ctx.compile({"B": 2, "T": 6})
    error = caught.value
    text = str(error)
    assert source[marked].split("# here")[0].strip() in text, text
    lines = [error.origin.line, *(other.line for other in error.others.values())]
    assert first + marked in lines, text
    assert error.what.endswith(".")
    assert "timerl_nb/" not in text, "no line of the compiler's own"


def test_there_are_many() -> None:
    assert len(WRONG) >= 68


# --- compile and execute -----------------------------------------------------------------------------


def small() -> tuple[trl.Context, Any, Any]:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", trl.data(np.arange(4.0), domain=(t,)) * 2)
    return ctx, t, T


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (lambda t, T: {}, "the bound T is missing"),
        (lambda t, T: {T: 0}, "at least 1"),
        (lambda t, T: {T: -3}, "at least 1"),
        (lambda t, T: {T: 2.5}, "must be an integer"),
        (lambda t, T: {T: float("nan")}, "must be an integer"),
        (lambda t, T: {T: True}, "must be an integer"),
        (lambda t, T: {t: 4}, "is a variable, not a bound"),
        (lambda t, T: {"Q": 4, T: 4}, "Q is not a bound"),
        (lambda t, T: {T: 4, "T": 4}, "given twice"),
        (lambda t, T: {3: 4}, "is not a bound"),
        (lambda t, T: {T: 9}, "the data has 4 values along t, but T = 9"),
    ],
)
def test_bounds(bounds: Any, message: str) -> None:
    ctx, t, T = small()
    with pytest.raises(errors.BoundsError, match=message):
        ctx.compile(bounds(t, T))


def test_a_bound_without_a_ceiling_that_needs_one() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        done = trl.value(t) > 3
        ctx.output("y", done)
    program = ctx.compile({T: done})
    with pytest.raises(errors.BoundsError, match="no ceiling(.|\\n)*steps(.|\\n)*at_most="):
        program.step()
    with pytest.raises(errors.BoundsError, match="no ceiling(.|\\n)*events(.|\\n)*at_most="):
        program.execute(on_event=print)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        done = trl.value(t) > 3
        ctx.output("y", done)
        trl.udf(print, done, out=[])
    with pytest.raises(errors.BoundsError, match="effects on the host"):
        ctx.compile({T: done}).execute()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: trl.Options(vectorise=True), "did you mean 'vectorize'"),
        (lambda p: trl.Options(fuse="yes"), "fuse is True or False"),
        (lambda p: trl.Options(True), "has no name"),
        (lambda p: p.with_options(fuse="yes"), r"(?s)test_errors.py.*fuse is True or False"),
        (lambda p: trl.Options(executor="gpu"), "executor is"),
        (lambda p: trl.Options(backend="numpy"), "backend is"),
        (lambda p: trl.Options(isl_operations=0), "positive integer"),
        (lambda p: trl.Options(incrementalize=0), "a block size such as 64"),
        (lambda p: trl.Options(incrementalize=True), "a block size such as 64"),
        (lambda p: trl.Options(incrementalize={"t": 2.5}), "a block size such as 64"),
        (lambda p: p.with_options(incrementalize={"q": 2}), "not a dimension of the program"),
        (lambda p: trl.Options(swap=True), 'swap is "auto" or False'),
        (lambda p: trl.Options(device_memory=0), "a positive number of bytes"),
        (lambda p: trl.Options(device_memory=True), "a positive number of bytes"),
        (lambda p: trl.Options(device_memory=1.5), "a positive number of bytes"),
        (lambda p: trl.Options(device_memory="-3MiB"), "a positive number of bytes"),
        (lambda p: trl.Options(device_memory="0.1 B"), "a positive number of bytes"),
        (lambda p: trl.Options(device_memory="64 Mib/s"), "the units are kB, MB"),
        (lambda p: trl.Options(device_memory="9" * 400), "a positive number of bytes"),
        (lambda p: p.with_options(vectorize=("q",)), "not a dimension of the program"),
        (lambda p: p.with_options(fusion=False), "there is no option"),
        (lambda p: p.execute(seed=1.5), "the seed must be an integer"),
        (lambda p: p.execute(outputs=["z"]), "there is no output 'z'"),
        (lambda p: p.execute(outputs="y"), r"write outputs=\['y'\]"),
        (lambda p: p.execute(on_event=3), "on_event=3 is not a function"),
        (lambda p: p.execute()["z"], "the result has no output 'z'"),
        (lambda p: p.stages["fusion"], "there is no stage 'fusion'"),
    ],
)
def test_options(make: Any, message: str) -> None:
    ctx, _, T = small()
    program = ctx.compile({T: 4})
    with pytest.raises(errors.OptionError, match=message):
        make(program)


def test_options_must_be_options() -> None:
    ctx, _, T = small()
    with pytest.raises(errors.OptionError, match="is not an Options object"):
        ctx.compile({T: 4}, {"fuse": False})  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:a trial schedule")
def test_ceiling_on_isl() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,)).named("x")
        y = x[trl.min(t + 1, T - 1)] * 0.5
        x[t < 2] = trl.value(t).cast("f32")
        x[t >= 2] = y[t - 2] + 1.0
        ctx.output("y", y)
    with pytest.raises(errors.CeilingError, match="more than the limit of 1 isl operations") as e:
        ctx.compile({T: 4}, trl.Options(isl_operations=1, lift=False))
    assert "y = x[trl.min(t + 1, T - 1)]" in str(e.value), "the component is named"
    assert ctx.compile({T: 4}).execute()["y"].shape == (4,), "isl stays usable"


def test_ceiling_on_what_isl_does_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, _, T = small()
    program = ctx.compile({T: 4})
    monkeypatch.setattr(ceiling, "BESIDE", 1)
    with pytest.raises(errors.CeilingError, match="more than 1 isl operations"):
        program.with_bounds({"T": 3})
    monkeypatch.undo()
    assert program.with_bounds({"T": 3}).execute()["y"].tolist() == [0, 2, 4]


def test_more_points_than_can_be_planned() -> None:
    step_by_step = trl.Options(vectorize=False)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = trl.constant(1.0)
        x[t + 1] = (x * 2).sin()
        ctx.output("x", x)
    assert ctx.compile({T: 10**10}, step_by_step).memory.peak > 10**10  # steps look alike
    with pytest.raises(errors.BoundsError, match="too many to plan"):
        ctx.compile({T: trl.until(x > 2, at_most=10**10)}, step_by_step)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((), domain=(t,))
        ctx.output("x", x + x[T - 1 - t])
    with pytest.raises(errors.BoundsError, match=r"at 20,000,000,000 points") as caught:
        ctx.compile({T: 10**10}, step_by_step)
    assert "test_errors.py" in str(caught.value)
    assert "vectorise the statements over (t)" in str(caught.value)


def test_more_memory_than_the_machine_has() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("x", trl.random.normal((10**6,), domain=(t,)))
    program = ctx.compile({T: 10**8})
    assert program.memory.peak == 4 * 10**14  # planned, but not run
    whole = program.memory.needed
    for begin in (program.execute, program.step):
        with pytest.raises(errors.BudgetError, match=f"needs {whole:,} bytes"):
            begin()


def test_no_context_is_open() -> None:
    with pytest.raises(errors.DomainError, match="no context is open"):
        trl.zeros((3,))


def test_notebooks_show_the_message_alone() -> None:
    with pytest.raises(TimeRLError) as caught:
        trl.Options(nope=1)
    (line,) = caught.value._render_traceback_()
    assert line.startswith("OptionError: there is no option 'nope'")


def test_a_long_window_in_a_loop_warns() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.uniform(domain=(t,))
        ctx.output("y", x[t:T].sum(axis=0))
    off = trl.Options(lift=False, vectorize=False)
    with pytest.warns(UserWarning, match="slices .t:T. of up to 100 points") as caught:
        ctx.compile({T: 100}, off)
    assert "Switch lift and vectorize on, or shorten the slice." in str(caught[0].message)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.uniform(domain=(t,))
        y = trl.like(x)
        y[0] = x[0]
        y[t + 1] = (y[0 : t + 1] * x).tanh().sum(axis=0)
        ctx.output("y", y)
    with pytest.warns(UserWarning, match=r"padded to 100\. Shorten the slice\."):
        ctx.compile({T: 100})  # every pass is on


def test_a_program_without_outputs() -> None:
    with trl.Context("t") as ctx:
        ((_, T),) = ctx.dims
    with pytest.raises(errors.DomainError, match="the program has no output"):
        ctx.compile({T: 3})
    with pytest.raises(errors.BoundsError, match="None is not a mapping of bounds"):
        ctx.compile(None)  # type: ignore[arg-type]


def test_names_are_only_names() -> None:
    hostile = ["<b>&amp;</b>", "</script>", "{y}", "%s", "'", '"""', "\\", "\\n", "", "ü 名 😀"]
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        for k, name in enumerate(hostile):
            ctx.output(name, trl.value(t).named(name) * k)
    program = ctx.compile({T: 2}, trl.Options(fuse=False))
    json.dumps([stage.artifact.to_json() for stage in program.stages.values()])
    result = program.execute(on_event=lambda event: None)
    assert {name: result[name].tolist() for name in hostile} == {
        name: [0, k] for k, name in enumerate(hostile)
    }


UNPRINTABLE = ("x\n    raise SystemExit\n    #", "\ud800", "a\x00b", "a\u2028b", "\x1b[31m", "\r")


def _named_function(name: str) -> Any:
    def function(x: Any) -> Any:
        return x

    function.__name__ = name
    return function


@pytest.mark.parametrize("name", UNPRINTABLE)
@pytest.mark.parametrize(
    "give",
    [
        lambda ctx, x, name: ctx.output(name, x),
        lambda ctx, x, name: x.named(name),
        lambda ctx, x, name: ctx.region(name).__enter__(),
        lambda ctx, x, name: x.checkpoint(name),
        lambda ctx, x, name: trl.parameter((2,), name=name),
        lambda ctx, x, name: trl.random.normal(stream=name),
        lambda ctx, x, name: trl.udf(np.sin, x, out="f32", name=name),
        lambda ctx, x, name: trl.udf(_named_function(name), x, out="f32"),
        lambda ctx, x, name: trl.Resource(print, name=name),
        lambda ctx, x, name: trl.nn.Linear(2, 3, name=name),
        lambda ctx, x, name: trl.env.register(name, print),
        lambda ctx, x, name: trl.Context(name),
    ],
)
def test_names_that_cannot_be_written_down(give: Any, name: str) -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        with pytest.raises(TimeRLError, match="unprintable character|cannot name a dimension"):
            give(ctx, trl.value(t), name)


def _kinds(of: type[TimeRLError]) -> list[type[TimeRLError]]:
    below = [kind for one in of.__subclasses__() for kind in _kinds(one)]
    return [kind for kind in (of, *below) if kind.__module__.startswith("timerl_nb")]


@pytest.mark.parametrize("kind", _kinds(TimeRLError))
def test_errors_reach_other_processes(kind: Any) -> None:
    own = {errors.BudgetError: {"needed": 3}, ceiling.TooMuchWork: {"in_one_call": True}}
    given: Any = () if kind is ceiling.TooMuchWork else ("it is wrong.",)
    error = kind(*given, **own.get(kind, {}))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert (type(again), vars(again), str(again)) == (kind, vars(error), str(error))


@pytest.mark.parametrize("name", ["lambda", "None", "_", "__", "2t", "t u", "t-1", "t\u00e9", ""])
def test_names_that_are_no_plain_identifiers(name: str) -> None:
    with pytest.raises(errors.IndexExpressionError, match="cannot name a dimension"):
        trl.Context(name)


def test_unknown_names_in_mappings() -> None:
    ctx, _, T = small()
    program = ctx.compile({T: 4})
    assert program.stages.get("fusion") is None
    result = program.execute()
    assert "z" not in result
    assert result.get("z") is None


def test_a_checkpoint_that_cannot_be_written(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(np.arange(4.0), domain=(t,))
        x[t == 2].checkpoint(tmp_path / "file" / "x")
    with pytest.raises(errors.ExecutionError, match="cannot be written") as caught:
        ctx.compile({T: 4}).execute()
    assert "x[t == 2].checkpoint" in str(caught.value)


def test_a_trial_that_is_given_up_says_so() -> None:
    ctx = reinforce(5)
    with (
        pytest.warns(UserWarning, match="a trial schedule failed"),
        pytest.warns(UserWarning, match="scheduled the statements by parts"),
    ):
        ctx.compile({"B": 2, "I": 2, "T": 8}, trl.Options(isl_operations=2000))
