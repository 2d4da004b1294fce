"""Mean returns of the episodes that end at each step, or in each iteration."""

from __future__ import annotations

from typing import Any

from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.tensor_sources import maximum, tensor, where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.env.environment import Step


def episode_returns(step: Step, over: Any, along: Any) -> tuple[RecurrentTensor, RecurrentTensor]:
    """Return the mean return of the episodes that end at each step or in each iteration, and their number.

    The mean is 0 if no episode ends. With `along=(i, t)` episodes continue from iteration to iteration: the results
    vary over i, and count the episodes that end at any step of the iteration.

    Args:
        step: the result of `env.step`.
        over: the index of the dimension of environments.
        along: the index of the time dimension, or the indices of iterations and steps, the last one fastest.
    """
    times: tuple[Index, ...] = along if isinstance(along, tuple) else (along,)
    total = tensor((), domain=(over, *times)).named("total")
    sofar = total + step.reward
    total.ctx.label_by_default("episode_return", sofar)
    left = where(step.done, 0.0, sofar)
    total[over, *(0 for _ in times)] = 0.0
    for k, now in enumerate(times):
        ends = {str(d): total.ctx.space[str(d)].size - 1 for d in times[k + 1 :]}
        total[over, *times[:k], now + 1, *(0 for _ in ends)] = left.at(ends) if ends else left
    within = (over, *times[1:])
    ended = step.done.sum(over=within)
    return where(step.done, sofar, 0.0).sum(over=within) / maximum(ended, 1).floating(), ended
