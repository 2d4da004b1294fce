"""`make torture` at small size: every part runs, and detects failures."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.torture import batches, clock, cycles, faults, kills, recordings, toggles, turns, writers
from tests.torture import growth as growths
from tests.torture.__main__ import PARTS, table
from tests.torture.disk import REMOVING
from tests.torture.faults import Fault
from tests.torture.growth import ALLOWED, Growth, alive
from tests.torture.kills import Killed
from tests.torture.progress import Progress
from tests.torture.subjects import SUBJECTS, differs, given_by
from timerl_nb.execution.control import periodic_saving as saving
from timerl_nb.execution.control.periodic_saving import Saving
from timerl_nb.runtime.state import run_folder
from timerl_nb.scope.storage.event_format import EDGE

# --- kills ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "moments"),
    [
        ("walking-interpret", ("training",)),
        ("walking-xla", ("saving", "training")),
        ("walking-fused", ("saving",)),
    ],
)
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(
    name: str, moments: tuple[str, ...], tmp_path: Path
) -> None:
    killed, random = Killed(name, 250, "1", 7, tmp_path), Random()
    for moment in moments:
        fell, wrong = killed.kill(moment, random)
        assert fell is not None and not wrong
    program = SUBJECTS[name](250)
    want = given_by(program.execute(seed=7))
    assert not differs(want, given_by(program.resume(killed.folder, every=250)))
    assert len(list(killed.folder.iterdir())) == 4  # two states


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_recordings_of_killed_processes_have_all_that_was_done(tmp_path: Path) -> None:
    progress = Progress(tmp_path, "recordings", seed=Random().randrange(10**6), count=4)
    recordings.run(progress)
    assert progress.done == 4 and not progress.wrong
    # detects a track without its end, and a damaged one
    folder = tmp_path / "one"
    assert recordings.tried(folder, "python", 1, 0.01)[1] == []
    lane = max(
        folder.glob("*-0.edges"),
        key=lambda path: int(np.fromfile(path, EDGE)["ts"].astype(bool).sum()),
    )
    for more in folder.glob(f"{lane.stem.rpartition('-')[0]}-[1-9]*.edges"):
        more.unlink()
    found = np.fromfile(lane, EDGE)
    last = int(found["ts"].astype(bool).sum()) - 1
    cut = found.copy()
    cut["ts"][last // 2 :] = 0
    cut.tofile(lane)
    assert any("are recorded" in text for text in recordings.checked(folder, 1)[1])
    found["depth"][last // 2] += 1
    found.tofile(lane)
    assert any("is meant" in text for text in recordings.checked(folder, 1)[1])


# --- disks ----------------------------------------------------------------------------------------


def one_save(of: str, folder: Path) -> list[Fault]:
    """Yield every call of a save after the first, with each disk error."""
    every = [fault for fault in faults.every_fault(of, "interpret", folder) if not fault.onward]
    asked = list(dict.fromkeys((fault.at, fault.call) for fault in every))
    if of == "state":
        renames = [at for at, call in asked if call.startswith("rename .manifest")]
        first, last = renames[0] + 3, renames[1] + 3  # the folder is opened and synced, one removed
        assert asked[last][1].startswith(f"{REMOVING} state-1-")
    else:
        first, last = 7, len(asked) - 1
    kinds = {call.split()[0] for at, call in asked if first <= at <= last}
    assert kinds >= {"open", "write", "fsync", "rename"} and last - first >= 5
    return [f for f in every if first <= f.at <= last and f.code in ("ENOSPC", "EIO")]


@pytest.mark.parametrize("of", ["state", "value"])
def test_a_disk_that_fails_at_any_call_of_a_save(of: str, tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    tried = {str(fault): faults.tried(fault, folder) for fault in one_save(of, folder)}
    assert len(tried) >= 12 and not any(tried.values()), tried


@pytest.mark.parametrize("code", ["EROFS", "EACCES"])
def test_a_disk_that_nobody_may_write_to_any_more(code: str, tmp_path: Path) -> None:
    for of in ("state", "value"):
        calls = faults.calls(of, "interpret", tmp_path / "disk")
        for at in (0, 1, 5, len(calls) // 2):
            fault = Fault(of, "interpret", at, calls[at], code, onward=True)
            assert faults.tried(fault, tmp_path / "disk") == "", fault


@pytest.mark.parametrize("of", faults.FULL)
def test_a_disk_that_is_full(of: str, tmp_path: Path) -> None:
    for most in faults.FULL[of][::4]:
        assert faults.full_disk(of, "interpret", tmp_path / "disk", most) == ""
    assert "as if there were space" in faults.full_disk(of, "interpret", tmp_path / "disk", 10**6)


def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    wrong = faults.read_only_to_us(tmp_path / "disk")
    if wrong is None:
        pytest.skip("root may write to every folder, and cannot give up that right")
    assert wrong == ""


def test_what_is_written_in_its_place_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that overwrites in place is detected."""

    def straight(path: Path, content: Any, **_: Any) -> None:
        with open(path, "wb") as file:
            for part in [content] if isinstance(content, bytes) else content:
                file.write(part)

    folder = tmp_path / "disk"
    monkeypatch.setattr(run_folder, "write_whole", straight)
    wrong = {faults.tried(Fault("state", "interpret", k, "write", "EIO"), folder) for k in range(9)}
    assert any(wrong - {""}), wrong


