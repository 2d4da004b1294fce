"""Kernel temporaries: estimate of the plan against XLA's figure, for all programs of the tests."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.works import WORKS
from tests.frozen import PROGRAMS
from tests.patterns import PATTERNS
from timerl_nb.base.errors import TimeRLError
from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_bytes
from timerl_nb.driver.program import Program

# Fixed temporaries of any call, outside every budget; programs below this limit are not compared.
OWN: Final = 64 << 10


@dataclass(frozen=True)
class Row:
    """Temporaries of one program, in bytes."""

    name: str
    estimated: int
    stated: int
    most_in: str  # the kernel that decides the estimate

    @property
    def beyond(self) -> int:
        """Return XLA's temporaries beyond the estimate and the fixed cost of a call."""
        return max(0, self.stated - self.estimated - OWN)

    @property
    def factor(self) -> float:
        return self.estimated / max(1, self.stated)


def programs() -> Iterator[tuple[str, Program]]:
    """Return the frozen programs, the access patterns and the benchmark programs, compiled by XLA."""
    for name, frozen in PROGRAMS.items():
        with suppress(TimeRLError):  # some test errors and do not compile
            yield name, frozen.compile("xla")
    for name, pattern in PATTERNS.items():
        with suppress(TimeRLError):
            yield name, pattern.context().compile(pattern.bounds, Options(executor="xla"))
    for name, work in WORKS.items():
        yield name, work.compile(2, Options(executor="xla"))


def rows() -> Iterator[Row]:
    """Return rows of the programs that XLA runs."""
    warnings.simplefilter("ignore")
    for name, program in programs():
        lowered = program.executable.xla_program
        if lowered is not None:
            memory = program.memory
            yield Row(name, memory.temporaries, lowered.temporaries, memory.temporaries_in)


def main() -> None:
    """Print a table of all programs, and a summary of programs above the fixed cost of a call."""
    print("| program | estimated | stated | estimated / stated | most in |\n|---|---|---|---|---|")
    found = list[Row]()
    for one in rows():
        found.append(one)
        factor = f"{one.factor:.2f}" if one.stated else ""
        cells = format_bytes(one.estimated), format_bytes(one.stated), factor, one.most_in
        print(f"| {one.name} | {' | '.join(cells)} |", flush=True)
    large = [one for one in found if max(one.estimated, one.stated) > OWN]
    factors = [one.factor for one in large]
    print(
        f"\n{len(found)} programs, {len(large)} of more than {format_bytes(OWN)}: median "
        f"{median(factors):.2f}, from {min(factors):.2f} to {max(factors):.2f}; "
        f"{sum(one.beyond > 0 for one in found)} take more than was estimated and any call takes."
    )
