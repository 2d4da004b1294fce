"""Where tensors come from: branches to be assigned, given arrays, parameters, indices, chance."""

from __future__ import annotations

from math import prod
from typing import Any, Protocol

import numpy as np

from timerl_nb.base.array_conversion import convert_array
from timerl_nb.base.errors import (
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
from timerl_nb.compiler.language.foreign_names import all_asked, expect_type, explain_call_errors
from timerl_nb.compiler.language.indexing.index_parsing import Condition, Index, as_dims, extremum
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
)
from timerl_nb.compiler.language.recurrent_tensor import (
    constant as const_tensor,
)
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Lin


class HasType(Protocol):
    """A space or a tensor: anything with a shape and a dtype."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...


def _domain(ctx: Context, domain: Any) -> Domain:
    return as_dims(ctx, ctx.space, domain)


def shape_of_user(shape: Any) -> Shape:
    """A shape as a user writes it.

    Raises:
        ShapeError: it is none.
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
            raise ShapeError(f"{size!r} is not a size.", hint="sizes are integers of at least 0.")
    return tuple(found)


@explain_call_errors
def tensor(shape: Any, dtype: Any = "f32", *, domain: Any = ()) -> RecurrentTensor:
    """A tensor to be defined by branches: `x[t + 1] = …`, `x[0] = …`."""
    ctx = current()
    sizes = shape_of_user(shape)
    for s in sizes:
        if isinstance(s, Lin) and s.symbols.intersection(ctx.space.names):
            raise ShapeError(
                f"a tensor defined by branches has one shape, not one of length {s}.",
                hint="let it vary over the dimension, and slice where it is read.",
            )
    op = ctx.open_merge(TensorType(sizes, element_type(dtype)), _domain(ctx, domain))
    return tensor_of(ctx, op)


@explain_call_errors
def like(model: HasType, *, domain: Any = None) -> RecurrentTensor:
    """A tensor to be defined by branches, of the shape and dtype of a space or tensor.

    `domain` defaults to the model's own where it is a tensor.
    """
    if domain is None:
        domain = model.domain if isinstance(model, RecurrentTensor) else ()
    if not hasattr(model, "shape") or not hasattr(model, "dtype"):
        raise ShapeError(f"{model!r} has no shape and dtype.", hint="give a space or a tensor.")
    return tensor(model.shape, model.dtype, domain=domain)


@explain_call_errors
def data(array: Any, *, domain: Any = (), dtype: Any = None) -> RecurrentTensor:
    """Given values: the array's leading axes are the domain as given, the others the shape.

    Args:
        dtype: their element type; by default the array's own, but for 64-bit types, which are
            those that NumPy makes of any numbers: they become 32-bit ones.

    Raises:
        ShapeError: the array has fewer axes than the domain has dimensions, or integers that do not
            fit.
    """
    ctx = current()
    names = _domain(ctx, domain)
    try:
        given_values = np.asarray(array)
        kind = None if dtype is None else element_type(dtype)
        values = narrow(given_values) if kind is None else exactly(given_values, kind)
    except (TypeError, ValueError):
        raise ShapeError(f"{type(array).__name__} is no array of numbers.") from None
    except OverflowError:
        raise _overflow_error(dtype) from None
    if values.ndim < len(names):
        raise ShapeError(
            f"an array of rank {values.ndim} cannot vary over ({', '.join(names)}).",
            hint="its leading axes are the domain's dimensions, in the order given.",
        )
    warn_lost_precision(given_values, values)
    several = domain if isinstance(domain, tuple | list) else (domain,)
    given = [as_dims(ctx, ctx.space, one)[0] for one in several]
    values = values.transpose(*map(given.index, names), *range(len(names), values.ndim))
    op = ctx.add("data", [], ConstAttrs(ConstArray(values), names))
    return tensor_of(ctx, op)


@explain_call_errors
def value(index: Index | Condition | int) -> RecurrentTensor:
    """An index expression as a tensor: int32, or boolean for a condition."""
    return operand(current(), index)


@explain_call_errors
def constant(given: Any, dtype: Any = None) -> RecurrentTensor:
    """A given number or array, the same at every point."""
    try:
        return const_tensor(current(), given, None if dtype is None else element_type(dtype))
    except (TypeError, ValueError):
        raise ShapeError(f"{given!r} is no number or array of numbers.") from None
    except OverflowError:
        raise _overflow_error(dtype) from None


