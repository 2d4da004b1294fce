"""Attributes of operations: one immutable record per family of kinds.

A record defines its text and its dependence on dimensions. Index expressions are found by inspection of its
fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Literal, Protocol, cast

import numpy as np

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.random_bits import DEFAULT
from timerl_nb.compiler.ir.shapes import DType, Shape, Size, TensorType, same_size, size
from timerl_nb.compiler.symbolic.dimensions import LATER, Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import ZERO, Cond, Lin, lin, span, sym


class ConstArray:
    """An immutable copy of a constant array, compared by contents."""

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
    """Attributes of an operation; this base class is for kinds without any.

    `str()` returns their form in the operation's line.
    """

    def __str__(self) -> str:
        return ""

    @property
    def bound_dims(self) -> Domain:
        """Dimensions that represent axis positions in the index expressions."""
        return ()

    @cached_property
    def exprs(self) -> tuple[Lin | Cond, ...]:
        """The index expressions."""
        return tuple(self._exprs(None))

    @cached_property
    def parameters(self) -> tuple[Lin | Cond, ...]:
        """The index expressions, without mere sizes of the result."""
        return tuple(self._exprs(_SIZE))

    def varying_dims(self, dims: Dims) -> Domain:
        """Return the dimensions over which an operation varies because of its attributes alone."""
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
    """Return a dataclass field for a size or shape of the result."""
    return field(default=default, metadata={_SIZE: True})


def sizes_of_axes() -> Any:
    """Return a dataclass field for the sizes of vectorised dimensions."""
    return field(default=(), metadata={_LAID_OUT: True})


NO_ATTRS = Attrs()


class _Given(Attrs):
    """Attributes of data or random numbers at each point of `dims`.

    The dimensions in `axes` are the leading axes of the result, of lengths `sizes` from `starts` on (0 if
    empty). The others are the operation's domain.
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
    """Return the text of vectorised dimensions and their start positions."""
    shown = [f"{d} from {e}" for d, e in zip(axes, starts, strict=True)] if starts else axes
    return f" along {', '.join(shown)}" if axes else ""


@dataclass(frozen=True)
class ConstAttrs(_Given):
    """The value of a `const`, or the values of `data` with the dimensions `dims` as leading axes."""

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
    """Random bits of `stream` at the original coordinates `dims`, of shape `shape` at each point."""

    stream: int | str
    dims: Domain
    shape: Shape = field(metadata={_LAID_OUT: True})
    axes: Domain = ()
    sizes: Shape = sizes_of_axes()
    starts: tuple[Lin, ...] = ()
    shared: bool = False  # other operations may draw from the stream, too
    generator: str = field(default=DEFAULT, metadata={LATER: True})

    def varying_dims(self, dims: Dims) -> Domain:
        seeds = {dims.seeds.name} if dims.seeds else set[str]()
        return dims.ordered({*super().varying_dims(dims), *seeds - set(self.axes)})

    def __str__(self) -> str:
        by = "" if self.generator == DEFAULT else f" by {self.generator}"
        return f"stream={self.stream} of ({', '.join(self.dims)}){along_text(self.axes, self.starts)}{by}"


@dataclass(frozen=True)
class CastAttrs(Attrs):
    dtype: DType

    def __str__(self) -> str:
        return self.dtype


@dataclass(frozen=True)
class Filled:
    """Condition for a non-empty reduction: `cond` holds for some values of the symbols `among`."""

    cond: Cond
    among: Domain = ()


@dataclass(frozen=True)
class AxesAttrs(Attrs):
    """The reduced axes. In the user's program, `filled` is the condition for a non-empty reduction.

    The verifier proves `filled` for reductions without a neutral element; later passes ignore it.
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
    """The sum of gamma**k * x[k] along an axis; with `reverse`, k counts from the end."""

    axis: int
    gamma: float
    reverse: bool = False

    def __str__(self) -> str:
        return f"axis={self.axis} gamma={self.gamma}" + (" reverse" if self.reverse else "")


@dataclass(frozen=True)
class SlidingAttrs(Attrs):
    """y[k] = sum over j < window of gamma**j * x[k + j], or of x[k - j] without `forward`.

    Terms beyond the ends are omitted. `window` None is unbounded.
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
    """One letter per axis, for the left operand, the right operand and the result."""

    left: str
    right: str
    out: str


