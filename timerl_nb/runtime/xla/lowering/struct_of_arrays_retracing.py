"""Conversion of a traced function to a struct of arrays: each element of a value becomes an array over points.

GPU kernels work on arrays whose size is a power of two, and cannot slice them. A state of four numbers for
256 points becomes four arrays of 256 elements. Slices, concatenations and reshapes then only select
arrays, and disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import DropVar, Literal

_MOST: Final = (
    256  # maximum elements of a point's value: each operation has an instruction per element
)

_ELEMENTWISE: Final = frozenset(
    (
        *("abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan", "atan2", "atanh", "cbrt"),
        *("ceil", "clamp", "convert_element_type", "copy", "cos", "cosh", "div", "eq", "erf"),
        *("erf_inv", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le"),
        *("log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "pow"),
        *("rem", "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic"),
        *("shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub"),
        *("tan", "tanh", "xor"),
    )
)
_REDUCED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "reduce_and": lax.bitwise_and,
    "reduce_max": lax.max,
    "reduce_min": lax.min,
    "reduce_or": lax.bitwise_or,
    "reduce_prod": lax.mul,
    "reduce_sum": lax.add,
}
_INLINED: Final = {
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "pjit": "jaxpr",
}


@dataclass(frozen=True)
class Cells:
    """A value, divided into elements.

    Attributes:
        each: Object array of the elements. It has the shape of the value, except for the size 1 along
            `lane`, where each entry is an array over all points.
        lane: Axis of the points; None if there is none.
    """

    each: np.ndarray
    lane: int | None = None


@dataclass(frozen=True)
class LaneReference:
    """Reference of Pallas. Its elements along the axis `lane` are read and written together."""

    ref: Any
    lane: int | None

    def get(self, index: Sequence[Any]) -> Cells:
        """Read elements.

        Args:
            index: A scalar per axis, or None for the whole axis.
        """
        kept = [k for k, at in enumerate(index) if at is None]
        shape = [1 if k == self.lane else self.ref.shape[k] for k in kept]
        _refuse_many(prod(shape))
        cells = [self.ref[at] for at in self._positions(index, shape)]
        return Cells(_array(cells, shape), self.lane_of(index))

    def write(self, value: Cells, index: Sequence[Any]) -> None:
        """Write elements.

        Args:
            value: New elements, with the lane of this reference.
            index: As in `get`.
        """
        for at, cell in zip(self._positions(index, value.each.shape), value.each.flat, strict=True):
            self.ref[at] = cell

    def all(self, shape: Sequence[int]) -> Cells:
        """Read all elements, in the given shape. The reference of a scalar has one axis."""
        return self.get([None] * len(shape) if shape else [0])

    def put_all(self, value: Cells) -> None:
        self.write(value, [None] * value.each.ndim if value.each.ndim else [0])

    def lane_of(self, index: Sequence[Any]) -> int | None:
        """Return the axis of the lane after indexing."""
        return None if self.lane is None else sum(at is None for at in index[: self.lane])

    def _positions(self, index: Sequence[Any], shape: Sequence[int]) -> Iterable[tuple[Any, ...]]:
        for found in product(*map(range, shape)):
            rest = iter(found)
            places = [next(rest) if at is None else at for at in index]
            yield tuple(slice(None) if k == self.lane else at for k, at in enumerate(places))


class InCells:
    """Evaluator of functions with their values divided into elements.

    Args:
        size: Number of points in a tile.
        places: References used in functions.
        guess: Whether every axis of this size is assumed to be the axis of points, from its creation on.
            Otherwise, an axis counts as points only when it is combined with points. This allows
            functions with other axes of the same size, but may need many more operations.
    """

    def __init__(self, size: int, places: Iterable[LaneReference], *, guess: bool) -> None:
        self._size, self._places, self._guess = size, [*places], guess

    def call(self, function: Callable[..., Any], *args: Any, like: Sequence[Any]) -> Any:
        """Evaluate a function, and return its results as `Cells`.

        Args:
            function: The function.
            args: A tree of `Cells` for each argument.
            like: Shapes and dtypes of the arguments.

        Raises:
            NotImplementedError: The function contains an operation without a rule.
        """
        traced, out = jax.make_jaxpr(function, return_shape=True)(*like)
        flat = jax.tree.leaves(args, is_leaf=lambda x: isinstance(x, Cells))
        made = self._run(traced.jaxpr, [*map(self._resolve_constant, traced.consts)], flat)
        return jax.tree.unflatten(jax.tree.structure(out), made)

    def _run(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

        def value(x: Any) -> Any:
            if isinstance(x, Literal):
                return self._constant(np.asarray(x.val, jax.dtypes.result_type(x.aval)))
            return known[x]

        for equation in jaxpr.eqns:
            made = self._equation(equation, [value(x) for x in equation.invars])
            many = made if isinstance(made, list) else [made]
            known.update(zip(equation.outvars, many, strict=True))
        return [value(x) for x in jaxpr.outvars]

    def _resolve_constant(self, const: Any) -> Cells | LaneReference:
        """Convert a value in a function's closure."""
        place = next((x for x in self._places if x.ref is const), None)
        if place is None and isinstance(const, jax.core.Tracer):
            return scalar(const)
        return self._constant(np.asarray(const)) if place is None else place

    def _equation(self, equation: Any, taken: Sequence[Any]) -> Any:
        name, params = equation.primitive.name, equation.params
        if name in _ELEMENTWISE:
            bind = lambda *cells: equation.primitive.bind(*cells, **params)  # noqa: E731
            return self._elementwise(bind, equation.outvars[0].aval.shape, taken)
        if name in _INLINED:
            inner = params[_INLINED[name]]
            return self._run(inner.jaxpr, [*map(self._resolve_constant, inner.consts)], taken)
        rule = _RULES.get(name)
        if rule is None:
            raise NotImplementedError(f"{name} has no rule for single elements")
        return rule(self, equation, *taken)

    def _elementwise(self, bind: Any, shape: Sequence[int], taken: Sequence[Cells]) -> Cells:
        lane = self._common_lane(taken)
        cores = [_core(self.with_lane(x, lane) if x.each.ndim else x.each) for x in taken]
        small = np.broadcast_shapes(*(x.shape for x in cores))
        rows = [np.broadcast_to(x, small).flat for x in cores]
        made = _array([self._bind(bind, cells) for cells in zip(*rows, strict=True)], small)
        return Cells(np.broadcast_to(made, _collapse_axis(shape, lane)), lane)

    def _bind(self, bind: Any, cells: Sequence[Any]) -> Any:
        if all(isinstance(x, np.generic) for x in cells):
            cpu = jax.local_devices(backend="cpu")[0]
            with jax.ensure_compile_time_eval(), jax.default_device(cpu):
                return np.asarray(bind(*cells))[()]
        if any(jnp.ndim(x) for x in cells):
            cells = [self._broadcast_cell(x) for x in cells]
        return bind(*cells)

    def _broadcast_cell(self, cell: Any) -> Any:
        return cell if jnp.ndim(cell) else jnp.full((self._size,), cell)

    def _common_lane(self, values: Sequence[Cells]) -> int | None:
        """Return the common axis of points of values with one rank."""
        lanes = {x.lane for x in values if x.lane is not None}
        if len(lanes) > 1:
            raise NotImplementedError(f"one operation combines two axes of {self._size} elements")
        return lanes.pop() if lanes else None

    def with_lane(self, x: Cells, lane: int | None) -> np.ndarray:
        """Return the elements, combined along the given axis of points."""
        if lane is None or x.each.shape[lane] == 1:
            return x.each
        rows = np.moveaxis(x.each, lane, -1).reshape(-1, self._size)
        return _array([*map(self._combine_cells, rows)], _collapse_axis(x.each.shape, lane))

    def _combine_cells(self, cells: Sequence[Any]) -> Any:
        first, *others = cells
        if all(x is first or _is_same_number(x, first) for x in others):
            return first
        if self._guess:
            raise NotImplementedError(f"an axis has {self._size} elements, but they are not points")
        point, made = lax.iota(np.int32, self._size), self._broadcast_cell(first)
        for k, x in enumerate(others, 1):
            made = jnp.where(point < k, made, x)
        return made

    def _reduce(self, equation: Any, x: Cells) -> Cells:
        axes = equation.params["axes"]
        if x.lane in axes:
            raise NotImplementedError("it reduces over points")
        moved = np.moveaxis(x.each, axes, range(len(axes)))
        shape = moved.shape[len(axes) :]
        rows = moved.reshape(-1, prod(shape))
        if not len(rows):
            raise NotImplementedError("it reduces an empty axis")
        join = _REDUCED[equation.primitive.name]
        cells = [reduce(lambda a, b: self._bind(join, [a, b]), column) for column in rows.T]
        return Cells(_array(cells, shape), _shift_axis(x.lane, axes))

    def _broadcast(self, equation: Any, x: Cells, *_: Any) -> Cells:
        shape, axes = equation.params["shape"], equation.params["broadcast_dimensions"]
        wide = [1] * len(shape)
        for k, axis in enumerate(axes):
            wide[axis] = x.each.shape[k]
        lane = None if x.lane is None else axes[x.lane]
        return Cells(np.broadcast_to(x.each.reshape(wide), _collapse_axis(shape, lane)), lane)

    def _reshape(self, equation: Any, x: Cells) -> Cells:
        shape = equation.params["new_sizes"]
        if x.lane is None:
            return Cells(x.each.reshape(shape))
        ahead = prod(x.each.shape[: x.lane])
        places = (k for k, n in enumerate(shape) if n == self._size and prod(shape[:k]) == ahead)
        lane = next(places, None)
        if lane is None:
            raise NotImplementedError("it merges points with another axis")
        return Cells(x.each.reshape(_collapse_axis(shape, lane)), lane)

    def _squeeze(self, equation: Any, x: Cells) -> Cells:
        axes = equation.params["dimensions"]
        return Cells(x.each.squeeze(axes), _shift_axis(x.lane, axes))

    def _transpose(self, equation: Any, x: Cells) -> Cells:
        order = equation.params["permutation"]
        return Cells(x.each.transpose(order), None if x.lane is None else order.index(x.lane))

    def _join(self, equation: Any, *xs: Cells) -> Cells:
        axis, lane = equation.params["dimension"], self._common_lane(xs)
        if axis == lane:
            raise NotImplementedError("it concatenates points with other elements")
        return Cells(np.concatenate([self.with_lane(x, lane) for x in xs], axis), lane)

    def _stack(self, equation: Any, *xs: Cells) -> Cells:
        axis, lane = equation.params["axis"], self._common_lane(xs)
        made = np.stack([self.with_lane(x, lane) for x in xs], axis)
        return Cells(made, None if lane is None else lane + (axis <= lane))

    def _unstack(self, equation: Any, x: Cells) -> list[Cells]:
        axis = equation.params["axis"]
        if axis == x.lane:
            raise NotImplementedError("it separates points")
        lane = _shift_axis(x.lane, [axis])
        return [
            Cells(part.squeeze(axis), lane)
            for part in np.split(x.each, len(equation.outvars), axis)
        ]

    def _slice(self, equation: Any, x: Cells) -> Cells:
        params = equation.params
        steps = params["strides"] or [1] * x.each.ndim
        starts, ends = params["start_indices"], params["limit_indices"]
        if (
            x.lane is not None
            and len(range(starts[x.lane], ends[x.lane], steps[x.lane])) < self._size
        ):
            raise NotImplementedError("it slices points")
        every = zip(starts, ends, steps, strict=True)
        cut = [slice(None) if k == x.lane else slice(*part) for k, part in enumerate(every)]
        return Cells(x.each[tuple(cut)], x.lane)

    def _dynamic_slice(self, equation: Any, x: Cells, *starts: Cells) -> Cells:
        cells, sizes = x.each, equation.params["slice_sizes"]
        for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            if axis != x.lane:
                cells = self._window(cells, axis, start.each[()], size)
            elif size < self._size:
                raise NotImplementedError("it slices points")
        return Cells(cells, x.lane)

    def _window(self, cells: np.ndarray, axis: int, start: Any, size: int) -> np.ndarray:
        """Return `size` elements along an axis; with a traced start, each is selected among its candidates."""
        last = cells.shape[axis] - size
        if isinstance(start, np.generic):
            first = min(max(int(start), 0), last)
            return cells.take(range(first, first + size), axis)
        made = cells.take(range(size), axis)
        for k in range(1, last + 1):
            later = cells.take(range(k, k + size), axis)
            pairs = zip(made.flat, later.flat, strict=True)
            chosen = [self._bind(jnp.where, [start >= k, new, old]) for old, new in pairs]
            made = _array(chosen, made.shape)
        return made

    def _iota(self, equation: Any, *_: Any) -> Cells:
        shape, axis = equation.params["shape"], equation.params["dimension"]
        counted = np.arange(shape[axis], dtype=equation.params["dtype"])
        wide = counted.reshape([-1 if k == axis else 1 for k in range(len(shape))])
        return self._constant(np.broadcast_to(wide, shape))

    def _constant(self, x: np.ndarray) -> Cells:
        """Convert constants. Consecutive numbers over points are computed, as kernels cannot have constant arrays."""
        for axis, n in enumerate(x.shape):
            may_count = self._guess and n == self._size and x.dtype.kind in "iu"
            steps = np.diff(x, axis=axis) if may_count else None
            if steps is not None and n > 1 and np.all(steps == 1):
                count = lax.iota(x.dtype, n)
                first = x.take([0], axis)
                return Cells(_array([count + at for at in first.flat], first.shape), axis)
        return Cells(_array([*x.flat], x.shape))

    def _get(self, equation: Any, place: LaneReference, *flat: Cells) -> Cells:
        return place.get(_index(equation, flat, place))

    def _swap(
        self, equation: Any, place: LaneReference, value: Cells, *flat: Cells
    ) -> Cells | None:
        index = _index(equation, flat, place)
        [was] = equation.outvars
        old = None if isinstance(was, DropVar) else place.get(index)
        place.write(self.move_to_lane(value, place.lane_of(index)), index)
        return old

    def move_to_lane(self, x: Cells, lane: int | None) -> Cells:
        """Return a value with the given axis as the axis of points."""
        if lane is None:
            if x.lane is not None:
                raise NotImplementedError("it writes points to a buffer without an axis for points")
            return x
        each = self.with_lane(x, lane)
        return Cells(_array([*map(self._broadcast_cell, each.flat)], each.shape), lane)

    def _handed_on(self, x: Cells) -> Cells:
        """Return a loop's initial value in its final form: points that are equal at first may differ later."""
        free = x.lane is None and self._guess
        lanes = (k for k, n in enumerate(x.each.shape) if free and n == self._size)
        return self.move_to_lane(x, next(lanes, x.lane))

    def _scan(self, equation: Any, *taken: Any) -> list[Cells]:
        """Convert a loop without inputs or outputs per iteration."""
        inner, count = equation.params["jaxpr"], len(equation.outvars)
        shapes = [x.aval.shape for x in (*equation.invars, *equation.outvars)]
        if shapes != [x.shape for x in (*inner.in_avals, *inner.out_avals)]:
            raise NotImplementedError("it loops over elements")
        fixed, begun = taken[: len(taken) - count], taken[len(taken) - count :]
        forms = [*map(self._handed_on, begun)]
        made: list[Cells] = []

        def unflatten(flat: list[list[Any]]) -> list[Cells]:
            parts = zip(flat, forms, strict=True)
            return [Cells(_array(cells, x.each.shape), x.lane) for cells, x in parts]

        def flat(values: Sequence[Cells]) -> list[list[Any]]:
            parts = zip(values, forms, inner.out_avals, strict=True)
            along = [(self.move_to_lane(x, form.lane), aval.dtype) for x, form, aval in parts]
            return [[jnp.asarray(cell, dtype) for cell in x.each.flat] for x, dtype in along]

        def body(carry: list[list[Any]]) -> None:
            consts = [*map(self._resolve_constant, inner.consts)]
            made[:] = self._run(inner.jaxpr, consts, [*fixed, *unflatten(carry)])

        def turn(_: Any, carry: list[list[Any]]) -> list[list[Any]]:
            body(carry)
            return flat(made)

        # A value that varies over points after an iteration needs that form from the start.
        is_known = self._guess
        while not is_known:
            jax.eval_shape(body, flat(forms))
            pairs = zip(forms, made, strict=True)
            after = [self.move_to_lane(x, y.lane) if x.lane is None else x for x, y in pairs]
            is_known = [x.lane for x in after] == [x.lane for x in forms]
            forms[:] = after
        return unflatten(lax.fori_loop(0, equation.params["length"], turn, flat(forms)))


