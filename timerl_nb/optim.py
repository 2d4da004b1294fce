"""Optimisers as recurrence equations (`trl.optim`).

Moments and step counts are recurrent tensors like any other; `step()` writes one update per
parameter along the last dimension of its domain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf

from timerl_nb.errors import GradientError, ShapeError
from timerl_nb.frontend.sources import Parameter, tensor, zeros
from timerl_nb.frontend.tensor import RecurrentTensor, value_of
from timerl_nb.ir.ops import Read
from timerl_nb.symbolic.expr import eq, ge, sym

Rate = float | RecurrentTensor


class Optimizer(ABC):
    """What optimisers share: the parameters, the rate, and one step per program."""

    def __init__(self, params: Sequence[Parameter] | Parameter, lr: Rate) -> None:
        self.params = [params] if isinstance(params, Parameter) else list(params)
        if not self.params or not all(isinstance(p, Parameter) for p in self.params):
            raise ShapeError("an optimiser needs a list of parameters.", hint="pass dnn.params.")
        if not isinstance(lr, RecurrentTensor):
            _check("the learning rate", lr, 0.0, inf)
        self.lr = lr

    def step(self) -> None:
        """Let every parameter's next value follow from its gradient.

        Raises:
            GradientError: a parameter has no gradient.
            DomainError: a parameter has an update already.
        """
        for p in self.params:
            if not p.has_grad:
                raise GradientError(
                    f"{p.name} has no gradient to step with.",
                    hint="call loss.backward() before opt.step(), and check that the loss uses it.",
                )
        with self.params[0].ctx.region("update"):
            for p in self.params:
                p.update(self._next(p, p.grad))

    @abstractmethod
    def _next(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        """The parameter's next value, given its gradient."""


def _check(what: str, value: float, low: float, high: float, *, closed: bool = False) -> float:
    """A number between `low` and `high`, `low` itself if `closed`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (low < value < high or (closed and value == low)):
        start = f"from {low:g}" if closed else f"above {low:g}"
        meant = "positive" if high == inf else f"a number {start} and below {high:g}"
        raise ShapeError(f"{what} must be {meant}, not {value!r}.")
    return value


class SGD(Optimizer):
    """w - lr * m, where m = momentum * m + g."""

    def __init__(self, params: Sequence[Parameter], lr: Rate = 1e-2, momentum: float = 0.0) -> None:
        super().__init__(params, lr)
        self.momentum = _check("the momentum", momentum, 0.0, 1.0, closed=True)

    def _next(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        if self.momentum:
            m = _state(p, "momentum")
            g = m * self.momentum + g
            _carry(m, g)
        return p - g * self.lr


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015) with bias correction."""

    def __init__(
        self,
        params: Sequence[Parameter],
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, lr)
        self.betas = tuple(_check("a beta", beta, 0.0, 1.0, closed=True) for beta in betas)
        self.eps = _check("eps", eps, 0.0, inf)

    def _next(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        b1, b2 = self.betas
        m, v = _state(p, "m"), _state(p, "v")
        m1 = m * b1 + g * (1 - b1)
        v1 = v * b2 + g * g * (1 - b2)
        _carry(m, m1)
        _carry(v, v1)
        steps = value_of(p.ctx, sym(p.op.domain[-1]) + 1).cast(p.dtype)
        first = m1 / (1.0 - b1**steps)
        second = v1 / (1.0 - b2**steps)
        return p - first / (second.sqrt() + self.eps) * self.lr


def _state(p: Parameter, name: str) -> RecurrentTensor:
    """A tensor of the parameter's shape and domain, zero at the first iteration."""
    state = tensor(p.shape, p.dtype, domain=p.op.domain).named(f"{p.name}.{name}")
    zero = zeros(p.shape, p.dtype).read
    first = eq(sym(p.op.domain[-1]), 0)
    p.ctx.add_branch(state.read.source, Read(zero.source, zero.out, zero.index, first))
    return state


def _carry(state: RecurrentTensor, value: RecurrentTensor) -> None:
    """Let the state be `value` one iteration later."""
    step = state.op.domain[-1]
    before = value.settled().named_if_new(f"{state.name}'").at({step: sym(step) - 1}).read
    later = ge(sym(step), 1)
    state.ctx.add_branch(state.read.source, Read(before.source, before.out, before.index, later))


__all__ = ["SGD", "Adam", "Optimizer"]
