"""Cost model for block sizes of reductions: memory traffic of whole and of tiled arrays.

An array larger than the cache is written to memory and read at each use; tiled arrays stay in the cache.
The model counts contractions with their operands and results only, since operations between them are fused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.analysis.cost_terms import MADE, READ, computing, moving
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import ConvAttrs, DotAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import NUMPY, Shape, concrete
from timerl_nb.compiler.passes.tiling.reduction_tiling import Tiling
from timerl_nb.compiler.symbolic.dimensions import Dim


class BandwidthModel:
    """Memory traffic and arithmetic of a graph's operations under bounds, in seconds of a whole run."""

    def __init__(self, pdg: Pdg, bounds: Mapping[str, int], machine: Machine) -> None:
        self.pdg, self.machine, self._bounds = pdg, machine, bounds
        self._env = {**dict.fromkeys(pdg.dims.names, 0), **bounds}

    def transfer_seconds(self, nbytes: int, held: int) -> float:
        """Return the seconds to write and read arrays of `nbytes` bytes, with `held` bytes live
        simultaneously.
        """
        return moving((MADE + READ) * nbytes, held, self.machine)

    def stored_bytes(self, op_id: int, dim: Dim) -> int:
        """Return the bytes of a value at all points of a dimension."""
        return self._nbytes(self.pdg[op_id]) * dim.count(self._bounds)

    def storage_seconds(self, op_id: int, dim: Dim) -> float:
        """Return the seconds to store a value at all points of a dimension and read it back."""
        kept = self.stored_bytes(op_id, dim)
        others = self._count(self.pdg[op_id]) // dim.count(self._bounds)
        return self.transfer_seconds(kept, kept) * others

    def computing(self, ops: Iterable[int]) -> float:
        """Return the seconds of arithmetic for all points of some operations."""
        return sum(self._count(self.pdg[k]) * self._seconds(self.pdg[k]) for k in ops)

    def block(self, tiling: Tiling) -> int | None:
        """Return the fastest block size along a dimension; None for no tiling.

        Sizes divide the bound, since a shorter last block would need a separate program.
        """
        points = tiling.dim.count(self._bounds)
        sizes = [n for n in range(1, points + 1) if points % n == 0]
        made, held = self._stored_bytes(tiling)
        if held < self.machine.worth:
            return None
        calls = len(tiling.roots) + sum(self._is_product(k) for k in tiling.axes)

        def seconds(size: int) -> float:
            moved = self.transfer_seconds(made, held * size // points)
            return moved + points // size * calls * self.machine.call

        best = min(sizes, key=lambda size: (seconds(size), -size))
        return best if best < points else None

    def _stored_bytes(self, tiling: Tiling) -> tuple[int, int]:
        """Return the bytes of all arrays along a dimension, and the largest number of live bytes."""
        stored = {k: self._nbytes(self.pdg[k]) for k in tiling.axes if self._is_stored(k)}
        place = {op_id: k for k, op_id in enumerate(self.pdg.order)}
        ends = Counter[int]()
        for k, nbytes in stored.items():
            ends[max((place[reader] for reader, _ in self.pdg.readers[k]), default=0)] += nbytes
        live = most = 0
        for at, op_id in enumerate(self.pdg.order):
            live += stored.get(op_id, 0)
            most = max(most, live)
            live -= ends[at]
        return sum(stored.values()), most

    # --- single operations -----------------------------------------------------------------------

    def _count(self, op: Op) -> int:
        return prod(self.pdg.dims[d].count(self._bounds) for d in op.domain)

    def _nbytes(self, op: Op) -> int:
        return prod(self._shape(op.shape)) * NUMPY[op.dtype].itemsize

    def _shape(self, shape: Shape) -> tuple[int, ...]:
        return concrete(shape, self._env)

    def _seconds(self, op: Op) -> float:
        operands = [self._shape(self.pdg.read_type(read).shape) for read in op.inputs]
        return computing(op, operands, self._shape(op.shape), self.machine) if op.outputs else 0.0

    def _is_product(self, op_id: int) -> bool:
        return isinstance(self.pdg[op_id].attrs, DotAttrs | ConvAttrs)

    def _is_stored(self, op_id: int) -> bool:
        readers = (reader for reader, _ in self.pdg.readers[op_id])
        return self._is_product(op_id) or any(map(self._is_product, readers))
