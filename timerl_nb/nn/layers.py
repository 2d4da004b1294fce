"""Layers: each a few equations over parameters that vary over a given domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.inputs.tensor_sources import parameter, random_normal
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.nn.module import Module, free_name

Init = Callable[[tuple[int, ...]], RecurrentTensor]
ScaledInit = Callable[[float], Init]  # given the gain


def scaled_normal(gain: float = 1.0) -> Init:
    """Normal values of standard deviation gain / sqrt(inputs), drawn from the run's seed."""
    scale = number("the gain", gain)

    def draw(shape: tuple[int, ...]) -> RecurrentTensor:
        if not shape or not shape[0]:
            raise ShapeError(
                f"scaled_normal divides by the inputs, the first size: {shape} has none."
            )
        return random_normal(shape, std=scale / sqrt(shape[0]))

    return draw


def orthogonal(gain: float = 1.0) -> Init:
    """A random matrix with orthonormal rows or columns (the fewer), times `gain` (Saxe 2014)."""

    scale = number("the gain", gain)

    def draw(shape: tuple[int, ...]) -> RecurrentTensor:
        if len(shape) != 2:
            raise ShapeError(
                f"only matrices are orthogonal, not {list(shape)}.",
                hint="reshape a matrix: trl.parameter(orthogonal(gain)((rows, columns)).reshape(…)).",
            )
        rows, columns = max(shape), min(shape)
        tall = random_normal((rows, columns)).orthonormal()
        return (tall if shape == (rows, columns) else tall.transpose()) * scale

    return draw


def checked_sizes(*sizes: Any) -> None:
    """Sizes of layers.

    Raises:
        ShapeError: one is no positive integer.
    """
    for size in sizes:
        integer("a layer's size", size, least=1)


def expect_last(x: Any, parameter: RecurrentTensor) -> RecurrentTensor:
    """What a layer is given as a tensor, whose last axis is as long as the parameter's first.

    Raises:
        ShapeError: it is no tensor, or its last axis is of another length.
    """
    x, size = operand(parameter.ctx, x), parameter.shape[0]
    if not x.rank or x.shape[-1] != size:
        raise ShapeError(f"{parameter.name} takes a last axis of {size}, not {x.type}.")
    return x


class Linear(Module):
    """x @ weight + bias, on the last axis.

    Args:
        inputs, outputs: sizes of the last axis before and after.
        domain: the dimensions that the parameters vary over.
        gain: the scale of the first weights.
        init: what draws them, given the gain: `scaled_normal` or `orthogonal`.
        name: the prefix of the parameters' names; by default it tells layers apart.
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
        name: str = "",
    ) -> None:
        checked_sizes(inputs, outputs)
        name = name or free_name("linear")
        self.weight = parameter(
            (inputs, outputs), domain=domain, init=init(gain), name=f"{name}.weight"
        )
        self.bias = parameter((outputs,), domain=domain, name=f"{name}.bias") if bias else None

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        y = expect_last(x, self.weight) @ self.weight
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
        name: str = "",
    ) -> None:
        if not isinstance(sizes, Sequence) or len(sizes) < 2:
            raise ShapeError(f"an MLP needs a list of at least two sizes, not {sizes!r}.")
        name = name or free_name("mlp")
        self.layers = [
            Linear(a, b, domain=domain, gain=gain, init=init, name=f"{name}.{k}")
            for k, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False))
        ]

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        for k, layer in enumerate(self.layers[:-1]):
            x = layer(x).tanh().named(f"h{k}")
        return self.layers[-1](x)


class Embedding(Module):
    """A row of numbers for each of `count` things.

    Args:
        count, size: how many rows, and their length.
        domain, name: as for `Linear`.
    """

    def __init__(
        self, count: int, size: int, *, domain: Any = (), gain: float = 1.0, name: str = ""
    ) -> None:
        checked_sizes(count, size)
        name = name or free_name("embedding")
        self.weight = parameter(
            (count, size),
            domain=domain,
            init=lambda s: random_normal(s, std=gain),
            name=f"{name}.weight",
        )

    def __call__(self, at: RecurrentTensor) -> RecurrentTensor:
        """The rows at positions `at` (integers), shape (*at.shape, size); zeros beyond the last."""
        return self.weight.take(operand(self.weight.ctx, at))
