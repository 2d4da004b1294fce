"""Every stage is a value: text, graph, JSON, picture, search, difference."""

from __future__ import annotations

import json
import warnings
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import timerl_nb as trl
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from timerl_nb.base.display_registry import Inspectable, register_picture
from timerl_nb.base.text_formatting import format_bytes

BOUNDS = {"B": 4, "I": 5, "T": 30}


@pytest.fixture(scope="module", params=[None, 5], ids=["monte carlo", "n-step"])
def program(request: pytest.FixtureRequest) -> trl.Program:
    return reinforce(request.param).compile(BOUNDS)


def test_artifacts_show_themselves(program: trl.Program) -> None:
    for name, stage in program.stages.items():
        artifact = stage.artifact
        text = str(artifact)
        assert text and " at 0x" not in text
        assert artifact.to_dot().startswith("digraph")
        assert json.loads(json.dumps(artifact.to_json()))["stage"]
        assert stage.seconds >= 0 and stage.summary
        svg = artifact.to_svg()
        root = ElementTree.fromstring(svg)
        assert root.tag.endswith("svg")
        assert "<script" not in svg and "onclick" not in svg, name
        bundle = artifact._repr_mimebundle_()
        assert set(bundle) == {"text/plain", "image/svg+xml"}


def test_find(program: trl.Program) -> None:
    found = program.ast.find("ACTING")
    inside = ("acting", "init", "reset")  # regions of acting, too
    assert found and all(any(name in line for name in inside) for line in found)
    assert program.pdg.find("'a' = argmax")
    assert not program.pdg.find("no such thing")


def test_differences_between_programs(program: trl.Program) -> None:
    other = program.with_options(fuse=False)
    for name in ("source", "pdg", "contract"):
        assert not other.stages[name].diff(program.stages[name]).changes
    for name in ("schedule", "memory", "ast", "executable"):
        diff = other.stages[name].diff(program.stages[name])
        assert diff.added and diff.removed, name
    longer = program.with_bounds({"T": 31}).stages["ast"].diff(program.stages["ast"])
    assert any("31" in change.text for change in longer.added)
    assert str(longer).splitlines()[0].endswith("0 changed")


def test_find_by_id_kind_name_region_and_line(program: trl.Program) -> None:
    """Every identifier of an operation leads to its line, statement, store and launch."""
    a = next(op for op in program.pdg if op.label == "a")
    (line,) = program.stages["source"].artifact.find(a.id)
    assert line.endswith('a = dnn.sample(o).named("a")')
    for what in (a.id, f"%{a.id}", "argmax", "dnn.sample(o)", a.origin.place, "acting"):
        for name in ("source", "pdg", "fuse", "schedule", "memory", "ast", "executable"):
            found = program.stages[name].artifact.find(what)
            assert found, (what, name)
            assert set(found) <= set(str(program.stages[name].artifact).splitlines())
    assert "acting" in " ".join(program.schedule.find("argmax"))
    few = program.pdg.find(1)
    assert 1 <= len(few) < len(program.pdg.find("%1"[:1])), "%1 is not %12"
    assert not any(line.lstrip().startswith("%10") for line in few)


def test_every_operation_knows_its_line_in_every_stage(program: trl.Program) -> None:
    for stage in program.stages.values():
        if stage.rewritten is None:
            continue
        for op in stage.rewritten.pdg:
            assert op.origin.file.endswith("reinforce.py") or "test_stages" in op.origin.file
            assert op.origin.text
    acting = [op for op in program.pdg if op.region[:1] == ("acting",)]
    assert len(acting) > 50


def test_stages_and_their_differences(program: trl.Program) -> None:
    stages = program.stages
    assert list(stages)[:3] == ["source", "pdg", "simplify"]
    assert list(stages)[-5:] == ["fuse", "schedule", "memory", "ast", "executable"]
    simplify = stages["simplify"].diff()
    assert len(simplify.removed) > 50 and simplify.changes_of_sort("removed") == simplify.removed
    fuse = stages["fuse"].diff()
    assert all("dataflow" in change.text for change in fuse.added)
    assert all(change.before for change in fuse.added if "init" not in change.text)
    assert str(fuse).splitlines()[0].endswith("changed")
    assert not stages["schedule"].diff().changes
    assert "total" in repr(stages) and "fuse" in repr(program)
    rules = {step.rule for step in stages["simplify"].rewritten.steps}  # type: ignore[union-attr]
    assert {"duplicate code", "dead code", "factor lifted out of a sum"} <= rules


def test_ids_lead_through_the_stages(program: trl.Program) -> None:
    """User-named operations can be traced from the original graph into a kernel."""
    ids = {op.id for op in program.pdg if op.label in ("a", "g", "logits")}
    for stage in program.stages.values():
        if stage.rewritten is not None:
            ids = {new for old in ids for new in stage.rewritten.ids[old]}
            assert ids <= set(stage.rewritten.pdg.ops)
    assert {program.fused[k].kind for k in ids} == {"dataflow"}


