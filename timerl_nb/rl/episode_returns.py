"""Mean returns of the episodes that end at each step."""

from __future__ import annotations

from typing import Any

from timerl_nb.compiler.language.inputs.tensor_sources import maximum, tensor, where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.env.environment import Step


def episode_returns(step: Step, over: Any, along: Any) -> tuple[RecurrentTensor, RecurrentTensor]:
    """Return the mean return of the episodes that end at each step (0 if none ends), and their number.

    Args:
        step: the result of `env.step`.
        over: the index of the dimension of environments.
        along: the index of the time dimension.
    """
    total = tensor((), domain=(over, along)).named("total")
    sofar = total + step.reward
    total[over, 0] = 0.0
    total[over, along + 1] = where(step.done, 0.0, sofar)
    ended = step.done.sum(over=over)
    return where(step.done, sofar, 0.0).sum(over=over) / maximum(ended, 1).floating(), ended
