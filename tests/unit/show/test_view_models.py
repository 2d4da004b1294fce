"""The explorer's view models agree with their program."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests import patterns_conditional, patterns_indexing  # noqa: F401  (enter their programs)
from tests.episodes import cartpole
from tests.patterns import PATTERNS
from tests.pixels import pixels
from tests.reinforce import reinforce
from tests.unit.checks import leaving
from timerl_nb.base.errors import DomainError, OptionError
from timerl_nb.base.options import Options
from timerl_nb.compiler.ir.operations import DataflowAttrs
from timerl_nb.compiler.loops.loop_nodes import Execute
from timerl_nb.show import (
    Index,
    InspectorView,
    IterationSpaceView,
    LaunchView,
    Lineage,
    LoopView,
    MemoryView,
    PipelineView,
    StepsView,
    StoresView,
    Turn,
    View,
    detail,
)

BOUNDS = {"B": 3, "I": 4, "T": 12}
LONG = {"B": 3, "I": 4, "T": 60}


@pytest.fixture(scope="module", params=[None, 5], ids=["mc", "nstep"])
def program(request: pytest.FixtureRequest) -> trl.Program:
    return reinforce(request.param, hidden=(4,)).compile(BOUNDS)


@pytest.fixture(scope="module")
def nstep() -> trl.Program:
    return reinforce(5, hidden=(4,)).compile(LONG)


@pytest.fixture(scope="module")
def swapped() -> trl.Program:
    options = trl.Options(vectorize=("b",), lift=False, incrementalize=False)
    whole = pixels().compile({"B": 8, "I": 2, "T": 12}, options)
    return whole.with_options(device_memory=leaving(whole, 0.7))


def views(program: trl.Program) -> dict[str, View]:
    chosen = next(op.id for op in program.pdg if op.label == "a")
    return {
        "pipeline": PipelineView.from_program(program),
        "steps": StepsView.from_stage(program.stages["vectorize"]),
        "loop": LoopView.from_program(program),
        "launches": LaunchView.from_program(program),
        "space": IterationSpaceView.from_program(program),
        "memory": MemoryView.from_program(program),
        "stores": StoresView.from_program(program),
        "lineage": Lineage.from_program(program),
        "inspector": InspectorView.from_program(program, [chosen]),
        "search": Index(program).search("tanh"),
    }


def restored(value: Any, buffers: list[memoryview]) -> Any:
    """Return a message as its receiver decodes it."""
    if isinstance(value, dict):
        if "buffer" in value:
            array = np.frombuffer(buffers[value["buffer"]], value["dtype"])
            return array.reshape(value["shape"]).tolist()
        return {key: restored(one, buffers) for key, one in value.items()}
    return [restored(one, buffers) for one in value] if isinstance(value, list) else value


def test_a_view_is_json_and_the_same_as_a_message_with_buffers(program: trl.Program) -> None:
    for name, view in views(program).items():
        plain = view.to_json()
        assert json.loads(json.dumps(plain)) == plain, name
        assert plain["view"] == name
        assert restored(*view.to_message()) == plain, name
        svg = view.to_svg()
        assert svg.startswith("<svg") and 'width="100%"' in svg, name  # with a background
        assert str(view), name


def test_views_of_two_compilations_are_the_same(program: trl.Program) -> None:
    again = views(program.with_options())
    for name, view in views(program).items():
        if name != "pipeline":  # which has times
            assert again[name].to_json() == view.to_json(), name


# --- pipeline ------------------------------------------------------------------------------------


def test_a_pipeline_has_every_stage_in_order_and_those_that_are_off(program: trl.Program) -> None:
    view = PipelineView.from_program(program.with_options(vectorize=False, fuse=False))
    ran = [row.name for row in view.stages if row.ran]
    assert ran == list(program.with_options(vectorize=False, fuse=False).stages)
    off = {row.name: row.option for row in view.stages if not row.ran}
    assert off == {name: name for name in ("vectorize", "rematerialize", "incrementalize")}
    assert [row.name for row in view.stages].index("vectorize") == 4


def test_the_bars_of_a_pipeline_are_as_long_as_its_stages_took(program: trl.Program) -> None:
    view = PipelineView.from_program(program)
    bars = [float(w) for w in re.findall(r'width="([\d.]+)" height="11"', view.to_svg())]
    most = max(row.seconds for row in view.stages)
    assert bars == pytest.approx([130 * row.seconds / most for row in view.stages], abs=0.06)


def test_the_switch_of_every_stage_switches_it(program: trl.Program) -> None:
    for k, row in enumerate(PipelineView.from_program(program).to_json()["stages"]):
        if row["option"] is None:
            continue
        assert row["is_on"]
        other = program.with_options(**{row["option"]: row["off"]})
        assert row["name"] not in other.stages
        off = PipelineView.from_program(other).to_json()["stages"][k]
        assert off["name"] == {"fuse": "separate"}.get(row["name"], row["name"])
        assert off["is_on"] is False and off["on"] == row["on"]
        again = other.with_options(**{off["option"]: off["on"]})
        assert again.options == program.options


def test_what_is_on_and_not_needed_says_so(program: trl.Program) -> None:
    rows = {row.name: row for row in PipelineView.from_program(program).stages}
    assert rows["rematerialize"].is_on and not rows["rematerialize"].ran
    assert rows["rematerialize"].cost == "not needed"
    assert re.search("rematerialize +not needed", str(PipelineView.from_program(program)))
    off = PipelineView.from_program(program.with_options(rematerialize=False))
    assert {row.name: row.cost for row in off.stages}["rematerialize"] == "off"


def test_a_stage_that_changes_nothing_says_so(program: trl.Program) -> None:
    changed = {row.name: row.changed for row in PipelineView.from_program(program).stages}
    assert changed["simplify"] is True
    assert changed["lift"] is (len(program.stages["lift"].diff().changes) > 0)
    assert changed["schedule"] is None


def test_every_option_has_its_kind_and_its_documentation(program: trl.Program) -> None:
    given = program.options.with_(vectorize=("b",), incrementalize={"t": 4}, device_memory="64MiB")
    shown = PipelineView.from_program(program.with_options(vectorize=("b",), device_memory="64MiB"))
    found = {option.name: option for option in shown.options}
    assert found.keys() == Options.__dataclass_fields__.keys() - {"device", "torch_compile"}
    assert all(option.doc.endswith(".") for option in found.values())
    assert found["vectorize"].kind == "dims" and found["vectorize"].value == ["b"]
    assert found["vectorize"].choices == ("b", "i", "t")
    assert found["swap"].kind == "choice" and found["swap"].choices == ("auto", False)
    assert found["device_memory"].kind == "bytes" and found["device_memory"].value == 64 << 20
    assert given.incrementalize == (("t", 4),)


def test_a_dynamic_bound_says_what_ends_it() -> None:
    ctx, done = cartpole(None)
    program = ctx.compile({"B": 2, "I": 2, "T": trl.until(done, at_most=9)})
    row = next(
        row for row in PipelineView.from_program(program).to_json()["bounds"] if row["name"] == "T"
    )
    assert row == {"name": "T", "value": 9, "dims": ["t"], "dynamic": True, "until": "done"}
    assert len(IterationSpaceView.from_program(program).turn) > 9


# --- steps ---------------------------------------------------------------------------------------


def test_steps_are_those_of_the_pass(program: trl.Program) -> None:
    stage = program.stages["vectorize"]
    found = StepsView.from_stage(stage).to_json()
    assert [(s["rule"], tuple(s["before"])) for s in found["steps"]] == [
        (s.rule, s.before) for s in stage.steps
    ]
    assert sum(rule["count"] for rule in found["rules"]) == len(stage.steps)
    assert stage.previous is not None
    graphs = {"-": ("before", str(stage.previous)), "+": ("after", str(stage.artifact))}
    count = 0
    for step in found["steps"]:
        lines = detail(program, f"step vectorize {step['number']}").lines
        count += len(lines)
        for line in lines:
            ids, text = graphs[line.text[0]]
            assert line.text[2:] in text or line.text[2:].startswith("and ")
            assert set(line.op_ids) <= set(step[ids])
    assert count > 10
    left = {op_id: row["reason"] for row in found["refused"] for op_id in row["op_ids"]}
    assert left and all(stage.why(op_id) == reason for op_id, reason in left.items())


def test_forecasts_are_made_only_when_asked_for() -> None:
    program = reinforce(hidden=(4,)).compile(BOUNDS)  # not requested yet
    stage = program.stages["vectorize"]

    def forecasts(view: StepsView) -> list[Any]:
        choices = view.to_json()["choices"]
        return [one["forecast"] for choice in choices for one in choice["candidates"]]

    before = forecasts(StepsView.from_stage(stage))
    assert before and not any(before)
    after = forecasts(StepsView.from_stage(stage, forecast=True))
    assert all(after) and forecasts(StepsView.from_stage(stage)) == after


# --- loop nest -----------------------------------------------------------------------------------


def test_lines_are_those_of_the_nest(program: trl.Program) -> None:
    view = LoopView.from_program(program)
    assert str(view) == str(program.ast) and "acting(i, t)" in str(view)
    for line in view.lines:
        if line.parent >= 0:
            assert view.lines[line.parent].depth == line.depth - 1
        if line.sort == "execute":
            inside = program.fused[line.op_ids[0]].attrs
            assert isinstance(inside, DataflowAttrs)
            assert line.op_ids[1:] == tuple(op.id for op in inside.body)
    freed = {name for line in view.lines if line.sort == "free" for name in line.tensors}
    made = {name for line in view.lines if line.sort == "execute" for name in line.tensors}
    assert freed and freed <= made


def test_tokens_are_spans_of_their_sort(program: trl.Program) -> None:
    words: dict[str, set[str]] = {}
    for line in LoopView.from_program(program).lines:
        end = 0
        for start, stop, sort in line.tokens:
            assert end <= start < stop <= len(line.text)
            assert not line.text[end:start].strip()
            words.setdefault(sort, set()).add(line.text[start:stop])
            end = stop
    assert {"for", "in", "range", "free"} <= words["keyword"]
    assert {"acting", "reset"} <= words["name"] and {"i", "t"} <= words["counter"]
    assert words["number"] == {word for word in words["number"] if word.isdigit()}


def test_a_counter_of_two_dimensions_keeps_its_name() -> None:
    with trl.Context("s", "t") as ctx:
        (s, S), (t, T) = ctx.dims
        x, y = trl.tensor((), domain=(s,)), trl.tensor((), domain=(t,))
        x[0] = y[0] = 0.0
        x[s + 1] = (x + trl.random.normal(domain=(s,))).tanh()
        y[t + 1] = (y + x[t]).tanh()
        ctx.output("x", x)
        ctx.output("y", y)
    program = ctx.compile({S: 5, T: 5})
    assert "for c0 in" in str(program.ast)
    assert str(LoopView.from_program(program)) == str(program.ast)


# --- one iteration
# ---------------------------------------------------------------------------------


def test_instants_follow_the_schedule(program: trl.Program) -> None:
    view = IterationSpaceView.from_program(program, fixed={"i": 2})
    points = {p.op_id: p for p in program.schedule.points(i=2)}
    assert view.turn.bounds == program.bounds
    for one in view.statements:
        assert one.times.tolist() == points[one.op_id].time.tolist()
        for time, t in zip(one.times, one.coordinates.get("t", ()), strict=False):
            assert view.point_at(int(time)) == (one, {"i": 2, "t": t})
    assert sorted(t for one in view.statements for t in one.times) == [*range(len(view.turn))]


def test_the_line_of_an_instant_is_the_one_that_runs_it(program: trl.Program) -> None:
    """The test runs the loop nest itself, and reports the line of every point."""
    lines = program.ast.lines()
    ran: dict[tuple[int, tuple[int, ...]], int] = {}
    number = {id(node): k for k, (_, text, node) in reversed([*enumerate(lines)])}
    code = [
        "  " * depth
        + (
            f"ran[{node.op_id}, ({at}{',' * bool(at)})] = {number[id(node)]}"
            if isinstance(node, Execute)
            else text
            if text.endswith(":")
            else "pass"
        )
        for depth, text, node in lines
        for at in [", ".join(map(str, getattr(program.ast.display_node(node), "point", ())))]
    ]
    exec("\n".join(code), {"ran": ran})
    view = IterationSpaceView.from_program(program, fixed={"i": 3})
    for instant in range(len(view.turn)):
        one, point = view.point_at(instant)
        assert view.instants.line[instant] == ran[one.op_id, tuple(point.values())]


def test_many_statements_share_the_lines_of_their_regions(program: trl.Program) -> None:
    assert "acting  (acting; each t)" in IterationSpaceView.from_program(program).to_svg()
    apart = reinforce(5, hidden=()).compile(BOUNDS, trl.Options(vectorize=("b",), fuse=False))
    view = IterationSpaceView.from_program(apart)
    learning = sum(one.region == ("learning",) for one in view.statements)
    assert learning > 16 and f"learning  ({learning} statements)" in view.to_svg()


def test_of_many_instants_some_are_marked_and_memory_keeps_every_peak(
    nstep: trl.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = MemoryView.from_program(nstep)
    for module in ("points_of_one_iteration", "iteration_space_view"):
        monkeypatch.setattr(f"timerl_nb.show.schedule.{module}.EXACT", 50)
    monkeypatch.setattr("timerl_nb.show.schedule.points_of_one_iteration.COLUMNS", 30)
    monkeypatch.setattr("timerl_nb.show.schedule.iteration_space_view.MARKS", 100)
    turn = Turn.from_program(nstep)
    view, memory = IterationSpaceView.of_turn(turn), MemoryView.of_turn(turn)
    acting = next(one for one in view.statements if one.name == "acting")
    assert len(acting.times) == 20 and acting.points == acting.low[-1] + 1 == LONG["T"]
    lines = LoopView.from_program(nstep).lines
    for instant, line in zip(view.instants.at, view.instants.line, strict=True):
        one, _ = view.point_at(int(instant))
        assert lines[line].statement == one.op_id
    assert len(memory.bytes) == 30 < len(turn)
    ends = [*memory.first[1:], len(turn)]
    for first, at, end, live in zip(memory.first, memory.at, ends, memory.bytes, strict=True):
        assert first <= at < end and live == whole.bytes[at] == whole.bytes[first:end].max()
    assert memory.peak.bytes == whole.peak.bytes == nstep.memory.peak
    for one, exact in zip(memory.tensors, whole.tensors, strict=True):
        assert one.held.tolist() == exact.held[memory.at].tolist()
        life = memory.lives[one.life]
        for at, held in zip(memory.at, one.held, strict=True):
            assert ((life.born <= at) & (life.dies >= at)).any() == (held > 0)


def test_blocks_stand_at_the_points_that_they_cover() -> None:
    blocks = trl.Options(incrementalize={"t": 8})
    view = IterationSpaceView.from_program(reinforce(hidden=(4,)).compile(LONG, blocks))
    assert view.turn.dim == "t" and view.turn.size == 60
    shown = {one.name: one for one in view.statements}
    acting, learning = shown["acting"], shown["learning"]
    assert acting.tall == 1 and acting.low.tolist() == [*range(60)]
    assert learning.each and learning.tall == 8 and learning.low.tolist() == [*range(0, 60, 8)]
    assert not shown["update"].each and shown["update"].tall == 60


def test_operations_and_tensors_have_one_colour_in_every_view(program: trl.Program) -> None:
    figure = trl.show.iteration_space({"it": program})
    plotly = {trace.name.removesuffix(" (once)"): trace for trace in figure.data}
    other = trl.show.ComparisonView.from_programs(program, program.with_options(fuse=False))
    static = IterationSpaceView.from_program(program).to_svg() + program.schedule.to_svg()
    for one, again in zip(
        IterationSpaceView.from_program(program).statements, other.spaces[0].statements, strict=True
    ):
        assert one.colour == again.colour and static.count(f'fill="{one.colour}"') >= 4
        trace = plotly[one.name]
        assert one.colour in (trace.marker.color, trace.line.color)
    tensors = {one.name: one.colour for one in MemoryView.from_program(program).tensors}
    assert tensors == {one.name: one.colour for one in other.memories[0].tensors}
    assert not {one.colour for one in other.spaces[1].statements} & {*tensors.values()}
    drawn = {t.name: t.line.color for t in trl.show.memory_timeline({"it": program}).data}
    assert {n: c for n, c in drawn.items() if n in tensors}.items() <= tensors.items()


def test_too_many_points_are_not_drawn_and_it_is_said(
    nstep: trl.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timerl_nb.show.schedule.points_of_one_iteration.MOST", 100)
    turn = Turn.from_program(nstep)
    for view in (IterationSpaceView.of_turn(turn), MemoryView.of_turn(turn)):
        assert "too many points to draw" in view.to_svg() and "too many points" in str(view)
        assert view.to_json()["turn"]["problem"].startswith("too many points to draw")


def test_a_turn_asks_for_dimensions_that_there_are(program: trl.Program) -> None:
    with pytest.raises(DomainError, match="x is not a dimension"):
        Turn.from_program(program, "x")
    with pytest.raises(DomainError, match="i = 9 is out of range"):
        Turn.from_program(program, fixed={"i": 9})


ODD = {
    "linear": PATTERNS["linear"],  # no loop
    "conditional_gradients": PATTERNS["conditional_gradients"],  # loops that share few dimensions
    "crossed_and_strided": PATTERNS["crossed_and_strided"],
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("plain", [False, True], ids=["default", "step by step"])
def test_programs_of_other_forms_are_shown(name: str, plain: bool) -> None:
    options = trl.Options(vectorize=False, lift=False, fuse=False) if plain else trl.Options()
    program = ODD[name].context().compile(ODD[name].bounds, options)
    turn = Turn.from_program(program)
    space, memory = IterationSpaceView.of_turn(turn), MemoryView.of_turn(turn)
    lines = LoopView.from_program(program).lines
    assert len(turn) > 0
    for instant in range(len(turn)):
        one, _ = space.point_at(instant)
        assert lines[space.instants.line[instant]].statement == one.op_id
    for one in memory.tensors:
        assert one.bytes.tolist() == memory.plan.timeline().by_tensor[one.name][turn.ranks].tolist()
    for view in (space, memory, Lineage.from_program(program), Index(program).search()):
        assert view.to_svg().startswith("<svg") and view.to_json()


def test_host_functions_and_dynamic_bounds_are_shown() -> None:
    ctx, done = cartpole(3)
    program = ctx.compile({"B": 2, "I": 2, "T": trl.until(done, at_most=50)})
    view = MemoryView.from_program(program)
    assert view.turn.bounds["T"] == 50
    assert view.to_json()["program_peak"]["bytes"] == program.memory.peak
    kinds = {
        op.kind for one in Lineage.from_program(program).generations for op in one.ops.values()
    }
    assert "bound" in kinds
    found = Index(program).search("", kind="bound").found
    assert "dynamic_bounds" in {one.stage for one in found}
    assert InspectorView.from_program(program, [k for one in found for k in one.op_ids]).to_json()[
        "ops"
    ]


# --- memory --------------------------------------------------------------------------------------


def test_memory_is_the_timeline_of_the_turn(program: trl.Program) -> None:
    view, line = MemoryView.from_program(program), program.memory.timeline()
    at = view.turn.ranks
    assert view.bytes.tolist() == line.bytes[at].tolist()
    for one in view.tensors:
        assert one.bytes.tolist() == line.by_tensor[one.name][at].tolist()
    total = sum((one.bytes for one in view.tensors), view.gathered)
    assert total.tolist() == view.bytes.tolist()
    for instant in (0, view.peak.instant, len(view.turn) - 1):
        holders = {h.tensor: h.nbytes for h in line.holders_at(int(at[instant]))}
        holders.pop("gathered operands", None)
        assert view.live_at(instant) == holders


@pytest.mark.parametrize("window", [None, 5])
def test_a_turn_has_the_peak_of_the_run(window: int | None) -> None:
    found = MemoryView.from_program(reinforce(window, hidden=(4,)).compile(LONG)).to_json()
    assert found["turn"]["bounds"] == LONG
    assert found["peak"]["bytes"] == found["program_peak"]["bytes"] > 0


def test_values_live_from_their_birth_to_their_last_reader(program: trl.Program) -> None:
    view = MemoryView.from_program(program)
    for one in view.tensors:
        life = view.lives[one.life]
        lives = [(life.born <= k) & (life.dies >= k) for k in range(len(view.turn))]
        assert one.held.tolist() == [int(alive.sum()) for alive in lives]
    names = {one.op_id: one.name for one in view.readers}
    acting = {one.name: [names[k] for k in one.last_read_by] for one in view.tensors}
    assert "learning" in acting["a"] or "update" in acting["a"]


def test_swapped_values_leave_and_return(swapped: trl.Program) -> None:
    program = swapped
    view = MemoryView.from_program(program)
    assert program.memory.swaps.all
    line = program.memory.timeline()
    assert view.host.tolist() == line.host[view.turn.ranks].tolist()
    lives = view.to_json()["lives"]
    assert any(one["offloads"] and one["fetches"] and one["moved"] > 0 for one in lives)
    assert view.budget == program.options.budget
    assert view.to_json()["host_peak"] == line.host_peak > 0


# --- lineage, inspector, search ------------------------------------------------------------------


def test_every_operation_descends_from_those_that_it_was_made_of(program: trl.Program) -> None:
    lineage = Lineage.from_program(program)
    for k, one in enumerate(lineage.generations):
        stage = program.stages[one.stage]
        for old, became in stage.rewritten.ids.items() if stage.rewritten else ():
            for new in became:
                assert old in lineage.predecessors(k, new)
    kernel = next(op for op in program.fused if op.kind == "dataflow")
    (chosen, other, *_) = (op.id for op in kernel.attrs.body)
    relatives = lineage.relatives([chosen])
    assert {chosen, kernel.id} <= relatives["ast"] and other not in relatives["ast"]
    assert chosen in lineage.relatives([kernel.id])["contract"]
    assert relatives["pdg"]


def test_lineage_as_json_says_what_lineage_says(program: trl.Program) -> None:
    lineage = Lineage.from_program(program)
    ids: list[int] = []
    for k, (one, said) in enumerate(
        zip(lineage.generations, lineage.to_json()["stages"], strict=True)
    ):
        before, ids = ids, ids if said["ids"] is None else said["ids"]
        assert ids == sorted(one.ops)
        for op_id in ids:
            own = [op_id] if op_id in before else []
            assert said["from"].get(str(op_id), own) == list(lineage.predecessors(k, op_id))


def test_an_operation_is_inspected_from_its_line_to_its_store(program: trl.Program) -> None:
    chosen = next(op for op in program.pdg if op.label == "a")
    (found,) = InspectorView.from_program(program, [chosen.id]).to_json()["ops"]
    (marked,) = (line for line in found["source"]["lines"] if line["marked"])
    assert marked["text"].strip() == chosen.origin.text == 'a = dnn.sample(o).named("a")'
    assert found["kind"] == chosen.kind and found["stage"] == "memory"
    assert found["kernel"] in program.fused.ops and found["region"] == ["acting"]
    assert [one["stage"] for one in found["history"]] == [*program.stages][1:]
    assert found["schedule"]["op_id"] == found["kernel"]
    assert {program.ast.lines()[k][2].op_id for k in found["schedule"]["lines"]} == {
        found["kernel"]
    }
    (store,) = found["stores"]
    assert store["name"] == "a" and store["bytes"] == store["slots"] * store["value_bytes"]
    (output,) = found["outputs"]
    assert output["point_bytes"] == 3 * 4 and output["points"] == 4 * 12
    assert found["reads"] and {one["name"] for one in found["readers"]}


def test_an_operation_is_seen_at_the_stage_that_is_asked_for(program: trl.Program) -> None:
    written = next(op for op in program.pdg if op.label == "o" and op.kind == "merge")
    (found,) = InspectorView.from_program(program, [written.id], "pdg").to_json()["ops"]
    assert found["stage"] == "pdg" and found["kernel"] is None
    labels = [f"{one['index']} if {one['cond']}".strip() for one in found["reads"]]
    assert labels == [program.pdg.edge_label(read) for read in written.inputs]
    assert {"if t == 0"} < set(labels)
    reading = [one["op_id"] for one in found["readers"]]
    assert reading == [op_id for op_id, _ in program.pdg.readers[written.id]]
    with pytest.raises(OptionError, match="contains the operation %99999"):
        InspectorView.from_program(program, [99999])
    with pytest.raises(OptionError, match="the stage 'fused' is unknown"):
        InspectorView.from_program(program, [written.id], "fused")


def test_what_is_copied_into_kernels_runs_where_they_do(program: trl.Program) -> None:
    kernel = next(op for op in program.fused if op.kind == "dataflow")
    lineage = Lineage.from_program(program)
    consts = [op.id for op in kernel.attrs.body if op.kind == "const"]
    assert consts
    for found in InspectorView.from_program(program, consts, lineage=lineage).to_json()["ops"]:
        runs = found["schedule"]["op_id"]
        assert found["op_id"] in {op.id for op in program.fused[runs].attrs.body}


def test_search_finds_what_find_finds(program: trl.Program) -> None:
    index = Index(program)
    found = {one.stage: one.op_ids for one in index.search("tanh").found}
    for name in ("pdg", "simplify"):
        lines = [line for line in program.stages[name].artifact.find("tanh") if "%" in line]
        assert [line.split()[0] for line in lines] == [f"%{k}" for k in found[name]]
    assert found["ast"]  # inside a kernel
    chosen = found["pdg"][0]
    (by_id,) = {one.op_ids for one in index.search(f"%{chosen}").found if one.stage == "lift"}
    assert chosen in by_id


def test_search_is_filtered_by_kind_region_and_change(program: trl.Program) -> None:
    index = Index(program)
    ops = {one.stage: one.ops for one in index.lineage.generations}
    for one in index.search("", kind="tanh").found:
        assert {ops[one.stage][k].kind for k in one.op_ids} == {"tanh"}
    for one in index.search("", region="acting").found:
        assert all(ops[one.stage][k].region[0] == "acting" for k in one.op_ids)
    changed = {one.stage: set(one.op_ids) for one in index.search("", changed=True).found}
    diff = program.stages["contract"].diff()
    assert changed.get("contract", set()) == {c.op_id for c in (*diff.added, *diff.changed)}
    assert "pdg" not in changed and "schedule" not in changed
    with pytest.raises(OptionError, match="the kind 'tan' does not exist"):
        index.search("", kind="tan")


def test_what_is_called_like_markup_stays_text() -> None:
    with trl.Context("t") as ctx:
        (t, _), *_ = ctx.dims
        x = trl.data(np.arange(4.0), domain=(t,)).named("<script>alert(1)</script>")
        ctx.output("y", x * 2)
    program = ctx.compile({"T": 4})
    for name, view in {
        "loop": LoopView.from_program(program),
        "memory": MemoryView.from_program(program),
    }.items():
        assert "<script" not in view.to_svg(), name
    assert "<script" not in InspectorView.from_program(program, list(program.pdg.ops)).to_svg()
