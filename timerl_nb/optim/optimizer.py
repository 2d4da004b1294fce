"""What optimisers share: parameters, a rate, what is done to gradients, and one step.

Moments and step counts are recurrent tensors like any other; `step()` writes one update per
parameter along the last dimension of its domain, or along several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from timerl_nb.base.errors import DomainError, GradientError, ShapeError, user_origin
from timerl_nb.compiler.ir.shapes import HALF
from timerl_nb.compiler.language.argument_checks import is_number
from timerl_nb.compiler.language.foreign_names import MODULE, all_asked, missing
from timerl_nb.compiler.language.indexing.index_parsing import as_dims
from timerl_nb.compiler.language.indexing.recurrence_initialization import (
    initial_branch,
    previous_branches,
)
from timerl_nb.compiler.language.inputs.tensor_sources import Parameter, tensor, zeros
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.nn.module import Parameters
from timerl_nb.optim.gradient_clipping import clip_gradients

Rate = float | RecurrentTensor


class Optimizer(ABC):
    """What optimisers share: the parameters, the rate, and one step per program.

    Args:
        along: the dimensions that steps go along, the last one fastest; by default the last of the
            parameters' domain.
        max_norm: the most that all gradients together may measure (their Euclidean norm); they are
            scaled down to it.
        max_value: the most that an element of a gradient may be, and its negative the least; clipped
            before norms are measured.
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
        max_value: float | None = None,
    ) -> None:
        one = isinstance(params, Parameter) or not isinstance(params, Iterable)
        given: Any = [params] if one else list(params)
        self.params: list[Parameter] = given
        self._given, self._taken_at = params, user_origin()
        if not self.params or not all(isinstance(p, Parameter) for p in self.params):
            raise ShapeError("an optimiser needs a list of parameters.", hint="pass dnn.params.")
        if not isinstance(lr, RecurrentTensor):
            lr = check_in_range("the learning rate", lr, 0.0, inf)
        self.lr = lr
        self.max_norm = None if max_norm is None else check_in_range("max_norm", max_norm, 0.0, inf)
        self.max_value = (
            None if max_value is None else check_in_range("max_value", max_value, 0.0, inf)
        )
        ctx = self.params[0].ctx
        self._along = None if along is None else as_dims(ctx, ctx.space, along)

    def update_dims(self, p: Parameter) -> Domain:
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
            grads = [full(p.grad) for p in self.params]
            clipped = clip_gradients(grads, max_value=self.max_value, max_norm=self.max_norm)
            for p, g in zip(self.params, clipped, strict=True):
                p.update(self._updated_value(p, g).cast(p.dtype), along=self.update_dims(p))

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

    @abstractmethod
    def _updated_value(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        """The parameter's next value, given its gradient; both are `full`, as moments are."""


def check_in_range(
    what: str, value: float, low: float, high: float, *, closed: bool = False
) -> float:
    """A number between `low` and `high`, `low` itself if `closed`."""
    if not is_number(value) or not (low < value < high or (closed and value == low)):
        start = f"from {low:g}" if closed else f"above {low:g}"
        meant = "a positive number" if high == inf else f"a number {start} and below {high:g}"
        raise ShapeError(f"{what} must be {meant}, not {value!r}.")
    return float(value)


def full(x: RecurrentTensor) -> RecurrentTensor:
    """Halves as float32: what is far smaller than a parameter is lost in its own type."""
    return x.cast("f32") if x.dtype in HALF else x


def state(p: Parameter, name: str, along: Domain) -> RecurrentTensor:
    """A `full` tensor of the parameter's shape and domain, zero at the first step."""
    dtype = "f32" if p.dtype in HALF else p.dtype
    made = tensor(p.shape, dtype, domain=p.op.domain).named(f"{p.name}.{name}")
    p.ctx.add_branch(made.read.source, initial_branch(zeros(p.shape, dtype), along))
    return made


def carry(x: RecurrentTensor, value: RecurrentTensor, along: Domain) -> None:
    """Let the state `x` be `value` one step later."""
    after = value.settled().named_if_new(f"{x.name}'")
    for read in previous_branches(after, along):
        x.ctx.add_branch(x.read.source, read)
