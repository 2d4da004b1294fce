"""What episodes that end now have come to, where they go on without an end."""

from __future__ import annotations

from typing import Any

from timerl_nb.compiler.language.inputs.tensor_sources import maximum, tensor, where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.env.environment import Step


def episode_returns(step: Step, over: Any, along: Any) -> tuple[RecurrentTensor, RecurrentTensor]:
    """The mean return of the episodes that end at a step (0 if none does), and how many these are.

    Args:
        step: of environments `over` a dimension, one after the other along another, both as indices.
    """
    total = tensor((), domain=(over, along)).named("total")
    sofar = total + step.reward
    total[over, 0] = 0.0
    total[over, along + 1] = where(step.done, 0.0, sofar)
    ended = step.done.sum(over=over)
    return where(step.done, sofar, 0.0).sum(over=over) / maximum(ended, 1).floating(), ended
