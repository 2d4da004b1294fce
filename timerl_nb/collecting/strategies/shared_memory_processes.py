"""Strategy "processes": Gymnasium's environments in processes, at most one per core."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError
from timerl_nb.base.machine_model import cores
from timerl_nb.base.options import variable
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.gymnasium_loop import Loop, warn_of_infinite
from timerl_nb.collecting.strategies.host_stepping import Stepping
from timerl_nb.env import action_masks, environment_shard, indexed_environment
from timerl_nb.env.action_masks import Masks, Rows, joined
from timerl_nb.env.gymnasium import GymEnvironment, distinct_seeds, gymnasium


class Processes(Loop):
    name = "processes"
    what = "Gymnasium's environments, divided among processes"

    def make_stepping(self, task: Task, seed: int) -> Stepping:
        assert task.gym is not None
        return ProcessStepping(task.gym, distinct_seeds(seed, task.envs))


class _Failed(Exception):
    """Error of an environment: its number and the text."""


class ProcessStepping:
    """Environments in processes, with observations in shared memory.

    Processes are spawned, because a forked process may deadlock after JAX has started threads.
    """

    restarts_at_once = True

    def __init__(self, env: GymEnvironment, seeds: Sequence[int]) -> None:
        many = len(seeds)
        self.space, self.seeds = env.spaces[1], seeds
        width = ceil(many / min(many, cores()))
        parts = [range(many)[k : k + width] for k in range(0, many, width)]
        self._parts = parts
        folder = mkdtemp(prefix="timerl-")
        self._remove = finalize(self, rmtree, folder, ignore_errors=True)
        file = Path(folder, "at")
        self._at = np.memmap(file, np.int64, "w+", shape=len(parts))
        self._actions: Any = None
        self._asked = False
        one = partial(environment_shard.Share, env.spec, env.spaces, width, str(file))
        makes = [partial(one, k, part, [seeds[n] for n in part]) for k, part in enumerate(parts)]
        vector = gymnasium().vector
        self._env = vector.AsyncVectorEnv.__new__(vector.AsyncVectorEnv)
        mode = vector.AutoresetMode.DISABLED
        try:
            with _by_value():
                self._env.__init__(makes, copy=False, context="spawn", autoreset_mode=mode)
        except BaseException as error:
            for process in getattr(
                self._env, "processes", ()
            ):  # its constructor failed, so it cannot end them itself
                if process.pid is not None:
                    process.kill()
                    process.join()
            self._env.closed = True
            self._remove()
            if not isinstance(error, EOFError | OSError):
                raise
            raise EnvError(
                f"the processes of the environments did not start ({type(error).__name__}).",
                hint="put the script's code under if __name__ == '__main__':, because each process imports "
                "the script; or use how='loop'.",
            ) from error

    def reset(self) -> tuple[Any, Rows | None]:
        obs, more = self._answer(self._env.reset)
        masks = self._masks(more, np.zeros(len(self.seeds), bool))
        return self._rows(obs), None if masks is None else masks.now

    def step(self, action: Array) -> tuple[Any, Any, Any, Any, Any, Masks | None]:
        obs, reward, terminated, truncated, more = self._answer(
            self._env.step, self._shared_out(action)
        )
        last = (
            np.concatenate([x for (x,) in more["last"][more["_last"]]]) if "last" in more else None
        )
        rows = self._rows
        terminated, truncated = rows(terminated), rows(truncated)
        masks = self._masks(more, np.logical_or(terminated, truncated)) if "masks" in more else None
        return rows(obs), rows(reward), terminated, truncated, last, masks

    def _masks(self, more: dict[str, Any], over: Array) -> Masks | None:
        """Return the masks of actions in the infos of all processes."""
        if "masks" not in more:
            return None
        pairs = zip(more["masks"], more["_masks"], strict=True)
        told = [one if there else (None, None) for one, there in pairs]
        ended = [int(over[part.start : part.stop].sum()) for part in self._parts]
        now = joined([None if x is None else Rows(*x) for x, _ in told], [*map(len, self._parts)])
        return Masks(now, joined([None if x is None else Rows(*x) for _, x in told], ended))

    def _answer(self, ask: Any, *given: Any) -> Any:
        self._asked = True
        made = ask(*given)
        self._asked = False
        more = made[-1]
        if "failed" in more:
            raise _Failed(*more["failed"][more["_failed"]][0])
        if "infinite" in more:
            warn_of_infinite()
        return made

    def _shared_out(self, action: Array) -> Array:
        """Return the actions of each process, padded to equal numbers."""
        parts = len(self._env.processes)
        if self._actions is None:
            width = self._env.single_action_space.shape[0]
            self._actions = np.zeros((parts * width, *action.shape[1:]), action.dtype)
        self._actions[: len(action)] = action
        return self._actions.reshape(parts, -1, *action.shape[1:])

    def _rows(self, x: Any) -> Any:
        return x.reshape(-1, *x.shape[2:])[: len(self.seeds)]

    def at_fault(self, error: Exception) -> tuple[Sequence[int], str]:
        if isinstance(error, _Failed):
            number, said = error.args
            return [number], said
        said = f"{type(error).__name__}: {error}"
        for k, process in enumerate(self._env.processes):
            process.join(0.2)  # its end of the pipe closes before the process ends
            if not process.is_alive():
                return [int(self._at[k])], f"its process ended with exit code {process.exitcode}"
        return range(len(self.seeds)), said

    def close(self) -> None:
        """End the processes; idle ones close their environments first."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of interrupted processes
            try:
                self._env.close(terminate=self._asked)
            except Exception:  # a process has already ended
                for process in self._env.processes:
                    process.kill()
                    process.join()
                self._env.closed = True
        self._remove()


_SENT = (action_masks, indexed_environment, environment_shard)
_ONE_AT_A_TIME = Lock()  # the registration of modules is global


@contextmanager
def _by_value() -> Iterator[None]:
    """Pickle the environments' modules by value inside of this context."""
    import cloudpickle

    with _ONE_AT_A_TIME:
        for module in _SENT:
            cloudpickle.register_pickle_by_value(module)
        try:
            with variable(
                "PYTHONSAFEPATH", "1"
            ):  # spawned processes must not import from the current folder
                yield
        finally:
            for module in _SENT:
                cloudpickle.unregister_pickle_by_value(module)
