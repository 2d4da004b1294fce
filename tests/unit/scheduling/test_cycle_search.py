"""The message about a program without a schedule is true, also where the search of a cycle is limited."""

from __future__ import annotations

import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ScheduleError
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.scheduling import cycle_counterexample
from timerl_nb.compiler.scheduling.cycle_counterexample import is_cycle, search_cycles
from timerl_nb.compiler.scheduling.infeasible_schedule_error import find_cycle


def carried(*, detached: bool = False) -> trl.Context:
    """A recurrent network whose state passes from one iteration to the next."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        w = trl.parameter((), domain=(i,), name="w")
        m = trl.tensor((), domain=(b, i, t)).named("m")
        h = (m * w + 1.0).tanh()
        m[b, 0, 0] = 0.0
        m[b, i, t + 1] = h
        last = h[b, i, T - 1]
        m[b, i + 1, 0] = last.detach() if detached else last
        h.square().mean(over=(b, t)).backward()
        trl.optim.SGD([w], lr=0.1).step()
        ctx.output("w", w)
    return ctx


def compile_error(bounds: dict[str, int]) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        carried().compile(bounds)
    return caught.value


@pytest.mark.parametrize("sizes", [(4, 4, 3), (32, 100, 16)])
def test_a_cycle_is_shown_at_small_and_at_large_bounds(sizes: tuple[int, ...]) -> None:
    bounds = dict(zip("BIT", sizes, strict=True))
    error = compile_error(bounds)
    assert "its gradient has none" in error.what
    assert "detach the value carried from i to i + 1" in str(error)
    assert error.cycle is not None and error.cycle.bounds == bounds
    assert is_cycle(carried().pdg(), error.cycle)


def test_the_advice_about_a_carried_value_works() -> None:
    carried(detached=True).compile({"B": 4, "I": 4, "T": 3})


def test_a_limited_search_continues_under_smaller_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle_counterexample, "MOST", 2_000)
    monkeypatch.setattr(cycle_counterexample, "PARTIAL", 500)
    error = compile_error({"B": 32, "I": 100, "T": 16})
    assert "under smaller bounds these values depend on each other in a cycle" in error.what
    assert "the search under B = 32, I = 100, T = 16 was stopped at its limit" in str(error)
    assert error.cycle is not None and error.cycle.bounds == {"B": 2, "I": 2, "T": 2}
    assert "detach the value carried from i to i + 1" in str(error)


def without_a_cycle() -> Pdg:
    """Return the graph of one tensor whose points read earlier points only."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=t)
        x[0] = x[1] = 1.0
        x[t + 2] = x[(t + 1) // 2] + x[trl.min(t + 1, T - 1)]
        ctx.output("x", x)
    return ctx.pdg()


def test_a_search_without_a_cycle_states_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    pdg = without_a_cycle()
    fixed = Pdg(pdg.dims.with_values(("t",), {"T": 300}), pdg.ops, pdg.orders)
    (found,) = find_cycle(fixed).evidence
    assert found.startswith("no values depend on each other in a cycle under T = 300;")
    assert "in a cycle under T = 34;" in str(find_cycle(pdg))
    monkeypatch.setattr(cycle_counterexample, "MOST", 100)
    monkeypatch.setattr(cycle_counterexample, "PARTIAL", 20)
    (found,) = find_cycle(fixed).evidence
    assert "no values depend on each other in a cycle under T = 34, and" in found
    assert "the search of a cycle under T = 300 was stopped at its limit" in found


def test_a_search_is_limited_in_dependences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle_counterexample, "EDGES", 5)
    assert [found.is_complete for found in search_cycles(without_a_cycle(), (8,))] == [False]
