"""`timerl profile SCRIPT`: runs a script's programs and measures their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.cli.support.argument_parser import Parser, positive
from timerl_nb.cli.support.script_runner import read_with_script
from timerl_nb.profiler.run_profile import profile

_EXAMPLES: Final = """  timerl profile train.py --turns 5
  timerl profile train.py --trace run.json     for chrome://tracing or https://ui.perfetto.dev
"""


def main(words: Sequence[str]) -> int:
    """Run `timerl profile`."""
    about = "Run the programs that a script compiles, and print the time of each kernel."
    parser = Parser("profile", about, _EXAMPLES)
    parser.add_argument(
        "--turns",
        type=positive,
        help="the maximal number of iterations of the outermost loop (default: all)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="the seed of all random numbers (default: 0)"
    )
    parser.add_argument(
        "--trace",
        type=user_path,
        metavar="FILE",
        help="write a Chrome trace (of a second program: FILE-2, and so on)",
    )
    given, script = read_with_script(parser, words)
    for k, one in enumerate(script.compile_under(given), 1):
        print(("\n" if k > 1 else "") + f"compiled at {one.origin}")
        measured = profile(one.program, given.seed, turns=given.turns)
        print(measured)
        if given.trace is not None:
            path: Path = given.trace
            named = path if k == 1 else path.with_stem(f"{path.stem}-{k}")
            print(f"written to {measured.chrome_trace(named)}")
    return script.report_end()
