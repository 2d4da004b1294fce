"""Dynamic bounds without a ceiling: `{T: done}`."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
import timerl_nb.driver.program_runs.assumed_ceiling


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_without_a_ceiling_a_run_finds_one(executor: str) -> None:
    """The initial plan is for 256 points; iteration 1 needs 600."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.random.normal((), domain=(i, t))
        done = trl.value(t) >= trl.value(i * 590 + 9)
        ctx.output("total", x.sum(over=t))
        ctx.output("x", x)
    options = trl.Options(executor=executor)
    program = ctx.compile({I: 2, T: done}, options)
    assert "T <= 256 (or more) until" in repr(program)
    result = program.execute(seed=3)
    np.testing.assert_array_equal(result.lengths["T"], [10, 600])
    want = ctx.compile({I: 2, T: trl.until(done, at_most=1024)}, options).execute(seed=3)
    for name, value in want.items():
        np.testing.assert_array_equal(result[name], value)
    again = program.execute(seed=4)  # compiled before
    np.testing.assert_array_equal(again.lengths["T"], [10, 600])
    short = program.with_bounds({I: 1}).execute(seed=3)
    assert short["x"].shape == (1, 256)


def test_what_never_ends_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timerl_nb.driver.program_runs.assumed_ceiling, "_LONGEST", 512)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        never = trl.value(t) < 0
        ctx.output("y", trl.random.normal((), domain=(t,)))
    with pytest.raises(
        trl.errors.BoundsError, match="is false at the first 512 points(.|\\n)*ceiling"
    ):
        ctx.compile({T: never}).execute()
