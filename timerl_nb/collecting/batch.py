"""Batches of collected steps, with the shape [steps, environments, …]."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.foreign_names import missing
from timerl_nb.rl.exported_policy import Episodes
from timerl_nb.runtime.jax_backend import graph_function as graph


@dataclass(frozen=True)
class Final:
    """Ends of episodes in a batch, in order of steps.

    Attributes:
        step, env: step and environment of each end, [ended].
        obs: observation after the last step of each episode, [ended, …].
        action_mask: mask of the permitted actions with this observation, [ended, …], or None; see
            `Batch`.
    """

    step: Any
    env: Any
    obs: Any
    action_mask: Any = None

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True)
class Restart:
    """Environments that began new episodes with new seeds, because their Ray worker died.

    The rows of the batch are complete: the new worker collected all its steps again.

    Attributes:
        envs: numbers of the environments.
        lost_steps: upper bound of the lost steps of these environments, since their last batch.
        reason: cause of the death, as reported by Ray.
    """

    envs: range
    lost_steps: int
    reason: str


@dataclass(frozen=True, repr=False)
class Ended:
    """Statistics of the ended episodes of a batch, computed at the first access.

    The arrays are copies, so writes into a batch have no effect on them.

    Attributes:
        restarts: environments that began again within the batch.
        reward, valid: of all steps, [steps, envs].
        ends: flags, [steps, envs] each; a step ended an episode if one of them is set.
        returns, lengths: partial sums of the open episodes before the first step, [envs].
        seen: observations after each step, [steps, envs, …], or only after the last step of each
            episode, in order.
        is_all: whether `seen` covers all steps.
        masks: masks of actions after the last step of each episode, in order; None without masks.
    """

    restarts: Sequence[Restart] = field(default=(), kw_only=True)
    reward: Any
    valid: Any
    ends: tuple[Any, ...]
    returns: Any
    lengths: Any
    seen: Any
    is_all: bool
    masks: Any = None

    @cached_property
    def end_positions(self) -> tuple[Array, Array]:
        step, env = np.nonzero(np.logical_or.reduce([np.asarray(x) for x in self.ends]))
        return step.copy(), env.copy()  # separate, contiguous arrays, as other libraries require

    @cached_property
    def final(self) -> Final:
        step, env = self.end_positions
        seen = np.asarray(self.seen)
        return Final(step, env, seen[step, env] if self.is_all else seen, self.masks)

    @cached_property
    def count(self) -> int:
        return int(np.asarray(self.valid).sum())

    @cached_property
    def episodes(self) -> Episodes:
        step, env = self.end_positions
        valid = np.asarray(self.valid)
        total = np.cumsum(np.where(valid, self.reward, 0), axis=0, dtype=np.float64)
        count = np.cumsum(valid, axis=0, dtype=np.int64)
        order = np.lexsort((step, env))  # order by environment, then by step
        first = np.ones(len(order), bool)
        first[1:] = env[order][1:] != env[order][:-1]

        def sum_since(sums: Array, before: Array) -> Array:
            at = sums[step, env][order]
            known = np.where(first, -np.asarray(before)[env[order]], np.roll(at, 1))
            found = np.empty_like(at)
            found[order] = at - known
            return found

        return Episodes(sum_since(total, self.returns), sum_since(count, self.lengths))

    @classmethod
    def from_results(cls, **results: Any) -> Self:
        """Return the statistics of known results: final, count, episodes and restarts."""
        made = cls.__new__(cls)
        vars(made).update(results)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the results only, so a pickled batch is small."""
        return {name: getattr(self, name) for name in ("final", "count", "episodes", "restarts")}


@dataclass(frozen=True)
class Form:
    """Array library of a batch.

    Attributes:
        library: "numpy", "jax" or "torch".
        device: PyTorch device; None for no change.
    """

    library: str = "numpy"
    device: Any = None

    @property
    def change(self) -> Callable[[Any], Any]:
        """Conversion function for arrays.

        Raises:
            MissingPartError: PyTorch is not installed.
        """
        if self.library == "numpy":
            return np.asarray
        return graph.make_array_converter(self.library, self.device)


