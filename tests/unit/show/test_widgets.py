"""The widgets' traits without a browser: outgoing and permitted incoming changes."""

from __future__ import annotations

import pytest
import timerl_widgets
import traitlets
from timerl_widgets import PdgView

import timerl_nb as trl
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from tests.unit.show.test_mappings import swept
from timerl_nb.collecting.strategy_report import StrategyReport
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.streams import Stream


def view() -> PdgView:
    pattern = PATTERNS["forward_recurrence"]
    return PdgView(pattern.context().compile(pattern.bounds))


def test_the_view_model_goes_out() -> None:
    widget = view()
    state = widget.get_state()
    svg = state["view"]["svg"]
    assert svg.startswith("<svg")
    keys = {node["id"] for node in state["view"]["nodes"]}
    assert keys == {f"op{k}" for k in range(len(keys))}
    for node in state["view"]["nodes"]:
        assert f'id="{node["id"]}"' in svg
        assert node["op_ids"] and node["detail"]
    for edge in state["view"]["edges"]:
        assert {edge["tail"], edge["head"]} <= keys


def test_a_selection_comes_in() -> None:
    widget = view()
    seen: list[list[int]] = []
    widget.observe(lambda change: seen.append(change["new"]), "selected")
    widget.set_state({"selected": [2]})
    assert widget.selected == [2] and seen == [[2]]


def test_a_selection_is_data() -> None:
    widget = view()
    widget.set_state({"selected": [1, 1, 99, -1]})
    assert widget.selected == [1]
    with pytest.raises(traitlets.TraitError):
        widget.set_state({"selected": ["<script>"]})
    assert widget.selected == [1]


WRITTEN = {
    "Explorer": {"selected", "stage", "instant", "bookmarks"},
    "MappingExplorer": {"at", "selected"},
    "RunMonitor": set[str](),
    "ScopeView": {"selected", "operation"},
    "StreamView": {"selected", "step"},
    "StrategiesExplorer": {"selected"},
}


@pytest.mark.parametrize("name", timerl_widgets.__all__)
def test_a_page_writes_what_is_named_and_nothing_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In particular not the module that every page runs, a view, or a status text."""
    pattern = PATTERNS["forward_recurrence"]
    program = pattern.context().compile(pattern.bounds)
    taken = {
        "MappingExplorer": swept,
        "ScopeView": program.scope,
        "StreamView": lambda: Stream("none", ()).run("serial"),
        "StrategiesExplorer": lambda: trl.collect("CartPole-v1", trl.policies.random, how="scan"),
    }
    monkeypatch.setattr(
        "timerl_nb.collecting.Collector.strategies_for", lambda *_: StrategyReport((), "scan", "")
    )
    made = getattr(timerl_widgets, name)(taken.get(name, lambda: program)())
    written = WRITTEN.get(name, {"selected"})
    others = set(made.keys) - written
    assert made.written == written and written < set(made.keys)
    assert {"_esm", "_view_module", "layout"} < others
    sent = list[str]()
    monkeypatch.setattr(made, "send_state", lambda key=None: sent.extend(key or made.keys))
    before = {key: getattr(made, key) for key in others}
    for key in sorted(others):
        for bad in ("alert(1)", {"json": {}}, 7, None):
            made.set_state({key: bad, "selected": []})
    made.set_state({"no such trait": 1, "__class__": "x"})
    assert {key: getattr(made, key) for key in others} == before
    assert set(sent) == others  # the page gets the true state
    made.close()


def told(widget: PdgView, message: object) -> None:
    """Send a change from the page."""
    widget._handle_custom_msg(message, [])


def test_a_cluster_opens_and_folds() -> None:
    widget = PdgView(reinforce().compile({"B": 2, "I": 1, "T": 3}))
    before, key = widget.view, next(n["id"] for n in widget.view["nodes"] if n["folded"])
    told(widget, {"kind": "fold", "id": key, "folded": False})
    assert key in {cluster["id"] for cluster in widget.view["clusters"]}
    assert f'id="{key}"' in widget.view["svg"] and widget.svg == widget.view["svg"]
    told(widget, {"kind": "fold", "id": key, "folded": True})
    assert widget.view == before


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "fold", "id": "nothing", "folded": True},
        {"kind": "fold", "id": ["op1"], "folded": True},
        {"kind": "fold", "id": "op1", "folded": "yes"},
        {"kind": "eval", "id": "1 / 0"},
        "fold",
        None,
    ],
)
def test_a_message_is_data(message: object) -> None:
    widget = view()
    before = widget.view
    told(widget, message)
    assert widget.view == before


def test_another_graph_is_shown() -> None:
    widget = view()
    program = reinforce().compile({"B": 2, "I": 1, "T": 3})
    widget.show(program)
    opened = next(node["id"] for node in widget.view["nodes"] if node["folded"])
    told(widget, {"kind": "fold", "id": opened, "folded": False})
    simplified = program.stages["simplify"].artifact
    assert isinstance(simplified, Pdg)
    widget.show(simplified)
    assert opened in {cluster["id"] for cluster in widget.view["clusters"]}


def test_saved_pages_keep_the_picture() -> None:
    bundle, _ = view()._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg")
    assert "application/vnd.jupyter.widget-view+json" in bundle
