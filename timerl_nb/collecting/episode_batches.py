"""Batches of whole episodes (`trl.collect(…, episodes=n)`).

The first n episodes to end would be shorter than the average. Each environment therefore contributes
a fixed number of consecutive episodes, independent of their lengths. They are the first ones that
begin after the call of `next`, so all their steps have the same weights. Other steps are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError
from timerl_nb.collecting.batch import Batch, Ended
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.host_result_checks import memory
from timerl_nb.collecting.strategy import (
    Counts,
    Prepared,
    Source,
    Weights,
    closed_error,
    stop,
)
from timerl_nb.env.environment import Environment
from timerl_nb.runtime.jax_backend import graph_function as graph


def episodes_per_environment(episodes: int, envs: int) -> Array:
    """Return the number of episodes of each environment in a batch; numbers differ by at most one."""
    return episodes // envs + (np.arange(envs) < episodes % envs)


def check_episodes(task: Task, episodes: int) -> None:
    """Check the number of episodes, and the end of episodes.

    Raises:
        OptionError: there are fewer episodes than environments, or the environment never ends.
    """
    if episodes < task.envs:
        raise OptionError(
            f"episodes={episodes}, but each of the {task.envs} environments contributes at least one.",
            hint=f"pass envs={episodes} or fewer.",
        )
    env = task.env
    if isinstance(env, Environment) and not env.terminates and env.max_steps is None:
        raise OptionError(
            f"the episodes of {task.name} never end.",
            hint="pass an environment with a limit: trl.env.make(…, max_steps=200).",
        )


def by_episodes(prepared: Prepared, envs: int, episodes: int, *, stores_states: bool) -> Prepared:
    """Return a strategy whose batches are whole episodes; see `EpisodeBatches`."""
    return lambda seed: EpisodeBatches(prepared(seed), envs, episodes, stores_states=stores_states)


@dataclass(frozen=True)
class _Part:
    """A batch of the strategy.

    Attributes:
        batch: the batch.
        is_first: whether the first step of each environment begins an episode, [envs].
        begun: number of earlier ends of episodes since the first part, minus one if that part begins
            within an episode, [envs].
        dropped: whether a step belongs to an episode without an end, [steps, envs].
    """

    batch: Batch
    is_first: Array
    begun: Array
    dropped: Any = False

    @cached_property
    def valid(self) -> Array:
        return np.asarray(self.batch.valid)

    @cached_property
    def done(self) -> Array:
        return (np.asarray(self.batch.terminated) | np.asarray(self.batch.truncated)) & self.valid

    @cached_property
    def episode(self) -> Array:
        """Number of the episode of each step, [steps, envs]; -1 for an episode begun earlier."""
        numbers = self.begun + np.cumsum(self.done, axis=0) - self.done
        return np.where(self.dropped, -1, numbers)

    def without(self, envs: Array, episode: Array) -> _Part:
        """Drop the steps of an episode of some environments, [envs] each."""
        return replace(self, dropped=self.dropped | (envs & (self.episode == episode)))

    @property
    def begun_after(self) -> Array:
        return self.begun + self.done.sum(0)

    @property
    def is_first_after(self) -> Array:
        """Whether the step after this part begins an episode, [envs]."""
        last = len(self.valid) - 1 - self.valid[::-1].argmax(0)  # the last valid step
        ended = self.done[last, np.arange(len(last))]
        return np.where(self.valid.any(0), ended, self.is_first)


@dataclass(frozen=True)
class _Progress:
    """Parts of an incomplete batch.

    Attributes:
        is_first: whether the next step of each environment begins an episode, [envs].
        parts: the parts so far.
        weights: their weights.
        is_confirmed: whether the source knows that the last part was received.
    """

    is_first: Array
    parts: tuple[_Part, ...] = ()
    weights: Weights | None = None
    is_confirmed: bool = True

    @property
    def begun(self) -> Array:
        """Number of ended episodes of this batch, [envs]; -1 while an older one continues."""
        return self.parts[-1].begun_after if self.parts else self.is_first - 1

    def append(self, batch: Batch, weights: Weights) -> Self:
        is_first, begun, parts = self.is_first, self.begun, self.parts
        for restart in batch.restarts:  # the open episodes have no end
            envs = np.zeros(len(is_first), bool)
            envs[restart.envs] = True
            parts = tuple(part.without(envs, begun) for part in parts)
            is_first, begun = is_first | envs, np.where(envs, np.maximum(begun, 0), begun)
        part = _Part(batch, is_first, begun)
        return type(self)(part.is_first_after, (*parts, part), weights, is_confirmed=False)


class EpisodeBatches:
    """Source of batches of whole episodes.

    Args:
        source: source of batches of a fixed number of steps.
        envs: number of environments.
        episodes: number of episodes per batch, at least `envs`.
        stores_states: whether a batch has the state of a recurrent policy before every step. The
            batches of the source do.
    """

    def __init__(
        self, source: Source, envs: int, episodes: int, *, stores_states: bool = False
    ) -> None:
        self._source, self._envs, self._stores_states = source, envs, stores_states
        self._required = episodes_per_environment(episodes, envs)
        self._now = _Progress(np.ones(envs, bool))
        # a batch that was not received, and the progress after it
        self._unreceived: tuple[Batch, _Progress] | None = None
        self._is_stopped = False

    def next(self, weights: Weights, version: int = 0) -> Batch:
        """Return the next episodes; see `Source.next`.

        After an interrupt, a call with other weights begins new episodes.
        """
        if self._unreceived is None:
            now = self._current_progress(weights)
            while (now.begun < self._required).any():
                if self._is_stopped:
                    raise closed_error()
                batch = self._source.next(weights, version)
                self._now = now = now.append(batch, weights)
                now = self._confirm(now)
            self._unreceived = self._joined(now.parts, version), _Progress(now.is_first)
        return self._unreceived[0]

    def _current_progress(self, weights: Weights) -> _Progress:
        """Return the progress after an interrupt, if any."""
        now = self._now
        if self._source.is_lost:
            now = _Progress(np.ones(self._envs, bool))
        elif not now.is_confirmed:
            now = self._confirm(now)
        if now.weights is not weights:
            now = _Progress(now.is_first)
        self._now = now
        return now

    def _confirm(self, now: _Progress) -> _Progress:
        self._source.confirm_received()
        self._now = replace(now, is_confirmed=True)
        return self._now

    def _joined(self, parts: Sequence[_Part], version: int) -> Batch:
        """Return the wanted episodes as columns of a batch."""
        first = (
            np.cumsum(self._required) - self._required
        )  # column of each environment's first episode
        episode = np.concatenate([part.episode for part in parts])
        valid = np.concatenate([part.valid for part in parts])
        env, step = np.nonzero((valid & (episode >= 0) & (episode < self._required)).T)
        column = first[env] + episode[step, env]  # in ascending order, as are the steps of each
        lengths = np.bincount(column)
        row = np.arange(len(column)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        size = lengths.max(), len(lengths)

        def gathered(field: Callable[[Batch], Any]) -> Array:
            whole = np.concatenate([np.asarray(field(part.batch)) for part in parts])
            found = memory((*size, *whole.shape[2:]), whole.dtype)
            found[:] = 0
            found[row, column] = whole[step, env]
            return found

        names = ("obs", "action", "reward", "terminated", "truncated", "valid")
        made: dict[str, Any] = {n: gathered(lambda b, n=n: getattr(b, n)) for n in names}
        made["last_obs"] = self._after_last_steps(parts, first, "obs", parts[0].batch.last_obs)
        if parts[0].batch.action_mask is not None:
            made["action_mask"] = gathered(lambda b: b.action_mask)
            like = parts[0].batch.last_action_mask
            made["last_action_mask"] = self._after_last_steps(parts, first, "action_mask", like)
        leaves = graph.leaves(parts[0].batch.states)
        states = {n: gathered(lambda b, n=n: graph.leaves(b.states)[n]) for n in leaves}
        if not self._stores_states:
            states = {name: x[:1].copy() for name, x in states.items()}
        extras = {n: gathered(lambda b, n=n: b.extras[n]) for n in parts[0].batch.extras}
        done = made["terminated"] | made["truncated"]
        masks = made.get("last_action_mask")
        ended = Ended(
            made["reward"].copy(),
            made["valid"].copy(),
            (done,),
            np.zeros(size[1]),
            np.zeros(size[1], np.int64),
            made["last_obs"][np.nonzero(done)[1]],
            is_all=False,
            masks=masks if masks is None else masks[np.nonzero(done)[1]],
            restarts=[one for part in parts for one in part.batch.restarts],
        )
        if not isinstance(parts[0].batch.obs, np.ndarray):
            change = graph.make_array_converter("jax")
            made = {name: change(x) for name, x in made.items()}
            extras = {name: change(x) for name, x in extras.items()}
            states = {name: change(x) for name, x in states.items()}
        tree = graph.with_leaves(parts[0].batch.states, states)
        return Batch(**made, extras=extras, states=tree, _ended=ended, policy_version=version)

    def _after_last_steps(
        self, parts: Sequence[_Part], first: Array, name: str, like: Array
    ) -> Array:
        """Return a field of `Final` for all episodes, [episodes, …]; `like` has its type."""
        found = memory((self._required.sum(), *like.shape[1:]), like.dtype)
        for part in parts:
            final = part.batch.final
            step, env = np.asarray(final.step), np.asarray(final.env)
            episode = part.episode[step, env]
            is_wanted = (episode >= 0) & (episode < self._required[env])
            values = np.asarray(getattr(final, name))
            found[(first[env] + episode)[is_wanted]] = values[is_wanted]
        return found

    def confirm_received(self) -> None:
        if self._unreceived is not None:
            self._now, self._unreceived = self._unreceived[1], None

    @property
    def is_lost(self) -> bool:
        return self._source.is_lost

    @property
    def speed(self) -> float | None:
        return self._source.speed

    @property
    def counts(self) -> Counts:
        """Counted work of the last batch of the strategy."""
        return self._source.counts

    def stop(self) -> None:
        """End a `next` of another thread after its current part."""
        self._is_stopped = True
        stop(self._source)

    def close(self) -> None:
        self._source.close()
