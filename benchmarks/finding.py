"""A finding of a paper, looked for again."""

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
        verdict: whether it holds; undecided where the spread of what was measured leaves both.
        source: what it was measured on.
        because: of what it does not hold.
    """

    number: str
    what: str
    found: str
    truth: str
    paper: str
    verdict: Literal["holds", "does not hold", "undecided", "not shown"]
    source: str
    because: str = ""

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
        verdict = f"{one.verdict}, because {one.because}" if one.because else one.verdict
        cells = one.number, one.what, one.found, one.truth, one.paper, verdict, one.source
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
