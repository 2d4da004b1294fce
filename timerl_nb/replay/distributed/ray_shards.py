"""Shards of a replay buffer in processes of Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.ray_session import RaySession, reason_of_death
from timerl_nb.execution.control.pause_and_stop import Stopped
from timerl_nb.replay.distributed.ray_actor_pool import ENVIRONMENT, POLL
from timerl_nb.replay.distributed.replay_shard import (
    NO_ROWS,
    Pending,
    ReplayShard,
    RowsLost,
    ShardDraw,
    ShardHandle,
    ShardLost,
    ShardReport,
)
from timerl_nb.replay.storage.replay_buffer import Replay, construction_of

_CPUS: Final = 0.001  # a shard needs memory; Ray ignores the node of a process without a CPU
_PATIENCE: Final = 300.0  # seconds for the start of a shard


class RayShard:
    """Access to a shard in a process of Ray.

    Args:
        is_stopping: a function that returns whether the run was stopped.
    """

    def __init__(
        self, session: RaySession, actor: Any, number: int, is_stopping: Callable[[], bool]
    ) -> None:
        self._session, self.actor, self._number = session, actor, number
        self._is_stopping = is_stopping
        self._has_answered = False

    def add(self, entries: Any, first: int, last: int, priority: float) -> Pending[ShardReport]:
        return self._call("add", entries, first, last, priority)

    def draw(
        self, targets: Array, total: float, serial: Array = NO_ROWS, errors: Array = NO_ROWS
    ) -> Pending[ShardDraw]:
        return self._call("draw", targets, total, serial, errors)

    def state(self) -> Pending[dict[str, Array]]:
        return self._call("state")

    def load_state(self, state: Mapping[str, Array]) -> Pending[ShardReport]:
        return self._call("load_state", dict(state))

    def _call(self, method: str, *given: Any) -> Pending[Any]:
        session, ray = self._session, self._session.ray
        own = self.actor._actor_id.hex()
        try:
            with session.connected():
                asked = getattr(self.actor, method).remote(*given)
        except (Exception, SystemExit) as error:  # the latter: Ray is shut down
            session.raise_explained(error)

        def wait() -> Any:
            known = ray.exceptions
            try:
                return self._answer(asked)
            except known.RayActorError as error:
                if error.actor_id in (None, own):
                    raise ShardLost(reason_of_death(error)) from error
                raise RowsLost(reason_of_death(error)) from error
            except known.ObjectLostError as error:
                raise RowsLost("the node with its entries was removed") from error
            except (Exception, SystemExit) as error:  # the latter: Ray is shut down
                session.raise_explained(error)

        return wait

    def _answer(self, asked: Any) -> Any:
        """Wait for the result of a call.

        Raises:
            Stopped: the run was stopped before the shard has started.
            ExecutionError: the shard does not start, or Ray was shut down.
        """
        session, ray, begun = self._session, self._session.ray, time.monotonic()
        while True:
            if session.wait([asked], POLL):
                self._has_answered = True
                with session.connected():
                    return ray.get(asked)
            if not self._has_answered and self._is_stopping():
                raise Stopped
            if not self._has_answered and time.monotonic() - begun > _PATIENCE:
                raise ExecutionError(
                    f"Ray has not started shard {self._number} in {_PATIENCE:.0f} s: {session.free_cpus} of "
                    f"{session.cpus} CPUs are free.",
                    hint="end other jobs of the cluster, or choose fewer shards.",
                )

    def close(self) -> None:
        self._session.kill(self.actor)


def ray_shards(
    session: RaySession, like: Replay, is_stopping: Callable[[], bool]
) -> Callable[[int, int], ShardHandle]:
    """Return a function that opens a shard with a number and a capacity.

    Args:
        like: a buffer with the fields and options of the whole.
        is_stopping: a function that returns whether the run was stopped.
    """
    fields, options = construction_of(like)
    given = {**options, "limiter": None}  # the limiter counts the rows of all shards

    def open_shard(number: int, capacity: int) -> RayShard:
        place = session.node_for(number)
        with session.connected():
            shard = session.ray.remote(ReplayShard).options(
                num_cpus=_CPUS, max_restarts=0, scheduling_strategy=place, runtime_env=ENVIRONMENT
            )
            actor = shard.remote(capacity, fields, **given)
            return RayShard(session, actor, number, is_stopping)

    return open_shard
