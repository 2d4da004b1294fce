"""Atomic writing of files."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from timerl_nb.base import atomic_files as files
from timerl_nb.base.atomic_files import clear_drafts, lock, write_whole


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


def test_drafts_that_nobody_writes_any_more_are_cleared(tmp_path: Path) -> None:
    old, new, other = (
        tmp_path / name
        for name in (".a.bin.0123456789abcdef", ".b.bin.0123456789abcdef", ".c.bin.0123456789abcde")
    )
    for path in (old, new, other):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    clear_drafts(tmp_path, idle=60)
    assert sorted(tmp_path.iterdir()) == [new, other]
    clear_drafts(tmp_path)
    assert list(tmp_path.iterdir()) == [other]


def test_what_comes_in_parts_is_one_file(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", (bytes([k]) for k in range(3)))
    assert (tmp_path / "file").read_bytes() == b"\0\1\2"


@pytest.mark.parametrize("system", ["unix", "windows"])
def test_a_file_is_held_by_one(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if system == "windows":  # as documented
        held = set[tuple[str, int]]()

        def locking(file: int, mode: int, count: int) -> None:
            assert (mode, count) == (2, 1)
            at = os.lseek(file, 0, os.SEEK_CUR)
            assert at >= os.fstat(file).st_size  # nobody can read a locked file
            place = os.readlink(f"/proc/self/fd/{file}"), at
            if place in held:
                raise PermissionError(13, "Permission denied")
            held.add(place)

        monkeypatch.setattr(files, "fcntl", None)
        monkeypatch.setattr(
            files, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2), raising=False
        )
    with open(tmp_path / "lock", "ab") as one, open(tmp_path / "lock", "ab") as other:
        lock(one)
        with pytest.raises(BlockingIOError):
            lock(other)
    (tmp_path / "lines").write_bytes(b"one\n")
    with open(tmp_path / "lines", "a+b", 0) as one:
        lock(one)
        one.write(b"two\n")
        with open(tmp_path / "lines", "a+b", 0) as other, pytest.raises(BlockingIOError):
            lock(other)
        one.seek(0)
        assert one.read() == b"one\ntwo\n"
