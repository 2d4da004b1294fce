"""Numeric gaps between uses equal isl's relations, point by point."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.drawn import Drawn
from tests.property.programs import programs
from tests.property.test_programs import RUNS, sampled
from tests.unit.memory.test_swap import ending_sums
from timerl_nb.compiler.isl.point_enumeration import all_pairs
from timerl_nb.compiler.isl.reuse_intervals import Ends, Gaps
from timerl_nb.compiler.memory.liveness.use_sequence import Calendar, Uses
from timerl_nb.compiler.memory.memory_plan import MemoryPlan

WAYS: tuple[dict[str, Any], ...] = ({}, {"vectorize": False}, {"fuse": False}, {"stores": "point"})


@sampled(RUNS // 4)
@given(programs(), st.sampled_from(WAYS), st.integers(0, 3))
def test_pauses_are_isls_gaps(drawn: Drawn, options: dict[str, Any], ahead: int) -> None:
    plan = drawn.ctx.compile(drawn.bounds, trl.Options(**options)).memory
    event("some" if check(plan, ahead) else "none")


def test_pauses_under_a_bound_that_the_run_finds() -> None:
    for options in WAYS:
        plan = ending_sums(6, **options).memory
        assert all(check(plan, ahead) for ahead in range(3))


def check(plan: MemoryPlan, ahead: int) -> int:
    """Compare all gap classes of a plan; return their number."""
    clock, calendar, count = plan.clock, Calendar(plan.clock), 0
    for life in plan.lifetimes.values():
        if not len(clock.points[life.producer]):
            continue
        gaps = Gaps(calendar.times, life.uses, life.returned)
        want: dict[Ends, list[Any]] = {}
        for gap in (*gaps.between_uses(ahead), *gaps.after_last_use()):
            made, points = all_pairs(gap.leaves, clock.bounds)
            codes, used = clock.codes(life.domain, made), clock.rank(gap.ends.before, points)
            back = np.full(len(used), len(clock))
            if gap.ends.after is not None and gap.returns is not None:
                again, points = all_pairs(gap.returns, clock.bounds)
                back = clock.rank(gap.ends.after, points)
                back = back[np.lexsort((back, clock.codes(life.domain, again)))]
            order = np.lexsort((used, codes))
            want[gap.ends] = [codes[order].tolist(), used[order].tolist(), back.tolist()]
        have = Uses(calendar, life).pauses(ahead)
        assert {
            one.ends: [one.codes.tolist(), one.used.tolist(), one.back.tolist()] for one in have
        } == want
        count += len(have)
    return count
