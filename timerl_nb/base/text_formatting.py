"""Text for counts, bytes, durations and tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

_HISSING: Final = ("s", "x", "ch", "sh")  # endings of nouns with a plural in -es


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: "1 line", "2,000 lines", "3 processes".

    Args:
        count: the number.
        noun: the singular.
        plural: the plural; by default the noun with "s" or "es".
    """
    regular = f"{noun}es" if noun.endswith(_HISSING) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural or regular}"


def format_bytes(count: float) -> str:
    """Return bytes with a binary unit: "12.3 KiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def format_duration(seconds: float) -> str:
    """Return seconds with a suitable unit: "1.5 s", "20 ms", "3 µs"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def format_milliseconds(seconds: float, spec: str = ".1f") -> str:
    """Return seconds as milliseconds with a unit: "12.3 ms"."""
    return f"{seconds * 1e3:{spec}} ms"


def format_ns_as_ms(ns: float) -> str:
    """Return nanoseconds as milliseconds without a unit, for table columns: "1,234.567"."""
    return f"{ns / 1e6:,.3f}"


def align_columns(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """Return the rows of a table as lines.

    Args:
        rows: the cells of each row; all rows have the same length.
        left: columns with left alignment; all others are right-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(w) if k in left else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
