"""Swapping of a lowered program's values between buffers and the host.

Values that leave together are cut out of their buffers, and a background thread copies them. The next group
leaves after these copies, so the device never has more than one group outside of the buffers. Returning
values are written to their slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.loops.loop_nodes import Deallocate, Offload, Transfer
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.buffer_layout import Layout
from timerl_nb.runtime.interpreter.swap_transfers import Copy, SwapStore, Transfers
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.memory_ledger import Ledger

Point = tuple[int, ...]
_Held = tuple[SwapStore, Any, Tensor]  # a value: store, key in it, tensor


class HostSwapping:
    """Executes the copies of a run.

    Args:
        plan: Memory plan.
        layout: Buffer layout.
        state: Buffers of the run. Entries are replaced when values return.
        ledger: Memory ledger, for the bytes on the host.
        recorded: Whether to record each copy.
    """

    def __init__(
        self,
        plan: MemoryPlan,
        layout: Layout,
        state: dict[str, Any],
        ledger: Ledger,
        *,
        recorded: bool = False,
    ) -> None:
        self._plan, self._layout, self._state = plan, layout, state
        self._transfers = Transfers(ledger, 0)
        self._transfers.copies = [] if recorded else None
        self._stores = {
            tensor: SwapStore(self._transfers, plan.stores[tensor], plan.origin(tensor))
            for tensor in plan.swaps.tensors
        }
        self._leaving: Sequence[_Held] = ()

    def run(self, node: Transfer, points: Iterable[Point]) -> None:
        """Copy or free the values of a node at some points.

        Raises:
            ExecutionError: A copy failed.
        """
        tensors = self._plan.swapped_tensors(node.lifetime)
        for point in points:
            held = [(self._stores[t], self._key(t, point), t) for t in tensors]
            if isinstance(node, Deallocate):
                self._free(held)
            elif isinstance(node, Offload):
                # a value with a copy on the host has not changed since
                self._finish_offload([one for one in held if not one[0].is_away(one[1])], point)
            else:  # under a dynamic bound, the point may not have run
                self._return([one for one in held if one[0].is_away(one[1])], point)

    def _finish_offload(self, held: Sequence[_Held], point: Point) -> None:
        if not held:
            return
        self.wait()
        arrays = tuple(self._state[self._buffer(t).name] for _, _, t in held)
        sizes = tuple(self._size(t) for _, _, t in held)
        rows = _cut(arrays, self._places_of(held, point), sizes)
        for (store, key, _), row in zip(held, rows, strict=True):
            store[key] = row
            store.copy(key)
        self._leaving = held

    def _return(self, held: Sequence[_Held], point: Point) -> None:
        if not held:
            return
        self.wait()
        names = [self._buffer(t).name for _, _, t in held]
        values = tuple(self._to_device_array(store, key) for store, key, _ in held)
        arrays = tuple(self._state[name] for name in names)
        self._state.update(
            zip(names, _put(arrays, values, self._places_of(held, point)), strict=True)
        )

    def _to_device_array(self, store: SwapStore, key: Any) -> Array:
        return self._transfers.timed_copy("fetch", store, lambda: backend.to_numpy(store[key]))

    def _free(self, held: Sequence[_Held]) -> None:
        if any(
            one[0] is other[0] and one[1] == other[1] for one in held for other in self._leaving
        ):
            self.wait()
        for store, key, _ in held:
            store.pop(key)

    def wait(self) -> None:
        """Wait until all leaving values are copied."""
        held, self._leaving = self._leaving, ()
        for store, key, _ in held:
            store.drop(key)

    def host_value(self, tensor: Tensor, point: Point) -> Array | None:
        """Return the value at a point if it is on the host, or on its way there; None otherwise."""
        store = self._stores.get(tensor)
        if store is None:
            return None
        placed = self._plan.stores[tensor]
        key = placed.key(point)
        if not store.is_away(key):
            return None
        found = backend.to_numpy(store[key])
        shape = self._buffer(tensor).shape
        if placed.traits.has_rows:
            return found.reshape(placed.size, *shape)[point[placed.position] - placed.first_row]
        return found.reshape(shape)

    def put_away(self, tensor: Tensor, points: Array, values: Array) -> None:
        """Store values on the host only."""
        store, size = self._plan.stores[tensor], self._size(tensor)
        whole: dict[Any, Array] = {}
        for row, value in zip(points.tolist(), values, strict=True):
            key = store.key(tuple(row))
            if key not in whole:
                whole[key] = np.zeros(size, values.dtype)
            if store.traits.has_rows:
                rows = whole[key].reshape(store.size, *value.shape)
                rows[row[store.position] - store.first_row] = value
            else:
                whole[key][...] = value.reshape(size)
        for key, value in whole.items():
            self._stores[tensor].put_away(key, backend.to_device(value))

    @property
    def copies(self) -> Sequence[Copy]:
        """Copies so far, if they are recorded."""
        return self._transfers.copies or ()

    def close(self) -> None:
        """End the thread, and free all copies."""
        self._transfers.close()
        self._leaving = ()
        for store in self._stores.values():
            store.clear()

    # --- positions of values ---------------------------------------------------------------------

    def _buffer(self, tensor: Tensor) -> Buffer:
        return self._layout.home_of(tensor).buffer

    def _key(self, tensor: Tensor, point: Point) -> Any:
        return self._plan.stores[tensor].key(self._stored_point(tensor, point))

    def _places_of(self, held: Sequence[_Held], point: Point) -> Array:
        """Return the buffer positions of values, concatenated."""
        found: list[int] = []
        for _, _, tensor in held:
            buffer = self._buffer(tensor)
            found += [*buffer.place(self._stored_point(tensor, point)), *(0 for _ in buffer.shape)]
        return np.array(found, np.int32)

    def _stored_point(self, tensor: Tensor, point: Point) -> Point:
        """Return the point of a value, or of the first row of a block."""
        store = self._plan.stores[tensor]
        if not store.traits.has_rows:
            return point
        return (*point[: store.position], store.first_row, *point[store.position :])

    def _size(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the shape of the buffer region that is copied together."""
        store, buffer = self._plan.stores[tensor], self._buffer(tensor)
        row = store.position if store.traits.has_rows else None
        places = (axis.size if axis.coordinate == row else 1 for axis in buffer.axes)
        return (*places, *buffer.shape)


@partial(jax.jit, static_argnums=2)
def _cut(arrays: Sequence[Any], places: Any, sizes: Sequence[tuple[int, ...]]) -> tuple[Any, ...]:
    """Cut out all values that leave together, in one call to XLA."""
    starts = _split(places, arrays)
    return tuple(
        lax.dynamic_slice(array, start, size, allow_negative_indices=False)
        for array, start, size in zip(arrays, starts, sizes, strict=True)
    )


@partial(jax.jit, donate_argnums=0)
def _put(arrays: Sequence[Any], values: Sequence[Any], places: Any) -> tuple[Any, ...]:
    """Write all values that return together, in one call to XLA."""
    starts = _split(places, arrays)
    return tuple(
        lax.dynamic_update_slice(array, value, start, allow_negative_indices=False)
        for array, value, start in zip(arrays, values, starts, strict=True)
    )


def _split(places: Any, arrays: Sequence[Any]) -> list[list[Any]]:
    """Return the start positions in each array."""
    left = iter(range(places.shape[0]))
    return [[places[next(left)] for _ in range(array.ndim)] for array in arrays]
