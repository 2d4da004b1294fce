"""The benchmarks run, and their counts are right."""

import csv
import json
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

import timerl_nb as trl
from benchmarks import __main__ as face
from benchmarks import lines, targets, works
from benchmarks.compiler import compiling
from benchmarks.memory import budgets, temporaries
from benchmarks.scope import overlap, taps
from benchmarks.training import race, report
from benchmarks.training.systems import SYSTEMS
from benchmarks.works import Work


def test_compile_times_name_every_stage(capsys) -> None:
    compiling.main(repeats=1)
    text = capsys.readouterr().out
    for stage in ("simplify", "vectorize", "fuse", "schedule", "memory", "ast", "total"):
        assert f"| {stage} |" in text


def test_temporaries_are_told_of_all_and_counted_of_what_takes_more_than_any_call(
    capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = temporaries.OWN
    known = [("large", 2 * own, 4 * own), ("small", 10, 0), ("as stated", 2 * own, 2 * own)]
    made = [temporaries.Row(*one, "a kernel") for one in known]
    monkeypatch.setattr(temporaries, "rows", lambda: iter(made))
    temporaries.main()
    text = capsys.readouterr().out
    assert "| large | 128.0 KiB | 256.0 KiB | 0.50 | a kernel |" in text
    assert "| small | 10 B | 0 B |  | a kernel |" in text
    assert (
        "3 programs, 2 of more than 64.0 KiB: median 0.75, from 0.50 to 1.00; 1 take more" in text
    )


def test_what_keeps_to_its_budget_is_told_from_what_does_not(
    capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixed cost of a call is ignored; programs beyond the budget are named."""
    own = temporaries.OWN

    def asked(work: str, budget: int | None) -> dict[str, int | float | None]:
        if budget is not None and budget < own:
            return {"refused": own, "seconds": 1.0}
        held = 4 * own if work == "kept" else 4 * own + 4
        stated = None if work == "interpreted" else own
        known = {"needed": 4 * own, "carried": held, "given": 0, "estimated": 0, "stated": stated}
        return {**known, "resident": own, "seconds": 1.0}

    monkeypatch.setattr(budgets, "measured_under", asked)
    budgets.main("kept", "beyond", "interpreted", shares=[1, 0.1])
    text = capsys.readouterr().out
    assert "| kept, 1 | 256.0 KiB | 256.0 KiB | 256.0 KiB | 0 B | 64.0 KiB |" in text
    assert text.count("refused: 64.0 KiB would do") == 3
    assert "2 of 3 keep to their budgets, 3 are refused." in text
    assert text.rstrip().endswith("Beyond them: beyond, 1.")


# --- races ---------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"S": Work("ppo", 4, 10, width=4), "R-8": Work("reinforce", 4, 10, width=4, window=3)}
    monkeypatch.setattr(race, "WORKS", tiny)


def test_entrants_are_systems() -> None:
    for work in works.WORKS:
        names = list(race.entrants(work, full=True))
        assert not set(names) - set(SYSTEMS) and len(set(names)) == len(names)
        assert names[:4] == list(race.entrants(work, full=False))


def test_a_race_interleaves_and_compares(small: None, tmp_path: Path) -> None:
    rows = race.race("S", ["jitted", "ours", "ours, whole"], rounds=4, resident=False)
    rows += race.race("R-8", ["ours, interpreted", "rings"], rounds=2, resident=False)
    assert [(row.work, len(row.seconds)) for row in rows] == [("S", 4)] * 3 + [("R-8", 2)] * 2
    assert all(min(row.seconds) > 0 and row.to_first > 0 for row in rows)
    assert [row.predicted is None for row in rows] == [True, False, False, False, True]
    assert [row.temp is None for row in rows] == [False, False, False, True, False]
    text = report.table(rows).splitlines()
    assert len(text) == 7 and "| S | jitted | " in text[2] and "| 1.00 |" in text[2]
    report.write(tmp_path / "bench.csv", rows)
    with (tmp_path / "bench.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [line["system"] for line in read] == [row.system for row in rows]
    assert float(read[0]["ratio"]) == 1 and float(read[3]["median_s"]) > 0
    assert all(int(line["cores"]) > 0 and line["jax"] for line in read)


@pytest.mark.parametrize("system", ["ours", "ours, whole", "ours, interpreted"])
def test_turns_are_iterations(small: None, system: str) -> None:
    runner = SYSTEMS[system](race.WORKS["S"], 3)
    for _ in range(3):
        runner.advance()
    with pytest.raises(RuntimeError, match="is over"):
        runner.advance()
    runner.close()


def test_resident_memory_is_that_of_a_process_of_its_own(
    small: None, capsys: pytest.CaptureFixture[str]
) -> None:
    race.measure_resident("R-8", "online")
    most, before = map(int, re.findall(r"\d+", capsys.readouterr().out))
    assert most >= before > 10 * 2**20


def test_words_that_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["race"], ["race", "Z"], ["race", "S", "theirs"]):
        with pytest.raises(SystemExit, match="systems: 'jitted'"):
            face.main(*words)
    with pytest.raises(SystemExit, match="# Benchmarks"):
        face.main("fast")


@pytest.mark.parametrize("command", sorted({*face.COMMANDS.values(), *face.QUIET.values()}))
def test_every_command_has_a_function(command: str) -> None:
    assert callable(resolve_name(f"benchmarks.{command}"))


def test_the_table_lists_every_command() -> None:
    internal = {"short", "held", "overlapping", "recorded", "resident"}
    listed = set(re.findall(r"^\| `([\w-]+)", face.README.read_text(), re.M))
    assert listed | internal == {*face.COMMANDS, *face.QUIET}


def test_lines_of_code_are_those_with_code(tmp_path: Path, capsys) -> None:
    python = '"""A module.\n\nOf two."""\n\n# why\nx = """kept\nkept"""  # why\n\n\nclass C:\n    """A class."""\n'
    assert lines.code_lines(python, ".py") == 3
    page = 'const a = "// kept"; // why\n/* why\n   not */ const b = 1;\n\n// why\n'
    assert lines.code_lines(page, ".ts") == 2
    assert lines.code_lines("a {\n  color: red; /* why */\n}\n", ".css") == 3
    (tmp_path / "timerl_nb/compiler/ir").mkdir(parents=True)
    (tmp_path / "timerl_nb/compiler/ir/one.py").write_text("x = 1\n")
    assert lines.count(tmp_path) == {"timerl_nb/compiler/ir": 1}
    here = lines.count(lines.ROOT)
    lines.main(str(tmp_path))
    assert (
        f"| timerl_nb/compiler/ir | 1 | {here['timerl_nb/compiler/ir']:,} | "
        in capsys.readouterr().out
    )


def test_another_checkouts_system_is_compared_round_by_round() -> None:
    figures = (0.0, None, None, None, None)
    here = race.Row("s", "ours", (1.0, 2.0, 4.0), *figures)
    there = race.Row("s", "ours @ ../before", (2.0, 2.0, 4.0), *figures)
    other = race.Row("s", "jitted", (1.0, 1.0, 1.0), *figures)
    assert race.parted(there.system) == ("ours", "../before")
    assert race.parted(other.system) == ("jitted", "")
    (line,) = race.compared([here, there, other])
    assert line.startswith("s, ours: 1.000 of ../before's time [")
    assert line.endswith("of 3 rounds]")
    assert not list(race.compared([there, other])), "nothing of this checkout to compare it with"


def test_the_overlap_is_of_lanes_like_those_that_are_recorded(capsys) -> None:
    recording = overlap.made(1_000)
    (lane,) = recording.lanes
    table = trl.scope.overlap_of(recording)
    assert trl.scope.overlap_of(recording, by="launch").total == table.total
    assert table.total == lane.end - int(lane.edges["ts"][0])
    libraries = {"backend", "simulation", "api", "waiting"}
    assert {name for (name,) in table.by("library")} >= libraries
    assert sum(trl.scope.transitions(recording).values()) == 4 * 100
    overlap.measure("1000")
    assert all(x >= 0 for x in json.loads(capsys.readouterr().out))


def test_what_taps_cost_is_measured_of_recorded_calls() -> None:
    found = taps.measured(400, 3)
    assert {name.rpartition(", ")[2] for name in found} == {"recorded", "nothing recorded"}
    assert all(len(tight) == len(cold) == 3 for tight, cold in found.values())


def test_stored_values_belong_to_targets_and_fresh_ones_replace_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {f"{target.group}: {target.name}" for target in targets.TARGETS}
    assert len(known) == len(targets.TARGETS) and {*targets.stored()} <= known
    assert {target.group for target in targets.TARGETS} == {*targets.GROUPS}

    def figures() -> targets.Figures:
        yield "kernel called in a window", targets.Spread(13.0, 12.0, 20.0)
        yield "a figure without a target", targets.Spread(1.0, 1.0, 1.0)

    monkeypatch.setattr(targets, "STORED", tmp_path / "targets.json")
    monkeypatch.setattr(targets, "GROUPS", {"streams": figures})
    targets.measure("streams")
    (row,) = targets.stored().values()
    assert (row["median"], row["least"], row["greatest"]) == (13.0, 12.0, 20.0)
    *rows, _, end = [line for text in targets.table(targets.stored()) for line in text.splitlines()]
    assert "| ≤ 12 | 13 (12–20) | **no** |" in rows[2]  # missed targets come first
    assert end == f"0 of {len(known)} targets are met, 1 are missed."