def _overflow_error(dtype: Any) -> ShapeError:
    name = "int32 (or uint32)" if dtype is None else NUMPY[element_type(dtype)].name
    return ShapeError(
        f"there are numbers that do not fit into {name}.",
        hint='give dtype="i64", where the backend has 64-bit types.',
    )


@explain_call_errors
def full(shape: Any, fill: Any, dtype: Any = None) -> RecurrentTensor:
    """A tensor whose elements are all `fill`."""
    return broadcast_to(constant(fill, dtype), shape_of_user(shape))


@explain_call_errors
def zeros(shape: Any, dtype: Any = "f32") -> RecurrentTensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


@explain_call_errors
def ones(shape: Any, dtype: Any = "f32") -> RecurrentTensor:
    """A tensor of ones."""
    return full(shape, 1, dtype)


@explain_call_errors
def arange(
    start: int, stop: int | None = None, step: int = 1, *, dtype: Any = "i32"
) -> RecurrentTensor:
    """The integers from `start` on, before `stop`, every `step`; 0 to `start` - 1 without `stop`."""
    first, end = (0, start) if stop is None else (start, stop)
    given = (first, end, step)
    if not all(map(is_whole, given)) or not step or (stop is None and end < 0):
        raise ShapeError(
            f"arange takes integers, the end of a lone one at least 0, not {given[1:] if stop is None else given}.",
            hint="trl.value(t) is the index t as a tensor; trl.linspace makes fractions.",
        )
    first, end, step = map(int, given)
    if abs(end - first) // abs(step) >= 2**31 - 1:
        raise ShapeError(f"arange{given} has more numbers than an axis has positions, 2**31 - 1.")
    return constant(np.arange(*given), dtype)


@explain_call_errors
def where(condition: Any, x: Any, y: Any) -> RecurrentTensor:
    """`x` where the condition (a boolean tensor or an index condition) holds, else `y`."""
    made = elementwise("where", [condition, x, y])
    if isinstance(condition, Condition):
        never(made.ctx.space, (), condition.cond, "where:")
    return made


@explain_call_errors
def minimum(*args: Any) -> Any:
    """`trl.min`: of index expressions an index expression, of tensors a tensor; of one, its least."""
    return _extremum("min", args)


@explain_call_errors
def maximum(*args: Any) -> Any:
    """`trl.max`: of index expressions an index expression, of tensors a tensor; of one, its greatest."""
    return _extremum("max", args)


def _extremum(which: str, args: tuple[Any, ...]) -> Any:
    if not args:
        raise ShapeError(f"trl.{which} needs at least one argument.")
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
    """Tensors one after the other along an axis."""
    parts = [operand(current(), x) for x in _listed(xs)]
    if not parts:
        raise ShapeError("there is nothing to join.", hint="trl.concat([x, y]).")
    if not is_whole(axis) or not -parts[0].rank <= axis < parts[0].rank:
        raise ShapeError(f"{parts[0].type} has no axis {axis!r} to join along.")
    return apply("concat", parts, AxisAttrs(int(axis) % parts[0].rank))


@explain_call_errors
def stack(xs: list[RecurrentTensor], axis: int = 0) -> RecurrentTensor:
    """Tensors of one shape along a new axis."""
    return concat([operand(current(), x).unsqueeze(axis) for x in _listed(xs)], axis)


def _listed(xs: Any) -> list[Any]:
    """The tensors of a list.

    Raises:
        CallError: it is no list.
    """
    how = "put the tensors into a list: trl.concat([x, y])."
    return list(expect_type(xs, (list, tuple, np.ndarray), "a list of tensors", how))


# --- parameters ----------------------------------------------------------------------------------


