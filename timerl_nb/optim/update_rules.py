"""Update rules of the optimisers, as recurrence equations."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import Any

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.inputs.tensor_sources import Parameter
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.optim.optimizer import Optimizer, Rate, check_in_range, full, state


class SGD(Optimizer):
    """Stochastic gradient descent: w - lr * m with m = momentum * m + g.

    Args:
        params, lr: as for `Optimizer`.
        momentum: the momentum, at least 0 and below 1.
        options: `along`, `max_norm`, `max_value`, `when`, as for `Optimizer`.

    Example:
        >>> w = trl.parameter((2,), domain=i, name="w")
        >>> w.square().sum().backward()
        gradients of 1 parameter
        >>> trl.optim.SGD([w], lr=0.1, momentum=0.9).step()
    """

    def __init__(
        self,
        params: Sequence[Parameter],
        lr: Rate = 1e-2,
        momentum: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, **options)
        self.momentum = check_in_range("the momentum", momentum, 0.0, 1.0, closed=True)

    def _updated_value(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        return full(p) - accumulate_momentum(self, p, g, self.momentum) * self.lr


class Adam(Optimizer):
    """Adam with bias correction. Source: Kingma and Ba 2015.

    Args:
        params, lr: as for `Optimizer`.
        betas: the decay rates of the first and second moment.
        eps: added to the root of the second moment.
        options: `along`, `max_norm`, `max_value`, `when`, as for `Optimizer`.

    Example:
        >>> w = trl.parameter((2,), domain=i, name="w")
        >>> w.square().sum().backward()
        gradients of 1 parameter
        >>> trl.optim.Adam([w], lr=trl.optim.schedules.linear(i, 1e-3, 0.0)).step()
    """

    def __init__(
        self,
        params: Sequence[Parameter],
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, **options)
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise ShapeError(
                f"betas must be two numbers, not {betas!r}.", hint="write betas=(0.9, 0.999)."
            )
        self.betas = tuple(check_in_range("a beta", beta, 0.0, 1.0, closed=True) for beta in betas)
        self.eps = check_in_range("eps", eps, 0.0, inf)

    def _updated_value(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        b1, b2 = self.betas
        along = self.update_dims(p)
        m, v = state(p, "m", along), state(p, "v", along)
        m1 = m * b1 + g * (1 - b1)
        v1 = v * b2 + g * g * (1 - b2)
        self.carry(m, m1, along)
        self.carry(v, v1, along)
        steps = self.count_steps(p, along).cast(g.dtype)
        # 1 - beta**steps, without cancellation
        first, second = (x / -(steps * log(b)).expm1() if b else x for x, b in ((m1, b1), (v1, b2)))
        return full(p) - first / (second.sqrt() + self.eps) * self.lr


class AdamW(Adam):
    """Adam with decoupled weight decay: w * (1 - lr * weight_decay) before Adam's step.

    Source: Loshchilov and Hutter 2019.

    Args:
        params, lr, betas, eps: as for `Adam`.
        weight_decay: the decay, at least 0.
        options: `along`, `max_norm`, `max_value`, `when`, as for `Optimizer`.

    Example:
        >>> w = trl.parameter((2,), domain=i, name="w")
        >>> w.square().sum().backward()
        gradients of 1 parameter
        >>> trl.optim.AdamW([w], weight_decay=0.1).step()
    """

    def __init__(
        self,
        params: Sequence[Parameter],
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, **options)
        self.weight_decay = check_in_range("the weight decay", weight_decay, 0.0, inf, closed=True)

    def _updated_value(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        return super()._updated_value(p, g) - full(p) * (self.weight_decay * self.lr)


class RMSProp(Optimizer):
    """RMSProp: w - lr * m with s = alpha * s + (1 - alpha) * g**2 and m = momentum * m + g / (sqrt(s) + eps).

    Args:
        params, lr: as for `Optimizer`.
        alpha: the decay rate of the squares.
        eps: added to the root of the squares.
        momentum: the momentum, at least 0 and below 1.
        options: `along`, `max_norm`, `max_value`, `when`, as for `Optimizer`.

    Example:
        >>> w = trl.parameter((2,), domain=i, name="w")
        >>> w.square().sum().backward()
        gradients of 1 parameter
        >>> trl.optim.RMSProp([w]).step()
    """

    def __init__(
        self,
        params: Sequence[Parameter],
        lr: Rate = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, **options)
        self.alpha = check_in_range("alpha", alpha, 0.0, 1.0, closed=True)
        self.eps = check_in_range("eps", eps, 0.0, inf)
        self.momentum = check_in_range("the momentum", momentum, 0.0, 1.0, closed=True)

    def _updated_value(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        along = self.update_dims(p)
        squares = state(p, "squares", along)
        after = squares * self.alpha + g * g * (1 - self.alpha)
        self.carry(squares, after, along)
        change = g / (after.sqrt() + self.eps)
        return full(p) - accumulate_momentum(self, p, change, self.momentum) * self.lr


def accumulate_momentum(
    of: Optimizer, p: Parameter, g: RecurrentTensor, momentum: float
) -> RecurrentTensor:
    """Return momentum * m + g, with m of the previous step."""
    if not momentum:
        return g
    along = of.update_dims(p)
    m = state(p, "momentum", along)
    after = m * momentum + g
    of.carry(m, after, along)
    return after
