"""Random unbounded programs: their first iterations equal those of a bounded run."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.drawn import Drawn
from tests.property.programs import programs
from tests.property.test_programs import few, sampled
from tests.property.test_xla import whatever_it_gains  # noqa: F401  (a fixture)
from tests.unit.checks import assert_same
from timerl_nb.base.errors import BoundsError, ReadError, ScheduleError
from timerl_nb.compiler.ir.reference.evaluator import Reference

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is read in slices"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
    pytest.mark.usefixtures("whatever_it_gains"),
]
TURNS, LATER = 4, 7  # compared iterations, and length of the run


@sampled(few(2))
@given(st.data())
def test_turns_are_those_of_a_run(data: Any) -> None:
    d: Drawn = data.draw(programs())
    name = data.draw(st.sampled_from(d.ctx.space.names))
    bound = d.ctx.space[name].bound
    how = data.draw(st.sampled_from(("interpret", "xla")))
    options: dict[str, Any] = data.draw(
        st.sampled_from(({}, {"vectorize": False}, {"lift": False}))
    )
    try:
        program = d.ctx.compile(
            {**d.bounds, bound: trl.endless}, trl.Options(executor=how, **options), tell=False
        )
    except (BoundsError, ReadError, ScheduleError) as error:
        event(type(error).__name__)
        return
    event("accepted")
    bounds = {**d.bounds, bound: LATER}
    reference = Reference(d.ctx.pdg(), bounds, 3)
    want = reference.outputs()
    with program.turns(seed=3) as turns:
        made = list(islice(turns, TURNS))
    for output in (op for op in reference.pdg.sinks if op.kind == "output"):
        if output.attrs.role != "output":
            continue
        label, axis = output.attrs.name, output.attrs.dims.index(name)
        if label in reference.coordinates():
            at = reference.coordinates()[label][name]
            rows = {int(k): want[label][n] for n, k in enumerate(at) if k < TURNS}
        else:
            rows = {k: np.take(want[label], k, axis) for k in range(TURNS)}
        for k in range(TURNS):
            assert (label in made[k]) == (k in rows)
            if k in rows:
                assert_same({label: rows[k]}, {label: made[k][label]}, f"turn {k}")
