"""Interface of policies for collection, in a compiled program or on the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import numpy as np

from timerl_nb.base.array_conversion import Array, misfit, narrow_array, numbers_of
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.spaces import Discrete, MultiDiscrete
from timerl_nb.execution.results.run_result import Result
from timerl_nb.rl.exported_policy import LearntPolicy
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import graph_function as graph

# A policy's results for observations, by name: the action and the extras.
Acted = dict[str, Any]
STATE: Final = "state "  # prefix of a policy's state before the step in its results on the host


class Shard(NamedTuple):
    """Position of consecutive environments among all environments of a collector.

    Attributes:
        first: number of the first one.
        total: number of all.
    """

    first: int
    total: int


class Written(NamedTuple):
    """A policy in a program.

    Attributes:
        made: its results, by name.
        follow: a function to call after the environment's step.
        states: its state before each step, by name.
    """

    made: dict[str, RecurrentTensor]
    follow: Callable[[Any], None]
    states: Mapping[str, RecurrentTensor] = MappingProxyType({})


class CarriedState:
    """State of a recurrent policy between steps on the host.

    A step may be repeated after an interrupt, so the state before the last step stays known.
    """

    def __init__(self) -> None:
        # step number, state before it, state after it
        self._last: tuple[int, dict[str, Array], dict[str, Array]] = (-1, {}, {})
        self._of_all: dict[str, Array] = {}  # of environments that step asynchronously

    def before(
        self, number: int, came: StepFeedback, first: Callable[[], Mapping[str, Array]]
    ) -> dict[str, Array]:
        """Return the state before a step, by name, [envs, …].

        Args:
            number: number of the step.
            came: results of the last step.
            first: returns the state of one environment at the first step of an episode.
        """
        last, begins = self._last, came.begins
        if isinstance(came, PartialFeedback):
            state = {name: x[came.ids] for name, x in self._of_all.items()}
        else:
            state = dict(last[1] if last[0] == number else last[2])
        if not state or begins.any():
            for name, x in first().items():
                whole = np.broadcast_to(x, (len(begins), *np.shape(x)))
                at = begins.reshape((-1, *(1,) * np.ndim(x)))
                state[name] = np.where(at, whole, state.get(name, whole))
        return state

    def store(
        self, number: int, came: StepFeedback, before: dict[str, Array], after: dict[str, Array]
    ) -> None:
        """Store the state before and after a step; see `before`."""
        if not isinstance(came, PartialFeedback):
            self._last = number, before, after
            return
        for name, x in after.items():
            if name not in self._of_all:
                self._of_all[name] = np.zeros((came.envs, *x.shape[1:]), x.dtype)
            self._of_all[name][came.ids] = x


@dataclass(frozen=True)
class StepFeedback:
    """Results of the last step of environments on the host, without observations, [envs].

    Attributes:
        begins: whether the next observation is the first one of an episode.
        reward, terminated, truncated: results of the step.
    """

    begins: Array
    reward: Array
    terminated: Array
    truncated: Array

    @staticmethod
    def before_first_step(envs: int) -> StepFeedback:
        """Return the feedback before any step."""
        no = np.zeros(envs, bool)
        return StepFeedback(~no, np.zeros(envs, np.float32), no, no)


@dataclass(frozen=True)
class PartialFeedback(StepFeedback):
    """Results of the last steps of some environments.

    Attributes:
        ids: numbers of the environments, without duplicates, [rows].
        envs: number of all environments.
    """

    ids: Array
    envs: int


def nothing_follows(step: Any) -> None:
    """Add nothing to the program after an environment's step."""


@dataclass(frozen=True)
class MaskArgument:
    """Use of the masks of actions that environments on the host report.

    Attributes:
        is_taken: whether the policy takes masks.
        is_needed: whether it cannot act without one.
        allows_gaps: whether a missing mask means that all actions are permitted. Otherwise it is an error.
    """

    is_taken: bool = False
    is_needed: bool = False
    allows_gaps: bool = True


