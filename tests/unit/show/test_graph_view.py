"""View models of graphs: folding, edges, and page data."""

from __future__ import annotations

import json
from functools import cache

import pytest

import timerl_nb as trl
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from timerl_nb.base.errors import DrawingError
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import DataflowAttrs
from timerl_nb.driver.program import Program
from timerl_nb.show import GraphView, graph_view, laid_out
from timerl_nb.show.graph import graph_view as graph_module
from timerl_nb.show.graph.graph_layout import LayoutTimeout
from timerl_nb.show.graph.graph_view import shorten_name


@cache
def program() -> Program:
    return reinforce().compile({"B": 4, "I": 2, "T": 6})


@cache
def fused() -> Pdg:
    return program().stages["fuse"].artifact


def operations(view: GraphView) -> list[int]:
    return sorted({op_id for node in view.nodes for op_id in node.op_ids})


def check(view: GraphView) -> None:
    """Check invariants of every view."""
    keys = {node.key for node in view.nodes}
    boxes = {box.key: box for box in view.boxes}
    assert len(keys) == len(view.nodes) and not keys & set(boxes)
    for item in view.nodes:
        assert item.cluster == "" or item.cluster in boxes
        assert item.is_folded == (item.key in view.folded)
    for box in view.boxes:
        inside = {k for node in view.nodes if node.cluster == box.key for k in node.op_ids}
        inside |= {k for b in view.boxes if b.parent == box.key for k in b.op_ids}
        assert inside <= set(box.op_ids)
    for edge in view.edges:
        assert {edge.tail, edge.head} <= keys
        assert edge.reads


def test_a_graph_as_written_is_folded_by_line_within_regions() -> None:
    graph = program().pdg
    view = graph_view(graph)
    check(view)
    assert len(graph) > 300 and len(view.nodes) < 30
    assert operations(view) == sorted(graph.ops)
    assert any("env.reset" in node.text for node in view.nodes)
    boxes = {box.label: box for box in view.boxes}
    assert boxes["init"].parent == boxes["acting"].key
    assert all(node.kind == "line" for node in view.nodes)


def test_clusters_open_and_fold_again() -> None:
    view = graph_view(program().pdg)
    step = next(node for node in view.nodes if "env.step(a)" in node.text)
    opened = view.toggle(step.key)
    check(opened)
    assert {f"op{k}" for k in step.op_ids} <= {node.key for node in opened.nodes}
    assert operations(opened) == operations(view)
    (box,) = (box for box in opened.boxes if box.key == step.key)
    assert box.op_ids == step.op_ids and box.parent == step.cluster
    assert opened.toggle(step.key) == view


def test_regions_fold_with_all_that_is_in_them() -> None:
    view = graph_view(program().pdg)
    acting = next(box for box in view.boxes if box.label == "acting")
    folded = view.fold(acting.key)
    check(folded)
    (node,) = (node for node in folded.nodes if node.key == acting.key)
    assert node.op_ids == acting.op_ids and node.outline == "folder"
    assert not any(box.parent == acting.key for box in folded.boxes)
    assert folded.unfold(acting.key) == view
    assert len(view.fold().nodes) < 6


def test_everything_open_is_every_operation() -> None:
    graph = program().pdg
    view = graph_view(graph).unfold()
    check(view)
    assert {node.key for node in view.nodes} == {f"op{k}" for k in graph.ops}
    reads = {(f"op{read.source}", f"op{op.id}") for op in graph for read in op.inputs}
    shown = {(edge.tail, edge.head) for edge in view.edges}
    assert shown == {(a, b) for a, b in reads if a != b} | (shown & {(a, a) for a, _ in reads})


def test_a_fused_graph_is_shown_by_its_kernels() -> None:
    view = graph_view(fused())
    check(view)
    kernels = [node for node in view.nodes if node.kind == "kernel"]
    assert {node.key for node in kernels} == {
        f"op{op.id}" for op in fused() if op.kind == "dataflow"
    }
    acting = next(node for node in kernels if node.label.startswith("acting("))
    body = fused()[acting.op_ids[0]].attrs
    assert isinstance(body, DataflowAttrs)
    assert set(acting.op_ids[1:]) == {op.id for op in body.body}
    (loop,) = (e for e in view.edges if (e.tail, e.head) == (acting.key, acting.key))
    assert [(r.index, r.cond) for r in loop.reads] == [("[i, t - 1]", "t >= 1")]
    assert any(node.kind == "returned" for node in view.nodes)
    assert not acting.detail  # a kernel has no single line


def test_many_kernels_are_folded_by_line() -> None:
    apart = program().with_options(fuse=False).stages["separate"].artifact
    assert isinstance(apart, Pdg)
    view = graph_view(apart)
    check(view)
    kernels = {op.id for op in apart if op.kind == "dataflow"}
    assert len(kernels) > 100 and len(view.nodes) < 30
    assert kernels <= set(operations(view))
    line = next(node for node in view.nodes if "env.step" in node.text)
    opened = view.unfold(line.key)
    check(opened)
    assert {n.kind for n in opened.nodes if n.cluster == line.key} == {"kernel"}


