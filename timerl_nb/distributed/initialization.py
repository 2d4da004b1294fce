"""Start of JAX's distributed runtime: from arguments, from `timerl launch`, or from a cluster's job scheduler."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import write_whole
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.base.options import environment
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.runtime.jax_backend.peer_hub import Failure
from timerl_nb.runtime.jax_backend.process_connection import (
    cluster_arguments,
    connect,
    disconnect,
    is_connected,
    was_jax_used,
)
from timerl_nb.runtime.jax_backend.process_group import process_count, process_index

COORDINATOR: Final = "TIMERL_COORDINATOR"
PROCESSES: Final = "TIMERL_PROCESSES"
PROCESS: Final = "TIMERL_PROCESS"
HEARTBEAT: Final = "TIMERL_HEARTBEAT"
NOTES: Final = "TIMERL_LAUNCH"  # the folder in which processes leave notes for `timerl launch`
WAITING: Final = "waiting"
# Numbers of tasks of job schedulers, of which JAX recognises SLURM and Open MPI 4 by itself
_TASKS: Final = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_STEP_TASKS: Final = "SLURM_STEP_NUM_TASKS"
USUAL_HEARTBEAT: Final = 30
_DIGITS: Final = 9  # of a number of processes


@dataclass(frozen=True)
class Processes:
    """The processes of a program.

    Attributes:
        index: the number of this process, from 0 on. Process 0 writes files.
        count: the number of processes.

    Example:
        >>> me = trl.distributed.initialize()
        >>> me.count, me.is_first
        (1, True)
    """

    index: int
    count: int

    @property
    def is_first(self) -> bool:
        """Whether this is process 0."""
        return self.index == 0


@explain_call_errors
def initialize(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    heartbeat: int | None = None,
    timeout: int = 300,
) -> Processes:
    """Connect this process with the other processes of a program.

    Call it in every process, before the first use of JAX and before any program is compiled. Without arguments, it reads
    the environment variables of `timerl launch`, SLURM or Open MPI. Without these variables, the program has one
    process, so the same script also runs alone. A second call returns the result of the first one.

    Args:
        coordinator: the address of process 0 with a free port, such as "10.0.0.1:1234".
        processes: the number of processes on all hosts.
        process: the number of this process, from 0 on.
        heartbeat: the number of seconds after which a process without a heartbeat counts as dead, by default 30. The
            other processes then end.
        timeout: the number of seconds to wait for the other processes.

    Returns:
        the number of this process, and the number of all processes.

    Raises:
        OptionError: an argument is missing or invalid.
        ExecutionError: JAX was used before, or the processes cannot be connected.

    Example:
        >>> trl.distributed.initialize()
        Processes(index=0, count=1)

    Source: the multi-process documentation of JAX (`jax.distributed`).
    """
    named = _arguments(coordinator, processes, process, environment())
    beat = _seconds("heartbeat", heartbeat or environment().get(HEARTBEAT, USUAL_HEARTBEAT))
    waited = _seconds("timeout", timeout)
    if is_connected():
        found = Processes(process_index(), process_count())
        if named and (named["num_processes"], named["process_id"]) != (found.count, found.index):
            raise ExecutionError(
                f"this process is connected already, as process {found.index} of {found.count}.",
                hint="call trl.distributed.initialize once per process.",
            )
        return found
    if not named:
        named = _from_scheduler(environment(), waited)
    if named.get("num_processes", 1) == 1:
        return Processes(0, 1)
    if was_jax_used():
        raise ExecutionError(
            "JAX was used before trl.distributed.initialize.",
            hint="call it at the beginning of the script, before arrays are made or programs are compiled.",
        )
    folder, number = environment().get(NOTES), named["process_id"]
    _leave_note(folder, number, WAITING)
    try:
        connect(named, waited, beat, partial(_leave_note, folder, number))
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise _connection_error(error, named) from error
    _leave_note(folder, number, "connected")
    return Processes(process_index(), process_count())


def _leave_note(folder: str | None, number: int, state: str | Failure) -> None:
    """Write the state of this process for `timerl launch`."""
    if folder is None:
        return
    text = json.dumps(asdict(state) if isinstance(state, Failure) else state)
    with suppress(OSError):  # the note only improves messages
        write_whole(Path(folder) / str(number), text.encode())


@explain_call_errors
def shutdown() -> None:
    """Disconnect this process. All processes must call it. Without a connection it does nothing.

    Example:
        >>> trl.distributed.shutdown()
    """
    disconnect()


def _arguments(
    coordinator: object, processes: object, process: object, variables: MutableMapping[str, str]
) -> dict[str, Any]:
    """Return the arguments for JAX; none if neither the caller nor `timerl launch` has set them."""
    given = {"coordinator": coordinator, "processes": processes, "process": process}
    if all(value is None for value in given.values()):
        if COORDINATOR not in variables:
            return {}
        coordinator = variables.pop(
            COORDINATOR
        )  # programs started by this one have other processes
        processes = _from_environment(PROCESSES, variables)
        process = _from_environment(PROCESS, variables)
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise OptionError(
            f"{', '.join(missing)} must be set as well.",
            hint="pass coordinator, processes and process together, or none of them.",
        )
    if not isinstance(coordinator, str) or not re.fullmatch(r".+:\d+", coordinator):
        raise OptionError(
            f"coordinator={coordinator!r} is not an address.",
            hint='pass the host and a free port of process 0, such as "10.0.0.1:1234".',
        )
    count = integer("processes", processes, 1, 1 << 16)
    number = integer("process", process, 0, count - 1)
    return {"coordinator_address": coordinator, "num_processes": count, "process_id": number}


def _from_environment(name: str, variables: Mapping[str, str], otherwise: int | None = None) -> int:
    """Return the number in an environment variable; `otherwise` if the variable is missing or empty."""
    text = variables.get(name, "").strip()
    if not text and otherwise is not None:
        return otherwise
    if not text.isdecimal() or len(text) > _DIGITS:
        raise OptionError(
            f"the environment variable {name} is {text!r}."
            if text
            else f"the environment variable {name} is missing.",
            hint="set it to a number, start the script by `timerl launch`, or pass coordinator, processes and "
            "process to trl.distributed.initialize.",
        )
    return int(text)


def integer(name: str, value: object, least: int, most: int) -> int:
    """Return an argument that must be an integer in a range.

    Raises:
        OptionError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise OptionError(
            f"{name}={value!r} is invalid.", hint=f"pass an integer from {least} to {most}."
        )
    return value


