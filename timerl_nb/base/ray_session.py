"""Connection to Ray: import, version check, start, messages, and shutdown by the last user.

A Ray instance that the user has initialised is not shut down. An instance started by this module ends with its last
session.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from threading import RLock
from time import monotonic, sleep
from typing import Any, Final, NoReturn

from timerl_nb.base.errors import ExecutionError, MissingPartError, TimeRLError
from timerl_nb.base.options import ray_address

OLDEST: Final = (2, 60)  # as in pyproject.toml
INSTALL: Final = 'pip install "timerl-nb[ray]"'
_LONGEST: Final = 300  # characters of Ray's texts in a message
_NOTES: Final = {  # beginnings of messages that every start repeats, by module
    "authentication.authentication_token_setup": "Token authentication is enabled for this",
    "worker": "SIGTERM handler is not set",
}
_SLICE: Final = 0.01  # seconds of one wait, during which other threads cannot call Ray
_PAUSE: Final = 0.0001  # seconds between two waits, for these threads

_LOCK = RLock()
_STARTED: Counter[tuple[str, str]] = Counter()  # users of each instance that was started here
_ENDED: set[tuple[str, str]] = set()  # instances that another thread shuts down


def why_no_ray() -> str | None:
    """Return the reason why Ray cannot be used; None if it can."""
    if find_spec("ray") is None:
        return f"Ray is not installed: {INSTALL}"
    return _why_too_old()


def _why_too_old() -> str | None:
    try:
        found = version("ray")
    except PackageNotFoundError:  # a copy without metadata; importing it reports problems
        return None
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return f"Ray {found} is older than {oldest}: {INSTALL.replace('install', 'install -U')}"
    return None


def import_ray() -> Any:
    """Return the module Ray.

    Raises:
        MissingPartError: Ray cannot be imported, or is too old.
    """
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise MissingPartError(
            f"Ray cannot be imported: {error}.", hint=f"install the extra: {INSTALL}."
        ) from error
    why = _why_too_old()
    if why is not None:
        raise MissingPartError(f"{why.partition(':')[0]}.", hint=f"install the extra: {INSTALL}.")
    return ray


@dataclass(frozen=True)
class RaySession:
    """Use of a Ray instance, from `open` until `close`.

    Attributes:
        ray: the module.
        identity: session and job; different after another `ray.init`.
        user: the user of Ray in messages, such as "a collector".
    """

    ray: Any
    identity: tuple[str, str]
    user: str

    @staticmethod
    def open(user: str) -> RaySession:
        """Use the initialised Ray instance, or else start one, or connect to the cluster in RAY_ADDRESS.

        Args:
            user: the user of Ray in messages, such as "a collector".

        Raises:
            ExecutionError: Ray does not start.
            MissingPartError: Ray cannot be imported, or is too old.
        """
        ray = import_ray()
        with _LOCK:
            is_own = not ray.is_initialized()
            if is_own:
                _start(ray, user)
            found = RaySession(ray, _identity_of(ray), user)
            if is_own or _STARTED[found.identity]:
                _STARTED[found.identity] += 1
            return found

    @property
    def is_alive(self) -> bool:
        """Whether this Ray instance is still initialised."""
        if self.identity in _ENDED:
            return False
        try:
            return self.ray.is_initialized() and _identity_of(self.ray) == self.identity
        except Exception:  # it is shut down meanwhile
            return False

    def check_alive(self, cause: BaseException | None = None) -> None:
        """Check that this Ray instance is still initialised. Call this first: functions of Ray start another one.

        Args:
            cause: an error of Ray. It raises SystemExit if another thread shuts it down.

        Raises:
            ExecutionError: Ray was shut down.
        """
        if isinstance(cause, SystemExit):
            _ENDED.add(self.identity)
        if not self.is_alive:
            raise ExecutionError(
                f"Ray was shut down while {self.user} used it.",
                hint=f"call ray.shutdown() after the end of {self.user}.",
            ) from cause

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Let other threads shut Ray down only after this block, which should be short.

        Ray ends the whole process if a thread calls it after its shutdown.

        Raises:
            ExecutionError: Ray was shut down.
        """
        with _shutdown_lock():
            self.check_alive()
            yield

    def wait(self, references: Sequence[Any], seconds: float, count: int = 1) -> list[Any]:
        """Return the results that exist, at most `count`; none if there is none after a time.

        Other threads can call Ray, or shut it down, about every 10 ms.

        Raises:
            ExecutionError: Ray was shut down.
        """
        until = monotonic() + seconds
        while True:
            rest = until - monotonic()
            with self.connected():
                done, _ = self.ray.wait(
                    list(references), num_returns=count, timeout=min(_SLICE, max(0.0, rest))
                )
            if done or rest <= _SLICE:
                return done
            sleep(_PAUSE)

    @property
    def cpus(self) -> int:
        """Number of CPUs of the cluster."""
        with self.connected():
            return int(self.ray.cluster_resources().get("CPU", 0))

    @property
    def free_cpus(self) -> int:
        """Number of CPUs that no actor or task has reserved."""
        with self.connected():
            return int(self.ray.available_resources().get("CPU", 0))

    def node_for(self, number: int) -> Any:
        """Return a scheduling strategy that places processes with consecutive numbers on nodes in turn.

        If a node has ended, Ray chooses another one. It ignores the strategy of a process without a CPU.
        """
        with self.connected():
            here = self.ray.get_runtime_context().get_node_id()
            alive = [one["NodeID"] for one in self.ray.nodes() if one["Alive"]]
        nodes = [here, *sorted(set(alive) - {here})]
        strategies = import_module("ray.util.scheduling_strategies")
        return strategies.NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=True)

    def explain(self, error: BaseException, what: str = "Ray failed") -> TimeRLError:
        """Return an error of Ray as one of this package.

        Args:
            error: the error; `SystemExit` in a thread that waited for a Ray that was shut down.
            what: the failed action, the beginning of the message.
        """
        cause = getattr(error, "cause", None)
        if isinstance(
            cause, TimeRLError
        ):  # of a task, whose error has the traceback of its process as a text
            return cause
        if isinstance(error, TimeRLError):
            return error
        try:
            self.check_alive(error)
        except ExecutionError as found:
            return found
        missing = re.search(r"No module named '?([\w.]+)", str(error))
        if missing:
            return missing_on_worker(missing[1])
        known = self.ray.exceptions
        said = f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
        causes = (error, cause)
        if any(isinstance(e, known.ObjectStoreFullError | known.OutOfDiskError) for e in causes):
            return ExecutionError(
                f"the object store of Ray is full. {said}",
                hint="choose fewer steps or environments, or start Ray with a larger object_store_memory and "
                "disk space for its folder.",
            )
        return ExecutionError(said, hint="see the logs of Ray in /tmp/ray/session_latest/logs.")

    def raise_explained(self, error: BaseException, what: str = "Ray failed") -> NoReturn:
        """Raise an error of Ray as one of this package; errors of this package keep their own cause.

        Args:
            error, what: see `explain`.
        """
        explained = self.explain(error, what)
        if explained is error:
            raise error
        if explained is getattr(error, "cause", None):
            raise explained from None
        raise explained from error

    def kill(self, actor: Any) -> None:
        """End an actor; no effect if it or Ray has already ended."""
        with suppress(Exception), self.connected():
            self.ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """Shut Ray down if it was started here and has no other user. Call this once."""
        with _LOCK:
            if not _STARTED[self.identity]:
                return
            _STARTED[self.identity] -= 1
            if not _STARTED[self.identity] and self.is_alive:
                self.ray.shutdown()


