"""`timerl resume FOLDER`: go on with what `timerl train` or `timerl sweep` began there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.cli import sweep
from timerl_nb.cli.support.argument_parser import Parser
from timerl_nb.cli.support.foreground_run import go_on

_EXAMPLES: Final = """  timerl resume runs/reinforce-CartPole-v1-1

A run that has finished prints its result. The folder says what was asked for: the algorithm, its
arguments, bounds, options and the seed; nothing else is needed.
"""


def main(words: Sequence[str]) -> int:
    """Resume: see the module."""
    parser = Parser("resume", "Go on with a run that was cut off, or with a sweep.", _EXAMPLES)
    parser.add_argument(
        "folder", type=user_path, help="that `timerl train` or `timerl sweep` named"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="no progress, and no advice at the end"
    )
    parser.add_argument(
        "--iterations",
        type=int,
        help="go on to so many iterations in all, instead of those that were asked for",
    )
    given = parser.parse_words(words)
    folder: Path = given.folder
    if not folder.is_dir():
        raise ExecutionError(
            f"there is no folder {folder}.", hint="name the one that `timerl train` printed."
        )
    if sweep.is_sweep(folder):
        if given.iterations is not None:
            raise OptionError(
                f"--iterations is for a run, and {folder} holds a sweep.",
                hint=f"give the folder of one of its runs, such as {sweep.first_run(folder)}.",
            )
        return sweep.go_on(folder)
    return go_on(folder, quiet=given.quiet, iterations=given.iterations)
