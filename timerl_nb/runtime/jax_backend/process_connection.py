"""Connection of a process with the others of its program, and its end in a failure."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

import jax

from timerl_nb.base.options import environment
from timerl_nb.runtime.jax_backend.peer_connection import Peers, reach
from timerl_nb.runtime.jax_backend.peer_hub import Failure, Hub
from timerl_nb.runtime.jax_backend.process_group import versions

_PREEMPTION: Final = "jax_enable_preemption_service"
_SHUTDOWN: Final = (
    60  # seconds that JAX waits for the others at the end, after they have reported it
)
_CLEANING: Final = 1.0  # seconds of a failed process for other exit handlers; that of JAX may wait for a lost result
_LOST: Final = 1.5  # seconds until the cause of a lost connection is known
_COLLECTIVE: Final = re.compile(r"Gloo|NCCL|RCCL|[Cc]ollective")
_peers: Peers | None = None


def cluster_arguments(timeout: int) -> dict[str, Any]:
    """Return the arguments for JAX from the variables of a job scheduler; none if JAX does not recognise one."""
    found: Any = sys.modules["jax._src.clusters"]
    names = "coordinator_address", "num_processes", "process_id", "local_device_ids"
    values = found.ClusterEnv.auto_detect_unset_distributed_params(
        None, None, None, None, None, timeout
    )
    named = dict(zip(names, values, strict=True))
    return {} if None in [named[name] for name in names[:3]] else named


def was_jax_used() -> bool:
    """Whether JAX has started a backend, so that the process cannot be connected any more."""
    bridge: Any = sys.modules["jax._src.xla_bridge"]
    return bridge.backends_are_initialized()


def connect(
    named: Mapping[str, Any],
    timeout: int,
    heartbeat: int,
    note: Callable[[Failure], object] = id,
) -> None:
    """Connect this process with the others.

    Args:
        named: arguments of `jax.distributed.initialize`: the coordinator, the number of processes, and that of this one.
        timeout: seconds to wait for the other processes.
        heartbeat: seconds after which a silent process counts as dead.
        note: receives the first failure of the program.

    Raises:
        OSError: the port is in use, processes are missing, or one does not belong to the program.
        RuntimeError: JAX cannot connect.
    """
    global _peers
    address, number, count = (
        named[name] for name in ("coordinator_address", "process_id", "num_processes")
    )
    facts, hub, host = versions(), None, ""
    if number == 0:
        hub = Hub(count, int(address.rpartition(":")[2]))
        connection = hub.meet(facts, timeout)
    else:
        connection, host = reach(address, number, count, facts, timeout)
    peers = _peers = Peers(connection, number, host, hub, note)
    os.register_at_fork(after_in_child=peers.drop)
    asked: Any = jax.config
    if getattr(asked, "jax_cpu_collectives_implementation", "gloo") in (None, "none"):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # the service ignores SIGTERM, by which schedulers end a process
    if _PREEMPTION.upper() not in environment():
        jax.config.update(_PREEMPTION, False)
    try:
        jax.distributed.initialize(
            **named,
            initialization_timeout=max(timeout, 60),
            heartbeat_timeout_seconds=heartbeat,
            shutdown_timeout_seconds=_SHUTDOWN,
        )
    except BaseException as error:
        peers.fail(error)
        peers.close()
        _peers = None
        raise
    _report_errors(peers)
    atexit.register(_at_exit)  # runs before that of JAX, which would wait for failed processes


def disconnect() -> None:
    """Wait until all processes disconnect, and disconnect this one. Without a connection it does nothing.

    Raises:
        ExecutionError: another process has failed.
    """
    global _peers
    peers, _peers = _peers, None
    if peers is None:
        if is_connected():
            jax.distributed.shutdown()
        return
    try:
        done = peers.finish()
    except BaseException:
        _peers = peers
        raise
    if not done:
        _peers = peers
        assert peers.failure is not None
        raise peers.failure.error()
    jax.distributed.shutdown()
    peers.close()


def is_connected() -> bool:
    return jax.distributed.is_initialized()


def report_end(error: BaseException | None) -> None:
    """Report that this process takes part in no further run, because of an error or without one."""
    if _peers is None:
        return
    if error is None:
        _peers.end_early()
    else:
        _peers.fail(error)


def combine(name: str, text: str) -> tuple[str, str]:
    """Return the text of process 0, and the smallest number of all. All processes must call it.

    Raises:
        ExecutionError: another process has failed.
    """
    return (text, text) if _peers is None else _peers.combine(name, text)


@contextmanager
def joint_run(*, several: bool) -> Iterator[None]:
    """Report begin and end of a run of all processes, so that none waits for a process that takes no part.

    Args:
        several: False for a program of one process, which nobody waits for.

    Raises:
        ExecutionError: another process has failed.
    """
    peers = _peers
    if peers is None or not several:
        yield
        return
    peers.enter()
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) and _is_lost_connection(error):
            failure = peers.await_failure(_LOST)
            if failure is not None and failure.process != peers.number:
                raise failure.error() from None
        if peers.failure is None:
            peers.leave(error)
        raise
    peers.leave(None)


def _is_lost_connection(error: BaseException | None) -> bool:
    """Whether an error may come from a collective operation without one of its processes."""
    while error is not None:
        # JAX converts some errors of Gloo to ValueError
        if isinstance(error, jax.errors.JaxRuntimeError) or _COLLECTIVE.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _report_errors(peers: Peers) -> None:
    """Report errors that end the process."""
    before = sys.excepthook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        before(kind, error, trace)
        if peers is _peers:
            peers.fail(error)

    sys.excepthook = report


def _at_exit() -> None:
    """Wait for all processes; after a failure, end without JAX's shutdown, which would wait for minutes."""
    peers = _peers
    if peers is None or not peers.is_own:
        return
    try:
        over = peers.finish()
    except KeyboardInterrupt:
        over = False
    if not over:
        _abandon()
        peers.end_within(_CLEANING)


def _abandon() -> None:
    """Leave JAX's connection open until the process ends."""
    state: Any = sys.modules["jax._src.distributed"].global_state
    for name in ("preemption_sync_manager", "client", "service"):
        part = getattr(state, name)
        if part is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))  # its destructor would wait, too
            setattr(state, name, None)
