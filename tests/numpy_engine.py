"""NumPy as the engine of interpreted programs, for tests only: the smallest engine that runs every program.

A kernel runs operation by operation, and coordinates are integers. So each operand is cut to its true lengths, the
reference's rule computes the result, and zeros fill it up to its capacity. No rule needs a mask, and no kind is
refused along an axis of varying length.

Results own their memory: accumulators and blocks of rows are overwritten in place. Donated operands are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.reference.evaluation_rules import RULES
from timerl_nb.compiler.ir.shapes import HALF, NUMPY, Size, concrete
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Lin
from timerl_nb.runtime.engine import Engine

COMBINE: Final[Mapping[str, Callable[..., Array]]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@dataclass
class Scope:
    """Context of a kernel at one point, and the evaluator that the reference's rules ask.

    Attributes:
        bounds: Values of the bounds.
        point: Coordinates of the kernel.
        seed: Two words of the run's seed; none for a kernel without draws.
        capacity: Returns the number of elements that an axis has in memory.
        varies: Returns whether an axis is shorter at some points.
        seeds: Dimension of several seeds, or None.
        endless: Unbounded dimension, or None.
        turn: Words of the current iteration along it: an equivalent one, then the low and the high word.
        recomputed: Draws that XLA would compute many times. NumPy stores every value.
    """

    bounds: Mapping[str, int]
    point: Mapping[str, int]
    seed: tuple[Array, Array]
    capacity: Callable[[Size], int]
    varies: Callable[[Size], bool]
    seeds: str | None = None
    endless: str | None = None
    turn: tuple[Array, ...] = ()
    recomputed: frozenset[int] = frozenset()

    def environment(self, *, drawing: bool = False) -> dict[str, int]:
        """Return the values of all symbols. Draws need the true iteration of an unbounded dimension."""
        found = {**self.bounds, **self.point}
        if drawing and self.endless in found:
            _, low, high = self.turn
            found[self.endless] = (int(high[0]) << 32) + int(low[0])
        return found

    def shape(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        return tuple(map(self.capacity, sizes))

    def length(self, size: Size) -> int | None:
        """Return the true length of an axis; None if it always equals the capacity."""
        if isinstance(size, int) or not self.varies(size):
            return None
        return concrete((size,), self.environment())[0]

    def dtype(self, dtype: str) -> np.dtype[Any]:
        return NUMPY[dtype]


def make_engine(device: str | None, *, compiled: bool) -> Engine:
    """Return the engine. NumPy has one device, and compiles nothing."""
    return Engine(
        name="numpy",
        description="NumPy",
        compile_kernel=_compile_kernel,
        compilations=None,
        scope=Scope,
        compute=compute,
        kinds_without_padding={},
        own=_own,
        accumulate=_accumulate,
        write_row=_with_row,
        read_rows=_rows,
        concatenate=np.concatenate,
        has_nans=_holding_nans,
        pad_or_cut=_fitted,
        stack_points=_stack_points,
        stack=np.stack,
        zeros=_zeros,
        fill_factory=_fresh,
        copy=_copied,
        copy_stores=_copy_stores,
        snapshot=_copied,
        seed_words=_seed_words,
        to_device=_copied,
        move_to_device=_copied,
        to_numpy=np.asarray,
        to_user=_copied,
        wait=_itself,
        is_deleted=lambda x: False,
        placement=lambda x: None,
        to_host=_copied,
        from_host=lambda x, home: _copied(x),
        device=lambda: "cpu",
        memory=lambda: None,
        costs=lambda machine: machine,
    )


def compute(scope: Scope, op: Op, args: Sequence[Array], sizes: Sequence[Sequence[Size]]) -> Array:
    """Compute an operation by the reference's rule. Half precision is computed in float32, and rounded once."""
    here = scope.environment(drawing=op.kind == "rng")
    cut = [_widened(x[_slices(concrete(tuple(n), here))]) for x, n in zip(args, sizes, strict=True)]
    with np.errstate(all="ignore"):
        made = np.asarray(RULES[op.kind](scope, op, cut, here), NUMPY[op.dtype])
    return _fitted(made, scope.shape(op.shape))


def _widened(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype in [NUMPY[name] for name in HALF] else x


def _slices(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(map(slice, shape))


def _compile_kernel(
    kernel: Any, f: Callable[..., Any], taken: tuple[int, ...], bound: Any
) -> Callable[..., Any]:
    return f


def _itself(made: Any) -> Any:
    return made


# --- ownership of memory -------------------------------------------------------------------------


def _copied(x: Any) -> Array:
    return np.array(x, order="C")


def _own(results: Sequence[Array]) -> list[Array]:
    return list(map(_copied, results))


def _copy_stores(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copy_stores(x) for key, x in tree.items()}
    return _copied(tree)


def _accumulate(reduce: str, accumulator: Array, value: Array, owned: bool) -> Array:
    with np.errstate(all="ignore"):
        return COMBINE[reduce](accumulator, value, out=accumulator if owned else None)


# --- blocks of rows, slices and new arrays -------------------------------------------------------


def _with_row(block: Array, row: int, value: Array, *, cut: bool) -> Array:
    """Write one row of a block in place. With `cut`, a row outside of the block is ignored."""
    if not cut or 0 <= row < len(block):
        block[row] = value
    return block


def _rows(scope: Scope, block: Array, first: Lin, count: int) -> Array:
    """Return `count` rows of a block from row `first`; rows beyond its end have arbitrary values."""
    start = evaluate(first, scope.environment())
    return block.take(range(start, start + count), axis=0, mode="clip")


def _holding_nans(scope: Scope, arrays: Sequence[Array], shapes: Sequence[Sequence[Size]]) -> Array:
    here = scope.environment()
    true = [x[_slices(concrete(tuple(n), here))] for x, n in zip(arrays, shapes, strict=True)]
    return np.array([bool((x != x).any()) for x in true], np.bool_)


def _fitted(x: Array, shape: tuple[int, ...]) -> Array:
    """Cut an array to a shape of the same rank, or pad it with zeros."""
    if x.shape == tuple(shape):
        return x
    made, inside = np.zeros(shape, x.dtype), _slices(x.shape)
    made[inside] = x[_slices(shape)]
    return made


def _stack_points(values: Any, shape: tuple[int, ...], dtype: str) -> Array:
    """Return a gathered slice in the given shape, from its points or from a stacked array."""
    if isinstance(values, tuple | list):
        if not values:
            return _zeros(shape, dtype)
        values = np.stack([_fitted(x, shape[len(shape) - x.ndim :]) for x in values])
    return values.reshape(shape)


def _zeros(shape: tuple[int, ...], dtype: str) -> Array:
    return np.zeros(shape, NUMPY[dtype])


def _fresh(shape: tuple[int, ...], dtype: str, fill: float = 0) -> Callable[[], Array]:
    return lambda: np.full(shape, fill, NUMPY[dtype])


def _seed_words(seed: int) -> tuple[Array, Array]:
    """Return the seed of a run as two unsigned words."""
    high, low = (np.array([word & 0xFFFFFFFF], np.uint32) for word in (seed >> 32, seed))
    return high, low
