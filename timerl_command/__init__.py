"""The command `timerl`: what it can do, said at once; what does it is imported when it is asked for.

It stands beside the library, since whatever is inside of `timerl_nb` imports all of it, JAX and isl
included, which takes seconds.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "train": "run a ready algorithm, kept in a folder: timerl train reinforce --env CartPole-v1",
    "resume": "go on with a run, or a sweep, that was cut off: timerl resume runs/1",
    "sweep": "the same for a grid of arguments and seeds, in several processes, with one table",
    "explain": "stages, peak memory and schedule of a script's programs: timerl explain train.py",
    "profile": "where the time of a script's programs goes: timerl profile train.py --turns 5",
    "scope": "where the time of any Python program goes: timerl scope run train.py",
    "lab": "open JupyterLab, on this machine alone",
    "bench": "the benchmarks, in a checkout",
}
_HELP: Final = """usage: timerl COMMAND [ARGUMENT ...]

Deep reinforcement learning as recurrence equations, compiled and looked into.

commands:
{}

  --help     this text; timerl COMMAND --help says what a command takes
  --version  which version this is

To begin with:
  timerl train reinforce --env CartPole-v1 --bounds I=20 --folder runs/first
  timerl resume runs/first
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit status.

    The status is 0 for success, 1 for an error of ours (or of a script), 2 for wrong usage. It is 130
    after Ctrl-C, and 141 if the reader of the output has left (`| head`).
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


_READER_LEFT: Final = 141  # as shells say of SIGPIPE


def _drop_output() -> None:
    """Write the rest of the output nowhere, so Python does not fail again as it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # it is no file
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
    known = f"{meant}one of {', '.join(map(repr, COMMANDS))}"
    said = f"there is no command {name!r}: {known}.\n  timerl --help says what they do."
    return f"timerl: {said}"


def _version() -> str:
    try:
        return version("timerl-nb")
    except PackageNotFoundError:
        return "of a checkout that is not installed"
