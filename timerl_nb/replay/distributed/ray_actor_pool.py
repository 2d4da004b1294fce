"""Remote actors on Ray, with the interface `actor_threads.ActorPool`.

Each process of Ray steps the environments of one or more groups. Only metadata of a rollout passes through this module, if
the entries go to a shard.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from timerl_nb.base.errors import ExecutionError, MissingPartError, TimeRLError, warn
from timerl_nb.base.ray_session import RaySession, missing_on_worker, reason_of_death
from timerl_nb.base.text_formatting import format_count
from timerl_nb.execution.control.pause_and_stop import Stopped
from timerl_nb.replay.distributed.actor_environments import Failure, Stepper
from timerl_nb.replay.distributed.lost_rows import ProcessLoss
from timerl_nb.replay.training.actor_threads import Weights
from timerl_nb.replay.training.environment_group import ActedSteps, Death
from timerl_nb.runtime.jax_backend import graph_function as graph

POLL: Final = 0.1  # seconds of one wait, after which a run can stop
_PATIENCE: Final = (
    120.0  # seconds without any rollout before a warning: a process needs many seconds to start
)
_GRACE: Final = 1.0  # seconds until all rollouts of a dead process have an answer
# the learner's process has the accelerators
ENVIRONMENT: Final = {"env_vars": {"JAX_PLATFORMS": "cpu"}}


class RemoteGroup:
    """Group of environments in another process.

    Attributes:
        number: the number of the group.
        life: the number of its restarts. The process restarts the group when a rollout names another life.
    """

    def __init__(self, number: int) -> None:
        self.number, self.life = number, 0

    def begin_anew(self) -> None:
        """Let the next rollout restart the environments with another seed."""
        self.life += 1

    def close(self) -> None:
        """The environments end with their process."""


@dataclass(eq=False)
class _Process:
    """A process of Ray.

    Attributes:
        number: its number among the actors.
        actor: Ray's handle.
        incomplete: the number of steps in incomplete entries, by group.
    """

    number: int
    actor: Any
    incomplete: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class _Request:
    """A rollout in progress: its group and process, and references to its result and its entries."""

    group: int
    process: _Process
    result: Any
    entries: Any


@dataclass(frozen=True)
class RayPool:
    """Common settings of the actors of a run.

    Attributes:
        session: the connection to Ray.
        request: a pickled `SteppingRequest`.
        rows: the number of environment steps of a rollout.
        by_reference: leave the entries in Ray's object store; `ActedSteps.entries` is then a reference.
        is_stopping: a function that returns whether the run was stopped.
        losses: receives the processes that have died.
    """

    session: RaySession
    request: bytes
    rows: int
    by_reference: bool
    is_stopping: Callable[[], bool]
    losses: list[ProcessLoss]


class RayActors:
    """Pool of processes that step the environments.

    The number of rollouts without an answer is bounded: one per group, or two if a process has a single group, so that it
    need not wait for the learner.

    Args:
        pool: the connection and the request.
        groups: all groups of environments.
        latest: a function that returns the newest weights.
        again: whether a group runs its next rollout without a request.
    """

    def __init__(
        self,
        pool: RayPool,
        groups: Sequence[RemoteGroup],
        latest: Callable[[], Weights],
        again: bool,
    ) -> None:
        self._pool, self._groups, self._latest, self._again = pool, groups, latest, again
        self._session, self._ray = pool.session, pool.session.ray
        self._processes: list[_Process] = []
        self._requests: list[_Request] = []
        self._ready: deque[ActedSteps | Death] = deque()
        self._weights: tuple[int, Any] | None = None  # the newest version in the object store
        self._begun, self._has_answered = time.monotonic(), False

    # --- processes -------------------------------------------------------------------------------

    def resize(self, count: int) -> None:
        """Start the processes. Their number cannot change later."""
        self._begun = time.monotonic()
        self._processes = [self._start(k, count) for k in range(count)]
        if self._again:
            for group in self._groups:
                self.ask(group.number)

    def _start(self, number: int, count: int) -> _Process:
        # actors share CPUs, so that Ray can place all of them and the shards
        share = np.floor(min(0.99, 0.99 * self._session.cpus / count) * 1000) / 1000
        options = {"num_cpus": share, "max_restarts": 0, "runtime_env": ENVIRONMENT}
        with self._session.connected():
            made = self._ray.remote(Stepper).options(scheduling_strategy="SPREAD", **options)
            return _Process(number, made.remote(self._pool.request))

    def close(self) -> None:
        """End all processes."""
        processes, self._processes = self._processes, []
        self._requests.clear()
        self._weights = None
        for one in processes:
            self._session.kill(one.actor)

    # --- requests --------------------------------------------------------------------------------

    def ask(self, number: int, weights: Weights | None = None) -> None:
        """Request one rollout of a group, with the given weights, or with the newest ones.

        In a pool whose groups run without requests, this starts a group again.
        """
        busy = sum(one.group == number for one in self._requests)
        for _ in range(self._depth - busy):
            self._submit(number, self._latest() if weights is None else weights)

    @property
    def _depth(self) -> int:
        """The number of unanswered rollouts per group."""
        return 2 if self._again and len(self._groups) <= len(self._processes) else 1

    def _submit(self, number: int, weights: Weights) -> None:
        process = self._processes[number % len(self._processes)]
        life = self._groups[number].life
        try:
            with self._session.connected():
                block = process.actor.block.options(num_returns=2)
                asked = block.remote(number, life, weights[0], self._put(weights))
        except (Exception, SystemExit) as error:  # the latter: Ray is shut down
            self._session.raise_explained(error)
        self._requests.append(_Request(number, process, *asked))

    def _put(self, weights: Weights) -> Any:
        """Return the reference of weights, which are sent once per version."""
        version, params = weights
        if self._weights is None or self._weights[0] != version:
            found = {
                n: np.asarray(x) if hasattr(x, "dtype") else x
                for n, x in graph.leaves(params).items()
            }
            self._weights = version, self._ray.put(found)
        return self._weights[1]

    # --- results ---------------------------------------------------------------------------------

    def take(self) -> ActedSteps | Death:
        """Wait for the next finished rollout and return it.

        Raises:
            Stopped: the run was stopped meanwhile.
            ExecutionError: Ray has failed.
        """
        while True:
            found = self._collect(1, POLL)
            if found:
                return found[0]
            if self._pool.is_stopping():
                raise Stopped
            self._warn_if_not_placed()

    def available(self, most: int) -> list[ActedSteps | Death]:
        """Return the finished rollouts, at most `most`, without waiting."""
        return self._collect(most, 0)

    def _collect(self, most: int, timeout: float) -> list[ActedSteps | Death]:
        if not self._ready and self._requests:
            asked = {one.result: one for one in self._requests}
            count = min(most, len(asked))
            try:
                done = self._session.wait([*asked], timeout, count)
            except (Exception, SystemExit) as error:  # the latter: Ray is shut down
                self._session.raise_explained(error)
            for ref in done:
                self._receive(asked[ref])
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def _receive(self, one: _Request) -> None:
        """Put the result of a finished rollout into the queue."""
        if one not in self._requests:  # of a process that has died
            return
        self._requests.remove(one)
        known = self._ray.exceptions
        try:
            made = self._get(one)
        except known.RayActorError as error:
            self._has_died(one, error)
            return
        except known.ObjectLostError as error:  # its node was removed
            self._forget(one.group)
            loss = ProcessLoss(
                f"a rollout of group {one.group}", self._pool.rows, reason_of_death(error)
            )
            self._pool.losses.append(loss)
            self._ready.append(Death(one.group, self._session.explain(error)))
            return
        except (Exception, SystemExit) as error:  # the latter: Ray is shut down
            self._session.raise_explained(error)
        if isinstance(made, Failure):
            self._forget(one.group)
            self._ready.append(Death(one.group, _error(made)))
            return
        self._store(one, made)
        if self._again:
            self.ask(one.group)

    def _get(self, one: _Request) -> ActedSteps | Failure:
        """Return the result of a finished rollout, with its entries or a reference to them."""
        with self._session.connected():
            made, entries = self._ray.get(one.result), one.entries
            if isinstance(made, Failure):
                return made
            if not self._pool.by_reference:
                entries = self._ray.get(entries)
        return replace(made, entries=entries)

    def _store(self, one: _Request, made: ActedSteps) -> None:
        self._has_answered = True
        one.process.incomplete[one.group] = made.incomplete
        self._ready.append(made)

    def _store_completed(self, process: _Process) -> None:
        """Put the rollouts into the queue that a process has completed before its death."""
        known = self._ray.exceptions
        requests = [one for one in self._requests if one.process is process]
        if not requests:
            return
        try:
            with self._session.connected():
                asked = [one.result for one in requests]
                done, _ = self._ray.wait(asked, num_returns=len(asked), timeout=_GRACE)
            for one in requests:
                if one.result in done:
                    with suppress(known.RayActorError, known.ObjectLostError):
                        made = self._get(one)
                        if isinstance(made, ActedSteps):
                            self._store(one, made)
        except (Exception, SystemExit) as error:  # the latter: Ray is shut down
            self._session.raise_explained(error)

    def _forget(self, group: int) -> None:
        """Ignore the other rollouts of a group that has failed."""
        self._requests = [one for one in self._requests if one.group != group]

    def _has_died(self, one: _Request, error: Exception) -> None:
        """Replace a dead process; its groups have failed. No effect if this has happened before."""
        process = one.process
        if self._processes[process.number] is not process:
            return
        reason = reason_of_death(error)
        self._store_completed(process)
        lost = self._pool.rows + sum(process.incomplete.values())
        self._pool.losses.append(ProcessLoss(f"actor {process.number}", lost, reason))
        mine = {one.group, *(x.group for x in self._requests if x.process is process)}
        self._requests = [x for x in self._requests if x.process is not process]
        self._session.kill(process.actor)
        explained = self._session.explain(error)
        self._processes[process.number] = self._start(process.number, len(self._processes))
        for group in sorted(mine):
            said = ExecutionError(
                f"actor {process.number} has died with at most {format_count(lost, 'row')}: {reason}."
            )
            is_missing = isinstance(explained, MissingPartError)
            self._ready.append(Death(group, explained if is_missing else said))

    def _warn_if_not_placed(self) -> None:
        if self._has_answered or time.monotonic() - self._begun < _PATIENCE:
            return
        self._has_answered = True  # warn once
        free = self._session.free_cpus
        warn(
            f"no actor has finished a rollout in {_PATIENCE:.0f} s. Ray has {self._session.cpus} CPUs, "
            f"{free} of them free, for {format_count(len(self._processes), 'actor')}.",
            hint="end other jobs of the cluster, or choose fewer actors.",
        )


def _error(made: Failure) -> TimeRLError:
    if made.missing:
        return missing_on_worker(made.missing, made.what)
    return ExecutionError(made.what, hint=made.hint)
