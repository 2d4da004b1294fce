"""Randomly disabled blocks of a recording, under a test clock."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from tests.recorders import recorder_in as recorder_in
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.calibration import enabled_disabled_blocks as blocks
from timerl_nb.scope.recording.recorder import this_lane
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind

MS = 1_000_000


class Clock:
    """Time of both clocks of blocks."""

    def __init__(self) -> None:
        self.now = MS

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(blocks, "monotonic_ns", made)
    monkeypatch.setattr(blocks, "thread_time_ns", made)
    return made


@pytest.fixture(autouse=True)
def crc(recorder_in: str) -> Iterator[None]:
    with trl.scope.tap(zlib, "backend"):
        yield


def step(clock: Clock, ns: int = MS) -> None:
    with trl.scope.operation("step"):
        with trl.scope.operation("sum"):
            zlib.crc32(b"x")
        clock.now += ns


def parts(lane: Lane) -> list[tuple[bool, int, np.ndarray]]:
    """Return for each block: is it disabled, its CPU time, its events."""
    edges, found, silent, begun = lane.edges, [], False, -1
    for k, (_, top, kind, depth) in enumerate(edges.tolist()):
        silent = kind == Kind.OFF if kind in (Kind.OFF, Kind.ON) else silent
        if kind == Kind.BLOCK_ENTER:
            begun = k
        elif kind == Kind.BLOCK_EXIT and begun >= 0:
            cpu = top - int(edges["top"][begun]) + (depth - int(edges["depth"][begun]) << 32)
            found.append((silent, cpu, edges[begun + 1 : k]))
    return found


def kinds(edges: np.ndarray) -> dict[str, int]:
    found, counts = np.unique(edges["kind"], return_counts=True)
    return {Kind(kind).name: int(n) for kind, n in zip(found, counts, strict=True)}


def tallies(recording: Recording) -> list[tuple[str, int]]:
    (lane,) = recording.lanes
    rows = lane.edges[lane.edges["kind"] == Kind.TALLY].tolist()
    return [(recording.names[top & ((1 << NAME_BITS) - 1)], depth) for _, top, _, depth in rows]


def test_all_blocks_are_in_pairs_at_first_and_ever_fewer_later(
    clock: Clock, tmp_path: Path
) -> None:
    with (
        trl.scope.record(tmp_path / "r", taps=False, calibrated=True) as rec,
        trl.scope.phase("learn"),
    ):
        for _ in range(30_000):
            step(clock)
    recording = rec.read()
    (lane,) = recording.lanes
    found = parts(lane)
    silent = [one for one, _, _ in found]
    assert not any(silent[: blocks.WARM])
    pairs = np.array(silent[blocks.WARM : blocks.WARM + blocks.FEWEST]).reshape(-1, 2)
    assert (pairs.sum(1) == 1).all() and 0 < pairs[:, 0].sum() < len(pairs)
    later = np.array_split(silent[blocks.WARM + blocks.FEWEST :], 4)
    assert len(silent) > 5_500
    # 0.139 and 0.05 on average; blocks are drawn by thread number, and these are 4 deviations or
    # more
    assert 0.1 < np.mean(later[0]) < 0.18 and 0.025 < np.mean(later[-1]) < 0.075
    for is_silent, cpu, edges in found:
        n = cpu // MS
        both = {"OPERATION_ENTER": 2 * n, "OPERATION_EXIT": 2 * n, "CALL_ENTER": n, "CALL_EXIT": n}
        assert kinds(edges) == ({"PASSED": 2} if is_silent else both)
        passed = edges[edges["kind"] == Kind.PASSED]
        assert passed["top"].tolist() == ([n, 2 * n] if is_silent else [])
    assert tallies(recording) == [("step", cpu // MS) for _, cpu, _ in found]
    assert {cpu // MS for _, cpu, _ in found[3:]} == {5}  # some 5 ms


def test_what_was_open_in_silence_is_known_behind_it(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks.Blocks, "_draw_blocks", lambda self: [self._count % 2 == 1])
    with trl.scope.record(tmp_path / "r", taps=False, calibrated=True) as rec:
        step(clock, 9 * MS)
        for k in range(6):
            with trl.scope.phase(f"phase {k}"):
                step(clock, 9 * MS)
    (lane,) = rec.read().lanes
    assert [one for one, _, _ in parts(lane)] == [k % 2 == 1 for k in range(6)]
    found = rec.table().by("phase", "operation", "library")
    seen = {key[0] for key in found if key[1] == "step"}
    assert seen == {"", "phase 0", "phase 2", "phase 4"}
    assert ("", "", "unobserved") in found


def test_a_call_that_is_open_holds_a_block(clock: Clock, tmp_path: Path) -> None:
    """An operation that ends inside a call does not end a block."""
    import binascii

    class Odd:
        def __index__(self) -> int:
            step(clock, 9 * MS)
            return 0

    with (
        trl.scope.tap(binascii, "simulation"),
        trl.scope.record(tmp_path / "r", taps=False, calibrated=True) as rec,
    ):
        step(clock, 9 * MS)
        binascii.crc32(b"x", Odd())
        step(clock, 9 * MS)
    (lane,) = rec.read().lanes
    assert [cpu // MS for _, cpu, _ in parts(lane)] == [18]


def test_a_silent_operation_that_another_thread_leaves_is_no_longer_open(
    clock: Clock, tmp_path: Path
) -> None:
    with trl.scope.record(tmp_path / "r", taps=False, calibrated=True):
        step(clock)
        lane = this_lane()
        assert lane is not None
        for silent in (True, False):
            lane.silence(silent)
            open_one = trl.scope.operation("act").__enter__()
            assert [*lane.operations] == [open_one]
            thread = threading.Thread(target=open_one.__exit__)
            thread.start()
            thread.join()
            # recorded frames stay on their stack until another part of it ends
            assert open_one not in lane.operations
            assert [one.name for one in lane.operations] == ["act"] * (not silent)


def test_threads_have_blocks_of_their_own(clock: Clock, tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(4):
            step(clock, 9 * MS)

    with trl.scope.record(tmp_path / "r", taps=False, calibrated=True) as rec:
        for _ in range(2):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert [len(parts(lane)) for lane in rec.read().lanes if len(lane.edges) > 1] == [3, 3]


def test_nothing_is_silent_where_nothing_is_calibrated(clock: Clock, tmp_path: Path) -> None:
    with trl.scope.record(tmp_path / "r", taps=False) as rec:
        for _ in range(100):
            step(clock, 9 * MS)
    (lane,) = rec.read().lanes
    assert not {"OFF", "ON", "BLOCK_ENTER", "BLOCK_EXIT", "TALLY"} & set(kinds(lane.edges))
