"""The parameters of operations: one frozen record per family of kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from timerl_nb.errors import Origin
from timerl_nb.ir.shapes import DType, Shape, Size
from timerl_nb.symbolic.domain import Domain
from timerl_nb.symbolic.expr import Cond, Lin


class ConstArray:
    """A constant array, copied and frozen, that compares by contents."""

    __slots__ = ("array", "key")

    def __init__(self, array: Any) -> None:
        self.array = np.array(array)
        self.array.setflags(write=False)
        self.key = (self.array.shape, self.array.dtype.str, self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstArray) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        if self.array.size == 1:
            return str(self.array.reshape(())[()])
        return f"{self.array.dtype}{list(self.array.shape)}"


@dataclass(frozen=True)
class NoAttrs:
    """Kinds without parameters."""


NO_ATTRS = NoAttrs()


@dataclass(frozen=True)
class ConstAttrs:
    """The value of a `const`, or the values of `data`.

    The leading axes of data are the dimensions `dims`; those in `axes` are laid out along the
    leading axes of the result (of lengths `sizes`, from `starts` on), the others are the
    operation's domain.
    """

    value: ConstArray
    dims: Domain = ()
    axes: Domain = ()
    sizes: Shape = ()
    starts: tuple[Lin, ...] = ()  # 0 for all where empty


@dataclass(frozen=True)
class ValueAttrs:
    """The value of an index expression; the dimensions in `axes` vary along the leading axes."""

    expr: Lin | Cond
    dtype: DType
    axes: Domain = ()
    sizes: Shape = ()


@dataclass(frozen=True)
class RngAttrs:
    """Random bits of `stream` at the original coordinates `dims`.

    The dimensions in `axes` are laid out along the leading axes (of lengths `sizes`, from `starts`
    on); the others are the operation's domain. The bits of one original point have shape `shape`.
    """

    stream: int | str
    dims: Domain
    shape: Shape
    axes: Domain = ()
    sizes: Shape = ()
    starts: tuple[Lin, ...] = ()  # 0 for all where empty
    shared: bool = False  # others may draw from the stream, too


@dataclass(frozen=True)
class CastAttrs:
    dtype: DType


@dataclass(frozen=True)
class Filled:
    """That a reduction has something to reduce: `cond` holds, for some values of the symbols `among`."""

    cond: Cond
    among: Domain = ()


@dataclass(frozen=True)
class AxesAttrs:
    """The axes that a reduction removes; of the program as written also what fills them.

    `filled` is proved of a reduction that has no meaning over nothing, and says nothing afterwards.
    """

    axes: tuple[int, ...]
    filled: Filled | None = field(default=None, compare=False)


@dataclass(frozen=True)
class AxisAttrs:
    axis: int


@dataclass(frozen=True)
class DiscountAttrs:
    """sum of gamma**k * x[k] along an axis; counted from the far end where `reverse`."""

    axis: int
    gamma: float
    reverse: bool = False


@dataclass(frozen=True)
class SlidingAttrs:
    """y[k] = sum over j < window of gamma**j * x[k + j], or x[k - j] where not `forward`.

    Terms beyond either end are left out; `window` None is unbounded.
    """

    axis: int
    gamma: float
    window: Size | None
    forward: bool


@dataclass(frozen=True)
class DotAttrs:
    """A contraction of two operands: a label per axis; labels missing from `out` are summed."""

    left: str
    right: str
    out: str

    def __str__(self) -> str:
        return f"{self.left},{self.right}->{self.out}"


@dataclass(frozen=True)
class Sweep:
    """How one axis of a convolution goes along; its three axes have one label.

    The positions i of the left operand, k of the right one and p of the result (of length `size`)
    that belong together have spread * i = stride * p + dilation * k - offset (or `- dilation * k`,
    where the convolution is mirrored). What lies beyond an end is zero.
    """

    label: str
    size: Size
    stride: int = 1
    offset: int = 0
    spread: int = 1
    dilation: int = 1

    def __str__(self) -> str:
        parts = [f"{self.label}={self.size}"]
        for name, value in (("stride", self.stride), ("spread", self.spread)):
            parts += [f"{name}={value}"] if value != 1 else []
        parts += [f"dilation={self.dilation}"] if self.dilation != 1 else []
        parts += [f"offset={self.offset}"] if self.offset else []
        return " ".join(parts)


@dataclass(frozen=True)
class ConvAttrs:
    """A contraction some of whose axes sweep over each other: a label per axis, as for `dot`."""

    left: str
    right: str
    out: str
    sweeps: tuple[Sweep, ...]
    mirrored: bool = False

    def __str__(self) -> str:
        how = [f"{self.left},{self.right}->{self.out}", *map(str, self.sweeps)]
        return ", ".join(how) + (" mirrored" if self.mirrored else "")


@dataclass(frozen=True)
class GatherAttrs:
    """Positions of the left operand's axis `axis`, given by the right one: a label per axis.

    All other labels of both operands result; those that both operands have go together.
    """

    left: str
    right: str
    out: str
    axis: str

    def __str__(self) -> str:
        return f"{self.left},{self.right}->{self.out} along {self.axis}"


@dataclass(frozen=True)
class ScatterAttrs:
    """Left values added up at the right operand's positions of a new axis `axis` of length `size`.

    The transpose of a gather: labels that do not result are summed.
    """

    left: str
    right: str
    out: str
    axis: str
    size: Size

    def __str__(self) -> str:
        return f"{self.left},{self.right}->{self.out} along {self.axis} of {self.size}"


@dataclass(frozen=True)
class SortAttrs:
    axis: int
    descending: bool = False


@dataclass(frozen=True)
class ScanAttrs:
    """An axis, and whether it is run through from its far end.

    `ordered` is for recurrences whose factors may be above 1: one step after the other, since
    products of many factors could overflow where no value does. Where a recurrence `restarts`, a
    factor of 0 lets nothing through of what came before, NaN and infinity neither.
    """

    axis: int
    reverse: bool = False
    ordered: bool = False
    restarts: bool = False


@dataclass(frozen=True)
class ShapeAttrs:
    shape: Shape


@dataclass(frozen=True)
class PermAttrs:
    perm: tuple[int, ...]


@dataclass(frozen=True)
class RangeAttrs:
    """Positions lo : hi of an axis."""

    axis: int
    lo: Lin
    hi: Lin


@dataclass(frozen=True)
class PlaceAttrs:
    """An axis laid at position `lo` of one of another size, of zeros; what lies outside is dropped."""

    axis: int
    lo: Lin
    size: Size


@dataclass(frozen=True)
class AtAttrs:
    """Position `at` of an axis, which is removed."""

    axis: int
    at: Lin


@dataclass(frozen=True)
class ReindexAttrs:
    """y[k] = x[at(k)] along an axis; in `at`, the dimension `dim` stands for k < size.

    Beyond either end of the axis it is the end that is read.
    """

    axis: int
    at: Lin
    dim: str
    size: Size


@dataclass(frozen=True)
class OutputAttrs:
    """An output's name, and the dimensions it is stacked over.

    Those in `axes` are the leading axes of the operand, the others are the sink's domain.
    """

    name: str
    role: Literal["output", "parameter"] = "output"
    dims: Domain = ()
    axes: Domain = ()


@dataclass(frozen=True)
class BoundAttrs:
    """The dimension that ends at the first point where the operand holds."""

    dim: str


@dataclass(frozen=True)
class CheckpointAttrs:
    """The file that a checkpoint writes, and the name of each operand in it."""

    path: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class AccumulateAttrs:
    """The reduction, and the dimensions that it runs over."""

    reduce: str
    dims: Domain


@dataclass(frozen=True)
class MergeAttrs:
    """The line of the user's program that wrote each branch."""

    lines: tuple[Origin, ...] = field(default=(), compare=False)
