"""`timerl train ALGORITHM`: a ready algorithm, kept in a folder from its first turn to its last."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from timerl_nb import algorithms
from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import BudgetError, ExecutionError, OptionError, one_of
from timerl_nb.base.text_formatting import format_count
from timerl_nb.cli.support.algorithm_arguments import Algorithm, algorithm, format_argument
from timerl_nb.cli.support.argument_parser import (
    Parser,
    bounds,
    literal,
    make_argument_type,
    merge_dicts,
    parse_assignment,
    positive,
)
from timerl_nb.cli.support.foreground_run import attend
from timerl_nb.cli.support.run_request import RunRequest
from timerl_nb.compiler.language.argument_checks import seed_of
from timerl_nb.driver.compiling_context import Context
from timerl_nb.execution.control.periodic_saving import Every

USUAL: Final[Mapping[str, int]] = {"B": 64, "I": 100, "T": 500}
_USUAL_STEPS: Final = 5_000  # T of a program without I: it learns at each step

_HELP: Final = """usage: timerl {command} ALGORITHM [OPTION ...]

{about}

algorithms:
{algorithms}

timerl {command} ALGORITHM --help says what each takes.

examples:
{examples}"""

_EXAMPLES: Final = """  timerl train reinforce --env CartPole-v1 --steps 5 --seeds 8
  timerl train ppo --env CartPole-v1 --lr 3e-3 --bounds B=32,I=50 --folder runs/ppo --every 10
  timerl train clipped_ppo --env CartPole-v1 --bounds B=8,T=128,I=500
  timerl train ddpg --env Pendulum-v1 --bounds B=8,T=20000

then:
  timerl resume runs/ppo        after Ctrl-C, a crash or a power cut, to the same result
  timerl sweep ppo --help       many of them, with one table
"""


def main(words: Sequence[str]) -> int:
    """Train: see the module."""
    chosen = choose("train", "Run a ready algorithm; it is kept in a folder.", _EXAMPLES, words)
    if isinstance(chosen, int):
        return chosen
    parser = parser_of("train", chosen, _EXAMPLES)
    parser.add_argument("--seed", type=int, default=0, help="of all random streams (default: 0)")
    parser.add_argument(
        "--seeds",
        type=positive,
        help="so many runs side by side in one program, with seeds from --seed on",
    )
    parser.add_argument(
        "--folder",
        type=user_path,
        help="where the run is kept; a new one below runs by default",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="no progress, and no advice at the end"
    )
    given = parser.parse_words(words[1:])
    asked = replace(asked_for(chosen, given, seed_of(given.seed)), seeds=given.seeds)
    asked, program = asked.prepared()
    folder, is_new = _claim_folder(asked, given.folder)
    if not given.quiet:
        print(
            f"{asked}\nkept in {folder}, saved every {_often(asked.every)}; Ctrl-C stops it there"
        )
        sys.stdout.flush()
    try:
        return attend(asked, program, folder, quiet=given.quiet)
    except (OptionError, BudgetError):
        asked.take_back(folder, is_new=is_new)
        raise


# --- what `train` and `sweep` have in common -----------------------------------------------------


def choose(command: str, about: str, examples: str, words: Sequence[str]) -> Algorithm | int:
    """The algorithm that the first word names; or the exit status, once that is said."""
    name = words[0].replace("-", "_") if words and not words[0].startswith("-") else ""
    if name in algorithms.__all__:
        return algorithm(name)
    if name or (words and words[0] not in ("-h", "--help")):
        known = one_of(words[0], algorithms.__all__)
        print(
            f"timerl {command}: {words[0]!r} is no algorithm: {known}.\n"
            f"  timerl {command} --help says what they are.",
            file=sys.stderr,
        )
        return 2
    listed = "\n".join(f"  {n:12} {algorithm(n).summary}" for n in algorithms.__all__)
    said = _HELP.format(command=command, about=about, algorithms=listed, examples=examples)
    print(said, end="", file=sys.stdout if words else sys.stderr)
    return 0 if words else 2


def parser_of(command: str, chosen: Algorithm, examples: str) -> Parser:
    """A parser of an algorithm's own arguments, of bounds and of options."""
    parser = Parser(f"{command} {chosen.name}", f"{chosen.summary}\n\n{chosen.about}", examples)
    own = parser.add_argument_group(f"arguments of trl.algorithms.{chosen.name}")
    for one in chosen.arguments.values():
        flags = list(dict.fromkeys((f"--{one.name.replace('_', '-')}", f"--{one.name}")))
        about = f"{one.about} " if one.about else ""
        own.add_argument(
            *flags,
            dest=one.name,
            type=make_argument_type(one.read, one.what),
            default=argparse.SUPPRESS,
            metavar=one.name.upper(),
            help=f"{about}({one.what}; default: {format_argument(one.default)})".replace("%", "%%"),
        )
    usual = ", ".join(f"{name}={bound}" for name, bound in USUAL.items())
    parser.add_argument(
        "--bounds",
        type=bounds,
        action="append",
        metavar="B=64,I=100",
        help=f"the numbers of environments, iterations, steps (default: {usual}; without I T={_USUAL_STEPS})",
    )
    parser.add_argument(
        "--option",
        type=parse_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a field of trl.Options, such as device_memory=2GiB; may be repeated",
    )
    parser.add_argument(
        "--every",
        type=make_argument_type(_every, "10 (turns) or 5min"),
        default="5min",
        help="how often the state is saved: 10 is after ten turns of the outermost loop; 30s, 5min, "
        "2h (default: 5min)",
    )
    parser.add_argument(
        "--log",
        action="store_true",
        help="write what the program puts out turn by turn to log.csv and log.jsonl of the folder",
    )
    return parser