@dataclass(frozen=True)
class DotAttrs(_Labelled):
    """A contraction of two operands; labels missing from `out` are summed."""

    def __str__(self) -> str:
        return f"{self.left},{self.right}->{self.out}"


@dataclass(frozen=True)
class Sweep:
    """Geometry of one convolved axis; its three axes share one label.

    Positions i of the left operand, k of the right operand and p of the result (of length `size`) are
    related by spread * i = stride * p + dilation * k - offset; a mirrored convolution has `- dilation * k`.
    Elements beyond the ends are zero.
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
    """A contraction with convolved axes; one label per axis, as for `dot`."""

    sweeps: tuple[Sweep, ...]
    mirrored: bool = False

    def __str__(self) -> str:
        how = [f"{self.left},{self.right}->{self.out}", *map(str, self.sweeps)]
        return ", ".join(how) + (" mirrored" if self.mirrored else "")


@dataclass(frozen=True)
class GatherAttrs(_Labelled):
    """Elements of the left operand at positions of its axis `axis`, given by the right operand.

    All other labels of both operands appear in the result; shared labels are matched.
    """

    axis: str

    def __str__(self) -> str:
        return f"{self.left},{self.right}->{self.out} along {self.axis}"


@dataclass(frozen=True)
class ScatterAttrs(_Labelled):
    """Sum of left values at positions of a new axis `axis` of length `size`, given by the right operand.

    This is the transpose of a gather: labels missing from the result are summed.
    """

    axis: str
    size: Size

    def __str__(self) -> str:
        return f"{self.left},{self.right}->{self.out} along {self.axis} of {self.size}"


@dataclass(frozen=True)
class SetAttrs(_Labelled):
    """Values of the second operand, written to the first at positions of its axis `axis` from the third.

    `left` labels the values, `right` the positions, `out` the first operand and the result. Among several
    values for one position, the last one counts, in row-major order of the positions.
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
    """The axis of a scan, and whether it runs from the end.

    Attributes:
        axis: the axis.
        reverse: whether the scan runs from the end.
        ordered: whether it runs step by step. Factors above 1 require this, since products of many factors
            could overflow although no value does.
        restarts: whether a factor of 0 discards all earlier values, with NaN and infinity.
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


_POSITION: Final = "_"  # no dimension has this name
POSITION: Final = sym(_POSITION)


@dataclass(frozen=True)
class ReindexAttrs(Attrs):
    """y[k] = x[at(k)] along an axis; the symbol `along` in `at` represents k < size.

    `along` is a dimension if the positions are its points. Unless `beyond` is "never", positions beyond the
    axis read its nearest end, or zero. Without a `size`, one position is read and the axis is removed.
    """

    axis: int
    at: Lin
    size: Size | None = _size_of_result(None)
    beyond: Literal["never", "end", "zero"] = "never"
    along: str = _POSITION

    @staticmethod
    def from_range(axis: int, lo: Lin, hi: Lin) -> ReindexAttrs:
        """Return the attributes of the slice lo : hi."""
        return ReindexAttrs(axis, POSITION + lo, size(span(lo, hi).length))

    @staticmethod
    def padded(axis: int, lo: Lin, size: Size) -> ReindexAttrs:
        """Return the attributes that place an axis at position `lo` of a zero-padded axis of another size."""
        return ReindexAttrs(axis, POSITION - lo, size, "zero")

    @staticmethod
    def reversed(axis: int, size: Size) -> ReindexAttrs:
        """Return the attributes of a reversal."""
        return ReindexAttrs(axis, lin(size) - 1 - POSITION, size)

    def inverse(self, size: Size) -> ReindexAttrs:
        """Return the attributes that move each element back to its position, on an axis of `size`.

        Raises:
            ValueError: an element may be read more than once.
        """
        lo, _ = self.ends
        is_onto = self.beyond == "never" and self.size is not None and same_size(self.size, size)
        back = POSITION - lo if self.is_in_order else self.at
        return ReindexAttrs(self.axis, back, size, "never" if is_onto else "zero")

    @property
    def ends(self) -> tuple[Lin, Lin]:
        """The range lo : hi of the read positions.

        Raises:
            ValueError: the positions are not contiguous.
        """
        size = lin(1 if self.size is None else self.size)
        if self.size is None:
            lo = self.at
        elif self.is_in_order:
            lo = self.at - sym(self.along)
        else:
            lo = self.at + sym(self.along) + 1 - size
        if not lo.symbols.isdisjoint(self.bound_dims):
            raise ValueError(f"the positions of {self} are not contiguous")
        return lo, lo + size

    @property
    def is_in_order(self) -> bool:
        """Whether it reads contiguous positions in increasing order."""
        return self.size is None or (self.at - sym(self.along)).symbols.isdisjoint(self.bound_dims)

    @property
    def is_identity(self) -> bool:
        """Whether it reads a whole axis in order, without padding."""
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


# For each leading axis of a function's results, the arguments with this axis.
Along = tuple[tuple[bool, ...], ...]


class PureFunction(Protocol):
    """A function of JAX arrays."""

    def __call__(self, *arrays: Any) -> tuple[Any, ...]: ...

    def sum_over_axis(self, out: int, mapped: tuple[bool, ...]) -> PureFunction | None:
        """Return a function whose value `out` is summed over a leading axis of the arguments `mapped`.

        Returns:
            None if no single call computes it.
        """
        ...


@dataclass(frozen=True)
class JaxedAttrs(Attrs):
    """Result number `out`, of type `type`, of a pure JAX function of one point's operands.

    Attributes:
        function: takes arrays, and returns a tuple of JAX arrays.
        name: the name in messages and pictures.
        takes: the element types of the arguments.
        type: the type of the result.
        out: the number of the result.
        axes: vectorised dimensions, the leading axes of the result.
        sizes: the lengths of these axes.
        along: for each of these axes, the operands with this axis, in the same order in front.
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
        """Return the number of leading axes of operand `k` that the function does not see."""
        return sum(has[k] for has in self.along)


