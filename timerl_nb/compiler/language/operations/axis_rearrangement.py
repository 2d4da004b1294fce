"""Tensor methods that move elements along axes, and order statistics.

They are compositions, under NumPy's names, of the primitives that `RecurrentTensor` implements.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import ceil, floor, prod
from typing import Any, Literal, Self

import numpy as np

from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.language.argument_checks import element_type, integer, number
from timerl_nb.compiler.language.operations.axis_methods import AxisOps

Mode = Literal["constant", "edge", "reflect", "wrap"]


class Rearranged(AxisOps):
    """Tensor methods that move elements along axes."""

    # --- primitives, implemented by `RecurrentTensor` ------------------------------------------

    @abstractmethod
    def transpose(self, *perm: Any) -> Self: ...

    @abstractmethod
    def unsqueeze(self, axis: int) -> Self: ...

    @abstractmethod
    def take(self, at: Any, axis: int = 0) -> Self: ...

    @abstractmethod
    def any(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self: ...

    @abstractmethod
    def _concatenate(self, others: Sequence[Self], axis: int) -> Self:
        """Join this and other tensors along an axis."""

    @abstractmethod
    def _length(self, axis: int) -> Self:
        """Return the size of an axis as a tensor."""

    @abstractmethod
    def _at_all(self, over: Any) -> tuple[Self, tuple[int, ...]]:
        """Read all points of some dimensions as leading axes; return the result and these axes."""

    # --- axes ------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """Number of axes, without symbolic dimensions; the same as `rank`.

        Example:
            >>> trl.zeros((2, 3)).ndim
            2
        """
        return self.rank

    @property
    def T(self) -> Self:
        """The tensor with its axes in reverse order.

        Example:
            >>> trl.zeros((2, 3)).T
            f32[3,2] @ ()
        """
        return self.transpose()

    def swapaxes(self, first: int, second: int) -> Self:
        """Exchange two axes.

        Args:
            first, second: the axes.

        Example:
            >>> trl.swapaxes(trl.zeros((2, 3, 4)), 0, 2)
            f32[4,3,2] @ ()
        """
        a, b = self._axis(first), self._axis(second)
        return self.transpose(*({a: b, b: a}.get(k, k) for k in range(self.rank)))

    def moveaxis(self, source: int, destination: int) -> Self:
        """Move an axis to another position; the other axes keep their order.

        Args:
            source: the axis to move.
            destination: its new position.

        Example:
            >>> trl.moveaxis(trl.zeros((2, 3, 4)), 0, -1)
            f32[3,4,2] @ ()
        """
        a, b = self._axis(source), self._axis(destination)
        order = [k for k in range(self.rank) if k != a]
        order.insert(b, a)
        return self.transpose(*order)

    def _size(self, axis: int, what: str) -> int:
        size = self.shape[axis]
        if not isinstance(size, int):
            raise ShapeError(
                f"axis {axis} of {self.type} has a symbolic length: {what}.",
                hint="let the tensor vary over the dimension, and index its points.",
            )
        return size

    # --- movement of elements ----------------------------------------------------------------------

    def roll(self, shift: int, axis: int | None = None) -> Self:
        """Shift the elements along an axis cyclically, like `np.roll`.

        Args:
            shift: the number of positions, towards the end of the axis.
            axis: the axis; by default all axes, joined into one.

        Example:
            >>> trl.roll(trl.arange(4), 1)  # 3, 0, 1, 2
            i32[4] @ ()
        """
        shift = integer("shift", shift)
        if axis is None:
            return self.flatten().roll(shift, 0).reshape(self.shape) if self.rank else self
        k = self._axis(axis)
        size = self.shape[k]
        if not isinstance(size, int):
            at = (self._positions(k).squeeze() - shift) % self._length(k)
            return self.take(at, k)
        start = -shift % size if size else 0
        return (
            self.slice(start, size, k)._concatenate([self.slice(0, start, k)], k) if start else self
        )

    def repeat(self, times: int, axis: int | None = None) -> Self:
        """Repeat each element along an axis, like `np.repeat`.

        Args:
            times: the number of copies.
            axis: an axis of integer size; by default all axes, joined into one.

        Example:
            >>> trl.repeat(trl.arange(2), 3)  # 0, 0, 0, 1, 1, 1
            i32[6] @ ()
        """
        times = integer("times", times, least=0)
        if axis is None:
            return (
                self.flatten().repeat(times, 0) if self.rank else self.reshape(1).repeat(times, 0)
            )
        k = self._axis(axis)
        size = self._size(k, "its elements cannot be repeated")
        more = (*self.shape[: k + 1], times, *self.shape[k + 1 :])
        shape = (*self.shape[:k], size * times, *self.shape[k + 1 :])
        return self.unsqueeze(k + 1)._broadcast_to(more).reshape(shape)

    def tile(self, *times: Any) -> Self:
        """Repeat the whole tensor along each axis, like `np.tile`.

        Args:
            times: the number of copies per axis; fewer numbers apply to the last axes.

        Example:
            >>> trl.tile(trl.arange(2), 3)  # 0, 1, 0, 1, 0, 1
            i32[6] @ ()
        """
        given = tuple(times[0]) if len(times) == 1 and isinstance(times[0], tuple | list) else times
        given = tuple(integer("times", n, least=0) for n in given)
        x = self.reshape((*(1,) * max(0, len(given) - self.rank), *self.shape))
        for k, n in enumerate((1,) * (x.rank - len(given)) + given):
            x = x._concatenate([x] * (n - 1), k) if n > 1 else x if n else x.slice(0, 0, k)
        return x

    def split(self, parts: int | Sequence[int], axis: int = 0) -> list[Self]:
        """Split an axis into several tensors, like `np.split`.

        Args:
            parts: the number of equal parts, or the positions at which new parts begin.
            axis: an axis of integer size.

        Returns:
            the parts.

        Raises:
            ShapeError: the axis has no such equal parts, or a symbolic size.

        Example:
            >>> trl.split(trl.arange(6), [2])
            [i32[2] @ (), i32[4] @ ()]
        """
        k = self._axis(axis)
        size = self._size(k, "it cannot be split at integer positions")
        several = _as_list(parts)
        if several is None:
            count = integer("parts", parts, least=1)
            if size % count:
                raise ShapeError(
                    f"axis {axis} of {self.type} does not split into {parts} equal parts.",
                    hint="give a divisor of its size, or positions: x.split([2, 5]) splits before 2 and 5.",
                )
            cuts = [size // count * n for n in range(1, count)]
        else:
            at = [integer("a position", n) for n in several]
            cuts = [max(0, min(size, n + size if n < 0 else n)) for n in at]
        return [
            self.slice(lo, max(lo, hi), k) for lo, hi in zip([0, *cuts], [*cuts, size], strict=True)
        ]

    def pad(self, widths: Any, mode: Mode = "constant", constant_values: Any = 0) -> Self:
        """Add elements before and after those of the axes, like `np.pad`.

        Args:
            widths: the number of added elements: a number, (before, after), or such a pair for each axis.
            mode: "constant" adds `constant_values`, "edge" repeats the last element, "reflect" mirrors the elements
                without the last, "wrap" continues with the opposite end.
            constant_values: one number.

        Raises:
            ShapeError: the widths or the mode are invalid, or elements are needed from an axis without any.

        Example:
            >>> trl.pad(trl.arange(3), (1, 2))  # 0, 0, 1, 2, 0, 0
            i32[6] @ ()
        """
        if mode not in ("constant", "edge", "reflect", "wrap"):
            raise ShapeError(
                f"there is no mode {mode!r}.", hint='use "constant", "edge", "reflect" or "wrap".'
            )
        x = self
        for k, (before, behind) in enumerate(_widths(widths, self)):
            if not before and not behind:
                continue
            if mode == "constant":
                fill = x._operand(constant_values).cast(x.dtype)
                if fill.rank:
                    raise ShapeError(
                        f"constant_values must be one number, not {constant_values!r}.",
                        hint="pad each end in a separate call.",
                    )
                ends = [
                    fill._broadcast_to((*x.shape[:k], n, *x.shape[k + 1 :]))
                    for n in (before, behind)
                ]
                x = ends[0]._concatenate([x, ends[1]], k)
                continue
            size = x._size(k, f"mode={mode!r} takes elements at both ends")
            if not size:
                raise ShapeError(
                    f"axis {k} of {x.type} has no elements to pad with.",
                    hint='use mode="constant".',
                )
            at = np.pad(np.arange(size, dtype=np.int32), (before, behind), mode)
            x = x.take(at, k)
        return x

    def tril(self, k: int = 0) -> Self:
        """Replace the elements above a diagonal of the matrix in the last two axes by zeros.

        Args:
            k: the diagonal; 0 is the main one, positive ones lie above it.

        Raises:
            ShapeError: the tensor has fewer than two axes.

        Example:
            >>> trl.tril(trl.ones((2, 2)))  # rows 1, 0 and 1, 1
            f32[2,2] @ ()
        """
        return self._triangle(k, lower=True)

    def triu(self, k: int = 0) -> Self:
        """Replace the elements below a diagonal of the matrix in the last two axes by zeros.

        Args:
            k: the diagonal; 0 is the main one, positive ones lie above it.

        Raises:
            ShapeError: the tensor has fewer than two axes.

        Example:
            >>> trl.triu(trl.ones((2, 2)))  # rows 1, 1 and 0, 1
            f32[2,2] @ ()
        """
        return self._triangle(k, lower=False)

    def _triangle(self, k: int, *, lower: bool) -> Self:
        k = integer("k", k)
        if self.rank < 2:
            raise ShapeError(
                f"{self.type} has no matrix in its last two axes.",
                hint="x.unsqueeze(axis) adds an axis.",
            )
        ahead = self._positions(self.rank - 1) - self._positions(self.rank - 2)
        nothing = self._operand(0).cast(self.dtype)  # False for booleans
        return (ahead <= k if lower else ahead >= k)._select(self, nothing)

    def one_hot(self, size: int, dtype: Any = "f32") -> Self:
        """Return vectors with 1 at the given position and 0 elsewhere.

        Args:
            size: the size of the new last axis. A position outside it gives zeros only.
            dtype: the element type of the result.

        Raises:
            ShapeError: the tensor has no integers.

        Example:
            >>> trl.one_hot(trl.arange(3), 4)
            f32[3,4] @ ()
        """
        size = integer("size", size, least=0)
        self._expect_positions("one_hot")
        places = self._operand(np.arange(size, dtype=np.int32))
        return (self.unsqueeze(-1) == places).cast(element_type(dtype))

    def bincount(self, length: int, weights: Any = None) -> Self:
        """Count how often each of 0 to length - 1 occurs among the elements.

        Unlike NumPy, the length is required, because shapes are known before values.

        Args:
            length: the number of counters; larger numbers, and negative ones, are ignored.
            weights: a weight per element; the result contains sums of weights in place of counts.

        Raises:
            ShapeError: the tensor has no integers.

        Example:
            >>> trl.bincount(trl.constant([0, 2, 2]), 3)  # 1, 0, 2
            i32[3] @ ()
        """
        length = integer("length", length, least=0)
        self._expect_positions("bincount")
        made = self._ones() if weights is None else self._operand(weights)
        start = (
            self._operand(0, made.dtype)
            .cast(made._cast_to_accumulator().dtype)
            ._broadcast_to((length,))
        )
        return start.put_add(self, made)

    def _expect_positions(self, what: str) -> None:
        if self.dtype == "bool" or self.floating().dtype == self.dtype:
            raise ShapeError(
                f"{what} takes integers, not {self.type}.", hint='cast it: x.cast("i32").'
            )

    # --- statistics --------------------------------------------------------------------------------

    def median(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """Return the median over axes or one symbolic dimension; NaN if an element is NaN.

        Args:
            over: one symbolic dimension.
            axis: one or several axes; all axes by default.
            keepdims: keep the reduced axes with size 1.

        Example:
            >>> trl.median(trl.constant([3.0, 1.0, 2.0, 4.0]))  # 2.5
            f32[] @ ()
        """
        self._warn_without_axes("median", over, axis)
        return self.quantile(0.5, over, axis, keepdims=keepdims)

    def quantile(
        self,
        q: float | Sequence[float],
        over: Any = None,
        axis: Any = None,
        *,
        keepdims: bool = False,
    ) -> Self:
        """Return quantiles by linear interpolation; NaN if an element is NaN.

        Args:
            q: a number from 0 to 1, or several, whose results are stacked along a new first axis.
            over: one symbolic dimension.
            axis: one or several axes; all axes by default.
            keepdims: keep the reduced axes with size 1.

        Raises:
            ShapeError: `q` is not between 0 and 1, or there are no elements.

        Example:
            >>> trl.quantile(trl.constant([0.0, 1.0, 2.0]), [0.25, 0.75])  # 0.5, 1.5
            f32[2] @ ()
        """
        self._warn_without_axes("quantile", over, axis)
        several = _as_list(q)
        if several is not None:
            each = [self.quantile(p, over, axis, keepdims=keepdims).unsqueeze(0) for p in several]
            if not each:
                raise ShapeError(
                    "quantile needs at least one q.", hint="give a number from 0 to 1."
                )
            return each[0]._concatenate(each[1:], 0)
        share = number("q", q, least=0, most=1)
        if over is not None and axis is not None:
            raise ShapeError(
                "a quantile has both over= and axis=.",
                hint="give over= (symbolic dimensions) or axis= (axes), not both.",
            )
        x, axes = self._at_all(over) if over is not None else (self, self._axes(axis))
        found = x.floating()._in_one(axes)._quantile(share) if axes else x.floating()
        return self._apply_keepdims(found, over, axis, keepdims)

    def _in_one(self, axes: Sequence[int]) -> Self:
        """Move some axes to the end and join them."""
        rest = [k for k in range(self.rank) if k not in axes]
        x = self.transpose(*rest, *axes)
        if len(axes) == 1:
            return x
        sizes = [s for s in (self.shape[k] for k in axes) if isinstance(s, int)]
        if len(sizes) < len(axes):
            raise DomainError(
                f"axes of symbolic length of {self.type} cannot be joined.",
                hint="take the quantile over one symbolic dimension, or one axis, at a time.",
            )
        return x.reshape((*(self.shape[k] for k in rest), prod(sizes)))

    def _quantile(self, q: float) -> Self:
        """A quantile along the last axis."""
        x, size = self.sort(-1), self.shape[-1]
        if isinstance(size, int):
            if not size:
                raise ShapeError(
                    f"{self.type} has no elements, and so no quantiles.",
                    hint="reduce an axis of size at least 1.",
                )
            at = q * (size - 1)
            low, high, share = x.take(floor(at), -1), x.take(ceil(at), -1), at - floor(at)
        else:
            at = (self._length(self.rank - 1) - 1).floating() * q
            low = x.take(at.floor().cast("i32"), -1)
            high = x.take(at.ceil().cast("i32"), -1)
            share = self._operand(at - at.floor())
        # Interpolate from the nearer end, like NumPy: this matters for infinite elements.
        step = high - low
        upper = self._operand(share >= 0.5)
        found = upper._select(high - step * (1.0 - share), low + step * share)
        found = (low == high)._select(low, found)
        return self.isnan().any(axis=-1)._select(float("nan"), found)


def _widths(widths: Any, x: Rearranged) -> list[tuple[int, int]]:
    """Return the numbers of elements before and after each axis, broadcast like NumPy."""
    try:
        given = np.asarray(widths)
        if given.dtype.kind not in "iu" or (given < 0).any():
            raise ValueError
        pairs = np.broadcast_to(given, (x.rank, 2)).tolist()
    except ValueError:
        raise ShapeError(
            f"{widths!r} are not padding widths of {x.type}.",
            hint="give a number, (before, after), or such a pair for each axis, none negative.",
        ) from None
    return [(before, behind) for before, behind in pairs]


def _as_list(value: Any) -> list[Any] | None:
    """Return the items of a list, tuple or array; None for other values."""
    made = value.tolist() if isinstance(value, np.ndarray) else value
    return list(made) if isinstance(made, Sequence) and not isinstance(made, str) else None
