"""The command `timerl`: what it can do, said at once; what does it is imported when it is asked for.

It stands beside the library, since whatever is inside of `timerl_nb` imports all of it, JAX and isl
included, which takes seconds.
"""

from __future__ import annotations

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
    """Do what the words say; returns the exit status.

    0 is fine, 1 an error of ours (or of a script), 2 wrong usage, 130 interrupted by Ctrl-C.
    """
    given = list(sys.argv[1:] if words is None else words)
    if not given or given[0] in ("-h", "--help", "help"):
        lines = [f"  {name:8}  {what}" for name, what in COMMANDS.items()]
        print(_HELP.format("\n".join(lines)), end="", file=sys.stdout if given else sys.stderr)
        return 0 if given else 2
    if given[0] == "--version":
        print(f"timerl {_version()}")
        return 0
    from timerl_nb.cli import main as command  # takes seconds

    return command(given)


def _version() -> str:
    try:
        return version("timerl-nb")
    except PackageNotFoundError:
        return "of a checkout that is not installed"