class OnHost(Protocol):
    """A policy on the host."""

    def __call__(
        self,
        weights: Mapping[str, Any],
        obs: Array,
        number: int = 0,
        came: StepFeedback | None = None,
        mask: Array | None = None,
        /,
    ) -> Acted:
        """Return actions and extras for the observations of all environments.

        Args:
            weights: weights by name.
            obs: observations, [envs, …].
            number: number of the step. TimeRL's policies draw the same random numbers for equal
                numbers.
            came: results of the last step; None at the start of all episodes, or for a policy
                without memory.
            mask: mask of the permitted actions, [envs, …]; None for a policy without masks, or if the
                environments report none.
        """
        ...


@dataclass(frozen=True)
class Acting(ABC):
    """A policy.

    Attributes:
        weights: initial weights by name; empty for a policy without weights.
        shard: the environments of its observations on the host, which get the same random numbers as
            among all environments; None for all.
    """

    weights: Mapping[str, Any]
    shard: Shard | None = field(default=None, kw_only=True)
    writes: ClassVar[bool] = False  # whether it may write into the observations

    def check(self, observations: Any) -> None:  # noqa: B027 (most have nothing to refuse)
        """Report errors of the policy before its first action.

        Args:
            observations: observation space.

        Raises:
            OptionError: an extra has a reserved name.
        """

    @property
    def why_not_written(self) -> str | None:
        """Reason why the policy cannot be part of a program; None if it can."""
        return None

    @property
    def looks_back(self) -> bool:
        """Whether the policy has a state, or reads rewards or flags of the last step."""
        return False

    @property
    def mask_argument(self) -> MaskArgument:
        """Use of masks of actions."""
        return MaskArgument()

    @property
    def state_names(self) -> Sequence[str]:
        """Names of the policy's states; empty for a policy without memory."""
        return ()

    def tree_of(self, states: dict[str, Any]) -> Any:
        """Return states by name in the structure of the policy's state."""
        return states

    @abstractmethod
    def write_into_program(self, o: RecurrentTensor, i: Index, time: Domain) -> Written:
        """Write the policy into a program.

        Args:
            o: observations.
            i: dimension of the outermost loop; each iteration has its own weights.
            time: dimensions of the steps.
        """

    @abstractmethod
    def on_host(self, seed: int, space: Any) -> OnHost:
        """Return the policy as a function on the host.

        Args:
            seed: seed of its random numbers.
            space: action space of one environment, from Gymnasium.
        """

    @property
    @abstractmethod
    def text(self) -> str:
        """Text for the cache key; policies of equal text are equally fast."""

    @property
    def made_of(self) -> Any:
        """Functions and classes of the policy, for the cache key."""
        return None

    def in_background(self) -> Acting:
        """Return the policy for another thread; the caller's thread may change the original."""
        return self

    def for_worker(self) -> Acting:
        """Return the policy for another process, which receives the weights separately."""
        return replace(self, weights={})

    def with_weights(self, values: Any) -> Acting:
        """Return the policy with other initial weights."""
        return replace(self, weights=self.check_weights(values))

    def check_weights(self, values: Any) -> dict[str, Any]:
        """Return weights after a check of names, shapes and types.

        Args:
            values: arrays by name, a policy or a result.

        Raises:
            OptionError: the argument has no weights.
            ShapeError: a weight is missing, unknown, or has another shape or type.
        """
        if isinstance(values, LearntPolicy):
            values = values.weights
        elif isinstance(values, Result):
            values = {n: x for n, x in values.parameters.items() if n in self.weights}
        if not isinstance(values, Mapping):
            raise OptionError(
                f"weights are arrays by name, not {type(values).__name__}.",
                hint="pass a mapping, result.policy() or a result.",
            )
        wrong = [f"{n} is missing" for n in self.weights if n not in values]
        wrong += [f"{n} is unknown" for n in values if n not in self.weights]
        found = {n: own(x, self.weights.get(n)) for n, x in values.items()}
        wrong += [
            f"{n} is {found[n].dtype}{list(found[n].shape)}, not {x.dtype}{list(x.shape)}"
            for n, x in self.weights.items()
            if n in found and not _fits(found[n], x)
        ]
        if wrong:
            raise ShapeError(
                f"the weights do not fit the policy: {len(wrong)} differences.",
                evidence=wrong[:20],
                hint=f"pass the weights {', '.join(self.weights)}."
                if self.weights
                else "pass no weights; the policy has none.",
            )
        return {n: narrow_array(n, found[n], np.dtype(x.dtype)) for n, x in self.weights.items()}


