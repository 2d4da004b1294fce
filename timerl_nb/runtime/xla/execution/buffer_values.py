"""Conversion between buffers of a lowered program and values by tensor and point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.loops.iteration_cuts import Cut
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.buffer_layout import Home, buffer_name, latest_name
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.runtime.state.resumable_state import StoredValues
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered


class BufferValues:
    """Locates values in buffers at a cut."""

    def __init__(self, lowered: Lowered, cut: Cut | None) -> None:
        self._lowered, self._cut = lowered, cut
        self._plan, self._layout, self._cuts = lowered.plan, lowered.layout, lowered.cuts

    def read_values(
        self, tensor: Tensor, points: Array, buffer: Callable[[str], Array]
    ) -> StoredValues:
        """Return the values at points, none of which is swapped to the host."""
        op = self._plan.pdg[tensor[0]]
        kind = op.outputs[tensor[1]].type
        shape = self._plan.sizes.shape(op, kind.shape)
        found = np.zeros((len(points), *shape), NUMPY[kind.dtype])
        for home, there in self._homes_of_points(tensor, points):
            places = home.buffer.place(self._coordinates(home, tensor, points[there]))
            found[there] = buffer(home.buffer.name)[places]
        return points, found

    def _homes_of_points(self, tensor: Tensor, points: Array) -> Iterable[tuple[Home, Array]]:
        """Yield the homes of a tensor's values, each with a mask of its points.

        If a tensor is read only through merges, its values are in the buffers of these merges. Each buffer has
        those values that are still needed through its merge.
        """
        homes, own = self._layout.homes[tensor], buffer_name(tensor)
        mine = next((home for home in homes if home.buffer.name == own), None)
        initial = [
            (merge, Home(self._layout.merges[merge].buffer, at))
            for merge, starts in self._layout.starts.items()
            for start, at in starts
            if start == tensor
        ]
        places = [mine] if mine is not None else list(dict.fromkeys(home for _, home in initial))
        if len(places) == 1:
            yield self._replace_with_latest(places[0], homes), np.ones(len(points), np.bool_)
            return
        # one merge may have used up its slot, which then contains another value
        for merge, home in initial:
            living = self._cuts.live_through(self._cut, merge, self._layout.merges).get(tensor)
            if living is not None:
                there = (points[:, None] == living[None]).all(2).any(1)
                yield self._replace_with_latest(home, homes), there

    def _replace_with_latest(self, home: Home, homes: Sequence[Home]) -> Home:
        """Return a home, or the home of its latest value if the loop does not keep the first one alive."""
        name, cut = home.buffer.name, self._cut
        latest = next((h for h in homes if h.buffer.name == latest_name(name)), None)
        if cut is not None and latest is not None:
            loop = self._cuts.loop(cut)
            flow = self._lowered.flow
            if name not in flow.live_in(loop.body) | flow.live_out(loop):
                return latest
        return home

    def _coordinates(self, home: Home, tensor: Tensor, points: Array) -> list[Array]:
        """Return the coordinates of points in the buffer of a home."""
        domain = self._plan.pdg[tensor[0]].outputs[tensor[1]].domain
        env = {**self._plan.bounds, **dict(zip(domain, points.T, strict=True))}
        found = [values(e, env) for e in home.coordinates]
        return [np.broadcast_to(one, len(points)) for one in found]

    def write_values(self, held: Mapping[Tensor, StoredValues]) -> dict[str, Array]:
        """Return buffers with the given values, as if they had been written in the order of computation.

        A slot contains the value that was written last. So every live value is in its slot, even if earlier
        values used the same one.
        """
        writes: dict[str, list[tuple[Array, Array, Array]]] = {}
        buffers: dict[str, Buffer] = {}
        for tensor, (points, found) in held.items():
            born = self._cuts.birth_times(tensor, points)
            for home in self._layout.homes[tensor]:
                buffer = home.buffer
                places = buffer.place(self._coordinates(home, tensor, points))
                flat = np.zeros(len(points), np.int64)
                inside = np.ones(len(points), np.bool_)
                for place, size in zip(places, buffer.slot_counts, strict=True):
                    flat = flat * size + place
                    inside &= (place >= 0) & (place < size)
                buffers[buffer.name] = buffer
                writes.setdefault(buffer.name, []).append(
                    (born[inside], flat[inside], found[inside])
                )
        return {name: _apply_writes(buffers[name], all_of) for name, all_of in writes.items()}


def _apply_writes(buffer: Buffer, writes: list[tuple[Array, Array, Array]]) -> Array:
    born, flat, found = (np.concatenate([one[k] for one in writes]) for k in range(3))
    array = np.full(buffer.array_shape, buffer.fill, NUMPY[buffer.dtype])
    order = np.lexsort(born.T[::-1])
    # keep the last write to each slot
    _, last = np.unique(flat[order][::-1], return_index=True)
    chosen = order[::-1][last]
    array.reshape(-1, *buffer.shape)[flat[chosen]] = found[chosen]
    return array
