"""A finding of RL-Scope (paper 002), looked for again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """What was found.

    Attributes:
        number: the paper's, "F.7".
        what: was measured.
        found: the figure.
        truth: the same as it is known to be, or "" where it is not.
        paper: the paper's figure.
        verdict: whether it holds.
        source: what it was measured on.
    """

    number: str
    what: str
    found: str
    truth: str
    paper: str
    verdict: Literal["holds", "does not hold", "not shown"]
    source: str

    @classmethod
    def of(
        cls, number: str, what: str, found: str, truth: str, paper: str, holds: bool, source: str
    ) -> Finding:
        """One that was looked for."""
        return cls(number, what, found, truth, paper, "holds" if holds else "does not hold", source)


def table(findings: Sequence[Finding]) -> str:
    """Rows of Markdown."""
    lines = ["| | what | found | truth | paper | | on |", "|---|---|---|---|---|---|---|"]
    for one in findings:
        cells = one.number, one.what, one.found, one.truth, one.paper, one.verdict, one.source
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
