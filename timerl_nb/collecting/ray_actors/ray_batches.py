"""Batches joined from the parts of Ray actors, each with a group of the environments."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import (
    EnvError,
    ExecutionError,
    OptionError,
    ShapeError,
    TimeRLError,
    user_origin,
    warn,
)
from timerl_nb.base.ray_session import RaySession, missing_on_worker, reason_of_death
from timerl_nb.base.text_formatting import format_count
from timerl_nb.collecting.batch import Batch, Ended, Restart
from timerl_nb.collecting.batch import Final as Ends
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.ray_actors import actor_process
from timerl_nb.collecting.ray_actors.actor_process import EnvironmentActor, versions
from timerl_nb.collecting.ray_actors.batch_parts import (
    BatchInProgress,
    Worker,
    check_equal_names,
    joint_speed,
    split_environments,
)
from timerl_nb.collecting.strategies.host_stepping import memory
from timerl_nb.collecting.strategy import SEED_OFFSET, Counts, Weights, closed_error
from timerl_nb.rl.exported_policy import Episodes
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend

_DEATHS: Final = 3  # deaths of a worker in a row, without a batch in between
_PATIENCE: Final = 120.0  # seconds until a worker must have started
_POLL: Final = 1.0  # seconds between two checks of Ray and of starting workers
_CLOSING: Final = 5.0  # seconds for closing environments
_LARGE: Final = ("arrays", "extras", "states")


class RayTurns:
    """Open environments in actors of Ray; see `Source`.

    At most one part is requested from each actor, so a slow reader bounds the memory.

    Args:
        task: the task.
        payload: pickled policy and environment.
        seed: seed of all random numbers.

    Raises:
        ExecutionError: Ray or a worker does not start.
        MissingPartError: a package is missing, here or on the machine of a worker.
        OptionError: the cluster has fewer CPUs than requested workers.
    """

    is_lost = False  # an interrupt never reaches the actors

    def __init__(self, task: Task, payload: Mapping[str, bytes], seed: int) -> None:
        self._task, self._seed = task, seed
        self._session = RaySession.open("a collector")
        self._ray: Any = self._session.ray
        self._actor_class: Any = self._ray.remote(
            num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )(EnvironmentActor)
        self._workers: list[Worker] = []
        self._restarts: list[Restart] = []
        self._part: BatchInProgress | None = None
        self._number = 0  # of received batches
        self._sent: tuple[Any, Any] = None, None  # weights of the last request, and their reference
        self.counts = Counts(0, None, 0)
        self.speed: float | None = None
        self._is_stopped = False
        try:
            self._payload = self._stored(payload, "the policy and the environment")
            self._workers = [*split_environments(task.envs, self._worker_count())]
            for worker in self._workers:
                self._start(worker)
            while any(worker.opening is not None for worker in self._workers):
                self._receive_one(None)
        except BaseException:
            self.close()
            raise

    def _worker_count(self) -> int:
        """Return the number of workers.

        Raises:
            OptionError: there are too few CPUs.
        """
        cpus, wanted = self._session.cpus, self._task.workers
        if wanted is None:
            return min(self._task.envs, max(1, cpus))
        if wanted > cpus:
            raise OptionError(
                f"workers={wanted}, but the Ray cluster has {format_count(cpus, 'CPU')}, and each worker needs one.",
                hint=f"pass workers={max(1, cpus)}, or add machines: ray start --address=….",
            )
        return wanted

    def _stored(self, x: Any, what: str) -> Any:
        """Return the reference of a value in Ray's object store."""
        with self._calling(f"{what} cannot be stored"):
            return self._ray.put(x)

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        """Convert Ray's errors within this block to errors of this package.

        Args:
            what: the failed action, the beginning of the message.
        """
        try:
            with self._session.connected():
                yield
        except (Exception, SystemExit) as error:  # the latter: another thread shuts Ray down
            self._session.raise_explained(error, what)

    def _start(self, worker: Worker) -> None:
        """Create the actor of a worker, without waiting for it."""
        ray, seed = self._ray, (self._seed + worker.restarts * SEED_OFFSET) % 2**64
        about = versions(), backend.jax_settings(), [self._payload]
        with self._calling(f"the worker of {worker} cannot be created"):
            with _by_value(ray):
                worker.actor, worker.since = self._actor_class.remote(), monotonic()
            worker.placed = worker.actor.__ray_ready__.remote()
            worker.opening = worker.actor.open.remote(
                *about, tuple(worker.shard), worker.envs, seed
            )

    def next(self, weights: Weights, version: int = 0) -> Batch:
        self._session.check_alive()
        if self._part is None:
            self._part = BatchInProgress(self._number, self._broadcast(weights), version)
        part = self._part
        if part.whole is None:
            for worker in self._workers:
                if worker not in part.requests:
                    self._request(worker, part)
            while len(part.received) < len(self._workers):
                self._receive_one(part)
            self.counts = Counts(len(self._workers), None, part.copies)
            self.speed = joint_speed(part, self._task.steps)
            part.whole = self._joined(part)
        return part.whole

    def stop(self) -> None:
        """End a `next` of another thread, also if an environment does not return."""
        self._is_stopped = True

    def confirm_received(self) -> None:
        if self._part is not None and self._part.whole is not None:
            self._number += 1
            self._part = None
            self._restarts.clear()

    def _broadcast(self, weights: Weights) -> Any:
        """Return the reference of weights, which are stored once."""
        if self._sent[0] is not weights:
            sent = {n: _for_transfer(x) for n, x in weights.items()}
            self._sent = weights, self._stored(sent, "the weights")
        return self._sent[1]

    def _request(self, worker: Worker, part: BatchInProgress) -> None:
        with self._calling(f"a request to the worker of {worker} failed"):
            ask = worker.actor.collect
            part.requests[worker] = ask.remote(part.number, [part.weights], part.version)

    def _receive_one(self, part: BatchInProgress | None) -> None:
        """Receive the next answer of any worker."""
        going = {w.opening: w for w in self._workers if w.opening is not None}
        if part is not None:
            if self._is_stopped:
                raise closed_error()
            open_ones = [w for w in self._workers if w.opening is None and w not in part.received]
            going |= {part.requests[w]: w for w in open_ones}
        try:
            ready = self._session.wait([*going], _POLL)
        except (Exception, SystemExit) as error:
            self._session.raise_explained(error, "waiting for the workers failed")
        self._check_starts()
        for ref in ready:
            worker = going[ref]
            try:
                with self._session.connected():
                    answer = self._ray.get(ref)
            except (self._ray.exceptions.RayError, SystemExit) as error:
                self._replace(worker, part, error)
                continue
            for text in answer["warnings"]:
                warn(text)
            if "error" in answer:
                raise self._error_of(worker, answer)
            if ref == worker.opening:
                self._check_versions(worker, answer)
                worker.opening = None
            elif part is not None:
                self._copy(worker, part, answer["value"])

    def _check_starts(self) -> None:
        """Check that Ray has created the workers; opening their environments may take any time."""
        late = [w for w in self._workers if w.opening is not None]
        late = [w for w in late if monotonic() - w.since > _PATIENCE]
        late = [w for w in late if not self._session.wait([w.placed], 0)]
        if late:
            session, many = self._session, len(self._workers)
            raise ExecutionError(
                f"{len(late)} of {format_count(many, 'worker')} did not start within {_PATIENCE:.0f} s: "
                f"the Ray cluster has {format_count(session.cpus, 'CPU')}, {session.free_cpus} of them free.",
                hint="end other jobs of the cluster, add machines, or pass fewer workers.",
            )

    def _replace(self, worker: Worker, part: BatchInProgress | None, error: BaseException) -> None:
        """Replace a dead worker, whose environments begin again with other seeds.

        Raises:
            EnvError: it died several times in a row.
            ExecutionError: Ray was shut down, or failed for another reason.
        """
        ray = self._ray
        self._session.check_alive(error)
        dead = ("RayActorError", "ObjectLostError", "NodeDiedError", "WorkerCrashedError")
        dead = (*dead, "OutOfMemoryError", "ObjectFetchTimedOutError")
        if not isinstance(error, tuple(getattr(ray.exceptions, n) for n in dead)):
            self._session.raise_explained(error, f"the worker of {worker} failed")
        worker.deaths += 1
        reason = reason_of_death(error)
        if worker.deaths >= _DEATHS:
            raise EnvError(
                f"the worker of {worker} died {_DEATHS} times in a row: {reason}",
                hint="an environment may end its process, or the machine has too little memory. "
                "how='loop' runs the environments in this process.",
            ) from error
        is_asked = part is not None and worker in part.requests
        lost = worker.envs * self._task.steps if is_asked else 0
        numbers = range(worker.rows.start, worker.rows.stop)
        self._restarts.append(Restart(numbers, lost, reason))
        warn(
            f"the worker of {worker} died and is replaced; its environments begin new episodes.",
            hint="see batch.restarts for the lost steps and the reason.",
        )
        self._session.kill(worker.actor)
        worker.restarts += 1
        self._start(worker)
        if part is not None:
            self._request(worker, part)

    def _error_of(self, worker: Worker, answer: Mapping[str, Any]) -> BaseException:
        """Return the error of an actor."""
        found, node = answer["error"], answer["node"]
        if isinstance(found, dict):
            return missing_on_worker(
                found["missing"], found["said"], f"the worker of {worker} on {node}"
            )
        if isinstance(found, bytes):
            try:
                error = pickle.loads(found)
            except Exception:  # its class is unknown here
                found = answer["trace"].strip().rpartition("\n")[2]
            else:
                if isinstance(error, TimeRLError):
                    error.origin = user_origin()
                error.add_note(f"In the Ray worker of {worker} on {node}:\n{answer['trace']}")
                return error
        return ExecutionError(
            f"the worker of {worker} on {node} failed: {found}.",
            hint="how='loop' runs the environments in this process, which shows the whole traceback.",
        )

    def _check_versions(self, worker: Worker, answer: Mapping[str, Any]) -> None:
        here, there = versions(), answer["value"]
        if there:
            found = ", ".join(f"{name} {x} instead of {here[name]}" for name, x in there.items())
            raise ExecutionError(
                f"the worker of {worker} on {answer['node']} has {found}.",
                hint="install equal versions of Python and timerl-nb on all machines.",
            )

    def _copy(self, worker: Worker, part: BatchInProgress, piece: Mapping[str, Any]) -> None:
        """Copy the arrays of a part from the object store into the memory of the batch."""
        for name in _LARGE:
            into: dict[str, Array] = getattr(part, name)
            for key, x in piece[name].items():
                is_last = name == "arrays" and key in ("last_obs", "last_action_mask")
                self._copy_rows(into, key, x, worker, axis=0 if is_last else 1)
        part.copies += sum(len(piece[name]) for name in _LARGE)
        part.received[worker] = {
            "final": {name: np.array(x) for name, x in piece["final"].items()},
            "episodes": tuple(np.array(x) for x in piece["episodes"]),
            "count": piece["count"],
            "speed": piece["speed"],
            "names": {key for name in _LARGE for key in piece[name]},
        }
        part.requests[worker] = None  # releases the object
        worker.deaths = 0

    def _copy_rows(
        self, into: dict[str, Array], name: str, x: Array, worker: Worker, axis: int
    ) -> None:
        shape = (*x.shape[:axis], self._task.envs, *x.shape[axis + 1 :])
        if name not in into:
            into[name] = memory(shape, x.dtype)
        whole = into[name]
        if whole.shape != shape or whole.dtype != x.dtype:
            raise ShapeError(
                f"the policy's {name} is {x.dtype}{list(x.shape)} for {worker}, but "
                f"{whole.dtype}{list(whole.shape)} for all environments.",
                hint="return equal shapes and element types for all observations.",
            )
        whole[(slice(None),) * axis + (worker.rows,)] = x

    def _joined(self, part: BatchInProgress) -> Batch:
        """Return the batch of all parts."""
        pieces = [(worker, part.received[worker]) for worker in self._workers]
        check_equal_names(pieces)
        finals = [
            piece["final"] | {"env": piece["final"]["env"] + w.rows.start} for w, piece in pieces
        ]
        merged = {name: np.concatenate([f[name] for f in finals]) for name in finals[0]}
        order = np.lexsort((merged["env"], merged["step"]))
        results = [
            np.concatenate(x)[order] for x in zip(*(p["episodes"] for _, p in pieces), strict=True)
        ]
        ended = Ended.from_results(
            final=Ends(**{name: x[order] for name, x in merged.items()}),
            episodes=Episodes(*results),
            count=sum(piece["count"] for _, piece in pieces),
            restarts=tuple(self._restarts),
        )
        states = self._task.acting.tree_of(part.states) if part.states else {}
        more = {"extras": part.extras, "states": states, "policy_version": part.version}
        return Batch(**part.arrays, **more, _ended=ended)

    def close(self) -> None:
        """Close the environments and end all actors."""
        part = self._part
        busy = set[Worker]()
        if part is not None:
            busy = {w for w in part.requests if w not in part.received}
        idle = [w for w in self._workers if w not in busy and w.actor and w.opening is None]
        with suppress(Exception, SystemExit):
            with self._session.connected():
                closing = [w.actor.close.remote() for w in idle]
            until = monotonic() + _CLOSING
            while closing and monotonic() < until:
                done = self._session.wait(closing, until - monotonic(), len(closing))
                closing = [ref for ref in closing if ref not in done]
        for worker in self._workers:
            if worker.actor is not None:
                self._session.kill(worker.actor)
        self._workers, self._part, self._sent = [], None, (None, None)
        self._session.close()


def _for_transfer(x: Any) -> Any:
    """Return a weight in the memory of the host; other values, such as a module's extra state, are unchanged."""
    if hasattr(x, "cpu"):
        return x.cpu()
    return np.asarray(x) if hasattr(x, "dtype") else x


@contextmanager
def _by_value(ray: Any) -> Iterator[None]:
    """Pickle the actor's module by value inside of this context."""
    ray.cloudpickle.register_pickle_by_value(actor_process)
    try:
        yield
    finally:
        with suppress(ValueError):  # another thread has done it
            ray.cloudpickle.unregister_pickle_by_value(actor_process)