@dataclass(frozen=True, repr=False)
class Batch:
    """Steps of all environments. Batches share no memory with each other.

    A batch is a pytree of JAX; its leaves are the arrays, `extras` and masks. It can be copied and
    pickled.

    Attributes:
        obs: observation before each step, [steps, envs, …].
        action: action of each step, [steps, envs, …].
        reward, terminated, truncated: results of each step, [steps, envs].
        valid: False for a step that only resets its environment; ignore such steps, [steps, envs].
        last_obs: observation after the last step, [envs, …].
        extras: additional results of the policy by name, also available as attributes such as
            `batch.log_prob`.
        states: state of a recurrent policy before the first step, [1, envs, …], or before all steps,
            [steps, envs, …]. Arrays by name, or the pytree of a JAX function; empty for others.
        policy_version: version of the weights, the number of earlier calls of `Collector.load` or
            `next(params=…)`. With `ready`, the version at each step, [steps, envs]. None for a batch
            with other arrays, from a JAX transformation.
        action_mask: true for the permitted actions before each step, [steps, envs, …]. None if the
            environments report no `action_mask` in the infos of their reset.
        last_action_mask: mask after the last step, [envs, …], or None.
        env_ids: with `ready`, the environment of each column, [envs]; an environment may have several
            columns. Otherwise None: column k belongs to environment k.

    Example:
        >>> with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=3, how="step") as c:
        ...     batch = c.next()
        >>> batch.obs.shape, batch.last_obs.shape
        ((3, 2, 4), (2, 4))
    """

    obs: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    valid: Any
    last_obs: Any
    extras: Mapping[str, Any]
    _ended: Ended | None = field(repr=False)
    _form: Form = field(default_factory=Form, repr=False)
    states: Any = field(default_factory=dict)
    policy_version: Any = 0
    action_mask: Any = None
    last_action_mask: Any = None
    env_ids: Any = None

    @property
    def state(self) -> Any:
        """State of a recurrent policy before the first step, [envs, …]; see `states`."""
        return graph.map_leaves(lambda x: x[0], self.states)

    @property
    def steps(self) -> int:
        """Number of steps of each environment."""
        return self.reward.shape[0]

    @property
    def envs(self) -> int:
        """Number of environments, or of columns with `ready`."""
        return self.reward.shape[1]

    @cached_property
    def count(self) -> int:
        """Number of valid steps."""
        return self._require_ended.count

    @cached_property
    def final(self) -> Final:
        """Ends of episodes, with the last observations."""
        found, change = self._require_ended.final, self._form.change
        masks = None if found.action_mask is None else change(found.action_mask)
        return Final(change(found.step), change(found.env), change(found.obs), masks)

    @cached_property
    def episodes(self) -> Episodes:
        """Returns and lengths of the ended episodes, in the order of `final`.

        They include steps in earlier batches, and are not affected by writes into `reward`.
        """
        return self._require_ended.episodes

    @property
    def restarts(self) -> Sequence[Restart]:
        """Environments that began again in this batch, because their Ray worker died; else empty."""
        return self._require_ended.restarts

    @property
    def _require_ended(self) -> Ended:
        if self._ended is None:
            raise ExecutionError(
                "this batch comes from a JAX transformation and has no final, episodes and count.",
                hint="read them from the original batch of the collector.",
            )
        return self._ended

    def numpy(self) -> Batch:
        """Return the batch with NumPy arrays; arrays in main memory are not copied."""
        return self._convert(Form("numpy"))

    def jax(self) -> Batch:
        """Return the batch with JAX arrays; suitably aligned arrays are not copied."""
        return self._convert(Form("jax"))

    def torch(self, device: Any = None) -> Batch:
        """Return the batch with PyTorch tensors, without a copy on the same device.

        Args:
            device: target device; None for no change.

        Raises:
            MissingPartError: PyTorch is not installed.
        """
        return self._convert(Form("torch", device))

    def _convert(self, form: Form) -> Batch:
        change = form.change
        kept = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {k: change(kept[k]) for k in _ARRAYS}
        extras = {name: change(x) for name, x in self.extras.items()}
        states = graph.map_leaves(change, self.states)
        arrays |= {k: change(kept[k]) for k in _OPTIONAL if hasattr(kept[k], "shape")}
        return Batch(**(kept | arrays | {"extras": extras, "states": states, "_form": form}))

    def __getattr__(self, name: str) -> Any:
        extras = vars(self).get("extras", {})
        if name in extras:
            return extras[name]
        words = {"log_prob": _ADDED, "value": _ADDED, "done": "terminated | truncated."}
        words["next_obs"] = "obs[1:] and last_obs; at ends of episodes, final.obs."
        raise missing("a batch", name, [*_ARRAYS, *dir(type(self)), *extras], words)

    def __repr__(self) -> str:
        more = "".join(f", {name}" for name in self.extras)
        return f"Batch({format_count(self.steps, 'step')} of {format_count(self.envs, 'environment')}: {', '.join(_ARRAYS)}{more})"


