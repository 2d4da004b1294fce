"""Batches of collected steps: several environments, time first."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.foreign_names import missing
from timerl_nb.rl.exported_policy import Episodes
from timerl_nb.runtime.jax_backend import graph_function as graph


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


@dataclass(frozen=True, repr=False)
class Ended:
    """The episodes that ended in a batch, computed when they are first read.

    Nobody else holds these arrays, so writing into a batch changes no episode.

    Attributes:
        reward, valid: of all steps, [steps, envs].
        done: whether a step ended an episode.
        returns, lengths: at the first step, of the episodes in progress, [envs].
        seen: the observations that steps led to: of all, [steps, envs, …], or only of those that ended
            an episode, in their order.
        is_all: whether `seen` has those of all steps.
    """

    reward: Any
    valid: Any
    done: Any
    returns: Any
    lengths: Any
    seen: Any
    is_all: bool

    @cached_property
    def end_positions(self) -> tuple[Array, Array]:
        step, env = np.nonzero(np.asarray(self.done))
        return step.copy(), env.copy()  # each in memory of its own, as other libraries take it

    @cached_property
    def final(self) -> Final:
        step, env = self.end_positions
        seen = np.asarray(self.seen)
        return Final(step, env, seen[step, env] if self.is_all else seen)

    @cached_property
    def count(self) -> int:
        return int(np.asarray(self.valid).sum())

    @cached_property
    def episodes(self) -> Episodes:
        step, env = self.end_positions
        valid = np.asarray(self.valid)
        total = np.cumsum(np.where(valid, self.reward, 0), axis=0, dtype=np.float64)
        count = np.cumsum(valid, axis=0, dtype=np.int64)
        order = np.lexsort((step, env))  # episodes of one environment follow each other
        first = np.ones(len(order), bool)
        first[1:] = env[order][1:] != env[order][:-1]

        def sum_since(sums: Array, before: Array) -> Array:
            at = sums[step, env][order]
            known = np.where(first, -np.asarray(before)[env[order]], np.roll(at, 1))
            found = np.empty_like(at)
            found[order] = at - known
            return found

        return Episodes(sum_since(total, self.returns), sum_since(count, self.lengths))

    def __getstate__(self) -> dict[str, Any]:
        """The results alone: a pickled batch needs no more."""
        return {name: getattr(self, name) for name in ("final", "count", "episodes")}


@dataclass(frozen=True)
class Form:
    """The library of a batch's arrays.

    Attributes:
        library: "numpy", "jax" or "torch".
        device: of PyTorch's; None leaves arrays on their devices.
    """

    library: str = "numpy"
    device: Any = None

    @property
    def change(self) -> Callable[[Any], Any]:
        """The conversion of anyone's array.

        Raises:
            MissingPartError: PyTorch is not installed.
        """
        if self.library == "numpy":
            return np.asarray
        return graph.make_array_converter(self.library, self.device)


@dataclass(frozen=True, repr=False)
class Batch:
    """Steps of all environments. Later batches share no memory with it.

    It is a pytree of JAX, with its arrays and `extras` as leaves; it can be copied and pickled.

    Attributes:
        obs: the observation before each step, [steps, envs, …].
        action, reward, terminated, truncated: of each step.
        valid: False where a step only reset its environment: it counts for nothing.
        last_obs: the observation after the last step, [envs, …].
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
    _ended: Ended | None = field(repr=False)
    _form: Form = field(default_factory=Form, repr=False)

    @property
    def steps(self) -> int:
        return self.reward.shape[0]

    @property
    def envs(self) -> int:
        return self.reward.shape[1]

    @cached_property
    def count(self) -> int:
        """The steps of episodes."""
        return self._require_ended.count

    @cached_property
    def final(self) -> Final:
        """Where episodes ended, and their last observations."""
        found, change = self._require_ended.final, self._form.change
        return Final(*(change(x) for x in (found.step, found.env, found.obs)))

    @cached_property
    def episodes(self) -> Episodes:
        """Returns and lengths of the episodes that ended, in the order of `final`; also what they had
        before this batch. They are those of the environments, even after rewards are overwritten."""
        return self._require_ended.episodes

    @property
    def _require_ended(self) -> Ended:
        if self._ended is None:
            raise ExecutionError(
                "this batch was made by a transformation of JAX, which passes on arrays alone: final, "
                "episodes and count are not among them.",
                hint="read them from the batch that the collector returned.",
            )
        return self._ended

    def numpy(self) -> Batch:
        """The batch as arrays of NumPy, without a copy where they lie in main memory."""
        return self._convert(Form("numpy"))

    def jax(self) -> Batch:
        """The batch as arrays of JAX, without a copy where it takes the memory as it is."""
        return self._convert(Form("jax"))

    def torch(self, device: Any = None) -> Batch:
        """The batch as tensors of PyTorch, without a copy.

        Args:
            device: where they are to be; copied once if that is elsewhere.

        Raises:
            MissingPartError: PyTorch is not installed.
        """
        return self._convert(Form("torch", device))

    def _convert(self, form: Form) -> Batch:
        change = form.change
        kept = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {k: change(kept[k]) for k in _ARRAYS}
        extras = {name: change(x) for name, x in self.extras.items()}
        return Batch(**(kept | arrays | {"extras": extras, "_form": form}))

    def __getattr__(self, name: str) -> Any:
        extras = vars(self).get("extras", {})
        if name in extras:
            return extras[name]
        words = {"log_prob": _ADDED, "value": _ADDED, "done": "terminated | truncated."}
        words["next_obs"] = "obs[1:] and last_obs; where episodes ended, final.obs."
        raise missing("a batch", name, [*_ARRAYS, *dir(type(self)), *extras], words)

    def __repr__(self) -> str:
        more = "".join(f", {name}" for name in self.extras)
        return f"Batch({format_count(self.steps, 'step')} of {format_count(self.envs, 'environment')}: {', '.join(_ARRAYS)}{more})"