_RULES: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(_REDUCED, InCells._reduce),
    "broadcast_in_dim": InCells._broadcast,
    "concatenate": InCells._join,
    "dynamic_slice": InCells._dynamic_slice,
    "get": InCells._get,
    "iota": InCells._iota,
    "reshape": InCells._reshape,
    "scan": InCells._scan,
    "slice": InCells._slice,
    "squeeze": InCells._squeeze,
    "stack": InCells._stack,
    "swap": InCells._swap,
    "transpose": InCells._transpose,
    "unstack": InCells._unstack,
}


def scalar(x: Any) -> Cells:
    """Convert a traced scalar."""
    return Cells(_array([x], ()))


def _array(cells: Sequence[Any], shape: Sequence[int]) -> np.ndarray:
    """Return an object array of the given shape."""
    _refuse_many(len(cells))
    return np.fromiter(cells, object, len(cells)).reshape(shape)


def _is_same_number(a: Any, b: Any) -> bool:
    return isinstance(a, np.generic) and isinstance(b, np.generic) and bool(a == b)


def _core(cells: np.ndarray) -> np.ndarray:
    """Reduce axes with stride 0 to size 1, as their elements are equal."""
    return cells[(..., *(slice(0, 1) if n == 0 else slice(None) for n in cells.strides))]


def _collapse_axis(shape: Sequence[int], lane: int | None) -> tuple[int, ...]:
    return tuple(1 if k == lane else n for k, n in enumerate(shape))


def _shift_axis(lane: int | None, gone: Sequence[int]) -> int | None:
    """Return the position of an axis after the removal of other axes."""
    return None if lane is None else lane - sum(axis < lane for axis in gone)


def _index(equation: Any, flat: Sequence[Cells], place: LaneReference) -> list[Any]:
    """Return the index of a reference: per axis a scalar, or None for the whole axis."""
    [found] = jax.tree.unflatten(equation.params["tree"], [x.each[()] for x in flat])
    for k, (at, n) in enumerate(zip(found.indices, place.ref.shape, strict=True)):
        is_part = hasattr(at, "stride") and (at.start, at.size, at.stride) != (0, n, 1)
        if is_part or (k == place.lane and not hasattr(at, "stride")):
            raise NotImplementedError("it accesses a part of a buffer's value")
    return [None if hasattr(at, "stride") else at for at in found.indices]


def _refuse_many(count: int) -> None:
    if count > _MOST:
        raise NotImplementedError(
            f"a point's value has {count} elements, and the maximum is {_MOST}"
        )
