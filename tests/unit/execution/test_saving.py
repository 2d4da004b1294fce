"""Saved and resumed runs: same results, or a clear refusal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.torture.subjects import WAYS, walking
from tests.unit.checks import assert_equal, assert_same
from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError, OptionError, TimeRLError
from timerl_nb.compiler.loops.iteration_cuts import Cut
from timerl_nb.compiler.memory.steady_state.extrapolated_plan import FoldedPlan
from timerl_nb.driver.program_runs import program_run
from timerl_nb.execution.control.periodic_saving import Every
from timerl_nb.runtime.state.run_folder import VERSION, RunFolder, checksum_of

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "tests" / "kept"
BOUNDS = {"B": 4, "I": 9, "T": 8}
_MADE: dict[str, trl.Program] = {}


def learning(way: str = "interpret", window: int | None = None, **more: Any) -> trl.Program:
    name = f"{way} {window} {more}"
    if name not in _MADE:
        options = trl.Options(**WAYS[way], **more)
        _MADE[name] = reinforce(window, hidden=(8,)).compile(BOUNDS, options)
    return _MADE[name]


def cut_off(program: trl.Program, folder: Path, turns: int = 4, every: int = 2) -> None:
    """Start a run, and stop it after some iterations."""
    with program.start(3, checkpoint=folder, every=every, paused=True) as run:
        run.wait()
        run.step(turns)
        run.wait()


def assert_alike(want: trl.Result, have: trl.Result) -> None:
    assert_equal(want, have)
    assert_equal(want.parameters, have.parameters)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(way: str, tmp_path: Path) -> None:
    program = learning(way)
    want = program.execute(seed=3)
    cut_off(program, tmp_path)
    before = RunFolder(tmp_path).manifest()
    assert before.turn == (6 if way == "fused" else 4) and not before.is_finished
    have = program.resume(tmp_path)
    assert_alike(want, have)
    assert have.instructions < want.instructions
    after = RunFolder(tmp_path).manifest()
    assert after.is_finished and after.turn == 9 and after.run == before.run
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"lock", "manifest.json", *after.states} and len(after.states) == 2
    again = program.execute(resume=tmp_path)
    assert_alike(want, again)
    assert again.instructions == 0


def test_a_resumed_run_can_be_watched_and_stopped_again(tmp_path: Path) -> None:
    program = learning()
    want = program.execute(seed=3)
    cut_off(program, tmp_path)
    with program.start(resume=tmp_path, paused=True) as run:
        run.wait()
        assert run.turn == 4
        run.step(3)
        run.wait()
        run.stop()
        part = run.result()
    np.testing.assert_array_equal(part["return"], want["return"][:7])
    assert RunFolder(tmp_path).manifest().turn == 7  # it is saved where it stops
    with program.start(resume=tmp_path) as run:
        assert_alike(want, run.result())


@pytest.mark.parametrize("pair", [("interpret", "xla"), ("xla", "interpret"), ("fused", "xla")])
def test_another_executor_goes_on(pair: tuple[str, str], tmp_path: Path) -> None:
    one, other = map(learning, pair)
    want = one.execute(seed=3)
    cut_off(one, tmp_path)
    have = other.resume(tmp_path)
    assert_same(want, have, "resumed")
    assert_same(want.parameters, have.parameters, "resumed")


def test_other_options_go_on_where_the_same_points_live(tmp_path: Path) -> None:
    program, other = learning(), learning(donate=False)
    want = program.execute(seed=3)
    cut_off(program, tmp_path)
    assert_same(want, other.resume(tmp_path), "resumed")


def test_what_lives_elsewhere_is_refused_with_what_differs(tmp_path: Path) -> None:
    cut_off(learning(), tmp_path)
    other = learning(simplify=False, lift=False, vectorize=False)
    with pytest.raises(
        ExecutionError, match=r"cannot resume the run in .* (is needed here|was saved)"
    ) as found:
        other.resume(tmp_path)
    assert "compile with the options of the saved run" in str(found.value)
    assert_alike(learning().execute(seed=3), learning().resume(tmp_path))


def test_a_run_is_saved_elsewhere_where_that_is_asked_for(tmp_path: Path) -> None:
    program = learning()
    cut_off(program, tmp_path / "one")
    content = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    want = program.execute(seed=3)
    have = program.execute(resume=tmp_path / "one", checkpoint=tmp_path / "other", every=1)
    assert_alike(want, have)
    assert content == {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert RunFolder(tmp_path / "other").manifest().is_finished


@pytest.mark.parametrize("vectorize", [True, False])
def test_one_value_that_begins_two_recurrences_is_where_each_looks_for_it(
    vectorize: bool, tmp_path: Path
) -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        start = (trl.random.normal((3,), domain=()) * 2).named("start")
        x, s = trl.random.normal((3,), domain=(i, t)), trl.tensor((3,), domain=(i, t))
        s[i, 0], s[i, t + 1] = x[i, 0], (s * 0.5 + x[i, t + 1]).tanh()
        a, b = trl.tensor((3,), domain=(i,)), trl.tensor((3,), domain=(i,))
        a[0], a[i + 1] = start, (a * 0.5 + s[i, T - 1]).tanh()
        b[0], b[i + 1] = start, (b * 0.3 + s[i, T - 1]).sin()
        ctx.output("c", a[trl.max(i - 3, 0)] + b[trl.max(i - 1, 0)])
        ctx.output("a", a)
        ctx.output("b", b)
    options = trl.Options(executor="xla", vectorize=vectorize)
    program = ctx.compile({I: 8, T: 4}, options)
    lowered = program.executable.xla_program
    assert lowered is not None
    named = {name: tensor for tensor, name in program.memory.names.items()}
    homes = {home.buffer.name for home in lowered.layout.homes[named["start"]]}
    assert len(homes) == 4  # in each recurrence's buffer, shared with others, and in none
    want = program.execute(seed=3)
    for turns in (1, 2, 3, 4, 6):
        cut_off(program, tmp_path / str(turns), turns, every=1)
        assert_alike(want, program.resume(tmp_path / str(turns)))


def test_a_long_run_that_is_planned_by_a_few_turns_is_cut_as_if_it_were_not() -> None:
    few, whole = (learning(window=3).again(bounds={"I": many}).executable for many in (100_000, 40))
    assert isinstance(few.plan, FoldedPlan) and not isinstance(whole.plan, FoldedPlan)
    for turn, other in ((1, 1), (7, 7), (8, 8), (100_000 - 2, 38), (100_000, 40)):
        live, known = (
            e.cuts().live(e.cuts().cut_after(k)) for e, k in ((few, turn), (whole, other))
        )
        moved = 99_960 * (turn != other)
        assert {few.plan.names[k] for k in live} == {whole.plan.names[k] for k in known}
        for tensor, points in live.items():
            name = few.plan.names[tensor]
            expected = next(x for k, x in known.items() if whole.plan.names[k] == name)
            if name == "return":
                assert len(points) == turn
            else:
                along = np.array([d == "i" for d in few.plan.pdg[tensor[0]].domain], int)
                np.testing.assert_array_equal(points, expected + moved * along)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_planned_by_a_few_turns_is_cut_off_and_goes_on(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timerl_nb.compiler.memory.placement.placement_planner.EXACT", 0)
    options = trl.Options(**WAYS[way])
    program = reinforce(3, hidden=(8,)).compile({"B": 2, "I": 97, "T": 6}, options)
    assert isinstance(program.memory, FoldedPlan)
    want = program.execute(seed=3)
    cut_off(program, tmp_path, 60, every=30)
    assert RunFolder(tmp_path).manifest().turn == 60
    assert_alike(want, program.resume(tmp_path))


# --- how often ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "turns", "seconds"),
    [(10, 10, 0), ("10", 10, 0), ("30s", None, 30), ("5min", None, 300), ("1.5 h", None, 5400)],
)
def test_how_often_is_turns_or_time(given: Any, turns: int | None, seconds: float) -> None:
    every = Every.parse(given)
    assert (every.turns, every.seconds) == (turns, seconds)
    assert Every.parse(every.text) == every


@pytest.mark.parametrize("given", [0, -1, True, 2.5, "0", "soon", "5 minutes", "0s", "", [1]])
def test_what_does_not_say_how_often_is_refused(given: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not an interval"):
        learning().execute(checkpoint=tmp_path / "run", every=given)
    assert not (tmp_path / "run").exists()


def test_time_is_what_a_clock_that_cannot_go_back_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, now, turns = learning(), [0.0], list[int]()
    monkeypatch.setattr(
        "timerl_nb.execution.control.periodic_saving.time.monotonic", lambda: now[0]
    )
    written = RunFolder.write

    def write(folder: RunFolder, manifest: Any, arrays: Any) -> Any:
        turns.append(manifest.turn)
        return written(folder, manifest, arrays)

    monkeypatch.setattr(RunFolder, "write", write)
    made = program_run.make_run

    def make(compiled: Any, seed: int, progress: Any, *given: Any, **named: Any) -> Any:
        def turned(count: int = 1) -> None:
            now[0] += 40.0
            progress(count)

        return made(compiled, seed, turned, *given, **named)

    monkeypatch.setattr(program_run, "make_run", make)
    program.execute(checkpoint=tmp_path, every="2min")
    assert turns == [3, 6, 8, 9]  # the one before the last for runs of more iterations


# --- what is refused ------------------------------------------------------------------------------


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    program = learning()
    with program.start(checkpoint=tmp_path, every=1, paused=True) as run:
        run.wait()
        for ask in ("checkpoint", "resume"):
            with pytest.raises(
                ExecutionError, match=r"another run saves its state in|no run has saved"
            ):
                program.execute(**{ask: tmp_path})
        run.step(2)
        run.wait()
        with pytest.raises(ExecutionError, match="another run saves its state in"):
            program.resume(tmp_path)
    with pytest.raises(ExecutionError, match="contains another run") as found:
        program.execute(checkpoint=tmp_path)
    assert f"resume={os.fspath(tmp_path)!r}" in str(found.value)
    program.resume(tmp_path)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"every": 2}, OptionError, "without a checkpoint"),
        ({"checkpoint": 3}, OptionError, "checkpoint=3 is not a folder"),
        ({"checkpoint": ""}, OptionError, "is not a folder"),
        ({"resume": 3}, OptionError, "resume=3 is not a folder"),
        ({"resume": "nowhere"}, ExecutionError, "no run has saved its state in nowhere"),
        (
            {"resume": "nowhere", "on_event": print},
            OptionError,
            "a resumed run cannot record events",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    given: dict[str, Any], error: type[TimeRLError], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        learning().execute(**given)
    assert not Path("nowhere").exists()


def test_a_nest_without_turns_is_refused_before_it_runs(tmp_path: Path) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", trl.random.normal((), domain=(t,)).sum(over=t))
    program = ctx.compile({T: 4})
    with pytest.raises(OptionError, match="no outermost loop is divided into several calls"):
        program.execute(checkpoint=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_programs_and_bounds_are_refused(tmp_path: Path) -> None:
    cut_off(learning(), tmp_path)
    with pytest.raises(ExecutionError, match="I = 9, and this program has I = 4; it has done 4"):
        learning().with_bounds({"I": 4}).resume(tmp_path)
    with pytest.raises(ExecutionError, match="T = 8, and this program has T = 9; only the number"):
        learning().with_bounds({"T": 9}).resume(tmp_path)
    other = reinforce(hidden=(8,), lr=0.5).compile(BOUNDS, trl.Options(executor="interpret"))
    with pytest.raises(ExecutionError, match="of another program: the `program` of its manifest"):
        other.resume(tmp_path)
    with pytest.raises(OptionError, match="has the seed 3, not 4"):
        learning().execute(4, resume=tmp_path)


def test_a_run_goes_on_with_its_own_generator_of_random_numbers(tmp_path: Path) -> None:
    other, folder, older = learning().with_options(random="hash32"), tmp_path / "a", tmp_path / "b"
    cut_off(other, folder)
    assert json.loads((folder / "manifest.json").read_text())["random"] == "hash32"
    with pytest.raises(ExecutionError, match="by hash32, and this program by threefry") as found:
        learning().resume(folder)
    assert 'trl.Options(random="hash32")' in str(found.value)
    assert_alike(
        other.execute(seed=3), learning("fused").with_options(random="hash32").resume(folder)
    )
    # early manifests do not state a generator
    cut_off(learning(), older)
    said = json.loads((older / "manifest.json").read_text())
    del said["random"], said["checksum"]
    (older / "manifest.json").write_text(json.dumps({**said, "checksum": checksum_of(said)}))
    with pytest.raises(ExecutionError, match="by threefry, and this program by hash32"):
        other.resume(older)
    assert_alike(learning().execute(seed=3), learning().resume(older))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [7, 14])
def test_a_run_goes_on_for_another_number_of_iterations(
    way: str, count: int, tmp_path: Path
) -> None:
    cut_off(learning(way), tmp_path)
    other = learning(way).with_bounds({"I": count})
    assert_alike(other.execute(3, progress=False), other.resume(tmp_path))
    # from here on the folder's run has that many iterations
    assert_alike(other.execute(3, progress=False), other.resume(tmp_path))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("every", [1, 4, "5min"])
def test_a_finished_run_goes_on_for_more_iterations(
    way: str, every: int | str, tmp_path: Path
) -> None:
    program, folder = learning(way), tmp_path / "run"
    short = program.execute(3, checkpoint=folder, every=every, progress=False)
    assert len([*folder.glob("state-*")]) == 2  # of the end, and of the iteration before it
    longer = program.with_bounds({"I": 12})
    whole = longer.execute(3, progress=False)
    assert_alike(whole, program.resume(folder, bounds={"I": 12}, progress=False))
    assert_alike(longer.with_bounds({"I": 14}).execute(3), longer.resume(folder, bounds={"I": 14}))
    with pytest.raises(ExecutionError, match="I = 14, and this program has I = 9; it has done 1"):
        program.resume(folder)
    assert short["return"].shape == (9,)


def test_a_finished_run_with_a_shifted_update_goes_on(tmp_path: Path) -> None:
    """With lag=2, the loop has one iteration more than I: the update of i runs in iteration i + 1."""
    context = trl.algorithms.impala(anneal=False, hidden=(4,), lag=2)
    program = context.compile({"B": 2, "I": 4, "T": 3}, trl.Options(executor="xla"))
    program.execute(3, checkpoint=tmp_path, progress=False)
    assert RunFolder(tmp_path).manifest().turn == 5
    longer = program.with_bounds({"I": 6}).execute(3, progress=False)
    assert_alike(longer, program.resume(tmp_path, bounds={"I": 6}, progress=False))


def test_a_finished_run_of_one_iteration_has_no_earlier_state(tmp_path: Path) -> None:
    """The outermost loop of the program is then over t, and its iterations do not exist with another I."""
    program = learning().with_bounds({"I": 1})
    program.execute(3, checkpoint=tmp_path, every=2, progress=False)
    with pytest.raises(ExecutionError, match="no state before its last iteration was saved"):
        program.resume(tmp_path, bounds={"I": 2})


def test_a_finished_run_without_an_earlier_state_has_no_other_number(tmp_path: Path) -> None:
    learning().execute(3, checkpoint=tmp_path, progress=False)
    said = json.loads((tmp_path / "manifest.json").read_text())
    del said["extendable"], said["checksum"]  # as earlier versions wrote it
    (tmp_path / "manifest.json").write_text(json.dumps({**said, "checksum": checksum_of(said)}))
    with pytest.raises(ExecutionError, match="no state before its last iteration was saved"):
        learning().resume(tmp_path, bounds={"I": 20})
    assert_alike(learning().execute(3), learning().resume(tmp_path))


def test_a_program_that_depends_on_its_number_of_iterations_has_no_other(tmp_path: Path) -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        w = trl.tensor((), domain=(i,))
        w[0] = trl.constant(0.0)
        x = trl.random.normal((), domain=(i, t))
        w[i + 1] = w + x.sum(over=t) * trl.value(I - i).cast("f32")
        ctx.output("w", w)
    options = trl.Options(executor="interpret", lift=False, vectorize=False)
    program = ctx.compile({I: 9, T: 2}, options)
    cut_off(program, tmp_path)
    with pytest.raises(ExecutionError, match="depends on I") as caught:
        program.with_bounds({"I": 12}).resume(tmp_path)
    assert "trl.value(I - i)" in str(caught.value)
    assert "write the length of the schedule as a number" in str(caught.value)


def test_a_value_without_readers_does_not_prevent_more_iterations(tmp_path: Path) -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        trl.value(I - i).cast("f32") * 2.0  # as in an algorithm with anneal=False
        w = trl.tensor((), domain=(i,))
        w[0] = 0.0
        w[i + 1] = w + trl.random.normal((), domain=(i,))
        ctx.output("w", w)
    program = ctx.compile({I: 5}, trl.Options(executor="interpret", lift=False, vectorize=False))
    program.execute(3, checkpoint=tmp_path, every=2, progress=False)
    longer = program.with_bounds({"I": 8}).execute(3, progress=False)
    assert_alike(longer, program.resume(tmp_path, bounds={"I": 8}, progress=False))


# --- damaged files
# ------------------------------------------------------------------------------------


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


def with_field(name: str, value: Any) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps({**json.loads(content), name: value}).encode()


CORRUPT: Mapping[str, tuple[str, Callable[[bytes], bytes] | None, str]] = {
    "a bit of the values": ("state", flipped(-3), r"state-.* is damaged.*sha256"),
    "a bit of the header": ("state", flipped(12), r"state-.* is damaged.*sha256"),
    "values cut short": ("state", lambda x: x[:-9], r"state-.* has [\d,]+ bytes, but manifest"),
    "no values": ("state", lambda x: b"", r"state-.* has 0 bytes"),
    "values gone": ("state", None, r"state-.* cannot be read: No such file"),
    "a manifest cut short": ("manifest", lambda x: x[:100], r"manifest.json is not JSON"),
    "an empty manifest": ("manifest", lambda x: b"", r"manifest.json is not JSON"),
    "bytes": ("manifest", lambda x: b"\xff\xfe\x00", r"manifest.json is not JSON"),
    "a list": ("manifest", lambda x: b"[1]", r"its `format` is not 'timerl run'"),
    "another format": ("manifest", with_field("format", "x"), r"its `format` is not 'timerl run'"),
    "a newer version": ("manifest", with_field("version", 2), r"has `version` 2 .* reads 1"),
    "an older version": ("manifest", with_field("version", 0), r"has `version` 0 .* reads 1"),
    "no version": ("manifest", with_field("version", None), r"has `version` None"),
    "another seed": ("manifest", with_field("seed", 4), r"its `checksum` does not match"),
    "another turn": ("manifest", with_field("turn", 1), r"its `checksum` does not match"),
    "more": ("manifest", with_field("more", 1), r"its `checksum` does not match"),
    "no checksum": ("manifest", with_field("checksum", None), r"its `checksum` does not match"),
    "manifest gone": ("manifest", None, r"no run has saved its state"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_files_that_are_damaged_are_named(name: str, tmp_path: Path) -> None:
    which, change, text = CORRUPT[name]
    folder = tmp_path / "run"
    if not (tmp_path.parent / "whole").exists():
        cut_off(learning(), tmp_path.parent / "whole")
    copytree(tmp_path.parent / "whole", folder)
    path = folder / (RunFolder(folder).manifest().state if which == "state" else "manifest.json")
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ExecutionError, match=text):
        learning().resume(folder)


CRAFTED: Mapping[str, tuple[Callable[[dict[str, Array]], object], str]] = {
    "points without values": (lambda x: x.pop("values of return"), r"a value of 'return' for each"),
    "values without points": (lambda x: x.pop("points of return"), r"a value of 'return' for each"),
    "fewer values": (
        lambda x: x.update({"values of return": x["values of return"][1:]}),
        r"a value of 'return' for each of its points",
    ),
    "points of another kind": (
        lambda x: x.update({"points of return": x["points of return"] * 0.5}),
        r"a value of 'return' for each of its points",
    ),
    "less": (
        lambda x: [x.pop(f"{what} of return") for what in ("points", "values")],
        r"return is needed here .*, but was not saved",
    ),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_whole_folder_that_lacks_something_is_refused(name: str, tmp_path: Path) -> None:
    """The checksums are right, as if written by hand or by another program."""
    change, text = CRAFTED[name]
    cut_off(learning(), tmp_path)
    folder = RunFolder(tmp_path)
    manifest, arrays = folder.read()
    change(arrays)
    folder.write(manifest, arrays)
    with pytest.raises(ExecutionError, match=text):
        learning().resume(tmp_path)


@pytest.mark.parametrize("resources", [(), ("counter", "counter"), ("other",)])
def test_other_resources_are_refused(resources: tuple[str, ...], tmp_path: Path) -> None:
    program = counting(Counter, "interpret")
    cut_off(program, tmp_path)
    folder = RunFolder(tmp_path)
    manifest, arrays = folder.read()
    folder.write(replace(manifest, resources=resources), arrays)
    with pytest.raises(ExecutionError, match=r"is of a program with the `resources` "):
        program.resume(tmp_path)


def test_a_resource_of_which_nothing_was_saved_is_named(tmp_path: Path) -> None:
    program = walking("interpret", 6)
    cut_off(program, tmp_path)
    folder = RunFolder(tmp_path)
    manifest, arrays = folder.read()
    del arrays["resource 0: "]
    folder.write(manifest, arrays)
    with pytest.raises(ExecutionError, match=r"load\(\) of total raised KeyError"):
        program.resume(tmp_path)


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_what_versions_up_to_this_have_saved_is_read(version: int, tmp_path: Path) -> None:
    """Written by that version's tests/kept/__main__.py, with other file formats alongside."""
    manifest, arrays = RunFolder(KEPT / f"run-v{version}").read()
    assert (manifest.seed, manifest.turn, manifest.resources) == (7, 2, ("total",))
    assert manifest.bounds == {"I": 4, "T": 6} and manifest.cut == Cut(1, 1)
    have = {n: [str(x.dtype), x.astype(np.float64).tolist()] for n, x in arrays.items()}
    assert have == json.loads((KEPT / f"run-v{version}.json").read_text())
    assert {"lengths", "resource 0: ", "values of w'", "points of loss.2"} <= set(have)