@dataclass(frozen=True)
class OutputAttrs(Attrs):
    """An output's name, and the dimensions over which it is stacked.

    Attributes:
        name: the name.
        role: "output", "parameter", or "policy" for the policy's last values besides its parameters.
        dims: the dimensions in the user's order.
        axes: those that are leading axes of the operand; the others are the sink's domain.
    """

    name: str
    role: Literal["output", "parameter", "policy"] = "output"
    dims: Domain = ()
    axes: Domain = ()

    def __str__(self) -> str:
        return f"{self.role} {self.name!r}{along_text(self.axes)}"


@dataclass(frozen=True)
class BoundAttrs(Attrs):
    """The dimension that ends at the first point with a true operand."""

    dim: str

    def __str__(self) -> str:
        return f"of {self.dim}"


@dataclass(frozen=True)
class CheckpointAttrs(Attrs):
    """The file of a checkpoint, and the name of each operand in it."""

    path: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return repr(self.path)


@dataclass(frozen=True)
class AccumulateAttrs(Attrs):
    """The reduction, and its dimensions."""

    reduce: str
    dims: Domain

    def __str__(self) -> str:
        return f"{self.reduce} over {', '.join(self.dims)}"

    def varying_dims(self, dims: Dims) -> Domain:
        return self.dims


@dataclass(frozen=True)
class MergeAttrs(Attrs):
    """The user's line of each branch, and whether the merge is the token chain of a resource."""

    lines: tuple[Origin, ...] = field(default=(), compare=False)
    turns: bool = False
