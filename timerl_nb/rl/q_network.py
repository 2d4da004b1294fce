"""Action-value networks: plain, with dueling streams, and with distributions over returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.nn.layers import MLP, orthogonal
from timerl_nb.nn.module import Module


class QNetwork(Module):
    """Network from observations to one value per action, or to the logits of `atoms` returns per action.

    With `dueling`, two streams share all hidden layers but the last: one computes a value of the observation, the other
    one advantage per action. The mean over the actions is subtracted from the advantages. Sources: Wang et al. 2016
    (dueling streams), Bellemare et al. 2017 (distributions).

    Args:
        inputs: the size of the observations.
        hidden: the widths of the tanh layers.
        actions: the number of actions.
        atoms: the number of returns in the support of a distribution; None for values.
        dueling: whether to use dueling streams.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        actions: int,
        *,
        atoms: int | None = None,
        dueling: bool = False,
        domain: Any,
        name: str = "q",
    ) -> None:
        self.shape = (actions,) if atoms is None else (actions, atoms)
        how: dict[str, Any] = {"domain": domain, "init": orthogonal}
        each = atoms or 1
        self.shared, self.streams = [], []
        if not dueling:
            self.streams = [MLP((inputs, *hidden, actions * each), name=name, **how)]
            return
        sizes = (inputs, *hidden)
        split = max(len(hidden), 1)
        if split > 1:
            self.shared = [MLP(sizes[:split], name=f"{name}.shared", **how)]
        self.streams = [
            MLP((*sizes[split - 1 :], count * each), name=f"{name}.{stream}", **how)
            for stream, count in (("value", 1), ("advantage", actions))
        ]

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        """Return f32 [..., actions] or [..., actions, atoms] for observations [..., inputs]."""
        for layers in self.shared:
            x = layers(x).tanh()
        found = [stream(x) for stream in self.streams]
        *value, best = (y.reshape((*y.shape[:-1], -1, *self.shape[1:])) for y in found)
        axis = -len(self.shape)
        return value[0] + best - best.mean(axis=axis, keepdims=True) if value else best
