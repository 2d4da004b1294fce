"""Neural networks of recurrent tensors (`trl.nn`): modules, layers, initialisers."""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.nn.attention import Attention, MultiHeadAttention
from timerl_nb.nn.cells import GRUCell, LSTMCell
from timerl_nb.nn.convolutions import Conv1d, Conv2d
from timerl_nb.nn.layers import MLP, Embedding, Linear, orthogonal, scaled_normal
from timerl_nb.nn.module import Module
from timerl_nb.nn.normalization import BatchNorm, GroupNorm, LayerNorm, RMSNorm
from timerl_nb.nn.sequential_and_dropout import Dropout, Sequential

__all__ = [
    "MLP",
    "Attention",
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "GRUCell",
    "GroupNorm",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "RMSNorm",
    "Sequential",
    "orthogonal",
    "scaled_normal",
]

__getattr__, __dir__ = _module_names("trl.nn", lambda: __all__)
