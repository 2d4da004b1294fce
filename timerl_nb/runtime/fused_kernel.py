"""Compilation of one fused region of the graph to a function of an engine.

Arguments of a kernel: the words of the seed, the coordinates that its result depends on, its operands,
and donated arrays (dead operands, accumulators, and blocks that receive a row). A sliced operand is a
tuple of its points, one stacked array, or the blocks that contain it.

A kernel returns the outputs that reuse donated arrays first, in the order of these arrays, as JAX pairs
them by position. It is compiled once for all points, because it masks axes of varying length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.operation_attributes import ConstAttrs, JaxedAttrs, RngAttrs
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Tensor, is_sliced
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY, Shape, Size, is_float
from timerl_nb.compiler.memory.budget.cpu_fusion_rules import find_recomputed_draws
from timerl_nb.compiler.memory.byte_sizes import Sizes, moving_symbols
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement import passed_data as given
from timerl_nb.compiler.memory.placement.slice_reads import PointRange
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.index_expressions import ZERO, Lin, Slice
from timerl_nb.runtime.engine import Engine, Scope


@dataclass(frozen=True)
class RecomputedValues:
    """Values inside a kernel, recomputed operation by operation.

    Attributes:
        point: Point of the kernel.
        values: Values of the operations and operands, padded to their capacity.
        lengths: True lengths of the axes of each value.
    """

    point: Mapping[str, int]
    values: Mapping[Tensor, Any]
    lengths: Mapping[Tensor, tuple[int, ...]]


class Kernel:
    """Dataflow operation, compiled for the bounds of a plan.

    Args:
        plan: Memory plan.
        op: The operation.
        engine: Engine that runs the kernel.
        pointed: Whether the kernel receives all coordinates of its point, even unused ones.
    """

    def __init__(self, plan: MemoryPlan, op: Op, engine: Engine, *, pointed: bool = False) -> None:
        assert isinstance(op.attrs, DataflowAttrs)
        self.op, self.plan, self.sizes, self.pdg = op, plan, plan.sizes, plan.pdg
        self.engine = engine
        self.body: tuple[Op, ...] = op.attrs.body
        self.results = op.attrs.results
        self.operand_sizes: list[Shape] = [self.pdg.read_type(read).shape for read in op.inputs]
        self.needs_seed = any(inner.kind == "rng" for inner in self.body)
        self.recomputed = find_recomputed_draws(self.body)
        self.accumulated = [k for k, o in enumerate(op.outputs) if o.reduce is not None]
        stores = [plan.stores[op.id, k] for k in range(len(op.outputs))]
        self.blocks = {k: store for k, store in enumerate(stores) if store.traits.has_rows}
        found = (plan.donations.get((op.id, slot)) for slot in range(len(op.inputs)))
        self.taken = {d.slot: d for d in found if d is not None and d.output is not None}
        paired = [d.output for d in self.taken.values() if d.output is not None]
        paired += [*self.accumulated, *self.blocks]
        others = [k for k in range(len(op.outputs)) if k not in paired]
        self.order = {out: k for k, out in enumerate((*paired, *others))}
        consts = [inner for inner in self.body if isinstance(inner.attrs, ConstAttrs)]
        values = [inner.attrs.value for inner in consts if is_float(inner.dtype)]
        self.arrays = [value for value in values if value.array.size > 1]
        lengths = self.pdg.dims.lengths(op.domain)
        self.coords = (*op.domain, *lengths) if pointed else self._coordinates()
        self.runs: dict[Any, Callable[..., Any]] = {}
        self._check_padding()

    def _coordinates(self) -> tuple[str, ...]:
        """Return the coordinates (dimensions, dynamic bound) with an influence on the result."""
        found: set[str] = {store.stored_dim for store in self.blocks.values()}
        for slot in range(len(self.op.inputs)):
            for part in self.plan.operand_parts(self.op, slot):
                found |= frozenset() if part.along is None else part.index[part.along].symbols
        shapes = [
            *self.operand_sizes,
            *(o.type.shape for inner in self.body for o in inner.outputs),
        ]
        for size in (s for shape in shapes for s in shape):
            found |= size.symbols if isinstance(size, Lin) else set()
        for inner in self.body:
            attrs = inner.attrs
            for e in attrs.exprs:
                found |= e.symbols
            if isinstance(attrs, RngAttrs | ConstAttrs):
                found |= {*attrs.dims, *attrs.varying_dims(self.pdg.dims)}
            found -= set(attrs.bound_dims) - set(self.op.domain)
        lengths = self.pdg.dims.lengths(self.op.domain)
        return tuple(d for d in (*self.op.domain, *lengths) if d in found)

    def is_sliced(self, slot: int) -> bool:
        return is_sliced(self.op.inputs[slot])

    def padding(self, slot: int) -> Any:
        """Return the value for points beyond the end of a slice."""
        read = self.op.inputs[slot]
        return self.engine.zeros(self.sizes.point_shape(read), self.pdg.output(read).type.dtype)

    def _check_padding(self) -> None:
        moving = moving_symbols(self.pdg, self.op)
        sizes = self._shapes()
        for inner in self.body:
            reason = self.engine.kinds_without_padding.get(inner.kind)
            if reason is None:
                continue
            for slot, shape in enumerate(sizes[inner.id]):
                for axis, size in enumerate(shape):
                    varies = isinstance(size, Lin) and size.symbols & moving
                    if varies and _touches(inner, slot, axis, shape, moving):
                        raise ExecutionError(
                            f"{inner.kind} cannot run along an axis of varying length ({size}): "
                            f"{reason}.",
                            origin=inner.origin,
                            hint="reduce the slice first, or give it a fixed length.",
                        )

    def _shapes(self) -> dict[int, list[Shape]]:
        """Return the symbolic operand shapes of each operation in the body."""
        made: dict[int, Shape] = {inner.id: inner.shape for inner in self.body}
        return {
            inner.id: [
                self.operand_sizes[r.out] if r.source == OPERAND else made[r.source]
                for r in inner.inputs
            ]
            for inner in self.body
        }

    @property
    def run(self) -> Callable[..., Any]:
        """Compiled function: (seed, coordinates, operands, donated, accumulators, blocks) -> outputs."""
        device = self._device
        if device not in self.runs:
            taken = (3, 4, 5) if self.plan.donates else (5,)
            compiled = self.engine.compile_kernel(self, self.trace, taken, device)
            self.runs[device] = self._pass_on if self.passes_on else compiled
        return self.runs[device]

    @property
    def text(self) -> str:
        """Programs of the kernel that have run so far; "" if the engine has no text for them."""
        return "\n".join(getattr(run, "text", "") for run in self.runs.values())

    def _pass_on(self, seed: Any, coords: Sequence[Any], *none: Any) -> tuple[Any, ...]:
        """Cut the outputs out of arrays on the host, to avoid a copy of the whole array on the device."""
        at = {**self.sizes.bounds, **dict(zip(self.coords, coords, strict=True))}
        made = dict[int, Any]()
        for inner in self.body:
            attrs, n = inner.attrs, len(inner.attrs.axes)
            shape = self.sizes.shape(self.op, inner.shape)
            firsts = attrs.starts or (ZERO,) * n
            index = [np.ravel(np.int64(at.get(d, 0))) for d in attrs.dims]
            for d, first, size in zip(attrs.axes, firsts, shape[:n], strict=True):
                index[attrs.dims.index(d)] = int(values(first, at)) + np.arange(size)
            made[inner.id] = _cut_out(attrs, index).reshape(shape)
        found = [self.engine.copy(made[source]) for source, _ in self.results]
        placed = found if self._device is None else list(map(self.engine.move_to_device, found))
        return tuple(placed[k] for k in self.order)

    @property
    def passes_on(self) -> bool:
        """Whether the outputs are given data, which the host cuts out of its arrays."""
        return given.passes_on(self.op) and not self.blocks

    @property
    def _device(self) -> Any:
        """Device of the results, if the plan swaps values; None otherwise."""
        return self.engine.device() if self.plan.swaps.all else None

    def trace(
        self,
        seed: Any,
        coords: Sequence[Any],
        operands: Sequence[Any],
        taken: Sequence[Any],
        slots: Sequence[Any],
        blocks: Sequence[Any],
    ) -> tuple[Any, ...]:
        """Return the outputs in the order `order`, as traced arrays."""
        scope, arrays = self._bind_operands(seed, coords, operands, taken, blocks)
        results = self._accumulate(self.engine.own(self.compute(scope, arrays)), slots)
        return self._put_away(scope, results, blocks)

    def _bind_operands(
        self,
        seed: Any,
        coords: Sequence[Any],
        operands: Sequence[Any],
        taken: Sequence[Any],
        blocks: Sequence[Any],
    ) -> tuple[Scope, dict[int, Any]]:
        """Return the trace context of a point, and the operands by slot."""
        scope = self.scope(dict(zip(self.coords, coords, strict=True)), seed)
        arrays = {k: self._operand(scope, k, x, blocks) for k, x in enumerate(operands)}
        return scope, arrays | dict(zip(self.taken, taken, strict=True))

    def _accumulate(self, results: list[Any], slots: Sequence[Any]) -> list[Any]:
        """Add results to the accumulators of their outputs."""
        for slot, k in zip(slots, self.accumulated, strict=True):
            reduce = self.op.outputs[k].reduce
            assert reduce is not None
            results[k] = self.engine.accumulate(reduce, slot, results[k], self.plan.donates)
        return results

    def _put_away(self, scope: Scope, results: list[Any], blocks: Sequence[Any]) -> tuple[Any, ...]:
        """Write rows into their blocks, and return the outputs in order."""
        for block, (k, store) in zip(blocks, self.blocks.items(), strict=True):
            cut = self.plan.placed.blocks[self.op.id, k].cut
            row = scope.point[store.stored_dim] - store.first_row
            results[k] = self.engine.write_row(block, row, results[k], cut=cut)
        return tuple(results[k] for k in self.order)

    # --- looking for NaNs ------------------------------------------------------------------------

    @cached_property
    def run_with_nan_check(self) -> Callable[..., Any]:
        """Function like `run`, with a second result: a flag per output for NaN. It takes no donated arrays."""

        def trace(
            seed: Any, coords: Any, operands: Any, taken: Any, slots: Any, blocks: Any
        ) -> tuple[tuple[Any, ...], Any]:
            scope, arrays = self._bind_operands(seed, coords, operands, taken, blocks)
            results = self._accumulate(self.engine.own(self.compute(scope, arrays)), slots)
            shapes = [output.type.shape for output in self.op.outputs]
            found = self.engine.has_nans(scope, results, shapes)
            return self._put_away(scope, results, blocks), found

        return self.engine.compile_kernel(self, trace, (), self._device)

    def recompute(
        self, seed: Any, coords: Any, operands: Any, taken: Any, slots: Any, blocks: Any
    ) -> RecomputedValues:
        """Return the values inside the kernel, for the arguments of `run`."""
        scope, arrays = self._bind_operands(seed, coords, operands, taken, blocks)
        done = self._compute_body(scope, arrays)
        sizes = {(OPERAND, k): shape for k, shape in enumerate(self.operand_sizes)}
        sizes |= {(inner.id, 0): inner.shape for inner in self.body}

        def lengths(shape: Shape) -> tuple[int, ...]:
            known = [(scope.length(size), scope.capacity(size)) for size in shape]
            return tuple(most if n is None else int(n) for n, most in known)

        point = {d: int(scope.point[d]) for d in self.op.domain}
        return RecomputedValues(
            point, done, {tensor: lengths(shape) for tensor, shape in sizes.items()}
        )

    def scope(self, point: Mapping[str, Any], seed: Any) -> Scope:
        """Return the trace context of a point. `seed` has the words of the seed, then of the iteration."""
        sizes, op = self.sizes, self.op
        capacity, varies = partial(sizes.capacity, op), partial(sizes.varies, op)
        dims = self.pdg.dims
        return self.engine.scope(
            sizes.bounds,
            point,
            seed[:2],
            capacity,
            varies,
            seeds=dims.seeds.name if dims.seeds else None,
            endless=dims.endless.name if dims.endless else None,
            turn=seed[2:],
            recomputed=self.recomputed,
        )

    def compute(self, scope: Scope, operands: Mapping[int, Any]) -> list[Any]:
        """Return the contributions of one point to the outputs."""
        done = self._compute_body(scope, operands)
        return [done[key] for key in self.results]

    def _compute_body(self, scope: Scope, operands: Mapping[int, Any]) -> dict[Tensor, Any]:
        """Return the values of all operations and operands."""
        shapes = self._shapes()
        done: dict[Tensor, Any] = {
            (OPERAND, k): self._pad_operand(k, x) for k, x in operands.items()
        }
        for inner in self.body:
            args = [done[r.tensor] for r in inner.inputs]
            done[inner.id, 0] = self.engine.compute(scope, inner, args, shapes[inner.id])
        return done

    def _pad_operand(self, slot: int, x: Any) -> Any:
        """Pad or cut an operand to the kernel's capacity.

        The source may have points with longer axes, and branches of a merge may have shorter ones.
        """
        if self.is_sliced(slot) or not x.shape:
            return x
        moving = moving_symbols(self.pdg, self.op)
        sizes = zip(self.operand_sizes[slot], x.shape, strict=True)
        shape = tuple(
            self.sizes.capacity(self.op, size)
            if isinstance(size, Lin) and size.symbols & moving
            else have
            for size, have in sizes
        )
        return self.engine.pad_or_cut(x, shape)

    def own_block(self, part: PointRange) -> int | None:
        """Return the index of a part's block among the blocks written by this kernel; None if it is another."""
        op_id, out = part.tensor
        return list(self.blocks).index(out) if op_id == self.op.id else None

    def _operand(self, scope: Scope, slot: int, x: Any, blocks: Sequence[Any]) -> Any:
        if not self.is_sliced(slot):
            return x
        parts = self.plan.operand_parts(self.op, slot)
        if parts:
            pieces: list[Any] = []
            for part, piece in zip(parts, x, strict=True):
                own = None if part.along is None else self.own_block(part)
                whole = piece if own is None else blocks[own]
                pieces.append(
                    whole[None] if part.along is None else self._slice_block(scope, part, whole)
                )
            x = self.engine.concatenate(pieces)
        read = self.op.inputs[slot]
        lengths = tuple(e.length for e in read.index if isinstance(e, Slice))
        shape = (*self.sizes.shape(self.op, lengths), *self.sizes.point_shape(read))
        return self.engine.stack_points(x, shape, self.pdg.output(read).type.dtype)

    def _slice_block(self, scope: Scope, part: PointRange, block: Any) -> Any:
        """Return the rows of a block for a part of a slice."""
        assert part.along is not None
        first = part.index[part.along] - self.plan.stores[part.tensor].first_row
        count = self.sizes.capacity(self.op, part.count if part.count.symbols else part.count.const)
        return self.engine.read_rows(scope, block, first, count)


