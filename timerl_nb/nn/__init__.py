"""Neural networks in recurrent tensors (`trl.nn`)."""

from timerl_nb.frontend.foreign import module_names as _module_names
from timerl_nb.nn.attention import Attention
from timerl_nb.nn.cells import GRUCell, LSTMCell
from timerl_nb.nn.layers import MLP, Conv2d, Embedding, Linear, orthogonal, scaled_normal
from timerl_nb.nn.module import Module
from timerl_nb.nn.norms import LayerNorm, RMSNorm

__all__ = [
    "MLP",
    "Attention",
    "Conv2d",
    "Embedding",
    "GRUCell",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "Module",
    "RMSNorm",
    "orthogonal",
    "scaled_normal",
]

__getattr__ = _module_names("trl.nn", lambda: __all__)
