"""Methods of tensors along an axis: sorting, scans, positions, statistics.

Made of the primitives that `RecurrentTensor` provides; most are compositions that a user could write.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from math import prod
from typing import Any, Self

import numpy as np

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.operation_attributes import (
    NO_ATTRS,
    AxisAttrs,
    GatherAttrs,
    ScanAttrs,
    ScatterAttrs,
    SetAttrs,
    SlidingAttrs,
    SortAttrs,
)
from timerl_nb.compiler.ir.shapes import HALF, Shape, TensorType, is_integer, promote
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.operations.elementwise import Arithmetic

LABELS = "abcdefghijklmnopqrs"  # of axes; vectorisation takes other letters first


class AxisOps(Arithmetic):
    """What runs along one axis, or reduces in more than one step."""

    # --- what a tensor provides ----------------------------------------------------------------

    @property
    @abstractmethod
    def type(self) -> TensorType: ...

    @property
    @abstractmethod
    def shape(self) -> Shape: ...

    @property
    @abstractmethod
    def rank(self) -> int: ...

    @abstractmethod
    def _axis(self, axis: int) -> int: ...

    @abstractmethod
    def _axes(self, axis: Any) -> tuple[int, ...]: ...

    @abstractmethod
    def _apply_operation(self, kind: str, attrs: Any, *others: Self) -> Self:
        """An operation on this and other tensors."""

    @abstractmethod
    def _cast_to_accumulator(self) -> Self:
        """This in the element type that sums are in."""

    @abstractmethod
    def _broadcast_to(self, shape: Shape) -> Self:
        """This repeated up to the shape."""

    @abstractmethod
    def sum(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self: ...

    @abstractmethod
    def mean(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self: ...

    @abstractmethod
    def _reduce(self, kind: str, over: Any, axis: Any) -> Self:
        """A reduction that says nothing about axes without elements."""

    @abstractmethod
    def reshape(self, *shape: Any) -> Self: ...

    @abstractmethod
    def cast(self, dtype: Any) -> Self: ...

    @abstractmethod
    def slice(self, lo: Any, hi: Any, axis: int = 0) -> Self: ...

    # --- order -----------------------------------------------------------------------------------

    def argmax(self, axis: int = -1, *, keepdims: bool = False) -> Self:
        """The first position of the greatest element along an axis, as int32."""
        return self._first_position("argmax", axis, keepdims)

    def argmin(self, axis: int = -1, *, keepdims: bool = False) -> Self:
        """The first position of the least element along an axis, as int32."""
        return self._first_position("argmin", axis, keepdims)

    def _first_position(self, kind: str, axis: int, keepdims: bool) -> Self:
        found = self._apply_operation(kind, AxisAttrs(self._axis(axis)))
        return self._apply_keepdims(found, None, axis, keepdims)

    def argsort(self, axis: int = -1, *, descending: bool = False) -> Self:
        """The positions in order of their elements, as int32; equal ones stay in order, NaNs last."""
        return self._apply_operation("argsort", SortAttrs(self._axis(axis), bool(descending)))

    def sort(self, axis: int = -1, *, descending: bool = False) -> Self:
        """The elements along an axis in order; NaNs last."""
        return self.take_along(self.argsort(axis, descending=descending), axis)

    def topk(self, k: int, axis: int = -1) -> tuple[Self, Self]:
        """The k greatest elements along an axis, greatest first, and their positions."""
        size, k = self.shape[self._axis(axis)], integer("k", k, least=1)
        if not isinstance(size, int) or k > size:
            raise ShapeError(
                f"{self.type} may have fewer than {k} elements along axis {axis}.",
                hint="take at most as many as its size, which must be an integer.",
            )
        at = self.argsort(axis, descending=True).slice(0, k, self._axis(axis))
        return self.take_along(at, axis), at

    # --- positions -------------------------------------------------------------------------------

    def take_along(self, at: Any, axis: int = -1) -> Self:
        """The elements at the positions `at` of an axis, one for each position.

        Args:
            at: integers of this tensor's shape, but for `axis`, which may have any length.

        Positions beyond the axis, and negative ones, yield zeros.
        """
        at, k = self._operand(at, "i32"), self._axis(axis)
        _expect_positions(at)
        if _are_apart(_drop_axis(at.shape, k), _drop_axis(self.shape, k)):
            raise ShapeError(
                f"positions {at.type} do not go with {self.type} along axis {k}.",
                hint="their shapes must agree but for the axis; x.take(at, axis) picks the same "
                "positions everywhere.",
            )
        labels = LABELS[: self.rank]
        placed = labels.replace(labels[k], LABELS[self.rank])
        return self._apply_operation("gather", GatherAttrs(labels, placed, placed, labels[k]), at)

    def _gather(self, at: Any, k: int) -> Self:
        _expect_positions(at)
        labels = LABELS[: self.rank]
        own = LABELS[self.rank : self.rank + at.rank]
        out = labels[:k] + own + labels[k + 1 :]
        return self._apply_operation("gather", GatherAttrs(labels, own, out, labels[k]), at)

    def put_add(self, at: Any, values: Any, axis: int = 0) -> Self:
        """This tensor with `values` added at positions of an axis; those named twice add up.

        Args:
            at: integers; positions beyond the axis, and negative ones, are left out.
            values: of this tensor's shape, with the axes of `at` in place of `axis`; or broadcast.
        """
        at, k = self._operand(at, "i32"), self._axis(axis)
        _expect_positions(at)
        values = self._operand(values)
        shape = (*self.shape[:k], *at.shape, *self.shape[k + 1 :])
        ones = (1,) * max(0, len(shape) - values.rank)
        if _are_apart((*ones, *values.shape), shape, repeated=True):
            raise ShapeError(
                f"values {values.type} cannot be added to {self.type} at positions {at.type}.",
                hint=f"their shape must be ({', '.join(map(str, shape))}), or broadcast to it.",
            )
        labels = LABELS[: self.rank]
        own = LABELS[self.rank : self.rank + at.rank]
        placed = labels[:k] + own + labels[k + 1 :]
        attrs = ScatterAttrs(placed, own, labels, labels[k], self.shape[k])
        return self + values.cast(self.dtype)._broadcast_to(shape)._apply_operation(
            "scatter_add", attrs, at
        )

    def put(self, at: Any, value: Any, axis: int = 0) -> Self:
        """This tensor with what is at positions of an axis replaced; of one named twice the last counts.

        Args:
            at: integers, whose last axis is the fastest; positions beyond the axis, and negative ones,
                are left out.
            value: of this tensor's shape, with the axes of `at` in place of `axis`; or broadcast.
        """
        at, k = self._operand(at, "i32"), self._axis(axis)
        _expect_positions(at)
        new = self._operand(value)
        shape = (*self.shape[:k], *at.shape, *self.shape[k + 1 :])
        ones = (1,) * max(0, len(shape) - new.rank)
        if _are_apart((*ones, *new.shape), shape, repeated=True):
            raise ShapeError(
                f"{new.type} does not replace positions {at.type} of {self.type}.",
                hint=f"its shape must be ({', '.join(map(str, shape))}), or broadcast to it.",
            )
        if not at.rank:  # one is found by comparing
            new = new._broadcast_to(shape) if new.rank else new
            new = new.reshape((*new.shape[:k], 1, *new.shape[k:])) if new.rank else new
            return (self._positions(k) == at)._select(new.cast(self.dtype), self)
        labels = LABELS[: self.rank]
        own = LABELS[self.rank : self.rank + at.rank]
        placed = labels[:k] + own + labels[k + 1 :]
        attrs = SetAttrs(placed, own, labels, labels[k])
        return self._apply_operation(
            "scatter_set", attrs, new.cast(self.dtype)._broadcast_to(shape), at
        )

    def _positions(self, axis: int, *, reverse: bool = False) -> Self:
        """0, 1, 2, … along an axis, from its far end where `reverse`; the others have size 1."""
        size = self.shape[axis]
        if isinstance(size, int):
            at = np.arange(size, dtype=np.int32)
            return self._operand(
                (at[::-1] if reverse else at).reshape(
                    [-1 if k == axis else 1 for k in range(self.rank)]
                )
            )
        along = tuple(s if k == axis else 1 for k, s in enumerate(self.shape))
        return self._operand(np.int32(1))._broadcast_to(along).cumsum(axis, reverse=reverse) - 1

    # --- layout ----------------------------------------------------------------------------------

    def squeeze(self, axis: int | None = None) -> Self:
        """Without an axis of size 1; without all of them by default."""
        if axis is None:
            return self.reshape(tuple(s for s in self.shape if s != 1))
        k = self._axis(axis)
        if self.shape[k] != 1:
            raise ShapeError(f"axis {axis} of {self.type} has not size 1.")
        return self.reshape(_drop_axis(self.shape, k))

    def flatten(self, start: int = 0) -> Self:
        """The axes from `start` on as one."""
        k = self._axis(start) if self.rank else 0
        sizes = [s for s in self.shape[k:] if isinstance(s, int)]
        if len(sizes) < self.rank - k:
            raise ShapeError(f"axes of symbolic length cannot be joined: {self.type}.")
        return self.reshape((*self.shape[:k], prod(sizes)))

    # --- scans -----------------------------------------------------------------------------------

    def cumsum(self, axis: int = 0, *, reverse: bool = False, ordered: bool = False) -> Self:
        """The running sum along an axis, from its far end where `reverse`.

        `ordered` adds one element after the other on every device, so that sums of what is not negative never fall.
        """
        x = self._cast_to_accumulator()
        if ordered:
            attrs = ScanAttrs(x._axis(axis), bool(reverse), ordered=True)
            return (
                x._operand(1, x.dtype)
                ._broadcast_to(x.shape)
                ._apply_operation("linear_scan", attrs, x)
            )
        return x._apply_operation(
            "sliding_sum", SlidingAttrs(self._axis(axis), 1.0, None, bool(reverse))
        )

    def cumprod(self, axis: int = 0, *, reverse: bool = False) -> Self:
        """The running product along an axis, from its far end where `reverse`."""
        x, k = self._cast_to_accumulator(), self._axis(axis)
        first = x._positions(k, reverse=reverse) == 0
        return x._apply_operation("linear_scan", ScanAttrs(k, bool(reverse)), first._select(x, 0))

    def cummax(self, axis: int = 0, *, reverse: bool = False) -> Self:
        """The greatest element so far along an axis; its gradient goes to the last such element."""
        return self._scan("max", axis, reverse)

    def cummin(self, axis: int = 0, *, reverse: bool = False) -> Self:
        """The least element so far along an axis; its gradient goes to the last such element."""
        return self._scan("min", axis, reverse)

    def _scan(self, reduce: str, axis: int, reverse: bool) -> Self:
        attrs = SlidingAttrs(self._axis(axis), 1.0, None, bool(reverse))
        return self._apply_operation(f"sliding_{reduce}", attrs)

    def linear_scan(self, factor: Any, axis: int = 0, *, reverse: bool = False) -> Self:
        """y[k] = factor[k] * y[k - 1] + x[k] along an axis; y[k + 1] where `reverse`.

        A discounted sum whose discount varies: `r.linear_scan(0.99 * alive, reverse=True)`. The
        first factor is not used. A factor of 0 starts anew, whatever came before: NaN and infinity
        stay in their episode.
        """
        x = self.floating()
        factor = x._operand(factor)
        ones = (1,) * max(0, x.rank - factor.rank)
        if _are_apart((*ones, *factor.shape), x.shape, repeated=True):
            raise ShapeError(f"factors {factor.type} do not go with {x.type}.")
        attrs = ScanAttrs(x._axis(axis), bool(reverse), restarts=True)
        common = promote((x.dtype, factor.dtype))
        return (
            factor.cast(common)
            ._broadcast_to(x.shape)
            ._apply_operation("linear_scan", attrs, x.cast(common))
        )

    def orthonormal(self) -> Self:
        """The columns of the matrix in the last two axes made orthonormal, from left to right.

        What is left of a column without those before it keeps its direction. There must be as many
        rows as columns; where the columns depend on each other, the result is any such basis.
        """
        return self._apply_operation("orthonormal", NO_ATTRS)

    def _ones(self) -> Self:
        return self._operand(np.int32(1))._broadcast_to(self.shape)

    # --- statistics ------------------------------------------------------------------------------

    def var(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """The mean squared distance from the mean, over dimensions or axes (all by default)."""

        def in_full(x: Self) -> Self:
            apart = (x - x._restore_reduced_axes(x.mean(over, axis), over, axis)).square()
            return apart.mean(over, axis, keepdims=keepdims)

        return self._in_full(in_full)

    def std(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """The square root of the variance; its derivative is 0 where the variance is."""
        return self._in_full(lambda x: _root(x.var(over, axis, keepdims=keepdims)))

    def norm(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """The Euclidean length over dimensions or axes; its derivative at 0 is 0."""
        return self._in_full(lambda x: _root(x.square().sum(over, axis, keepdims=keepdims)))

    def _in_full(self, f: Callable[[Self], Any]) -> Self:
        """What `f` makes of floating-point numbers; halves are rounded once, at the end."""
        return f(self.cast("f32")).cast(self.dtype) if self.dtype in HALF else f(self.floating())

    def logsumexp(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """log(sum(e**x)) over dimensions or axes, without overflow."""

        def in_full(x: Self) -> Self:
            most = x._reduce("max", over, axis).detach()
            most = most.isfinite()._select(most, 0.0)  # -inf - -inf is no number
            found = (x - x._restore_reduced_axes(most, over, axis)).exp().sum(
                over, axis
            ).log() + most
            return x._apply_keepdims(found, over, axis, keepdims)

        return self._in_full(in_full)

    def log_softmax(self, axis: Any = -1, *, over: Any = None) -> Self:
        """x - logsumexp(x) along an axis, or over symbolic dimensions."""
        axis = None if over is not None else axis
        return self._in_full(
            lambda x: x - x._restore_reduced_axes(x.logsumexp(over, axis), over, axis)
        )

    def softmax(self, axis: Any = -1, *, over: Any = None) -> Self:
        """e**x / sum(e**x) along an axis, or over symbolic dimensions."""
        axis = None if over is not None else axis

        def in_full(x: Self) -> Self:
            e = (
                x - x._restore_reduced_axes(x._reduce("max", over, axis).detach(), over, axis)
            ).exp()
            return e / e._restore_reduced_axes(e.sum(over, axis), over, axis)

        return self._in_full(in_full)

    def _apply_keepdims(self, reduced: Any, over: Any, axis: Any, keepdims: bool) -> Any:
        """What was reduced from this, with axes of size 1 for those that went if `keepdims`."""
        if not keepdims:
            return reduced
        if over is not None:
            raise ShapeError(
                "keepdims=True keeps axes, but over= reduces symbolic dimensions.",
                hint="leave keepdims out: what was reduced meets what was not as it is.",
            )
        return self._restore_reduced_axes(reduced, over, axis)

    def _restore_reduced_axes(self, reduced: Self, over: Any, axis: Any) -> Self:
        """What was reduced from this, with its axes back as axes of size 1."""
        if over is not None:
            return reduced
        axes = self._axes(axis)
        return reduced.reshape(tuple(1 if k in axes else s for k, s in enumerate(self.shape)))


def _root(squares: Any) -> Any:
    none = squares <= 0.0  # NaN is not
    return none._select(0.0, none._select(1.0, squares).sqrt())


def _drop_axis(shape: Shape, k: int) -> Shape:
    return (*shape[:k], *shape[k + 1 :])


def _are_apart(shape: Shape, other: Shape, *, repeated: bool = False) -> bool:
    """Whether shapes differ whatever their symbols are; sizes of 1 may be `repeated`."""
    if len(shape) != len(other):
        return True
    pairs = zip(shape, other, strict=True)
    return any(
        isinstance(a, int) and isinstance(b, int) and a != b and not (repeated and a == 1)
        for a, b in pairs
    )


def _expect_positions(at: Any) -> None:
    if not is_integer(at.dtype):
        raise ShapeError(f"positions must be integers, not {at.type}.")
