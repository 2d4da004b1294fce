"""Hand-made recording of a process with known clocks, to merge traces into; traces as text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from timerl_nb.scope.device_activity.device_operations import Sort
from timerl_nb.scope.device_activity.trace_data import Trace
from timerl_nb.scope.recording.recording_session import record
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind, Library
from timerl_nb.scope.storage.recording_writer import SEGMENT

PROCESS, THREAD = 4200, 4242
MONOTONIC, WALL = 10_000_000_000, 1_700_000_000_000_000_000  # the same moment
NAMES = ("", "train", "torch.linear", "torch.cuda.synchronize")
ROWS: Sequence[tuple[int, int, int, int]] = (  # in microseconds
    (0, 0, Kind.MARK, 0),
    (100, 1, Kind.OPERATION_ENTER, 1),
    (110, Library.BACKEND << NAME_BITS | 2, Kind.CALL_ENTER, 1),
    (150, 0, Kind.CALL_EXIT, 0),
    (160, Library.WAITING << NAME_BITS | 3, Kind.CALL_ENTER, 1),
    (300, 0, Kind.CALL_EXIT, 0),
    (310, 0, Kind.OPERATION_EXIT, 0),
)
END = 400


def recorded(folder: Path, drift: int = 0, end: bool = True) -> Path:
    """Return the recording; its wall clock gains `nanoseconds` until the end."""
    folder.mkdir()
    edges = np.array([(MONOTONIC + 1000 * ts, *rest) for ts, *rest in ROWS], EDGE)
    (folder / f"{PROCESS}-{THREAD}-0.edges").write_bytes(edges.tobytes().ljust(SEGMENT, b"\0"))
    lines = [json.dumps({"name": name}) for name in NAMES[1:]]
    (folder / f"{PROCESS}.names").write_text("\n".join([*lines, ""]))
    with record(folder / "as it is written", taps=False):
        pass
    (manifest,) = (folder / "as it is written").glob("*.json")
    ended = {"monotonic": MONOTONIC + 1000 * END, "wall": WALL + 1000 * END + drift, "cpu": 0}
    about = json.loads(manifest.read_bytes()) | {
        "process": PROCESS,
        "command": ["train.py"],
        "begin": {"monotonic": MONOTONIC, "wall": WALL, "cpu": 0},
        "end": ended if end else None,
        "alive": [THREAD],
    }
    shutil.rmtree(manifest.parent)
    (folder / f"{PROCESS}.json").write_text(json.dumps(about))
    return folder


def described(trace: Trace) -> str:
    """Describe the contents of a trace, with times since its window began."""
    window = trace.window
    lines = [
        f"{window.tracer}, process {window.process}, {window.end - window.begin:,} ns",
        f"devices: {', '.join(window.devices) or f'none ({window.absent})'}",
    ]
    for row in trace.ran:
        times = f"{int(row['begin']) - window.begin:,} to {int(row['end']) - window.begin:,}"
        where = f"device {row['device']} stream {row['stream']}"
        what = Sort(row["sort"]).name.lower(), trace.names[row["name"]]
        lines.append(f"ran {times}: {' '.join(what)}, {where}, correlation {row['correlation']}")
    for row in trace.called:
        times = f"{int(row['begin']) - window.begin:,} to {int(row['end']) - window.begin:,}"
        where = f"thread {row['thread']}, correlation {row['correlation']}"
        lines.append(f"called {times}: {trace.names[row['name']]}, {where}")
    for name, (thread, begin, end) in sorted(trace.marks.items()):
        lines.append(
            f"mark {begin - window.begin:,} to {end - window.begin:,}: {name!r}, thread {thread}"
        )
    return "\n".join(lines)
