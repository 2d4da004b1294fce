"""Layers that scale what they are given to mean 0 and variance 1, or to a fixed size."""

from __future__ import annotations

from typing import Any

from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.language.argument_checks import is_whole
from timerl_nb.compiler.language.inputs.tensor_sources import ones, parameter
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.nn.layers import checked_sizes, expect_last
from timerl_nb.nn.module import Module, free_name


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) along the last axis, scaled and shifted.

    Args:
        size: of the last axis.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names; by default it tells layers apart.
    """

    def __init__(self, size: int, *, domain: Any = (), eps: float = 1e-5, name: str = "") -> None:
        checked_sizes(size)
        name = name or free_name("norm")
        self.eps = eps
        self.scale = parameter((size,), domain=domain, init=ones, name=f"{name}.scale")
        self.shift = parameter((size,), domain=domain, name=f"{name}.shift")

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        x = expect_last(x, self.scale)
        centred = x - x.mean(axis=-1).unsqueeze(-1)
        spread = (centred.square().mean(axis=-1).unsqueeze(-1) + self.eps).sqrt()
        return centred / spread * self.scale + self.shift


class RMSNorm(Module):
    """x / sqrt(mean of squares + eps) along the last axis, scaled.

    Args: as for `LayerNorm`.
    """

    def __init__(self, size: int, *, domain: Any = (), eps: float = 1e-6, name: str = "") -> None:
        checked_sizes(size)
        name = name or free_name("norm")
        self.eps = eps
        self.scale = parameter((size,), domain=domain, init=ones, name=f"{name}.scale")

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        x = expect_last(x, self.scale)
        return x / (x.square().mean(axis=-1).unsqueeze(-1) + self.eps).sqrt() * self.scale


class GroupNorm(Module):
    """(x - mean) / sqrt(variance + eps) of each group of channels, scaled and shifted by channel.

    Args:
        groups, channels: how many of each; groups divide the channels.
        axis: that of the channels; what stands before it is normalised apart.
        domain, name: as for `LayerNorm`.
    """

    def __init__(
        self,
        groups: int,
        channels: int,
        *,
        axis: int = 0,
        domain: Any = (),
        eps: float = 1e-5,
        name: str = "",
    ) -> None:
        checked_sizes(groups, channels)
        if channels % groups:
            raise ShapeError(f"{groups} groups do not divide {channels} channels.")
        name = name or free_name("norm")
        self.groups, self.axis, self.eps = groups, axis, eps
        self.scale = parameter((channels,), domain=domain, init=ones, name=f"{name}.scale")
        self.shift = parameter((channels,), domain=domain, name=f"{name}.shift")

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        x = operand(self.scale.ctx, x)
        k = _channels(x, self.axis, self.scale)
        lead, (channels, *space) = x.shape[:k], x.shape[k:]
        parts = x.reshape((*lead, self.groups, self.scale.shape[0] // self.groups, *space))
        inner = tuple(range(k + 1, parts.rank))
        size = (*lead, self.groups, *(1 for _ in inner))
        centred = parts - parts.mean(axis=inner).reshape(size)
        spread = (centred.square().mean(axis=inner).reshape(size) + self.eps).sqrt()
        whole = (centred / spread).reshape((*lead, channels, *space))
        wide = (channels, *(1 for _ in space))
        return whole * self.scale.reshape(wide) + self.shift.reshape(wide)


class BatchNorm(Module):
    """(x - mean) / sqrt(variance + eps) of each channel over a batch, scaled and shifted.

    Called, it takes mean and variance of the batch, which also move the running ones that
    `running(x)` takes: at the next iteration they are (1 - momentum) of themselves and momentum of
    the batch's. They are saved with the parameters, and not trained.

    Args:
        channels: the length of `axis`.
        over: the symbolic dimensions that the batch lies along, as in `over=(b, t)`; the other axes
            of x belong to it as well.
        axis: that of the channels, -3 for images.
        domain: the dimensions that parameters and running statistics vary over; these change along
            the last.
        momentum: how far the running statistics move.
        name: as for `LayerNorm`.
    """

    def __init__(
        self,
        channels: int,
        over: Any,
        *,
        axis: int = -1,
        domain: Any,
        momentum: float = 0.1,
        eps: float = 1e-5,
        name: str = "",
    ) -> None:
        checked_sizes(channels)
        name = name or free_name("norm")
        self.over, self.axis, self.momentum, self.eps = over, axis, momentum, eps
        self.scale = parameter((channels,), domain=domain, init=ones, name=f"{name}.scale")
        self.shift = parameter((channels,), domain=domain, name=f"{name}.shift")
        self.mean, self.variance = (
            parameter((channels,), domain=domain, init=init, name=f"{name}.{what}", trainable=False)
            for what, init in (("mean", 0.0), ("variance", 1.0))
        )
        self._seen: RecurrentTensor | None = None

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        """x normalised by its own batch.

        Raises:
            DomainError: the layer has normalised another batch.
        """
        x = operand(self.scale.ctx, x)
        k = _channels(x, self.axis, self.scale)
        if self._seen is not None and self._seen.read != x.read:
            raise DomainError(
                f"{self.scale.name} has normalised another batch: two would move one mean.",
                others={"the first at": self._seen.op.origin},
                hint="make a BatchNorm for each, or normalise by norm.running(x).",
            )
        axes = tuple(axis for axis in range(x.rank) if axis != k) or None
        mean = _batch_mean(x, self.over, axes)
        variance = _batch_mean((x - _align_channels(mean, x, k)).square(), self.over, axes)
        if self._seen is None:
            self._seen, part = x, self.momentum
            for held, now in ((self.mean, mean), (self.variance, variance)):
                held.update(held * (1 - part) + now.detach() * part)
        return self._normalize(x, k, mean, variance)

    def running(self, x: RecurrentTensor) -> RecurrentTensor:
        """x normalised by the running mean and variance, as one acts."""
        x = operand(self.scale.ctx, x)
        return self._normalize(x, _channels(x, self.axis, self.scale), self.mean, self.variance)

    def _normalize(
        self, x: RecurrentTensor, k: int, mean: RecurrentTensor, variance: RecurrentTensor
    ) -> RecurrentTensor:
        factor = self.scale / (variance + self.eps).sqrt()
        return (x - _align_channels(mean, x, k)) * _align_channels(factor, x, k) + _align_channels(
            self.shift, x, k
        )


def _batch_mean(x: RecurrentTensor, over: Any, axes: tuple[int, ...] | None) -> RecurrentTensor:
    return x.mean(over=over) if axes is None else x.mean(axis=axes).mean(over=over)


def _align_channels(values: RecurrentTensor, x: RecurrentTensor, k: int) -> RecurrentTensor:
    """Values by channel, to be broadcast to `x`, whose axis `k` has the channels."""
    return values.reshape((values.shape[0], *(1 for _ in range(x.rank - k - 1))))


def _channels(x: RecurrentTensor, axis: int, scale: RecurrentTensor) -> int:
    """The axis of the channels, counted from the front."""
    if not is_whole(axis) or not -x.rank <= axis < x.rank or x.shape[axis] != scale.shape[0]:
        raise ShapeError(
            f"{scale.name} takes {scale.shape[0]} channels along axis {axis}, not {x.type}."
        )
    return axis % x.rank
