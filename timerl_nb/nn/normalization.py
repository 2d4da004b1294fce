"""Normalisation layers: by layer, root mean square, group and batch."""

from __future__ import annotations

from typing import Any

from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.language.argument_checks import is_whole
from timerl_nb.compiler.language.inputs.tensor_sources import ones, parameter
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.nn.layers import checked_sizes, expect_last
from timerl_nb.nn.module import Module, free_name


class LayerNorm(Module):
    """Layer normalisation: (x - mean) / sqrt(variance + eps) along the last axis, scaled and shifted.

    Args:
        size: the size of the last axis.
        domain: the dimensions that the parameters vary over.
        eps: added to the variance.
        name: the prefix of the parameters' names; unique by default.

    Example:
        >>> trl.nn.LayerNorm(4)(trl.zeros((3, 4)))
        f32[3,4] @ ()
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
    """Root-mean-square normalisation: x / sqrt(mean of squares + eps) along the last axis, scaled.

    Args:
        size, domain, eps, name: as for `LayerNorm`.

    Example:
        >>> trl.nn.RMSNorm(4)(trl.zeros((3, 4)))
        f32[3,4] @ ()
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
    """Group normalisation: (x - mean) / sqrt(variance + eps) per group of channels, scaled and shifted per channel.

    Args:
        groups, channels: the numbers of groups and channels; groups must divide channels.
        axis: the axis of the channels; each position of the axes before it is normalised separately.
        domain, eps, name: as for `LayerNorm`.

    Raises:
        ShapeError: the groups do not divide the channels.

    Example:
        >>> trl.nn.GroupNorm(2, 8)(trl.zeros((8, 5, 5)))
        f32[8,5,5] @ ()
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
            raise ShapeError(
                f"{groups} groups do not divide {channels} channels.",
                hint="choose a number of channels that is a multiple of groups.",
            )
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
    """Batch normalisation: (x - mean) / sqrt(variance + eps) per channel, scaled and shifted.

    A call uses the mean and variance of the batch and updates the running statistics: at the next iteration they are
    (1 - momentum) times the old plus momentum times the batch's. `running(x)` uses the running statistics, for acting.
    Checkpoints include them; they are not trained.

    Args:
        channels: the size of the axis of channels.
        over: the symbolic dimensions of the batch, such as (b, t); the other axes of x belong to the batch, too.
        axis: the axis of the channels, -3 for images.
        domain: the dimensions that parameters and running statistics vary over; the statistics change along
            the last.
        momentum: the weight of the batch in the running statistics.
        eps, name: as for `LayerNorm`.

    Example:
        >>> norm = trl.nn.BatchNorm(4, over=(b, t), domain=i)
        >>> x = trl.random.normal(4, domain=(b, i, t))
        >>> norm(x)
        f32[4] @ (b, i, t)
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
        """Normalise x by its own batch.

        Raises:
            DomainError: the layer has already normalised another batch.
        """
        x = operand(self.scale.ctx, x)
        k = _channels(x, self.axis, self.scale)
        if self._seen is not None and self._seen.read != x.read:
            raise DomainError(
                f"{self.scale.name} has already normalised another batch and has one running mean.",
                others={"the first at": self._seen.op.origin},
                hint="create a BatchNorm per batch, or call norm.running(x).",
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
        """Normalise x by the running mean and variance, for acting."""
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
    """Reshape values per channel so that they broadcast to `x`, whose axis `k` has the channels."""
    return values.reshape((values.shape[0], *(1 for _ in range(x.rank - k - 1))))


def _channels(x: RecurrentTensor, axis: int, scale: RecurrentTensor) -> int:
    """Return the axis of the channels, counted from the front."""
    if not is_whole(axis) or not -x.rank <= axis < x.rank or x.shape[axis] != scale.shape[0]:
        raise ShapeError(
            f"{scale.name} takes {scale.shape[0]} channels along axis {axis}, not {x.type}.",
            hint="choose axis= and the number of channels to match the tensor.",
        )
    return axis % x.rank
