"""Processes of a distributed program as actors of Ray."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.base.options import environment
from timerl_nb.base.ray_session import RaySession, reason_of_death
from timerl_nb.compiler.language.argument_checks import is_number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.distributed.initialization import HEARTBEAT, USUAL_HEARTBEAT, initialize, integer
from timerl_nb.runtime.jax_backend.process_connection import report_end

_USER: Final = "a distributed program"


@explain_call_errors
def run_on_ray(
    function: Callable[[], Any],
    processes: int,
    *,
    resources: dict[str, float] | None = None,
    heartbeat: int = USUAL_HEARTBEAT,
) -> list[Any]:
    """Run a distributed program in processes of a Ray cluster.

    Each process is connected by `trl.distributed.initialize`, and then calls the function. The function compiles and
    executes programs with `Options(devices="all")`. The processes are placed on the nodes in turn. They end after the
    call.

    Args:
        function: a function without arguments, called in each process. Ray pickles the function and its results.
        processes: the number of processes.
        resources: Ray resources reserved for each process, such as {"CPU": 4, "GPU": 1}; one CPU by default.
        heartbeat: the number of seconds after which a process without a heartbeat counts as dead.

    Returns:
        the results, in the order of the processes' numbers.

    Raises:
        OptionError: an argument is invalid.
        ExecutionError: a process has died or raised an error, or the cluster lacks the resources. The message names the
            process, and the other processes are ended.
        MissingPartError: Ray cannot be imported, or is too old.

    Example:
        >>> trl.distributed.run_on_ray(train, processes=2)  # doctest: +SKIP
    """
    if not callable(function):
        raise OptionError(
            f"{function!r} is not a function.", hint="pass a function without arguments."
        )
    count = integer("processes", processes, 1, 1 << 16)
    beat = integer("heartbeat", heartbeat, 1, 1 << 20)
    needed = {"CPU": 1.0} if resources is None else _resources(resources)
    session = RaySession.open(_USER)
    try:
        return _run(session, function, count, needed, beat)
    finally:
        session.close()


def _run(
    session: RaySession,
    function: Callable[[], Any],
    count: int,
    needed: dict[str, float],
    beat: int,
) -> list[Any]:
    _check_resources(session, count, needed)
    ray, actors = session.ray, list[Any]()
    try:
        for number in range(count):
            placed = session.node_for(number)
            other = {name: n for name, n in needed.items() if name not in ("CPU", "GPU")}
            actor = ray.remote(_Process).options(
                num_cpus=needed.get("CPU", 0),
                num_gpus=needed.get("GPU", 0),
                resources=other or None,
                max_restarts=0,
                scheduling_strategy=placed,
            )
            actors.append(actor.remote())
        address = ray.get(actors[0].find_address.remote())
        results = [
            one.call.remote(function, address, count, number, beat)
            for number, one in enumerate(actors)
        ]
        return _await_results(session, results)
    except Exception as error:
        session.raise_explained(error)
    finally:
        for one in actors:
            session.kill(one)


def _resources(given: Any) -> dict[str, float]:
    if isinstance(given, Mapping) and all(
        isinstance(name, str) and is_number(each) and 0 <= each < float("inf")
        for name, each in given.items()
    ):
        return {name: float(each) for name, each in given.items()}
    raise OptionError(
        f"resources={given!r} is invalid.",
        hint='pass numbers by name, such as {"CPU": 4, "GPU": 1}.',
    )


def _check_resources(session: RaySession, count: int, needed: dict[str, float]) -> None:
    """Refuse a cluster without the resources, for which Ray would wait forever."""
    found = session.ray.cluster_resources()
    for name, each in needed.items():
        if found.get(name, 0) < each * count:
            raise ExecutionError(
                f"{count} processes with {each:g} {name} each are not possible: the cluster has "
                f"{found.get(name, 0):g}.",
                hint="choose fewer processes or resources=, or add nodes to the cluster.",
            )


def _await_results(session: RaySession, results: Sequence[Any]) -> list[Any]:
    """Return all results, in order.

    Raises:
        ExecutionError: a process has died or raised an error. The others cannot continue without it.
    """
    ray, waiting = session.ray, {result: number for number, result in enumerate(results)}
    found: dict[int, Any] = {}
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1)
        number = waiting.pop(ready[0])
        try:
            found[number] = ray.get(ready[0])
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise ExecutionError(
                f"process {number} raised {type(cause).__name__}: {cause}",
                hint="the traceback of Ray above shows the line. The other processes are ended.",
            ) from error
        except ray.exceptions.ActorDiedError as error:
            about = ", the coordinator," if number == 0 else ""
            raise ExecutionError(
                f"process {number}{about} has died: {reason_of_death(error)}.",
                hint="call run_on_ray again; a function with program.resume(folder) continues from the last saved state.",
            ) from error
    return [found[number] for number in range(len(results))]


class _Process:
    """One process, as a Ray actor."""

    def find_address(self) -> str:
        """Return this node's address with a free port."""
        find = import_module("ray.util").get_node_ip_address
        with socket.socket() as free:
            free.bind(("", 0))
            return f"{find()}:{free.getsockname()[1]}"

    def call(
        self, function: Callable[[], Any], address: str, count: int, number: int, beat: int
    ) -> Any:
        environment()[HEARTBEAT] = str(beat)
        environment().setdefault("TIMERL_PROGRESS", "0")
        try:
            initialize(address, count, number)
            result = function()
        except BaseException as error:
            report_end(error)
            raise
        report_end(None)
        return result
