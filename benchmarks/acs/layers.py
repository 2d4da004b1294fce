"""Generator of kernel graphs: a network as the kernels that a framework launches layer by layer, for one image.

Convolution, normalisation and activation are one kernel each, as in PyTorch without a compiler. A
block of threads computes 256 elements. No arithmetic is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timerl_nb.streams.kernel_declaration import THREADS, Kernel
from timerl_nb.streams.memory_segments import Segment


@dataclass(frozen=True)
class Feature:
    """Output of a layer: a float32 array of `channels` × `height` × `width`."""

    segment: Segment
    channels: int
    height: int
    width: int

    @property
    def elements(self) -> int:
        return self.channels * self.height * self.width


class Layers:
    """Builder that launches the kernels of layers."""

    def __init__(self) -> None:
        self._buffers = 0
        self.kernels: list[Kernel] = []

    def image(self, height: int, width: int) -> Feature:
        """Return an image of three channels."""
        return Feature(self._buffer(12 * height * width), 3, height, width)

    def conv(
        self,
        x: Feature,
        channels: int,
        size: int = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        activation: bool = True,
    ) -> Feature:
        """Launch a convolution and its normalisation."""
        taps = size * size * x.channels // groups
        y = self._layer("conv", [x], channels, stride, 2 * taps, constants=1)
        y = self._layer("batch_norm", [y], channels, 1, 4, constants=1)
        return self._in_place("relu", y) if activation else y

    def separable(self, x: Feature, channels: int, size: int, stride: int = 1) -> Feature:
        """Launch a depthwise convolution, then a pointwise one."""
        deep = self._layer("conv", [x], x.channels, stride, 2 * size * size, constants=1)
        return self.conv(deep, channels, activation=False)

    def pool(self, x: Feature, size: int = 3, stride: int = 1) -> Feature:
        return self._layer("pool", [x], x.channels, stride, size * size)

    def mean(self, x: Feature) -> Feature:
        """Launch the mean over the image."""
        return self._layer("mean", [x], x.channels, x.height, x.height * x.width)

    def linear(self, x: Feature, outputs: int) -> Feature:
        return self._layer("linear", [x], outputs, 1, 2 * x.channels, constants=1)

    def add(self, features: Sequence[Feature]) -> Feature:
        """Launch a chain of element-wise additions."""
        total = features[0]
        for one in features[1:]:
            total = self._layer("add", [total, one], total.channels, 1, 1)
        return total

    def concat(self, features: Sequence[Feature]) -> Feature:
        channels = sum(one.channels for one in features)
        return self._layer("concat", features, channels, 1, 1)

    def _layer(
        self,
        name: str,
        inputs: Sequence[Feature],
        channels: int,
        stride: int,
        operations: float,
        *,
        constants: int = 0,
    ) -> Feature:
        """Launch one kernel that reads `constants` values and makes an array; `operations` counts per element."""
        x = inputs[0]
        height, width = -(-x.height // stride), -(-x.width // stride)
        made = Feature(self._buffer(4 * channels * height * width), channels, height, width)
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
