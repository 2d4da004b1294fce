"""Tiled loops in JAX: all iterations of a loop for one tile after the other, on each device separately."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from timerl_nb.compiler.loops.loop_nodes import Loop
from timerl_nb.compiler.loops.tileable_loops import Tile
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.buffer_layout import Layout
from timerl_nb.runtime.jax_backend.trace_context_and_masks import AxisBlock, JaxArray
from timerl_nb.runtime.xla.lowering.buffer_access import AxisRange
from timerl_nb.runtime.xla.lowering.device_sharding import Shards
from timerl_nb.runtime.xla.lowering.loop_carried_buffers import Flow
from timerl_nb.runtime.xla.lowering.pallas_triton_tile_kernel import (
    TileKernel,
    kernel_refusal_reason,
)

State = dict[str, JaxArray]
Env = Mapping[str, Any]


@dataclass(frozen=True)
class Inside:
    """Tile during tracing.

    Attributes:
        tile: The tiled loop.
        first: First point on this device, among all points.
        start: First point of the tile, among the points of the device.
        size: Number of points.
    """

    tile: Tile
    first: Any
    start: Any
    size: int

    @property
    def block(self) -> AxisBlock:
        """Tile in the form used by kernels: its start counts among all points."""
        return AxisBlock(self.tile.dim, self.first + self.start, self.size)

    @property
    def runs_per_device(self) -> bool:
        """Whether each device runs its tiles separately."""
        return self.tile.devices > 1

    def buffer_in_tile(self, buffer: Buffer) -> tuple[Buffer, AxisRange | None]:
        """Return the tile's part of a buffer, and its range if the buffer is complete."""
        axis = self.tile.axes.get(buffer.name)
        if axis is None:
            return buffer, None
        within = None
        if buffer.name in self.tile.in_place:
            within = AxisRange(axis, self.start, self.size)
        return _resize_axis(buffer, axis, self.size), within

    def output_buffer(self, buffer: Buffer) -> Buffer:
        """Return the shape of a buffer created in the tile; in-place buffers have all points of the device."""
        part, within = self.buffer_in_tile(buffer)
        return (
            part
            if within is None
            else _resize_axis(buffer, within.axis, self.tile.points_per_device)
        )


class Blocks:
    """Runs loops tile by tile.

    Args:
        layout: Buffer layout.
        flow: Liveness of buffers.
        shards: Distribution over devices; None for one device.
        tiles: Tiled loops.
        kernel: Whether tiles become Pallas kernels.
        turns: Runs all iterations of a loop; it changes a state in place.
        constants: Returns the names of the given arrays used in a loop.

    Attributes:
        tiles: Tiled loops, by the id of the loop.
        now: Tile during tracing; None outside of tiles.
        no_kernel: Reason why a tile is not a kernel, by the id of its loop. None for a kernel.
    """

    def __init__(
        self,
        layout: Layout,
        flow: Flow,
        shards: Shards | None,
        tiles: Seq[Tile],
        kernel: Literal[False, True, "interpret"],
        turns: Callable[[Loop, State, Env, Any], None],
        constants: Callable[[Loop], set[str]],
    ) -> None:
        self.tiles = {id(tile.loop): tile for tile in tiles}
        self.now: Inside | None = None
        self.no_kernel: dict[int, str | None] = {}
        self._layout, self._flow, self._shards = layout, flow, shards
        self._kernel: Literal[False, True, "interpret"] = kernel
        self._loop, self._constants = turns, constants

    def run(self, tile: Tile, state: State, env: Env, seed: Any) -> State:
        """Run a tiled loop, and return the changed buffers. `state` has all carried buffers."""
        if tile.devices == 1:
            return self._run_tile(tile, 0, state, env, seed)
        assert self._shards is not None
        shared = _select_arrays(env), seed

        def run(parts: State, shared: Any, device: JaxArray) -> State:
            symbols, words = shared
            return self._run_tile(
                tile, device * tile.points_per_device, parts, {**env, **symbols}, words
            )

        made, arrays = self._flow.loop_carried(tile.loop), self._accessed_buffers(tile, state)
        return self._shards.map_per_device(run, self._axes(tile), made, arrays, shared)

    def _run_tile(self, tile: Tile, first: Any, state: State, env: Env, seed: Any) -> State:
        """Run a tiled loop on one device, with buffers starting at the point `first`.

        If the last tile is smaller, it is a separate program, so no point is computed twice.
        """
        apart = tile.axes.keys() - tile.in_place
        places = {name: len(self._layout.buffers[name].axes) for name in apart}

        def block(start: Any, size: int, carry: State) -> State:
            whole = {**state, **carry}
            parts = {name: AxisRange(tile.axes[name], start, size) for name in apart}
            inner = {
                n: parts[n].read_part(x, places[n]) if n in apart else x for n, x in whole.items()
            }
            self._turns(Inside(tile, first, start, size), inner, env, seed)
            return {
                n: parts[n].write_part(x, inner[n], places[n]) if n in apart else inner[n]
                for n, x in carry.items()
            }

        carry = {name: state[name] for name in sorted(self._flow.loop_carried(tile.loop))}
        full, rest = divmod(tile.points_per_device, tile.size)
        made = self._in_kernel(tile, full, first, state, env, seed)
        if made is None:
            each = lambda k, carry: block(k * tile.size, tile.size, carry)  # noqa: E731
            made = lax.fori_loop(0, full, each, carry)
        carry = {**carry, **made}
        return block(full * tile.size, rest, carry) if rest else carry

    def _in_kernel(
        self, tile: Tile, count: int, first: Any, state: State, env: Env, seed: Any
    ) -> State | None:
        """Run `count` tiles as one kernel; return None if there is no kernel."""
        if self._kernel is False:
            return None
        one = replace(
            tile, in_place=frozenset()
        )  # a program instance has only its part of a buffer

        def run(start: Any, inner: State, shared: Any) -> State:
            symbols, words, first = shared
            self._turns(Inside(one, first, start, tile.size), inner, {**env, **symbols}, words)
            return inner

        changed, interpret = self._flow.loop_carried(tile.loop), self._kernel == "interpret"
        kernel = TileKernel(tile, count, self._axes(tile), changed, run, interpret)
        arrays, shared = (
            self._accessed_buffers(tile, state),
            (_select_arrays(env), seed, jnp.asarray(first)),
        )
        why = kernel_refusal_reason(tile, self._kernel) or kernel.why_not(arrays, shared)
        self.no_kernel[id(tile.loop)] = why
        return kernel(arrays, shared) if why is None else None

    def _turns(self, block: Inside, state: State, env: Env, seed: Any) -> None:
        """Run all iterations of a tile."""
        self.now = block
        try:
            self._loop(block.tile.loop, state, env, seed)
        finally:
            self.now = None

    def _accessed_buffers(self, tile: Tile, state: State) -> State:
        """Return the accessed buffers of a tile in `state`."""
        known = self._flow.accessed(tile.loop) | self._constants(tile.loop)
        return {name: x for name, x in state.items() if name in known}

    def _axes(self, tile: Tile) -> dict[str, int]:
        """Return the tiled axis of each buffer, counted with its slot axes."""
        return {n: len(self._layout.buffers[n].axes) + axis for n, axis in tile.axes.items()}


def _resize_axis(buffer: Buffer, axis: int, size: int) -> Buffer:
    """Return a buffer with another size of one axis of its values."""
    return replace(buffer, shape=(*buffer.shape[:axis], size, *buffer.shape[axis + 1 :]))


def _select_arrays(env: Env) -> dict[str, JaxArray]:
    return {name: x for name, x in env.items() if isinstance(x, jax.Array)}
