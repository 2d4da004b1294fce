"""Transitions between libraries (RL-Scope, section 4.1)."""

from __future__ import annotations

import numpy as np

from timerl_nb.base.text_formatting import align_columns
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.scope.analysis.state_intervals import WORDS, pieces, without_gaps
from timerl_nb.scope.analysis.thread_timelines import Lanes, Readable, lanes_of
from timerl_nb.scope.storage.event_format import MISSED_OPERATION, Kind


@explain_call_errors
def transitions(recording: Lanes | Readable) -> dict[tuple[str, str, str], int]:
    """Count the calls from one library into another.

    They include the paper's transitions Python to backend, Python to simulation, and backend to
    API. Calls in disabled blocks count, too. Waits outside of wrapped calls do not count.

    Args:
        recording: a recording.

    Returns:
        Counts by (operation, calling library, called library), in descending order.

    Raises:
        CallError: `recording` is not a recording.

    Example:
        >>> with trl.scope.tap("zlib", "backend"), trl.scope.record() as recording:
        ...     import zlib
        ...     with trl.scope.operation("compression"):
        ...         data = zlib.compress(bytes(1000))
        >>> trl.scope.transitions(recording)["compression", "python", "backend"]
        1
    """
    recording = lanes_of(recording)
    found: dict[tuple[str, str, str], int] = {}
    for lane in recording.lanes:
        for (operation, left, to), count in lane.missed.items():
            if left != MISSED_OPERATION:
                key = recording.names[operation], WORDS[left], WORDS[to]
                found[key] = found.get(key, 0) + count
        for piece in pieces(lane):
            enters = piece.kind == Kind.CALL_ENTER
            if not enters.any():
                continue
            columns = piece.operation[enters], piece.came_from[enters], piece.on_call[enters]
            code, rows = without_gaps(*columns)
            for (operation, left, to), count in zip(rows, np.bincount(code).tolist(), strict=True):
                key = recording.names[operation], WORDS[left], WORDS[to]
                found[key] = found.get(key, 0) + count
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def transitions_text(recording: Lanes) -> str:
    """Return the transitions as a table."""
    rows = [("operation", "from", "to", "times")]
    for (operation, left, to), count in transitions(recording).items():
        rows.append((operation or "-", left, to, f"{count:,}"))
    return "\n".join(align_columns(rows, left=(0, 1, 2)))
