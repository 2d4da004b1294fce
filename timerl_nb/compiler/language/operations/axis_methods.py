"""Tensor methods along an axis: sorting, indexing, scans, statistics.

They are compositions of the primitives that `RecurrentTensor` implements.
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

LABELS = "abcdefghijklmnopqrs"  # einsum letters of axes; vectorisation uses the others


class AxisOps(Arithmetic):
    """Tensor methods that run along one axis, or reduce in several steps."""

    # --- primitives, implemented by `RecurrentTensor` ------------------------------------------

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
        """Add an operation on this and other tensors."""

    @abstractmethod
    def _cast_to_accumulator(self) -> Self:
        """Cast to the element type of sums."""

    @abstractmethod
    def _broadcast_to(self, shape: Shape) -> Self:
        """Repeat axes of size 1 up to the shape."""
        pass

    @abstractmethod
    def sum(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self: ...

    @abstractmethod
    def mean(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self: ...

    @abstractmethod
    def _reduce(self, kind: str, over: Any, axis: Any) -> Self:
        """Reduce without a check for axes of size 0."""

    @abstractmethod
    def _warn_without_axes(self, method: str, over: Any, axis: Any) -> None:
        """Warn about a user's average over all axes of a tensor that has none."""

    @abstractmethod
    def reshape(self, *shape: Any) -> Self: ...

    @abstractmethod
    def cast(self, dtype: Any) -> Self: ...

    @abstractmethod
    def slice(self, lo: Any, hi: Any, axis: int = 0) -> Self: ...

    # --- sorting ---------------------------------------------------------------------------------

    def argmax(self, axis: int = -1, *, keepdims: bool = False) -> Self:
        """Return the first position of the maximum along an axis, as int32.

        Args:
            axis: the axis.
            keepdims: keep the axis with size 1.

        Example:
            >>> trl.argmax(trl.constant([2.0, 5.0, 5.0]))  # 1
            i32[] @ ()
        """
        return self._first_position("argmax", axis, keepdims)

    def argmin(self, axis: int = -1, *, keepdims: bool = False) -> Self:
        """Return the first position of the minimum along an axis, as int32.

        Args:
            axis: the axis.
            keepdims: keep the axis with size 1.

        Example:
            >>> trl.argmin(trl.constant([2.0, 5.0, 1.0]))  # 2
            i32[] @ ()
        """
        return self._first_position("argmin", axis, keepdims)

    def _first_position(self, kind: str, axis: int, keepdims: bool) -> Self:
        found = self._apply_operation(kind, AxisAttrs(self._axis(axis)))
        return self._apply_keepdims(found, None, axis, keepdims)

    def argsort(self, axis: int = -1, *, descending: bool = False) -> Self:
        """Return the positions that sort the elements along an axis, as int32.

        The sort is stable; NaNs come last.

        Args:
            axis: the axis.
            descending: sort from the greatest to the least element.

        Example:
            >>> trl.argsort(trl.constant([3.0, 1.0, 2.0]))  # 1, 2, 0
            i32[3] @ ()
        """
        return self._apply_operation("argsort", SortAttrs(self._axis(axis), bool(descending)))

    def sort(self, axis: int = -1, *, descending: bool = False) -> Self:
        """Sort the elements along an axis; NaNs come last.

        Args:
            axis: the axis.
            descending: sort from the greatest to the least element.

        Example:
            >>> trl.sort(trl.constant([3.0, 1.0, 2.0]), descending=True)  # 3, 2, 1
            f32[3] @ ()
        """
        return self.take_along(self.argsort(axis, descending=descending), axis)

    def topk(self, k: int, axis: int = -1) -> tuple[Self, Self]:
        """Return the k greatest elements along an axis, greatest first, and their positions.

        Args:
            k: the number of elements.
            axis: an axis of integer size, at least k.

        Returns:
            the elements, and their positions as int32.

        Raises:
            ShapeError: the axis has fewer than k elements, or a symbolic size.

        Example:
            >>> values, positions = trl.constant([3.0, 1.0, 2.0]).topk(2)
            >>> values, positions  # 3, 2 at positions 0, 2
            (f32[2] @ (), i32[2] @ ())
        """
        size, k = self.shape[self._axis(axis)], integer("k", k, least=1)
        if not isinstance(size, int) or k > size:
            raise ShapeError(
                f"{self.type} may have fewer than {k} elements along axis {axis}.",
                hint="take at most as many elements as the axis has; its size must be an integer.",
            )
        at = self.argsort(axis, descending=True).slice(0, k, self._axis(axis))
        return self.take_along(at, axis), at

    # --- indexing by position ----------------------------------------------------------------------

    def take_along(self, at: Any, axis: int = -1) -> Self:
        """Select elements along an axis by one position per element of the result, like `np.take_along_axis`.

        Args:
            at: positions, as integers. Their shape is that of the tensor, except that `axis` may have any size.
            axis: the axis.

        Returns:
            a tensor of the shape of `at`. Positions outside the axis, and negative ones, give zeros.

        Raises:
            ShapeError: the positions are not integers, or have an unsuitable shape.

        Example:
            >>> q = trl.zeros((5, 3))
            >>> q.take_along(q.argmax(-1, keepdims=True))  # the maximum of each row
            f32[5,1] @ ()
        """
        at, k = self._operand(at, "i32"), self._axis(axis)
        _expect_positions(at)
        if _shapes_differ(_drop_axis(at.shape, k), _drop_axis(self.shape, k)):
            raise ShapeError(
                f"positions {at.type} do not fit {self.type} along axis {k}.",
                hint="give positions of the tensor's shape, with any size along the axis; "
                "x.take(at, axis) selects the same positions everywhere.",
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
        """Add values at positions of an axis; repeated positions accumulate.

        Args:
            at: positions, as integers; those outside the axis, and negative ones, are ignored.
            values: the summands. Their shape is that of the tensor with the axes of `at` in place of `axis`; smaller
                shapes are broadcast.
            axis: the axis.

        Returns:
            a new tensor of the same shape.

        Raises:
            ShapeError: the positions are not integers, or the values have an unsuitable shape.

        Example:
            >>> trl.zeros(4).put_add([1, 1, 2], 1.0)  # 0, 2, 1, 0
            f32[4] @ ()
        """
        at, k = self._operand(at, "i32"), self._axis(axis)
        _expect_positions(at)
        values = self._operand(values)
        shape = (*self.shape[:k], *at.shape, *self.shape[k + 1 :])
        ones = (1,) * max(0, len(shape) - values.rank)
        if _shapes_differ((*ones, *values.shape), shape, repeated=True):
            raise ShapeError(
                f"values {values.type} cannot be added to {self.type} at positions {at.type}.",
                hint=f"give values of shape ({', '.join(map(str, shape))}), or of one that broadcasts to it.",
            )
        labels = LABELS[: self.rank]
        own = LABELS[self.rank : self.rank + at.rank]
        placed = labels[:k] + own + labels[k + 1 :]
        attrs = ScatterAttrs(placed, own, labels, labels[k], self.shape[k])
        return self + values.cast(self.dtype)._broadcast_to(shape)._apply_operation(
            "scatter_add", attrs, at
        )

    def put(self, at: Any, value: Any, axis: int = 0) -> Self:
        """Replace the values at positions of an axis; the last of repeated positions wins.

        Args:
            at: positions, as integers; those outside the axis, and negative ones, are ignored. The order of
                repeated positions is that of the elements of `at`, the last axis fastest.
            value: the new values. Their shape is that of the tensor with the axes of `at` in place of `axis`;
                smaller shapes are broadcast.
            axis: the axis.

        Returns:
            a new tensor of the same shape.

        Raises:
            ShapeError: the positions are not integers, or the values have an unsuitable shape.

        Example:
            >>> trl.zeros(4).put([1, 2], 5.0)  # 0, 5, 5, 0
            f32[4] @ ()
        """
        at, k = self._operand(at, "i32"), self._axis(axis)
        _expect_positions(at)
        new = self._operand(value)
        shape = (*self.shape[:k], *at.shape, *self.shape[k + 1 :])
        ones = (1,) * max(0, len(shape) - new.rank)
        if _shapes_differ((*ones, *new.shape), shape, repeated=True):
            raise ShapeError(
                f"{new.type} does not replace positions {at.type} of {self.type}.",
                hint=f"give a value of shape ({', '.join(map(str, shape))}), or of one that broadcasts to it.",
            )
        if not at.rank:  # one position: compare instead of scatter
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
        """Return 0, 1, 2, … along an axis, from its end if `reverse`; the other axes have size 1."""
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
        """Remove axes of size 1.

        Args:
            axis: the axis to remove; by default all axes of size 1.

        Raises:
            ShapeError: the axis has another size.

        Example:
            >>> trl.zeros((1, 3)).squeeze()
            f32[3] @ ()
        """
        if axis is None:
            return self.reshape(tuple(s for s in self.shape if s != 1))
        k = self._axis(axis)
        if self.shape[k] != 1:
            raise ShapeError(
                f"axis {axis} of {self.type} does not have size 1.",
                hint="x.take(position, axis) removes an axis of any size.",
            )
        return self.reshape(_drop_axis(self.shape, k))

    def flatten(self, start: int = 0) -> Self:
        """Join the axes from `start` on into one.

        Args:
            start: the first of the axes to join.

        Raises:
            ShapeError: one of these axes has a symbolic size.

        Example:
            >>> trl.zeros((2, 3, 4)).flatten(1)
            f32[2,12] @ ()
        """
        k = self._axis(start) if self.rank else 0
        sizes = [s for s in self.shape[k:] if isinstance(s, int)]
        if len(sizes) < self.rank - k:
            raise ShapeError(
                f"axes of symbolic length cannot be joined: {self.type}.",
                hint="reduce the axis of symbolic length, or flatten the axes after it.",
            )
        return self.reshape((*self.shape[:k], prod(sizes)))

    # --- scans -----------------------------------------------------------------------------------

    def cumsum(self, axis: int = 0, *, reverse: bool = False, ordered: bool = False) -> Self:
        """Return the running sum along an axis.

        Args:
            axis: the axis.
            reverse: sum from the end of the axis.
            ordered: add the elements strictly one by one on every device. The running sums of non-negative numbers
                are then non-decreasing despite rounding.

        Example:
            >>> trl.cumsum(trl.constant([1.0, 2.0, 3.0]))  # 1, 3, 6
            f32[3] @ ()
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
        """Return the running product along an axis.

        Args:
            axis: the axis.
            reverse: multiply from the end of the axis.

        Example:
            >>> trl.cumprod(trl.constant([1.0, 2.0, 3.0]))  # 1, 2, 6
            f32[3] @ ()
        """
        x, k = self._cast_to_accumulator(), self._axis(axis)
        first = x._positions(k, reverse=reverse) == 0
        return x._apply_operation("linear_scan", ScanAttrs(k, bool(reverse)), first._select(x, 0))

    def cummax(self, axis: int = 0, *, reverse: bool = False) -> Self:
        """Return the running maximum along an axis; its gradient goes to the last of equal maxima.

        Args:
            axis: the axis.
            reverse: start at the end of the axis.

        Example:
            >>> trl.constant([1.0, 3.0, 2.0]).cummax()  # 1, 3, 3
            f32[3] @ ()
        """
        return self._scan("max", axis, reverse)

    def cummin(self, axis: int = 0, *, reverse: bool = False) -> Self:
        """Return the running minimum along an axis; its gradient goes to the last of equal minima.

        Args:
            axis: the axis.
            reverse: start at the end of the axis.

        Example:
            >>> trl.constant([2.0, 3.0, 1.0]).cummin()  # 2, 2, 1
            f32[3] @ ()
        """
        return self._scan("min", axis, reverse)

    def _scan(self, reduce: str, axis: int, reverse: bool) -> Self:
        attrs = SlidingAttrs(self._axis(axis), 1.0, None, bool(reverse))
        return self._apply_operation(f"sliding_{reduce}", attrs)

    def linear_scan(self, factor: Any, axis: int = 0, *, reverse: bool = False) -> Self:
        """Return `y[k] = factor[k] * y[k - 1] + x[k]` along an axis.

        This is a discounted sum with a varying discount. The first factor is unused. A factor of 0 restarts the
        sum: earlier NaNs and infinities do not pass it.

        Args:
            factor: the factors, broadcast to the shape of the tensor.
            axis: the axis.
            reverse: scan from the end: `y[k] = factor[k] * y[k + 1] + x[k]`.

        Raises:
            ShapeError: the factors do not broadcast to the tensor's shape.

        Example:
            >>> rewards, alive = trl.ones(8), trl.ones(8)
            >>> rewards.linear_scan(0.99 * alive, reverse=True)  # discounted returns
            f32[8] @ ()
        """
        x = self.floating()
        factor = x._operand(factor)
        ones = (1,) * max(0, x.rank - factor.rank)
        if _shapes_differ((*ones, *factor.shape), x.shape, repeated=True):
            raise ShapeError(
                f"factors {factor.type} do not broadcast to {x.type}.",
                hint="give a number, or a factor for each element.",
            )
        attrs = ScanAttrs(x._axis(axis), bool(reverse), restarts=True)
        common = promote((x.dtype, factor.dtype))
        return (
            factor.cast(common)
            ._broadcast_to(x.shape)
            ._apply_operation("linear_scan", attrs, x.cast(common))
        )

    def orthonormal(self) -> Self:
        """Orthonormalize the columns of the matrix in the last two axes, from left to right.

        Each column keeps the direction of its component orthogonal to the columns before it (Gram-Schmidt). The
        matrix needs at least as many rows as columns. If its columns are linearly dependent, the result is an
        orthonormal basis of a space that contains them.

        Example:
            >>> trl.random.normal((4, 2)).orthonormal()
            f32[4,2] @ ()
        """
        return self._apply_operation("orthonormal", NO_ATTRS)

    def _ones(self) -> Self:
        return self._operand(np.int32(1))._broadcast_to(self.shape)

    # --- statistics ------------------------------------------------------------------------------

    def var(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """Return the population variance over symbolic dimensions or over axes.

        Args:
            over: one or several symbolic dimensions.
            axis: one or several axes; all axes by default.
            keepdims: keep the reduced axes with size 1.

        Example:
            >>> trl.var(trl.constant([1.0, 3.0]))  # 1
            f32[] @ ()
        """
        self._warn_without_axes("var", over, axis)

        def in_full(x: Self) -> Self:
            apart = (x - x._restore_reduced_axes(x.mean(over, axis), over, axis)).square()
            return apart.mean(over, axis, keepdims=keepdims)

        return self._in_full(in_full)

    def std(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """Return the population standard deviation over symbolic dimensions or over axes.

        Its derivative is 0 where the variance is 0.

        Args:
            over: one or several symbolic dimensions.
            axis: one or several axes; all axes by default.
            keepdims: keep the reduced axes with size 1.

        Example:
            >>> trl.std(trl.constant([1.0, 3.0]))  # 1
            f32[] @ ()
        """
        self._warn_without_axes("std", over, axis)
        return self._in_full(lambda x: _root(x.var(over, axis, keepdims=keepdims)))

    def norm(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """Return the Euclidean norm over symbolic dimensions or over axes; its derivative at 0 is 0.

        Args:
            over: one or several symbolic dimensions.
            axis: one or several axes; all axes by default.
            keepdims: keep the reduced axes with size 1.

        Example:
            >>> trl.norm(trl.constant([3.0, 4.0]))  # 5
            f32[] @ ()
        """
        return self._in_full(lambda x: _root(x.square().sum(over, axis, keepdims=keepdims)))

    def _in_full(self, f: Callable[[Self], Any]) -> Self:
        """Apply `f` in floating point; half-precision values are computed in float32 and rounded once."""
        return f(self.cast("f32")).cast(self.dtype) if self.dtype in HALF else f(self.floating())

    def logsumexp(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """Return log(sum(e**x)) over symbolic dimensions or over axes, without overflow.

        Args:
            over: one or several symbolic dimensions.
            axis: one or several axes; all axes by default.
            keepdims: keep the reduced axes with size 1.

        Example:
            >>> trl.logsumexp(trl.constant([0.0, 0.0]))  # log(2)
            f32[] @ ()
        """

        def in_full(x: Self) -> Self:
            most = x._reduce("max", over, axis).detach()
            most = most.isfinite()._select(most, 0.0)  # -inf - -inf is NaN
            found = (x - x._restore_reduced_axes(most, over, axis)).exp().sum(
                over, axis
            ).log() + most
            return x._apply_keepdims(found, over, axis, keepdims)

        return self._in_full(in_full)

    def log_softmax(self, axis: Any = -1, *, over: Any = None) -> Self:
        """Return x - logsumexp(x) along axes or over symbolic dimensions.

        Args:
            axis: one or several axes; ignored if `over` is given.
            over: one or several symbolic dimensions.

        Example:
            >>> trl.zeros((2, 4)).log_softmax()
            f32[2,4] @ ()
        """
        axis = None if over is not None else axis
        return self._in_full(
            lambda x: x - x._restore_reduced_axes(x.logsumexp(over, axis), over, axis)
        )

    def softmax(self, axis: Any = -1, *, over: Any = None) -> Self:
        """Return e**x / sum(e**x) along axes or over symbolic dimensions, without overflow.

        Args:
            axis: one or several axes; ignored if `over` is given.
            over: one or several symbolic dimensions.

        Example:
            >>> trl.softmax(trl.zeros((2, 4)))
            f32[2,4] @ ()
        """
        axis = None if over is not None else axis

        def in_full(x: Self) -> Self:
            e = (
                x - x._restore_reduced_axes(x._reduce("max", over, axis).detach(), over, axis)
            ).exp()
            return e / e._restore_reduced_axes(e.sum(over, axis), over, axis)

        return self._in_full(in_full)

    def _apply_keepdims(self, reduced: Any, over: Any, axis: Any, keepdims: bool) -> Any:
        """Restore the reduced axes with size 1 if `keepdims`."""
        if not keepdims:
            return reduced
        if over is not None:
            raise ShapeError(
                "keepdims=True keeps axes, but over= reduces symbolic dimensions.",
                hint="leave out keepdims: the result combines with the tensor without it.",
            )
        return self._restore_reduced_axes(reduced, over, axis)

    def _restore_reduced_axes(self, reduced: Self, over: Any, axis: Any) -> Self:
        """Restore the reduced axes with size 1."""
        if over is not None:
            return reduced
        axes = self._axes(axis)
        return reduced.reshape(tuple(1 if k in axes else s for k, s in enumerate(self.shape)))


def _root(squares: Any) -> Any:
    none = squares <= 0.0  # False for NaN
    return none._select(0.0, none._select(1.0, squares).sqrt())


def _drop_axis(shape: Shape, k: int) -> Shape:
    return (*shape[:k], *shape[k + 1 :])


def _shapes_differ(shape: Shape, other: Shape, *, repeated: bool = False) -> bool:
    """Test whether two shapes have different integer sizes; sizes of 1 broadcast if `repeated`."""
    if len(shape) != len(other):
        return True
    pairs = zip(shape, other, strict=True)
    return any(
        isinstance(a, int) and isinstance(b, int) and a != b and not (repeated and a == 1)
        for a, b in pairs
    )


def _expect_positions(at: Any) -> None:
    if not is_integer(at.dtype):
        raise ShapeError(
            f"positions must be integers, not {at.type}.", hint='cast them: at.cast("i32").'
        )
