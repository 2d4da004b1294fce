"""The networks of paper 004, section V, by name: dynamic ones, whose kernels depend on the image, and static ones.

None has trained weights, which only decide what is computed and, in dynamic ones, how often each gate is open: here half of them are.
Structures are taken from the papers that they are of; where those leave something open,
`timerl_nb.streams.workloads.LACKS` says what was put in its place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchmarks.acs.layers import Feature, Layers
from timerl_nb.streams.stream import Stream

# Rows of a cell: an operation and which state it is of: 0 and 1 are the cells before, 2 and on the sums of two rows.
_NASNET = (
    "s5 1 s3 0 s5 0 s3 0 a3 1 id 0 a3 0 a3 0 s3 1 id 1 : 2 3 4 5 6",
    "s5 1 s7 0 m3 1 s7 0 a3 1 s5 0 id 3 a3 2 s3 2 m3 1 : 4 5 6",
)
_AMOEBANET = (
    "a3 0 m3 1 s3 0 s5 2 s3 0 a3 3 s3 1 id 1 id 0 a3 1 : 4 5 6",
    "a3 0 s3 1 m3 0 s7 2 s7 0 a3 1 m3 0 m3 1 c7 0 s3 5 : 3 4 6",
)


def network(name: str, image: int = 0, weights: int = 0) -> Stream:
    """What a network launches for an image; both are drawn by their seeds."""
    layers = Layers(weights)
    NETWORKS[name](layers, image)
    return Stream(name, tuple(layers.kernels))


def _instanas(n: Layers, image: int) -> None:
    """17 cells of five candidates; a policy network that has seen the image says which of them run."""
    x = n.image(32, 32, image)
    seen = n.conv(n.conv(x, 16, 3, 2), 32, 3, 2)
    x = n.conv(x, 32, 3)
    for expansion_free, count, stride in _MOBILE:
        for k in range(count):
            chosen = n.gate(seen, 5)
            if not chosen.any():
                chosen[0] = True
            candidates = ((3, 3), (3, 5), (6, 3), (6, 5), (1, 3))
            step = stride if k == 0 else 1
            x = n.add(
                [
                    _inverted(n, x, expansion_free, expansion, size, step)
                    for (expansion, size), open in zip(candidates, chosen, strict=True)
                    if open
                ]
                + ([x] if step == 1 and x.channels == expansion_free else [])
            )
    n.linear(n.mean(x), 10)


_MOBILE = ((16, 1, 1), (24, 2, 1), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1))


def _inverted(
    n: Layers, x: Feature, channels: int, expansion: int, size: int, stride: int
) -> Feature:
    wide = n.conv(x, x.channels * expansion) if expansion > 1 else x
    deep = n.conv(wide, wide.channels, size, stride, groups=wide.channels)
    return n.conv(deep, channels, activation=False)


def _routing(n: Layers, image: int) -> None:
    """A grid of 16 layers and 4 scales; at each node gates open the ways up, on and down."""
    x = n.conv(n.conv(n.image(256, 512, image), 64, 3, 2), 64, 3, 2)
    at: list[list[Feature]] = [[x], [], [], []]
    for _ in range(16):
        after: list[list[Feature]] = [[], [], [], []]
        for scale, inputs in enumerate(at):
            if not inputs:
                continue
            x = n.add(inputs)
            ways = n.gate(x, 3)
            if not ways.any():
                after[scale].append(x)  # as it is
                continue
            y = n.add([n.separable(n.separable(x, 64, 3), 64, 3), x])
            for way, open in zip((-1, 0, 1), ways, strict=True):
                to = scale + way
                if open and 0 <= to < 4:
                    after[to].append(
                        y
                        if way == 0
                        else n.conv(y, 64, 1, 2)
                        if way == 1
                        else n.upsample(n.conv(y, 64))
                    )
        at = after if any(after) else at
    outputs = [n.add(inputs) for inputs in at if inputs]
    n.conv(outputs[0], 19)


def _condconv(n: Layers, image: int) -> None:
    """EfficientNet-B4's blocks; in the last ones weights are mixtures of four experts, made for each image."""
    table = ((1, 24, 2, 1, 3), (6, 32, 4, 2, 3), (6, 56, 4, 2, 5), (6, 112, 6, 2, 3))
    last = ((6, 160, 6, 1, 5), (6, 272, 8, 2, 5), (6, 448, 2, 1, 3))
    x = n.conv(n.image(96, 96, image), 48, 3, 2)
    for number, (expansion, channels, count, stride, size) in enumerate(table + last):
        for k in range(count):
            step, wide = stride if k == 0 else 1, x.channels * expansion
            shapes = (x.channels * wide, wide * size * size, wide * channels)
            made: list[list[Feature]] = [[], [], []]
            if number >= len(table):
                gate = n.linear(n.mean(x), 4)
                made = [[n.mixture(gate, 4, elements)] for elements in shapes]
            y = n.conv(x, wide, weights=made[0]) if expansion > 1 else x
            y = n.conv(y, wide, size, step, groups=wide, weights=made[1])
            squeezed = n.linear(n.linear(n.mean(y), max(1, x.channels // 4)), wide)
            y = n.conv(n.add([y, squeezed]), channels, activation=False, weights=made[2])
            x = n.add([y, x]) if step == 1 and x.channels == channels else y
    n.linear(n.mean(n.conv(x, 1792)), 1000)


def _cells(cells: Sequence[str]) -> Callable[[Layers, int], None]:
    def build(n: Layers, image: int) -> None:
        before = previous = n.conv(n.image(32, 32, image), 96, 3)
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


def _squeezenet(n: Layers, image: int) -> None:
    x = n.conv(n.image(32, 32, image), 96, 3)
    for k, squeezed in enumerate((16, 16, 32, 32, 48, 48, 64, 64)):
        narrow = n.conv(x, squeezed)
        x = n.concat([n.conv(narrow, 4 * squeezed), n.conv(narrow, 4 * squeezed, 3)])
        if k in (2, 6):
            x = n.pool(x, 3, 2)
    n.mean(n.conv(x, 10))


def _randomwire(n: Layers, image: int) -> None:
    """Three stages of WS(32, 4, 0.75), each node a separable convolution of the sum of what it gets."""
    r = random.Random(0)
    x = n.conv(n.image(32, 32, image), 39, 3)
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
    """Of Watts and Strogatz; edges lead from the lower to the higher number."""
    edges = {(k, (k + d) % nodes) for d in range(1, degree // 2 + 1) for k in range(nodes)}
    for edge in sorted(edges):
        others = [k for k in range(nodes) if k != edge[0]]
        if r.random() < rewired:
            to = r.choice([k for k in others if {(edge[0], k), (k, edge[0])}.isdisjoint(edges)])
            edges = edges - {edge} | {(edge[0], to)}
    return [sorted(min(e) for e in edges if max(e) == node) for node in range(nodes)]


NETWORKS: Final[Mapping[str, Callable[[Layers, int], None]]] = {
    "instanas": _instanas,
    "routing": _routing,
    "condconv": _condconv,
    "nasnet": _cells(_NASNET),
    "amoebanet": _cells(_AMOEBANET),
    "squeezenet": _squeezenet,
    "randomwire": _randomwire,
}
