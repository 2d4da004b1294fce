"""Program families over a function's arguments, and results of sweeping one argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.errors import BoundsError, CallError, OptionError, TimeRLError
from timerl_nb.driver.program_family import Family
from timerl_nb.show.comparison.argument_sweep import Sweeper, spread

BOUNDS = {"I": 5, "T": 8}


def returns(steps: int | None = None, gamma: float = 0.5) -> trl.Context:
    """n-step or full returns of a recurrence, and a loop on them."""
    if steps == 3:
        raise ValueError("three is not tried")
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        r = trl.tensor((), domain=(i, t)).named("r")
        g = r[i, t : T if steps is None else trl.min(t + steps, T)].discounted_sum(gamma)
        r[0, 0] = 1.0
        r[i + 1, 0] = g[i, 0:T].max()
        r[i, t + 1] = r.sin() + 1.0
        ctx.output("g", g)
        if steps == 4:
            ctx.output("beyond", r[i, t + T])
    return ctx


def compiled(steps: int | None = None) -> trl.Program:
    return returns(steps).compile(BOUNDS)


def swept(**arguments: Any) -> trl.show.SweepView:
    return trl.sweep(returns, BOUNDS, progress=False, **arguments)


@pytest.fixture(scope="module")
def view() -> trl.show.SweepView:
    return swept(steps=[None, 1, 3, 2, 4, 8], measure=2)


def test_every_point_is_a_program_of_its_own(view: trl.show.SweepView) -> None:
    assert [point.label for point in view.points] == ["1", "3", "2", "4", "8", "Monte Carlo"]
    for steps in (1, 2, 8, None):
        program, point = compiled(steps), view[steps]
        assert point.peak == program.memory.peak and point.compile_seconds
        assert point.saved_by == () and point.problem == ""
        assert point.launches == 9  # eight steps, with all their returns


def test_a_point_that_cannot_be_compiled_says_why_and_the_others_go_on(
    view: trl.show.SweepView,
) -> None:
    assert view[3].peak is None and view[3].problem == "ValueError: three is not tried"
    assert view[4].peak is None and "r" in view[4].problem
    assert "ValueError: three is not tried" in str(view)
    assert len(view) == 6


def test_some_points_are_measured_and_said(view: trl.show.SweepView) -> None:
    assert view.measured == ("1", "Monte Carlo")
    assert [point.turn_seconds is not None for point in view.points] == [True, *[False] * 4, True]
    assert str(view).startswith("returns over steps: 6 predicted; measured: 1, Monte Carlo\n")
    assert spread(101, 12)[0] == 0 and spread(101, 12)[-1] == 100 and len(spread(101, 12)) == 12
    assert spread(3, 12) == [0, 1, 2] and spread(3, 1) == [0] and spread(3, 0) == []


def test_a_sweep_is_a_value(view: trl.show.SweepView, tmp_path: Path) -> None:
    json = view.to_json()
    assert json["argument"] == "steps" and json["measured"] == ["1", "Monte Carlo"]
    assert [point["value"] for point in json["points"]] == [1, 3, 2, 4, 8, None]
    assert {"text/plain", "image/svg+xml"} <= view._repr_mimebundle_().keys()
    crosses = [e for e in ElementTree.fromstring(view.to_svg()).iter() if e.text == "×"]
    assert len(crosses) == 2 * 4
    with pytest.raises(OptionError, match="the sweep does not contain 5"):
        view[5]


def test_a_figure_has_a_chart_for_each_quantity(view: trl.show.SweepView) -> None:
    figure = trl.show.sweep(view)
    lines, crosses = figure.data[::2], figure.data[1::2]
    assert [len(line.x) for line in lines] == [4, 4, 4, 2]
    assert list(lines[0].y) == [view[n].peak for n in (1, 2, 8, None)]
    assert all(list(cross.x) == [1, 3] for cross in crosses)
    assert figure.layout.xaxis.ticktext[-1] == "Monte Carlo"
    ticks = dict(zip(figure.layout.yaxis.ticktext, figure.layout.yaxis.tickvals, strict=True))
    assert 3 <= len(ticks) <= 8 and all(label.endswith(" B") for label in ticks)
    assert max(ticks.values()) >= max(lines[0].y)


def test_all_four_charts_of_the_picture_fit_into_a_cell(view: trl.show.SweepView) -> None:
    root = ElementTree.fromstring(view.to_svg())
    assert float(root.attrib["width"]) < 700
    titles = {chart.title for chart in view.charts}
    assert titles <= {text.text for text in root.iter() if text.text}


@pytest.mark.parametrize(
    ("argument", "last"),
    [("n_steps", "Monte Carlo"), ("lookahead", "Monte Carlo"), ("window", "None"), ("n", "None")],
)
def test_none_is_monte_carlo_only_for_steps_of_returns(argument: str, last: str) -> None:
    family = Family(lambda **given: returns(*given.values()), {argument: [1, 3, None]}, BOUNDS)
    assert [family.label(argument, k) for k in range(3)] == ["1", "3", last]


def test_what_has_effects_is_not_measured(tmp_path: Path) -> None:
    def saving(steps: int) -> trl.Context:
        with trl.Context("t") as ctx:
            ((t, _),) = ctx.dims
            x = trl.random.normal((steps,), domain=(t,))
            x.checkpoint(tmp_path / "saved")
            ctx.output("x", x)
        return ctx

    view = trl.sweep(saving, {"T": 3}, steps=[1, 2], measure=1, progress=False)
    assert view[1].peak is not None and view.measured == ()
    assert "effects on the host" in view[1].problem and view[2].problem == ""
    assert not (tmp_path / "saved").exists()


def test_a_family_pins_what_the_compiler_would_choose() -> None:
    family = Family(returns, {"steps": [2, None]}, BOUNDS)
    options = family.program({"steps": 1}).options
    assert options.incrementalize is False and options.rematerialize is False
    assert family.first.options == options
    given = Family(returns, {"steps": [2, None]}, BOUNDS, trl.Options(rematerialize=True))
    assert given.program({"steps": 1}).options.rematerialize is True
    # the first program is tiled: so are the others
    tight = trl.Options(device_memory="150KiB")
    blocks = Family(reinforce, {"window": [None, 40]}, {"B": 8, "I": 3, "T": 100}, tight)
    cut = blocks.first.options.incrementalize
    assert isinstance(cut, tuple) and cut[0][0] == "t"
    assert blocks.program({"window": 0}).options.incrementalize == cut


def test_functions_may_compile_themselves() -> None:
    family = Family(compiled, {"steps": [1, None]}, {"T": 6})
    program = family.program({"steps": 1}, options={"lift": False})
    assert program.bounds == {"I": 5, "T": 6} and not program.options.lift
    assert program.options.incrementalize == "auto"
    with pytest.raises(OptionError, match="returns a compiled program, so options= has no effect"):
        Family(compiled, {"steps": [1]}, options=trl.Options())


def test_lists_are_swept_and_the_rest_is_passed_on() -> None:
    family = Family(returns, {"steps": range(1, 3), "gamma": 0.25}, BOUNDS)
    assert family.swept == {"steps": (1, 2)} and family.start == {"steps": 0}
    assert "0.25" in str(family.first.pdg)
    two = Family(returns, {"steps": [1], "gamma": [0.5, 0.25]}, BOUNDS)
    assert "0.25" in str(two.program({"steps": 0, "gamma": 1}).pdg)
    assert two.label("gamma", 1) == "0.25"


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (CallError, "unexpected keyword argument 'stps'", {"stps": [1]}),
        (OptionError, "steps is an empty list", {"steps": []}),
        (OptionError, "with 1 twice", {"steps": [1, 1]}),
        (
            OptionError,
            "the arguments with lists are steps, gamma",
            {"steps": [1], "gamma": [0.1, 0.2]},
        ),
        (OptionError, "the arguments with lists are none", {"steps": 1}),
        (OptionError, "measure=-1 is not a number", {"steps": [1], "measure": -1}),
        (BoundsError, "Q is not a bound", {"steps": [1], "bounds": {"Q": 1}}),
        (BoundsError, "the bound I is missing", {"steps": [1], "bounds": {}}),
        (ValueError, "three", {"steps": [3, 1]}),
    ],
)
def test_what_is_wrong_is_said_at_the_callers_line(
    error: type[Exception], match: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(error, match=match) as caught:
        trl.sweep(returns, **{"bounds": BOUNDS, "progress": False, **arguments})
    if isinstance(caught.value, TimeRLError):
        assert caught.value.origin.text.startswith("trl.sweep(returns")


def test_what_is_no_function_of_programs_is_refused() -> None:
    with pytest.raises(CallError, match=r"<lambda>\(n=1\) returned 3, which is neither"):
        trl.sweep(lambda n: 3, n=[1])
    with pytest.raises(CallError, match="Program is not a function"):
        trl.sweep(compiled(), n=[1])


def test_a_sweep_that_is_interrupted_gives_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Sweeper.step

    def interrupted(self: Sweeper, *see: Any) -> None:
        if len(self.view) == 2:
            raise KeyboardInterrupt
        step(self, *see)

    monkeypatch.setattr(Sweeper, "step", interrupted)
    view = swept(steps=[1, 2, 8])
    assert len(view) == 2 and view.measured == ()
    assert view.summary == "returns over steps: 2 of 3 predicted; measured: none"
