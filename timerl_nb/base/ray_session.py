"""Connection of this process to Ray: import, version, start, end, and messages for Ray's errors.

A Ray that the user has initialised stays. A Ray that this module has started ends with its last session.
"""

from __future__ import annotations

import importlib
import re
import threading
import warnings
from typing import Any, Final

from timerl_nb.base.errors import ExecutionError, MissingPartError, TimeRLError

_OLDEST: Final = (2, 60)
_LOCK: Final = threading.RLock()
_OPEN: set[RaySession] = set()
_STARTED: list[object] = []  # identity of the connection that this module has made, if any


def import_ray(purpose: str) -> Any:
    """Return the module of Ray.

    Args:
        purpose: what needs Ray, the subject of the message, such as `how="ray"`.

    Raises:
        MissingPartError: Ray is not installed, or too old.
    """
    try:
        ray = importlib.import_module("ray")
        version = str(ray.__version__)
    except (ImportError, AttributeError) as error:
        raise MissingPartError(
            f"{purpose} needs Ray, which cannot be imported: {error}.",
            hint='pip install "timerl-nb[ray]"',
        ) from error
    found = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if found < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise MissingPartError(
            f"{purpose} needs Ray {oldest} or later; version {version} is installed.",
            hint='pip install "timerl-nb[ray]"',
        )
    return ray


class RaySession:
    """Use of Ray by one object, until `close`.

    The first session connects to the Ray of the user if there is one: an initialised Ray, or the cluster of
    `RAY_ADDRESS` or of `ray start`. Otherwise it starts Ray on this machine.

    Args:
        purpose: what needs Ray, the subject of messages.

    Attributes:
        ray: the module of Ray.

    Raises:
        MissingPartError: Ray is not installed, or too old.
        ExecutionError: Ray does not start.
    """

    def __init__(self, purpose: str) -> None:
        self.ray, self._purpose = import_ray(purpose), purpose
        with _LOCK:
            if not self.ray.is_initialized():
                self._start()
            self._identity = _identity(self.ray)
            _OPEN.add(self)

    def _start(self) -> None:
        with warnings.catch_warnings():
            # Ray's forked processes execute another program immediately, so forking with threads is safe
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            try:
                self.ray.init(include_dashboard=False, configure_logging=False, log_to_driver=False)
            except Exception as error:
                raise ExecutionError(
                    f"{self._purpose} cannot start Ray: {error}",
                    hint="call ray.init(…) before, with the options of your machine or cluster.",
                ) from error
        _STARTED[:] = [_identity(self.ray)]

    @property
    def is_open(self) -> bool:
        """Whether this process still has the connection of this session."""
        return self.ray.is_initialized() and _identity(self.ray) == self._identity

    def check(self) -> None:
        """Check that Ray has not been shut down. Call this first: Ray's functions start a new Ray otherwise.

        Raises:
            ExecutionError: Ray was shut down, or was initialised again.
        """
        if not self.is_open:
            raise ExecutionError(
                f"Ray was shut down while {self._purpose} used it.",
                hint="call ray.shutdown() after the end of the run or the collector.",
            )

    @property
    def cpus(self) -> float:
        """The number of CPUs of all nodes, as Ray counts them."""
        self.check()
        return float(self.ray.cluster_resources().get("CPU", 0.0))

    def explain(self, error: BaseException) -> TimeRLError:
        """Return the error of this library for an error of Ray."""
        if isinstance(error, TimeRLError):
            return error
        if not self.is_open:
            try:
                self.check()
            except ExecutionError as found:
                return found
        known, text = self.ray.exceptions, _first_line(error)
        if isinstance(error, known.ObjectStoreFullError | known.OutOfDiskError):
            return ExecutionError(
                f"the object store of Ray is full: {text}",
                hint="start Ray with a larger store, ray.init(object_store_memory=8 * 2**30), "
                "free space on the disk to which Ray spills objects, or reduce envs or steps.",
            )
        if isinstance(error, known.OutOfMemoryError):
            return ExecutionError(
                f"Ray ended a process, because a machine has no free memory: {text}",
                hint="choose fewer actors per machine, or fewer environments.",
            )
        missing = re.search(r"No module named '?([\w.]+)", str(error))
        if missing:
            return ExecutionError(
                f"a worker of Ray cannot import {missing[1]}.",
                hint=f"install {missing[1].partition('.')[0]} on every machine of the cluster, or pass "
                'ray.init(runtime_env={"pip": […]}) before.',
            )
        return ExecutionError(
            f"Ray failed ({type(error).__name__}): {text}", hint="check the logs of Ray."
        )

    def kill(self, actor: Any) -> None:
        """End an actor; no effect if it or Ray has already ended."""
        if self.is_open:
            try:
                self.ray.kill(actor, no_restart=True)
            except Exception:  # Ray ends in this moment
                return

    def close(self) -> None:
        """End this session. The last session shuts down a Ray that this module has started."""
        with _LOCK:
            if self not in _OPEN:
                return
            _OPEN.discard(self)
            same = [one for one in _OPEN if one._identity == self._identity]
            if not same and _STARTED == [self._identity] and self.is_open:
                _STARTED.clear()
                self.ray.shutdown()


def _identity(ray: Any) -> object:
    """Return what distinguishes the current connection from earlier and later ones."""
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id()


def _first_line(error: BaseException) -> str:
    """Return the cause of a failed task, or the first line of a message."""
    lines = [one.strip() for one in str(error).splitlines() if one.strip()]
    return lines[0] if lines else type(error).__name__