def test_kernels_open_onto_their_operations() -> None:
    view = graph_view(fused())
    kernels = [node.key for node in view.nodes if node.kind == "kernel"]
    opened = view.unfold(*kernels)
    check(opened)
    assert set(kernels) <= {box.key for box in opened.boxes}
    whole = view.unfold()
    check(whole)
    single = [node for node in whole.nodes if not node.is_folded]
    bodies = [op for op in fused() if isinstance(op.attrs, DataflowAttrs)]
    assert len(single) >= sum(len(op.attrs.body) for op in bodies)
    # an inner operation's read of another kernel starts at the operation that computes the value
    inside = {node.key for node in whole.nodes if "in" in node.key or node.cluster}
    assert all(edge.tail in inside for edge in whole.edges)


def test_edges_carry_index_and_condition() -> None:
    pattern = PATTERNS["forward_recurrence"]
    view = graph_view(pattern.context().pdg())
    check(view)
    assert not view.folded
    found = {(read.index, read.cond) for edge in view.edges for read in edge.reads}
    assert ("[t - 1]", "t >= 1") in found
    assert "[t - 1] if t >= 1" in {edge.label for edge in view.edges}


def test_values_have_bytes_where_the_bounds_are_known() -> None:
    view = graph_view(program().pdg, bounds=program().bounds)
    values = {value.name: value for node in view.nodes for value in node.values}
    weight = values["trunk.0.weight"]
    assert (weight.domain, weight.shape, weight.dtype) == (("i",), ("4", "32"), "f32")
    assert weight.bytes == 4 * 32 * 4
    bare = graph_view(program().pdg)
    assert all(value.bytes is None for node in bare.nodes for value in node.values)


def test_the_page_gets_plain_values_that_the_picture_has() -> None:
    view, svg = laid_out(graph_view(fused(), bounds=program().bounds))
    model = json.loads(json.dumps(view.to_json()))
    for item in (*model["nodes"], *model["clusters"], *model["edges"]):
        assert f'id="{item["id"]}"' in svg
    assert {n["id"] for n in model["nodes"] if n["folded"]} <= set(model["folded"])


def test_another_stage_is_shown_with_the_same_folds() -> None:
    before = graph_view(program().pdg)
    step = next(node for node in before.nodes if "env.step(a)" in node.text)
    update = next(box for box in before.boxes if box.label == "update")
    before = before.unfold(step.key).fold(update.key)
    after = graph_view(program().stages["simplify"].artifact)
    shown = after.as_in(before)
    check(shown)
    assert step.key in {box.key for box in shown.boxes}
    assert update.key in {node.key for node in shown.nodes}
    assert after.as_in(graph_view(program().pdg)) == after


def test_an_unknown_cluster_is_an_error() -> None:
    view = graph_view(program().pdg)
    with pytest.raises(DrawingError, match="no cluster 'op1'"):
        view.fold("op1")


def test_a_layout_that_takes_too_long_is_of_a_folded_view(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = graph_module.layout_svg

    def slow(dot: str) -> str:
        if dot.count("fillcolor") > 20:
            raise LayoutTimeout("too slow")
        return draw(dot)

    monkeypatch.setattr(graph_module, "layout_svg", slow)
    view, svg = laid_out(graph_view(program().pdg).unfold())
    assert len(view.nodes) <= 20 and svg.startswith("<svg")


def test_thousands_of_operations_are_folded_to_hundreds() -> None:
    import timerl_nb as trl

    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.value(t).cast("f32")
        for block in range(5):
            with ctx.region(f"block {block}"), ctx.region("inner"):
                for k in range(400):
                    x = (x * 0.5 + k).tanh() if k % 2 else x - 1.0
        ctx.output("x", x)
    graph = ctx.pdg()
    view = graph_view(graph)
    check(view)
    assert len(graph) > 2000 and len(view.nodes) < 300
    assert len(view.unfold().nodes) == len(graph)


def test_a_kernels_name_is_shortened_where_it_is_drawn_alone() -> None:
    assert shorten_name("acting") == "acting"
    assert shorten_name("dactor.bias+dactor.weight+dtrunk") == "dactor.bias + 2 more"
    assert shorten_name("dactor.bias+dactor.weight+dtrunk.61") == "dactor.bias + 2 more .61"
    assert shorten_name("a_name_that_is_long_and_the_users_own") == (
        "a_name_that_is_long_and_the_users_own"
    )
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.tensor((), domain=(i, t))
        x[i, 0] = 1.0
        noise = trl.random.normal(domain=(i, t)).named("the_noise_of_a_step")
        state = (x + noise).named("the_state_of_a_step")
        x[i, t + 1] = (state * 0.5).tanh().named("what_follows")
        ctx.output("x", x)
        ctx.output("state", state)
    view = graph_view(ctx.compile({I: 2, T: 3}).fused)
    kernel = next(node for node in view.nodes if "more" in node.label)
    assert kernel.name.count("+") == 1 and kernel.name.endswith("(t)")
    given = next(node for node in view.to_json()["nodes"] if node["id"] == kernel.key)
    assert given["name"] == kernel.name and "+ 1 more" in view.to_svg()
