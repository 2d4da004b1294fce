"""Sources of tensors: tensors defined by branches, arrays, constants, parameters, indices, random numbers."""

from __future__ import annotations

from math import prod
from typing import Any, Protocol

import numpy as np

from timerl_nb.base.array_conversion import convert_array, host_array
from timerl_nb.base.errors import (
    BranchError,
    DomainError,
    GradientError,
    Origin,
    ShapeError,
    TimeRLError,
    user_origin,
)
from timerl_nb.compiler.ir.dependence_graph import at_own_point
from timerl_nb.compiler.ir.operation_attributes import (
    AxisAttrs,
    ConstArray,
    ConstAttrs,
    OutputAttrs,
    RngAttrs,
)
from timerl_nb.compiler.ir.shapes import (
    NUMPY,
    Shape,
    TensorType,
    broadcast,
    exactly,
    is_float,
    narrow,
)
from timerl_nb.compiler.language.argument_checks import checked_name, element_type, is_whole, number
from timerl_nb.compiler.language.foreign_names import (
    expect_type,
    explain_call_errors,
    explain_method_errors,
)
from timerl_nb.compiler.language.indexing.index_parsing import (
    Condition,
    Index,
    as_dims,
    choose,
    expression_of,
    extremum,
)
from timerl_nb.compiler.language.indexing.recurrence_initialization import (
    initial_branch,
    previous_branches,
)
from timerl_nb.compiler.language.lint import bare_numbers, never, warn_lost_precision
from timerl_nb.compiler.language.program_context import Context, current
from timerl_nb.compiler.language.recurrent_tensor import (
    RecurrentTensor,
    apply,
    broadcast_to,
    elementwise,
    operand,
    tensor_of,
    value_of,
)
from timerl_nb.compiler.language.recurrent_tensor import (
    constant as const_tensor,
)
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Lin


