"""`timerl bench`: runs the benchmarks of a checkout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from timerl_nb.base.errors import MissingPartError
from timerl_nb.cli.support.argument_parser import Parser
from timerl_nb.cli.support.source_checkout import foreground, in_checkout

_EXAMPLES: Final = """  timerl bench                 three workloads against hand-written JAX (under 5 minutes)
  timerl bench full            all workloads, kernel launches, and stock PPO to convergence
  timerl bench race S 10 ours jitted
  timerl bench paper fig9 --predict
"""


def main(words: Sequence[str]) -> int:
    """Run `timerl bench`."""
    parser = Parser(
        "bench",
        "Run the benchmarks of a checkout; docs/explanation/benchmarks.md describes them.",
        _EXAMPLES,
    )
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        help="the name of a benchmark, and its arguments and options",
    )
    given = parser.parse_words(words)
    found = in_checkout("benchmarks")
    if found is None:
        raise MissingPartError(
            "the benchmarks are missing: an installed package does not contain them.",
            hint="clone the repository, and run `make bench` there.",
        )
    return foreground([sys.executable, "-m", "benchmarks", *given.words], found.parent)
