"""Results as tables and as files, with round trips."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import timerl_nb as trl
from tests.logged import TURNS, telling
from timerl_nb.base.errors import CallError, ExecutionError, MissingPartError, OptionError

_MADE: list[tuple[trl.Program, trl.Result]] = []


def made() -> tuple[trl.Program, trl.Result]:
    if not _MADE:
        program = telling("interpret")
        _MADE.append((program, program.execute(seed=7)))
    return _MADE[0]


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert list(one) == list(other)
    for name, x in one.items():
        assert (x.dtype, x.shape) == (other[name].dtype, other[name].shape)
        assert x.tobytes() == other[name].tobytes()


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    program, result = made()
    path = result.save(tmp_path / "new" / "result.safetensors")
    back = trl.Result.load(path)
    assert_equal(dict(result), dict(back))
    assert_equal(dict(result.parameters), dict(back.parameters))
    assert list(back.coordinates) == ["some"]
    assert_equal(dict(result.coordinates["some"]), dict(back.coordinates["some"]))
    assert (back.memory, back.seconds) == (result.memory, result.seconds)
    assert back.instructions == result.instructions and repr(back) == repr(result)
    assert list(path.parent.iterdir()) == [path]
    assert set(trl.load(path)) >= {"output: loss", "parameter: w", "coordinates of some: i"}
    again = trl.Result.load(back.save(tmp_path / "again"))
    assert_equal(dict(result), dict(again))
    with pytest.raises(OptionError, match="the result has no policy"):
        back.policy()


def test_lengths_and_checkpoints_are_read_back(tmp_path: Path) -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.tensor((), domain=(i, t))
        x[i, 0] = trl.value(i).floating()
        x[i, t + 1] = x + 1.0
        x[i == 1].checkpoint(tmp_path / "kept")
        ctx.output("x", x)
    result = ctx.compile({I: 3, T: trl.until(x >= 4.0, at_most=6)}).execute()
    back = trl.Result.load(result.save(tmp_path / "result"))
    np.testing.assert_array_equal(back.lengths["T"], [5, 4, 3])
    assert list(back.checkpoints) == list(result.checkpoints) and len(back.checkpoints) == 4
    assert_equal(dict(result.lengths), dict(back.lengths))
    assert dict(back) != {} and back["x"].shape == (3, 6)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda x: x[:-3], "is damaged: it is truncated"),
        (lambda x: x[:-1] + bytes([x[-1] ^ 1]), "does not match its checksum"),
        (lambda x: b"", "is damaged: it is empty"),
        (lambda x: b"text", "not a checkpoint|truncated"),
        (lambda x: x.replace(b'\\"version\\": 1', b'\\"version\\": 2'), "has `version` 2"),
        (lambda x: x.replace(b'\\"seconds\\"', b'\\"SECONDS\\"'), "is damaged: its list of arrays"),
        (lambda x: x.replace(b'[\\"output\\",', b'[\\"output\\";'), "is not a result file"),
    ],
    ids=["cut", "flipped", "empty", "text", "newer", "without seconds", "no JSON"],
)
def test_what_is_no_result_is_said(spoil: Any, text: str, tmp_path: Path) -> None:
    path = made()[1].save(tmp_path / "result")
    content = path.read_bytes()
    path.write_bytes(spoil(content))
    assert path.read_bytes() != content
    with pytest.raises(ExecutionError, match=text):
        trl.Result.load(path)


def test_other_files_are_no_results(tmp_path: Path) -> None:
    save_file({"x": np.zeros(3)}, tmp_path / "x")
    with pytest.raises(ExecutionError, match="x is not a result file"):
        trl.Result.load(tmp_path / "x")
    with pytest.raises(ExecutionError, match="does not exist"):
        trl.Result.load(tmp_path / "none")
    for wrong in (3, ""):
        with pytest.raises(CallError, match="is not a file name"):
            trl.Result.load(wrong)
        with pytest.raises(CallError, match="is not a file name"):
            made()[1].save(wrong)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ExecutionError, match="the result cannot be written to .*folder"):
        made()[1].save(tmp_path / "folder")
    assert json.dumps(sorted(p.name for p in tmp_path.iterdir())) == '["folder", "x"]'


# --- tables -----------------------------------------------------------------------------------------


def test_without_pandas_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for name in (None, "loss"):
        with pytest.raises(MissingPartError, match="pandas cannot be imported") as found:
            made()[1].frame(name)
        assert "timerl-nb[frame]" in str(found.value)


def pandas() -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed: make peers-env")


def test_a_frame_has_a_row_per_turn(tmp_path: Path) -> None:
    pandas()
    program, result = made()
    part = program.execute(seed=7, outputs=["loss", "some"])
    frame = result.frame()
    assert frame.index.name == "i" and list(frame.index) == list(range(TURNS))
    assert list(frame.columns) == ["loss", "count", "small", "odd", "some", "half", "late"]
    for name in ("loss", "count", "small", "odd", "late"):
        assert frame[name].dtype == result[name].dtype
        np.testing.assert_array_equal(frame[name].to_numpy(), result[name])
    np.testing.assert_array_equal(frame["some"].dropna().to_numpy(), result["some"])
    assert list(frame["some"].dropna().index) == [2, 5, 8, 11]
    np.testing.assert_array_equal(frame["half"], result["half"].astype(np.float32))
    assert part.frame().equals(frame[["loss", "some"]])
    assert trl.Result.load(result.save(tmp_path / "x")).frame().equals(frame)
    with pytest.raises(OptionError, match="no output is one number per turn"):
        program.execute(outputs=["rows"]).frame()


def test_a_frame_of_one_output_has_a_row_per_number() -> None:
    pandas()
    result = made()[1]
    rows = result.frame("rows")
    assert rows.index.names == ["i", "axis 0"] and len(rows) == TURNS * 16
    assert rows.loc[(3, 5), "rows"] == result["rows"][3, 5]
    steps = result.frame("steps")
    assert steps.index.names == ["i", "t"] and steps.loc[(11, 2), "steps"] == result["steps"][11, 2]
    some = result.frame("some")
    assert list(some.index) == [2, 5, 8, 11] and some.index.name == "i"
    total = result.frame("total")
    assert total.shape == (1, 1) and total["total"].iloc[0] == result["total"]
    with pytest.raises(OptionError, match="the result has no output 'nothing'"):
        result.frame("nothing")
