"""Values of a lowered program that wait on the host, and how they come and go.

A value that leaves is cut out of its buffer and copied by the background thread; the next one leaves when
that copy is complete, so that at most one is on the device besides the buffers. One that returns is
put into its place again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import jax
import numpy as np
from jax import lax

from timerl_nb.loops.nodes import Deallocate, Offload, Transfer
from timerl_nb.memory.lifetimes import Tensor
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.runtime.backends import jax as backend
from timerl_nb.runtime.ledger import Ledger
from timerl_nb.runtime.transfer import Copy, SwapStore, Transfers
from timerl_nb.runtime.xla.places import Buffer, Places
from timerl_nb.symbolic.evaluate import evaluate
from timerl_nb.symbolic.expr import Slice

Array = np.ndarray[Any, np.dtype[Any]]
Point = tuple[int, ...]


class Moving:
    """Makes the moves of a run.

    Args:
        state: the run's buffers, which are replaced where values return.
        ledger: counts the bytes on the host.
        recorded: whether to note each copy.
    """

    def __init__(
        self,
        plan: MemoryPlan,
        places: Places,
        state: dict[str, Any],
        ledger: Ledger,
        *,
        recorded: bool = False,
    ) -> None:
        self._plan, self._places, self._state = plan, places, state
        self._transfers = Transfers(ledger, 0)
        self._transfers.copies = [] if recorded else None
        self._stores = {
            tensor: SwapStore(self._transfers, plan.stores[tensor], plan.origin(tensor))
            for tensor in plan.swaps.tensors
        }
        self._leaving: tuple[SwapStore, Any] | None = None

    def run(self, node: Transfer, env: Mapping[str, int]) -> None:
        """Move, or free on the host, all that a node names.

        Args:
            env: the counters around it, and what its point says besides.

        Raises:
            ExecutionError: a copy failed.
        """
        for point in _points(node, env):
            for tensor in self._plan.moved(node.lifetime):
                if isinstance(node, Offload):
                    self._leave(tensor, point)
                elif isinstance(node, Deallocate):
                    self._free(tensor, point)
                else:
                    self._return(tensor, point)

    def _leave(self, tensor: Tensor, point: Point) -> None:
        store, key = self._stores[tensor], self._key(tensor, point)
        if store.is_away(key):
            return  # it has not changed since
        self.settle()
        array = self._state[self._buffer(tensor).name]
        store[key] = _cut(array, self._place(tensor, point), self._size(tensor))
        store.copy(key)
        self._leaving = store, key

    def _return(self, tensor: Tensor, point: Point) -> None:
        store, key = self._stores[tensor], self._key(tensor, point)
        if not store.is_away(key):
            return  # under a dynamic bound its point may never have run
        self.settle()
        name = self._buffer(tensor).name
        value = self._transfers.noted("fetch", store, lambda: backend.to_numpy(store[key]))
        self._state[name] = _put(self._state.pop(name), value, self._place(tensor, point))

    def _free(self, tensor: Tensor, point: Point) -> None:
        store, key = self._stores[tensor], self._key(tensor, point)
        if self._leaving is not None and self._leaving[0] is store and self._leaving[1] == key:
            self.settle()
        store.pop(key)

    def settle(self) -> None:
        """Wait for the value that is leaving."""
        if self._leaving is not None:
            (store, key), self._leaving = self._leaving, None
            store.drop(key)

    def copied(self, tensor: Tensor, point: Point) -> Array | None:
        """The value at a point, if it is on the host, or on its way there."""
        store = self._stores.get(tensor)
        if store is None:
            return None
        placed = self._plan.stores[tensor]
        key = placed.key(point)
        if not store.is_away(key):
            return None
        found = backend.to_numpy(store[key])
        shape = self._buffer(tensor).shape
        if placed.kind == "block":
            return found.reshape(placed.size, *shape)[point[placed.position] - placed.first]
        return found.reshape(shape)

    @property
    def copies(self) -> Sequence[Copy]:
        """What was copied so far, if that is noted."""
        return self._transfers.copies or ()

    def close(self) -> None:
        """End the thread, and let go of all copies."""
        self._transfers.close()
        self._leaving = None
        for store in self._stores.values():
            store.clear()

    # --- where values are ------------------------------------------------------------------------

    def _buffer(self, tensor: Tensor) -> Buffer:
        return self._places.home(tensor).buffer

    def _key(self, tensor: Tensor, point: Point) -> Any:
        return self._plan.stores[tensor].key(self._whole(tensor, point))

    def _place(self, tensor: Tensor, point: Point) -> Point:
        buffer = self._buffer(tensor)
        return (*buffer.place(self._whole(tensor, point)), *(0 for _ in buffer.shape))

    def _whole(self, tensor: Tensor, point: Point) -> Point:
        """The point of a value; of a block, that of its first row."""
        store = self._plan.stores[tensor]
        if store.kind != "block":
            return point
        return (*point[: store.position], store.first, *point[store.position :])

    def _size(self, tensor: Tensor) -> tuple[int, ...]:
        """The places that are moved at once, and the shape of what is in each."""
        store, buffer = self._plan.stores[tensor], self._buffer(tensor)
        row = store.position if store.kind == "block" else None
        places = (axis.size if axis.coordinate == row else 1 for axis in buffer.axes)
        return (*places, *buffer.shape)


def _points(node: Transfer, env: Mapping[str, int]) -> product[Point]:
    """The points that a move names."""
    along: list[range] = []
    for entry in node.point:
        if isinstance(entry, Slice):
            along.append(range(evaluate(entry.lo, env), evaluate(entry.hi, env)))
        else:
            at = evaluate(entry, env)
            along.append(range(at, at + 1))
    return product(*along)


@partial(jax.jit, static_argnums=2)
def _cut(array: Any, place: Point, size: tuple[int, ...]) -> Any:
    return lax.dynamic_slice(array, place, size, allow_negative_indices=False)


@partial(jax.jit, donate_argnums=0)
def _put(array: Any, value: Any, place: Point) -> Any:
    return lax.dynamic_update_slice(array, value, place, allow_negative_indices=False)
