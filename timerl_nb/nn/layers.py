"""Layers: each a few equations over parameters that vary over a given domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

from timerl_nb.errors import ShapeError
from timerl_nb.frontend.sources import parameter, random_normal
from timerl_nb.frontend.tensor import RecurrentTensor, operand
from timerl_nb.frontend.windows import conv
from timerl_nb.nn.module import Module

Init = Callable[[tuple[int, ...]], RecurrentTensor]
ScaledInit = Callable[[float], Init]  # given the gain


def scaled_normal(gain: float = 1.0) -> Init:
    """Normal values of standard deviation gain / sqrt(inputs), drawn from the run's seed."""
    return lambda shape: random_normal(shape, std=gain / sqrt(shape[0]))


def orthogonal(gain: float = 1.0) -> Init:
    """A random matrix with orthonormal rows or columns (the fewer), times `gain` (Saxe 2014)."""

    def drawn(shape: tuple[int, ...]) -> RecurrentTensor:
        if len(shape) != 2:
            raise ShapeError(
                f"only matrices are orthogonal, not {list(shape)}.",
                hint="reshape a matrix: trl.parameter(orthogonal(gain)((rows, columns)).reshape(…)).",
            )
        rows, columns = max(shape), min(shape)
        tall = random_normal((rows, columns)).orthonormal()
        return (tall if shape == (rows, columns) else tall.transpose()) * gain

    return drawn


def checked_sizes(*sizes: Any) -> None:
    """Sizes of layers.

    Raises:
        ShapeError: one is no positive integer.
    """
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ShapeError(f"a layer's sizes are positive integers, not {size!r}.")


class Linear(Module):
    """x @ weight + bias, on the last axis.

    Args:
        inputs, outputs: sizes of the last axis before and after.
        domain: the dimensions that the parameters vary over.
        gain: the scale of the first weights.
        init: what draws them, given the gain: `scaled_normal` or `orthogonal`.
        name: the prefix of the parameters' names.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        domain: Any = (),
        gain: float = 1.0,
        init: ScaledInit = scaled_normal,
        bias: bool = True,
        name: str = "linear",
    ) -> None:
        checked_sizes(inputs, outputs)
        self.weight = parameter(
            (inputs, outputs), domain=domain, init=init(gain), name=f"{name}.weight"
        )
        self.bias = parameter((outputs,), domain=domain, name=f"{name}.bias") if bias else None

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        if not x.rank or x.shape[-1] != self.weight.shape[0]:
            raise ShapeError(
                f"{self.weight.name} takes a last axis of {self.weight.shape[0]}, not {x.type}."
            )
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class MLP(Module):
    """Linear layers with tanh between them.

    Args:
        sizes: the sizes of the last axis, from the input to the output.
        domain, gain, init, name: as for `Linear`, the same for all layers.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        domain: Any = (),
        gain: float = 1.0,
        init: ScaledInit = scaled_normal,
        name: str = "mlp",
    ) -> None:
        if not isinstance(sizes, Sequence) or len(sizes) < 2:
            raise ShapeError(f"an MLP needs a list of at least two sizes, not {sizes!r}.")
        self.layers = [
            Linear(a, b, domain=domain, gain=gain, init=init, name=f"{name}.{k}")
            for k, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False))
        ]

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        for k, layer in enumerate(self.layers[:-1]):
            x = layer(x).tanh().named(f"h{k}")
        return self.layers[-1](x)


class Conv2d(Module):
    """The convolution of images with a kernel, plus a bias per output channel.

    Args:
        inputs, outputs: numbers of channels before and after.
        window: the kernel's height and width, or one number for both.
        stride, padding, dilation, groups: as for `trl.conv`.
        domain, gain, bias, name: as for `Linear`.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        window: Any,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        domain: Any = (),
        gain: float = 1.0,
        bias: bool = True,
        name: str = "conv",
    ) -> None:
        given = tuple(window) if isinstance(window, Sequence) else (window, window)
        checked_sizes(inputs, outputs, groups, *given)
        if len(given) != 2 or inputs % groups or outputs % groups:
            raise ShapeError(
                f"no convolution from {inputs} to {outputs} channels in {groups} group(s) with a "
                f"window of {window!r}.",
                hint="give a height and a width; groups divide both numbers of channels.",
            )
        shape = (outputs, inputs // groups, *given)
        std = gain / sqrt(prod(shape[1:]))
        self._how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        self.weight = parameter(
            shape, domain=domain, init=lambda s: random_normal(s, std=std), name=f"{name}.weight"
        )
        self.bias = parameter((outputs,), domain=domain, name=f"{name}.bias") if bias else None

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        """x of shape (…, inputs, height, width) to (…, outputs, height', width')."""
        y = conv(x, self.weight, **self._how)
        return y if self.bias is None else y + self.bias.reshape((self.bias.shape[0], 1, 1))


class Embedding(Module):
    """A row of numbers for each of `count` things.

    Args:
        count, size: how many rows, and their length.
        domain, name: as for `Linear`.
    """

    def __init__(
        self, count: int, size: int, *, domain: Any = (), gain: float = 1.0, name: str = "embedding"
    ) -> None:
        checked_sizes(count, size)
        self.weight = parameter(
            (count, size),
            domain=domain,
            init=lambda s: random_normal(s, std=gain),
            name=f"{name}.weight",
        )

    def __call__(self, at: RecurrentTensor) -> RecurrentTensor:
        """The rows at positions `at` (integers), shape (*at.shape, size); zeros beyond the last."""
        return self.weight.take(operand(self.weight.ctx, at))
