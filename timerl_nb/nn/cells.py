"""Recurrent cells: one step of a recurrence written by the user, as in `h[t + 1] = cell(h, x)`."""

from __future__ import annotations

from typing import Any

from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.nn.layers import Linear, checked_sizes, expect_last
from timerl_nb.nn.module import Module, free_name


class GRUCell(Module):
    """Gated recurrent unit, as in PyTorch: h' = (1 - z) * n + z * h.

    Here r, z = sigmoid(W x + U h + b) and n = tanh(W x + r * (U h + b')).

    Args:
        inputs, size: the sizes of the last axis of x and of the state h.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names.

    Example:
        >>> cell = trl.nn.GRUCell(3, 8)
        >>> x = trl.data(np.ones((5, 3), "f4"), domain=t)
        >>> h = trl.tensor(8, domain=t)
        >>> h[0] = trl.zeros(8)
        >>> h[t + 1] = cell(h, x)
    """

    def __init__(self, inputs: int, size: int, *, domain: Any = (), name: str = "") -> None:
        checked_sizes(inputs, size)
        name = name or free_name("gru")
        self.size = size
        self.given = Linear(inputs, 3 * size, domain=domain, name=f"{name}.input")
        self.state = Linear(size, 3 * size, domain=domain, name=f"{name}.state")

    def __call__(self, h: RecurrentTensor, x: RecurrentTensor) -> RecurrentTensor:
        """Return the state after `h` for the input `x`."""
        h = expect_last(h, self.state.weight)
        r, z, n = _parts(self.given(x), 3)
        of_r, of_z, of_n = _parts(self.state(h), 3)
        z = (z + of_z).sigmoid()
        new = (n + (r + of_r).sigmoid() * of_n).tanh()
        return new + z * (h - new)


class LSTMCell(Module):
    """Long short-term memory, as in PyTorch: c' = f * c + i * g and h' = o * tanh(c').

    Here i, f, o = sigmoid(W x + U h + b) and g = tanh(W x + U h + b).

    Args:
        inputs, size: the sizes of the last axis of x and of the states h and c.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names.

    Example:
        >>> cell = trl.nn.LSTMCell(3, 8)
        >>> h, c = cell(trl.zeros(8), trl.zeros(8), trl.zeros(3))
        >>> h, c
        (f32[8] @ (), f32[8] @ ())
    """

    def __init__(self, inputs: int, size: int, *, domain: Any = (), name: str = "") -> None:
        checked_sizes(inputs, size)
        name = name or free_name("lstm")
        self.size = size
        self.given = Linear(inputs, 4 * size, domain=domain, name=f"{name}.input")
        self.state = Linear(size, 4 * size, domain=domain, bias=False, name=f"{name}.state")

    def __call__(
        self, h: RecurrentTensor, c: RecurrentTensor, x: RecurrentTensor
    ) -> tuple[RecurrentTensor, RecurrentTensor]:
        """Return the states (h, c) after `h` and `c` for the input `x`."""
        h, c = (expect_last(x, self.state.weight) for x in (h, c))
        i, f, g, o = _parts(self.given(x) + self.state(h), 4)
        kept = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * kept.tanh(), kept


def _parts(x: RecurrentTensor, count: int) -> list[RecurrentTensor]:
    """Split the last axis into equal parts."""
    axis = x.rank - 1
    size = x.shape[axis]
    assert isinstance(size, int)
    n = size // count
    return [x.slice(k * n, (k + 1) * n, axis) for k in range(count)]
