"""Connection to Ray: import, version check, start, and shutdown by the last user."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from threading import Lock
from typing import Any, Final

from timerl_nb.base.errors import ExecutionError, MissingPartError

OLDEST: Final = (2, 60)  # as in pyproject.toml
INSTALL: Final = "pip install 'timerl-nb[ray]'"

_LOCK = Lock()
_STARTED: Counter[tuple[str, str]] = Counter()  # users of each instance that was started here


def why_no_ray() -> str | None:
    """Return the reason why Ray cannot be used; None if it can."""
    if find_spec("ray") is None:
        return f"Ray is not installed: {INSTALL}"
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
        MissingPartError: Ray cannot be imported.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise MissingPartError(
            f"Ray cannot be imported: {error}.", hint=f"install the extra: {INSTALL}."
        ) from error


@dataclass(frozen=True)
class RaySession:
    """Use of a Ray instance, from `open` until `close`.

    Attributes:
        ray: the module.
        identity: session and job; different after another `ray.init`.
    """

    ray: Any
    identity: tuple[str, str]

    @staticmethod
    def open() -> RaySession:
        """Use the initialised Ray instance, or else start one, or connect to the cluster in RAY_ADDRESS.

        Raises:
            ExecutionError: Ray does not start.
            MissingPartError: Ray cannot be imported.
        """
        ray = import_ray()
        with _LOCK:
            is_own = not ray.is_initialized()
            if is_own:
                _start(ray)
            found = RaySession(ray, _identity_of(ray))
            if is_own or _STARTED[found.identity]:
                _STARTED[found.identity] += 1
            return found

    @property
    def is_alive(self) -> bool:
        """Whether this Ray instance is still initialised."""
        try:
            return self.ray.is_initialized() and _identity_of(self.ray) == self.identity
        except Exception:  # it is shut down meanwhile
            return False

    def check_alive(self, cause: BaseException | None = None) -> None:
        """Check that this Ray instance is still initialised.

        Raises:
            ExecutionError: Ray was shut down.
        """
        if not self.is_alive:
            raise ExecutionError(
                "Ray was shut down while a collector used it.",
                hint="close collectors before ray.shutdown(), and create a new collector.",
            ) from cause

    @property
    def cpus(self) -> int:
        """Number of CPUs of the cluster."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    @property
    def free_cpus(self) -> int:
        """Number of CPUs that no actor or task has reserved."""
        return int(self.ray.available_resources().get("CPU", 0))

    def close(self) -> None:
        """Shut Ray down if it was started here and has no other user."""
        with _LOCK:
            if not _STARTED[self.identity]:
                return
            _STARTED[self.identity] -= 1
            if not _STARTED[self.identity] and self.is_alive:
                self.ray.shutdown()


def _identity_of(ray: Any) -> tuple[str, str]:
    here = ray.get_runtime_context()
    return here.get_session_name(), here.get_job_id()


def _start(ray: Any) -> None:
    try:
        with warnings.catch_warnings():
            # Ray's forked processes execute another program immediately, so forking with threads is safe
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)  # about later versions of Ray
            ray.init(log_to_driver=False, configure_logging=False, include_dashboard=False)
    except Exception as error:
        with suppress(Exception):
            ray.shutdown()
        raise ExecutionError(
            f"Ray does not start: {type(error).__name__}: {error}",
            hint="check the environment variable RAY_ADDRESS, and that driver and cluster have equal "
            "versions of Ray and Python; or call ray.init(…) before trl.collect.",
        ) from error
