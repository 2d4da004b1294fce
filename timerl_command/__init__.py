"""The command `timerl`: prints help without delay, and imports the library only to run a command.

This package is separate from `timerl_nb`, because an import from `timerl_nb` also imports JAX
and isl, and takes seconds.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "train": "train a built-in algorithm: timerl train reinforce --env CartPole-v1",
    "resume": "continue an interrupted run or sweep: timerl resume runs/first",
    "sweep": "train over a grid of arguments and seeds, in parallel: timerl sweep ppo --help",
    "launch": "start the processes of a distributed program: timerl launch -n 2 train.py",
    "explain": "print stages, peak memory and schedule of a script's programs: timerl explain train.py",
    "profile": "measure the kernels of a script's programs: timerl profile train.py --turns 5",
    "scope": "record and analyse the time of any Python program: timerl scope run train.py",
    "lab": "open JupyterLab, reachable from this machine only",
    "bench": "run the benchmarks (needs a checkout of the repository)",
}
_HELP: Final = """usage: timerl COMMAND [ARGUMENT ...]

A compiler for deep reinforcement learning programs written as recurrence equations.

commands:
{}

  --help     print this text; timerl COMMAND --help describes a command
  --version  print the version

To start:
  timerl train reinforce --env CartPole-v1 --bounds I=20 --folder runs/first
  timerl resume runs/first
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit status.

    The status is 0 for success, 1 for an error of TimeRL-nb or of a script, 2 for wrong usage, 130 after
    Ctrl-C, and 141 if the reader of the output has closed its end (`| head`).

    Args:
        words: the arguments; by default those of the process.
    """
    status = 0
    try:
        status = _main(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return _READER_LEFT
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _drop_output()
        print(f"timerl: the output cannot be written: {error.strerror}.", file=sys.stderr)
        return status or 1
    return status


_READER_LEFT: Final = 141  # 128 + SIGPIPE, as in shells


def _drop_output() -> None:
    """Redirect the rest of the output to the null device: otherwise Python fails again at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # the output is not a file
        return


def _main(words: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if words is None else words)
    if not given or given[0] in ("-h", "--help", "help"):
        lines = [f"  {name:8}  {what}" for name, what in COMMANDS.items()]
        print(_HELP.format("\n".join(lines)), end="", file=sys.stdout if given else sys.stderr)
        return 0 if given else 2
    if given[0] == "--version":
        print(f"timerl {_version()}")
        return 0
    if given[0] not in COMMANDS:
        print(_unknown(given[0]), file=sys.stderr)
        return 2
    from timerl_nb.cli import main as command  # takes seconds

    return command(given)


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    known = f"{meant}choose one of {', '.join(map(repr, COMMANDS))}"
    said = f"the command {name!r} is unknown: {known}.\n  timerl --help describes them."
    return f"timerl: {said}"


def _version() -> str:
    try:
        return version("timerl-nb")
    except PackageNotFoundError:
        return "of a checkout without installation"
