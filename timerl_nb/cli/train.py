"""`timerl train ALGORITHM`: trains a built-in algorithm and saves the run in a folder."""

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
from timerl_nb.cli.support.distributed_run import (
    connect_launched,
    execute_together,
    folder_of_process_0,
    on_all_devices,
)
from timerl_nb.cli.support.foreground_run import attend
from timerl_nb.cli.support.run_request import RunRequest
from timerl_nb.compiler.language.argument_checks import seed_of
from timerl_nb.driver.compiling_context import Context
from timerl_nb.execution.control.periodic_saving import Every

USUAL: Final[Mapping[str, int]] = {"B": 64, "I": 100, "T": 500, "N": 16}
_USUAL_STEPS: Final = 5_000  # T of a program without I, which learns at each step

_HELP: Final = """usage: timerl {command} ALGORITHM [OPTION ...]

{about}

algorithms:
{algorithms}

timerl {command} ALGORITHM --help lists the arguments of an algorithm.

examples:
{examples}"""

_EXAMPLES: Final = """  timerl train reinforce --env CartPole-v1 --steps 5 --seeds 8
  timerl train ppo --env CartPole-v1 --lr 3e-3 --bounds B=32,I=50 --folder runs/ppo --every 10
  timerl train clipped_ppo --env CartPole-v1 --bounds B=8,T=128,I=500
  timerl train ddpg --env Pendulum-v1 --bounds B=8,T=20000

next:
  timerl resume runs/ppo        continues after Ctrl-C, a crash or a power cut, with the same result
  timerl sweep ppo --help       many runs, with one table
"""


def main(words: Sequence[str]) -> int:
    """Run `timerl train`."""
    chosen = choose(
        "train", "Train a built-in algorithm, and save the run in a folder.", _EXAMPLES, words
    )
    if isinstance(chosen, int):
        return chosen
    parser = parser_of("train", chosen, _EXAMPLES)
    parser.add_argument(
        "--seed", type=int, default=0, help="the seed of all random numbers (default: 0)"
    )
    parser.add_argument(
        "--seeds",
        type=positive,
        help="the number of runs in one vectorised program, with consecutive seeds from --seed on",
    )
    parser.add_argument(
        "--folder",
        type=user_path,
        help="the folder of the run (default: a new one in runs/)",
    )
    parser.add_argument("--quiet", action="store_true", help="print neither progress nor advice")
    given = parser.parse_words(words[1:])
    me = connect_launched()
    asked = replace(make_request(chosen, given, seed_of(given.seed)), seeds=given.seeds)
    asked, program = (asked if me.count == 1 else on_all_devices(asked)).prepared()
    is_new = False

    def claim() -> Path:
        nonlocal is_new
        folder, is_new = _claim_folder(asked, given.folder)
        return folder

    folder = folder_of_process_0(claim, me)
    if not given.quiet and me.is_first:
        print(
            f"{asked}\nfolder {folder}, saved every {_often(asked.every)}"
            f"{'; Ctrl-C stops and saves' if me.count == 1 else ''}"
        )
        sys.stdout.flush()
    try:
        if me.count > 1:
            return execute_together(asked, program, folder, me, quiet=given.quiet)
        return attend(asked, program, folder, quiet=given.quiet)
    except (OptionError, BudgetError):
        if me.is_first:
            asked.take_back(folder, is_new=is_new)
        raise


# --- shared by `train` and `sweep` ---------------------------------------------------------------


def choose(command: str, about: str, examples: str, words: Sequence[str]) -> Algorithm | int:
    """Return the algorithm named by the first word; or print a text and return the exit status."""
    name = words[0].replace("-", "_") if words and not words[0].startswith("-") else ""
    if name in algorithms.__all__:
        return algorithm(name)
    if name or (words and words[0] not in ("-h", "--help")):
        known = one_of(words[0], algorithms.__all__)
        print(
            f"timerl {command}: {words[0]!r} is not an algorithm: {known}.\n"
            f"  timerl {command} --help describes them.",
            file=sys.stderr,
        )
        return 2
    listed = "\n".join(f"  {n:12} {algorithm(n).summary}" for n in algorithms.__all__)
    said = _HELP.format(command=command, about=about, algorithms=listed, examples=examples)
    print(said, end="", file=sys.stdout if words else sys.stderr)
    return 0 if words else 2


def parser_of(command: str, chosen: Algorithm, examples: str) -> Parser:
    """Return a parser of an algorithm's arguments, the bounds and the options."""
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
        help=f"the number of environments B (or pairs of perturbed policies N), iterations I and steps T (default: {usual}; for an algorithm without I, T={_USUAL_STEPS})",
    )
    parser.add_argument(
        "--option",
        type=parse_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a compiler option (trl.Options), such as device_memory=2GiB; may be repeated",
    )
    parser.add_argument(
        "--every",
        type=make_argument_type(_every, "10 (turns) or 5min"),
        default="5min",
        help="the interval between saves: a number of iterations of the outermost loop, such as 10, or a "
        "time, such as 30s, 5min or 2h (default: 5min)",
    )
    parser.add_argument(
        "--log",
        action="store_true",
        help="write the outputs of every turn to log.csv and log.jsonl in the folder",
    )
    return parser


def make_request(chosen: Algorithm, given: argparse.Namespace, seed: int) -> RunRequest:
    """Return the request made by the arguments.

    Raises:
        TimeRLError: the algorithm rejects these arguments.
    """
    arguments: dict[str, Any] = {
        one.name: getattr(given, one.name, one.default) for one in chosen.arguments.values()
    }
    options = {name: literal(text) for name, text in given.option}
    own = merge_dicts(given.bounds)
    under = {**_usual(chosen.make(**arguments), own), **own}
    return RunRequest(chosen.name, arguments, under, options, seed, given.every, given.log)


def _usual(ctx: Context, given: Mapping[str, int]) -> dict[str, int]:
    """Return default bounds for the bounds that neither the user nor the program sets."""
    free = [dim.bound for dim in ctx.space if dim.bound not in ctx.fixed]
    usual = USUAL if any(dim.bound == "I" for dim in ctx.space) else {**USUAL, "T": _USUAL_STEPS}
    return {name: usual[name] for name in free if name in usual and name not in given}


def _every(text: str) -> str:
    try:
        return Every.parse(text).text
    except OptionError:
        raise ValueError("other examples are 30s, 2h and 100") from None


def _often(every: str) -> str:
    return format_count(int(every), "turn") if every.isdecimal() else every


def _claim_folder(asked: RunRequest, folder: Path | None) -> tuple[Path, bool]:
    """Return the folder with the written request, and whether the folder is new."""
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
            f"no folder can be created in {Path('runs').absolute()}: {error.strerror}.",
            hint="choose a folder with --folder.",
        ) from None
    raise ExecutionError(
        "the folder runs contains too many runs.", hint="choose a folder with --folder."
    )
