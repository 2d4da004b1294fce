"""Random programs agree with plain loops; `make fuzz` tries many more."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.independent.__main__ import described
from tests.independent.draw import make
from tests.independent.verdict import tried

PROGRAMS = 80
AT_ONCE = 10


@pytest.mark.some_of("start", 4)
@pytest.mark.parametrize("start", range(0, PROGRAMS, AT_ONCE))
def test_programs_mean_what_their_loops_compute(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMERL_EXECUTOR", "xla")  # the public options
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    counts: Counter[str] = Counter()
    try:
        for seed in range(start, start + AT_ONCE):
            verdict = tried(make(seed, small=True))
            assert verdict.fine, described(seed, verdict)
            counts[verdict.kind] += 1
    finally:
        sys.setrecursionlimit(limit)
    assert counts["agreed"] > AT_ONCE // 2, counts