def _cut_out(attrs: ConstAttrs, index: Sequence[Array]) -> Array:
    """Return values of given data at positions along its dimensions. Axes that form a grid come first."""
    array = attrs.value.array
    for k, positions in enumerate(index):  # values beyond a varying length are masked later
        array = array.take(positions, axis=k, mode="clip")
    front = [attrs.dims.index(d) for d in attrs.axes]
    others = [k for k in range(array.ndim) if k not in front]
    return np.transpose(array, (*front, *others))


def start(engine: Engine, sizes: Sizes, op: Op, out: int) -> Callable[[], Any]:
    """Return a constructor of the initial value of an accumulator."""
    kind, reduce = op.outputs[out].type, op.outputs[out].reduce
    assert reduce is not None
    nothing = identity(reduce, NUMPY[kind.dtype])
    return engine.fill_factory(sizes.shape(op, kind.shape), kind.dtype, nothing)


def _touches(op: Op, slot: int, axis: int, shape: Shape, moving: frozenset[str]) -> bool:
    """Whether an operation moves elements along an axis of one operand."""
    if op.kind == "reshape":
        return _sizes_between_axes(shape, moving) != _sizes_between_axes(op.shape, moving)
    if isinstance(op.attrs, JaxedAttrs):
        return axis >= op.attrs.own_axes(slot)
    return axis == op.attrs.axis


def _sizes_between_axes(shape: Shape, moving: frozenset[str]) -> list[tuple[int, list[Size]]]:
    """Return the element counts before, between and after the axes of varying length.

    A reshape moves no element along such an axis if it preserves these counts.
    """
    parts: list[list[Size]] = [[]]
    for size in shape:
        if isinstance(size, Lin) and size.symbols & moving:
            parts.append([])
        else:
            parts[-1].append(size)
    return [
        (prod(s for s in part if isinstance(s, int)), [s for s in part if isinstance(s, Lin)])
        for part in parts
    ]
