"""Environments, observations and actions of off-policy algorithms."""

from __future__ import annotations

from math import prod
from typing import Any, TypeVar

import numpy as np

from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.inputs.tensor_sources import (
    constant,
    random_uniform,
    tensor,
    where,
    zeros,
)
from timerl_nb.compiler.language.operations.random_draws import random_randint
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.distributions import Categorical
from timerl_nb.env.environment import Simulation, made
from timerl_nb.env.spaces import Box, Discrete, MultiDiscrete, half_and_middle, is_bounded
from timerl_nb.rl.policy_networks import Mask

S = TypeVar("S", Box, Discrete)


def off_policy_environment(
    algorithm: str, env: str | Simulation, actions: type[S]
) -> tuple[Simulation, S]:
    """Return an environment that resets itself in the same step, and its actions.

    Raises:
        EnvError: it does not reset itself in the same step, or its actions are of another kind or unbounded.
    """
    env = made(env, autoreset="same_step")
    space = env.act_space
    if env.autoreset != "same_step" or not isinstance(space, actions):
        kind = "actions in a Box" if actions is Box else "discrete actions"
        raise EnvError(
            f"{algorithm} needs {kind} and resets in the same step, not {env!r}.",
            hint=f"make an environment with {kind} and autoreset='same_step'.",
        )
    if isinstance(space, Box) and not is_bounded(space):
        raise EnvError(
            f"{algorithm} needs actions between two bounds, but the action space is {space}.",
            hint="choose an environment with a bounded Box of actions.",
        )
    return env, space


def flatten(x: RecurrentTensor, space: Box | Discrete | MultiDiscrete) -> RecurrentTensor:
    """Return observations [..., *shape] of a space as f32 [..., size]."""
    rank, size = len(space.shape), prod(space.shape)
    x = x.floating()
    return x if rank == 1 else x.reshape((*x.shape[: len(x.shape) - rank], size))


def greedy_action(
    values: RecurrentTensor, mask: Mask | None, obs: RecurrentTensor
) -> RecurrentTensor:
    """Return the action of the greatest value [..., actions], among the allowed actions of the observation."""
    if mask is not None:
        values = where(mask(obs), values, float("-inf"))
    return values.argmax(-1)


def random_action(
    count: int, mask: Mask | None, obs: RecurrentTensor, domain: tuple[Any, ...]
) -> RecurrentTensor:
    """Draw one of `count` actions uniformly, among the allowed actions of the observation."""
    if mask is None:
        return random_randint(count, domain=domain)
    return Categorical(zeros((count,)), mask(obs)).sample(domain=domain)


def scale_actions(a: RecurrentTensor, box: Box) -> RecurrentTensor:
    """Map actions f32 [size] between -1 and 1 linearly onto a box."""
    half, middle = (
        constant(x.reshape(-1)) if isinstance(x, np.ndarray) else x for x in half_and_middle(box)
    )
    return (a * half + middle).reshape(box.shape)


def uniform_actions(
    box: Box, domain: tuple[Any, Any], repeat_probability: float = 0.0
) -> RecurrentTensor:
    """Draw actions uniformly between -1 and 1: f32 [size].

    Args:
        box: the actions of the environment.
        domain: the indices of the environments' and the time dimension.
        repeat_probability: the probability that an action repeats the previous one.
    """
    repeat_probability = number("repeat_probability", repeat_probability, least=0, most=1)
    size = prod(box.shape)
    uniform = 2.0 * random_uniform((size,), domain=domain) - 1.0
    if not repeat_probability:
        return uniform
    b, t = domain
    action = tensor((size,), domain=domain).named("action")
    repeats = random_uniform((), domain=domain) < repeat_probability
    action[b, 0] = uniform[b, 0]
    action[b, t + 1] = where(repeats[b, t + 1], action, uniform[b, t + 1])
    return action
