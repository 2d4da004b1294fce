"""Wrappers of environments, with the names of Gymnasium's.

Two kinds compose. `TimeLimit`, `RepeatAction` and `FrameStackObservation` change the environment: an exported policy acts in
the changed one. `ClipReward`, `NormalizeReward` and `NormalizeObservation` change only the results that a program reads: an
exported policy contains them, and acts in the environment inside. The first kind goes inside, the second outside.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from dataclasses import replace
from typing import Any, Literal, Self, TypeVar

import numpy as np

from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import (
    expect_type,
    explain_call_errors,
    explain_constructor,
)
from timerl_nb.compiler.language.inputs.tensor_sources import concat, constant, stack, where
from timerl_nb.compiler.language.policy.policy_in_program import broadcast_over
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import (
    Environment,
    Simulation,
    State,
    Step,
    Tensor,
    select_state,
)
from timerl_nb.env.spaces import Box, Discrete

E = TypeVar("E", bound=Simulation)

_HINT = 'pass trl.env.make("CartPole-v1").'


@explain_call_errors
def TimeLimit(env: Simulation, max_episode_steps: int) -> Simulation:
    """Return a copy of an environment whose episodes are truncated after `max_episode_steps` steps.

    An earlier limit of the environment still holds.

    Args:
        env: the environment.
        max_episode_steps: the greatest number of steps.

    Raises:
        CallError: `env` is not an environment.
        ShapeError: the limit is not a positive integer.

    Example:
        >>> trl.env.TimeLimit(trl.env.make("CartPole-v1"), 100).max_steps
        100
    """
    expect_type(env, Simulation, "an environment", _HINT)
    return env.limited(integer("max_episode_steps", max_episode_steps, least=1))


class EquationWrapper(Environment):
    """Base of wrappers that change the equations of an environment: its state, transition or observation.

    Args:
        env: the environment, a `trl.env.Environment`; it is not changed.

    Raises:
        EnvError: the environment is not written as equations, or its results are wrapped already.
    """

    def __init__(self, env: Environment) -> None:
        if not isinstance(env, Environment):
            expect_type(env, Simulation, "an environment", _HINT)
            raise EnvError(
                f"{type(self).__name__} changes equations, which {env.made_as} does not have.",
                hint=f"wrap in another order: {type(env).__name__}({type(self).__name__}(…))."
                if isinstance(env, ResultWrapper)
                else "use Gymnasium's wrapper of the same name, and register the wrapped environment there.",
            )
        self.env = unstarted_copy(env)
        self.obs_space, self.act_space = env.obs_space, env.act_space
        self.terminates = env.terminates
        super().__init__(
            autoreset=env.autoreset, max_steps=env.max_steps, differentiable=env.differentiable
        )

    @property
    def made_as(self) -> str:
        return f"{type(self).__name__}({self.env.made_as})"

    def first_state(self, domain: Domain) -> State:
        return self.env.first_state(domain)

    def transition(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        return self.env.transition(state, action)

    def observe(self, state: State) -> Tensor:
        return self.env.observe(state)

    def _public(self) -> dict[str, Tensor]:
        return {**self.env._public(), **super()._public()}

    def __getattr__(self, name: str) -> Any:
        return _attribute_inside(self, name)

    def _extended(self, state: State, more: Tensor) -> State:
        """Return the state of the environment inside with a tensor of the wrapper."""
        self._is_tuple = isinstance(state, tuple)
        return (*state, more) if self._is_tuple else (state, more)

    def _divided(self, state: State) -> tuple[State, Tensor]:
        """Return the state of the environment inside, and the tensor of the wrapper."""
        return (state[:-1] if self._is_tuple else state[0]), state[-1]


@explain_constructor
class FrameStackObservation(EquationWrapper):
    """Stack the last observations of the episode, oldest first, on a new first axis.

    In a program whose episodes begin in each iteration, `o.window(4, over=t, fill="first")` is the same stack and stores each
    observation once.

    Args:
        env: the environment.
        stack_size: the number of observations.
        padding_type: the observations before the first one: "reset" repeats it, "zero" fills with zeros.

    Raises:
        EnvError: there is no such padding, or the environment is not written as equations.
        ShapeError: the number of observations is not a positive integer.

    Example:
        >>> trl.env.FrameStackObservation(trl.env.make("Catch"), 4).obs_space.shape
        (4, 10, 5)
    """

    def __init__(
        self,
        env: Environment,
        stack_size: int,
        *,
        padding_type: Literal["reset", "zero"] = "reset",
    ) -> None:
        super().__init__(env)
        self.stack_size = integer("stack_size", stack_size, least=1)
        if padding_type not in ("reset", "zero"):
            raise EnvError(
                f"padding_type={padding_type!r} is not a kind of padding.",
                hint='use "reset" or "zero".',
            )
        self.padding_type = padding_type
        space: Any = env.obs_space
        low, high = (0, space.n - 1) if isinstance(space, Discrete) else (space.low, space.high)
        low, high = (
            (low, high)
            if padding_type == "reset"
            else (np.minimum(low, 0.0), np.maximum(high, 0.0))
        )
        self.obs_space = Box(low, high, (self.stack_size, *space.shape), space.dtype)

    def first_state(self, domain: Domain) -> State:
        state = self.env.first_state(domain)
        frame = self.env.observe(state)
        before = frame
        if self.padding_type == "zero":
            before = constant(np.zeros(self.env.obs_space.shape, NUMPY[frame.dtype]))
        frames = stack([*[before] * (self.stack_size - 1), frame]).named("frames")
        return self._extended(state, frames)

    def transition(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        inside, frames = self._divided(state)
        after, reward, ended = self.env.transition(inside, action)
        frame = self.env.observe(after).unsqueeze(0)
        if self.stack_size > 1:
            frame = concat([frames.slice(1, self.stack_size), frame])
        return self._extended(after, frame), reward, ended

    def observe(self, state: State) -> Tensor:
        return state[-1]


@explain_constructor
class RepeatAction(EquationWrapper):
    """Play each action several times, up to the end of the episode; the reward is the sum.

    Args:
        env: the environment. A limit of its steps counts each repetition.
        num_repeats: the number of steps per action.

    Raises:
        EnvError: the environment is not written as equations.
        ShapeError: the number is not a positive integer.

    Example:
        >>> trl.env.RepeatAction(trl.env.make("CartPole-v1"), 4).max_steps
        125
    """

    def __init__(self, env: Environment, num_repeats: int) -> None:
        super().__init__(env)
        self.num_repeats = integer("num_repeats", num_repeats, least=1)
        if env.max_steps is not None:
            self.max_steps = -(-env.max_steps // self.num_repeats)

    def unstarted(self, *, max_steps: int | None = None) -> Self:
        twin = super().unstarted(max_steps=max_steps)
        # with the same limit, the last action keeps its number of repetitions
        if max_steps is not None and max_steps != self.max_steps:
            twin.env = self.env.unstarted(max_steps=max_steps * self.num_repeats)
        return twin

    @property
    def _counts(self) -> bool:
        """Whether the last action of an episode is repeated fewer times, so that steps are counted."""
        return bool((self.env.max_steps or 0) % self.num_repeats)

    def first_state(self, domain: Domain) -> State:
        state = self.env.first_state(domain)
        if not self._counts:
            return state
        return self._extended(state, broadcast_over(constant(0), domain).named("repeats"))

    def observe(self, state: State) -> Tensor:
        return self.env.observe(self._divided(state)[0] if self._counts else state)

    def transition(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        state, count = self._divided(state) if self._counts else (state, None)
        state, reward, ended = self.env.transition(state, action)
        for k in range(1, self.num_repeats):
            continues = ~ended
            if count is not None:
                continues = continues & (count + k < self.env.max_steps)
            after, more, ends = self.env.transition(state, action)
            state = select_state(continues, after, state)
            reward = reward + where(continues, more, 0.0)
            ended = ended | (continues & ends)
        if count is not None:
            state = self._extended(state, count + self.num_repeats)
        return state, reward, ended


class ResultWrapper(Simulation):
    """Base of wrappers that change the results of steps, but not the environment.

    An exported policy reads the results of the environment inside, and contains the operations of the wrapper that its
    actions depend on. Evaluation and collection play the environment inside.

    Args:
        env: the environment; it is not changed.
    """

    def __init__(self, env: Simulation) -> None:
        expect_type(env, Simulation, "an environment", _HINT)
        self.env = unstarted_copy(env)
        self.obs_space, self.act_space = env.obs_space, env.act_space
        super().__init__(autoreset=env.autoreset, max_steps=env.max_steps)
        self._inner_first: Tensor | None = None

    @property
    def made_as(self) -> str:
        return f"{type(self).__name__}({self.env.made_as})"

    @property
    def raw(self) -> Simulation:
        return self.env.raw

    def unstarted(self, *, max_steps: int | None = None) -> Self:
        twin = super().unstarted(max_steps=max_steps)
        twin.env = self.env.unstarted(max_steps=max_steps)
        return twin

    def begin(self, domain: Domain) -> Tensor:
        self.env.autoreset = self.autoreset
        self._inner_first = self.env.record_reset(domain)
        return self.change_first(self._inner_first, domain)

    def play(self, action: Tensor, time: Domain, first: Tensor) -> Step:
        assert self._inner_first is not None
        return self.change_step(self.env.record_step(action, time, self._inner_first), action, time)

    def change_first(self, first: Tensor, domain: Domain) -> Tensor:
        """Return the changed observation of a reset; by default it is unchanged."""
        return first

    @abstractmethod
    def change_step(self, step: Step, action: Tensor, time: Domain) -> Step:
        """Return the changed result of a step."""

    def _public(self) -> dict[str, Tensor]:
        return {**self.env._public(), **super()._public()}

    def __getattr__(self, name: str) -> Any:
        return _attribute_inside(self, name)


@explain_constructor
class ClipReward(ResultWrapper):
    """Clip rewards to bounds.

    Args:
        env: the environment.
        min_reward, max_reward: the bounds; None for no bound.

    Raises:
        EnvError: both bounds are None, or they are in the wrong order.
        ShapeError: a bound is not a number.

    Example:
        >>> trl.env.ClipReward(trl.env.make("Pendulum-v1"), -1.0, 1.0).act_space.shape
        (1,)
    """

    def __init__(
        self, env: Simulation, min_reward: float | None = None, max_reward: float | None = None
    ) -> None:
        super().__init__(env)
        least, most = (
            None if x is None else number(name, x)
            for name, x in (("min_reward", min_reward), ("max_reward", max_reward))
        )
        if least is None and most is None:
            raise EnvError("both bounds are None.", hint="write ClipReward(env, -1.0, 1.0).")
        if least is not None and most is not None and least > most:
            raise EnvError(
                f"min_reward={least:g} is greater than max_reward={most:g}.",
                hint="exchange the bounds.",
            )
        self.min_reward, self.max_reward = least, most

    def change_step(self, step: Step, action: Tensor, time: Domain) -> Step:
        reward = step.reward
        if self.min_reward is not None:
            reward = reward.maximum(self.min_reward)
        if self.max_reward is not None:
            reward = reward.minimum(self.max_reward)
        return replace(step, reward=step.masked(reward))


def _attribute_inside(wrapper: Any, name: str) -> Any:
    """Return an attribute of the environment inside, such as a mask of actions."""
    if name.startswith("_") or "env" not in vars(wrapper):
        raise AttributeError(f"{type(wrapper).__name__} has no attribute {name!r}")
    return getattr(wrapper.env, name)


def unstarted_copy(env: E) -> E:
    """Return a copy of an environment that is neither reset nor stepped, with the same options."""
    twin = copy(env)
    twin._reset = twin._stepped = None
    return twin
