"""Equivalent programs give equal results; `make fuzz` tries more."""

from __future__ import annotations

import os
import sys
from collections import Counter

import pytest

from tests.eager import eagerly
from tests.independent.pairs import compared
from tests.independent.rewritings import KINDS

PROGRAMS = int(os.environ.get("TIMERL_FUZZ", "40"))
AT_ONCE, EACH = 10, 5  # programs, and rewritings of each
FIRST = int(os.environ.get("TIMERL_SEED", "0")) if "TIMERL_FUZZ" in os.environ else 0


@pytest.mark.parametrize("start", range(FIRST, FIRST + PROGRAMS, AT_ONCE))
def test_two_writings_of_a_program_give_the_same(start: int) -> None:
    """Every bit is equal if names alone differ, values up to rounding otherwise; or both are refused."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    counts, kinds, wrong = Counter[str](), Counter[str](), list[str]()
    try:
        with eagerly():
            for seed in range(start, start + AT_ONCE):
                for pair in compared(seed, EACH):
                    if not pair.fine:
                        wrong.append(f"seed {seed}: {pair.kind}: {pair.what}")
                    counts[pair.kind] += 1
                    kinds.update(pair.kinds)
    finally:
        sys.setrecursionlimit(limit)
    assert not wrong, f"{counts}\n" + "\n".join(wrong)
    assert counts["same"] > AT_ONCE * EACH // 2, counts
    assert {kind.__name__ for kind in KINDS} | {"names"} == set(kinds)
