"""The memory plan: a store per tensor, when its values live, and the predicted timeline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from timerl_nb.dot import FUSED, SOURCE, Dot
from timerl_nb.errors import Origin
from timerl_nb.inspectable import Inspectable
from timerl_nb.ir.ops import OPERAND, DataflowAttrs
from timerl_nb.ir.pdg import Pdg
from timerl_nb.memory.lifetimes import Lifetime, Tensor
from timerl_nb.memory.sizes import Sizes
from timerl_nb.memory.stores import Store, choose
from timerl_nb.memory.timeline import Timeline, predict
from timerl_nb.schedule.constraints import Constraints
from timerl_nb.schedule.names import statement_names, tensor_name
from timerl_nb.symbolic.polyhedra import Point
from timerl_nb.symbolic.scheduling import ScheduleTree


class MemoryPlan(Inspectable):
    """Stores, lifetimes and the predicted use of memory under actual bounds.

    Args:
        smallest: choose the smallest store for each tensor; False keeps all in point maps.
    """

    def __init__(
        self,
        constraints: Constraints,
        schedule: ScheduleTree,
        lifetimes: tuple[Lifetime, ...],
        bounds: Point,
        *,
        smallest: bool = True,
    ) -> None:
        self.bounds: Mapping[str, int] = dict(bounds)
        self.lifetimes = {life.name: life for life in lifetimes}
        self._constraints, self._schedule = constraints, schedule
        self.sizes = Sizes(constraints.pdg, bounds)
        self._smallest = smallest

    @property
    def _pdg(self) -> Pdg:
        return self._constraints.pdg

    @cached_property
    def _timeline(self) -> Timeline:
        pdg = self._pdg
        tensors = [t for life in self.lifetimes.values() for t in life.tensors]
        ops = self._constraints.ops
        gathered = {name: self.sizes.gathered_bytes(op) for name, op in ops.items()}
        return predict(
            self._schedule,
            tuple(self.lifetimes.values()),
            self.bounds,
            {t: self.sizes.output_bytes(pdg[t[0]], t[1]) for t in tensors},
            {t: tensor_name(pdg, *t) for t in tensors},
            {name: nbytes for name, nbytes in gathered.items() if nbytes},
        )

    def timeline(self) -> Timeline:
        """Live bytes over schedule time, predicted: nothing is run."""
        return self._timeline

    @property
    def peak(self) -> int:
        """The predicted greatest number of live device bytes."""
        return self._timeline.peak

    @property
    def holders(self) -> tuple[Any, ...]:
        """Who holds the bytes at the predicted peak."""
        return self._timeline.holders

    @cached_property
    def stores(self) -> Mapping[Tensor, Store]:
        """The store of each tensor."""
        found: dict[Tensor, Store] = {}
        for life, span in zip(self.lifetimes.values(), self._timeline.spans, strict=True):
            most = span.most_at_once
            how = choose(span, life.domain, smallest=self._smallest)
            for tensor, (name, nbytes) in zip(life.tensors, span.tensors, strict=True):
                found[tensor] = Store(
                    name,
                    how.kind,
                    life.domain,
                    nbytes,
                    most,
                    life.name,
                    how.why,
                    how.along,
                    how.size,
                )
        return found

    def origin(self, tensor: Tensor) -> Origin:
        """The user's line behind a tensor."""
        op = self._pdg[tensor[0]]
        if isinstance(op.attrs, DataflowAttrs):
            source, _ = op.attrs.results[tensor[1]]
            if source != OPERAND:
                return next(o.origin for o in op.attrs.body if o.id == source)
        return op.origin

    # --- how it shows itself ---------------------------------------------------------------------

    def __str__(self) -> str:
        line = self._timeline
        bounds = ", ".join(f"{name} = {value}" for name, value in self.bounds.items())
        lines = [f"memory under {bounds}", f"peak: {line.peak:,} bytes at step {line.peak_time:,}"]
        lines += [f"  {holder}" for holder in line.holders[:8]]
        lines.append("stores:")
        lines += [f"  {store}" for store in self.stores.values()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": "memory",
            "bounds": dict(self.bounds),
            "peak": self.peak,
            "peak_time": self._timeline.peak_time,
            "holders": [
                {"tensor": h.tensor, "bytes": h.nbytes, "values": h.points} for h in self.holders
            ],
            "stores": [
                {
                    "op_id": tensor[0],
                    "out": tensor[1],
                    "name": store.name,
                    "kind": store.kind,
                    "along": store.along,
                    "size": store.size,
                    "why": store.why,
                    "bytes": store.nbytes,
                    "most": store.most,
                }
                for tensor, store in self.stores.items()
            ],
        }

    def to_dot(self) -> str:
        """Statements and stores: who writes where, who reads from where."""
        graph = Dot("memory", rankdir="LR")
        names = statement_names(self._pdg)
        for op in self._constraints.ops.values():
            graph.node(f"s{op.id}", names[op.id], fill=FUSED, element=f"op{op.id}")
        for tensor, store in self.stores.items():
            key = f"v{tensor[0]}_{tensor[1]}"
            label = f"{store.name}\n{store.shape}, {store.most} x {store.nbytes:,} B"
            graph.node(key, label, fill=SOURCE, shape="cylinder")
            graph.edge(f"s{tensor[0]}", key)
        for use in dict.fromkeys((u.source, u.out, u.reader) for u in self._constraints.uses):
            graph.edge(f"v{use[0]}_{use[1]}", f"s{use[2]}")
        return str(graph)
