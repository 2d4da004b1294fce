"""Layers: each a few equations over parameters that vary over a given domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

from timerl_nb.errors import ShapeError
from timerl_nb.frontend.sources import parameter, random_normal
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.nn.module import Module

Init = Callable[[tuple[int, ...]], RecurrentTensor]


def scaled_normal(gain: float = 1.0) -> Init:
    """Normal values of standard deviation gain / sqrt(inputs), drawn from the run's seed."""
    return lambda shape: random_normal(shape, std=gain / sqrt(shape[0]))


class Linear(Module):
    """x @ weight + bias, on the last axis.

    Args:
        inputs, outputs: sizes of the last axis before and after.
        domain: the dimensions that the parameters vary over.
        gain: the scale of the first weights, see `scaled_normal`.
        name: the prefix of the parameters' names.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        domain: Any = (),
        gain: float = 1.0,
        bias: bool = True,
        name: str = "linear",
    ) -> None:
        for size in (inputs, outputs):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ShapeError(f"a layer's sizes are positive integers, not {size!r}.")
        init = scaled_normal(gain)
        self.weight = parameter((inputs, outputs), domain=domain, init=init, name=f"{name}.weight")
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
    """

    def __init__(self, sizes: Sequence[int], *, domain: Any = (), name: str = "mlp") -> None:
        if not isinstance(sizes, Sequence) or len(sizes) < 2:
            raise ShapeError(f"an MLP needs a list of at least two sizes, not {sizes!r}.")
        self.layers = [
            Linear(a, b, domain=domain, name=f"{name}.{k}")
            for k, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False))
        ]

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        for k, layer in enumerate(self.layers[:-1]):
            x = layer(x).tanh().named(f"h{k}")
        return self.layers[-1](x)
