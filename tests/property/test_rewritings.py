"""Equivalent programs give equal results under both executors; `make fuzz` tries more."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import nullcontext

import pytest

from tests.eager import eagerly
from tests.independent.pairs import compared
from tests.independent.rewritings import KINDS

PROGRAMS = int(os.environ.get("TIMERL_FUZZ", "20"))
AT_ONCE, EACH = 10, 5  # programs, and rewritings of each
FIRST = int(os.environ.get("TIMERL_SEED", "0")) if "TIMERL_FUZZ" in os.environ else 0


@pytest.mark.some_of("start", 1)
@pytest.mark.parametrize("start", range(FIRST, FIRST + PROGRAMS, AT_ONCE))
def test_two_writings_of_a_program_give_the_same(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are bitwise equal if only names differ, else equal up to rounding; or both are refused.

    Even seeds run in the interpreter, odd ones in XLA.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    counts, kinds, wrong = Counter[str](), Counter[str](), list[str]()
    try:
        for seed in range(start, start + AT_ONCE):
            monkeypatch.setenv("TIMERL_EXECUTOR", "xla" if seed % 2 else "interpret")
            with nullcontext() if seed % 2 else eagerly():
                pairs = list(compared(seed, EACH))
            for pair in pairs:
                if not pair.fine:
                    wrong.append(f"seed {seed}: {pair.kind}: {pair.what}")
                counts[pair.kind] += 1
                kinds.update(pair.kinds)
    finally:
        sys.setrecursionlimit(limit)
    assert not wrong, f"{counts}\n" + "\n".join(wrong)
    assert counts["same"] > AT_ONCE * EACH // 2, counts
    assert {kind.__name__ for kind in KINDS} | {"names", "dims"} == set(kinds)