# --- disks ----------------------------------------------------------------------------------------


def test_drafts_of_a_run_that_was_cut_off_are_cleared(tmp_path: Path) -> None:
    cut_off(learning(), tmp_path)
    for name in (".manifest.json.0123456789abcdef", ".state-6-00ff.safetensors.fedcba9876543210"):
        (tmp_path / name).write_bytes(b"half of it")
    (tmp_path / ".mine").write_bytes(b"a user's")
    (tmp_path / "state-6-00ff.safetensors").write_bytes(b"whole, but no manifest names it")
    learning().resume(tmp_path)
    kept = RunFolder(tmp_path).manifest().states
    assert {path.name for path in tmp_path.iterdir()} == {".mine", "lock", "manifest.json", *kept}


# --- resources on the host --------------------------------------------------------------------------


class Counter:
    """A resource that counts, and reports the count."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, at: tuple[int, ...], x: np.ndarray) -> np.ndarray:
        self.count += 1
        return x + np.float32(self.count)

    def save(self) -> dict[str, Any]:
        return {"count": self.count}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        self.count = int(saved["count"])


def counting(state: Callable[[], Any], executor: str) -> trl.Program:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        counter = trl.Resource(lambda sizes, seed: state(), name="counter")
        y = trl.tensor((), domain=(i,))
        y[0] = trl.constant(1.0)
        y[i + 1] = (y * 0.5 + trl.random.normal((), domain=(i, t)).sum(over=t)).tanh()
        add = lambda state, at, x: state.add(at, x)  # noqa: E731
        ctx.output("y", trl.udf(add, y, out=y, resource=counter))
    return ctx.compile({I: 7, T: 3}, trl.Options(executor=executor, vectorize=False))


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_resources_say_what_they_are_and_go_on_with_it(executor: str, tmp_path: Path) -> None:
    program = counting(Counter, executor)
    want = program.execute(seed=3)
    cut_off(program, tmp_path)
    assert RunFolder(tmp_path).manifest().resources == ("counter",)
    assert_alike(want, program.resume(tmp_path))


def test_what_cannot_be_saved_is_said_before_the_run(tmp_path: Path) -> None:
    class Silent:
        add = Counter.add
        count = 0

    program = counting(Silent, "interpret")
    with pytest.raises(OptionError, match="the state of counter, of type Silent, cannot be saved"):
        program.execute(checkpoint=tmp_path)
    assert RunFolder(tmp_path).is_empty
    program.execute()


def test_what_a_resource_raises_is_told_and_loses_nothing(tmp_path: Path) -> None:
    broken = [False]

    class Moody(Counter):
        def save(self) -> dict[str, Any]:
            return {"count": "many"} if broken[0] else super().save()

        def load(self, saved: Mapping[str, np.ndarray]) -> None:
            if broken[0]:
                raise ValueError("not today")
            super().load(saved)

    program = counting(Moody, "interpret")
    want = program.execute(seed=3)
    cut_off(program, tmp_path)
    broken[0] = True
    with pytest.raises(ExecutionError, match=r"load\(\) of counter raised ValueError: not today"):
        program.resume(tmp_path)
    with pytest.raises(ExecutionError, match=r"save\(\) of counter returned dict"):
        program.execute(checkpoint=tmp_path / "other", every=1)
    broken[0] = False
    assert_alike(want, program.resume(tmp_path))
