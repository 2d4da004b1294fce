"""Recurrent tensors: what equations are written with.

A `RecurrentTensor` is a read of an operation's output at index expressions. Its domain is the set
of dimensions that those expressions vary with; operators and methods add operations whose domain is
the union of their operands' (000_9a2364bc51ddf94b.txt §4). A tensor that is not indexed stands for
itself at the current point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from os import PathLike
from typing import Any

import numpy as np

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
from timerl_nb.compiler.language.foreign_names import TENSOR, all_asked
from timerl_nb.compiler.language.indexing.conditional_domains import split, subset_of
from timerl_nb.compiler.language.indexing.index_parsing import (
    Condition,
    Index,
    as_cond,
    as_dims,
    as_lin,
    parse,
)
from timerl_nb.compiler.language.indexing.left_hand_side_branches import branch_read
from timerl_nb.compiler.language.lint import fewer, never, warn_lost_precision, zero_divisor
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
    """What `loss.backward()` has done, as a notebook shows it.

    Attributes:
        parameters: how many it has reached.
        over: the dimensions of the loss over which their gradients are added up.
    """

    parameters: int
    over: Domain

    def __repr__(self) -> str:
        added = f", added up over ({', '.join(self.over)})" if self.over else ""
        return f"gradients of {self.parameters} parameter{'s' * (self.parameters != 1)}{added}"


# `autodiff` stands above this module and enters itself here.
_BACKWARD: list[Callable[[RecurrentTensor], Backward]] = []


def register_backward(rule: Callable[[RecurrentTensor], Backward]) -> None:
    """Let `x.backward()` be `rule(x)`."""
    _BACKWARD[:] = [rule]


@all_asked
class RecurrentTensor(Past, Rearranged, Fixed):
    """A tensor that varies over symbolic dimensions; `f32[4] @ (b, i, t)`."""

    _KIND, _WORDS, _ERROR = "a recurrent tensor", TENSOR, ShapeError
    _OWN = frozenset({"ctx", "read"})

    def __init__(self, ctx: Context, read: Read) -> None:
        self.ctx = ctx
        self.read = read

    # --- what it is --------------------------------------------------------------------------

    @property
    def op(self) -> Op:
        """The operation that is read."""
        return self.ctx[self.read.source]

    @property
    def type(self) -> TensorType:
        try:
            return read_type(self.op.outputs[self.read.out], self.read)
        except TypeRuleError as error:
            raise ShapeError(
                f"{error}.", hint="reduce the shorter slice first, so that all values are alike."
            ) from None

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def domain(self) -> Domain:
        return self.ctx.space.ordered(read_symbols(self.read))

    @property
    def name(self) -> str:
        return self.op.label or f"%{self.op.id}"

    @property
    def next(self) -> RecurrentTensor:
        """What a parameter is after its update (`Parameter.next`); other tensors have no such value.

        Raises:
            DomainError: this is none.
        """
        raise DomainError(
            f"{self.name} is no parameter: only a parameter has a next value.",
            others={"it is made at": self.op.origin},
            hint="index it, as in x[i + 1]; p.next[i + 1] is p after the update of iteration i + 1.",
        )

    def named(self, label: str) -> RecurrentTensor:
        """Give the operation behind the tensor a name that pictures and errors show."""
        self.ctx.set_label(self.read.source, label)
        return self

    def named_if_new(self, label: str) -> RecurrentTensor:
        """Give a name only where there is none: what the user named keeps its name."""
        return self if self.op.label else self.named(label)

    @property
    def subset(self) -> Cond:
        """Where the tensor is defined: a condition on its domain, TRUE unless it is conditional."""
        return subset_of(self.ctx.__getitem__, self.read)

    def __repr__(self) -> str:
        where = "" if self.subset is TRUE else f" where {self.subset}"
        return f"{self.type} @ ({', '.join(self.domain)}){where}"

    def __bool__(self) -> bool:
        raise ShapeError(
            "a recurrent tensor has no truth value while the program is written.",
            hint="trl.where(condition, x, y) chooses; & | ~ join booleans, trl.min, trl.max and "
            "x.round() are what Python's min, max, and, or, not, if and a < b < c cannot be.",
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
        """The tensor with the given dimensions of its domain read elsewhere."""
        domain = self.domain
        index = tuple(entries.get(d, sym(d)) for d in domain)
        if is_own(index, domain):
            return self
        composed = compose(Read(-1, 0, index), domain, self.read)
        if composed is None:
            return self.settled().at(entries)
        return RecurrentTensor(self.ctx, composed)

    def given(self, cond: Cond) -> RecurrentTensor:
        """The tensor at the points where a condition holds, and nowhere else (semantics.md §6).

        Operations on it run where all their operands are defined, `over=` reduces the points that
        are, and an output returns them with their coordinates.
        """
        if cond is TRUE:
            return self
        if cond is FALSE:
            raise DomainError(
                f"{self.name} is given a condition that never holds: it would have no points.",
                hint="check the comparison; symbols start at 0 and end before their bound.",
            )
        never(self.ctx.space, self.domain, cond, f"{self.name} is given a condition:")
        return _add(self.ctx, "copy", [self], NO_ATTRS, label=self.op.label, where=cond)

    def otherwise(self, value: Any) -> RecurrentTensor:
        """The tensor at every point of its domain: `value` where it is not defined."""
        if self.subset is TRUE:
            return self
        x = self if self.is_plain() else self.settled()
        fill = broadcast_to(operand(self.ctx, value, like=self.dtype), self.shape)
        if fill.dtype != self.dtype:
            raise ShapeError(f"{self.name} is {self.type}, but {value!r} is {fill.dtype}.")
        extra = [d for d in fill.domain if d not in self.domain]
        if extra:
            raise DomainError(
                f"the value varies over {', '.join(extra)}, which {self.name} does not.",
                hint="index the value at a point, or reduce it.",
            )
        fill = fill if fill.is_plain() else fill.settled()
        return select_where(x, self.subset, self.domain, fill)

    def _select_where(self, cond: Cond, elsewhere: RecurrentTensor) -> RecurrentTensor:
        symbols = {*self.domain, *elsewhere.domain, *cond.symbols}
        return select_where(self, cond, self.ctx.space.ordered(symbols), elsewhere)

    def settled(self) -> RecurrentTensor:
        """The same tensor as an operation's value at the current point."""
        output = self.op.outputs[self.read.out]
        if at_own_point(self.read.source, output, self.read.out) == self.read:
            return self
        return elementwise("copy", [self])

    def __setitem__(self, key: Any, value: Any) -> None:
        op = self.op
        if op.kind != "merge" or self.read != at_own_point(op.id, op.outputs[0]):
            raise BranchError(
                f"{self.name} is not a tensor defined by branches.",
                others={"it is made at": op.origin},
                hint="make it with trl.tensor(...) or trl.like(...), then assign its branches.",
            )
        if op.id in self.ctx.parameters:
            raise BranchError(
                "a parameter changes through its update only.",
                hint="use an optimiser, or p.update(next_value).",
            )
        branch, against = _unify_sizes(operand(self.ctx, value, like=self.dtype), self.shape)
        if branch.dtype != self.dtype or not same_shape(branch.shape, self.shape):
            raise ShapeError(
                f"{self.name} is {self.type}, but this branch is {branch.type}.",
                others={f"{self.name} is made at": op.origin},
                evidence=against or (),
                hint="make the branch's shape and dtype those of the tensor.",
            )
        self.ctx.add_branch(op.id, branch_read(self, key, branch))

    # --- arithmetic --------------------------------------------------------------------------

    def _apply_binary(self, kind: str, other: Any, *, swap: bool = False) -> RecurrentTensor:
        try:
            rhs = as_tensor(self.ctx, other, like=_weak(kind, self.dtype, [other]))
        except TypeError:
            if type(other).__module__ in ("builtins", "numpy") and not (
                other is None and kind in ("eq", "ne")
            ):
                operand(self.ctx, other, like=self.dtype)  # says what is wrong with it
            return NotImplemented  # its own operator may know; else Python says so
        return elementwise(kind, [rhs, self] if swap else [self, rhs])

    def _map(self, kind: str, *others: Any) -> RecurrentTensor:
        return elementwise(kind, [self, *others])

    def detach(self) -> RecurrentTensor:
        """The same values; gradients do not flow through."""
        return elementwise("detach", [self])

    def checkpoint(self, path: str | PathLike[str]) -> None:
        """Save the tensor, at every point at which it is defined, to the folder `path`."""
        x = self if self.is_plain() else self.settled()
        target, origin = folder(path), user_origin()

        def write() -> None:  # at the end, when it has its name
            self.ctx.add_sink([self.op.label or "value"], [x.read], target, TRUE, origin)

        self.ctx.at_end(write)

    def backward(self) -> Backward:
        """Add to each parameter's `grad` the gradient of the sum of this over all its points.

        What it returns says over which dimensions gradients were added up.

        Raises:
            GradientError: no parameter can be reached.
        """
        return _BACKWARD[0](self)

    def cast(self, dtype: Any) -> RecurrentTensor:
        """The same values as another element type ("f32", "i32", "bool", float, np.int32, …)."""
        name = element_type(dtype)
        return self if name == self.dtype else _add(self.ctx, "cast", [self], CastAttrs(name))

    astype = cast

    def floating(self) -> RecurrentTensor:
        """Integers and booleans as float32."""
        return self if is_float(self.dtype) else self.cast("f32")

    # --- reductions and scans ----------------------------------------------------------------

    def sum(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> RecurrentTensor:
        """The sum over symbolic dimensions (`over`) or concrete axes (`axis`; all by default)."""
        return self._apply_keepdims(self._reduce("sum", over, axis), over, axis, keepdims)

    def _cast_to_accumulator(self) -> RecurrentTensor:
        return self.cast(accumulator_type(self.dtype))

    def prod(
        self, over: Any = None, axis: Any = None, *, keepdims: bool = False
    ) -> RecurrentTensor:
        """The product over symbolic dimensions or concrete axes."""
        return self._apply_keepdims(self._reduce("prod", over, axis), over, axis, keepdims)

    def max(
        self, over: Any = None, axis: Any = None, *, initial: Any = None, keepdims: bool = False
    ) -> RecurrentTensor:
        """The greatest element over symbolic dimensions or concrete axes, and `initial` if given.

        Where there may be no element it has to be given: the program is refused otherwise.
        """
        return self._apply_keepdims(self._extreme("max", over, axis, initial), over, axis, keepdims)

    def min(
        self, over: Any = None, axis: Any = None, *, initial: Any = None, keepdims: bool = False
    ) -> RecurrentTensor:
        """The least element over symbolic dimensions or concrete axes, and `initial` if given."""
        return self._apply_keepdims(self._extreme("min", over, axis, initial), over, axis, keepdims)

    def _extreme(self, kind: str, over: Any, axis: Any, initial: Any) -> RecurrentTensor:
        found = self._reduce(kind, over, axis, filled=initial is None)
        return found if initial is None else found._map(f"{kind}2", initial)

    def any(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> RecurrentTensor:
        """Whether a boolean tensor holds anywhere."""
        found = self._boolean()._reduce("max", over, axis)
        return self._apply_keepdims(found, over, axis, keepdims)

    def all(self, over: Any = None, axis: Any = None, *, keepdims: bool = False) -> RecurrentTensor:
        """Whether a boolean tensor holds everywhere."""
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
        """The mean over symbolic dimensions or concrete axes, as floating-point numbers.

        Of a conditional tensor over symbolic dimensions: over the points at which it is defined.
        `initial` is the mean of nothing; where there may be nothing, it has to be given.
        """
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
        """The numbers of values that a reduction combines; their product is how many there are."""
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
        """Sum of gamma**k * x[k] along an axis; after a symbolic slice, the slice's by default."""
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
                hint="axes are counted from 0, or from -1 at the end; symbolic dimensions are not "
                "axes (sum(over=t) reduces one).",
            )
        return int(axis) % self.rank

    def _reduce(self, kind: str, over: Any, axis: Any, *, filled: bool = False) -> RecurrentTensor:
        """A reduction over symbolic dimensions, which become leading axes, or over axes.

        `filled` asks that there be something to reduce at every point that is needed.
        """
        if over is not None and axis is not None:
            raise ShapeError("give over= (symbolic dimensions) or axis= (axes), not both.")
        x, rest = self, TRUE
        has = Filled(TRUE)
        if over is None:
            axes = self._axes(axis)
            has = Filled(all_of(TRUE, *(ge(lin(self.shape[a]), 1) for a in axes)))
        else:
            names = self._names(over)
            axes = tuple(range(len(names)))
            # A reduced dimension may stand inside another entry's slice: settle first.
            x = self if self.is_plain() else self.settled()
            guard, others = split(x.subset, names)
            if guard is not TRUE:  # what is not defined counts for nothing
                rest = others
                has = Filled(guard, tuple(n for n in names if n in guard.symbols))
                x = x.otherwise(constant(self.ctx, identity(kind, NUMPY[x.dtype]), x.dtype))
            x = x.at({n: self.ctx.space[n].full_range for n in names})
        if not axes:
            return x._cast_to_accumulator() if kind in ("sum", "prod") else x
        proof = has if filled and has.cond is not TRUE else None
        return _add(self.ctx, kind, [x], AxesAttrs(axes, proof), where=rest)

    def _axes(self, axis: Any) -> tuple[int, ...]:
        given: Any = range(self.rank) if axis is None else axis
        several = isinstance(given, range | tuple | list)
        axes = tuple(self._axis(a) for a in (given if several else (given,)))
        if len(set(axes)) < len(axes):
            raise ShapeError(f"an axis is named twice in {axis!r}.")
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
        """Whether it is read without slices."""
        return all(isinstance(e, Lin) for e in self.read.index)

    # --- products and layout -------------------------------------------------------------------

    def __matmul__(self, other: Any) -> RecurrentTensor:
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
        """The same elements in another shape; one size may be -1 where all sizes are integers."""
        alone = len(shape) == 1 and isinstance(shape[0], tuple | list)
        sizes: list[Any] = list(shape[0] if alone else shape)
        sizes = [as_size(s) for s in sizes]
        if not all(is_size(s) for s in sizes) or sum(s == -1 for s in sizes) > 1:
            raise ShapeError(f"{shape} is no shape.", hint="sizes are integers, one may be -1.")
        if any(isinstance(s, int) and s < -1 for s in sizes):
            raise ShapeError(f"{shape} has a negative size.")
        if -1 in sizes and all(isinstance(s, int) for s in self.shape):
            rest = prod(s for s in sizes if isinstance(s, int) and s != -1)
            total = prod(s for s in self.shape if isinstance(s, int))
            sizes[sizes.index(-1)] = total // max(rest, 1)
        return _add(self.ctx, "reshape", [self], ShapeAttrs(shape_of(sizes)))

    def unsqueeze(self, axis: int) -> RecurrentTensor:
        """A new axis of size 1."""
        if not is_whole(axis) or not -self.rank - 1 <= axis <= self.rank:
            raise ShapeError(f"{self.type} has no place {axis!r} for a new axis.")
        at = int(axis) % (self.rank + 1)
        return self.reshape((*self.shape[:at], 1, *self.shape[at:]))

    expand_dims = unsqueeze

    def transpose(self, *perm: Any) -> RecurrentTensor:
        """The axes in the given order; reversed by default."""
        perm = tuple(perm[0]) if len(perm) == 1 and isinstance(perm[0], tuple | list) else perm
        order = tuple(self._axis(a) for a in perm) if perm else tuple(reversed(range(self.rank)))
        return _add(self.ctx, "transpose", [self], PermAttrs(order))

    permute = transpose

    def expand(self, *shape: Any) -> RecurrentTensor:
        """Axes of size 1 repeated, and axes added in front, up to the given shape."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        sizes = shape_of(map(as_size, given))
        for s in sizes:
            if not is_size(s) or (isinstance(s, int) and s < 0):
                raise ShapeError(f"{s!r} is not a size.", hint="sizes are integers of at least 0.")
        return broadcast_to(self, sizes)

    broadcast_to = expand

    def flip(self, axis: int) -> RecurrentTensor:
        """An axis in reverse order."""
        k = self._axis(axis)
        return _add(self.ctx, "reindex", [self], ReindexAttrs.reversed(k, self.shape[k]))

    def slice(self, lo: Any, hi: Any, axis: int = 0) -> RecurrentTensor:
        """Positions lo : hi of a concrete axis; the ends may be index expressions."""
        k, first, end = self._axis(axis), as_lin(self.ctx, lo), as_lin(self.ctx, hi)
        size = lin(self.shape[k])
        if first.is_const and end.is_const and size.is_const:
            if not 0 <= first.const <= end.const <= size.const:
                raise ShapeError(f"{self.type} has no positions {lo}:{hi} along axis {k}.")
        return _add(self.ctx, "reindex", [self], ReindexAttrs.from_range(k, first, end))

    def take(self, at: Any, axis: int = 0) -> RecurrentTensor:
        """Positions of a concrete axis, given by an integer, an index, or integers in a tensor or array.

        The axis goes; a tensor's own axes take its place. Positions beyond the axis yield zeros, and
        so do negative ones in a tensor, which are known at run time only; others count from the end.
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
            raise ShapeError(f"{self.type} has no position {at} along axis {k}.")
        return _add(self.ctx, "reindex", [self], ReindexAttrs(k, position))

    def unstack(self, axis: int = 0) -> list[RecurrentTensor]:
        """The slices of an axis of integer size, one tensor each."""
        size = self.shape[self._axis(axis)]
        if not isinstance(size, int):
            raise ShapeError(f"axis {axis} of {self.type} has a symbolic size.")
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
    """What an operation makes, at the current point."""
    return RecurrentTensor(ctx, at_own_point(op.id, op.outputs[out], out))


def apply(kind: str, args: Sequence[RecurrentTensor], attrs: Any = NO_ATTRS) -> RecurrentTensor:
    """An operation of any kind on tensors of one context."""
    return _add(args[0].ctx, kind, args, attrs)


def constant(ctx: Context, value: Any, dtype: DType | None = None) -> RecurrentTensor:
    """A constant tensor without symbolic dimensions."""
    array = np.asarray(value)
    kept = narrow(array) if dtype is None else exactly(array, dtype)
    warn_lost_precision(array, kept)
    return _add(ctx, "const", [], ConstAttrs(ConstArray(kept)))


def value_of(ctx: Context, e: Lin | Cond) -> RecurrentTensor:
    """An index expression as a tensor: int32, or boolean for a condition."""
    if isinstance(e, Lin) and e.is_const:
        return constant(ctx, np.int32(e.const))
    return _add(ctx, "value", [], ValueAttrs(e, "i32" if isinstance(e, Lin) else "bool"))


def as_tensor(ctx: Context | None, value: Any, like: DType | None = None) -> RecurrentTensor:
    """A tensor of whatever arithmetic accepts.

    Python numbers are weak: they take the type `like`, unless it cannot hold them.

    Raises:
        TypeError: the value is nothing that arithmetic accepts.
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
        if kind.kind not in "iu" and abs(value) >= 2**63:  # NumPy makes an object of it
            return as_tensor(ctx, _as_float(value), dtype)
        return constant(ctx, value, dtype)
    if isinstance(value, float):
        return constant(ctx, value, like if like is not None and is_float(like) else "f32")
    if isinstance(value, str) or value is None or callable(value):
        raise TypeError(f"{type(value).__name__} is no tensor")
    try:
        return constant(ctx, value)
    except (TypeError, ValueError):
        raise TypeError(f"{type(value).__name__} is no tensor") from None
    except OverflowError:
        raise ShapeError(
            "an array has integers that do not fit into 32 bits.",
            hint='trl.constant(array, dtype="i64"), where the backend has 64-bit types; or floats.',
        ) from None


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ShapeError(
            f"an integer of {value.bit_length():,} bits does not fit into a float.",
            hint="scale it.",
        ) from None


def operand(ctx: Context | None, value: Any, like: DType | None = None) -> RecurrentTensor:
    """`as_tensor` for arguments: what is no tensor is an error of the user's."""
    try:
        return as_tensor(ctx, value, like)
    except TypeError:
        raise ShapeError(
            f"{value!r} is no tensor.", hint="give a tensor, a number, an array or an index."
        ) from None


def _weak(kind: str, dtype: DType, values: Sequence[Any]) -> DType:
    """The type of Python numbers beside tensors of type `dtype`.

    What integers of few bits cannot hold is compared with them all the same.
    """
    if kind in ("eq", "ne", "lt", "le") and dtype in ("i8", "u8", "i16"):
        if any(isinstance(x, int) and not _fits(x, dtype) for x in values):
            return "i32"
    return dtype


def _fits(value: int, dtype: DType) -> bool:
    return np.iinfo(NUMPY[dtype]).min <= value <= np.iinfo(NUMPY[dtype]).max


def elementwise(kind: str, args: Sequence[Any]) -> RecurrentTensor:
    """An elementwise operation after NumPy's rules of broadcasting and type promotion."""
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
    if x.rank in (0, rank):  # scalars go with every rank
        return x
    return x.reshape((*(1,) * (rank - x.rank), *x.shape))


def _unify_sizes(x: RecurrentTensor, shape: Shape) -> tuple[RecurrentTensor, str]:
    """`x` with its sizes written as in a shape, where they are equal; else what speaks against it."""
    if x.rank != len(shape):
        return x, ""
    pairs = [(a, b) for a, b in zip(shape, x.shape, strict=True) if not same_size(a, b)]
    (read,), against = x.ctx.with_sizes([x.read], pairs, x.subset)
    return RecurrentTensor(x.ctx, read), against


def select_where(
    x: RecurrentTensor, cond: Cond, domain: Domain, elsewhere: RecurrentTensor
) -> RecurrentTensor:
    """The tensor over `domain` that is `x` where the condition holds, and `elsewhere` elsewhere."""
    merge = x.ctx.add_guarded(x.read, cond, elsewhere.read, domain)
    return tensor_of(x.ctx, merge)


def broadcast_to(x: RecurrentTensor, shape: Shape) -> RecurrentTensor:
    """`x` repeated along axes of size 1, and leading axes, up to `shape`."""
    if same_shape(x.shape, shape):
        return x
    return apply("expand", [_lead(x, len(shape))], ShapeAttrs(shape))


def dot(left: RecurrentTensor, right: RecurrentTensor, spec: str) -> RecurrentTensor:
    """A contraction written as for `einsum`: a letter per axis."""
    inputs, out = spec.split("->")
    a, b = inputs.split(",")
    common = promote((left.dtype, right.dtype))
    return apply("dot", [left.cast(common), right.cast(common)], DotAttrs(a, b, out))
