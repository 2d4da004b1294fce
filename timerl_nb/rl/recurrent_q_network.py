"""Recurrent action-value network: tanh layers, a GRU, and one value per action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.nn.cells import GRUCell
from timerl_nb.nn.layers import MLP, Linear, orthogonal
from timerl_nb.nn.module import Module


class RecurrentQNetwork(Module):
    """Layers of a recurrent Q-network. The caller writes the recurrence of the state.

    Args:
        inputs: the size of the observations.
        hidden: the widths of the tanh layers.
        state: the size of the GRU's state.
        actions: the number of actions.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        state: int,
        actions: int,
        *,
        domain: Any,
        name: str = "q",
    ) -> None:
        how: dict[str, Any] = {"domain": domain, "init": orthogonal}
        self.layers = [MLP((inputs, *hidden), name=f"{name}.layers", **how)] if hidden else []
        self.cell = GRUCell((inputs, *hidden)[-1], state, domain=domain, name=f"{name}.gru")
        self.head = Linear(state, actions, name=f"{name}.head", **how)

    def next_state(self, h: RecurrentTensor, o: RecurrentTensor) -> RecurrentTensor:
        """Return the state after the observations o [..., inputs], from the state h [..., state] before them."""
        for layers in self.layers:
            o = layers(o).tanh()
        return self.cell(h, o)

    def __call__(self, h: RecurrentTensor) -> RecurrentTensor:
        """Return the values of the actions, f32 [..., actions], in a state."""
        return self.head(h)
