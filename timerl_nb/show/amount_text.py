"""Amounts in words."""

from __future__ import annotations

from collections.abc import Iterable


def human_bytes(n: float) -> str:
    """12.3 KiB."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def peak_text(peak: int, saved_by: Iterable[str]) -> str:
    """A predicted peak, and what keeps it down."""
    return ", ".join((human_bytes(peak), *saved_by))