def _seconds(name: str, value: object) -> int:
    text = value if isinstance(value, str) else None
    number = int(text) if text is not None and text.isdecimal() else value
    return integer(name, number, 1, 1 << 20)


def _from_scheduler(variables: Mapping[str, str], timeout: int) -> dict[str, Any]:
    """Return the arguments for JAX from the variables of a job scheduler; none without a scheduler.

    Raises:
        OptionError: the variables belong to several tasks, but this process is not one of them.
    """
    counts = {name: _from_environment(name, variables, 1) for name in _TASKS}
    name = next((name for name, count in counts.items() if count > 1), None)
    if name is None:
        return {}
    step = _from_environment(_STEP_TASKS, variables, counts[name])
    named = cluster_arguments(timeout)
    if name.startswith("SLURM") and (not named or step != counts[name]):
        raise OptionError(
            f"SLURM has allocated {counts[name]} tasks, but this process was not started by `srun` as one of them.",
            hint="start the script by `srun python SCRIPT`, or for one process by `srun -n 1 python SCRIPT`.",
        )
    if not named:
        raise OptionError(
            f"the environment variable {name} is {counts[name]}, but the address of process 0 is unknown.",
            hint='pass it, as in trl.distributed.initialize("10.0.0.1:1234", processes, process) with the numbers of '
            f"the MPI library. For a program of one process, remove {name} from the environment.",
        )
    return named


def _connection_error(error: Exception, named: Mapping[str, Any]) -> ExecutionError:
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ExecutionError(
        f"process {named['process_id']} could not be connected at {named['coordinator_address']}: {said}.",
        hint="start all processes with the same address, at which process 0 can open a free port, and with "
        "different numbers.",
    )
