"""Convolution layers: `Conv1d` for sequences, `Conv2d` for images."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any, ClassVar

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.inputs.tensor_sources import parameter, random_normal
from timerl_nb.compiler.language.operations.convolution_and_pooling import conv
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.nn.layers import checked_sizes
from timerl_nb.nn.module import Module, free_name


class _Convolution(Module):
    """Convolution over the last axes, plus a bias per output channel."""

    _axes: ClassVar[tuple[str, ...]]

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
        name: str = "",
    ) -> None:
        rank = len(self._axes)
        given = tuple(window) if isinstance(window, Sequence) else (window,) * rank
        checked_sizes(inputs, outputs, groups, *given)
        if len(given) != rank or inputs % groups or outputs % groups:
            raise ShapeError(
                f"no convolution from {inputs} to {outputs} channels in {groups} group(s) with a "
                f"window of {window!r}.",
                hint=f"give a {' and a '.join(self._axes)}; groups must divide both numbers of channels.",
            )
        shape = (outputs, inputs // groups, *given)
        std = number("the gain", gain) / sqrt(prod(shape[1:]))
        name = name or free_name("conv")
        self._how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        self.weight = parameter(
            shape, domain=domain, init=lambda s: random_normal(s, std=std), name=f"{name}.weight"
        )
        self.bias = parameter((outputs,), domain=domain, name=f"{name}.bias") if bias else None

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        """Map x of shape (…, inputs, *space) to shape (…, outputs, *space')."""
        y = conv(x, self.weight, **self._how)
        if self.bias is None:
            return y
        return y + self.bias.reshape((self.bias.shape[0], *(1 for _ in self._axes)))


class Conv1d(_Convolution):
    """Convolution of sequences of shape (…, inputs, length), plus a bias.

    Args:
        inputs, outputs: the numbers of channels.
        window: the kernel's length.
        stride, padding, dilation, groups: as for `trl.conv`.
        domain, gain, bias, name: as for `Linear`.

    Raises:
        ShapeError: the groups do not divide the channels, or the window has another rank.

    Example:
        >>> trl.nn.Conv1d(4, 16, 3, padding="same")(trl.zeros((4, 100)))
        f32[16,100] @ ()
    """

    _axes = ("length",)


class Conv2d(_Convolution):
    """Convolution of images of shape (…, inputs, height, width), plus a bias.

    Args:
        inputs, outputs: the numbers of channels.
        window: the kernel's height and width, or one number for both.
        stride, padding, dilation, groups: as for `trl.conv`.
        domain, gain, bias, name: as for `Linear`.

    Raises:
        ShapeError: the groups do not divide the channels, or the window has another rank.

    Example:
        >>> trl.nn.Conv2d(4, 32, 8, stride=4)(trl.zeros((4, 84, 84)))
        f32[32,20,20] @ ()
    """

    _axes = ("height", "width")
