"""The parameters of operations: one frozen record per family of kinds.

A record says itself how it reads and which dimensions it varies with; the index expressions in it are
found by looking through its fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Literal, Protocol, cast

import numpy as np

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.shapes import DType, Shape, Size, TensorType, same_size, size
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import ZERO, Cond, Lin, lin, span, sym


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
class Attrs:
    """The parameters of an operation; this one is of kinds without any.

    `str()` is how they stand in the operation's line.
    """

    def __str__(self) -> str:
        return ""

    @property
    def bound_dims(self) -> Domain:
        """The dimensions that stand for positions of an axis in the index expressions."""
        return ()

    @cached_property
    def exprs(self) -> tuple[Lin | Cond, ...]:
        """The index expressions."""
        return tuple(self._exprs(None))

    @cached_property
    def parameters(self) -> tuple[Lin | Cond, ...]:
        """Those that are no mere sizes of the result."""
        return tuple(self._exprs(_SIZE))

    def varying_dims(self, dims: Dims) -> Domain:
        """The dimensions that an operation varies over because of its parameters alone."""
        return dims.dims_of_symbols(
            {s for e in self.exprs for s in e.symbols} - set(self.bound_dims)
        )

    def _exprs(self, without: str | None) -> Iterator[Lin | Cond]:
        for one in fields(self):
            if one.compare and not {_LAID_OUT, without} & one.metadata.keys():
                yield from _find_expressions(getattr(self, one.name))


def _find_expressions(value: Any) -> Iterator[Lin | Cond]:
    if isinstance(value, Lin | Cond):
        yield value
    elif isinstance(value, tuple):
        for part in cast("tuple[Any, ...]", value):
            yield from _find_expressions(part)
    elif isinstance(value, Sweep):
        yield from _find_expressions(value.size)


_SIZE: Final = "size"
_LAID_OUT: Final = "laid out"


def _size_of_result(default: Any = MISSING) -> Any:
    """A field that is a size of the result, or its shape, and no more."""
    return field(default=default, metadata={_SIZE: True})


def sizes_of_axes() -> Any:
    """A field with the sizes of dimensions that are laid out as axes, which are known by these."""
    return field(default=(), metadata={_LAID_OUT: True})


NO_ATTRS = Attrs()


class _Given(Attrs):
    """Parameters of what is given, or drawn, at each point of `dims`.

    Those in `axes` are laid out along the leading axes of the result (of lengths `sizes`, from `starts`
    on, 0 for all where empty); the others are the operation's domain.
    """

    dims: Domain
    axes: Domain
    starts: tuple[Lin, ...]

    @property
    def bound_dims(self) -> Domain:
        return self.axes

    def varying_dims(self, dims: Dims) -> Domain:
        starts = {s for e in self.starts for s in e.symbols}
        return dims.ordered((set(self.dims) - set(self.axes)) | starts)


def along_text(axes: Domain, starts: tuple[Lin, ...] = ()) -> str:
    """The dimensions that are laid out as axes, and where they start."""
    shown = [f"{d} from {e}" for d, e in zip(axes, starts, strict=True)] if starts else axes
    return f" along {', '.join(shown)}" if axes else ""


@dataclass(frozen=True)
class ConstAttrs(_Given):
    """The value of a `const`, or the values of `data`, whose leading axes are the dimensions `dims`."""

    value: ConstArray
    dims: Domain = ()
    axes: Domain = ()
    sizes: Shape = sizes_of_axes()
    starts: tuple[Lin, ...] = ()

    def __str__(self) -> str:
        return f"{self.value}{along_text(self.axes, self.starts)}"


@dataclass(frozen=True)
class ValueAttrs(Attrs):
    """The value of an index expression; the dimensions in `axes` vary along the leading axes."""

    expr: Lin | Cond
    dtype: DType
    axes: Domain = ()
    sizes: Shape = sizes_of_axes()

    def __str__(self) -> str:
        return f"{self.expr}{along_text(self.axes)}"

    @property
    def bound_dims(self) -> Domain:
        return self.axes


@dataclass(frozen=True)
class RngAttrs(_Given):
    """Random bits of `stream` at the original coordinates `dims`, of shape `shape` at each."""

    stream: int | str
    dims: Domain
    shape: Shape = field(metadata={_LAID_OUT: True})
    axes: Domain = ()
    sizes: Shape = sizes_of_axes()
    starts: tuple[Lin, ...] = ()
    shared: bool = False  # others may draw from the stream, too

    def varying_dims(self, dims: Dims) -> Domain:
        seeds = {dims.seeds.name} if dims.seeds else set[str]()
        return dims.ordered({*super().varying_dims(dims), *seeds - set(self.axes)})

    def __str__(self) -> str:
        return (
            f"stream={self.stream} of ({', '.join(self.dims)}){along_text(self.axes, self.starts)}"
        )


@dataclass(frozen=True)
class CastAttrs(Attrs):
    dtype: DType

    def __str__(self) -> str:
        return self.dtype


@dataclass(frozen=True)
class Filled:
    """That a reduction has something to reduce: `cond` holds, for some values of the symbols `among`."""

    cond: Cond
    among: Domain = ()


@dataclass(frozen=True)
class AxesAttrs(Attrs):
    """The axes that a reduction removes; of the program as written also what fills them.

    `filled` is proved of a reduction that has no meaning over nothing, and says nothing afterwards.
    """

    axes: tuple[int, ...]
    filled: Filled | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"axes={','.join(map(str, self.axes))}"


@dataclass(frozen=True)
class AxisAttrs(Attrs):
    axis: int

    def __str__(self) -> str:
        return f"axis={self.axis}"


@dataclass(frozen=True)
class DiscountAttrs(Attrs):
    """sum of gamma**k * x[k] along an axis; counted from the far end where `reverse`."""

    axis: int
    gamma: float
    reverse: bool = False

    def __str__(self) -> str:
        return f"axis={self.axis} gamma={self.gamma}" + (" reverse" if self.reverse else "")


@dataclass(frozen=True)
class SlidingAttrs(Attrs):
    """y[k] = sum over j < window of gamma**j * x[k + j], or x[k - j] where not `forward`.

    Terms beyond either end are left out; `window` None is unbounded.
    """

    axis: int
    gamma: float
    window: Size | None
    forward: bool

    def __str__(self) -> str:
        way, window = "ahead" if self.forward else "back", self.window
        return f"axis={self.axis} gamma={self.gamma} {way}={'all' if window is None else window}"


@dataclass(frozen=True)
class _Labelled(Attrs):
    """A letter per axis: of the left operand, of the right one, and of the result."""

    left: str
    right: str
    out: str


@dataclass(frozen=True)
class DotAttrs(_Labelled):
    """A contraction of two operands: a label per axis; labels missing from `out` are summed."""

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
class ConvAttrs(_Labelled):
    """A contraction some of whose axes sweep over each other: a label per axis, as for `dot`."""

    sweeps: tuple[Sweep, ...]
    mirrored: bool = False

    def __str__(self) -> str:
        how = [f"{self.left},{self.right}->{self.out}", *map(str, self.sweeps)]
        return ", ".join(how) + (" mirrored" if self.mirrored else "")


@dataclass(frozen=True)
class GatherAttrs(_Labelled):
    """Positions of the left operand's axis `axis`, given by the right one: a label per axis.

    All other labels of both operands result; those that both operands have go together.
    """

    axis: str

    def __str__(self) -> str:
        return f"{self.left},{self.right}->{self.out} along {self.axis}"


@dataclass(frozen=True)
class ScatterAttrs(_Labelled):
    """Left values added up at the right operand's positions of a new axis `axis` of length `size`.

    The transpose of a gather: labels that do not result are summed.
    """

    axis: str
    size: Size

    def __str__(self) -> str:
        return f"{self.left},{self.right}->{self.out} along {self.axis} of {self.size}"


@dataclass(frozen=True)
class SetAttrs(_Labelled):
    """The second operand's values put at the third's positions of the first one's axis `axis`.

    A label per axis of the values, of the positions, and of the first operand, which are the result's. Of
    the values for one position the last counts: positions are in the order of their elements, the
    last axis fastest.
    """

    axis: str

    def __str__(self) -> str:
        return f"{self.left},{self.right} onto {self.out} along {self.axis}"


@dataclass(frozen=True)
class SortAttrs(Attrs):
    axis: int
    descending: bool = False

    def __str__(self) -> str:
        return f"axis={self.axis}" + (" descending" if self.descending else "")


@dataclass(frozen=True)
class ScanAttrs(Attrs):
    """An axis, and whether it is run through from its far end.

    `ordered` is for recurrences whose factors may be above 1: one step after the other, since
    products of many factors could overflow where no value does. Where a recurrence `restarts`, a
    factor of 0 lets nothing through of what came before, NaN and infinity neither.
    """

    axis: int
    reverse: bool = False
    ordered: bool = False
    restarts: bool = False

    def __str__(self) -> str:
        how = " reverse" * self.reverse + " in order" * self.ordered + " anew at 0" * self.restarts
        return f"axis={self.axis}{how}"


@dataclass(frozen=True)
class ShapeAttrs(Attrs):
    shape: Shape = _size_of_result()

    def __str__(self) -> str:
        return f"[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class PermAttrs(Attrs):
    perm: tuple[int, ...]

    def __str__(self) -> str:
        return f"perm={','.join(map(str, self.perm))}"


_POSITION: Final = "_"  # no dimension is called so
POSITION: Final = sym(_POSITION)


@dataclass(frozen=True)
class ReindexAttrs(Attrs):
    """y[k] = x[at(k)] along an axis; in `at`, the symbol `along` stands for k < size.

    It is a dimension where the positions are its points. Where `beyond` is not "never", positions
    beyond the axis read its nearer end, or a zero. Without a `size` it is one position that is read,
    and the axis goes.
    """

    axis: int
    at: Lin
    size: Size | None = _size_of_result(None)
    beyond: Literal["never", "end", "zero"] = "never"
    along: str = _POSITION

    @staticmethod
    def from_range(axis: int, lo: Lin, hi: Lin) -> ReindexAttrs:
        """Positions lo : hi."""
        return ReindexAttrs(axis, POSITION + lo, size(span(lo, hi).length))

    @staticmethod
    def padded(axis: int, lo: Lin, size: Size) -> ReindexAttrs:
        """All of an axis laid at position `lo` of one of another size, of zeros."""
        return ReindexAttrs(axis, POSITION - lo, size, "zero")

    @staticmethod
    def reversed(axis: int, size: Size) -> ReindexAttrs:
        """An axis of that size from its far end."""
        return ReindexAttrs(axis, lin(size) - 1 - POSITION, size)

    def inverse(self, size: Size) -> ReindexAttrs:
        """What brings each element back to where it was read, on an axis of that size.

        Raises:
            ValueError: some element may be read more than once.
        """
        lo, _ = self.ends
        is_onto = self.beyond == "never" and self.size is not None and same_size(self.size, size)
        back = POSITION - lo if self.is_in_order else self.at
        return ReindexAttrs(self.axis, back, size, "never" if is_onto else "zero")

    @property
    def ends(self) -> tuple[Lin, Lin]:
        """The positions lo : hi that are read, each once.

        Raises:
            ValueError: it reads others.
        """
        size = lin(1 if self.size is None else self.size)
        if self.size is None:
            lo = self.at
        elif self.is_in_order:
            lo = self.at - sym(self.along)
        else:
            lo = self.at + sym(self.along) + 1 - size
        if not lo.symbols.isdisjoint(self.bound_dims):
            raise ValueError(f"the positions of {self} are in no row")
        return lo, lo + size

    @property
    def is_in_order(self) -> bool:
        """Whether it reads positions in a row as they come: one, or a part of an axis."""
        return self.size is None or (self.at - sym(self.along)).symbols.isdisjoint(self.bound_dims)

    @property
    def is_identity(self) -> bool:
        """Whether it is all of an axis of its own size, in order."""
        in_order = self.size is not None and self.is_in_order
        return in_order and (self.beyond == "never" or self.ends[0] is ZERO)

    @property
    def is_reversal(self) -> bool:
        return self.size is not None and self.at is lin(self.size) - 1 - POSITION

    @property
    def bound_dims(self) -> Domain:
        return (self.along,)

    def __str__(self) -> str:
        if self.size is None:
            how = f"at {self.at}"
        elif self.is_reversal:
            how = "reversed"
        elif self.along != _POSITION and not self.is_in_order:
            how = f"at {self.at} along {self.along}"
        elif not self.is_in_order:
            how = f"{span(*self.ends)} reversed" + " or 0" * (self.beyond == "zero")
        elif self.beyond == "zero":
            how = f"from {-self.ends[0]} of {self.size}"
        else:
            how = str(span(*self.ends))
        return f"axis={self.axis} {how}"


# For each axis in front of a function's results which of its arguments have it.
Along = tuple[tuple[bool, ...], ...]


class PureFunction(Protocol):
    """A function of JAX arrays."""

    def __call__(self, *arrays: Any) -> tuple[Any, ...]: ...

    def sum_over_axis(self, out: int, mapped: tuple[bool, ...]) -> PureFunction | None:
        """One whose value `out` is that of this one added up along an axis of the arguments `mapped`,
        in front; None where no single call makes it."""
        ...


@dataclass(frozen=True)
class JaxedAttrs(Attrs):
    """Value number `out`, of type `type`, of a pure function of one point's operands.

    The function takes arrays of the element types `takes`, and returns a tuple of JAX arrays. The
    dimensions in `axes` (of lengths `sizes`) are the leading axes of the result; for each of them
    `along` says which operands have it, in the same order in front.
    """

    function: PureFunction
    name: str
    takes: tuple[DType, ...]
    type: TensorType
    out: int = 0
    axes: Domain = ()
    sizes: Shape = sizes_of_axes()
    along: Along = ()

    def __str__(self) -> str:
        return f"{self.name}[{self.out}]{along_text(self.axes)}"

    def own_axes(self, k: int) -> int:
        """How many axes of operand `k` come before those that the function sees."""
        return sum(has[k] for has in self.along)


@dataclass(frozen=True)
class OutputAttrs(Attrs):
    """An output's name, and the dimensions it is stacked over.

    "policy" is the role of the policy's last values besides its parameters.

    Those in `axes` are the leading axes of the operand, the others are the sink's domain.
    """

    name: str
    role: Literal["output", "parameter", "policy"] = "output"
    dims: Domain = ()
    axes: Domain = ()

    def __str__(self) -> str:
        return f"{self.role} {self.name!r}{along_text(self.axes)}"


@dataclass(frozen=True)
class BoundAttrs(Attrs):
    """The dimension that ends at the first point where the operand holds."""

    dim: str

    def __str__(self) -> str:
        return f"of {self.dim}"


@dataclass(frozen=True)
class CheckpointAttrs(Attrs):
    """The file that a checkpoint writes, and the name of each operand in it."""

    path: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return repr(self.path)


@dataclass(frozen=True)
class AccumulateAttrs(Attrs):
    """The reduction, and the dimensions that it runs over."""

    reduce: str
    dims: Domain

    def __str__(self) -> str:
        return f"{self.reduce} over {', '.join(self.dims)}"

    def varying_dims(self, dims: Dims) -> Domain:
        return self.dims


@dataclass(frozen=True)
class MergeAttrs(Attrs):
    """The line of the user's program that wrote each branch, and whether it is a resource's turns."""

    lines: tuple[Origin, ...] = field(default=(), compare=False)
    turns: bool = False
