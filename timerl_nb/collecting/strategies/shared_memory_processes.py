"""Strategy "processes": Gymnasium's environments in processes, at most one per core."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil
from multiprocessing.connection import wait
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock
from typing import Any, Final
from weakref import finalize

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError
from timerl_nb.base.machine_model import cores
from timerl_nb.base.options import variable
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategies.asynchronous_stepping import AsynchronousStepping, Received
from timerl_nb.collecting.strategies.gymnasium_loop import Loop, warn_of_infinite
from timerl_nb.collecting.strategies.host_stepping import Stepping
from timerl_nb.env import action_masks, environment_shard, indexed_environment
from timerl_nb.env.action_masks import Masks, Rows, joined
from timerl_nb.env.gymnasium import GymEnvironment, distinct_seeds, gymnasium


class Processes(Loop):
    name = "processes"
    what = "Gymnasium's environments, divided among processes"
    is_asynchronous = True

    def make_stepping(self, task: Task, seed: int) -> Stepping:
        assert task.gym is not None
        return ProcessStepping(task.gym, distinct_seeds(seed, task.envs))

    def make_asynchronous(self, task: Task, seed: int) -> AsynchronousStepping:
        assert task.gym is not None and task.ready is not None
        return AsynchronousProcesses(task.gym, distinct_seeds(seed, task.envs), task.ready)


class _Failed(Exception):
    """Error of an environment: its number and the text."""


class ProcessStepping:
    """Environments in processes, with observations in shared memory.

    Processes are spawned, because a forked process may deadlock after JAX has started threads.
    """

    restarts_at_once = True

    def __init__(
        self, env: GymEnvironment, seeds: Sequence[int], processes: int | None = None
    ) -> None:
        many = len(seeds)
        self.space, self.seeds = env.spaces[1], seeds
        width = ceil(many / (processes or min(many, cores())))
        parts = [range(many)[k : k + width] for k in range(0, many, width)]
        self._parts = parts
        folder = mkdtemp(prefix="timerl-")
        self._remove = finalize(self, rmtree, folder, ignore_errors=True)
        file = Path(folder, "at")
        self._at = np.memmap(file, np.int64, "w+", shape=len(parts))
        self._actions: Any = None
        self._is_stepping = False
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
            self._env.step, self._split_actions(action)
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
        self._is_stepping = True
        made = ask(*given)
        self._is_stepping = False
        more = made[-1]
        if "failed" in more:
            raise _Failed(*more["failed"][more["_failed"]][0])
        if "infinite" in more:
            warn_of_infinite()
        return made

    def _split_actions(self, action: Array) -> Array:
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
                self._env.close(terminate=self._is_stepping)
            except Exception:  # a process has already ended
                for process in self._env.processes:
                    process.kill()
                    process.join()
                self._env.closed = True
        self._remove()


class AsynchronousProcesses(ProcessStepping):
    """Environments that step asynchronously, in a process each.

    Args:
        env: the environment.
        seeds: seed of each environment.
        ready: number of environments per result.
    """

    def __init__(self, env: GymEnvironment, seeds: Sequence[int], ready: int) -> None:
        super().__init__(env, seeds, len(seeds))
        self._ready = ready
        self._busy: dict[Any, int] = {}  # pipes of environments at work, with their numbers
        # environments with a result, in order of arrival
        self._arrived: deque[tuple[int, Any]] = deque()

    def start(self) -> None:
        for number, pipe in enumerate(self._env.parent_pipes):
            self._busy[pipe] = number
            pipe.send(("reset", {}))

    def send(self, ids: Array, action: Array) -> None:
        for number, one in zip(ids.tolist(), action, strict=True):
            pipe = self._env.parent_pipes[number]
            self._busy[pipe] = number
            try:
                pipe.send(("step", one[None].copy()))
            except OSError as error:
                raise self._ended(number) from error

    def receive(self) -> Received:
        while len(self._arrived) < self._ready:
            self._take_results(None)
        taken = [self._arrived.popleft() for _ in range(self._ready)]
        ids = np.array([number for number, _ in taken], np.int64)
        reward, terminated, truncated = (
            np.concatenate([made[k] if len(made) > 2 else np.zeros(1) for _, made in taken])
            for k in (1, 2, 3)
        )
        infos = [made[-1] for _, made in taken]
        for number, more in zip(ids, infos, strict=True):
            if "failed" in more:
                raise _Failed(int(number), more["failed"][1])
        if any("infinite" in more for more in infos):
            warn_of_infinite()
        last = [more["last"][0] for more in infos if "last" in more]
        told = [more.get("masks", (None, None)) for more in infos]
        now, final = (
            [x if x is None else Rows(*x) for x in rows] for rows in zip(*told, strict=True)
        )
        over = np.logical_or(terminated, truncated)
        masks = Masks(joined(now, [1] * len(ids)), joined(final, [*map(int, over)]))
        obs = self._env.observations[ids, 0]
        ended = np.concatenate(last) if last else None
        return Received(ids, obs, reward, terminated != 0, truncated != 0, ended, masks)

    def _take_results(self, seconds: float | None) -> bool:
        """Wait for a result, take all that have arrived, and return whether there are any."""
        pipes: list[Any] = wait([*self._busy], seconds)
        for pipe in pipes:
            number = self._busy.pop(pipe)
            try:
                made, is_made = pipe.recv()
            except (EOFError, OSError) as error:
                raise self._ended(number) from error
            if not is_made:
                _, kind, value, _ = self._env.error_queue.get()
                raise _Failed(number, f"{kind.__name__}: {value}")
            self._arrived.append((number, made))
        return bool(pipes)

    def _ended(self, number: int) -> _Failed:
        process = self._env.processes[number]
        process.join(_PATIENCE)
        return _Failed(number, f"its process ended with exit code {process.exitcode}")

    def close(self) -> None:
        """End the processes; those that do not finish their steps soon are killed."""
        try:
            while self._busy and self._take_results(_PATIENCE):
                pass
        except _Failed:
            pass
        self._is_stepping = bool(self._busy)
        super().close()


_PATIENCE: Final = 2.0  # seconds until a process at work is killed
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
