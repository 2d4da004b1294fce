"""Recurrent tensors: the values from which users write equations.

A `RecurrentTensor` reads one output of an operation at index expressions. Its domain is the set of dimensions
in these expressions. An operator or method adds an operation; the domain of the result is the union of the
operands' domains. A tensor without an index is read at the current point. Source: TimeRL §4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from os import PathLike
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import host_array
from timerl_nb.base.display_registry import list_public
from timerl_nb.base.errors import (
    BranchError,
    DomainError,
    IndexExpressionError,
    ShapeError,
    user_origin,
)
from timerl_nb.compiler.ir.dependence_graph import at_own_point, read_type
from timerl_nb.compiler.ir.graph_rewriting import compose
from timerl_nb.compiler.ir.operation_attributes import (
    NO_ATTRS,
    AxesAttrs,
    AxisAttrs,
    CastAttrs,
    ConstArray,
    ConstAttrs,
    DiscountAttrs,
    DotAttrs,
    Filled,
    PermAttrs,
    ReindexAttrs,
    ShapeAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operations import Op, Read, is_own, read_symbols
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import (
    NUMPY,
    DType,
    Shape,
    TensorType,
    accumulator_type,
    exactly,
    is_float,
    narrow,
    promote,
    same_shape,
    same_size,
    shape_of,
)
from timerl_nb.compiler.ir.type_rules import TypeRuleError
from timerl_nb.compiler.language.argument_checks import (
    as_size,
    checked_gamma,
    element_type,
    folder,
    is_size,
    is_whole,
)
from timerl_nb.compiler.language.foreign_names import TENSOR, explain_method_errors
from timerl_nb.compiler.language.indexing.conditional_domains import split, subset_of
from timerl_nb.compiler.language.indexing.index_parsing import (
    Condition,
    Index,
    as_cond,
    as_dims,
    as_lin,
    parse,
)
from timerl_nb.compiler.language.indexing.left_hand_side_branches import assigned_branch
from timerl_nb.compiler.language.lint import (
    fewer,
    never,
    no_axes,
    warn_lost_precision,
    zero_divisor,
)
from timerl_nb.compiler.language.opaque_value import Fixed
from timerl_nb.compiler.language.operations.axis_methods import LABELS as LABELS
from timerl_nb.compiler.language.operations.axis_rearrangement import Rearranged
from timerl_nb.compiler.language.operations.past_windows import Past
from timerl_nb.compiler.language.program_context import Context, current
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import (
    FALSE,
    TRUE,
    Cond,
    Entry,
    Lin,
    all_of,
    ge,
    lin,
    sym,
)


@dataclass(frozen=True)
class Backward:
    """Report of `loss.backward()`, displayed in a notebook.

    Attributes:
        parameters: the number of parameters that received a gradient.
        over: the dimensions of the loss over which the gradients are summed.
    """

    parameters: int
    over: Domain

    def __repr__(self) -> str:
        added = f", added up over ({', '.join(self.over)})" if self.over else ""
        return f"gradients of {self.parameters} parameter{'s' * (self.parameters != 1)}{added}"


# Set by `autodiff`, which imports this module.
_BACKWARD: list[Callable[[RecurrentTensor], Backward]] = []


def register_backward(rule: Callable[[RecurrentTensor], Backward]) -> None:
    """Register the function that implements `x.backward()`."""
    _BACKWARD[:] = [rule]


@list_public(
    hidden="at ctx floating given is_plain named named_if_new op rank read settled subset type"
)
@explain_method_errors
class RecurrentTensor(Past, Rearranged, Fixed):
    """Tensor that varies over symbolic dimensions.

    It has a shape (its axes), a dtype, and a domain (its symbolic dimensions). Printing it shows all three:
    `f32[4] @ (b, t)` has one axis of size 4 and one value for each b and each t. Tensors are immutable and have
    no values while a program is written; `ctx.output` returns values from a run. Operators and methods follow
    NumPy's rules for broadcasting and type promotion.

    An index in brackets selects points of the domain: `x[t - 1]` is the previous value, `x[0:t + 1]` the history
    as a new leading axis, `x[t > 0]` the values at the points that satisfy a condition.

    Example:
        >>> r = trl.data(np.ones((3, 8), "f4"), domain=(b, t))
        >>> r
        f32[] @ (b, t)
        >>> r[b, t:T].discounted_sum(0.99)
        f32[] @ (b, t)
        >>> r.mean(over=b)
        f32[] @ (t)
    """

    _KIND, _WORDS, _ERROR = "a recurrent tensor", TENSOR, ShapeError
    _OWN = frozenset({"ctx", "read"})

    def __init__(self, ctx: Context, read: Read) -> None:
        self.ctx = ctx
        self.read = read

    # --- type and name ------------------------------------------------------------------------

    @property
    def op(self) -> Op:
        """The operation that computes the tensor."""
        return self.ctx[self.read.source]

    @property
    def type(self) -> TensorType:
        """Shape and element type.

        Raises:
            ShapeError: a read inside the index has values of different lengths.
        """
        try:
            return read_type(self.op.outputs[self.read.out], self.read)
        except TypeRuleError as error:
            raise ShapeError(
                f"{error}.", hint="reduce the shorter slice first, so that all values are alike."
            ) from None

    @property
    def shape(self) -> Shape:
        """Sizes of the axes, without symbolic dimensions; a size may be an index expression.

        Example:
            >>> x = trl.data(np.ones((8, 4), "f4"), domain=t)
            >>> x.shape
            (4,)
            >>> x[t:T].shape
            (T - t, 4)
        """
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Short name of the element type, such as "f32".

        Example:
            >>> trl.zeros(3).dtype
            'f32'
        """
        return self.type.dtype

    @property
    def rank(self) -> int:
        """Number of axes, without symbolic dimensions.

        Example:
            >>> trl.zeros((3, 4)).rank
            2
        """
        return len(self.shape)

    @property
    def domain(self) -> Domain:
        """Names of the symbolic dimensions that the tensor varies over, in the context's order.

        Example:
            >>> trl.data(np.ones((8, 4), "f4"), domain=t).domain
            ('t',)
        """
        return self.ctx.space.ordered(read_symbols(self.read))

    @property
    def name(self) -> str:
        """Name in pictures and error messages: the given name, or `%` and the operation's number.

        Example:
            >>> trl.zeros(3).named("start").name
            'start'
        """
        return self.op.label or f"%{self.op.id}"

    @property
    def next(self) -> RecurrentTensor:
        """The value of a parameter after its update; defined for parameters only (`Parameter.next`).

        Raises:
            DomainError: the tensor is not a parameter.
        """
        raise DomainError(
            f"{self.name} is not a parameter: only a parameter has a next value.",
            others={"it is made at": self.op.origin},
            hint="index it, as in x[i + 1]; p.next[i + 1] is p after the update of iteration i + 1.",
        )

    def named(self, label: str) -> RecurrentTensor:
        """Set the name that pictures and errors show, and return the tensor.

        Args:
            label: the name.

        Returns:
            the same tensor.

        Raises:
            DomainError: `label` is not a string, or contains control characters.

        Example:
            >>> trl.zeros(3).named("start").name
            'start'
        """
        self.ctx.set_label(self.read.source, label)
        return self

    def named_if_new(self, label: str) -> RecurrentTensor:
        """Set the name unless the tensor already has one, and return the tensor."""
        return self if self.op.label else self.named(label)

    @property
    def subset(self) -> Cond:
        """Condition on the domain under which the tensor is defined; TRUE unless the tensor is conditional."""
        return subset_of(self.ctx.__getitem__, self.read)

    def __repr__(self) -> str:
        where = "" if self.subset is TRUE else f" where {self.subset}"
        return f"{self.type} @ ({', '.join(self.domain)}){where}"

    def __bool__(self) -> bool:
        raise ShapeError(
            "a recurrent tensor has no truth value while the program is written.",
            hint="write trl.where(condition, x, y) instead of if; & | ~ instead of and, or, not; "
            "(a < b) & (b < c) instead of a < b < c; trl.min, trl.max and x.round() instead of Python's functions.",
        )

    def _as_tensor(self) -> str:
        return "x"

    def __round__(self, digits: int | None = None) -> RecurrentTensor:
        if digits:
            raise ShapeError(
                f"a tensor ({self}) is rounded to integers only.",
                hint="scale it: (x * 100).round() / 100.",
            )
        return self.round()

    def __floor__(self) -> RecurrentTensor:
        return self.floor()

    def __ceil__(self) -> RecurrentTensor:
        return self.ceil()

    # --- symbolic indexing -------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Condition):
            return self.given(as_cond(self.ctx, key))
        fewer(self.name, self.domain, self.rank, key if isinstance(key, tuple) else (key,))
        return self.at(parse(self.ctx, self.ctx.space, self.domain, key, self.name))

    def at(self, entries: Mapping[str, Entry]) -> RecurrentTensor:
        """Return the tensor, read at other index expressions along some dimensions.

        Args:
            entries: an index expression or slice for each dimension that changes.
        """
        domain = self.domain
        index = tuple(entries.get(d, sym(d)) for d in domain)
        if is_own(index, domain):
            return self
        composed = compose(Read(-1, 0, index), domain, self.read)
        if composed is None:
            return self.settled().at(entries)
        return RecurrentTensor(self.ctx, composed)

    def given(self, cond: Cond) -> RecurrentTensor:
        """Return the tensor restricted to the points that satisfy a condition: `x[cond]`.

        Operations on the result run at the points where all their operands are defined. `over=` reduces over
        these points only. An output returns their values together with their coordinates.

        Raises:
            DomainError: the condition is false at every point.
        """
        if cond is TRUE:
            return self
        if cond is FALSE:
            raise DomainError(
                f"{self.name} is indexed with a condition that never holds: it would have no points.",
                hint="check the comparison; symbols start at 0 and end before their bound.",
            )
        never(self.ctx.space, self.domain, cond, f"{self.name}: the condition")
        return _add(self.ctx, "copy", [self], NO_ATTRS, label=self.op.label, where=cond)

    def otherwise(self, value: Any) -> RecurrentTensor:
        """Return the tensor with `value` at the points where it is undefined.

        Args:
            value: a number or tensor of the same dtype, broadcast to the shape; it may vary over the tensor's
                domain only.

        Raises:
            ShapeError: `value` has another dtype, or does not broadcast to the shape.
            DomainError: `value` varies over a dimension that the tensor does not vary over.

        Example:
            >>> x = trl.data(np.arange(8.0, dtype="f4"), domain=t)
            >>> x[t > 2]
            f32[] @ (t) where t >= 3
            >>> x[t > 2].otherwise(0.0)
            f32[] @ (t)
        """
        if self.subset is TRUE:
            return self
        x = self if self.is_plain() else self.settled()
        fill = broadcast_to(operand(self.ctx, value, like=self.dtype), self.shape)
        if fill.dtype != self.dtype:
            raise ShapeError(
                f"{self.name} is {self.type}, but {value!r} is {fill.dtype}.",
                hint=f'cast the value: trl.constant(value, "{self.dtype}").',
            )
        extra = [d for d in fill.domain if d not in self.domain]
        if extra:
            raise DomainError(
                f"the value varies over {', '.join(extra)}, but {self.name} does not.",
                hint="index the value at a point, or reduce it.",
            )
        fill = fill if fill.is_plain() else fill.settled()
        return select_where(x, self.subset, self.domain, fill)

    def _select_where(self, cond: Cond, elsewhere: RecurrentTensor) -> RecurrentTensor:
        symbols = {*self.domain, *elsewhere.domain, *cond.symbols}
        return select_where(self, cond, self.ctx.space.ordered(symbols), elsewhere)

    def settled(self) -> RecurrentTensor:
        """Return the tensor as the output of an operation at the current point, copying it if it is indexed."""
        output = self.op.outputs[self.read.out]
        if at_own_point(self.read.source, output, self.read.out) == self.read:
            return self
        return elementwise("copy", [self])

    def _open_merge(self) -> Op:
        """Return the operation of a tensor that accepts branches.

        Raises:
            BranchError: the tensor is not defined by branches, or is a parameter.
        """
        op = self.op
        if op.kind != "merge" or self.read != at_own_point(op.id, op.outputs[0]):
            raise BranchError(
                f"{self.name} is not a tensor defined by branches.",
                others={"it is made at": op.origin},
                hint="create it with trl.tensor(...) or trl.like(...), then assign its branches.",
            )
        if op.id in self.ctx.parameters:
            raise BranchError(
                "a parameter changes through its update only.",
                hint="use an optimiser, or p.update(next_value).",
            )
        return op

    def __setitem__(self, key: Any, value: Any) -> None:
        op = self._open_merge()
        branch, against = _unify_sizes(operand(self.ctx, value, like=self.dtype), self.shape)
        if branch.dtype != self.dtype or not same_shape(branch.shape, self.shape):
            raise ShapeError(
                f"{self.name} is {self.type}, but this branch is {branch.type}.",
                others={f"{self.name} is made at": op.origin},
                evidence=against or (),
                hint="make the branch's shape and dtype those of the tensor."
                + _scalar_branch_hint(branch.shape, self.shape),
            )
        self.ctx.assign_branch(op.id, assigned_branch(self, key, branch))

    # --- arithmetic --------------------------------------------------------------------------

    def _apply_binary(self, kind: str, other: Any, *, swap: bool = False) -> RecurrentTensor:
        try:
            rhs = as_tensor(self.ctx, other, like=_weak(kind, self.dtype, [other]))
        except TypeError:
            if type(other).__module__ in ("builtins", "numpy") and not (
                other is None and kind in ("eq", "ne")
            ):
                operand(self.ctx, other, like=self.dtype)  # raises a specific error
            return NotImplemented  # Python tries the other operand's operator, or raises
        return elementwise(kind, [rhs, self] if swap else [self, rhs])

    def _map(self, kind: str, *others: Any) -> RecurrentTensor:
        return elementwise(kind, [self, *others])

    def detach(self) -> RecurrentTensor:
        """Return the same values; gradients do not flow through them.

        Example:
            >>> w = trl.parameter((2,), name="w")
            >>> (w * w.detach()).sum().backward()
            gradients of 1 parameter
        """
        return elementwise("detach", [self])

    def checkpoint(self, path: str | PathLike[str]) -> None:
        """Save the tensor at every point where it is defined.

        Args:
            path: the folder. The value at iteration 9 of dimension i is saved as `i=9.safetensors`.

        Raises:
            DomainError: `path` is not a path, or another checkpoint writes to the same folder.

        Example:
            >>> w = trl.parameter((2,), domain=i, name="w")
            >>> w[i == I - 1].checkpoint("runs/first")
        """
        x = self if self.is_plain() else self.settled()
        target, origin = folder(path), user_origin()

        def write() -> None:  # deferred: the tensor may be named later
            self.ctx.add_sink([self.op.label or "value"], [x.read], target, TRUE, origin)

        self.ctx.at_end(write)

    def backward(self) -> Backward:
        """Add the gradient of the sum of this tensor over all its points to each parameter's `grad`.

        Returns:
            a report: the number of parameters, and the dimensions over which gradients are summed.

        Raises:
            GradientError: the tensor depends on no parameter.

        Example:
            >>> w = trl.parameter((2,), domain=i, name="w")
            >>> w.square().sum().backward()
            gradients of 1 parameter
            >>> w.grad
            f32[2] @ (i)
        """
        return _BACKWARD[0](self)

    def cast(self, dtype: Any) -> RecurrentTensor:
        """Convert the elements to another type.

        `cast` and `astype` are the same method.

        Args:
            dtype: "f32", "i32", "bool", `float`, `np.int32` and so on.

        Raises:
            ShapeError: there is no such element type.

        Example:
            >>> trl.arange(3).cast("f32")
            f32[3] @ ()
        """
        name = element_type(dtype)
        return self if name == self.dtype else _add(self.ctx, "cast", [self], CastAttrs(name))

    astype = cast

    def floating(self) -> RecurrentTensor:
        """Convert integers and booleans to float32; leave floating-point tensors unchanged.

        Example:
            >>> trl.arange(3).floating()
            f32[3] @ ()
        """
        return self if is_float(self.dtype) else self.cast("f32")

    # --- reductions and scans ----------------------------------------------------------------

    def sum(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> RecurrentTensor:
        """Sum over symbolic dimensions or over axes.

        Booleans and integers of 8 or 16 bits are summed as int32.

        Args:
            over: one or several symbolic dimensions.
            axis: one or several axes; all axes by default.
            keepdims: keep the reduced axes with size 1.

        Raises:
            ShapeError: both `over` and `axis` are given, or an axis does not exist.
            DomainError: the tensor does not vary over a dimension in `over`.

        Example:
            >>> x = trl.data(np.ones((8, 4), "f4"), domain=t)
            >>> x.sum(over=t)
            f32[4] @ ()
            >>> x.sum(axis=0)
            f32[] @ (t)
        """
        return self._apply_keepdims(self._reduce("sum", over, axis), over, axis, keepdims)

    def _cast_to_accumulator(self) -> RecurrentTensor:
        return self.cast(accumulator_type(self.dtype))

    def prod(
        self, over: Any = None, axis: Any = None, *, keepdims: bool = False
    ) -> RecurrentTensor:
        """Multiply the elements over symbolic dimensions or over axes.

        Args:
            over, axis, keepdims: as for `sum`.

        Example:
            >>> trl.constant([2.0, 3.0]).prod()  # 6
            f32[] @ ()
        """
        return self._apply_keepdims(self._reduce("prod", over, axis), over, axis, keepdims)

    def max(
        self, over: Any = None, axis: Any = None, *, initial: Any = None, keepdims: bool = False
    ) -> RecurrentTensor:
        """Return the maximum over symbolic dimensions or over axes.

        Args:
            over, axis, keepdims: as for `sum`.
            initial: a lower limit of the result, and the result of an empty reduction. Required if a slice or a
                conditional tensor may be empty; compilation fails otherwise.

        Example:
            >>> x = trl.data(np.ones(8, "f4"), domain=t)
            >>> x[0:t].max(initial=0.0)  # the slice is empty at t = 0
            f32[] @ (t)
        """
        return self._apply_keepdims(self._extreme("max", over, axis, initial), over, axis, keepdims)

    def min(
        self, over: Any = None, axis: Any = None, *, initial: Any = None, keepdims: bool = False
    ) -> RecurrentTensor:
        """Return the minimum over symbolic dimensions or over axes.

        Args:
            over, axis, keepdims: as for `sum`.
            initial: an upper limit of the result, and the result of an empty reduction.

        Example:
            >>> trl.constant([2.0, 3.0]).min()  # 2
            f32[] @ ()
        """
        return self._apply_keepdims(self._extreme("min", over, axis, initial), over, axis, keepdims)

    def _extreme(self, kind: str, over: Any, axis: Any, initial: Any) -> RecurrentTensor:
        found = self._reduce(kind, over, axis, filled=initial is None)
        return found if initial is None else found._map(f"{kind}2", initial)

    def any(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> RecurrentTensor:
        """Test whether any element of a boolean tensor is true.

        Args:
            over, axis, keepdims: as for `sum`.

        Raises:
            ShapeError: the tensor is not boolean.

        Example:
            >>> (trl.constant([2.0, 3.0]) > 2.5).any()  # True
            bool[] @ ()
        """
        found = self._boolean()._reduce("max", over, axis)
        return self._apply_keepdims(found, over, axis, keepdims)

    def all(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> RecurrentTensor:
        """Test whether all elements of a boolean tensor are true.

        Args:
            over, axis, keepdims: as for `sum`.

        Raises:
            ShapeError: the tensor is not boolean.

        Example:
            >>> (trl.constant([2.0, 3.0]) > 2.5).all()  # False
            bool[] @ ()
        """
        found = self._boolean()._reduce("min", over, axis)
        return self._apply_keepdims(found, over, axis, keepdims)

    def _boolean(self) -> RecurrentTensor:
        if self.dtype != "bool":
            raise ShapeError(
                f"any and all take booleans, not {self.type}.", hint="compare first, as in x != 0."
            )
        return self

    def mean(
        self, over: Any = None, axis: Any = None, *, initial: Any = None, keepdims: bool = False
    ) -> RecurrentTensor:
        """Return the mean over symbolic dimensions or over axes, as floating-point numbers.

        The mean of a conditional tensor over symbolic dimensions counts only the points where it is defined.

        Args:
            over, axis, keepdims: as for `sum`.
            initial: the mean of an empty reduction; required if the reduction may be empty.

        Example:
            >>> x = trl.data(np.ones((8, 4), "f4"), domain=t)
            >>> x.mean(over=t)
            f32[4] @ ()
        """
        self._warn_without_axes("mean", over, axis)
        found = self._in_full(lambda x: x._mean(over, axis, initial))
        return self._apply_keepdims(found, over, axis, keepdims)

    def _mean(self, over: Any, axis: Any, initial: Any) -> RecurrentTensor:
        total = self._reduce("sum", over, axis, filled=initial is None)
        empty = None
        for size in self._counts(over, axis):
            if initial is not None:
                none = size <= 0
                empty, size = (none if empty is None else empty | none), size._map("max2", 1)
            total = total / size.cast(total.dtype)
        return total if empty is None else empty._select(initial, total)

    def _counts(self, over: Any, axis: Any) -> Iterator[RecurrentTensor]:
        """Yield factors whose product is the number of values in a reduction."""
        names = () if over is None else self._names(over)
        guard, _ = split(self.subset, names)
        held = tuple(n for n in names if n in guard.symbols)
        if held:
            yield value_of(self.ctx, guard).sum(over=held)
        sizes = [lin(self.shape[a]) for a in self._axes(axis)] if over is None else []
        sizes += [self.ctx.space[n].size for n in names if n not in held]
        for size in sizes:
            yield value_of(self.ctx, size)

    def discounted_sum(self, gamma: float, axis: int = 0) -> RecurrentTensor:
        """Return the sum of `gamma**k * x[k]` along an axis.

        Args:
            gamma: the discount, a finite number.
            axis: the axis; by default the first, which a slice such as `r[t:T]` adds.

        Raises:
            ShapeError: `gamma` is not a finite number.

        Example:
            >>> r = trl.data(np.ones((3, 8), "f4"), domain=(b, t))
            >>> r[b, t:T].discounted_sum(0.99)  # the discounted return
            f32[] @ (b, t)
        """
        attrs = DiscountAttrs(self._axis(axis), checked_gamma(gamma))
        return _add(self.ctx, "discounted_sum", [self.floating()], attrs)

    def _apply_operation(self, kind: str, attrs: Any, *others: RecurrentTensor) -> RecurrentTensor:
        return _add(self.ctx, kind, [self, *others], attrs)

    def _operand(self, value: Any, like: DType | None = None) -> RecurrentTensor:
        return operand(self.ctx, value, like=self.dtype if like is None else like)

    def _broadcast_to(self, shape: Shape) -> RecurrentTensor:
        return broadcast_to(self, shape)

    def _concatenate(self, others: Sequence[RecurrentTensor], axis: int) -> RecurrentTensor:
        return apply("concat", [self, *others], AxisAttrs(axis))

    def _length(self, axis: int) -> RecurrentTensor:
        return value_of(self.ctx, lin(self.shape[axis]))

    def _at_all(self, over: Any) -> tuple[RecurrentTensor, tuple[int, ...]]:
        names = self._names(over)
        x = self if self.is_plain() else self.settled()
        if split(x.subset, names)[0] is not TRUE:
            raise DomainError(
                f"{self.name} is not defined at all points of {', '.join(names)}.",
                hint="x.otherwise(value) defines it there.",
            )
        return x.at({n: self.ctx.space[n].full_range for n in names}), tuple(range(len(names)))

    def _axis(self, axis: int) -> int:
        if not is_whole(axis) or not -self.rank <= axis < self.rank:
            raise ShapeError(
                f"{self.type} has no axis {axis!r}.",
                hint="count axes from 0, or backwards from -1. A symbolic dimension is not an axis: "
                "reduce it by over=, as in sum(over=t).",
            )
        return int(axis) % self.rank

    def _reduce(self, kind: str, over: Any, axis: Any, *, filled: bool = False) -> RecurrentTensor:
        """Reduce over symbolic dimensions, read as leading axes, or over axes.

        `filled` requires a proof that every reduction has at least one element.
        """
        if over is not None and axis is not None:
            raise ShapeError(
                "a reduction has both over= and axis=.",
                hint="give over= (symbolic dimensions) or axis= (axes), not both.",
            )
        x, rest = self, TRUE
        has = Filled(TRUE)
        if over is None:
            axes = self._axes(axis)
            has = Filled(all_of(TRUE, *(ge(lin(self.shape[a]), 1) for a in axes)))
        else:
            names = self._names(over)
            axes = tuple(range(len(names)))
            # Another entry's slice may contain a reduced dimension: copy first.
            x = self if self.is_plain() else self.settled()
            guard, others = split(x.subset, names)
            if guard is not TRUE:  # undefined points count as the identity
                rest = others
                has = Filled(guard, tuple(n for n in names if n in guard.symbols))
                x = x.otherwise(constant(self.ctx, identity(kind, NUMPY[x.dtype]), x.dtype))
            x = x.at({n: self.ctx.space[n].full_range for n in names})
        if not axes:
            return x._cast_to_accumulator() if kind in ("sum", "prod") else x
        proof = has if filled and has.cond is not TRUE else None
        return _add(self.ctx, kind, [x], AxesAttrs(axes, proof), where=rest)

    def _warn_without_axes(self, method: str, over: Any, axis: Any) -> None:
        if over is None and axis is None and not self.shape and self.domain:
            varying = {d for p in self.ctx.parameters.values() for d in p.domain}
            no_axes(method, str(self.type), self.domain, tuple(varying))

    def _axes(self, axis: Any) -> tuple[int, ...]:
        given: Any = range(self.rank) if axis is None else axis
        several = isinstance(given, range | tuple | list)
        axes = tuple(self._axis(a) for a in (given if several else (given,)))
        if len(set(axes)) < len(axes):
            raise ShapeError(f"an axis is named twice in {axis!r}.", hint="name each axis once.")
        return axes

    def _names(self, over: Any) -> Domain:
        names = as_dims(self.ctx, self.ctx.space, over)
        for name in names:
            if name not in self.domain:
                raise DomainError(
                    f"{self} does not vary over {name}, so it cannot be reduced over it.",
                    hint=f"it varies over ({', '.join(self.domain)}).",
                )
        return names

    def is_plain(self) -> bool:
        """Test whether all index expressions are points, without slices."""
        return all(isinstance(e, Lin) for e in self.read.index)

    # --- products and layout -------------------------------------------------------------------

    def __matmul__(self, other: Any) -> RecurrentTensor:
        """Multiply matrices, `x @ y`, as NumPy does: leading axes are batch axes, a vector loses its axis.

        Args:
            other: a matrix, a vector, or a batch of matrices.

        Raises:
            ShapeError: an operand has no axis, or the sizes differ.

        Example:
            >>> trl.matmul(trl.zeros((2, 3)), trl.zeros((3, 4)))
            f32[2,4] @ ()
        """
        rhs = operand(self.ctx, other, like=self.dtype)
        if not self.rank or not rhs.rank:
            raise ShapeError(
                f"@ takes matrices and vectors, not {self.type} and {rhs.type}.",
                hint="x * y multiplies element by element; x.unsqueeze(axis) adds an axis.",
            )
        batch = "abcdefgh"[: max(self.rank - 2, rhs.rank - 2, 0)]
        first, second = (batch[len(batch) - max(0, x.rank - 2) :] for x in (self, rhs))
        left = first + ("ij" if self.rank > 1 else "j")
        right = second + ("jk" if rhs.rank > 1 else "j")
        out = batch + "i" * (self.rank > 1) + "k" * (rhs.rank > 1)
        return dot(self, rhs, f"{left},{right}->{out}")

    def __rmatmul__(self, other: Any) -> RecurrentTensor:
        return operand(self.ctx, other, like=self.dtype) @ self

    def reshape(self, *shape: Any) -> RecurrentTensor:
        """Return the same elements in another shape.

        Args:
            shape: the sizes, separately or as a tuple. One may be -1 if all other sizes are integers.

        Raises:
            ShapeError: the numbers of elements differ, or a size is invalid.

        Example:
            >>> trl.arange(6).reshape(2, -1)
            i32[2,3] @ ()
        """
        alone = len(shape) == 1 and isinstance(shape[0], tuple | list)
        sizes: list[Any] = list(shape[0] if alone else shape)
        sizes = [as_size(s) for s in sizes]
        if not all(is_size(s) for s in sizes) or sum(s == -1 for s in sizes) > 1:
            raise ShapeError(
                f"{shape} is not a shape.", hint="give integers; at most one may be -1."
            )
        if any(isinstance(s, int) and s < -1 for s in sizes):
            raise ShapeError(
                f"{shape} has a negative size.", hint="give sizes of at least 0; one may be -1."
            )
        if -1 in sizes and all(isinstance(s, int) for s in self.shape):
            rest = prod(s for s in sizes if isinstance(s, int) and s != -1)
            total = prod(s for s in self.shape if isinstance(s, int))
            sizes[sizes.index(-1)] = total // max(rest, 1)
        return _add(self.ctx, "reshape", [self], ShapeAttrs(shape_of(sizes)))

    def unsqueeze(self, axis: int) -> RecurrentTensor:
        """Insert an axis of size 1.

        `unsqueeze` and `expand_dims` are the same method.

        Args:
            axis: the position of the new axis, from 0 to the rank, or negative from the end.

        Raises:
            ShapeError: there is no such position.

        Example:
            >>> trl.arange(3).unsqueeze(0)
            i32[1,3] @ ()
        """
        if not is_whole(axis) or not -self.rank - 1 <= axis <= self.rank:
            raise ShapeError(
                f"{self.type} has no position {axis!r} for a new axis.",
                hint=f"give an integer from {-self.rank - 1} to {self.rank}.",
            )
        at = int(axis) % (self.rank + 1)
        return self.reshape((*self.shape[:at], 1, *self.shape[at:]))

    expand_dims = unsqueeze

    def transpose(self, *perm: Any) -> RecurrentTensor:
        """Permute the axes.

        `transpose` and `permute` are the same method.

        Args:
            perm: the old axis at each new position; by default all axes in reverse order.

        Example:
            >>> trl.zeros((2, 3, 4)).transpose(0, 2, 1)
            f32[2,4,3] @ ()
        """
        perm = tuple(perm[0]) if len(perm) == 1 and isinstance(perm[0], tuple | list) else perm
        order = tuple(self._axis(a) for a in perm) if perm else tuple(reversed(range(self.rank)))
        return _add(self.ctx, "transpose", [self], PermAttrs(order))

    permute = transpose

    def expand(self, *shape: Any) -> RecurrentTensor:
        """Repeat axes of size 1 and add leading axes.

        `expand` and `broadcast_to` are the same method.

        Args:
            shape: the sizes of the result, separately or as a tuple.

        Raises:
            ShapeError: the tensor does not broadcast to the shape.

        Example:
            >>> trl.zeros(3).expand(2, 3)
            f32[2,3] @ ()
        """
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        sizes = shape_of(map(as_size, given))
        for s in sizes:
            if not is_size(s) or (isinstance(s, int) and s < 0):
                raise ShapeError(f"{s!r} is not a size.", hint="give integers of at least 0.")
        return broadcast_to(self, sizes)

    broadcast_to = expand

    def flip(self, axis: int) -> RecurrentTensor:
        """Reverse the order of the elements along an axis.

        Args:
            axis: the axis.

        Example:
            >>> trl.arange(3).flip(0)  # 2, 1, 0
            i32[3] @ ()
        """
        k = self._axis(axis)
        return _add(self.ctx, "reindex", [self], ReindexAttrs.reversed(k, self.shape[k]))

    def slice(self, lo: Any, hi: Any, axis: int = 0) -> RecurrentTensor:
        """Return the positions `lo` to `hi` - 1 of an axis.

        Args:
            lo, hi: integers or index expressions.
            axis: the axis.

        Raises:
            ShapeError: the axis does not have these positions.

        Example:
            >>> trl.arange(6).slice(1, 4)  # 1, 2, 3
            i32[3] @ ()
        """
        k, first, end = self._axis(axis), as_lin(self.ctx, lo), as_lin(self.ctx, hi)
        size = lin(self.shape[k])
        if first.is_const and end.is_const and size.is_const:
            if not 0 <= first.const <= end.const <= size.const:
                raise ShapeError(
                    f"{self.type} has no positions {lo}:{hi} along axis {k}.",
                    hint=f"axis {k} has size {size}; negative positions are not supported here.",
                )
        return _add(self.ctx, "reindex", [self], ReindexAttrs.from_range(k, first, end))

    def take(self, at: Any, axis: int = 0) -> RecurrentTensor:
        """Select positions along an axis.

        Args:
            at: an integer or index expression, which removes the axis; or integers in a tensor, list or array,
                whose axes replace the axis. Negative constants count from the end. Positions outside the axis
                give zeros, and so do negative positions in a tensor, because its values are unknown while the
                program is written.
            axis: the axis.

        Raises:
            ShapeError: a constant integer is outside the axis.

        Example:
            >>> x = trl.zeros((5, 4))
            >>> x.take(0)
            f32[4] @ ()
            >>> x.take([0, -1])
            f32[2,4] @ ()
        """
        k = self._axis(axis)
        if isinstance(at, RecurrentTensor):
            return self._gather(at, k)
        if isinstance(at, np.ndarray | list | tuple):
            made = self._operand(at, "i32")
            if (made.op.attrs.value.array < 0).any():
                made = (made < 0)._select(made + self._length(k), made)
            return self._gather(made, k)
        position = as_lin(self.ctx, at)
        if position.is_const and position.const < 0:
            position = lin(self.shape[k]) + position
        if (
            position.is_const
            and isinstance(self.shape[k], int)
            and not (0 <= position.const < lin(self.shape[k]).const)
        ):
            raise ShapeError(
                f"{self.type} has no position {at} along axis {k}.",
                hint=f"axis {k} has size {self.shape[k]}.",
            )
        return _add(self.ctx, "reindex", [self], ReindexAttrs(k, position))

    def unstack(self, axis: int = 0) -> list[RecurrentTensor]:
        """Return the slices along an axis as a list of tensors.

        Args:
            axis: an axis of integer size.

        Raises:
            ShapeError: the size is symbolic.

        Example:
            >>> x, y = trl.zeros((2, 4)).unstack()
            >>> x
            f32[4] @ ()
        """
        size = self.shape[self._axis(axis)]
        if not isinstance(size, int):
            raise ShapeError(
                f"axis {axis} of {self.type} has a symbolic size.",
                hint="unstack an axis of integer size, or let the tensor vary over the dimension.",
            )
        return [self.take(k, axis) for k in range(size)]


# --- making operations -----------------------------------------------------------------------


def _add(
    ctx: Context,
    kind: str,
    args: Sequence[RecurrentTensor],
    attrs: Any,
    *,
    label: str = "",
    where: Cond = TRUE,
) -> RecurrentTensor:
    for arg in args:
        if arg.ctx is not ctx:
            raise IndexExpressionError(
                f"{arg} belongs to another context.",
                hint="a program has one context; make the tensor inside it.",
            )
    op = ctx.add(kind, [arg.read for arg in args], attrs, label=label, where=where)
    return tensor_of(ctx, op)


def tensor_of(ctx: Context, op: Op, out: int = 0) -> RecurrentTensor:
    """Return an output of an operation as a tensor at the current point."""
    return RecurrentTensor(ctx, at_own_point(op.id, op.outputs[out], out))


def apply(kind: str, args: Sequence[RecurrentTensor], attrs: Any = NO_ATTRS) -> RecurrentTensor:
    """Add an operation of any kind on tensors of one context."""
    return _add(args[0].ctx, kind, args, attrs)


def constant(ctx: Context, value: Any, dtype: DType | None = None) -> RecurrentTensor:
    """Add a constant without symbolic dimensions."""
    array = np.asarray(value)
    kept = narrow(array) if dtype is None else exactly(array, dtype)
    warn_lost_precision(array, kept)
    return _add(ctx, "const", [], ConstAttrs(ConstArray(kept)))


def value_of(ctx: Context, e: Lin | Cond) -> RecurrentTensor:
    """Return an index expression as an int32 tensor, or a condition as a boolean tensor."""
    if isinstance(e, Lin) and e.is_const:
        return constant(ctx, np.int32(e.const))
    return _add(ctx, "value", [], ValueAttrs(e, "i32" if isinstance(e, Lin) else "bool"))


def as_tensor(ctx: Context | None, value: Any, like: DType | None = None) -> RecurrentTensor:
    """Convert an operand of arithmetic to a tensor.

    Python numbers are weak: they take the type `like` if it can represent them.

    Raises:
        TypeError: the value is not an operand of arithmetic.
    """
    if isinstance(value, RecurrentTensor):
        return value
    if ctx is None:
        ctx = current()
    if isinstance(value, Index):
        return value_of(ctx, as_lin(ctx, value))
    if isinstance(value, Condition):
        return value_of(ctx, as_cond(ctx, value))
    if isinstance(value, bool):
        return constant(ctx, np.bool_(value))
    if isinstance(value, int):
        dtype = like if like is not None and like != "bool" else "i32"
        kind = NUMPY[dtype]
        if kind.kind in "iu" and not _fits(value, dtype):
            raise ShapeError(
                f"{value} does not fit into {kind.name}.",
                hint='cast the tensor first, as in x.cast("i32"), or write a float.',
            )
        if kind.kind not in "iu" and abs(value) >= 2**63:  # NumPy would create an object array
            return as_tensor(ctx, _as_float(value), dtype)
        return constant(ctx, value, dtype)
    if isinstance(value, float):
        return constant(ctx, value, like if like is not None and is_float(like) else "f32")
    if isinstance(value, str) or value is None or callable(value):
        raise TypeError(f"{type(value).__name__} is no tensor")
    try:
        return constant(ctx, host_array(value))
    except (TypeError, ValueError):
        raise TypeError(f"{type(value).__name__} is no tensor") from None
    except OverflowError:
        raise ShapeError(
            "an array has integers that do not fit into 32 bits.",
            hint='write trl.constant(array, dtype="i64") if the backend has 64-bit types, or use floats.',
        ) from None


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ShapeError(
            f"an integer of {value.bit_length():,} bits does not fit into a float.",
            hint="scale the integer.",
        ) from None


def operand(ctx: Context | None, value: Any, like: DType | None = None) -> RecurrentTensor:
    """Convert an argument to a tensor, as `as_tensor` does, with a `ShapeError` in place of the TypeError."""
    try:
        return as_tensor(ctx, value, like)
    except TypeError:
        raise ShapeError(
            f"{value!r} is not a tensor.", hint="give a tensor, a number, an array or an index."
        ) from None


def _weak(kind: str, dtype: DType, values: Sequence[Any]) -> DType:
    """Return the type of Python numbers combined with tensors of type `dtype`.

    Comparisons with integers of few bits accept numbers outside their range.
    """
    if kind in ("eq", "ne", "lt", "le") and dtype in ("i8", "u8", "i16"):
        if any(isinstance(x, int) and not _fits(x, dtype) for x in values):
            return "i32"
    return dtype


def _fits(value: int, dtype: DType) -> bool:
    return np.iinfo(NUMPY[dtype]).min <= value <= np.iinfo(NUMPY[dtype]).max


def elementwise(kind: str, args: Sequence[Any]) -> RecurrentTensor:
    """Add an elementwise operation, with NumPy's broadcasting and type promotion."""
    ctx = next((a.ctx for a in args if isinstance(a, RecurrentTensor)), None)
    known = [a.dtype for a in args if isinstance(a, RecurrentTensor)]
    like = _weak(kind, promote(known), args) if known else None
    xs = [operand(ctx, a, like) for a in args]
    values = xs[1:] if kind == "where" else xs
    if len(values) > 1:
        common = promote(x.dtype for x in values)
        if kind == "div" and not is_float(common):
            common = "f32"
        xs = [*xs[: len(xs) - len(values)], *(x.cast(common) for x in values)]
    if kind in ("floordiv", "mod") and xs[1].op.kind == "const":
        zero_divisor(kind, xs[1].op.attrs.value.array)
    rank = max(x.rank for x in xs)
    xs = [_lead(x, rank) for x in xs]
    return apply(kind, xs)


def _lead(x: RecurrentTensor, rank: int) -> RecurrentTensor:
    if x.rank in (0, rank):  # scalars broadcast to every rank
        return x
    return x.reshape((*(1,) * (rank - x.rank), *x.shape))


def _scalar_branch_hint(given: Shape, shape: Shape) -> str:
    """Return how to repeat a scalar over the shape of a tensor; empty for other branches."""
    if given or not shape:
        return ""
    sizes = str(shape[0]) if len(shape) == 1 else f"({', '.join(map(str, shape))})"
    return f" For a number, write trl.zeros({sizes}) or trl.full({sizes}, value); x.expand({sizes}) repeats a scalar tensor x."


def _unify_sizes(x: RecurrentTensor, shape: Shape) -> tuple[RecurrentTensor, str]:
    """Rewrite the sizes of `x` as those of `shape` if they are provably equal; else return the counterexample."""
    if x.rank != len(shape):
        return x, ""
    pairs = [(a, b) for a, b in zip(shape, x.shape, strict=True) if not same_size(a, b)]
    (read,), against = x.ctx.with_sizes([x.read], pairs, x.subset)
    return RecurrentTensor(x.ctx, read), against


def select_where(
    x: RecurrentTensor, cond: Cond, domain: Domain, elsewhere: RecurrentTensor
) -> RecurrentTensor:
    """Return a tensor over `domain`: `x` at the points that satisfy the condition, `elsewhere` at the others."""
    merge = x.ctx.add_guarded(x.read, cond, elsewhere.read, domain)
    return tensor_of(x.ctx, merge)


def broadcast_to(x: RecurrentTensor, shape: Shape) -> RecurrentTensor:
    """Repeat axes of size 1 and add leading axes up to `shape`."""
    if same_shape(x.shape, shape):
        return x
    return apply("expand", [_lead(x, len(shape))], ShapeAttrs(shape))


def dot(left: RecurrentTensor, right: RecurrentTensor, spec: str) -> RecurrentTensor:
    """Contract two tensors by an einsum specification with one letter per axis."""
    inputs, out = spec.split("->")
    a, b = inputs.split(",")
    common = promote((left.dtype, right.dtype))
    return apply("dot", [left.cast(common), right.cast(common)], DotAttrs(a, b, out))