def missing_on_worker(
    module: str, said: str = "", worker: str = "a worker of Ray"
) -> MissingPartError:
    """Return the error for a module that a worker cannot import.

    Args:
        said: the message of the import.
        worker: the worker.
    """
    package = module.partition(".")[0]
    return MissingPartError(
        f"{worker} cannot import {module}{f' ({said})' if said else ''}.",
        hint=f"install the package on every machine, or pass it to Ray before: "
        f"ray.init(runtime_env={{'pip': ['{package}']}}).",
    )


def reason_of_death(error: BaseException) -> str:
    """Return why an actor has died, from Ray's error, on one line."""
    first, *others = str(error).splitlines() or [type(error).__name__]
    reasons = [one for one in others if one.strip() and not one.startswith("\t")]
    said = " ".join(" ".join(reasons or [first]).split())
    return said.partition(" Some common causes")[0][:_LONGEST].rstrip(".")


def _shutdown_lock() -> AbstractContextManager[object]:
    """Return the lock that Ray holds during a shutdown; versions without it are not protected."""
    return getattr(import_module("ray._private.worker"), "_connect_or_shutdown_lock", nullcontext())


def _identity_of(ray: Any) -> tuple[str, str]:
    here = ray.get_runtime_context()
    return here.get_session_name(), here.get_job_id()


@contextmanager
def _without_notes() -> Iterator[None]:
    """Omit two messages of Ray about any start: a local instance has tokens, and a thread has no signal handlers."""
    loggers = [logging.getLogger(f"ray._private.{name}") for name in _NOTES]
    for logger in loggers:
        logger.addFilter(_is_no_note)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_no_note)


def _is_no_note(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(tuple(_NOTES.values()))


def _start(ray: Any, user: str) -> None:
    try:
        with warnings.catch_warnings(), _without_notes():
            # Ray's forked processes execute another program immediately, so forking with threads is safe
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)  # about later versions of Ray
            quiet = {"log_to_driver": False, "configure_logging": False}
            if ray_address():
                ray.init(**quiet)
                return
            # without an address, Ray would also try the last cluster of this machine, which may have ended; its default
            # niceness of 15 stops workers almost entirely on a loaded machine
            same = {"worker_niceness": 0}
            ray.init("local", include_dashboard=False, _system_config=same, **quiet)
    except Exception as error:
        with suppress(Exception):
            ray.shutdown()
        hint = (
            "check the environment variables RAY_ADDRESS and, for a cluster with tokens, RAY_AUTH_MODE=token, and that "
            f"driver and cluster have equal versions of Ray and Python; or call ray.init(…) before {user}."
        )
        if "timed out during startup" in str(error):
            hint = "the machine is probably busy: end other programs, then try again."
        raise ExecutionError(
            f"Ray does not start: {type(error).__name__}: {error}", hint=hint
        ) from error
