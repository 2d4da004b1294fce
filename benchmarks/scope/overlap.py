"""Cost of the overlap analysis of long recordings: CPU seconds, and peak memory of a process.

The track is synthetic: operations of four calls each, spaced like wrapped calls, and random
kernels. The peak memory includes the synthetic data.
"""

from __future__ import annotations

import json
import subprocess
import sys
from time import process_time
from typing import Final

import numpy as np

import timerl_nb as trl
from benchmarks.training.race import resident_bytes
from timerl_nb.base.text_formatting import format_bytes
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.device_activity.device_operations import Devices, TracedWindow
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind

EDGES: Final = (2_500_000, 5_000_000, 10_000_000)
KERNELS: Final = 5  # events of each track
_NAMES: Final = 100


def main() -> None:
    """Print a table with one process per length."""
    print(
        "| edges | kernels | overlap, s CPU | by launch | transitions, s CPU | memory |\n"
        "|--:|--:|--:|--:|--:|--:|"
    )
    for count in EDGES:
        command = [sys.executable, "-m", "benchmarks", "overlapping", str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        spent, moved, counted, held = json.loads(done.stdout.splitlines()[-1])
        kernels = f"{count // KERNELS:,}"
        times = " | ".join(f"{one:.2f}" for one in (spent, moved, counted))
        print(f"| {count:,} | {kernels} | {times} | {format_bytes(held)} |")


def measure(count: str) -> None:
    """Print the cost of a track with `edges` events."""
    recording = made(int(count))
    moments = [process_time()]
    for said in (
        lambda: trl.scope.overlap_of(recording),
        lambda: trl.scope.overlap_of(recording, by="launch"),
        lambda: trl.scope.transitions(recording),
    ):
        said()
        moments.append(process_time())
    print(json.dumps([*np.diff(moments).tolist(), resident_bytes()]))


def made(count: int) -> Recording:
    """Return a track, and kernels launched a microsecond before their start."""
    rng = np.random.default_rng(0)
    edges = np.zeros(count, EDGE)
    edges["ts"] = np.cumsum(rng.integers(50, 900, count))
    place, group = np.arange(count) % 10, np.arange(count) // 10
    is_call = (place > 0) & (place < 9) & (place % 2 == 1)
    kinds = [Kind.OPERATION_ENTER, *[Kind.CALL_ENTER, Kind.CALL_EXIT] * 4, Kind.OPERATION_EXIT]
    edges["kind"] = np.array(kinds)[place]
    called = (1 + place // 2 % 4 << NAME_BITS) | (50 + place)
    edges["top"] = np.where(is_call, called, np.where(place == 0, 1 + group % 40, 0))
    end = int(edges["ts"][-1])
    begin = np.sort(rng.integers(0, end, count // KERNELS))
    lane = Lane(1, 1, "", edges, end + 10)
    names = tuple(map(str, range(_NAMES)))
    same = np.zeros(len(begin), np.int64)
    columns = dict.fromkeys(("name", "device", "stream", "sort", "window", "lane"), same)
    columns |= {"process": same + 1, "correlation": np.arange(1, len(begin) + 1)}
    columns |= {"begin": begin, "end": begin + rng.integers(100, 2000, len(begin))}
    columns["launched"] = np.maximum(begin - 1_000, int(edges["ts"][0]))
    window = TracedWindow(1, "made up", 0, lane.end, ("gpu",), "", 0, 0)
    devices = Devices(**columns, windows=(window,))
    return Recording((lane,), names, devices=devices)