class HasType(Protocol):
    """A space or a tensor: any object with a shape and a dtype."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...


def _domain(ctx: Context, domain: Any) -> Domain:
    return as_dims(ctx, ctx.space, domain)


def shape_of_user(shape: Any) -> Shape:
    """Convert a user's shape.

    Raises:
        ShapeError: a size is neither an index expression nor an integer of at least 0.
    """
    try:
        given = (shape,) if isinstance(shape, Index | Lin) else tuple(shape)
    except TypeError:
        given = (shape,)
    found: list[int | Lin] = []
    for size in given:
        if isinstance(size, Index):
            found.append(size.lin)
        elif isinstance(size, Lin):
            found.append(size)
        elif is_whole(size) and size >= 0:
            found.append(int(size))
        else:
            raise ShapeError(f"{size!r} is not a size.", hint="give integers of at least 0.")
    return tuple(found)


@explain_call_errors
def tensor(shape: Any, dtype: Any = "f32", *, domain: Any = ()) -> RecurrentTensor:
    """Create a tensor to be defined by branches, such as `x[0] = …` and `x[t + 1] = …`.

    Args:
        shape: the shape of the value at a point.
        dtype: the element type.
        domain: the dimensions that the tensor varies over.

    Raises:
        ShapeError: a size varies over a dimension, or the element type does not exist.
        DomainError: `domain` contains something other than a dimension.

    Example:
        >>> x = trl.tensor((), domain=t)
        >>> x[0] = 1.0
        >>> x[t + 1] = 0.9 * x
        >>> x
        f32[] @ (t)
    """
    ctx = current()
    sizes = shape_of_user(shape)
    for s in sizes:
        if isinstance(s, Lin) and s.symbols.intersection(ctx.space.names):
            raise ShapeError(
                f"a tensor defined by branches has a fixed shape, not one of length {s}.",
                hint="let it vary over the dimension, and slice it in its reads.",
            )
    op = ctx.open_merge(TensorType(sizes, element_type(dtype)), _domain(ctx, domain))
    return tensor_of(ctx, op)


@explain_call_errors
def like(model: HasType, *, domain: Any = None) -> RecurrentTensor:
    """Create a tensor to be defined by branches, with the shape and dtype of a space or tensor.

    Args:
        model: a space or a tensor.
        domain: the dimensions that the tensor varies over; by default those of `model`, or none for a space.

    Raises:
        ShapeError: `model` has no shape and dtype.

    Example:
        >>> r = trl.data(np.ones(8, "f4"), domain=t)
        >>> g = trl.like(r)
        >>> g[t == T - 1] = r
        >>> g[t < T - 1] = r + 0.99 * g[t + 1]
        >>> g
        f32[] @ (t)
    """
    if domain is None:
        domain = model.domain if isinstance(model, RecurrentTensor) else ()
    if not hasattr(model, "shape") or not hasattr(model, "dtype"):
        raise ShapeError(f"{model!r} has no shape and dtype.", hint="give a space or a tensor.")
    return tensor(model.shape, model.dtype, domain=domain)


@explain_call_errors
def first_match(x: RecurrentTensor) -> RecurrentTensor:
    """Let the first matching branch define each point of a tensor with overlapping branches.

    Without this call, overlapping branches are an error, except that a branch with constants (`x[0] = …`) takes
    precedence over one with the dimension's variable in their place (`x[t] = …`).

    Args:
        x: a tensor created by `trl.tensor` or `trl.like`. Branches assigned before the call count as well.

    Returns:
        the same tensor.

    Raises:
        BranchError: `x` is not defined by branches, or a gradient has already been taken through it.

    Example:
        >>> x = trl.first_match(trl.tensor((), domain=t))
        >>> x[t % 10 == 0] = 1.0
        >>> x[t % 2 == 0] = 0.5  # at even points that are no multiple of 10
        >>> x[t] = 0.0  # at odd points
        >>> x
        f32[] @ (t)
    """
    if not isinstance(x, RecurrentTensor):
        raise BranchError(
            f"{x!r} is not a tensor defined by branches.",
            hint="write x = trl.first_match(trl.tensor(shape, domain=t)).",
        )
    x.ctx.prefer_first_match(x._open_merge().id)
    return x


@explain_call_errors
def data(array: Any, *, domain: Any = (), dtype: Any = None) -> RecurrentTensor:
    """Create a tensor from an array with one value per point.

    Args:
        array: the values. The leading axes are the dimensions of `domain`, in the order given; the other axes
            are the shape.
        domain: the dimensions that the tensor varies over.
        dtype: the element type; by default that of the array, with 64-bit types narrowed to 32 bits.

    Raises:
        ShapeError: the array has fewer axes than the domain has dimensions, or integers that do not fit.

    Example:
        >>> trl.data(np.ones((3, 8, 4), "f4"), domain=(b, t))
        f32[4] @ (b, t)
    """
    ctx = current()
    names = _domain(ctx, domain)
    try:
        given_values = host_array(array)
        kind = None if dtype is None else element_type(dtype)
        values = narrow(given_values) if kind is None else exactly(given_values, kind)
    except (TypeError, ValueError):
        raise ShapeError(
            f"{type(array).__name__} is not an array of numbers.", hint="give a NumPy array."
        ) from None
    except OverflowError:
        raise _overflow_error(dtype) from None
    if values.ndim < len(names):
        raise ShapeError(
            f"an array of rank {values.ndim} cannot vary over ({', '.join(names)}).",
            hint="give one leading axis per dimension of the domain, in the same order.",
        )
    warn_lost_precision(given_values, values)
    several = domain if isinstance(domain, tuple | list) else (domain,)
    given = [as_dims(ctx, ctx.space, one)[0] for one in several]
    values = values.transpose(*map(given.index, names), *range(len(names), values.ndim))
    op = ctx.add("data", [], ConstAttrs(ConstArray(values), names))
    return tensor_of(ctx, op)


@explain_call_errors
def value(index: Index | Condition | int) -> RecurrentTensor:
    """Return an index expression as an int32 tensor, or a condition as a boolean tensor.

    Args:
        index: an index, a condition or an integer.

    Example:
        >>> trl.value(t) + 0.5
        f32[] @ (t)
        >>> trl.value(t > 2)
        bool[] @ (t)
    """
    return operand(current(), index)


@explain_call_errors
def constant(given: Any, dtype: Any = None) -> RecurrentTensor:
    """Create a tensor with the same value at every point.

    Args:
        given: a number or an array.
        dtype: the element type; by default that of the value, with 64-bit types narrowed to 32 bits.

    Raises:
        ShapeError: `given` is not a number or an array of numbers, or does not fit into the element type.

    Example:
        >>> trl.constant([1.0, 2.0])
        f32[2] @ ()
    """
    try:
        return const_tensor(
            current(), host_array(given), None if dtype is None else element_type(dtype)
        )
    except (TypeError, ValueError):
        raise ShapeError(
            f"{given!r} is not a number or an array of numbers.",
            hint="give a number, a list of numbers or a NumPy array.",
        ) from None
    except OverflowError:
        raise _overflow_error(dtype) from None


def _overflow_error(dtype: Any) -> ShapeError:
    name = "int32 (or uint32)" if dtype is None else NUMPY[element_type(dtype)].name
    return ShapeError(
        f"some numbers do not fit into {name}.",
        hint='give dtype="i64" if the backend has 64-bit types.',
    )


@explain_call_errors
def full(shape: Any, fill: Any, dtype: Any = None) -> RecurrentTensor:
    """Create a tensor with all elements equal to `fill`.

    Args:
        shape: the shape.
        fill: the value.
        dtype: the element type; by default that of `fill`.

    Example:
        >>> trl.full((2, 3), 0.5)
        f32[2,3] @ ()
    """
    return broadcast_to(constant(fill, dtype), shape_of_user(shape))


@explain_call_errors
def zeros(shape: Any, dtype: Any = "f32") -> RecurrentTensor:
    """Create a tensor of zeros.

    Args:
        shape: the shape.
        dtype: the element type.

    Example:
        >>> trl.zeros((2, 3))
        f32[2,3] @ ()
    """
    return full(shape, 0, dtype)


@explain_call_errors
def ones(shape: Any, dtype: Any = "f32") -> RecurrentTensor:
    """Create a tensor of ones.

    Args:
        shape: the shape.
        dtype: the element type.

    Example:
        >>> trl.ones(3, "i32")
        i32[3] @ ()
    """
    return full(shape, 1, dtype)


@explain_call_errors
def arange(
    start: int, stop: int | None = None, step: int = 1, *, dtype: Any = "i32"
) -> RecurrentTensor:
    """Return the integers from `start` to `stop` - 1; with one argument n, those from 0 to n - 1.

    Args:
        start, stop: the ends of the range.
        step: the distance between two elements.
        dtype: the element type.

    Raises:
        ShapeError: an argument is not an integer, `step` is 0, or the range is too long.

    Example:
        >>> trl.arange(5)  # 0, 1, 2, 3, 4
        i32[5] @ ()
    """
    first, end = (0, start) if stop is None else (start, stop)
    given = (first, end, step)
    if not all(map(is_whole, given)) or not step or (stop is None and end < 0):
        raise ShapeError(
            f"arange takes integers, a single one of at least 0 and a step other than 0, not {given[1:] if stop is None else given}.",
            hint="trl.value(t) is the index t as a tensor, and trl.value(t)[0:T] all its values. "
            "trl.value(t)[t:T] - trl.value(t) numbers the points of a window from 0. trl.linspace returns "
            "fractions.",
        )
    first, end, step = map(int, given)
    if abs(end - first) // abs(step) >= 2**31 - 1:
        raise ShapeError(
            f"arange{given} has more numbers than an axis has positions, 2**31 - 1.",
            hint="use a larger step, or a symbolic dimension.",
        )
    return constant(np.arange(*given), dtype)


@explain_call_errors
def where(condition: Any, x: Any, y: Any) -> Any:
    """Select elements, or an index expression, by a condition.

    A condition on indices with two index expressions selects an index expression, as `trl.min` and `trl.max` do.
    With two integers, the result is a tensor that may also be an index.

    Args:
        condition: a boolean tensor, or a condition on indices such as `t > 0`.
        x: the values where the condition is true.
        y: the values where it is false.

    Example:
        >>> r = trl.data(np.ones(8, "f4"), domain=t)
        >>> trl.where(t == T - 1, 0.0, r)
        f32[] @ (t)
        >>> trl.where(t < 4, t + 4, t - 4)
        where(t <= 3, t + 4, t - 4)
        >>> r[trl.where(t < 4, t + 4, t - 4)]  # the halves of r, swapped
        f32[] @ (t)
    """
    if isinstance(condition, Condition) and _is_index(x) and _is_index(y):
        chosen, ctx = choose(condition, x, y), condition.owner
        assert isinstance(ctx, Context)
        never(ctx.space, (), condition.cond, "where: the condition")
        symbolic = isinstance(x, Index) or isinstance(y, Index)
        return chosen if symbolic else value_of(ctx, chosen.lin)
    made = elementwise("where", [condition, x, y])
    if isinstance(condition, Condition):
        never(made.ctx.space, (), condition.cond, "where: the condition")
    return made


def _is_index(value: Any) -> bool:
    """Whether a value is an index expression, a tensor of one, or an int32."""
    if isinstance(value, Index) or expression_of(value) is not None:
        return True
    return is_whole(value) and -(2**31) <= value < 2**31


@explain_call_errors
def minimum(*args: Any) -> Any:
    """Return the minimum of index expressions, of tensors, or of one tensor's elements.

    Args:
        args: index expressions and integers, for an index expression; or tensors and numbers, for a tensor.

    Example:
        >>> trl.min(t + 4, T)
        min(t + 4, T)
        >>> trl.min(trl.constant([1.0, 3.0]), 2.0)  # 1, 2
        f32[2] @ ()
    """
    return _extremum("min", args)


@explain_call_errors
def maximum(*args: Any) -> Any:
    """Return the maximum of index expressions, of tensors, or of one tensor's elements.

    Args:
        args: index expressions and integers, for an index expression; or tensors and numbers, for a tensor.

    Example:
        >>> trl.max(t - 3, 0)
        max(t - 3, 0)
        >>> trl.max(trl.constant([1.0, 3.0]), 2.0)  # 2, 3
        f32[2] @ ()
    """
    return _extremum("max", args)


def _extremum(which: str, args: tuple[Any, ...]) -> Any:
    if not args:
        raise ShapeError(
            f"trl.{which} needs at least one argument.", hint=f"write trl.{which}(x, y)."
        )
    if not any(isinstance(arg, RecurrentTensor | np.ndarray | float) for arg in args):
        return extremum(which, args)
    first, *rest = args
    if not rest:
        return getattr(operand(None, first), which)()
    for arg in rest:
        first = elementwise(f"{which}2", [first, arg])
    return first


@explain_call_errors
def concat(xs: list[RecurrentTensor], axis: int = 0) -> RecurrentTensor:
    """Join tensors along an axis.

    Args:
        xs: a list of tensors with equal shapes, except along the axis.
        axis: the axis.

    Raises:
        ShapeError: the list is empty, the shapes do not match, or the axis does not exist.

    Example:
        >>> trl.concat([trl.zeros((2, 3)), trl.ones((1, 3))])
        f32[3,3] @ ()
    """
    parts = [operand(current(), x) for x in _listed(xs)]
    if not parts:
        raise ShapeError("the list of tensors to join is empty.", hint="write trl.concat([x, y]).")
    if not is_whole(axis) or not -parts[0].rank <= axis < parts[0].rank:
        raise ShapeError(
            f"{parts[0].type} has no axis {axis!r} to join along.",
            hint="trl.stack([x, y]) joins along a new axis.",
        )
    return apply("concat", parts, AxisAttrs(int(axis) % parts[0].rank))


@explain_call_errors
def stack(xs: list[RecurrentTensor], axis: int = 0) -> RecurrentTensor:
    """Join tensors of one shape along a new axis.

    Args:
        xs: a list of tensors.
        axis: the position of the new axis.

    Example:
        >>> trl.stack([trl.zeros(3), trl.ones(3)])
        f32[2,3] @ ()
    """
    return concat([operand(current(), x).unsqueeze(axis) for x in _listed(xs)], axis)


def _listed(xs: Any) -> list[Any]:
    """Return the tensors of a list.

    Raises:
        CallError: the argument is not a list.
    """
    how = "put the tensors into a list: trl.concat([x, y])."
    return list(expect_type(xs, (list, tuple, np.ndarray), "a list of tensors", how))


# --- parameters ----------------------------------------------------------------------------------


@explain_method_errors
class Parameter(RecurrentTensor):
    """Trainable tensor, created by `trl.parameter`.

    It has its first value at iteration 0 and is constant until `update` or an optimiser defines its next value.
    `grad` at iteration i is the derivative with respect to the value at i alone: gradients do not flow through
    updates.

    Example:
        >>> w = trl.parameter((2,), domain=i, name="w")
        >>> w.square().sum().backward()
        gradients of 1 parameter
        >>> w.update(w - 0.1 * w.grad)
    """

    def __init__(
        self,
        ctx: Context,
        init: RecurrentTensor,
        domain: Domain,
        label: str,
        *,
        trainable: bool = True,
    ) -> None:
        op = ctx.open_merge(init.type, domain, label)
        super().__init__(ctx, at_own_point(op.id, op.outputs[0]))
        init = init if init.is_plain() else init.settled()
        self._init = init
        self._gradient: RecurrentTensor | None = None
        self._read_at: Origin | None = None  # line that read the gradient first
        self._updated: RecurrentTensor | None = None
        self._next: RecurrentTensor | None = None
        self._along = domain[-1:]
        self._trainable = trainable
        ctx.set_branches(op.id, [init.read])
        ctx.parameters[op.id] = self
        ctx.at_end(self._return_last)

    def _return_last(self) -> None:
        """Output the value after the last iteration (`result.parameters`)."""
        twin = next((p for p in self.ctx.parameters.values() if p.name == self.name), self)
        if twin is not self:
            raise DomainError(
                f"there are two parameters named {self.name!r}.",
                origin=self.op.origin,
                others={"the first is at": twin.op.origin},
                hint="give them different names.",
            )
        x = self.current_update.at({d: self.ctx.space[d].size - 1 for d in self._along})
        self.ctx.add("output", [x.read], OutputAttrs(self.name, "parameter", x.domain))

    @property
    def grad(self) -> RecurrentTensor:
        """The gradient accumulated by `backward()`, over the parameter's domain.

        Raises:
            TimeRLError: `backward()` has not reached the parameter.

        Example:
            >>> w = trl.parameter((2,), domain=i, name="w")
            >>> w.square().sum().backward()
            gradients of 1 parameter
            >>> w.grad
            f32[2] @ (i)
        """
        if self._gradient is None:
            raise TimeRLError(
                f"{self.name} has no gradient.", hint="call loss.backward() before reading it."
            )
        self._read_at = self._read_at or user_origin()
        return self._gradient

    def accumulate(self, gradient: RecurrentTensor) -> None:
        """Add to the gradient; the gradients of several losses add up.

        Args:
            gradient: the summand.

        Raises:
            GradientError: the program has already read `grad`, for the update or otherwise.

        Example:
            >>> w = trl.parameter((2,), name="w")
            >>> w.accumulate(trl.ones(2))
            >>> w.has_grad
            True
        """
        if self._read_at is not None:
            late = self._updated is not None
            raise GradientError(
                f"{self.name} gets a gradient after its {'update was written' if late else 'grad was read'}.",
                others={"the gradient so far was read at": self._read_at},
                hint="call backward() on all losses before opt.step() and before reading p.grad; "
                "trl.grad(loss, p) returns the gradient of one loss. If this loss should not train "
                f"{self.name}, compute it with net.with_values([p.detach() for p in net.params]), where net is "
                f"the network of {self.name}.",
            )
        total = gradient if self._gradient is None else self._gradient + gradient
        self._gradient = total.named_if_new(f"d{self.name}")

    @property
    def trainable(self) -> bool:
        """Whether `backward()` computes its gradient."""
        return self._trainable

    @property
    def first(self) -> RecurrentTensor:
        """Initial value."""
        return self._init

    @property
    def update_dims(self) -> Domain:
        """Dimensions along which the value changes, the last one fastest; empty without an update."""
        return () if self._updated is None else self._along

    @property
    def has_grad(self) -> bool:
        """Whether `backward()` has reached the parameter."""
        return self._gradient is not None

    @property
    def next(self) -> RecurrentTensor:
        """Value after this iteration's update; the parameter itself if it has no update.

        It may be read before the update is written. Gradients do not flow through it.

        Example:
            >>> w = trl.parameter((2,), domain=i, name="w")
            >>> w.next
            f32[2] @ (i)
        """
        if self._next is None:
            merge = self.ctx.open_merge(self.type, self.op.domain, f"{self.name}.next")
            self.ctx.set_branches(merge.id, [self.current_update.read])
            self.ctx.after_update[merge.id] = self
            self._next = tensor_of(self.ctx, merge)
        return self._next

    @property
    def current_update(self) -> RecurrentTensor:
        """The definition of `next` in the program written so far."""
        return self if self._updated is None else self._updated

    def update(self, value: RecurrentTensor, along: Any = None) -> None:
        """Define the value at the next iteration.

        Args:
            value: the next value, of the parameter's type, over dimensions of its domain.
            along: the dimensions along which it changes, the last one fastest. By default the last dimension of its
                domain: it then restarts from its first value at each point of the others.

        Raises:
            DomainError: the parameter already has an update, no dimension to change along, or `value` varies over
                another dimension.
            ShapeError: `value` has another type.

        Example:
            >>> target = trl.parameter((2,), domain=i, name="target", trainable=False)
            >>> target.update(0.9 * target + 0.1)
        """
        domain = self.op.domain
        if self._updated is not None:
            raise DomainError(
                f"{self.name} is updated twice.",
                others={"first at": self._updated.op.origin},
                hint="call opt.step() of one optimiser per parameter.",
            )
        if not domain:
            raise DomainError(
                f"{self.name} has no dimension to change along.",
                others={"it is made at": self.op.origin},
                hint="create it with domain=(i,), where i counts the iterations.",
            )
        if value.type != self.type:
            raise ShapeError(
                f"{self.name} is {self.type}, but its update is {value.type}.",
                hint="give an update of the parameter's shape and element type.",
            )
        extra = [d for d in value.domain if d not in domain]
        if extra:
            raise DomainError(
                f"the update of {self.name} varies over {', '.join(extra)}, but {self.name} does not.",
                hint="reduce the update (the gradient, the learning rate) over it first.",
            )
        if along is not None:
            self._along = self._steps(along)
        after = self._updated = value.settled().named_if_new(f"{self.name}'")
        self._define()
        if self._next is not None:
            self.ctx.set_branches(self._next.read.source, [after.read])

    def start_from(self, array: np.ndarray[Any, Any]) -> None:
        """Replace the initial value by an array.

        Args:
            array: values of the parameter's shape. Leading axes for all dimensions of its domain but the last give
                a different initial value at each of their points.

        Raises:
            ShapeError: the array has an unsuitable shape or type.

        Example:
            >>> w = trl.parameter((2,), name="w")
            >>> w.start_from(np.ones(2, "f4"))
        """
        values, domain = convert_array(self.name, array, NUMPY[self.dtype]), self.op.domain[:-1]
        with self.ctx.region("init"):
            if values.ndim == self.rank:
                first = const_tensor(self.ctx, values)
            else:
                attrs = ConstAttrs(ConstArray(values), domain)
                first = tensor_of(self.ctx, self.ctx.add("data", [], attrs))
        self._init = first
        self._define()

    def _define(self) -> None:
        """Set the branches of the parameter from its initial value and its update."""
        branches = [self._init.read]
        if self._updated is not None:
            first = initial_branch(self._init, self._along)
            branches = [first, *previous_branches(self._updated, self._along)]
        self.ctx.set_branches(self.op.id, branches)

    def _steps(self, along: Any) -> Domain:
        """Check the dimensions of an update: part of the domain, including its last dimension."""
        names, domain = _domain(self.ctx, along), self.op.domain
        fixed = [d for d in self._init.domain if d in names]
        if names[-1:] != domain[-1:] or set(names) - set(domain) or fixed:
            raise DomainError(
                f"{self.name} varies over ({', '.join(domain)}), its first value over "
                f"({', '.join(self._init.domain)}): it cannot change along ({', '.join(names)}).",
                others={"it is made at": self.op.origin},
                hint="name the last dimension of its domain, and only dimensions that its first "
                "value does not vary over.",
            )
        return names


@explain_call_errors
def parameter(
    given: Any,
    *,
    domain: Any = (),
    init: Any = None,
    dtype: Any = "f32",
    name: str = "",
    trainable: bool = True,
) -> Parameter:
    """Create a trainable tensor.

    Args:
        given: the shape, or an array or tensor as the initial value.
        domain: the dimensions that the parameter varies over; it changes along the last.
        init: the initial value, if `given` is a shape: a number or array, or a function from the shape to a
            tensor; zeros by default.
        dtype: the element type.
        name: the name in pictures, checkpoints and `result.parameters`.
        trainable: whether `backward()` computes its gradient. Use False for a running mean or a target network,
            and define its values by `p.update(value)`.

    Raises:
        ShapeError: the initial value does not match the shape, or the element type is not floating-point.
        DomainError: the name is taken, or the initial value varies over an unsuitable dimension.

    Example:
        >>> trl.parameter((4, 2), domain=i, name="w")
        f32[4,2] @ (i)
    """
    ctx = current()
    with ctx.region("init"):
        if isinstance(given, RecurrentTensor):
            first = given
        elif hasattr(given, "__array__") and not isinstance(given, Index):
            first = constant(given, dtype)
        else:
            shape = shape_of_user(given)
            made = (
                explain_call_errors(init)(shape) if callable(init) else 0 if init is None else init
            )
            first = made if isinstance(made, RecurrentTensor) else constant(made, dtype)
            if broadcast([(1,) * (len(shape) - first.rank) + first.shape, shape]) != shape:
                raise ShapeError(
                    f"init returns {first.type}, but the parameter has the shape {list(shape)}.",
                    hint="return a value that broadcasts to the shape.",
                )
            first = broadcast_to(first.cast(element_type(dtype)), shape)
    if not is_float(first.dtype):
        raise ShapeError(
            f"a parameter must have floating-point values, not {first.type}.",
            hint='give dtype="f32".',
        )
    names = _domain(ctx, domain)
    taken = {p.name for p in ctx.parameters.values()}
    label = checked_name(name) or f"p{len(ctx.parameters)}"
    if label in taken:
        raise DomainError(
            f"there are two parameters named {label!r}.", hint="give them different names."
        )
    inner = [d for d in first.domain if d not in names[:-1]]
    if inner:
        raise DomainError(
            f"the first value of {label} varies over {', '.join(inner)}.",
            hint="give a first value that varies over the parameter's domain without its last dimension.",
        )
    return Parameter(ctx, first, names, label, trainable=trainable)


# --- random numbers ------------------------------------------------------------------------------

_SCALE = "give a number; for a tensor, scale and shift the drawn values."


@explain_call_errors
def random_bits(
    shape: Any = (),
    *,
    domain: Any = (),
    stream: int | str | None = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Draw random 32-bit unsigned integers, independent at every point of the domain.

    They are a function of the run's seed, the stream and the point, not of the order of execution.

    Args:
        shape: the shape of the value at a point, as integers with a product below 2**32.
        domain: the dimensions over which the draws are independent.
        stream: the name of the random stream; by default its number in the program.
        shared: let several draws with the same stream name return the same bits at the same points.

    Raises:
        DomainError: another draw uses the stream, and not both are shared.
        ShapeError: the shape is symbolic or too large.

    Example:
        >>> trl.random.bits((2,), domain=t)
        u32[2] @ (t)
    """
    ctx = current()
    sizes = shape_of_user(shape)
    if any(not isinstance(s, int) for s in sizes):
        raise ShapeError(
            "random values need a shape of integers.", hint="draw over a dimension: domain=t."
        )
    if prod(s for s in sizes if isinstance(s, int)) >= 2**32:
        raise ShapeError(
            f"a draw of shape {sizes} has 2**32 or more elements at a point.",
            hint="draw over another dimension.",
        )
    if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int | str)):
        raise DomainError(
            f"a stream must be a name or an integer, not {stream!r}.", hint='write stream="noise".'
        )
    if shared and stream is None:
        raise DomainError("a shared stream needs a name.", hint='give stream="…" to all its draws.')
    # A user's number is a name: it never equals a default number.
    of = ctx.next_stream() if stream is None else ctx.named_stream(str(stream), shared=shared)
    attrs = RngAttrs(of, _domain(ctx, domain), sizes, shared=shared)
    op = ctx.add("rng", [], attrs)
    return tensor_of(ctx, op)


