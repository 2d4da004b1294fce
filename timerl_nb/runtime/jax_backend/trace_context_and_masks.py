"""Context of a kernel during tracing, and masks for axes of varying length."""

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
    """Distribution over several devices of arrays with an axis for a bound.

    Attributes:
        bound: Name of the bound.
        place: Constrains an array to be divided along an axis.
    """

    bound: str
    place: Callable[[JaxArray, int], JaxArray]


@dataclass(frozen=True)
class AxisBlock:
    """Tile of a dimension: axes for the dimension have only `size` points, from `start`."""

    dim: Dim
    start: JaxArray
    size: int

    def is_along(self, size: Size) -> bool:
        return not isinstance(size, int) and size.as_symbol == self.dim.bound

    def static_sizes(self, capacity: Callable[[Size], int]) -> Callable[[Size], int]:
        """Return the static size of axes, given a function for all points."""
        return lambda size: self.size if self.is_along(size) else capacity(size)


@dataclass(frozen=True)
class Called:
    """Call of a user function in a kernel: operation, batched axes, arguments and results."""

    op: Op
    function: PureFunction
    along: Along
    args: tuple[JaxArray, ...]
    values: tuple[JaxArray, ...]


@dataclass(frozen=True)
class Scope:
    """Context of a kernel during tracing.

    Attributes:
        bounds: Values of the bounds.
        point: Traced coordinates of the kernel.
        seed: Two words of the run's seed.
        seeds: Dimension of several seeds; its coordinate is added to the seed. None for one seed.
        capacity: Returns the static size of an axis: its maximum over all points.
        varies: Returns whether an axis is shorter at some points.
        division: Distribution of arrays over several devices; None for one device.
        once: Whether the code runs outside of all loops, and compile time matters more than speed.
        block: Tile of the kernel; None for all points.
        given: Constant arrays passed as arguments of the program.
        endless: Unbounded dimension; None if there is none.
        turn: Words of the current iteration along it (`runtime.state.iteration_counter`).
        called: Calls of user functions so far.
        recomputed: Draws that XLA on a CPU would compute many times in a reader.
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
    recomputed: frozenset[int] = frozenset()

    def value(self, e: Lin | Cond, also: Mapping[str, JaxArray] | None = None) -> JaxArray:
        """Evaluate an index expression or condition on traced coordinates."""
        return values(e, {**self.bounds, **self.point, **(also or {})}, jnp)

    def shape(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        return tuple(self.capacity(s) for s in sizes)

    def length(self, size: Size) -> JaxArray | None:
        """Return the valid length of an axis; None if it always equals the capacity."""
        if isinstance(size, int) or not self.varies(size):
            return None
        return jnp.maximum(self.value(size), 0)

    def is_divided(self, size: Size) -> bool:
        """Whether an axis is divided among several devices."""
        if self.division is None or isinstance(size, int):
            return False
        return size.as_symbol == self.division.bound

    def constrain_sharding(self, x: JaxArray, sizes: Sequence[Size]) -> JaxArray:
        """Divide an array without operands (data, random draws) among the devices."""
        axis = next((k for k, size in enumerate(sizes) if self.is_divided(size)), None)
        if self.division is None or axis is None:
            return x
        return self.division.place(x, axis)


Rule = Callable[[Scope, Op, Sequence[JaxArray], Sequence[Sequence[Size]]], JaxArray]


def mask_padding(
    scope: Scope, x: JaxArray, sizes: Sequence[Size], axes: Sequence[int], fill: Any
) -> JaxArray:
    """Replace the elements beyond the valid lengths of `axes` by `fill`."""
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
    """Return a boolean per array: whether it has a NaN within its true lengths."""
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
    """Return the coordinates of the dimensions `axes`, each as an array along its axis."""
    shape = scope.shape(sizes)
    found: dict[str, JaxArray] = {}
    for k, (name, n) in enumerate(zip(axes, shape, strict=True)):
        along = [-1 if j == k else 1 for j in range(len(shape))]
        steps = jnp.arange(n, dtype=jnp.int32).reshape(along)
        if scope.block is not None and scope.block.is_along(sizes[k]):
            steps = steps + scope.block.start
        found[name] = steps + scope.value(starts[k]) if starts else steps
    return found
