"""Base class of optimisers: parameters, learning rate, gradient clipping, one step.

Moments and step counts are recurrent tensors. `step()` writes one update per parameter along the last dimension of its
domain, or along several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from timerl_nb.base.errors import DomainError, GradientError, ShapeError, user_origin
from timerl_nb.compiler.ir.shapes import HALF
from timerl_nb.compiler.language.argument_checks import is_number
from timerl_nb.compiler.language.foreign_names import MODULE, explain_method_errors, missing
from timerl_nb.compiler.language.indexing.index_parsing import as_dims
from timerl_nb.compiler.language.indexing.recurrence_initialization import (
    initial_branch,
    ordinal,
    previous_branches,
)
from timerl_nb.compiler.language.inputs.tensor_sources import Parameter, tensor, where, zeros
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.nn.module import Parameters
from timerl_nb.optim.gradient_clipping import clip_gradients

Rate = float | RecurrentTensor


class Optimizer(ABC):
    """Base class of optimisers. Subclasses are `SGD`, `Adam`, `AdamW` and `RMSProp`.

    Args:
        params: a list of parameters, such as `dnn.params`.
        lr: the learning rate: a number, or a tensor such as a schedule returns.
        along: the dimensions of the steps, the last one fastest; by default the last dimension of the
            parameters' domain.
        max_norm: the greatest Euclidean norm of all gradients together; greater ones are scaled down.
        max_value: the greatest absolute value of a gradient's element; clipped before norms are computed.
        when: a boolean scalar tensor. Parameters, moments and step counts change only at points at which it is true;
            None changes them at every point.

    Raises:
        ShapeError: `params` is not a list of parameters, a number is out of range, or `when` is not a boolean scalar.

    Example:
        >>> w = trl.parameter((2,), domain=i, name="w")
        >>> w.square().sum().backward()
        gradients of 1 parameter
        >>> opt: trl.optim.Optimizer = trl.optim.SGD([w], lr=0.1, max_norm=1.0)
        >>> opt.step()
    """

    def __init_subclass__(cls) -> None:
        explain_method_errors(cls)

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
        when: RecurrentTensor | None = None,
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
        if when is not None and (
            not isinstance(when, RecurrentTensor) or when.dtype != "bool" or when.shape
        ):
            raise ShapeError(
                f"when must be a boolean scalar tensor, not {when!r}.",
                hint="write a condition such as when=trl.value(t) % 2 == 0.",
            )
        self.when = when
        self._counts: dict[Domain, RecurrentTensor] = {}
        ctx = self.params[0].ctx
        self._along = None if along is None else as_dims(ctx, ctx.space, along)

    def update_dims(self, p: Parameter) -> Domain:
        """Return the dimensions of a parameter's steps.

        Raises:
            DomainError: the parameter does not vary over one of them, or over no dimension.
        """
        found = p.op.domain[-1:] if self._along is None else self._along
        extra = [d for d in found if d not in p.op.domain]
        if extra or not found:
            lack = f"does not vary over {', '.join(extra)}" if extra else "has no dimension"
            raise DomainError(
                f"{p.name} {lack} to change along.",
                others={"it is made at": p.op.origin},
                hint="create it with domain=(i,), where i counts the iterations.",
            )
        return found

    def step(self) -> None:
        """Define every parameter's next value from its gradient.

        Raises:
            GradientError: a parameter has no gradient.
            DomainError: a parameter already has an update, or the list of parameters has changed.

        Example:
            >>> w = trl.parameter((2,), domain=i, name="w")
            >>> w.square().sum().backward()
            gradients of 1 parameter
            >>> trl.optim.Adam([w], lr=1e-3).step()
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
                after = self._keep_unless(self._updated_value(p, g), full(p))
                p.update(after.cast(p.dtype), along=self.update_dims(p))

    def carry(self, x: RecurrentTensor, value: RecurrentTensor, along: Domain) -> None:
        """Set the state `x` to `value` one step later, unless `when` is false."""
        after = self._keep_unless(value, x).settled().named_if_new(f"{x.name}'")
        for read in previous_branches(after, along):
            x.ctx.add_branch(x.read.source, read)

    def count_steps(self, p: Parameter, along: Domain) -> RecurrentTensor:
        """Return the number of steps of a parameter up to this one, as an integer."""
        if self.when is None:
            return ordinal(p, along)
        if p.op.domain not in self._counts:
            before = tensor((), "i32", domain=p.op.domain).named("steps")
            p.ctx.add_branch(before.read.source, initial_branch(zeros((), "i32"), along))
            self._counts[p.op.domain] = before + 1
            self.carry(before, before + 1, along)
        return self._counts[p.op.domain]

    def _keep_unless(self, after: RecurrentTensor, before: RecurrentTensor) -> RecurrentTensor:
        return after if self.when is None else where(self.when, after, before)

    def _check_unchanged(self) -> None:
        """Raise an error if the list or module of parameters has changed since the optimiser was created."""
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
            "the network's parameters have changed since the optimiser was created.",
            others=others,
            hint="create the optimiser when the network is complete.",
        )

    @abstractmethod
    def _updated_value(self, p: Parameter, g: RecurrentTensor) -> RecurrentTensor:
        """Return the parameter's next value; moments are computed in `full` precision."""


def check_in_range(
    what: str, value: float, low: float, high: float, *, closed: bool = False
) -> float:
    """Check and return a number above `low` (or equal to it, if `closed`) and below `high`."""
    if not is_number(value) or not (low < value < high or (closed and value == low)):
        start = f"from {low:g}" if closed else f"above {low:g}"
        meant = "a positive number" if high == inf else f"a number {start} and below {high:g}"
        raise ShapeError(f"{what} must be {meant}, not {value!r}.", hint=f"give {meant}.")
    return float(value)


def full(x: RecurrentTensor) -> RecurrentTensor:
    """Cast half precision to float32: small updates would be lost to rounding."""
    return x.cast("f32") if x.dtype in HALF else x


def state(p: Parameter, name: str, along: Domain) -> RecurrentTensor:
    """Create a state in `full` precision, of the parameter's shape and domain, zero at the first step."""
    dtype = "f32" if p.dtype in HALF else p.dtype
    made = tensor(p.shape, dtype, domain=p.op.domain).named(f"{p.name}.{name}")
    p.ctx.add_branch(made.read.source, initial_branch(zeros(p.shape, dtype), along))
    return made
