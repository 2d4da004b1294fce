"""`timerl bench`: the benchmarks, where there is a checkout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from timerl_nb.base.errors import MissingPartError
from timerl_nb.cli.support.argument_parser import Parser
from timerl_nb.cli.support.source_checkout import foreground, in_checkout

_EXAMPLES: Final = """  timerl bench                 three works against hand-written JAX (under 5 minutes)
  timerl bench full            all works, launches, and stock PPO until it has learnt
  timerl bench race S 10 ours jitted
"""


def main(words: Sequence[str]) -> int:
    """Bench: see the module."""
    parser = Parser(
        "bench", "Run the benchmarks; docs/explanation/benchmarks.md says what they are.", _EXAMPLES
    )
    parser.add_argument("words", nargs="*", help="which of them; all words are the benchmarks' own")
    given = parser.parse_words(words)
    found = in_checkout("benchmarks")
    if found is None:
        raise MissingPartError(
            "the benchmarks are in a checkout of TimeRL-nb, and this is an installed package.",
            hint="clone the repository, and run `make bench` there.",
        )
    return foreground([sys.executable, "-m", "benchmarks", *given.words], found.parent)
