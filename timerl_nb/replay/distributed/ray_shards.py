"""Shards of a replay buffer in processes of Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.ray_session import RaySession, reason_of_death
from timerl_nb.replay.distributed.ray_actors import ENVIRONMENT
from timerl_nb.replay.distributed.replay_shard import (
    Pending,
    ReplayShard,
    RowsLost,
    ShardDraw,
    ShardHandle,
    ShardLost,
    ShardReport,
)
from timerl_nb.replay.storage.replay_buffer import Replay, construction_of


class RayShard:
    """Access to a shard in a process of Ray."""

    def __init__(self, session: RaySession, actor: Any) -> None:
        self._session, self.actor = session, actor

    def add(self, entries: Any, first: int, last: int, priority: float) -> Pending[ShardReport]:
        return self._call("add", entries, first, last, priority)

    def draw(self, targets: Array, total: float) -> Pending[ShardDraw]:
        return self._call("draw", targets, total)

    def set_errors(self, serial: Array, errors: Array) -> Pending[ShardReport]:
        return self._call("set_errors", serial, errors)

    def state(self) -> Pending[dict[str, Array]]:
        return self._call("state")

    def load_state(self, state: Mapping[str, Array]) -> Pending[ShardReport]:
        return self._call("load_state", dict(state))

    def _call(self, method: str, *given: Any) -> Pending[Any]:
        session, ray = self._session, self._session.ray
        session.check_alive()
        own = self.actor._actor_id.hex()
        try:
            asked = getattr(self.actor, method).remote(*given)
        except Exception as error:
            raise session.explain(error) from error

        def wait() -> Any:
            session.check_alive()
            known = ray.exceptions
            try:
                return ray.get(asked)
            except known.RayActorError as error:
                if error.actor_id in (None, own):
                    raise ShardLost(reason_of_death(error)) from error
                raise RowsLost(reason_of_death(error)) from error
            except known.ObjectLostError as error:
                raise RowsLost("the node with its entries was removed") from error
            except Exception as error:
                raise session.explain(error) from error

        return wait

    def close(self) -> None:
        self._session.kill(self.actor)


def ray_shards(session: RaySession, like: Replay) -> Callable[[int, int], ShardHandle]:
    """Return a function that opens a shard with a number and a capacity.

    Args:
        like: a buffer with the fields and options of the whole.
    """
    fields, options = construction_of(like)
    given = {**options, "limiter": None}  # the limiter counts the rows of all shards

    def open_shard(_: int, capacity: int) -> RayShard:
        session.check_alive()
        # a shard needs memory, not a CPU, so Ray can place it on every node
        shard = session.ray.remote(ReplayShard).options(
            num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD", runtime_env=ENVIRONMENT
        )
        return RayShard(session, shard.remote(capacity, fields, **given))

    return open_shard