def asked_for(chosen: Algorithm, given: argparse.Namespace, seed: int) -> RunRequest:
    """What the words ask for.

    Raises:
        TimeRLError: the algorithm cannot be written with these arguments.
    """
    arguments: dict[str, Any] = {
        one.name: getattr(given, one.name, one.default) for one in chosen.arguments.values()
    }
    options = {name: literal(text) for name, text in given.option}
    own = merge_dicts(given.bounds)
    under = {**_usual(chosen.make(**arguments), own), **own}
    return RunRequest(chosen.name, arguments, under, options, seed, given.every, given.log)


def _usual(ctx: Context, given: Mapping[str, int]) -> dict[str, int]:
    """Bounds that are not given, of those that the program does not fix itself."""
    free = [dim.bound for dim in ctx.space if dim.bound not in ctx.fixed]
    usual = USUAL if any(dim.bound == "I" for dim in ctx.space) else {**USUAL, "T": _USUAL_STEPS}
    return {name: usual[name] for name in free if name in usual and name not in given}


def _every(text: str) -> str:
    try:
        return Every.parse(text).text
    except OptionError:
        raise ValueError("30s, 2h and 100 are other examples") from None


def _often(every: str) -> str:
    return format_count(int(every), "turn") if every.isdecimal() else every


def _claim_folder(asked: RunRequest, folder: Path | None) -> tuple[Path, bool]:
    """The folder, in which what was asked for is written, and whether it was made for that."""
    if folder is not None:
        return folder, asked.write(folder)
    name = re.sub(r"[^\w.-]+", "-", f"{asked.algorithm}-{asked.arguments.get('env', '')}")
    try:
        os.makedirs("runs", exist_ok=True)
        for k in range(1, 100_000):
            folder = Path("runs") / f"{name.strip('-')}-{k}"
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            asked.write(folder)
            return folder, True
    except OSError as error:
        raise ExecutionError(
            f"no folder can be made below {Path('runs').absolute()}: {error.strerror}.",
            hint="say where with --folder.",
        ) from None
    raise ExecutionError("there are too many runs below runs.", hint="say where with --folder.")
