"""Methods of tensors that move elements along axes, and statistics that need them in order.

NumPy's words for compositions of the primitives that `RecurrentTensor` provides.
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
    """What puts elements elsewhere, or takes them from there."""

    # --- what a tensor provides ----------------------------------------------------------------

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
        """This and other tensors, one after the other along an axis."""

    @abstractmethod
    def _length(self, axis: int) -> Self:
        """The length of an axis as a tensor."""

    @abstractmethod
    def _at_all(self, over: Any) -> tuple[Self, tuple[int, ...]]:
        """This at all points of dimensions, which become axes in front; and these axes."""

    # --- axes ------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """The number of axes; symbolic dimensions are none."""
        return self.rank

    @property
    def T(self) -> Self:
        """The axes in reverse order."""
        return self.transpose()

    def swapaxes(self, first: int, second: int) -> Self:
        """Two axes in each other's place."""
        a, b = self._axis(first), self._axis(second)
        return self.transpose(*({a: b, b: a}.get(k, k) for k in range(self.rank)))

    def moveaxis(self, source: int, destination: int) -> Self:
        """An axis in another place, the others in the order that they had."""
        a, b = self._axis(source), self._axis(destination)
        order = [k for k in range(self.rank) if k != a]
        order.insert(b, a)
        return self.transpose(*order)

    def _size(self, axis: int, what: str) -> int:
        size = self.shape[axis]
        if not isinstance(size, int):
            raise ShapeError(
                f"axis {axis} of {self.type} has a symbolic length: {what}.",
                hint="let the tensor vary over the dimension, and write its points by index.",
            )
        return size

    # --- elements elsewhere ------------------------------------------------------------------------

    def roll(self, shift: int, axis: int | None = None) -> Self:
        """Positions moved on by `shift` along an axis, from its end to its start.

        By default along all axes as one, as in NumPy.
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
        """Each element `times` times, one after the other, along an axis; by default of all as one."""
        times = integer("times", times, least=0)
        if axis is None:
            return (
                self.flatten().repeat(times, 0) if self.rank else self.reshape(1).repeat(times, 0)
            )
        k = self._axis(axis)
        size = self._size(k, "how often each element stands there cannot be said")
        more = (*self.shape[: k + 1], times, *self.shape[k + 1 :])
        shape = (*self.shape[:k], size * times, *self.shape[k + 1 :])
        return self.unsqueeze(k + 1)._broadcast_to(more).reshape(shape)

    def tile(self, *times: Any) -> Self:
        """The whole tensor `times` times along each axis, the last ones if there are fewer numbers."""
        given = tuple(times[0]) if len(times) == 1 and isinstance(times[0], tuple | list) else times
        given = tuple(integer("times", n, least=0) for n in given)
        x = self.reshape((*(1,) * max(0, len(given) - self.rank), *self.shape))
        for k, n in enumerate((1,) * (x.rank - len(given)) + given):
            x = x._concatenate([x] * (n - 1), k) if n > 1 else x if n else x.slice(0, 0, k)
        return x

    def split(self, parts: int | Sequence[int], axis: int = 0) -> list[Self]:
        """An axis in equal parts, as many as `parts` says, or cut before each position in it."""
        k = self._axis(axis)
        size = self._size(k, "it is cut at positions that are numbers")
        several = _as_list(parts)
        if several is None:
            count = integer("parts", parts, least=1)
            if size % count:
                raise ShapeError(
                    f"axis {axis} of {self.type} has no {parts} equal parts.",
                    hint="x.split([2, 5]) cuts before positions 2 and 5.",
                )
            cuts = [size // count * n for n in range(1, count)]
        else:
            at = [integer("a position", n) for n in several]
            cuts = [max(0, min(size, n + size if n < 0 else n)) for n in at]
        return [
            self.slice(lo, max(lo, hi), k) for lo, hi in zip([0, *cuts], [*cuts, size], strict=True)
        ]

    def pad(self, widths: Any, mode: Mode = "constant", constant_values: Any = 0) -> Self:
        """More elements before and behind those of axes.

        Args:
            widths: how many: a number, (before, behind), or such a pair for each axis.
            mode: which: "constant" `constant_values`, "edge" the element at the end, "reflect" those
                inside it in reverse order, "wrap" those at the other end.
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
                        hint="pad one end after the other, each with its own.",
                    )
                ends = [
                    fill._broadcast_to((*x.shape[:k], n, *x.shape[k + 1 :]))
                    for n in (before, behind)
                ]
                x = ends[0]._concatenate([x, ends[1]], k)
                continue
            size = x._size(k, f"mode={mode!r} takes elements at both ends")
            if not size:
                raise ShapeError(f"axis {k} of {x.type} has no elements to pad with.")
            at = np.pad(np.arange(size, dtype=np.int32), (before, behind), mode)
            x = x.take(at, k)
        return x

    def tril(self, k: int = 0) -> Self:
        """Zeros above diagonal `k` of the matrix in the last two axes."""
        return self._triangle(k, lower=True)

    def triu(self, k: int = 0) -> Self:
        """Zeros below diagonal `k` of the matrix in the last two axes."""
        return self._triangle(k, lower=False)

    def _triangle(self, k: int, *, lower: bool) -> Self:
        k = integer("k", k)
        if self.rank < 2:
            raise ShapeError(f"{self.type} has no matrix in its last two axes.")
        ahead = self._positions(self.rank - 1) - self._positions(self.rank - 2)
        nothing = self._operand(0).cast(self.dtype)  # of booleans, too
        return (ahead <= k if lower else ahead >= k)._select(self, nothing)

    def one_hot(self, size: int, dtype: Any = "f32") -> Self:
        """1 at this position of a new last axis of length `size`, 0 elsewhere; 0 if it is beyond."""
        size = integer("size", size, least=0)
        self._expect_positions("one_hot")
        places = self._operand(np.arange(size, dtype=np.int32))
        return (self.unsqueeze(-1) == places).cast(element_type(dtype))

    def bincount(self, length: int, weights: Any = None) -> Self:
        """How often each of 0 to length - 1 occurs; with weights, their sums instead.

        Numbers beyond are left out. NumPy's `length` is what occurs; here it must be said, since
        shapes are known before values.
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
            raise ShapeError(f"{what} takes integers, not {self.type}.")

    # --- statistics --------------------------------------------------------------------------------

    def median(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> Self:
        """The middle element over axes (all by default) or one symbolic dimension, or the middle
        ones' mean; NaN where one is."""
        return self.quantile(0.5, over, axis, keepdims=keepdims)

    def quantile(
        self,
        q: float | Sequence[float],
        over: Any = None,
        axis: Any = None,
        *,
        keepdims: bool = False,
    ) -> Self:
        """What a share `q` of the elements is below, between two of them on the line through both.

        Args:
            q: a number from 0 to 1; of several, the results are stacked in front.
            over, axis: one symbolic dimension, or axes, all by default.
        """
        several = _as_list(q)
        if several is not None:
            each = [self.quantile(p, over, axis, keepdims=keepdims).unsqueeze(0) for p in several]
            if not each:
                raise ShapeError("quantile needs at least one q.")
            return each[0]._concatenate(each[1:], 0)
        share = number("q", q, least=0, most=1)
        if over is not None and axis is not None:
            raise ShapeError("give over= (symbolic dimensions) or axis= (axes), not both.")
        x, axes = self._at_all(over) if over is not None else (self, self._axes(axis))
        found = x.floating()._in_one(axes)._quantile(share) if axes else x.floating()
        return self._apply_keepdims(found, over, axis, keepdims)

    def _in_one(self, axes: Sequence[int]) -> Self:
        """Axes as one, the last."""
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
                raise ShapeError(f"{self.type} has no elements, and so no quantiles.")
            at = q * (size - 1)
            low, high, share = x.take(floor(at), -1), x.take(ceil(at), -1), at - floor(at)
        else:
            at = (self._length(self.rank - 1) - 1).floating() * q
            low = x.take(at.floor().cast("i32"), -1)
            high = x.take(at.ceil().cast("i32"), -1)
            share = self._operand(at - at.floor())
        # from the nearer end, as NumPy: an infinite one counts
        step = high - low
        upper = self._operand(share >= 0.5)
        found = upper._select(high - step * (1.0 - share), low + step * share)
        found = (low == high)._select(low, found)
        return self.isnan().any(axis=-1)._select(float("nan"), found)


def _widths(widths: Any, x: Rearranged) -> list[tuple[int, int]]:
    """The numbers of elements before and behind each axis, as NumPy broadcasts them."""
    try:
        given = np.asarray(widths)
        if given.dtype.kind not in "iu" or (given < 0).any():
            raise ValueError
        pairs = np.broadcast_to(given, (x.rank, 2)).tolist()
    except ValueError:
        raise ShapeError(
            f"{widths!r} does not say how {x.type} is padded.",
            hint="give a number, (before, behind), or such a pair for each axis, none negative.",
        ) from None
    return [(before, behind) for before, behind in pairs]


def _as_list(value: Any) -> list[Any] | None:
    """What a list, a tuple or an array has in it; None of anything else."""
    made = value.tolist() if isinstance(value, np.ndarray) else value
    return list(made) if isinstance(made, Sequence) and not isinstance(made, str) else None
