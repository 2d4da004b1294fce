"""Strategies "ray" and "ray-threads": groups of environments in workers of a Ray cluster."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from timerl_nb.base.errors import OptionError
from timerl_nb.base.ray_session import import_ray, why_no_ray
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.ray_actors.ray_batches import RayTurns
from timerl_nb.collecting.strategies.envpool_threads import Threads
from timerl_nb.collecting.strategies.gymnasium_loop import Loop
from timerl_nb.collecting.strategies.host_stepping import HostWay
from timerl_nb.collecting.strategy import Prepared, Way


class RayWorkers(Way):
    """Groups of environments in workers of Ray; each group steps by a strategy of one process."""

    name = "ray"
    provenance = Loop.provenance
    what = "Gymnasium's environments, in workers of a Ray cluster"
    group: HostWay = Loop()

    def why_not(self, task: Task) -> str | None:
        if not task.is_clustered:
            return 'pass cluster="ray", which allows workers of Ray'
        missing = why_no_ray()
        if missing is not None:
            return missing
        return self.group.why_not(task)

    def prepared(self, task: Task) -> Prepared:
        import_ray()
        env = task.env if self.group.provenance != Loop.provenance else task.gym
        acting = task.acting.for_worker()
        plain = replace(task, env=env, acting=None, workers=None, is_clustered=False)  # type: ignore[arg-type]
        payload = {
            "policy": _pickled(acting, "policy", getattr(task.acting, "function", acting)),
            "environment": _pickled((self.group, plain), "environment", env),
        }
        return lambda seed: RayTurns(task, payload, seed)


class RayThreads(RayWorkers):
    name = "ray-threads"
    provenance = Threads.provenance
    what = "EnvPool's environments, in workers of a Ray cluster"
    group = Threads()


def _pickled(x: Any, what: str, culprit: Any) -> bytes:
    """Pickle an object for the workers.

    Args:
        x: the object.
        what: its name in messages.
        culprit: its part that comes from the user.

    Raises:
        OptionError: it cannot be pickled.
    """
    try:
        return import_module("ray.cloudpickle").dumps(x)
    except Exception as error:
        raise OptionError(
            f"the {what} cannot be sent to workers of Ray: {type(error).__name__}: {error}.",
            evidence=[*_unpicklable(culprit, what)],
            hint="create such objects inside of the environment or function, which run in the workers.",
        ) from error


def _unpicklable(x: Any, what: str) -> Mapping[str, None]:
    """Return the names of parts that cannot be pickled, as lines of evidence."""
    inspect = import_module("ray.util").inspect_serializability
    _, failures = inspect(x, name=what, depth=6, print_file=io.StringIO())
    return {f"{f.name} ({type(f.obj).__name__}) cannot be pickled": None for f in failures}
