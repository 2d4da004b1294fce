"""Optimisers as recurrence equations (`trl.optim`).

Moments and step counts are recurrent tensors like any other; `step()` writes one update per
parameter along the last dimension of its domain, or along several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from timerl_nb.errors import DomainError, GradientError, ShapeError, user_origin
from timerl_nb.frontend.carried import begun, carried, ordinal
from timerl_nb.frontend.foreign import MODULE, all_asked, missing
from timerl_nb.frontend.foreign import module_names as _module_names
from timerl_nb.frontend.indexing import as_dims
from timerl_nb.frontend.sources import Parameter, tensor, where, zeros
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.nn.module import Parameters
from timerl_nb.symbolic.domain import Domain

Rate = float | RecurrentTensor


class Optimizer(ABC):
    """What optimisers share: the parameters, the rate, and one step per program.

    Args:
        along: the dimensions that steps go along, the last one fastest; by default the last of the
            parameters' domain.
        max_norm: the most that all gradients together may measure (their Euclidean norm); they are
            scaled down to it.
    """

    def __init_subclass__(cls) -> None:
        all_asked(cls)

    def __getattr__(self, name: str) -> Any:
        raise missing("an optimiser", name, dir(type(self)), MODULE)

    def __init__(
        self,
        params: Sequence[Parameter] | Parameter,
        lr: Rate,
        *,
        along: Any = None,
        max_norm: float | None = None,
    ) -> None:
        one = isinstance(params, Parameter) or not isinstance(params, Iterable)
        given: Any = [params] if one else list(params)
        self.params: list[Parameter] = given
        self._given, self._taken_at = params, user_origin()
        if not self.params or not all(isinstance(p, Parameter) for p in self.params):
            raise ShapeError("an optimiser needs a list of parameters.", hint="pass dnn.params.")
        if not isinstance(lr, RecurrentTensor):
            _check("the learning rate", lr, 0.0, inf)
        self.lr = lr
        self.max_norm = None if max_norm is None else _check("max_norm", max_norm, 0.0, inf)
        ctx = self.params[0].ctx
        self._along = None if along is None else as_dims(ctx, ctx.space, along)

    def along(self, p: Parameter) -> Domain:
        """The dimensions that a parameter's steps go along.

        Raises:
            DomainError: the parameter does not vary over one of them, or over none.
        """
        found = p.op.domain[-1:] if self._along is None else self._along
        extra = [d for d in found if d not in p.op.domain]
        if extra or not found:
            lack = f"does not vary over {', '.join(extra)}" if extra else "has no dimension"
            raise DomainError(
                f"{p.name} {lack} to change along.",
                others={"it is made at": p.op.origin},
                hint="make it with domain=(i,), i being the iterations.",
            )
        return found

    def step(self) -> None:
        """Let every parameter's next value follow from its gradient.

        Raises:
            GradientError: a parameter has no gradient.
            DomainError: a parameter has an update already, or the list of parameters has changed.
        """
        self._check_unchanged()
        for p in self.params:
            if not p.has_grad:
                raise GradientError(
                    f"{p.name} has no gradient to step with.",
                    hint="call loss.backward() before opt.step(), and check that the loss uses it.",
                )
        with self.params[0].ctx.region("update"):
            scale = self._scale()
            for p in self.params:
                g = p.grad if scale is None else p.grad * scale
                p.update(self._next(p, g), along=self.along(p))

    def _check_unchanged(self) -> None:
        """The list, or the module, that the parameters were taken from has the same ones still."""
        given = self._given
        now = given.module.params if isinstance(given, Parameters) else given
        if not isinstance(now, list) or [*map(id, now)] == [*map(id, self.params)]:
            return
        others = {"the optimiser took them at": self._taken_at}
        others |= {
            f"{p.name} is made at": p.op.origin
            for p in now
            if isinstance(p, Parameter) and id(p) not in map(id, self.params)
        }
        raise DomainError(
            "the parameters are others than those that the optimiser took.",
            others=others,
            hint="make the optimiser when the network is complete.",
        )

    def _scale(self) -> RecurrentTensor | None:
        """What gradients are multiplied by, so that together they measure `max_norm` at most."""
        if self.max_norm is None:
            return None
        first, *others = ((p.grad * p.grad).sum() for p in self.params)
        norm = sum(others, first).sqrt()
        return where(norm > self.max_norm, self.max_norm / norm, 1.0)

    @abstractmethod
    def _next(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        """The parameter's next value, given its gradient."""


def _check(what: str, value: float, low: float, high: float, *, closed: bool = False) -> float:
    """A number between `low` and `high`, `low` itself if `closed`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (low < value < high or (closed and value == low)):
        start = f"from {low:g}" if closed else f"above {low:g}"
        meant = "a positive number" if high == inf else f"a number {start} and below {high:g}"
        raise ShapeError(f"{what} must be {meant}, not {value!r}.")
    return value


class SGD(Optimizer):
    """w - lr * m, where m = momentum * m + g."""

    def __init__(
        self,
        params: Sequence[Parameter],
        lr: Rate = 1e-2,
        momentum: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, **options)
        self.momentum = _check("the momentum", momentum, 0.0, 1.0, closed=True)

    def _next(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        if self.momentum:
            m = _state(p, "momentum", self.along(p))
            g = m * self.momentum + g
            _carry(m, g, self.along(p))
        return p - g * self.lr


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015) with bias correction."""

    def __init__(
        self,
        params: Sequence[Parameter],
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, **options)
        self.betas = tuple(_check("a beta", beta, 0.0, 1.0, closed=True) for beta in betas)
        self.eps = _check("eps", eps, 0.0, inf)

    def _next(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        b1, b2 = self.betas
        along = self.along(p)
        m, v = _state(p, "m", along), _state(p, "v", along)
        m1 = m * b1 + g * (1 - b1)
        v1 = v * b2 + g * g * (1 - b2)
        _carry(m, m1, along)
        _carry(v, v1, along)
        steps = ordinal(p, along).cast(p.dtype)
        first = m1 / (1.0 - b1**steps)
        second = v1 / (1.0 - b2**steps)
        return p - first / (second.sqrt() + self.eps) * self.lr


def _state(p: Parameter, name: str, along: Domain) -> RecurrentTensor:
    """A tensor of the parameter's shape and domain, zero at the first step."""
    state = tensor(p.shape, p.dtype, domain=p.op.domain).named(f"{p.name}.{name}")
    p.ctx.add_branch(state.read.source, begun(zeros(p.shape, p.dtype), along))
    return state


def _carry(state: RecurrentTensor, value: RecurrentTensor, along: Domain) -> None:
    """Let the state be `value` one step later."""
    after = value.settled().named_if_new(f"{state.name}'")
    for read in carried(after, along):
        state.ctx.add_branch(state.read.source, read)


__all__ = ["SGD", "Adam", "Optimizer"]

__getattr__ = _module_names("trl.optim", lambda: __all__)
