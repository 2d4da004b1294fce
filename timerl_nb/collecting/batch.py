"""What is collected: steps of several environments, time first, which never change afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.frontend.foreign import missing
from timerl_nb.rl.learnt import Episodes
from timerl_nb.runtime.backends import jax_graph as graph


@dataclass(frozen=True)
class Final:
    """Where episodes ended, in the order of steps.

    Attributes:
        step, env: of the step that ended each, [ended].
        obs: the observation that it led to, [ended, …].
    """

    step: Any
    env: Any
    obs: Any

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True)
class Ended:
    """The episodes that ended, found when they are asked for.

    Attributes:
        reward, valid: of all steps, [steps, envs].
        done: which steps ended an episode.
        returns, lengths: of the episodes that go on at the first step, [envs].
        seen: the observations that steps led to: of all, [steps, envs, …], or of those that ended an
            episode, in their order.
        is_all: whether they are of all.
    """

    reward: Any
    valid: Any
    done: Callable[[], Array]
    returns: Any
    lengths: Any
    seen: Any
    is_all: bool

    @cached_property
    def where(self) -> tuple[Array, Array]:
        step, env = np.nonzero(self.done())
        return step, env

    @cached_property
    def final(self) -> Final:
        step, env = self.where
        seen = np.asarray(self.seen)
        return Final(step, env, seen[step, env] if self.is_all else seen)

    @cached_property
    def episodes(self) -> Episodes:
        step, env = self.where
        valid = np.asarray(self.valid)
        total = np.cumsum(np.where(valid, self.reward, 0), axis=0, dtype=np.float64)
        count = np.cumsum(valid, axis=0, dtype=np.int64)
        order = np.lexsort((step, env))  # those of one environment behind each other
        first = np.ones(len(order), bool)
        first[1:] = env[order][1:] != env[order][:-1]

        def since(sums: Array, before: Array) -> Array:
            at = sums[step, env][order]
            known = np.where(first, -np.asarray(before)[env[order]], np.roll(at, 1))
            found = np.empty_like(at)
            found[order] = at - known
            return found

        return Episodes(since(total, self.returns), since(count, self.lengths))


@dataclass(frozen=True, repr=False)
class Batch:
    """Steps of all environments; it never changes.

    Attributes:
        obs: what was seen ahead of each step, [steps, envs, …].
        action, reward, terminated, truncated: of each step.
        valid: False where a step only reset its environment: it counts for nothing.
        last_obs: what is seen after the last step, [envs, …].
        extras: what the policy adds, by name: `batch.log_prob` and `batch.value`, say.
    """

    obs: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    valid: Any
    last_obs: Any
    extras: Mapping[str, Any]
    _ended: Ended = field(repr=False)
    _shown: Callable[[Any], Any] = field(default=np.asarray, repr=False)

    @property
    def steps(self) -> int:
        return self.reward.shape[0]

    @property
    def envs(self) -> int:
        return self.reward.shape[1]

    @cached_property
    def count(self) -> int:
        """The steps of episodes."""
        return int(np.asarray(self._ended.valid).sum())

    @cached_property
    def final(self) -> Final:
        """Where episodes ended, and their last observations."""
        found = self._ended.final
        return Final(*(self._shown(x) for x in (found.step, found.env, found.obs)))

    @cached_property
    def episodes(self) -> Episodes:
        """Returns and lengths of the episodes that ended, in the order of `final`; also what they had
        before this batch."""
        return self._ended.episodes

    def numpy(self) -> Batch:
        """The batch as arrays of NumPy, without a copy where they lie in main memory."""
        return self._with(np.asarray)

    def jax(self) -> Batch:
        """The batch as arrays of JAX, without a copy where it takes the memory as it is."""
        return self._with(graph.exchanged("jax"))

    def torch(self, device: Any = None) -> Batch:
        """The batch as tensors of PyTorch, without a copy.

        Args:
            device: where they are to be; copied once if that is elsewhere.

        Raises:
            MissingPartError: PyTorch is not installed.
        """
        return self._with(graph.exchanged("torch", device))

    def _with(self, change: Callable[[Any], Any]) -> Batch:
        kept = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {k: change(kept[k]) for k in _ARRAYS}
        extras = {name: change(x) for name, x in self.extras.items()}
        return Batch(**(kept | arrays | {"extras": extras, "_shown": change}))

    def __getattr__(self, name: str) -> Any:
        extras = vars(self).get("extras", {})
        if name in extras:
            return extras[name]
        words = {"log_prob": _ADDED, "value": _ADDED, "done": "terminated | truncated."}
        words["next_obs"] = "obs[1:] and last_obs; where episodes ended, final.obs."
        raise missing("a batch", name, [*_ARRAYS, *dir(type(self)), *extras], words)

    def __repr__(self) -> str:
        more = "".join(f", {name}" for name in self.extras)
        return (
            f"Batch({self.steps:,} steps of {self.envs:,} environments: {', '.join(_ARRAYS)}{more})"
        )


_ARRAYS = ("obs", "action", "reward", "terminated", "truncated", "valid", "last_obs")
_ADDED = "the policy adds none: log_prob is that of a distribution, value a critic's."
