"""What collecting asks of a policy: to be part of a program, or a function on the host; and its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from timerl_nb.base.array_conversion import Array, misfit, narrow_array, numbers_of
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.spaces import Discrete, MultiDiscrete
from timerl_nb.execution.results.run_result import Result
from timerl_nb.rl.exported_policy import LearntPolicy
from timerl_nb.runtime.jax_backend import graph_function as graph
from timerl_nb.runtime.jax_backend import jax_engine as backend

# A policy's results for observations, by name: the action and its extras.
Acted = dict[str, Any]
# Tensors that a policy writes into a program, and a function to call after the environment's step.
Written = tuple[dict[str, RecurrentTensor], Callable[[Any], None]]


@dataclass(frozen=True)
class StepFeedback:
    """Results of the last step of environments on the host, without observations, [envs].

    Attributes:
        begins: whether the observation is an episode's first one.
    """

    begins: Array
    reward: Array
    terminated: Array
    truncated: Array

    @staticmethod
    def before_first_step(envs: int) -> StepFeedback:
        """Before any step."""
        no = np.zeros(envs, bool)
        return StepFeedback(~no, np.zeros(envs, np.float32), no, no)


def nothing_follows(step: Any) -> None:
    """Write nothing after an environment's step."""


class OnHost(Protocol):
    """A policy on the host."""

    def __call__(
        self,
        weights: Mapping[str, Any],
        obs: Array,
        number: int = 0,
        came: StepFeedback | None = None,
        /,
    ) -> Acted:
        """Return the action and extras for the observations of all environments at a step.

        Args:
            number: of the step. A policy of ours draws the same numbers at the same step.
            came: the results of the last step; None if all environments begin an episode, or the
                policy does not look back.
        """
        ...


@dataclass(frozen=True)
class Acting(ABC):
    """A policy.

    Attributes:
        weights: those that it begins with, by name; empty where nothing is given to it.
    """

    weights: Mapping[str, Any]
    writes: ClassVar[bool] = False  # whether it may write into its argument, the observations

    def check(self, observations: Any) -> None:  # noqa: B027 (most have nothing to refuse)
        """Find errors of the policy before it acts.

        Args:
            observations: their space.

        Raises:
            OptionError: an extra has a name of a batch's field.
        """

    @property
    def why_not_written(self) -> str | None:
        """Why it cannot be part of a program; None where it can."""
        return None

    @property
    def looks_back(self) -> bool:
        """Whether the policy reads rewards or flags of the last step."""
        return False

    @abstractmethod
    def write_into_program(self, o: RecurrentTensor, i: Index, time: Domain) -> Written:
        """Write the policy into a program whose turns of `i` bring its weights; `time` are its steps."""

    @abstractmethod
    def on_host(self, seed: int, space: Any) -> OnHost:
        """A function of weights, the observations of all environments, and what came with them.

        Args:
            space: of one's actions, as Gymnasium has it.
        """

    @property
    @abstractmethod
    def text(self) -> str:
        """What there is to remember it by: two of the same text take as long."""

    @property
    def made_of(self) -> Any:
        """Its functions and classes, for the cost key."""
        return None

    def with_weights(self, values: Any) -> Acting:
        """The policy, which begins with weights that somebody has given; as `taken`."""
        return replace(self, weights=self.check_weights(values))

    def check_weights(self, values: Any) -> dict[str, Any]:
        """Weights that somebody has given, if they are its own.

        Raises:
            OptionError: they are nothing with weights, or one is missing or unknown.
            ShapeError: one has another shape.
        """
        if isinstance(values, LearntPolicy):
            values = values.weights
        elif isinstance(values, Result):
            values = {n: x for n, x in values.parameters.items() if n in self.weights}
        if not isinstance(values, Mapping):
            raise OptionError(
                f"weights are arrays by name, not {type(values).__name__}.",
                hint="give a mapping, result.policy() or a result.",
            )
        wrong = [f"{n} is missing" for n in self.weights if n not in values]
        wrong += [f"{n} is none of the policy's" for n in values if n not in self.weights]
        found = {n: own(x, self.weights.get(n)) for n, x in values.items()}
        wrong += [
            f"{n} is {found[n].dtype}{list(found[n].shape)}, and the policy's {x.dtype}{list(x.shape)}"
            for n, x in self.weights.items()
            if n in found and not _fits(found[n], x)
        ]
        if wrong:
            raise ShapeError(
                f"the weights do not fit the policy, in {len(wrong)} of them.",
                evidence=wrong[:20],
                hint=f"its weights are {', '.join(self.weights)}."
                if self.weights
                else "it has none.",
            )
        return {n: narrow_array(n, found[n], np.dtype(x.dtype)) for n, x in self.weights.items()}


