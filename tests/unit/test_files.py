"""The one way in which files are written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from timerl_nb.files import write_whole


def test_a_file_is_replaced_and_who_may_read_it_is_as_asked(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        for private, mode in ((False, 0o644), (True, 0o600)):
            write_whole(tmp_path / "file", b"new" * private, private=private, synced=False)
            assert (tmp_path / "file").stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "file", b"old")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "file", b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]
