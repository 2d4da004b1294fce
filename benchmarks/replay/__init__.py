"""Replay buffers, and training concurrent with acting:

`python -m benchmarks replay [buffers trees protocol moves learning actor-critics ray]`.
"""

from __future__ import annotations

from benchmarks.replay import actor_critics, buffers, learning, moves, protocol, ray_training, trees

PARTS = {
    "buffers": buffers.main,
    "trees": trees.main,
    "protocol": protocol.main,
    "moves": moves.main,
    "learning": learning.main,
    "actor-critics": actor_critics.main,
    "ray": ray_training.main,
}


def main(*names: str) -> None:
    for name in names or PARTS:
        print(f"## {name}\n")
        PARTS[name]()
        print()