def _fits(x: Any, like: Any) -> bool:
    return tuple(x.shape) == tuple(like.shape) and not misfit(x, np.dtype(like.dtype))


def own(x: Any, like: Any = None) -> Any:
    """Return a copy of an array on the device, in the element type of `like` if it fits."""
    found = graph.import_array(x) if hasattr(x, "__dlpack__") else x
    if hasattr(found, "devices"):
        return backend.copied(found)
    array = numbers_of("weights", found)
    if like is not None and not misfit(array, np.dtype(like.dtype)):
        array = narrow_array("weights", array, np.dtype(like.dtype))
    return backend.to_device(np.array(array))


def check_numbers(made: Mapping[str, Any], first: int = 0) -> None:
    """Refuse what a policy has made, by name, [steps, envs, …], if NaN is in it.

    Args:
        first: the first step's number in its batch.

    Raises:
        ExecutionError: it is; the step and the environment are said.
    """
    floats = {name: x for name, x in made.items() if x.dtype.kind == "f"}
    if not backend.is_accelerated():  # where they are, and sooner summed up
        floats = {name: np.asarray(x) for name, x in floats.items()}
    for name, x in floats.items():
        if np.isnan(x.sum()) and np.isnan(array := np.asarray(x)).any():
            step, env, *_ = np.argwhere(np.isnan(array))[0]
            raise ExecutionError(
                f"the policy's {name} is NaN at step {first + step} of the batch, in environment {env}.",
                hint="look at its weights, and at what it sees there.",
            )


class Actions:
    """The action space of an environment.

    Integers outside a Discrete or MultiDiscrete space are refused. Numbers beyond the bounds of a Box are
    passed on as they are: it is the environment that clips them.

    Args:
        space: of one environment.

    Attributes:
        sizes: of the space, less than which actions are: a number or one per element; None for a Box.
    """

    def __init__(self, space: Any) -> None:
        self.sizes: Any = None
        if isinstance(space, Discrete):
            self.sizes = space.n
        elif isinstance(space, MultiDiscrete):
            self.sizes = np.array(space.sizes)

    def check(self, made: Any, first: int = 0) -> None:
        """Refuse a batch with an action outside the space.

        Args:
            made: actions, [steps, envs, …].
            first: the first step's number in its batch.

        Raises:
            ExecutionError: there is one; the first is named, with its step and environment.
        """
        if self.sizes is None:
            return
        if backend.is_accelerated() and not isinstance(made, np.ndarray):  # reduced in place
            ends = made.min(axis=(0, 1)), made.max(axis=(0, 1))
            if np.all(np.asarray(ends[0]) >= 0) and np.all(np.asarray(ends[1]) < self.sizes):
                return
        array = np.asarray(made)
        whole = array.view(f"u{array.dtype.itemsize}")  # negative integers become huge
        if np.all(np.maximum.reduce(whole, axis=(0, 1)) < self.sizes):
            return
        outside = (array < 0) | (array >= self.sizes)
        at = tuple(np.argwhere(outside)[0])
        size = self.sizes if len(at) == 2 else self.sizes[at[2]]
        element = "" if len(at) == 2 else f", element {at[2]}"
        raise ExecutionError(
            f"the policy's action is {array[at]} at step {first + at[0]} of the batch, in environment "
            f"{at[1]}{element}; the environment takes 0 to {size - 1}.",
            hint="a policy returns integers from 0 on, each less than the size of its space.",
        )
