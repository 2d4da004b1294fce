"""Networks as the kernels that a framework launches layer by layer, for one image: the generator of all graphs here.

A convolution, its normalisation and its activation are a kernel each, as in PyTorch without a compiler; a block of
threads makes 256 elements. Weights are random. So that gates can ask for their input, features carry eight numbers, which every layer
mixes by its weights as it would mix channels that had been averaged over the image: that alone is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timerl_nb.streams.kernels import Kernel
from timerl_nb.streams.segments import Segment
from timerl_nb.streams.simulate.gpu import THREADS

_WIDTH = 8


@dataclass(frozen=True, eq=False)
class Feature:
    """What a layer makes: an array of `channels` × `height` × `width` float32, and what gates see of it."""

    segment: Segment
    channels: int
    height: int
    width: int
    seen: np.ndarray

    @property
    def elements(self) -> int:
        return self.channels * self.height * self.width


class Layers:
    """Launches layers; `seed` draws the weights and the image."""

    def __init__(self, seed: int) -> None:
        self._weights = np.random.default_rng(seed)
        self._buffers = 0
        self.kernels: list[Kernel] = []

    def image(self, height: int, width: int, seed: int) -> Feature:
        """A random one, of three channels."""
        seen = np.random.default_rng(seed).normal(size=_WIDTH)
        return self._made([], 3, height, width, seen)

    def conv(
        self,
        x: Feature,
        channels: int,
        size: int = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        activation: bool = True,
        weights: Sequence[Feature] = (),
    ) -> Feature:
        """A convolution, normalised; `weights` are made by others where they are no constants."""
        taps = size * size * x.channels // groups
        y = self._layer("conv", [x, *weights], channels, stride, 2 * taps, constants=1)
        y = self._layer("batch_norm", [y], channels, 1, 4, constants=1)
        return self._in_place("relu", y) if activation else y

    def separable(self, x: Feature, channels: int, size: int, stride: int = 1) -> Feature:
        """By depth, then by point."""
        deep = self._layer("conv", [x], x.channels, stride, 2 * size * size, constants=1)
        return self.conv(deep, channels, activation=False)

    def pool(self, x: Feature, size: int = 3, stride: int = 1) -> Feature:
        return self._layer("pool", [x], x.channels, stride, size * size)

    def upsample(self, x: Feature) -> Feature:
        return self._made([x], x.channels, 2 * x.height, 2 * x.width, x.seen, "upsample", 7)

    def mean(self, x: Feature) -> Feature:
        """Over the image."""
        return self._made([x], x.channels, 1, 1, x.seen, "mean", x.height * x.width)

    def linear(self, x: Feature, outputs: int) -> Feature:
        return self._layer("linear", [x], outputs, 1, 2 * x.channels, constants=1)

    def add(self, features: Sequence[Feature]) -> Feature:
        """One after the other."""
        total = features[0]
        for one in features[1:]:
            total = self._layer("add", [total, one], total.channels, 1, 1, mixes=False)
        return total

    def concat(self, features: Sequence[Feature]) -> Feature:
        channels = sum(one.channels for one in features)
        return self._layer("concat", features, channels, 1, 1, mixes=False)

    def mixture(self, gate: Feature, experts: int, elements: int) -> Feature:
        """Weights of a convolution as a mixture of several, for this image."""
        return self._made([gate], elements, 1, 1, gate.seen, "mixture", 2 * experts, constants=1)

    def gate(self, x: Feature, gates: int) -> np.ndarray:
        """Which of so many gates an input opens: a small network of its own, whose sign decides."""
        opened = self.linear(self.mean(x), gates)
        self._in_place("sigmoid", opened)
        weights = self._weights.normal(size=(gates, _WIDTH))
        return weights @ x.seen > 0

    def _layer(
        self,
        name: str,
        inputs: Sequence[Feature],
        channels: int,
        stride: int,
        operations: float,
        *,
        constants: int = 0,
        mixes: bool = True,
    ) -> Feature:
        x = inputs[0]
        seen = sum((one.seen for one in inputs[1:]), x.seen) / len(inputs) ** 0.5
        if mixes:
            seen = np.tanh(self._weights.normal(size=(_WIDTH, _WIDTH)) @ seen / 2)
        height, width = -(-x.height // stride), -(-x.width // stride)
        return self._made(inputs, channels, height, width, seen, name, operations, constants)

    def _made(
        self,
        inputs: Sequence[Feature],
        channels: int,
        height: int,
        width: int,
        seen: np.ndarray,
        name: str = "",
        operations: float = 0.0,
        constants: int = 0,
    ) -> Feature:
        """An array, by a kernel where that has a name; `operations` are of each element."""
        segment = self._buffer(4 * channels * height * width)
        made = Feature(segment, channels, height, width, seen)
        if name:
            read = [one.segment for one in inputs] + [self._buffer(1024) for _ in range(constants)]
            self._launch(name, read, made, operations)
        return made

    def _in_place(self, name: str, x: Feature) -> Feature:
        self._launch(name, [x.segment], x, 1)
        return x

    def _launch(self, name: str, read: Sequence[Segment], made: Feature, operations: float) -> None:
        self.kernels.append(
            Kernel(
                name,
                tuple(dict.fromkeys(read)),
                (made.segment,),
                blocks=max(1, -(-made.elements // THREADS)),
                operations=float(operations * made.elements),
                nbytes=float(sum(s.stop for s in read) + made.segment.stop),
            )
        )

    def _buffer(self, nbytes: int) -> Segment:
        self._buffers += 1
        return Segment(self._buffers, 0, nbytes)
