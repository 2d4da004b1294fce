"""Environments of one remote actor. Runs in a process of Ray, possibly on another machine."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import TimeRLError
from timerl_nb.collecting.collection_task import Registration
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.training.algorithm import Algorithm
from timerl_nb.replay.training.environment_group import ActedSteps, Group
from timerl_nb.replay.training.environment_openers import opener
from timerl_nb.runtime.jax_backend import graph_function as graph
from timerl_nb.runtime.jax_backend.arrays_and_devices import set_jax_settings

# options of a buffer that do not change the entries
_IRRELEVANT = ("frames", "limiter", "above", "weights")


@dataclass(frozen=True)
class SteppingRequest:
    """Arguments with which an actor steps groups of environments.

    Attributes:
        algorithm: the algorithm.
        fields, options: the construction of the buffer whose entries are made.
        envs, steps: the size of a rollout.
        how: the collection strategy; None for the default of the environment.
        seed: the seed of the run.
        settings: the JAX settings of the run's thread.
        registration: the registration of the environment's name; see `Registration.to_send`.
    """

    algorithm: Algorithm
    fields: Mapping[str, Any]
    options: Mapping[str, Any]
    envs: int
    steps: int
    how: str | None
    seed: int
    settings: Mapping[str, Any]
    registration: tuple[str, Any] | None = None


@dataclass(frozen=True)
class Failure:
    """Failure of a rollout.

    Attributes:
        what: type and message of the error.
        hint: its remedy.
        missing: the module that the process cannot import, if that was the reason.
    """

    what: str
    hint: str = ""
    missing: str = ""


class Stepper:
    """Steps groups of environments, rollout by rollout.

    Args:
        request: a pickled `SteppingRequest`. It is loaded by the first rollout, whose result reports an error.
    """

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._groups: dict[int, Group] = {}
        self._failed: dict[int, int] = {}  # the life in which a group has failed
        self._open: Callable[[int, int], Group] | None = None
        self._template: Any = None

    def block(
        self, number: int, life: int, version: int, weights: Mapping[str, Any]
    ) -> tuple[ActedSteps | Failure, Mapping[str, Array]]:
        """Run the next rollout of a group.

        Args:
            number: the number of the group.
            life: the number of its restarts; another number than before restarts the group.
            version: the version of the weights.
            weights: the arrays of the weights, by their path.

        Returns:
            The result without entries, and the entries. They are separate objects, because only the process of the
            buffer needs the entries.
        """
        if self._failed.get(number) == life:
            return Failure("the group has failed before"), {}
        try:
            if self._open is None:
                self._open = self._load()
            group = self._groups.get(number)
            if group is None or group.life != life:
                if group is not None:
                    group.close()
                group = self._groups[number] = self._open(number, life)
            made = group.block(version, graph.with_leaves(self._template, weights))
            return replace(made, entries={}), made.entries
        except Exception as error:
            self._failed[number] = life
            group = self._groups.pop(number, None)
            if group is not None:
                group.close()
            return _failure(error), {}

    def _load(self) -> Callable[[int, int], Group]:
        """Return a function that creates a group from its number and its life."""
        asked: SteppingRequest = pickle.loads(self._request)
        set_jax_settings(asked.settings)
        Registration.receive(asked.registration)
        algorithm = asked.algorithm
        self._template = algorithm.acting(algorithm.begin(0))
        opened = opener(algorithm, asked.envs, asked.steps, asked.how)
        options = {n: x for n, x in asked.options.items() if n not in _IRRELEVANT}
        format_only = Replay(1, asked.fields, **options)
        return lambda number, life: Group(number, opened, format_only.actor, asked.seed, life)


def _failure(error: Exception) -> Failure:
    if isinstance(error, ImportError):
        return Failure(str(error), missing=error.name or str(error))
    if isinstance(error, TimeRLError):  # its line is one of Ray, not of the user
        return Failure("; ".join([error.what, *error.evidence]), error.hint)
    return Failure(f"{type(error).__name__}: {error}")
