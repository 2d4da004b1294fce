"""Dispatch of the command `timerl` to the module of each command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from timerl_nb.base.errors import one_of
from timerl_nb.cli import bench, explain, lab, launch, profile, resume, scope, sweep, train
from timerl_nb.cli.support.exit_status import WRONG, outcome

COMMANDS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = {
    "train": train.main,
    "resume": resume.main,
    "sweep": sweep.main,
    "launch": launch.main,
    "explain": explain.main,
    "profile": profile.main,
    "scope": scope.main,
    "lab": lab.main,
    "bench": bench.main,
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command named by the first word, and return the exit status (`outcome`).

    Args:
        words: the arguments; by default those of the process.
    """
    words = sys.argv[1:] if words is None else words
    name = words[0] if words else ""
    own = words[: words.index("--")] if "--" in words else words
    if name not in COMMANDS:
        said = f"the command {name!r} is unknown" if name else "the command is missing"
        known = one_of(name, list(COMMANDS))
        print(f"timerl: {said}: {known}.\n  timerl --help describes them.", file=sys.stderr)
        return WRONG
    return outcome(
        f"timerl {name}",
        partial(COMMANDS[name], words[1:]),
        traceback="--traceback" in own,
    )
