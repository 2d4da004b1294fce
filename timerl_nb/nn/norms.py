"""Layers that scale the last axis to a fixed size."""

from __future__ import annotations

from typing import Any

from timerl_nb.errors import ShapeError
from timerl_nb.frontend.sources import ones, parameter
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.nn.layers import checked_sizes
from timerl_nb.nn.module import Module


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) along the last axis, scaled and shifted.

    Args:
        size: of the last axis.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names.
    """

    def __init__(
        self, size: int, *, domain: Any = (), eps: float = 1e-5, name: str = "norm"
    ) -> None:
        checked_sizes(size)
        self.eps = eps
        self.scale = parameter((size,), domain=domain, init=ones, name=f"{name}.scale")
        self.shift = parameter((size,), domain=domain, name=f"{name}.shift")

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        _expect_last(x, self.scale)
        centred = x - x.mean(axis=-1).unsqueeze(-1)
        spread = (centred.square().mean(axis=-1).unsqueeze(-1) + self.eps).sqrt()
        return centred / spread * self.scale + self.shift


class RMSNorm(Module):
    """x / sqrt(mean of squares + eps) along the last axis, scaled.

    Args: as for `LayerNorm`.
    """

    def __init__(
        self, size: int, *, domain: Any = (), eps: float = 1e-6, name: str = "norm"
    ) -> None:
        checked_sizes(size)
        self.eps = eps
        self.scale = parameter((size,), domain=domain, init=ones, name=f"{name}.scale")

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        _expect_last(x, self.scale)
        return x / (x.square().mean(axis=-1).unsqueeze(-1) + self.eps).sqrt() * self.scale


def _expect_last(x: RecurrentTensor, scale: RecurrentTensor) -> None:
    if not x.rank or x.shape[-1] != scale.shape[0]:
        raise ShapeError(f"{scale.name} takes a last axis of {scale.shape[0]}, not {x.type}.")
