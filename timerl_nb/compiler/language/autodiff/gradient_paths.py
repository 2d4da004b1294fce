"""Paths of gradients, and the check that they are final.

A gradient follows the paths of the program written so far. A later branch or update may add or remove a path, and the
gradient would silently be wrong. Therefore the paths are computed again when the program is complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from timerl_nb.base.errors import BranchError, Origin
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op, Read, reached_from
from timerl_nb.compiler.ir.shapes import is_float
from timerl_nb.compiler.language.autodiff.vjp_rules import VJP
from timerl_nb.compiler.language.program_context import Context


@dataclass(frozen=True)
class Paths:
    """Paths from `root` back to `targets`, or to every trainable parameter if `targets` is None.

    `backward()` (no targets) stops at parameters and their `next`; other gradients stop at parameters only.
    """

    ctx: Context
    root: int
    targets: frozenset[int] | None

    def stop_at(self, op: Op) -> bool:
        """Test whether gradients do not flow through the operation."""
        if op.kind == "merge":
            ctx = self.ctx
            return op.id in ctx.parameters or (self.targets is None and op.id in ctx.after_update)
        return op.kind not in VJP or not is_float(op.dtype)

    def operands(self, graph: Pdg, op_id: int) -> list[int]:
        """Return the operations that receive a gradient from this one: its operands, or those of its custom rule."""
        rule = self.ctx.rules.get(op_id)
        if rule is not None:
            return [x.read.source for x in rule.operands]
        return list(graph[op_id].sources)

    def reachable_operations(self, graph: Pdg) -> dict[int, None]:
        """Return the operations on which the root depends through floating-point values."""

        def floating(ids: Iterable[int]) -> list[int]:
            return [k for k in ids if is_float(graph[k].dtype)]

        return reached_from(
            floating([self.root]),
            lambda k: [] if self.stop_at(graph[k]) else floating(self.operands(graph, k)),
        )

    def active(self, graph: Pdg) -> dict[int, None]:
        """Return the reachable operations that depend on a target, operands first."""
        found = self.reachable_operations(graph)
        trained = (k for k, p in self.ctx.parameters.items() if p.trainable)
        targets: Iterable[int] = trained if self.targets is None else self.targets
        readers: dict[int, list[int]] = {}
        for op_id in found:
            if not self.stop_at(graph[op_id]):
                for source in self.operands(graph, op_id):
                    readers.setdefault(source, []).append(op_id)
        useful = reached_from((t for t in targets if t in found), lambda k: readers.get(k, ()))
        return {op_id: None for op_id in graph.order if op_id in useful}

    def require_unchanged(self, origin: Origin) -> None:
        """Raise an error when the program is complete if the paths have changed.

        Args:
            origin: the line of the gradient.
        """
        graph = self.ctx.snapshot()
        inputs = {
            k: graph[k].inputs for k in self.reachable_operations(graph) if graph[k].kind == "merge"
        }
        branches = self._branches(graph)

        def check() -> None:
            graph = self.ctx.snapshot()
            if self._branches(graph) != branches:
                raise self._changed_branch_error(graph, inputs, branches, origin)

        self.ctx.at_end(check)

    def _branches(self, graph: Pdg) -> frozenset[tuple[int, Read]]:
        """Return the branches of merges that carry gradients."""
        active = self.active(graph)
        return frozenset(
            (op_id, read)
            for op_id in active
            if graph[op_id].kind == "merge" and not self.stop_at(graph[op_id])
            for read in graph[op_id].inputs
            if read.source in active
        )

    def _changed_branch_error(
        self,
        graph: Pdg,
        inputs: dict[int, tuple[Read, ...]],
        branches: frozenset[tuple[int, Read]],
        origin: Origin,
    ) -> BranchError:
        """Return the error for a branch that was written after a gradient was taken through its tensor."""
        now = self._branches(graph)
        # prefer a branch written since; other new paths lead through it
        fresh = [(k, r) for k, r in now if k in inputs and r not in inputs[k]]
        merge, read = min(fresh or branches - now, key=lambda found: found[0])
        op = graph[merge]
        line = op.attrs.lines[op.inputs.index(read) if read in op.inputs else 0]
        others = {"the gradient was taken at": origin}
        if merge in self.ctx.after_update:
            name = self.ctx.after_update[merge].name
            return BranchError(
                f"{name} gets its update after a gradient was taken through {name}.next.",
                origin=line,
                others=others,
                hint=f"write the update before trl.grad(), or stop the gradient: {name}.next.detach().",
            )
        return BranchError(
            f"{op.label or 'this tensor'} gets a branch after a gradient was taken through it.",
            origin=line,
            others=others,
            hint="assign all branches before backward() or trl.grad(), or read it with detach(). If a branch needs "
            "the gradient, as an update rule does, create the tensor with trl.parameter and write "
            "p.update(next_value); net.params are such parameters.",
        )