_ARRAYS = ("obs", "action", "reward", "terminated", "truncated", "valid", "last_obs")
_ADDED = "the policy adds none: log_prob is that of a distribution, value a critic's."
_TAKEN = frozenset(
    {f.name for f in fields(Batch)} | {n for n in vars(Batch) if not n.startswith("_")}
)


def check_names(extras: Mapping[Any, Any]) -> None:
    """Refuse extras of a policy named like a batch's fields.

    Raises:
        OptionError: one is such a name, or is private, or no text.
    """
    if _TAKEN.isdisjoint(extras) and not any(str(n).startswith("_") for n in extras):
        if all(isinstance(n, str) for n in extras):
            return
    wrong = [n for n in extras if n in _TAKEN or not isinstance(n, str) or n.startswith("_")]
    raise OptionError(
        f"the policy adds {', '.join(map(repr, wrong))}, and a batch has {'names' if len(wrong) > 1 else 'a name'} "
        "of its own there.",
        evidence=[f"a batch has {', '.join(sorted(_TAKEN))}, and names that begin with _"],
        hint=f"give it another name: {{'policy_{str(wrong[0]).strip('_')}': …}}.",
    )


# --- as a tree of JAX ------------------------------------------------------------------------------


class _BatchStructure:
    """Auxiliary data of a batch's JAX pytree: its attributes besides arrays.

    All instances are equal, so JAX compiles a function once for all batches. Episodes are counted
    from the batch's arrays, so a batch rebuilt with other arrays has none.
    """

    def __init__(self, batch: Batch | None) -> None:
        self._batch = (lambda: None) if batch is None else weakref.ref(batch)

    def rebuilt(self, children: Iterable[Any]) -> Batch:
        *arrays, extras = children
        named = dict(zip(_ARRAYS, arrays, strict=True))
        batch = self._batch()
        if batch is None or batch._ended is None or not isinstance(extras, dict):
            return Batch(**named, extras=extras, _ended=None)
        same = all(x is getattr(batch, name) for name, x in named.items())
        same = same and extras.keys() == batch.extras.keys()
        same = same and all(x is batch.extras[name] for name, x in extras.items())
        ended = batch._ended if same else None
        return Batch(**named, extras=extras, _ended=ended, _form=batch._form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BatchStructure)

    def __hash__(self) -> int:
        return hash(_BatchStructure)


def _children(batch: Batch) -> tuple[tuple[Any, ...], _BatchStructure]:
    return (*(getattr(batch, name) for name in _ARRAYS), dict(batch.extras)), _BatchStructure(batch)


graph.register_tree(
    Batch, (*_ARRAYS, "extras"), _children, lambda beside, children: beside.rebuilt(children)
)