# --- writers and clocks ---------------------------------------------------------------------------


def test_two_writers_of_one_folder(tmp_path: Path) -> None:
    progress = Progress(tmp_path, "writers", count=4)
    writers.run(progress)
    assert progress.done == 4 and not progress.wrong
    assert progress.figures["ended"] >= 4 and sum(progress.figures.values()) == 8


def test_a_clock_that_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress(tmp_path, "clock", count=3)
    clock.run(progress)
    assert progress.done == 3 and not progress.wrong and progress.figures["jumps"] > 6
    moves = [61.0, -3600.0, 61.0, 61.0, 61.0]
    assert clock.tried("20s", moves) == ""

    def trusting(one: Saving, count: int = 1) -> None:  # time does not go backwards
        one.turn += count
        if saving.time.monotonic() - one._saved[1] >= 20.0:
            cut = one._cuts.cut_after(one.turn)
            if cut is not None:
                one._save(cut)

    monkeypatch.setattr(Saving, "on_turn", trusting)
    assert "turn 3 was not saved" in clock.tried("20s", moves)


# --- memory ---------------------------------------------------------------------------------------


def test_cycles_leave_nothing_of_ours() -> None:
    works = 1, 2, 3  # by XLA, by the interpreter, and with a search
    for k in works:
        cycles.cycle(k)
    before = alive()
    for k in works:
        cycles.cycle(k)
    more = alive() - before
    assert not more, more


def test_toggles_leave_no_more_than_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toggles, "SWITCHES", ("fuse", "lift"))
    shown = toggles.explorer()
    given = shown.program.options

    def all_switches() -> None:
        for k in range(2 * len(toggles.SWITCHES)):
            assert not toggles.toggle(shown, given, k)

    all_switches()
    before = alive()
    all_switches()
    more = alive() - before
    assert not more, more


def test_growth_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growths, "FIRST", 2)
    growth, held = Growth(), list[bytearray]()
    for _ in range(2):
        growth.add()
    assert growth.wrong == [] and abs(growth.share) <= ALLOWED
    size = int(growth.resident[-1] * 2**20 * 0.2)
    held.append(bytearray(b"x" * size))
    growth.add()
    assert 0.1 < growth.share < 0.5 and "MiB after 3 tries" in growth.wrong[0]
    assert growth.figures()["of which allocated, MiB"] > 0
    held.clear()


def test_turns_go_on_where_they_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MANY", {"interpret": 60})
    whole = turns.small("interpret", 60)
    with whole.start(0, checkpoint=tmp_path / "turns-0" / "interpret", every=3, paused=True) as run:
        run.wait()
        run.step(31)
        run.wait()  # exiting stops the run, and a stopped run is saved
    progress = Progress(tmp_path, "turns", count=60)
    turns.run(progress)
    assert progress.figures["interpret, turns in one process"] == 29 and not progress.wrong
    have = whole.resume(tmp_path / "turns-0" / "interpret")
    assert not differs(given_by(whole.execute(seed=0)), given_by(have))


def test_batches_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MANY", 5)
    monkeypatch.setattr(batches, "WAYS", {"loop": batches.WAYS["loop"]})
    progress = Progress(tmp_path, "batches", count=5)
    batches.run(progress)
    assert progress.done == 5 and not progress.wrong and progress.kept == {"loop": 5}
    monkeypatch.setattr(batches, "arrays", lambda _: {"x": np.random.default_rng().normal(size=3)})
    assert batches.collected(progress, "loop", batches.WAYS["loop"]) == [
        "loop: the first batch has changed"
    ]


# --- the whole ------------------------------------------------------------------------------------


def test_a_part_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = Progress(tmp_path, "part", count=5)
    for k in range(3):
        first.add("calls")
        first.tried(*(["it broke"] if k == 1 else []))
    assert not Progress(tmp_path, "part", count=5, seconds=0.0).goes_on
    second = Progress(tmp_path, "part", count=5)
    assert (second.done, second.wrong, second.figures) == (3, ["it broke"], {"calls": 3})
    assert Progress(tmp_path, "part", seed=1, count=5).done == 0
    second.tried(tries=2)
    assert not second.goes_on
    (row,) = table([second.to_json()]).splitlines()[2:]
    assert row.startswith("| part | 5 | 5 | 1 |")


def test_parts_say_what_they_are() -> None:
    assert {kills, faults, writers, clock, cycles, toggles, turns} < set(PARTS.values())
    for part in PARTS.values():
        assert part.ABOUT and part.COUNT >= 0 and part.MINUTES > 0 and callable(part.run)
    text = (Path(__file__).parents[3] / "docs" / "explanation" / "reliability.md").read_text()
    assert all(f"`{name}`" in text for name in PARTS)