def test_with_options_and_with_bounds(program: trl.Program) -> None:
    separate = program.with_options(fuse=False)
    assert "separate" in separate.stages and "fuse" not in separate.stages
    assert len(separate.schedule.statements) > 40
    larger = program.with_bounds({"T": 60})
    assert larger.bounds["T"] == 60
    assert larger.stages["fuse"] is program.stages["fuse"]
    with pytest.raises(trl.errors.BoundsError, match="not a bound"):
        program.with_bounds({"Q": 3})
    with pytest.raises(trl.errors.BoundsError, match="at least 1"):
        program.with_bounds({"T": 0})


def test_predicted_memory(program: trl.Program) -> None:
    line = program.memory.timeline()
    assert line.peak == program.memory.peak == line.bytes.max()
    assert sum(h.nbytes for h in line.holders) == line.peak
    total = sum(line.by_tensor.values()) + line.transient
    np.testing.assert_array_equal(total, line.bytes)
    assert line.outer == "i"
    assert set(line.turn) == {-1, 0, 1, 2, 3, 4}
    result = program.execute(seed=0)
    np.testing.assert_array_equal(result.memory.timeline(), line.bytes)
    assert result.memory.peak == line.peak
    kinds = {store.kind for store in program.memory.stores.values()}
    assert "slot" in kinds and kinds & {"ring", "block"}
    origins = {program.memory.origin(t).text for t in program.memory.stores}
    assert any("dnn.sample" in text for text in origins)


def test_a_picture_that_fails_leaves_the_text() -> None:
    class Broken(Inspectable):
        def __str__(self) -> str:
            return "the text"

        def to_dot(self) -> str:
            return "digraph {}"

        def to_json(self) -> dict[str, Any]:
            return {}

    def fail(_: Broken) -> str:
        raise RuntimeError("no ink")

    register_picture(Broken, fail)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bundle = Broken()._repr_mimebundle_()
    assert bundle == {"text/plain": "the text"}
    assert "no ink" in str(caught[0].message)


def test_names_of_users_stay_text() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        with ctx.region("<script>alert(1)</script>"):
            x = trl.data(np.arange(4.0), domain=(t,)).named('"><img src=x onerror=alert(1)>')
            ctx.output("</svg><script>alert(2)</script>", (x * 2).named("<b>bold</b>"))
    program = ctx.compile({T: 4})
    for stage in program.stages.values():
        svg = stage.artifact.to_svg()
        tags = {element.tag.split("}")[-1] for element in ElementTree.fromstring(svg).iter()}
        assert not tags & {"script", "img", "b"}, stage.name
    assert program.execute()["</svg><script>alert(2)</script>"].tolist() == [0, 2, 4, 6]


def test_side_by_side_and_figures(program: trl.Program) -> None:
    both = {"a": program, "b": program.with_options(vectorize=("b",))}
    picture = trl.show.side_by_side({k: p.ast for k, p in both.items()})
    assert ElementTree.fromstring(picture.to_svg()).tag.endswith("svg")
    assert "acting" in repr(picture)
    space = trl.show.iteration_space(both)
    names = {trace.name for trace in space.data}
    assert "acting" in names and any(name.endswith("(once)") for name in names)
    memory = trl.show.memory_timeline(both)
    stacked = [trace for trace in memory.data if trace.xaxis == "x"]
    peak = np.sum([trace.y for trace in stacked], axis=0).max()
    assert peak == program.memory.peak
    labels = memory.layout.yaxis.ticktext
    assert len(labels) >= 3 and {label.split()[1] for label in labels} <= {"B", "KiB", "MiB"}
    curves = trl.show.learning_curves(
        {"runs": [program.execute(), program.execute(seed=1)]}, goal=475
    )
    assert len(curves.data) == 3
    clear = "rgba(0, 0, 0, 0)"  # on the page's background, light or dark
    drawn = (space, memory, curves)
    assert all(one.layout.template.layout.paper_bgcolor == clear for one in drawn)
    with pytest.raises(trl.errors.OptionError, match="the mapping of titles is empty"):
        trl.show.iteration_space({})


def test_pictures_of_small_programs() -> None:
    for name in ("no_dimension_used", "linear", "layout"):
        pattern = PATTERNS[name]
        program = pattern.context().compile(pattern.bounds)
        for stage in program.stages.values():
            ElementTree.fromstring(stage.artifact.to_svg())


def test_bytes() -> None:
    assert [format_bytes(n) for n in (12, 2048, 3 * 2**20)] == ["12 B", "2.0 KiB", "3.0 MiB"]
