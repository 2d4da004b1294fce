"""Forged files: names of other folders, devices, pipes, decompression bombs, shadowing modules."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import timerl_nb as trl
from timerl_nb.base import atomic_files as files
from timerl_nb.base.errors import ExecutionError
from timerl_nb.cli.support.run_request import RunRequest, read_json
from timerl_nb.cli.support.sweep_workers import CHILD, ROOT
from timerl_nb.runtime.state.run_folder import MANIFEST, Manifest, RunFolder, checksum_of
from timerl_nb.scope.calibration.calibration import Calibration
from timerl_nb.streams.stream_file import load

STATE = "state-2-0123abcd.safetensors"
_HEADER = b'{"k":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
VALUES = len(_HEADER).to_bytes(8, "little") + _HEADER + bytes(4)


def forge(folder: Path, **changes: Any) -> None:
    """Write a manifest with the right checksum."""
    made = Manifest(
        *("r", "p", "g", {}, "xla", 0, "1", 2, None, {}, ()),
        *(STATE, len(VALUES), hashlib.sha256(VALUES).hexdigest()),
    )
    known = {name: value for name, value in changes.items() if hasattr(made, name)}
    (folder / MANIFEST).write_text(json.dumps(replace(made, **known).to_json()))


def test_a_state_is_a_file_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / STATE).write_bytes(VALUES)
    forge(folder)
    assert RunFolder(folder).read()[1]["k"].tolist() == [0]
    (tmp_path / STATE).write_bytes(VALUES)
    (folder / "sub").mkdir()
    (folder / "sub" / STATE).write_bytes(VALUES)
    others = [
        str(tmp_path / STATE),
        f"../{STATE}",
        f"sub/{STATE}",
        "/dev/zero",
        "",
        ".",
        STATE + "\n",
    ]
    for other in others:
        forge(folder, state=other)
        with pytest.raises(ExecutionError, match="an unknown name"):
            RunFolder(folder).read()


@pytest.mark.parametrize(
    "changes",
    [
        {"cut": {"part": "0", "turn": 1}},
        {"bounds": {"T": "9"}},
        {"resources": (1,)},
        {"lines": {"x": 3}},
        {"turn": -1},
        {"nbytes": -4},
    ],
)
def test_fields_of_other_kinds_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    forge(tmp_path)
    body = json.loads((tmp_path / MANIFEST).read_text())
    del body["checksum"]
    body |= changes
    body = json.loads(json.dumps(body))
    (tmp_path / MANIFEST).write_text(json.dumps({**body, "checksum": checksum_of(body)}))
    with pytest.raises(ExecutionError, match=MANIFEST):
        RunFolder(tmp_path).manifest()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of Unix")
def test_devices_and_pipes_are_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    readers = [
        trl.load,
        trl.scope.read,
        load,
        Calibration.load,
        lambda path: read_json(path, "x", 1),
        trl.Result.load,
    ]
    for path in (pipe, Path("/dev/zero")):
        for read in readers:
            with pytest.raises((trl.errors.TimeRLError, OSError)):
                read(path)
        run = tmp_path / f"run of {path.name}"
        run.mkdir()
        (run / MANIFEST).symlink_to(path)
        with pytest.raises(ExecutionError, match="a symbolic link"):
            RunFolder(run).manifest()
        forge_into = tmp_path / f"state of {path.name}"
        forge_into.mkdir()
        forge(forge_into)
        (forge_into / STATE).symlink_to(path)
        with pytest.raises(ExecutionError, match="a symbolic link"):
            RunFolder(forge_into).read()


def test_files_are_as_large_as_expected_at_most(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    forge(folder)
    with open(folder / STATE, "wb") as file:
        file.truncate(1 << 40)  # without any blocks on the disk
    with pytest.raises(ExecutionError, match="more than the limit"):
        RunFolder(folder).read()
    with open(folder / MANIFEST, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ExecutionError, match="more than the limit"):
        RunFolder(folder).manifest()
    with pytest.raises(OSError, match="more than 10 bytes"):
        files.unpack_gzip(gzip.compress(bytes(11)), 10)
    assert files.unpack_gzip(gzip.compress(bytes(10)), 10) == bytes(10)
    with pytest.raises(ValueError, match="nested too deeply"):
        files.parse_json("[" * 1_000_000)


def test_links_in_run_folders_are_not_followed(tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / STATE).write_bytes(VALUES)
    forge(folder)
    (folder / STATE).symlink_to(other / STATE)
    with pytest.raises(ExecutionError, match="a symbolic link"):
        RunFolder(folder).read()
    (folder / MANIFEST).rename(other / MANIFEST)
    (folder / MANIFEST).symlink_to(other / MANIFEST)
    with pytest.raises(ExecutionError, match="a symbolic link"):
        RunFolder(folder).manifest()
    (other / "asked.json").write_text("{}")
    (folder / "asked.json").symlink_to(other / "asked.json")
    with pytest.raises(ExecutionError, match="a symbolic link"):
        RunRequest.read_from(folder)
    (folder / "lock").symlink_to(other / "made")
    with pytest.raises(ExecutionError, match="a symbolic link"):
        RunFolder(folder).enter()
    assert not (other / "made").exists()
    (tmp_path / "link").symlink_to(other)  # the folder itself may be one
    linked = RunFolder(tmp_path / "link")
    linked.enter()
    linked.release()


def test_a_checkpoint_is_as_large_as_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(VALUES)
    assert trl.load(path)["k"].tolist() == [0]
    with open(path, "r+b") as file:
        file.truncate(1 << 40)  # without any blocks on the disk
    with pytest.raises(ExecutionError, match="more than the limit"):
        trl.load(path)
    end = (1 << 40) - 8 - 200
    text = json.dumps({"k": {"dtype": "U8", "shape": [end], "data_offsets": [0, end]}}).ljust(200)
    with open(path, "r+b") as file:
        file.write(len(text).to_bytes(8, "little") + text.encode())
    with pytest.raises(ExecutionError, match="memory are available"):
        trl.load(path)
    linked = tmp_path / "linked.safetensors"
    path.write_bytes(VALUES)
    linked.symlink_to(path)  # a path given by the user may be a link
    assert trl.load(linked)["k"].tolist() == [0]


def test_workers_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    for name in ("tqdm", "json", "numpy", "timerl_nb"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()\nraise SystemExit(7)\n")
    command = [sys.executable, "-P", "-c", CHILD, ROOT, "resume", "nowhere"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "the folder nowhere does not exist" in done.stderr
    assert not (tmp_path / "imported").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are limited on Linux")
def test_drawing_without_enough_addresses_is_refused() -> None:
    code = """
import resource
import timerl_nb as trl
from timerl_nb.show import offline_rendering
resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
try:
    offline_rendering.call("arrange", [])
except trl.errors.DrawingError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "the address space is limited" in done.stdout and "ulimit -v" in done.stdout
