"""Mappings over settings: the star moves, an iteration is explained term by term; and the widget."""

from __future__ import annotations

from typing import Any

import pytest
from timerl_widgets import MappingExplorer

import timerl_nb as trl
from tests.unit.compose.test_compose import links, published
from timerl_nb.base.errors import CallError, OptionError
from timerl_nb.compose import Device, Link, Links, Sweep, Table
from timerl_nb.show.systems.assignment_view import MappingView

SLOW, FAST = 1e6, 16e9


def swept() -> Sweep:
    """Return the published table over links of two bandwidths; two of its devices are enough."""
    given = published()
    few = {name: given.devices[name] for name in ("CPU", "GPU1")}
    table = Table(few, given.batch, given.experience, given.inserted, given.host)
    free = Links({("CPU", "CPU"): Link(0.0, float("inf")), ("CPU", "GPU1"): Link(0.0, 1.0)}, "CPU")
    tables = {(x,): (table, free.of_bandwidth(x)) for x in (FAST, SLOW)}
    return Sweep({"bandwidth": (FAST, SLOW)}, tables)


def test_the_star_moves_with_the_bandwidth() -> None:
    sweep = swept()
    near, far = (sweep.choose(bandwidth=x).best for x in (FAST, SLOW))
    assert (near.manager, near.learner) == ("CPU", "GPU1")
    assert near.terms["comm"] == pytest.approx(2 * 512 * 4 / FAST)
    assert (far.manager, far.learner) == ("CPU", "CPU") and far.terms["comm"] == 0
    # free primitives stay free
    assert sweep.at(bandwidth=SLOW)[1].known["CPU", "CPU"].bandwidth == float("inf")
    with pytest.raises(OptionError, match="the setting 'band' does not exist"):
        sweep.choose(band=1)
    with pytest.raises(OptionError, match="bandwidth=3 is not part of the sweep"):
        sweep.at(bandwidth=3)


@pytest.mark.parametrize("form", ["prose", "published"])
def test_what_counts_adds_up(form: Any) -> None:
    for sweep in (swept(), Sweep.from_table(published(), links())):
        view = MappingView.from_sweep(sweep, form=form)
        assert [(c.learner, c.manager) for c in view.cells] == [
            (i, j) for i in view.devices for j in view.devices
        ]
        assert sum(cell.is_chosen for cell in view.cells) == 1
        for cell in view.cells:
            assert sum(one.seconds for one in cell.terms if one.counts) == pytest.approx(
                cell.seconds
            )
            assert cell.seconds and cell.speed == pytest.approx(512 / cell.seconds)
        assert [one.name for one in view.traffic if one.counts] == [view.memory]
        assert view.summary in str(
            view
        ) and f"* replay on {view.summary.split(',')[0][10:]}" in str(view)


def test_sliders_and_cells_are_what_a_page_may_write() -> None:
    widget = swept().explore()
    assert isinstance(widget, MappingExplorer) and widget.at == [0] and widget.selected == []
    widget.set_state({"at": [1], "selected": ["GPU1", "CPU"]})
    assert widget.drawn.settings[0].values == ("16 GB/s", "0.001 GB/s")
    assert widget.view["json"]["summary"].startswith("replay on CPU, learner on CPU")
    assert widget.selected == ["GPU1", "CPU"]
    for bad, kept in (([9], [1]), ([-3], [0]), ([0, 0], [0]), ([], [0])):
        widget.set_state({"at": bad})
        assert widget.at == kept
    for bad in (["GPU1"], ["CPU", "TPU"], ["CPU"] * 3):
        widget.set_state({"selected": bad})
        assert widget.selected == []
    made, _ = widget._repr_mimebundle_()
    assert "learner on GPU1" in made["text/plain"] and "<svg" in made["image/svg+xml"]
    with pytest.raises(CallError, match="compose.sweep"):
        MappingExplorer(published())  # type: ignore[arg-type]
    with pytest.raises(CallError, match="out of range"):
        MappingView.from_sweep(swept(), (2,))


def test_devices_that_cannot_are_shown_so() -> None:
    given = published()
    table = Table(
        {**given.devices, "small": Device(None, None, None, "the tree does not fit")},
        given.batch,
        given.experience,
        given.inserted,
        given.host,
    )
    view = MappingView.from_sweep(Sweep.from_table(table, links()))
    cannot = [cell for cell in view.cells if "small" in (cell.manager, cell.learner)]
    assert len(cannot) == 9 and all(c.seconds is None and c.speed is None for c in cannot)
    assert {c.why_not for c in cannot} == {"the tree does not fit"}
    assert "learner on small: the tree does not fit" in str(view)


def test_networks_and_batches_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measure(algorithm: Any, devices: Any, **given: Any) -> tuple[Table, Links]:
        asked.append((algorithm, devices, given))
        return published(), links()

    monkeypatch.setattr("timerl_nb.compose.setting_sweep.measure", measure)
    made: dict[str, Any] = {"small": 1, "large": 2}
    found = trl.compose.sweep(made, ["CPU"], batch=[8, 16], bandwidth=[1e9, 2e9], rounds=2)
    assert asked == [(n, ["CPU"], {"batch": b, "rounds": 2}) for n in (1, 2) for b in (8, 16)]
    assert found.values == {
        "network": ("small", "large"), "batch": (8, 16), "bandwidth": (1e9, 2e9),
    }  # fmt: skip
    assert list(found.tables) == [(n, b, w) for n in made for b in (8, 16) for w in (1e9, 2e9)]
    assert found.at(batch=16, bandwidth=2e9)[1].known["CPU", "FPGA"].bandwidth == 2e9
    assert [one.values for one in MappingView.from_sweep(found, (1, 0, 1)).settings] == [
        ("small", "large"), ("8", "16"), ("1 GB/s", "2 GB/s"),
    ]  # fmt: skip
    for wrong in ({"batch": []}, {"bandwidth": [-1.0]}):
        with pytest.raises(OptionError, match="no values|negative value"):
            trl.compose.sweep(made, **wrong)
