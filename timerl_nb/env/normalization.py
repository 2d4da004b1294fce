"""Normalised observations and rewards, by running statistics.

The statistics are recurrent tensors over iterations and steps. Each step merges the results of all environments into
them by the parallel algorithm for moments (Chan, Golub and LeVeque 1983).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.compiler.language.indexing.recurrence_initialization import (
    initial_branch,
    previous_branches,
)
from timerl_nb.compiler.language.inputs.tensor_sources import constant, tensor, where
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import value_of
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Simulation, Step, Tensor
from timerl_nb.env.spaces import Box
from timerl_nb.env.wrappers import ResultWrapper

FIRST_COUNT = 1e-4  # weight of the initial mean 0 and variance 1, as Gymnasium's


@dataclass(frozen=True)
class Moments:
    """Running mean, variance and count of values."""

    mean: Tensor
    var: Tensor
    count: Tensor

    @staticmethod
    def initial(shape: Any) -> Moments:
        return Moments(
            constant(np.zeros(shape, np.float32)),
            constant(np.ones(shape, np.float32)),
            constant(np.float32(FIRST_COUNT)),
        )

    @staticmethod
    def declare(name: str, shape: Any, domain: Domain) -> Moments:
        """Return tensors to be defined by `define`."""
        return Moments(
            tensor(shape, domain=domain).named(f"{name}_mean"),
            tensor(shape, domain=domain).named(f"{name}_var"),
            tensor((), domain=domain).named(f"{name}_count"),
        )

    def define(self, first: Moments | None, along: Domain, before: Moments | None) -> None:
        """Define declared tensors: `first` at the start of dimensions, and `before` at the point before each other one."""
        for name, x in vars(self).items():
            ctx, source = x.ctx, x.read.source
            if first is not None:
                ctx.add_branch(source, initial_branch(getattr(first, name).settled(), along))
            if before is not None:
                for read in previous_branches(getattr(before, name).settled(), along):
                    ctx.add_branch(source, read)

    def merge(self, x: Tensor, over: Domain, counted: Tensor | None) -> Moments:
        """Return the moments after one value per environment.

        Args:
            x: the values.
            over: the dimensions of environments.
            counted: the environments whose values count; None for all.
        """
        count, mean, var = _moments_over(x.floating(), over, counted)
        off, total = mean - self.mean, self.count + count
        square = self.var * self.count + var * count
        square = square + off.square() * (self.count * count / total)
        return Moments(self.mean + off * (count / total), square / total, total)

    def last(self, time: Domain) -> Moments:
        """Return the moments at the last point of dimensions."""
        return Moments(
            *(x.at({d: x.ctx.space[d].size - 1 for d in time}) for x in vars(self).values())
        )


def _moments_over(x: Tensor, over: Domain, counted: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the count, the mean and the variance of values over dimensions."""
    ctx = x.ctx
    if counted is None:
        count = constant(1.0)
        for d in over:
            count = count * value_of(ctx, ctx.space[d].size).floating()
        if not over:
            return count, x, x * 0.0
        mean = x.mean(over=over)
        return count, mean, (x - mean).square().mean(over=over)
    chosen = counted.floating()
    count = chosen.sum(over=over) if over else chosen
    at_least = count.maximum(1.0)
    mean, var = x, x * 0.0
    if over:
        weight = counted.reshape((1,) * x.rank)
        mean = where(weight, x, 0.0).sum(over=over) / at_least
        var = where(weight, (x - mean).square(), 0.0).sum(over=over) / at_least
    return count, mean, var


class _Normalization(ResultWrapper):
    """Base of both wrappers: statistics along the iterations and steps of a program."""

    def __init__(self, env: Simulation, epsilon: float) -> None:
        super().__init__(env)
        self.epsilon = number("epsilon", epsilon, least=1e-12)
        self._domain: Domain = ()
        self._begun: Moments | None = None  # statistics at the end of the iteration before

    def change_first(self, first: Tensor, domain: Domain) -> Tensor:
        self._domain = domain
        return first

    @property
    def _environments(self) -> Domain:
        return self._domain[:-1] or self._domain

    @property
    def _iterations(self) -> Domain:
        return tuple(d for d in self._domain if d not in self._environments)

    def _counted(self, step: Step) -> Tensor | None:
        """Return the environments whose results are new: without autoreset, ended episodes repeat theirs."""
        return step.alive if self.autoreset is None and not step.endless else None


