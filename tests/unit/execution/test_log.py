"""Logs contain every value of the result, each row once, for any end of the run."""

from __future__ import annotations

import csv
import errno
import json
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.logged import COLUMNS, TURNS, WAYS, telling
from timerl_nb.base.errors import (
    BoundsError,
    ExecutionError,
    MissingPartError,
    OptionError,
    TimeRLError,
    TimeRLWarning,
)
from timerl_nb.execution.logging import jsonl_csv_log as log_folder
from timerl_nb.execution.logging.jsonl_csv_log import LogFolder
from timerl_nb.execution.logging.run_logger import Row, number

ROOT = Path(__file__).parents[3]
_MADE: dict[str, trl.Program] = {}


def program(way: str, *, live: bool = True) -> trl.Program:
    name = f"{way} {live}"
    if name not in _MADE:
        _MADE[name] = telling(way, live=live)
    return _MADE[name]


def lines(folder: Path) -> list[dict[str, Any]]:
    """Parse a file as strict JSON lines."""

    def refused(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    text = (folder / "log.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line, parse_constant=refused) for line in text.splitlines()]


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "log.csv", newline="") as file:
        return list(csv.DictReader(file))


def assert_tells(
    folder: Path, result: trl.Result, count: int = TURNS, ended: str = "finished"
) -> None:
    """Check that both files have every value of the result, and no duplicate row."""
    head, *found, last = lines(folder)
    assert head["columns"] == COLUMNS and head["not_logged"] == ["rows", "steps"]
    assert last["ended"] == ended
    table = rows(folder)
    assert [row["i"] for row in found] == list(range(count)) == [int(row["i"]) for row in table]
    for name in COLUMNS:
        where = result.coordinates.get(name, {"i": np.arange(len(result[name]))})["i"].tolist()
        values = {k: x for k, x in zip(where, result[name], strict=True) if k < count}
        for k in range(count):
            if k not in values:
                assert name not in found[k] and table[k][name] == ""
                continue
            want, kind = values[k], result[name].dtype
            given = float(found[k][name])
            for have in (given, float(_truth(table[k][name]))):
                np.testing.assert_array_equal(
                    np.asarray(have).astype(kind), want, err_msg=f"{name} at {k}"
                )


def _truth(text: str) -> Any:
    return {"True": 1, "False": 0}.get(text, text)


def assert_timed(folder: Path) -> None:
    """Check that time increases from row to row."""
    _, *found, _ = lines(folder)
    for before, after in zip(found, found[1:], strict=False):
        assert before["seconds"] <= after["seconds"] and before["turn"] <= after["turn"]
    assert all(0 < row["turn"] <= TURNS and row["turns_per_second"] > 0 for row in found)


@pytest.mark.parametrize("seeds", [None, 2])
def test_blocks_and_seeds_are_no_dimension_of_rows(seeds: int | None) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((), domain=(t,)) * trl.data(
            np.arange(5.0, dtype=np.float32), domain=(t,)
        )
        ctx.output("twice", x * 2)
        ctx.output("sum", (x * trl.data(np.ones(3, np.float32))).sum(over=t).sum())
    by_block = trl.Options(executor="interpret", trial=False, incrementalize=1)
    by_seed = trl.Options(executor="interpret", vectorize=False)
    outermost = set[str | None]()
    for options in (by_block, by_seed):
        program = ctx.compile({T: 5}, options, seeds=seeds)
        outermost.add(program.executable.progress(recorded=False).outer)
        rows: list[Row] = []
        result = program.execute(seed=1, log=rows.append)
        assert [row["t"] for row in rows] == [0, 1, 2, 3, 4]
        for s, column in enumerate(["twice"] if seeds is None else ["twice/1", "twice/2"]):
            want = result["twice"] if seeds is None else result["twice"][s]
            np.testing.assert_array_equal(np.array([r[column] for r in rows], np.float32), want)
    assert "t_block" in outermost


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_log_has_every_value_of_the_result(way: str, live: bool, tmp_path: Path) -> None:
    given: list[Row] = []
    result = program(way, live=live).execute(seed=7, log=[tmp_path / "a" / "log", given.append])
    assert_tells(tmp_path / "a" / "log", result)
    assert_timed(tmp_path / "a" / "log")
    head, *_, last = lines(tmp_path / "a" / "log")
    assert head["seed"] == 7 and head["bounds"] == {"I": TURNS, "T": 4}
    assert head["options"]["executor"] == WAYS[way]["executor"]
    assert head["options"].get("fuse_iterations", 1) == WAYS[way].get("fuse_iterations", 1)
    assert head["versions"]["numpy"] == np.__version__ and head["along"] == "i"
    assert np.float32(last["outputs"]["total"]) == result["total"] and last["turn"] == TURNS
    assert {row["i"] for row in given} == set(range(TURNS))
    told: dict[int, dict[str, Any]] = {}
    for row in given:
        told.setdefault(row["i"], {}).update(row)
    np.testing.assert_array_equal(
        np.float32([told[k]["loss"] for k in range(TURNS)]), result["loss"]
    )
    np.testing.assert_array_equal(
        np.float32([told[k]["late"] for k in range(TURNS)]), result["late"]
    )
    if way == "fused" and live:
        _, *found, _ = lines(tmp_path / "a" / "log")
        assert {row["turn"] for row in found} <= {5, 10, 12}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_stopped_has_its_rows_and_goes_on_in_its_log(
    way: str, tmp_path: Path
) -> None:
    whole = program(way).execute(seed=7)
    log, kept = tmp_path / "log", tmp_path / "kept"
    with program(way).start(7, checkpoint=kept, every=2, log=log, paused=True) as run:
        run.step(7)
        run.wait()
    done = 10 if way == "fused" else 7
    part = run.result()
    assert len(part["loss"]) == done
    head, *before, last = lines(log)
    assert last["ended"] == "stopped" and [row["i"] for row in before] == list(range(done))
    with (log / "log.jsonl").open("ab") as file:  # as an interrupted run leaves it
        file.write(b'{"i": 7, "tur')
    assert_same_result(program(way).resume(kept, log=log), whole)
    assert_tells(log, whole)
    assert_timed(log)
    after = lines(log)
    assert after[0] == head
    saved = 10 if way == "fused" else 6
    assert [r["seconds"] for r in after[1 : saved + 1]] == [r["seconds"] for r in before[:saved]]
    content = (log / "log.csv").read_bytes()
    again = program(way).resume(kept, log=log)  # of finished rows
    assert_same_result(again, whole)
    assert_tells(log, whole)
    assert (log / "log.csv").read_bytes() == content


def test_what_is_late_is_filled_in_when_the_run_goes_on(tmp_path: Path) -> None:
    made = program("xla", live=False)
    whole = made.execute(seed=7)
    with made.start(7, checkpoint=tmp_path / "kept", every=2, log=tmp_path, paused=True) as run:
        run.step(7)
        run.wait()
    head, *found, _ = lines(tmp_path)
    assert head["columns"] == COLUMNS and len(found) <= 7
    made.resume(tmp_path / "kept", log=tmp_path)
    assert_tells(tmp_path, whole)
    assert_tells(tmp_path, made.resume(tmp_path / "kept", log=tmp_path))


def assert_same_result(have: trl.Result, want: trl.Result) -> None:
    for name, x in want.items():
        np.testing.assert_array_equal(np.asarray(have[name], np.float32), np.float32(x))


def test_a_run_that_is_killed_goes_on_in_its_log(tmp_path: Path) -> None:
    code = [sys.executable, "-m", "tests.logged", str(tmp_path), "xla"]
    made = subprocess.run(code, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == -9, made.stderr
    found = (tmp_path / "log" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["i"] for line in found[1:9]] == list(range(8))
    whole = program("xla").execute(seed=7)
    result = program("xla").resume(tmp_path / "kept", log=tmp_path / "log")
    assert_same_result(result, whole)
    assert_tells(tmp_path / "log", whole)


def test_a_log_that_is_asked_for_later_has_all_rows(tmp_path: Path) -> None:
    whole = program("xla").execute(seed=7)
    with program("xla").start(7, checkpoint=tmp_path / "kept", every=1, paused=True) as run:
        run.step(5)
        run.wait()
    program("xla").resume(tmp_path / "kept", log=tmp_path / "log")
    assert_tells(tmp_path / "log", whole)
    _, *found, _ = lines(tmp_path / "log")
    assert ["seconds" in row for row in found] == [False] * 5 + [True] * (TURNS - 5)


def test_a_run_that_fails_keeps_its_rows(tmp_path: Path) -> None:
    calls: list[np.ndarray] = []

    def failing(x: np.ndarray) -> np.ndarray:
        calls.append(x)
        if len(calls) % 5 == 0:
            raise ValueError("no more")
        return x

    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        w = trl.parameter((), domain=(i,), init=1.0, name="w")
        y = trl.udf(failing, w, out=w)
        (w * trl.value(t).floating()).sum(over=t).backward()
        trl.optim.SGD([w], lr=0.01).step()
        ctx.output("y", y)
    failed = ctx.compile({"I": 9, "T": 3}, trl.Options(executor="interpret"))
    with pytest.raises(ExecutionError, match="no more"):
        failed.execute(log=tmp_path / "one")
    run = failed.start(log=tmp_path / "two")
    with pytest.raises(ExecutionError, match="no more"):
        run.result()
    for name in ("one", "two"):
        _, *found, last = lines(tmp_path / name)
        assert [row["i"] for row in found] == [0, 1, 2, 3]
        assert last["ended"] == "failed" and "failing raised ValueError at i = 4" in last["error"]


def test_a_program_without_turns_is_told_at_the_end(tmp_path: Path) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("x", trl.value(t).floating() * 0.1)
        ctx.output("sum", trl.value(t).sum(over=t))
    result = ctx.compile({T: 4}).execute(log=tmp_path)
    _, *found, last = lines(tmp_path)
    np.testing.assert_array_equal(np.float32([row["x"] for row in found]), result["x"])
    assert [row["t"] for row in found] == [0, 1, 2, 3] and last["outputs"] == {"sum": 6}


def test_outputs_are_those_that_are_returned(tmp_path: Path) -> None:
    program("xla").execute(outputs=["loss", "rows"], log=tmp_path)
    head, *_ = lines(tmp_path)
    assert head["columns"] == ["loss"] and head["not_logged"] == ["rows"]
    assert list(rows(tmp_path)[0]) == ["i", "turn", "seconds", "turns_per_second", "loss"]


def test_rows_beyond_a_dynamic_bound_are_none(tmp_path: Path) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 1.0
        x[t + 1] = x * 0.5
        ctx.output("x", x)
        done = x < 0.2
    made = ctx.compile({T: trl.until(done, at_most=9)})
    result = made.execute(log=tmp_path)
    _, *found, _ = lines(tmp_path)
    assert [row["x"] for row in found] == [1.0, 0.5, 0.25, 0.125] and result.lengths["T"] == 4
    with pytest.raises(BoundsError, match="log entries cannot be repeated"):
        ctx.compile({T: done}).execute(log=tmp_path / "open")
    assert not (tmp_path / "open").exists()


# --- folders of other runs
# ----------------------------------------------------------------------------


def test_runs_are_not_mixed(tmp_path: Path) -> None:
    made = program("xla")
    with made.start(7, log=tmp_path, paused=True) as run:
        run.step(1)
        run.wait()
        with pytest.raises(ExecutionError, match="another run is writing its log to"):
            made.execute(log=tmp_path)
    before = (tmp_path / "log.jsonl").read_bytes()
    with pytest.raises(ExecutionError, match="it has the log of another run") as found:
        made.execute(log=tmp_path)
    assert "a new folder" in str(found.value)
    made.execute(checkpoint=tmp_path / "kept")
    with pytest.raises(ExecutionError, match="it has the log of another run"):
        made.resume(tmp_path / "kept", log=tmp_path)
    assert (tmp_path / "log.jsonl").read_bytes() == before


def test_a_log_without_rows_is_begun_anew(tmp_path: Path) -> None:
    with program("xla").start(log=tmp_path, paused=True) as run:
        run.wait()
    assert [line.get("ended") for line in lines(tmp_path)] == [None, "stopped"]
    assert_tells(tmp_path, program("xla").execute(seed=1, log=tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("log.jsonl", b"mine\n", "log.jsonl is not a log of TimeRL-nb"),
        ("log.jsonl", b'{"i": 1}\n', "log.jsonl is not a log of TimeRL-nb"),
        ("log.jsonl", b"[1]\n", "log.jsonl is not a log of TimeRL-nb"),
        ("log.jsonl", b"\xff\xfe", "log.jsonl is not a log of TimeRL-nb"),
        ("log.csv", b"a,b\n", r"log.csv exists, but no log.jsonl"),
    ],
)
def test_files_of_others_stay_as_they_are(
    name: str, content: bytes, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ExecutionError, match=text):
        program("xla").execute(log=tmp_path)
    assert (tmp_path / name).read_bytes() == content


def test_a_log_of_other_columns_does_not_go_on(tmp_path: Path) -> None:
    with program("xla").start(checkpoint=tmp_path / "a", every=1, log=tmp_path, paused=True) as run:
        run.step(2)
        run.wait()
    with pytest.raises(ExecutionError, match="has columns"):
        program("xla").resume(tmp_path / "a", log=tmp_path, outputs=["loss"])


# --- write errors
# -------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExecutionError, match="cannot write its log in .*: Not a directory"):
        program("xla").execute(log=tmp_path / "file" / "log")
    with pytest.raises(ExecutionError, match="cannot write its log in .*: File exists"):
        program("xla").execute(log=tmp_path / "file")


@pytest.mark.parametrize("lasting", [False, True])
def test_a_full_disk_does_not_take_the_run_down(
    lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, calls = log_folder._Lines.add, [0]

    def full(self: Any, content: bytes) -> None:
        calls[0] += 1
        if calls[0] > 1 and (lasting or calls[0] < 4):
            self._file.write(content[: len(content) // 2])  # a partial write, as on full disks
            raise OSError(errno.ENOSPC, "No space left on device")
        add(self, content)

    monkeypatch.setattr(log_folder._Lines, "add", full)
    monkeypatch.setattr("timerl_nb.execution.logging.run_logger._REST", 0)
    with pytest.warns(TimeRLWarning, match="cannot be written: No space left on device") as said:
        result = program("xla").execute(seed=7, log=tmp_path)
    assert len(said) == 1
    if lasting:
        assert len(lines(tmp_path)) == 1  # and no part of a line
    else:
        assert_tells(tmp_path, result)


def test_a_logger_that_fails_is_told_no_more(tmp_path: Path) -> None:
    given: list[Row] = []

    def failing(row: Row) -> None:
        given.append(row)
        raise ValueError("not mine")

    with pytest.warns(TimeRLWarning, match="failed, and receives no more rows: ValueError"):
        result = program("xla").execute(seed=7, log=[failing, tmp_path])
    assert len(given) == 1
    assert_tells(tmp_path, result)


# --- user-defined loggers
# -----------------------------------------------------------------------------


class Listening:
    """A logger that records everything."""

    def __init__(self, keeps: int | None = None) -> None:
        self.keeps = keeps
        self.about: Mapping[str, Any] = {}
        self.reached = -1
        self.rows: list[Row] = []
        self.last: Mapping[str, Any] = {}
        self.late: Sequence[Row] = ()

    def begin(self, about: Mapping[str, Any], reached: int) -> Row | None:
        self.about, self.reached = about, reached
        return None if self.keeps is None else {"i": self.keeps, "seconds": 1000.0}

    def write(self, rows: Sequence[Row]) -> None:
        self.rows += rows

    def end(self, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        self.last, self.late = last, late


def test_a_logger_goes_on_where_it_was(tmp_path: Path) -> None:
    one, first = Listening(), program("interpret")
    with first.start(7, checkpoint=tmp_path, every=1, log=one, paused=True) as run:
        run.step(4)
        run.wait()
    assert one.reached == 0 and one.last["ended"] == "stopped"
    assert isinstance(one, trl.logs.Logger)
    two, behind = Listening(), Listening(keeps=1)
    result = first.resume(tmp_path, log=[two, behind])
    assert one.about["run"] == two.about["run"] == behind.about["run"]
    assert two.reached == behind.reached == 4
    assert [row["i"] for row in two.rows] == list(range(4, TURNS))
    assert [row["i"] for row in behind.rows] == list(range(2, TURNS))
    np.testing.assert_array_equal(
        np.float32([row["loss"] for row in behind.rows]), result["loss"][2:]
    )
    assert two.rows[0]["seconds"] > 1000 and two.rows[-1]["turn"] == TURNS
    assert two.last["ended"] == "finished" and two.last["outputs"]["total"] == number(
        result["total"]
    )


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (3, OptionError, "log=3 is not a logger"),
        ("", OptionError, "is not a folder"),
        ([None], OptionError, "log=None is not a logger"),
        (Listening, OptionError, "is not a logger"),
    ],
    ids=["a number", "no name", "none", "a class"],
)
def test_what_takes_no_rows_is_refused(given: Any, error: type[TimeRLError], text: str) -> None:
    for run in (program("xla").execute, program("xla").start):
        with pytest.raises(error, match=text):
            run(log=given)


@pytest.mark.parametrize("name", ["turn", "seconds", "turns_per_second"])
def test_a_dimension_called_as_a_column(tmp_path: Path, name: str) -> None:
    with trl.Context(name) as ctx:
        ((i, I),) = ctx.dims
        ctx.output("y", trl.value(i) * 2)
    compiled = ctx.compile({I: 3})
    with pytest.raises(OptionError, match=f"the dimension '{name}' has the name of another column"):
        compiled.execute(log=tmp_path)
    assert compiled.execute(progress=False)["y"].tolist() == [0, 2, 4]


def test_columns_have_names_of_their_own(tmp_path: Path) -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        ctx.output("turn", trl.value(i))
    with pytest.raises(OptionError, match="the output 'turn' has the name of another column"):
        ctx.compile({I: 3}).execute(log=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_names_of_outputs_are_quoted(tmp_path: Path) -> None:
    name = 'a "b", c'
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        ctx.output(name, trl.value(i))
    ctx.compile({I: 3}).execute(log=tmp_path)
    assert [row[name] for row in rows(tmp_path)] == ["0", "1", "2"]
    assert [line[name] for line in lines(tmp_path)[1:-1]] == [0, 1, 2]


def test_a_number_has_as_few_digits_as_tell_it_apart() -> None:
    drawn = np.random.default_rng(5).integers(0, 2**32, 2000, dtype=np.uint32).view(np.float32)
    for x in (*drawn, np.float32(0.1), np.float32(1e-45), np.float32(16777216)):
        with warnings.catch_warnings(action="ignore"):  # of signalling NaNs
            back = np.float32(float(repr(number(x))))
        assert back == x or (np.isnan(back) and np.isnan(x))
    assert repr(number(np.float32(0.1))) == "0.1" and number(np.float64(0.1)) == 0.1
    assert number(np.bool_(True)) is True and type(number(np.int64(2**62))) is int
    assert LogFolder("x").__repr__() == "LogFolder('x')"


# --- optional packages --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_what_is_not_installed_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("wandb", "tensorboard.summary.writer.event_file_writer"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPartError, match=f"needs the package {name}") as found:
        getattr(trl.logs, name)(str(tmp_path))
    assert f"timerl-nb[{name}]" in str(found.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestWarning")
def test_tensorboard_reads_every_value(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: make peers-env")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made, kept, events = program("xla"), tmp_path / "kept", tmp_path / "events"
    with made.start(
        7, checkpoint=kept, every=2, log=trl.logs.tensorboard(events), paused=True
    ) as run:
        run.step(7)
        run.wait()
    result = made.resume(kept, log=trl.logs.tensorboard(events))
    found = EventAccumulator(str(events))
    found.Reload()
    for name in ("loss", "some", "odd", "late"):
        scalars = found.Scalars(name)
        where = result.coordinates.get(name, {"i": np.arange(TURNS)})["i"]
        assert [one.step for one in scalars] == where.tolist()
        np.testing.assert_array_equal(np.float32([one.value for one in scalars]), result[name])
    (total,) = found.Scalars("total")
    assert np.float32(total.value) == result["total"]
    with pytest.raises(ExecutionError, match="the events of another run"):
        made.execute(log=trl.logs.tensorboard(events))


def records(content: bytes) -> list[bytes]:
    """Return the records of a log in blocks (LevelDB's format), each after a seven-byte header."""
    at, found, part = 7, list[bytes](), b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # padding at the end of a block
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        part += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            found.append(part)
            part = b""
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_wandb_keeps_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: make peers-env")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = trl.logs.wandb("tried", dir=str(tmp_path), settings={"console": "off"})
    result = program("xla").execute(seed=7, log=logger)
    (path,) = tmp_path.rglob("run-*.wandb")
    told: list[dict[str, Any]] = []
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            told.append(
                {(x.key or "/".join(x.nested_key)): json.loads(x.value_json) for x in items}
            )
    found = {row["i"]: row["loss"] for row in told if "loss" in row}
    assert sorted(found) == list(range(TURNS))
    np.testing.assert_array_equal(np.float32([found[k] for k in range(TURNS)]), result["loss"])
