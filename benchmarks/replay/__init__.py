"""Replay buffers, and training concurrent with acting:

`python -m benchmarks replay [buffers trees protocol moves learning actor-critics]`.
"""

from __future__ import annotations

from benchmarks.replay import actor_critics, buffers, learning, moves, protocol, trees

PARTS = {
    "buffers": buffers.main,
    "trees": trees.main,
    "protocol": protocol.main,
    "moves": moves.main,
    "learning": learning.main,
    "actor-critics": actor_critics.main,
}


def main(*names: str) -> None:
    for name in names or PARTS:
        print(f"## {name}\n")
        PARTS[name]()
        print()
