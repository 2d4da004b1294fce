"""Text of counts, bytes, durations and tables."""

from __future__ import annotations

import pytest

from timerl_nb.base import text_formatting as text


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [
        (0, "line", "0 lines"),
        (1, "line", "1 line"),
        (2000, "line", "2,000 lines"),
        (1, "process", "1 process"),
        (3, "process", "3 processes"),
        (2, "launch", "2 launches"),
    ],
)
def test_counts_have_a_noun(count: int, noun: str, expected: str) -> None:
    assert text.format_count(count, noun) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (-1536, "-1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (1 << 41, "2048.0 GiB"),
    ],
)
def test_bytes_have_a_binary_unit(count: float, expected: str) -> None:
    assert text.format_bytes(count) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(90.0, "90 s"), (1.0, "1 s"), (0.25, "250 ms"), (0.001, "1 ms"), (2e-5, "20 µs")],
)
def test_durations_have_the_unit_of_their_size(seconds: float, expected: str) -> None:
    assert text.format_duration(seconds) == expected


def test_milliseconds_have_the_digits_that_are_given() -> None:
    assert text.format_milliseconds(0.01234) == "12.3 ms"
    assert text.format_milliseconds(0.01234, ".0f") == "12 ms"
    assert text.format_milliseconds(0.01234, "8.2f") == "   12.34 ms"
    assert text.format_ns_as_ms(1_234_567_890) == "1,234.568"


def test_columns_are_aligned_without_spaces_at_the_end() -> None:
    rows = [("name", "n", ""), ("a", "10", "x"), ("long name", "5", "")]
    assert text.align_columns(rows, left=(0, 2)) == [
        "name        n",
        "a          10  x",
        "long name   5",
    ]
