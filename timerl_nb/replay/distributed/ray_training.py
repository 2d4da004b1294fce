"""Training run whose actors, and optionally whose buffer, are processes of Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.ray_session import RaySession, import_ray
from timerl_nb.collecting.collection_task import Registration
from timerl_nb.execution.control.pause_and_stop import RunControl
from timerl_nb.replay.distributed.actor_environments import SteppingRequest
from timerl_nb.replay.distributed.ray_actor_pool import RayActors, RayPool, RemoteGroup
from timerl_nb.replay.distributed.ray_shards import ray_shards
from timerl_nb.replay.distributed.shard_division import shard_capacities
from timerl_nb.replay.distributed.sharded_replay import NothingToDraw, ShardedReplay
from timerl_nb.replay.storage.replay_buffer import Replay, construction_of
from timerl_nb.replay.storage.sample import Ticket
from timerl_nb.replay.training.algorithm import Algorithm
from timerl_nb.replay.training.learner_thread import LearningStep
from timerl_nb.replay.training.training_protocol import TrainingThread
from timerl_nb.runtime.jax_backend.arrays_and_devices import jax_settings

CLUSTERS = ("ray",)
_PURPOSE = 'cluster="ray"'


@dataclass(frozen=True)
class ClusterRequest:
    """Options of a run on a cluster.

    Attributes:
        stepping: pickled algorithm, environment and options of the actors.
        rows: the number of environment steps of a rollout.
        shards: the number of shards of the buffer; None for a buffer in the learner's process.
    """

    stepping: bytes
    rows: int
    shards: int | None


def check_cluster(cluster: Any, shards: Any, mode: str, policy: Any) -> None:
    """Check the options of a run on a cluster.

    Raises:
        OptionError: an option is unknown, or excludes another one.
    """
    if cluster is None:
        if shards is not None:
            raise OptionError(
                f'shards={shards!r} needs cluster="ray".',
                hint='pass cluster="ray", or omit shards: the buffer is then in this process.',
            )
        return
    if cluster not in CLUSTERS:
        raise OptionError(
            f"cluster={cluster!r} is not supported.", hint=one_of(str(cluster), CLUSTERS)
        )
    if policy is not None:
        raise OptionError(
            f"{_PURPOSE} excludes policy=, which reallocates the threads of one process.",
            hint="pass the number of actors= instead.",
        )
    if shards is not None and mode == "exact":
        raise OptionError(
            f'mode="exact" excludes shards={shards!r}: the draws would depend on the number of shards.',
            hint='omit shards, or choose mode="free".',
        )


def cluster_request(
    algorithm: Algorithm,
    buffer: Replay,
    shards: int | None,
    *,
    envs: int,
    steps: int,
    how: str | None,
    seed: int,
) -> ClusterRequest:
    """Check the options, and pickle the inputs of the processes.

    Raises:
        MissingPartError: Ray is not installed, or too old.
        OptionError: the algorithm cannot be pickled, or the number of shards is out of range.
    """
    ray = import_ray()
    if shards is not None:
        shard_capacities(buffer.capacity, shards)
    fields, options = construction_of(buffer)
    asked = SteppingRequest(
        algorithm,
        fields,
        options,
        envs,
        steps,
        how,
        seed,
        jax_settings(),
        Registration.to_send(algorithm.env),
    )
    try:
        stepping = ray.cloudpickle.dumps(asked)
    except Exception as error:
        raise OptionError(
            f"the algorithm or its environment cannot be sent to other processes: {error}",
            hint="pass the environment by name, and keep files, locks and threads out of the algorithm's attributes.",
        ) from error
    return ClusterRequest(stepping, envs * steps, shards)


def remote_groups(count: int) -> list[RemoteGroup]:
    """Return groups of environments in other processes."""
    return [RemoteGroup(k) for k in range(count)]


class RayTrainingThread(TrainingThread):
    """Training loop of a run on Ray.

    Args:
        session: the connection to Ray; `close` ends it.
        pool: the connection and the request of the actors.
        given: the arguments of `TrainingThread`.
    """

    def __init__(self, session: RaySession, pool: RayPool, *given: Any) -> None:
        self._session, self._stated = session, 0

        def make_actors(groups: Any, latest: Any, ahead: int, again: bool, alike: Any) -> RayActors:
            return RayActors(pool, groups, latest, again)

        super().__init__(*given, make_actors=make_actors)
        self.losses = pool.losses

    def close(self) -> None:
        """End all processes and threads, and a Ray that was started for this run."""
        try:
            super().close()
        finally:
            self._session.close()

    def _begin_step(self) -> tuple[Ticket | None, LearningStep | None]:
        try:
            return super()._begin_step()
        except NothingToDraw:  # all shards have died; their successors wait for rows
            return None, None

    def _insert(self) -> None:
        """Insert each rollout for itself: arrays in the object store are copied into the buffer only."""
        staged, self._staged = self._staged, []
        for block in staged:
            if block.count:
                self._insert_block(block.entries, block.count)

    def _insert_block(self, entries: Mapping[str, Array], count: int) -> None:
        if isinstance(self._buffer, ShardedReplay):
            self._buffer.insert_block(entries, count)
        else:
            self._buffer.insert_entries(entries)

    def _losses_of_turn(self) -> dict[str, float]:
        new, self._stated = self.losses[self._stated :], len(self.losses)
        return {"lost": float(sum(one.rows for one in new))}


def begin_ray_training(
    request: ClusterRequest,
    control: RunControl,
    buffer: Replay,
    make: Callable[[Callable[..., RayTrainingThread], Any], RayTrainingThread],
) -> RayTrainingThread:
    """Connect to Ray, start the shards, and create the training loop.

    Args:
        make: a function that creates the loop from a constructor and a buffer.

    Raises:
        ExecutionError: Ray does not start.
    """
    session = RaySession.open("a training run")
    pool = RayPool(
        session,
        request.stepping,
        request.rows,
        request.shards is not None,
        lambda: control.state == "pending stop",
        [],
    )
    held: Any = buffer
    try:
        if request.shards is not None:
            opened = ray_shards(session, buffer, pool.is_stopping)
            held = ShardedReplay(
                buffer, request.shards, opened, losses=pool.losses, draws_ahead=True
            )
        return make(lambda *given: RayTrainingThread(session, pool, *given), held)
    except BaseException:
        if held is not buffer:
            held.release(None)
        session.close()
        raise