def _fits(x: Any, like: Any) -> bool:
    return tuple(x.shape) == tuple(like.shape) and not misfit(x, np.dtype(like.dtype))


def own(x: Any, like: Any = None) -> Any:
    """Return a copy of an array on the device, with the element type of `like` if it fits."""
    found = graph.import_array(x) if hasattr(x, "__dlpack__") else x
    if hasattr(found, "devices"):
        return backend.copied(found)
    array = numbers_of("weights", found)
    if like is not None and not misfit(array, np.dtype(like.dtype)):
        array = narrow_array("weights", array, np.dtype(like.dtype))
    return backend.hand_over(np.array(array))


def check_numbers(made: Mapping[str, Any], first: int = 0, first_env: int = 0) -> None:
    """Check that the results of a policy contain no NaN.

    Args:
        made: results by name, [steps, envs, …].
        first: number of the first step.
        first_env: number of the first environment.

    Raises:
        ExecutionError: a result is NaN; the message has the step and the environment.
    """
    floats = {name: x for name, x in made.items() if x.dtype.kind == "f"}
    if not backend.is_accelerated():  # on a CPU, a sum in NumPy is faster
        floats = {name: np.asarray(x) for name, x in floats.items()}
    for name, x in floats.items():
        total = np.add.reduce(x, axis=None) if isinstance(x, np.ndarray) else x.sum()
        if np.isnan(total) and np.isnan(array := np.asarray(x)).any():
            step, env, *_ = np.argwhere(np.isnan(array))[0]
            raise ExecutionError(
                f"the policy's {name} is NaN at step {first + step} of the batch, in environment {first_env + env}.",
                hint="check its weights, and the observation at this step.",
            )


class Actions:
    """Action space of an environment, for a check of actions.

    Integers outside of a Discrete or MultiDiscrete space are an error. Numbers outside of a Box are
    passed on, because the environment clips them.

    Args:
        space: action space of one environment.
        first: number of the first checked environment.

    Attributes:
        sizes: exclusive upper bound of actions, as a number or per element; None for a Box.
    """

    def __init__(self, space: Any, first: int = 0) -> None:
        self.sizes: Any = None
        self._first = first
        if isinstance(space, Discrete):
            self.sizes = space.n
        elif isinstance(space, MultiDiscrete):
            self.sizes = np.array(space.sizes)

    def check(self, made: Any, first: int = 0) -> None:
        """Check that all actions of a batch are in the space.

        Args:
            made: actions, [steps, envs, …].
            first: number of the first step.

        Raises:
            ExecutionError: an action is outside of the space; the message has the first step and
                environment.
        """
        if self.sizes is None:
            return
        if backend.is_accelerated() and not isinstance(made, np.ndarray):  # reduction on the device
            ends = made.min(axis=(0, 1)), made.max(axis=(0, 1))
            if np.all(np.asarray(ends[0]) >= 0) and np.all(np.asarray(ends[1]) < self.sizes):
                return
        array = np.asarray(made)
        # as unsigned integers, negative ones are huge
        whole = array.view(f"u{array.dtype.itemsize}")
        if isinstance(self.sizes, int):
            if whole.item(whole.argmax()) < self.sizes:
                return
        elif np.all(np.maximum.reduce(whole, axis=(0, 1)) < self.sizes):
            return
        outside = (array < 0) | (array >= self.sizes)
        at = tuple(np.argwhere(outside)[0])
        size = self.sizes if len(at) == 2 else self.sizes[at[2]]
        element = "" if len(at) == 2 else f", element {at[2]}"
        raise ExecutionError(
            f"the policy's action is {array[at]} at step {first + at[0]} of the batch, in environment "
            f"{self._first + at[1]}{element}; the environment accepts 0 to {size - 1}.",
            hint="return integers from 0 to the size of the action space minus 1.",
        )
