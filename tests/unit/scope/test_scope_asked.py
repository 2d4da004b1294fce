"""Running recordings and loaded ones answer the same requests."""

from __future__ import annotations

import sys
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ExecutionError, MissingPartError, OptionError
from timerl_nb.scope import Recording, operation, phase
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, NAME_MASK, Kind, Library

record = partial(trl.scope.record, taps=False)  # annotations only


def recorded(folder: Path | None) -> trl.scope.record:
    with record(folder) as rec, phase("collect"):
        for _ in range(3):
            with operation("step"):
                pass
    return rec


def test_both_give_the_same_answers(tmp_path: Path) -> None:
    rec = recorded(tmp_path / "r")
    read = trl.scope.read(tmp_path / "r")
    assert isinstance(read, Recording) and read.read() is read
    assert rec.table().cells == read.table().cells
    assert rec.transitions() == read.transitions() == {}
    assert repr(rec) == repr(read)
    assert repr(rec).splitlines()[0] == "1 process, 1 thread, 9 events"


def test_an_empty_recording_says_so(tmp_path: Path) -> None:
    rec = record(tmp_path / "r")
    assert repr(rec) == f"{tmp_path / 'r'} contains no recording."
    with rec:
        pass
    assert rec.table().total == sum(rec.table().cells.values())
    assert rec.transitions() == {}


def test_a_zip_holds_what_the_folder_holds_of_the_recording(tmp_path: Path) -> None:
    rec = recorded(tmp_path / "r")
    (tmp_path / "r" / "weights.npz").write_bytes(b"of the user")
    path = rec.save(tmp_path / "made" / "r.scope.zip")
    assert {Path(name).suffix for name in zipfile.ZipFile(path).namelist()} == {
        ".edges",
        ".json",
        ".names",
    }
    assert path.stat().st_size < 10_000
    read, again = trl.scope.read(path), tmp_path / "again.zip"
    assert read.table().cells == rec.table().cells
    (ours,), (theirs,) = rec.read().lanes, read.lanes
    assert np.array_equal(ours.edges, theirs.edges) and read.names == rec.read().names
    assert read.save(again) == again and again.read_bytes() == path.read_bytes()


def test_a_table_of_all_edges(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is no part of the lock")
    recording = trl.scope.read(Path(__file__).parents[3] / "datasets" / "ours.scope.zip")
    rows = parquet.read_table(recording.save(tmp_path / "r.parquet")).to_pylist()
    assert len(rows) == sum(len(lane.edges) for lane in recording.lanes)
    told = [
        (
            lane.process,
            lane.thread,
            ts,
            Kind(kind).name.lower(),
            Library(top >> NAME_BITS).name.lower(),
        )
        for lane in recording.lanes
        for ts, top, kind, _ in lane.edges.tolist()
    ]
    assert [tuple(row.values())[:5] for row in rows] == told
    names = [
        recording.names[top & NAME_MASK]
        for lane in recording.lanes
        for top in lane.edges["top"].tolist()
    ]
    assert [row["name"] for row in rows] == names and "zlib.compress" in names
    depths = [lane.edges["depth"] for lane in recording.lanes]
    assert [row["depth"] for row in rows] == np.concatenate(depths).tolist()
    other = np.array(
        [
            (1, (1 << 32) - 3, Kind.POINT, 1),  # a coordinate of -3
            (2, 5, Kind.BLOCK_ENTER, 2),  # 2 * 2**32 + 5 ns
            (3, 0, Kind.MARK, 0),
        ],
        EDGE,
    )
    made = Recording((Lane(1, 2, "", other, 3),), ("",))
    rows = parquet.read_table(made.save(tmp_path / "made.parquet")).to_pylist()
    assert [row["value"] for row in rows] == [-3, (2 << 32) + 5, None]


def test_without_pyarrow_there_is_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPartError, match="written by pyarrow, which is not installed"):
        recorded(tmp_path / "r").save(tmp_path / "r.parquet")
    assert not (tmp_path / "r.parquet").exists()


def test_what_cannot_be_saved_is_told(tmp_path: Path) -> None:
    rec = recorded(tmp_path / "r")
    with pytest.raises(OptionError, match="does not end in .zip or .parquet") as wrong:
        rec.save(tmp_path / "r.json")
    assert "r.scope.zip" in wrong.value.hint
    (tmp_path / "file").write_text("")
    with pytest.raises(ExecutionError, match="cannot be written"):
        rec.save(tmp_path / "file" / "r.zip")
    read = recorded(None).read()  # whose folder goes with the record
    with pytest.raises(ExecutionError, match="the folder is missing"):
        read.save(tmp_path / "gone.zip")
    with pytest.raises(ExecutionError, match="has no folder"):
        Recording((), ("",)).save(tmp_path / "made.zip")
    assert not (tmp_path / "gone.zip").exists()


def test_other_zips_are_told(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r").save(tmp_path / "r.zip")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:  # of the folder itself
        for file in (tmp_path / "r").iterdir():
            packed.write(file, f"r/{file.name}")
    packed_edges = trl.scope.read(tmp_path / "packed.zip").lanes[0].edges
    assert np.array_equal(packed_edges, trl.scope.read(path).lanes[0].edges)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("a.txt", "x")
    with pytest.raises(ExecutionError, match="other.zip contains no recording"):
        trl.scope.read(tmp_path / "other.zip")
    whole = bytearray(path.read_bytes())
    begin = whole.index(b".edges") + 20  # inside the compressed data
    whole[begin : begin + 8] = bytes(8)
    (tmp_path / "damaged.zip").write_bytes(whole)
    with pytest.raises(ExecutionError, match="damaged"):
        trl.scope.read(tmp_path / "damaged.zip")