_ARRAYS = ("obs", "action", "reward", "terminated", "truncated", "valid", "last_obs")
_MASKS = ("action_mask", "last_action_mask")
_OPTIONAL = (*_MASKS, "env_ids", "policy_version")  # arrays of some batches
_ADDED = "the policy returns none: a policy with a distribution returns log_prob, one with a critic value."
_TAKEN = frozenset(
    {f.name for f in fields(Batch)} | {n for n in vars(Batch) if not n.startswith("_")}
)


def check_names(extras: Mapping[Any, Any]) -> None:
    """Check the names of a policy's extras against the names of a batch's attributes.

    Raises:
        OptionError: a name is taken, private, or not a string.
    """
    if _TAKEN.isdisjoint(extras) and not any(str(n).startswith("_") for n in extras):
        if all(isinstance(n, str) for n in extras):
            return
    wrong = [n for n in extras if n in _TAKEN or not isinstance(n, str) or n.startswith("_")]
    raise OptionError(
        f"the policy returns extras with invalid or reserved names: {', '.join(map(repr, wrong))}.",
        evidence=[f"reserved are {', '.join(sorted(_TAKEN))}, and names with a leading _"],
        hint=f"choose another name: {{'policy_{str(wrong[0]).strip('_')}': …}}.",
    )


# --- JAX pytree -----------------------------------------------------------------------------------


class _BatchStructure:
    """Auxiliary data of a batch's JAX pytree: its attributes besides arrays.

    All instances are equal, so JAX compiles a function only once for all batches. A batch with
    other arrays has no episode statistics, because they are computed from the original arrays.
    """

    def __init__(self, batch: Batch | None) -> None:
        self._batch = (lambda: None) if batch is None else weakref.ref(batch)

    def rebuilt(self, children: Iterable[Any]) -> Batch:
        *arrays, extras, states, mask, last_mask = children
        named = dict(zip(_ARRAYS, arrays, strict=True)) | {"states": states}
        named |= dict(zip(_MASKS, (mask, last_mask), strict=True))
        batch = self._batch()
        if batch is None or batch._ended is None or not isinstance(extras, dict):
            return Batch(**named, extras=extras, _ended=None, policy_version=None)
        same = all(x is getattr(batch, name) for name, x in named.items() if name in _ARRAYS)
        same = same and extras.keys() == batch.extras.keys()
        same = same and all(x is batch.extras[name] for name, x in extras.items())
        if not same:
            return Batch(
                **named, extras=extras, _ended=None, _form=batch._form, policy_version=None
            )
        kept = {"policy_version": batch.policy_version, "env_ids": batch.env_ids}
        return Batch(**named, extras=extras, _ended=batch._ended, _form=batch._form, **kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BatchStructure)

    def __hash__(self) -> int:
        return hash(_BatchStructure)


def _children(batch: Batch) -> tuple[tuple[Any, ...], _BatchStructure]:
    arrays = [getattr(batch, name) for name in _ARRAYS]
    masks = (batch.action_mask, batch.last_action_mask)
    return (*arrays, dict(batch.extras), batch.states, *masks), _BatchStructure(batch)


graph.register_tree(
    Batch,
    (*_ARRAYS, "extras", "states", *_MASKS),
    _children,
    lambda beside, children: beside.rebuilt(children),
)
