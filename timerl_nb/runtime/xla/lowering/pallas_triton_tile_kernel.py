"""Execution of a tiled loop as one Pallas kernel, with a program instance per tile.

Each instance runs all iterations of the loop for its part of every buffer. Values carried between
iterations stay in registers on a GPU. Buffers with a slot per iteration stay in memory, and are accessed
slot by slot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from timerl_nb.compiler.loops.tileable_loops import Tile
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray
from timerl_nb.runtime.xla.lowering.buffer_access import InPlace
from timerl_nb.runtime.xla.lowering.struct_of_arrays_retracing import InCells, LaneReference, scalar

State = dict[str, Any]
# Maps the start of a tile, its parts of buffers, and shared values to the parts after all iterations.
Run = Callable[[JaxArray, State, Any], State]


def without_gpu(how: Literal[True, "interpret"]) -> str | None:
    """Return the reason why this machine cannot run kernels; None if it can."""
    platform = jax.default_backend()
    if how == "interpret" or platform == "gpu":
        return None
    return f"Pallas compiles such kernels for GPUs, but JAX runs on {platform}"


def kernel_refusal_reason(tile: Tile, how: Literal[True, "interpret"]) -> str | None:
    """Return the reason why a tile cannot be a kernel, if it is known before tracing; None otherwise."""
    if how is True and tile.size & (tile.size - 1):
        return (
            f"on a GPU, the size of a tile is a power of two, and this one has {tile.size} points"
        )
    return without_gpu(how)


@dataclass(frozen=True)
class TileKernel:
    """Kernel for all complete tiles of a loop.

    Attributes:
        tile: Loop and tile size.
        count: Number of tiles.
        axes: Tiled axis of each buffer, counted with its slot axes.
        written: Names of the changed buffers.
        run: Runs all iterations of a tile.
        interpret: Whether Pallas interprets the kernel as XLA operations.
    """

    tile: Tile
    count: int
    axes: Mapping[str, int]
    written: Collection[str]
    run: Run
    interpret: bool

    def why_not(self, arrays: Mapping[str, JaxArray], shared: Any) -> str | None:
        """Return Pallas's message if it cannot lower the kernel; None if it can."""
        take = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (arrays, shared))
        try:
            jax.jit(self.__call__).lower(*take)
        except Exception as error:  # Pallas raises many types of exceptions
            return (str(error).strip().splitlines() or [type(error).__name__])[0]
        return None

    def __call__(self, arrays: Mapping[str, JaxArray], shared: Any) -> State:
        """Run the kernel, and return the changed buffers.

        Args:
            arrays: Accessed buffers by name.
            shared: Scalars and small arrays, whole in every tile.
        """
        try:  # fewer operations, but wrong if another axis has the size of a tile
            return self._call_kernel(arrays, shared, guess=True)
        except NotImplementedError as error:
            try:
                return self._call_kernel(arrays, shared, guess=False)
            except NotImplementedError:
                raise error from None

    def _call_kernel(self, arrays: Mapping[str, JaxArray], shared: Any, *, guess: bool) -> State:
        """Call the Pallas kernel, one program per tile, and return the written buffers.

        Args:
            arrays: the buffers by name.
            shared: a tree of other arrays, which all tiles read.
            guess: as for `InCells`.
        """
        from jax.experimental import pallas as pl  # noqa: PLC0415 (takes half a second, and few programs need it)

        leaves, tree = jax.tree.flatten(shared)
        names, made = list(arrays), [name for name in arrays if name in self.written]
        taken = [*arrays.values(), *leaves]
        axes = [self.axes.get(name) for name in names] + [None] * len(leaves)
        parts = [
            jax.ShapeDtypeStruct(_resize_axis(x.shape, axis, self.tile.size), x.dtype)
            for x, axis in zip(taken, axes, strict=True)
        ]
        specs = [
            pl.BlockSpec(part.shape or (1,), _which(part.shape, axis))
            for part, axis in zip(parts, axes, strict=True)
        ]
        whole = {name: parts[k] for k, name in enumerate(names) if name not in self.tile.in_place}

        def kernel(*refs: Any) -> None:
            places = [LaneReference(ref, axis) for ref, axis in zip(refs, axes, strict=False)]
            by_name = dict(zip(names, places, strict=False))
            outputs = zip(made, refs[len(taken) :], strict=True)
            changed = {n: LaneReference(ref, self.axes.get(n)) for n, ref in outputs}
            by_name |= {n: place for n, place in changed.items() if n in self.tile.in_place}
            in_place = {n: InPlace(by_name[n].ref) for n in names if n not in whole}

            def turns(start: Any, inner: State, others: Any) -> State:
                found = self.run(start, {**in_place, **inner}, tree.unflatten(others))
                return {name: found[name] for name in changed if name in whole}

            cells = InCells(self.tile.size, by_name.values(), guess=guess)
            start = pl.program_id(0) * self.tile.size
            found = cells.call(
                turns,
                scalar(start),
                {name: by_name[name].all(part.shape) for name, part in whole.items()},
                [place.all(x.shape) for place, x in zip(places[len(names) :], leaves, strict=True)],
                like=[start, whole, leaves],
            )
            for name, value in found.items():
                changed[name].put_all(cells.move_to_lane(value, self.axes.get(name)))

        call = pl.pallas_call(
            kernel,
            grid=(self.count,),
            in_specs=specs,
            out_specs=[specs[names.index(name)] for name in made],
            out_shape=[jax.ShapeDtypeStruct(arrays[n].shape, arrays[n].dtype) for n in made],
            input_output_aliases={names.index(name): k for k, name in enumerate(made)},
            interpret=self.interpret,
            **({} if self.interpret else {"compiler_params": _triton(self.tile.size)}),
        )
        return dict(zip(made, call(*map(_at_least_1d, taken)), strict=True))


def _triton(size: int) -> Any:
    """Return parameters to select Triton. JAX has several compilers, and its default varies by version."""
    from jax.experimental.pallas import triton  # noqa: PLC0415 (only where there is a GPU)

    return triton.CompilerParams(num_warps=max(1, min(size // 32, 8)))


def _resize_axis(shape: Sequence[int], axis: int | None, size: int) -> tuple[int, ...]:
    return tuple(size if k == axis else n for k, n in enumerate(shape))


def _which(shape: Sequence[int], axis: int | None) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function from the number of a program instance to its part of an array."""
    return lambda k: tuple(k if n == axis else 0 for n in range(len(shape) or 1))


def _at_least_1d(x: JaxArray) -> JaxArray:
    return x if x.ndim else jnp.reshape(x, (1,))
