"""Strategies "ray" and "ray-threads": groups of environments in workers of a Ray cluster."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from timerl_nb.base.errors import OptionError
from timerl_nb.base.ray_session import import_ray, why_no_ray
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.ray_actors.random_generators import pickle_for_workers
from timerl_nb.collecting.ray_actors.ray_batches import RayTurns
from timerl_nb.collecting.strategies.envpool_threads import Threads
from timerl_nb.collecting.strategies.gymnasium_loop import Loop
from timerl_nb.collecting.strategies.host_stepping import HostStrategy
from timerl_nb.collecting.strategy import Prepared, Strategy


class RayWorkers(Strategy):
    """Groups of environments in workers of Ray; each group steps by a strategy of one process."""

    name = "ray"
    provenance = Loop.provenance
    what = "Gymnasium's environments, in workers of a Ray cluster"
    group: HostStrategy = Loop()

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
            "policy": _pickled(
                pickle_for_workers, acting, "policy", [getattr(task.acting, "function", acting)]
            ),
            "environment": _pickled(
                import_module("ray.cloudpickle").dumps,
                (self.group, plain),
                "environment",
                _parts_of(env),
            ),
        }
        return lambda seed: RayTurns(task, payload, seed)


class RayThreads(RayWorkers):
    name = "ray-threads"
    provenance = Threads.provenance
    what = "EnvPool's environments, in workers of a Ray cluster"
    group = Threads()


def _parts_of(env: Any) -> Sequence[Any]:
    """Return the objects of the user in an environment."""
    spec = getattr(env, "spec", None)
    if spec is None:
        return [env]
    wrappers = [one.entry_point for one in spec.additional_wrappers]
    return [spec.entry_point, spec.kwargs, *wrappers]


def _pickled(dumps: Callable[[Any], bytes], x: Any, what: str, parts: Sequence[Any]) -> bytes:
    """Pickle an object for the workers.

    Args:
        dumps: pickles it.
        x: the object.
        what: its name in messages.
        parts: its parts that come from the user.

    Raises:
        OptionError: it cannot be pickled.
    """
    try:
        return dumps(x)
    except Exception as error:
        raise OptionError(
            f"the {what} cannot be sent to workers of Ray: {type(error).__name__}: {error}.",
            evidence=[line for part in parts for line in _unpicklable(part, what)],
            hint="create such objects inside of the environment or function, which run in the workers.",
        ) from error


def _unpicklable(x: Any, what: str) -> Iterator[str]:
    """Yield the parts that cannot be pickled, as lines of evidence."""
    with suppress(Exception):  # a developer's interface of Ray, which differs between versions
        inspect = import_module("ray.util.check_serialize").inspect_serializability
        _, failures = inspect(x, name=what, depth=8, print_file=io.StringIO())
        for failure in failures:
            *_, name = getattr(failure, "path", None) or (failure.name,)
            yield f"{name} ({type(failure.obj).__name__}) cannot be pickled"
