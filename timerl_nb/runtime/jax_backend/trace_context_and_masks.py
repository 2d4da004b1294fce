"""What a kernel knows while JAX traces it, and how axes of varying length are masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from timerl_nb.compiler.ir.operation_attributes import Along, ConstArray, PureFunction
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import Size
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import Cond, Lin

JaxArray = Any  # a JAX array, traced or not


@dataclass(frozen=True)
class Division:
    """Arrays with an axis as long as a bound lie in parts on several devices.

    Attributes:
        place: an array, divided along an axis.
    """

    bound: str
    place: Callable[[JaxArray, int], JaxArray]


@dataclass(frozen=True)
class AxisBlock:
    """That axes as long as a dimension's bound are `size` of its points, from `start` on."""

    dim: Dim
    start: JaxArray
    size: int

    def is_along(self, size: Size) -> bool:
        return not isinstance(size, int) and size.as_symbol == self.dim.bound

    def static_sizes(self, capacity: Callable[[Size], int]) -> Callable[[Size], int]:
        """The static sizes of axes, given those for all points."""
        return lambda size: self.size if self.is_along(size) else capacity(size)


@dataclass(frozen=True)
class Called:
    """A call of a function of the user's own: of an operation, along axes, for some arrays; what it made."""

    op: Op
    function: PureFunction
    along: Along
    args: tuple[JaxArray, ...]
    values: tuple[JaxArray, ...]


@dataclass(frozen=True)
class Scope:
    """What a kernel knows while it is traced.

    Attributes:
        bounds: the actual bounds.
        point: the traced values of the dimensions that the kernel depends on.
        seed: the two words of the run's seed.
        seeds: the dimension whose coordinate is added to it, if one counts seeds.
        capacity: the static size of an axis, the greatest it has at any point.
        varies: whether it has less at some point.
        division: how arrays lie on several devices, if they do.
        once: it is in no loop, so that it matters more how long it takes to compile.
        block: the part of all points of a dimension that it computes, if it is one.
        given: the arrays of constants that are arguments of the program.
        endless, turn: the dimension without an end, if there is one, and the words of the turn
            (`runtime.turn_counter`).
        called: the calls of functions of the user's own.
    """

    bounds: Mapping[str, int]
    point: Mapping[str, JaxArray]
    seed: tuple[JaxArray, JaxArray]
    capacity: Callable[[Size], int]
    varies: Callable[[Size], bool]
    division: Division | None = None
    once: bool = False
    block: AxisBlock | None = None
    given: Mapping[ConstArray, JaxArray] = field(default_factory=dict[ConstArray, JaxArray])
    seeds: str | None = None
    endless: str | None = None
    turn: tuple[JaxArray, ...] = ()
    called: dict[Any, Called] = field(default_factory=dict[Any, Called])

    def value(self, e: Lin | Cond, also: Mapping[str, JaxArray] | None = None) -> JaxArray:
        """A traced index expression or condition."""
        return values(e, {**self.bounds, **self.point, **(also or {})}, jnp)

    def shape(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        return tuple(self.capacity(s) for s in sizes)

    def length(self, size: Size) -> JaxArray | None:
        """The valid length of an axis where it can be less than its capacity."""
        if isinstance(size, int) or not self.varies(size):
            return None
        return jnp.maximum(self.value(size), 0)

    def is_divided(self, size: Size) -> bool:
        """Whether an axis of that size lies in parts on several devices."""
        if self.division is None or isinstance(size, int):
            return False
        return size.as_symbol == self.division.bound

    def constrain_sharding(self, x: JaxArray, sizes: Sequence[Size]) -> JaxArray:
        """An array that was made of nothing, where it is needed."""
        axis = next((k for k, size in enumerate(sizes) if self.is_divided(size)), None)
        if self.division is None or axis is None:
            return x
        return self.division.place(x, axis)


Rule = Callable[[Scope, Op, Sequence[JaxArray], Sequence[Sequence[Size]]], JaxArray]


def mask_padding(
    scope: Scope, x: JaxArray, sizes: Sequence[Size], axes: Sequence[int], fill: Any
) -> JaxArray:
    """The operand with what lies beyond the valid lengths of `axes` replaced by `fill`."""
    for axis in axes:
        length = scope.length(sizes[axis])
        if length is not None:
            along = jnp.arange(x.shape[axis]).reshape(
                [-1 if k == axis else 1 for k in range(x.ndim)]
            )
            x = jnp.where(along < length, x, jnp.asarray(fill, x.dtype))
    return x


def holding_nans(
    scope: Scope, arrays: Sequence[JaxArray], shapes: Sequence[Sequence[Size]]
) -> JaxArray:
    """Which arrays hold a NaN up to their true lengths."""
    found: list[JaxArray] = []
    for x, sizes in zip(arrays, shapes, strict=True):
        if jnp.issubdtype(x.dtype, jnp.floating):
            found.append(jnp.isnan(mask_padding(scope, x, sizes, range(x.ndim), 0)).any())
        else:
            found.append(jnp.asarray(False))
    return jnp.stack(found) if found else jnp.zeros((0,), bool)


def grid_of(
    scope: Scope, axes: Sequence[str], sizes: Sequence[Size], starts: Sequence[Lin] = ()
) -> dict[str, JaxArray]:
    """The dimensions in `axes` as arrays that vary along their own axes, from `starts` on."""
    shape = scope.shape(sizes)
    found: dict[str, JaxArray] = {}
    for k, (name, n) in enumerate(zip(axes, shape, strict=True)):
        along = [-1 if j == k else 1 for j in range(len(shape))]
        steps = jnp.arange(n, dtype=jnp.int32).reshape(along)
        if scope.block is not None and scope.block.is_along(sizes[k]):
            steps = steps + scope.block.start
        found[name] = steps + scope.value(starts[k]) if starts else steps
    return found