@explain_call_errors
def random_uniform(
    shape: Any = (),
    low: float = 0.0,
    high: float = 1.0,
    *,
    domain: Any = (),
    stream: int | str | None = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Draw uniform float32 numbers strictly between `low` and `high`.

    Args:
        shape: the shape of the value at a point.
        low, high: the ends of the interval, as numbers.
        domain: the dimensions over which the draws are independent.
        stream: the name of the random stream; by default its number in the program.
        shared: let several draws with the same stream name return the same bits.

    Raises:
        ShapeError: `low` is above `high`, or one of them is not a number.

    Example:
        >>> trl.random.uniform((2,), -1.0, 1.0, domain=t)
        f32[2] @ (t)
    """
    bare_numbers("uniform", shape, low, "low")
    low, high = number("low", low, _SCALE), number("high", high, _SCALE)
    if low > high:
        raise ShapeError(
            f"low = {low:g} is above high = {high:g}.", hint="give low first, then high."
        )
    drawn = apply("unit", [random_bits(shape, domain=domain, stream=stream, shared=shared)])
    if (low, high) == (0.0, 1.0):
        return drawn
    ends = np.float32(low), np.float32(high)
    first, last = np.nextafter(ends, ends[::-1])
    return (drawn * (high - low) + low).clip(first, last)  # rounding may produce an end


@explain_call_errors
def random_normal(
    shape: Any = (),
    mean: float = 0.0,
    std: float = 1.0,
    *,
    domain: Any = (),
    stream: int | str | None = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Draw normal float32 numbers, by inversion of the distribution function.

    Args:
        shape: the shape of the value at a point.
        mean, std: the mean and the standard deviation, as numbers.
        domain: the dimensions over which the draws are independent.
        stream: the name of the random stream; by default its number in the program.
        shared: let several draws with the same stream name return the same bits.

    Raises:
        ShapeError: `std` is negative, or an argument is not a number.

    Example:
        >>> trl.random.normal((2,), domain=t)
        f32[2] @ (t)
    """
    bare_numbers("normal", shape, mean, "mean")
    mean, std = number("mean", mean, _SCALE), number("std", std, _SCALE)
    if std < 0.0:
        raise ShapeError(
            f"std = {std:g} is negative.", hint="give a standard deviation of at least 0."
        )
    drawn = random_uniform(shape, domain=domain, stream=stream, shared=shared)
    unit = (drawn * 2.0 - 1.0).erf_inv() * float(2**0.5)
    return unit if (mean, std) == (0.0, 1.0) else unit * std + mean


@explain_call_errors
def random_gumbel(
    shape: Any = (),
    *,
    domain: Any = (),
    stream: int | str | None = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Draw standard Gumbel float32 numbers; the argmax of logits plus these is a categorical draw.

    Args:
        shape: the shape of the value at a point.
        domain: the dimensions over which the draws are independent.
        stream: the name of the random stream; by default its number in the program.
        shared: let several draws with the same stream name return the same bits.

    Example:
        >>> trl.random.gumbel((4,), domain=t)
        f32[4] @ (t)
    """
    drawn = random_uniform(shape, domain=domain, stream=stream, shared=shared)
    return -(-(drawn.log())).log()