@all_asked
class Parameter(RecurrentTensor):
    """A trainable tensor: `w[0] = init`, `w[i + 1]` its update, constant without one.

    Gradients do not flow through the update: `grad` at i is the derivative with respect to the
    value at i alone (semantics.md §5).
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
        self._read_at: Origin | None = None  # where the gradient so far was read
        self._updated: RecurrentTensor | None = None
        self._next: RecurrentTensor | None = None
        self._along = domain[-1:]
        self._trainable = trainable
        ctx.set_branches(op.id, [init.read])
        ctx.parameters[op.id] = self
        ctx.at_end(self._return_last)

    def _return_last(self) -> None:
        """Let the run return the value after the last iteration (`result.parameters`)."""
        twin = next((p for p in self.ctx.parameters.values() if p.name == self.name), self)
        if twin is not self:
            raise DomainError(
                f"there are two parameters named {self.name!r}.",
                origin=self.op.origin,
                others={"the first is at": twin.op.origin},
                hint="name them apart.",
            )
        x = self.current_update.at({d: self.ctx.space[d].size - 1 for d in self._along})
        self.ctx.add("output", [x.read], OutputAttrs(self.name, "parameter", x.domain))

    @property
    def grad(self) -> RecurrentTensor:
        """The gradient that `backward()` left here, over the parameter's domain."""
        if self._gradient is None:
            raise TimeRLError(
                f"{self.name} has no gradient.", hint="call loss.backward() before reading it."
            )
        self._read_at = self._read_at or user_origin()
        return self._gradient

    def accumulate(self, gradient: RecurrentTensor) -> None:
        """Add to the gradient; several losses' gradients add up.

        Raises:
            GradientError: the program has read `grad`, for the update or otherwise, with the
                gradient so far.
        """
        if self._read_at is not None:
            late = self._updated is not None
            raise GradientError(
                f"{self.name} gets a gradient after its {'update was written' if late else 'grad was read'}.",
                others={"the gradient so far was read at": self._read_at},
                hint="call backward() on all losses before opt.step() and before reading p.grad; "
                "trl.grad(loss, p) is the gradient of one loss.",
            )
        total = gradient if self._gradient is None else self._gradient + gradient
        self._gradient = total.named_if_new(f"d{self.name}")

    @property
    def trainable(self) -> bool:
        """Whether `backward()` looks for its gradient."""
        return self._trainable

    @property
    def first(self) -> RecurrentTensor:
        """The value that it begins with."""
        return self._init

    @property
    def update_dims(self) -> Domain:
        """The dimensions that it changes along, the last one fastest; none without an update."""
        return () if self._updated is None else self._along

    @property
    def has_grad(self) -> bool:
        return self._gradient is not None

    @property
    def next(self) -> RecurrentTensor:
        """The value after this iteration's update; the parameter itself where it has none.

        Which of the two it is counts at `compile`: it may be read before the update is written.
        `backward()` stops here, as it does at the parameter's own update.
        """
        if self._next is None:
            merge = self.ctx.open_merge(self.type, self.op.domain, f"{self.name}.next")
            self.ctx.set_branches(merge.id, [self.current_update.read])
            self.ctx.after_update[merge.id] = self
            self._next = tensor_of(self.ctx, merge)
        return self._next

    @property
    def current_update(self) -> RecurrentTensor:
        """What `next` is as far as the program has been written."""
        return self if self._updated is None else self._updated

    def update(self, value: RecurrentTensor, along: Any = None) -> None:
        """Let `value` be the parameter at the next iteration.

        Args:
            along: the dimensions that it changes along, the last one fastest; by default the last of
                its domain, so that it starts anew at each point of the others.

        Raises:
            DomainError: the parameter has an update already, or no dimension to change along.
        """
        domain = self.op.domain
        if self._updated is not None:
            raise DomainError(
                f"{self.name} is updated twice.",
                others={"first at": self._updated.op.origin},
                hint="step one optimiser per parameter.",
            )
        if not domain:
            raise DomainError(
                f"{self.name} has no dimension to change along.",
                others={"it is made at": self.op.origin},
                hint="make it with domain=(i,), i being the iterations.",
            )
        if value.type != self.type:
            raise ShapeError(f"{self.name} is {self.type}, but its update is {value.type}.")
        extra = [d for d in value.domain if d not in domain]
        if extra:
            raise DomainError(
                f"the update of {self.name} varies over {', '.join(extra)}, which it does not.",
                hint="reduce the update (the gradient, the learning rate) over it first.",
            )
        if along is not None:
            self._along = self._steps(along)
        after = self._updated = value.settled().named_if_new(f"{self.name}'")
        self._define()
        if self._next is not None:
            self.ctx.set_branches(self._next.read.source, [after.read])

    def start_from(self, array: np.ndarray[Any, Any]) -> None:
        """Let given values be the first ones, in place of what there was.

        Args:
            array: of the parameter's shape; or with leading axes for the dimensions of its domain
                but the last, where it starts from other values at each of their points.
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
        """Write down what the parameter is, as far as that is known."""
        branches = [self._init.read]
        if self._updated is not None:
            first = initial_branch(self._init, self._along)
            branches = [first, *previous_branches(self._updated, self._along)]
        self.ctx.set_branches(self.op.id, branches)

    def _steps(self, along: Any) -> Domain:
        """The dimensions to change along: some of the domain, the last among them."""
        names, domain = _domain(self.ctx, along), self.op.domain
        fixed = [d for d in self._init.domain if d in names]
        if names[-1:] != domain[-1:] or set(names) - set(domain) or fixed:
            raise DomainError(
                f"{self.name} varies over ({', '.join(domain)}), its first value over "
                f"({', '.join(self._init.domain)}): it cannot change along ({', '.join(names)}).",
                others={"it is made at": self.op.origin},
                hint="steps go along the last dimension of its domain, and others that its first "
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
    """A trainable tensor.

    Args:
        given: its shape, or an array or tensor with its first value.
        domain: the dimensions it varies over; it changes along the last.
        init: with a shape: the first value, of that shape and element type or made so, or a function
            from the shape to it; zeros by default.
        name: what pictures, checkpoints and `result.parameters` call it.
        trainable: whether `backward()` looks for its gradient; what follows from something else (a
            running mean, a target network) is written by `p.update(value)`.
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
                raise ShapeError(f"init makes {first.type}, not a first value of {list(shape)}.")
            first = broadcast_to(first.cast(element_type(dtype)), shape)
    if not is_float(first.dtype):
        raise ShapeError(f"a parameter must have floating-point values, not {first.type}.")
    names = _domain(ctx, domain)
    taken = {p.name for p in ctx.parameters.values()}
    label = checked_name(name) or f"p{len(ctx.parameters)}"
    if label in taken:
        raise DomainError(f"there are two parameters named {label!r}.", hint="name them apart.")
    inner = [d for d in first.domain if d not in names[:-1]]
    if inner:
        raise DomainError(
            f"the first value of {label} varies over {', '.join(inner)}.",
            hint="a parameter's first value may vary over its domain but the last dimension.",
        )
    return Parameter(ctx, first, names, label, trainable=trainable)


