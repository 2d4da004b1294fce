"""Tables and counts as text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: "1 line", "2,000 lines".

    Args:
        plural: the noun's plural; by default with an "s".
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def align_columns(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """Rows of as many cells each, as lines: those of some columns at the left of these, all others at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(w) if k in left else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
