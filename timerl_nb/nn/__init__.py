"""Neural networks in recurrent tensors (`trl.nn`)."""

from timerl_nb.nn.layers import MLP, Linear
from timerl_nb.nn.module import Module

__all__ = ["MLP", "Linear", "Module"]
