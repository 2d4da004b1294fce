"""Static networks of the ACS paper (§V) by name.

Structures follow the networks' own papers. `kinds.LACKS` lists the substitutes for unspecified
details.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchmarks.acs.layers import Feature, Layers
from timerl_nb.streams.kernel_stream import Stream

# Each row of a cell: an operation and its input. Inputs 0 and 1 are the previous cells; from 2 on,
# sums of two rows.
_NASNET = (
    "s5 1 s3 0 s5 0 s3 0 a3 1 id 0 a3 0 a3 0 s3 1 id 1 : 2 3 4 5 6",
    "s5 1 s7 0 m3 1 s7 0 a3 1 s5 0 id 3 a3 2 s3 2 m3 1 : 4 5 6",
)
_AMOEBANET = (
    "a3 0 m3 1 s3 0 s5 2 s3 0 a3 3 s3 1 id 1 id 0 a3 1 : 4 5 6",
    "a3 0 s3 1 m3 0 s7 2 s7 0 a3 1 m3 0 m3 1 c7 0 s3 5 : 3 4 6",
)


def network(name: str) -> Stream:
    """Return the kernel stream of a network for one image."""
    layers = Layers()
    NETWORKS[name](layers)
    return Stream(name, tuple(layers.kernels))


def _cells(cells: Sequence[str]) -> Callable[[Layers], None]:
    def build(n: Layers) -> None:
        before = previous = n.conv(n.image(32, 32), 96, 3)
        channels = 32
        for stage in range(3):
            for _ in range(2):
                before, previous = previous, _cell(n, cells[0], before, previous, channels, 1)
            if stage < 2:
                channels *= 2
                before, previous = previous, _cell(n, cells[1], before, previous, channels, 2)
        n.linear(n.mean(previous), 10)

    return build


def _cell(
    n: Layers, text: str, before: Feature, previous: Feature, channels: int, stride: int
) -> Feature:
    rows, joined = text.split(" : ")
    words = rows.split()
    shrink = 2 if before.height > previous.height else 1  # after a reduction
    states = [n.conv(before, channels, 1, shrink), n.conv(previous, channels)]
    for k in range(0, len(words), 4):
        ends = [
            _operation(n, words[k + j], states, int(words[k + j + 1]), channels, stride)
            for j in (0, 2)
        ]
        states.append(n.add(ends))
    return n.concat([states[int(k)] for k in joined.split()])


def _operation(
    n: Layers, kind: str, states: Sequence[Feature], of: int, channels: int, stride: int
) -> Feature:
    x, step = states[of], stride if of < 2 else 1
    size = int(kind[1]) if kind[1].isdigit() else 1
    if kind[0] == "s":  # twice
        return n.separable(n.separable(x, channels, size, step), channels, size)
    if kind[0] == "c":
        return n.conv(x, channels, size, step)
    if kind[0] in "am":
        return n.pool(x, size, step)
    return x if step == 1 else n.conv(x, channels, 1, step)


def _squeezenet(n: Layers) -> None:
    x = n.conv(n.image(32, 32), 96, 3)
    for k, squeezed in enumerate((16, 16, 32, 32, 48, 48, 64, 64)):
        narrow = n.conv(x, squeezed)
        x = n.concat([n.conv(narrow, 4 * squeezed), n.conv(narrow, 4 * squeezed, 3)])
        if k in (2, 6):
            x = n.pool(x, 3, 2)
    n.mean(n.conv(x, 10))


def _randomwire(n: Layers) -> None:
    """Launch three stages of WS(32, 4, 0.75); each node is a separable convolution of the sum of its inputs."""
    r = random.Random(0)
    x = n.conv(n.image(32, 32), 39, 3)
    for channels in (78, 156, 312):
        inputs = _small_world(r, 32, 4, 0.75)
        made: list[Feature] = []
        for sources in inputs:
            gathered = n.add([made[s] for s in sources]) if sources else x
            made.append(n.separable(gathered, channels, 3, 1 if sources else 2))
        ends = set(range(32)) - {s for sources in inputs for s in sources}
        x = n.add([made[k] for k in sorted(ends)])
    n.linear(n.mean(n.conv(x, 1280)), 10)


def _small_world(r: random.Random, nodes: int, degree: int, rewired: float) -> list[list[int]]:
    """Return a Watts-Strogatz graph; edges lead from the lower to the higher number."""
    edges = {(k, (k + d) % nodes) for d in range(1, degree // 2 + 1) for k in range(nodes)}
    for edge in sorted(edges):
        others = [k for k in range(nodes) if k != edge[0]]
        if r.random() < rewired:
            to = r.choice([k for k in others if {(edge[0], k), (k, edge[0])}.isdisjoint(edges)])
            edges = edges - {edge} | {(edge[0], to)}
    return [sorted(min(e) for e in edges if max(e) == node) for node in range(nodes)]


NETWORKS: Final[Mapping[str, Callable[[Layers], None]]] = {
    "nasnet": _cells(_NASNET),
    "amoebanet": _cells(_AMOEBANET),
    "squeezenet": _squeezenet,
    "randomwire": _randomwire,
}
