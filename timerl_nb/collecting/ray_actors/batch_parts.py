"""Workers of Ray, and the parts of a batch that they return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError, ShapeError
from timerl_nb.collecting.batch import Batch
from timerl_nb.collecting.policies.collecting_policy import Shard


@dataclass(eq=False)
class Worker:
    """An actor and its environments.

    Attributes:
        shard, envs: position and number of the environments.
        actor: Ray's handle.
        placed: reference of an answer that exists as soon as Ray has created the actor.
        opening: reference of the answer to `open`; None after a successful answer.
        since: time of its creation, in seconds.
        restarts: number of earlier actors of this group.
        deaths: number of deaths since the last received part.
    """

    shard: Shard
    envs: int
    actor: Any = None
    placed: Any = None
    opening: Any = None
    since: float = 0.0
    restarts: int = 0
    deaths: int = 0

    @property
    def rows(self) -> slice:
        return slice(self.shard.first, self.shard.first + self.envs)

    def __str__(self) -> str:
        first, last = self.shard.first, self.shard.first + self.envs - 1
        return f"environment {first}" if first == last else f"environments {first} to {last}"


@dataclass(eq=False)
class BatchInProgress:
    """A batch whose parts arrive one after the other; after an interrupt, it is completed.

    Attributes:
        number: number of the batch.
        weights, version: reference of the weights, and their version.
        requests: reference of the requested part, by worker.
        received: parts without their large arrays, by worker.
        arrays, extras, states: arrays of all environments, by name.
        copies: number of copied arrays.
        whole: the complete batch.
    """

    number: int
    weights: Any
    version: int
    requests: dict[Worker, Any] = field(default_factory=dict)
    received: dict[Worker, Mapping[str, Any]] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, Array] = field(default_factory=dict)
    states: dict[str, Array] = field(default_factory=dict)
    copies: int = 0
    whole: Batch | None = None


def split_environments(envs: int, count: int) -> Iterator[Worker]:
    """Yield workers with nearly equal numbers of environments."""
    ends = [envs * k // count for k in range(count + 1)]
    for first, last in zip(ends[:-1], ends[1:], strict=True):
        yield Worker(Shard(first, envs), last - first)


def check_equal_names(pieces: Sequence[tuple[Worker, Mapping[str, Any]]]) -> None:
    """Check that the parts of a batch have equal arrays; rows of the others would be undefined.

    Raises:
        ShapeError: the policy returns an extra for the observations of some workers only.
        EnvError: the environments of some workers only report masks.
    """
    every = {name for _, piece in pieces for name in piece["names"]}
    for name in sorted(every):
        have = [worker for worker, piece in pieces if name in piece["names"]]
        others = [worker for worker, piece in pieces if name not in piece["names"]]
        if not others:
            continue
        if name in ("action_mask", "last_action_mask"):
            raise EnvError(
                f"the worker of {have[0]} received an action_mask after the first reset, but the worker of "
                f"{others[0]} did not.",
                hint="report it in the infos of every reset and step, as Gymnasium's Taxi-v4 does.",
            )
        raise ShapeError(
            f"the policy returns {name} for {have[0]}, but not for {others[0]}.",
            hint="return equal extras for all observations.",
        )


def joint_speed(part: BatchInProgress, steps: int) -> float | None:
    """Return the steps per second of all workers together, without compilation and transfers."""
    speeds: Sequence[float | None] = [piece["speed"] for piece in part.received.values()]
    if any(x is None for x in speeds):
        return None
    slowest = max(w.envs * steps / (piece["speed"] or 1.0) for w, piece in part.received.items())
    return sum(w.envs for w in part.received) * steps / slowest
