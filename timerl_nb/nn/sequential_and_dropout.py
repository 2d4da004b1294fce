"""`Sequential`, a composition of layers, and `Dropout`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.inputs.tensor_sources import random_uniform, where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.nn.module import Module

Layer = Callable[[RecurrentTensor], RecurrentTensor]


class Sequential(Module):
    """Composition of layers and of functions such as `trl.RecurrentTensor.relu`.

    Args:
        layers: functions of one tensor, applied in this order.

    Raises:
        ShapeError: a layer is not callable.

    Example:
        >>> network = trl.nn.Sequential(trl.nn.Linear(4, 8), trl.relu, trl.nn.Linear(8, 2))
        >>> network(trl.zeros(4))
        f32[2] @ ()
    """

    def __init__(self, *layers: Layer) -> None:
        wrong = [layer for layer in layers if not callable(layer)]
        if wrong:
            raise ShapeError(
                f"{wrong[0]!r} cannot be called.", hint="give layers or functions of one tensor."
            )
        self.layers = list(layers)

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Dropout(Module):
    """Dropout: sets elements to 0 at random and scales the others so that the mean is unchanged.

    Args:
        rate: the probability of 0, at least 0 and below 1.

    Raises:
        ShapeError: the rate is outside this range.

    Example:
        >>> drop = trl.nn.Dropout(0.1)
        >>> drop(trl.ones(8), domain=t)
        f32[8] @ (t)
    """

    def __init__(self, rate: float = 0.5) -> None:
        self.rate = number("a rate of dropout", rate)
        if not 0 <= self.rate < 1:
            raise ShapeError(
                f"a rate of dropout must be at least 0 and below 1, not {rate!r}.",
                hint="write trl.nn.Dropout(0.1).",
            )

    def __call__(
        self, x: RecurrentTensor, *, domain: Any = None, stream: int | str | None = None
    ) -> RecurrentTensor:
        """Return x with elements dropped, drawn independently at every point of `domain`, by default that of x.

        A network that acts should be written without the dropout.
        """
        x = operand(None, x).floating()
        if not self.rate:
            return x
        over = x.domain if domain is None else domain
        kept = random_uniform(x.shape, domain=over, stream=stream) >= self.rate
        return where(kept, x * (1 / (1 - self.rate)), 0.0)