# --- chance --------------------------------------------------------------------------------------

_SCALE = "scale the drawn tensor for values that vary."


@explain_call_errors
def random_bits(
    shape: Any = (),
    *,
    domain: Any = (),
    stream: int | str | None = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Random 32-bit unsigned integers, independent at every point of the domain.

    The bits are a function of the run's seed, the stream (an ordinal unless a name is given) and
    the point, never of the order of execution (`ir.randomness`).

    Args:
        shape: integers, with a product of less than 2**32.
        stream: a name that no other draw of the program has.
        shared: the draws of that name, which all say so, have the same bits at the same points.

    Raises:
        DomainError: the stream is another draw's, too, and not shared; both lines are named.
    """
    ctx = current()
    sizes = shape_of_user(shape)
    if any(not isinstance(s, int) for s in sizes):
        raise ShapeError("random values need a shape of integers.")
    if prod(s for s in sizes if isinstance(s, int)) >= 2**32:
        raise ShapeError(
            f"a draw has less than 2**32 elements at a point, not those of {sizes}.",
            hint="draw over another dimension.",
        )
    if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int | str)):
        raise DomainError(f"a stream is a name or an integer, not {stream!r}.")
    if shared and stream is None:
        raise DomainError("a shared stream has a name.", hint='give stream="…" to all its draws.')
    # a stream that the user numbers is one of that name, apart from the ordinals
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
    """Uniform float32 numbers strictly between `low` and `high`."""
    bare_numbers("uniform", shape, low, "low")
    low, high = number("low", low, _SCALE), number("high", high, _SCALE)
    if low > high:
        raise ShapeError(f"low = {low:g} is above high = {high:g}.", hint="give both, low first.")
    drawn = apply("unit", [random_bits(shape, domain=domain, stream=stream, shared=shared)])
    if (low, high) == (0.0, 1.0):
        return drawn
    ends = np.float32(low), np.float32(high)
    first, last = np.nextafter(ends, ends[::-1])
    return (drawn * (high - low) + low).clip(first, last)  # rounding may reach the ends


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
    """Normal float32 numbers, by the inverse of the distribution function."""
    bare_numbers("normal", shape, mean, "mean")
    mean, std = number("mean", mean, _SCALE), number("std", std, _SCALE)
    if std < 0.0:
        raise ShapeError(f"std = {std:g} is negative.", hint="a standard deviation is at least 0.")
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
    """Standard Gumbel float32 numbers: the argmax of logits plus these is a categorical draw."""
    drawn = random_uniform(shape, domain=domain, stream=stream, shared=shared)
    return -(-(drawn.log())).log()
