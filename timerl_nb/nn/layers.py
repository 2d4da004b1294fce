"""Linear layers, multi-layer perceptrons, embeddings, and initialisers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import parameter, random_normal
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.nn.module import Module, free_name

Init = Callable[[tuple[int, ...]], RecurrentTensor]
ScaledInit = Callable[[float], Init]  # from the gain


@explain_call_errors
def scaled_normal(gain: float = 1.0) -> Init:
    """Return an initialiser: normal values of standard deviation gain / sqrt(inputs).

    Args:
        gain: the scale.

    Returns:
        a function from a shape, the inputs first, to a random tensor.

    Example:
        >>> trl.parameter((4, 2), init=trl.nn.scaled_normal(0.1))
        f32[4,2] @ ()
    """
    scale = number("the gain", gain)

    def draw(shape: tuple[int, ...]) -> RecurrentTensor:
        if not shape or not shape[0]:
            raise ShapeError(
                f"scaled_normal divides by the number of inputs, the first size: {shape} has none.",
                hint="give a shape with a positive first size.",
            )
        return random_normal(shape, std=scale / sqrt(shape[0]))

    return draw


@explain_call_errors
def orthogonal(gain: float = 1.0) -> Init:
    """Return an initialiser: random matrices with orthonormal rows or columns, times `gain`.

    Source: Saxe et al. 2014.

    Args:
        gain: the scale.

    Returns:
        a function from the shape of a matrix to a random matrix.

    Example:
        >>> trl.parameter((4, 2), init=trl.nn.orthogonal(2**0.5))
        f32[4,2] @ ()
    """

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
    """Check the sizes of layers.

    Raises:
        ShapeError: a size is not a positive integer.
    """
    for size in sizes:
        integer("a layer's size", size, least=1)


def expect_last(x: Any, parameter: RecurrentTensor) -> RecurrentTensor:
    """Check and return a layer's input: its last axis has the size of the parameter's first.

    Raises:
        ShapeError: it is not a tensor, or its last axis has another size.
    """
    x, size = operand(parameter.ctx, x), parameter.shape[0]
    if not x.rank or x.shape[-1] != size:
        raise ShapeError(
            f"{parameter.name} takes a last axis of {size}, not {x.type}.",
            hint="make the layer's input size that of the tensor, or reshape the tensor.",
        )
    return x


class Linear(Module):
    """Linear layer: x @ weight + bias, on the last axis.

    Args:
        inputs, outputs: the sizes of the last axis of input and output.
        domain: the dimensions that the parameters vary over.
        gain: the scale of the initial weights.
        init: the initialiser of the weights: a function of the gain, such as `scaled_normal` or `orthogonal`.
        bias: whether to add a bias, initially 0.
        name: the prefix of the parameters' names; unique by default.

    Raises:
        ShapeError: a size is not a positive integer.

    Example:
        >>> layer = trl.nn.Linear(4, 2, domain=i)
        >>> layer(trl.zeros(4))
        f32[2] @ (i)
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
    """Multi-layer perceptron: linear layers with tanh between them.

    Args:
        sizes: the sizes of the last axis, from the input to the output.
        domain, gain, init, name: as for `Linear`, the same for all layers.

    Raises:
        ShapeError: there are fewer than two sizes, or one is not a positive integer.

    Example:
        >>> network = trl.nn.MLP((4, 64, 2), domain=i)
        >>> network(trl.zeros((16, 4)))
        f32[16,2] @ (i)
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
            raise ShapeError(
                f"an MLP needs a list of at least two sizes, not {sizes!r}.",
                hint="write trl.nn.MLP((4, 64, 2)).",
            )
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
    """Table of vectors, indexed by integers.

    Args:
        count, size: the number of rows, and their length.
        domain, gain, name: as for `Linear`.

    Raises:
        ShapeError: a size is not a positive integer.

    Example:
        >>> table = trl.nn.Embedding(10, 4)
        >>> table(trl.arange(3))
        f32[3,4] @ ()
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
        """Return the rows at integer positions, shape (*at.shape, size); zeros for positions beyond the last."""
        return self.weight.take(operand(self.weight.ctx, at))
