"""Replay buffers, and training concurrent with acting:

`python -m benchmarks replay [buffers trees protocol moves learning]`.
"""

from __future__ import annotations

from benchmarks.replay import buffers, learning, moves, protocol, trees

PARTS = {
    "buffers": buffers.main,
    "trees": trees.main,
    "protocol": protocol.main,
    "moves": moves.main,
    "learning": learning.main,
}


def main(*names: str) -> None:
    for name in names or PARTS:
        print(f"## {name}\n")
        PARTS[name]()
        print()
