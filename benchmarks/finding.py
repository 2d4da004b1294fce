"""A finding of a paper and its reproduction, and the spread of a measured quantity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Verdict = Literal[
    "holds", "does not hold", "undecided", "not shown", "predicted only", "not measured"
]


@dataclass(frozen=True)
class Spread:
    """A quantity over several rounds: the median, the least and the greatest value."""

    median: float
    least: float
    greatest: float

    @staticmethod
    def from_values(values: Sequence[float]) -> Spread:
        return Spread(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g}–{self.greatest:.3g})"


@dataclass(frozen=True)
class Finding:
    """One reproduced finding.

    Attributes:
        number: Number in the paper, such as "F.7".
        what: The measured quantity.
        found: The measured figure.
        truth: The true figure if known, else "".
        paper: The paper's figure.
        verdict: Whether the finding holds; undecided if the spread allows both answers.
        source: The measured program or device.
        because: Reason for a finding that does not hold.
    """

    number: str
    what: str
    found: str
    truth: str
    paper: str
    verdict: Verdict
    source: str
    because: str = ""

    @classmethod
    def of(
        cls, number: str, what: str, found: str, truth: str, paper: str, holds: bool, source: str
    ) -> Finding:
        """Return a finding with its verdict."""
        return cls(number, what, found, truth, paper, "holds" if holds else "does not hold", source)


def table(findings: Sequence[Finding]) -> str:
    """Return Markdown rows."""
    lines = ["| | what | found | truth | paper | | on |", "|---|---|---|---|---|---|---|"]
    for one in findings:
        verdict = f"{one.verdict}, because {one.because}" if one.because else one.verdict
        cells = one.number, one.what, one.found, one.truth, one.paper, verdict, one.source
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