@explain_constructor
class NormalizeObservation(_Normalization):
    """Normalise observations to a mean of 0 and a variance of 1, by statistics of all observations so far.

    The statistics belong to the policy: `result.policy()` reads unnormalised observations and contains the statistics after
    the last step. They are constant in evaluation and in collection. Observations after the end of an episode without
    `autoreset` do not count. Otherwise the values are those of `gymnasium.wrappers.vector.NormalizeObservation`.

    Args:
        env: the environment.
        epsilon: a number that is added to the variance.

    Raises:
        ShapeError: `epsilon` is not a positive number.

    Example:
        >>> env = trl.env.NormalizeObservation(trl.env.make("CartPole-v1"))
        >>> env.reset(domain=(b, i))
        f32[4] @ (b, i)
    """

    def __init__(self, env: Simulation, epsilon: float = 1e-8) -> None:
        super().__init__(env, epsilon)
        self.obs_space = Box(-float("inf"), float("inf"), tuple(env.obs_space.shape))

    def change_first(self, first: Tensor, domain: Domain) -> Tensor:
        super().change_first(first, domain)
        shape, outer = first.shape, self._iterations
        before = Moments.initial(shape)
        if outer:
            before = Moments.declare("start", shape, outer)
            before.define(Moments.initial(shape), outer, None)
        self._begun = before
        self._reset_moments = Moments.declare("reset", shape, outer)
        self._reset_moments.define(before.merge(first, self._environments, None), (), None)
        return self._normalize(first, self._reset_moments)

    def change_step(self, step: Step, action: Tensor, time: Domain) -> Step:
        assert self._begun is not None
        ctx, shape, outer = action.ctx, step.obs.shape, self._iterations
        domain = ctx.space.ordered((*outer, *time))
        before = Moments.declare("before", shape, domain)
        now = Moments.declare("observation", shape, domain)
        now.define(before.merge(step.obs, self._environments, self._counted(step)), (), None)
        before.define(self._reset_moments, time, now)
        if outer:
            self._begun.define(None, outer, now.last(time))
        _record_statistics(ctx, self._reset_moments, now, shape)
        return replace(
            step,
            obs=self._normalize(step.obs, now),
            final_obs=self._normalize(step.final_obs, now),
        )

    def _normalize(self, obs: Tensor, by: Moments) -> Tensor:
        return (obs.floating() - by.mean) / (by.var + self.epsilon).sqrt()


def _record_statistics(ctx: Context, begun: Moments, now: Moments, shape: Any) -> None:
    """Let exported policies read the statistics after a step at an episode's first step, too."""
    first = Moments.initial(shape)
    for name, x in vars(now).items():
        ctx.statistics[x.read.tensor] = getattr(first, name).read
        ctx.same_statistic[getattr(begun, name).read.tensor] = x.read


@explain_constructor
class NormalizeReward(_Normalization):
    """Divide rewards by the standard deviation of the discounted returns so far.

    The values are those of `gymnasium.wrappers.vector.NormalizeReward`. Evaluation returns the rewards of the environment
    inside.

    Args:
        env: the environment.
        gamma: the discount factor of the returns.
        epsilon: a number that is added to the variance.

    Raises:
        ShapeError: an argument is not a number, or out of range.

    Example:
        >>> env = trl.env.NormalizeReward(trl.env.make("Pendulum-v1"), gamma=0.9)
        >>> env.gamma
        0.9
    """

    def __init__(self, env: Simulation, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        super().__init__(env, epsilon)
        self.gamma = number("gamma", gamma, least=0.0, most=1.0)

    def change_step(self, step: Step, action: Tensor, time: Domain) -> Step:
        ctx, along = action.ctx, (*self._iterations, *time)
        total = tensor((), domain=action.domain).named("discounted")
        after = total * self.gamma * where(step.terminated, 0.0, 1.0) + step.reward
        after = after if step.endless else where(step.alive, after, total)
        ctx.add_branch(total.read.source, initial_branch(constant(0.0), time))
        following = where(step.done, 0.0, after) if self.autoreset == "same_step" else after
        for read in previous_branches(following.settled(), time):
            ctx.add_branch(total.read.source, read)
        domain = ctx.space.ordered(along)
        before = Moments.declare("before", (), domain)
        now = Moments.declare("return", (), domain)
        counted = None if step.endless or self.autoreset == "same_step" else step.alive
        now.define(before.merge(after, self._environments, counted), (), None)
        before.define(Moments.initial(()), domain, now)
        return replace(step, reward=step.reward / (now.var + self.epsilon).sqrt())
