"""Random valid execution orders without isl (semantics.md §10).

For small bounds, every point of every statement is listed, and its operands are found by evaluating
index expressions. A random topological order becomes a program without loops. Every value is freed
after its last reader in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from random import Random

from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.loops.loop_nodes import Ast, Deallocate, Execute, Node, Sequence
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Slice, const
from timerl_nb.driver.program import Program
from timerl_nb.runtime.executable import Executable

Point = tuple[int, ...]
Instance = tuple[int, Point]  # a statement's id, and its point
Value = tuple[int, int, Point]  # a tensor, and its point


class PointGraph:
    """All points of a fused program, with their dependences."""

    def __init__(self, program: Program) -> None:
        self.pdg, self.bounds = program.fused, program.bounds
        self.makers: dict[Value, list[Instance]] = {}
        self.needs: dict[Instance, list[Value]] = {}
        self.kept: set[Value] = set()
        for op in self.pdg:
            if op.kind == "merge":
                continue
            for env in self._points(op):
                values = [v for read in op.inputs for v in self._values(read, env)]
                if op.kind == "output":
                    self.kept.update(values)
                    continue
                at = tuple(env[d] for d in op.domain)
                self.needs[op.id, at] = values
                for out, output in enumerate(op.outputs):
                    made = (op.id, out, tuple(env[d] for d in output.domain))
                    self.makers.setdefault(made, []).append((op.id, at))

    def _points(self, op: Op) -> Iterator[dict[str, int]]:
        ranges = [range(self.pdg.dims[d].count(self.bounds)) for d in op.domain]
        for point in product(*ranges):
            env = {**self.bounds, **dict(zip(op.domain, point, strict=True))}
            if evaluate(op.where, env):
                yield env

    def _values(self, read: Read, env: Mapping[str, int]) -> Iterator[Value]:
        """Return the values of a read, with merges resolved."""
        if not evaluate(read.cond, env):
            return
        spans = [
            range(evaluate(e.lo, env), evaluate(e.hi, env))
            if isinstance(e, Slice)
            else (evaluate(e, env),)
            for e in read.index
        ]
        source = self.pdg[read.source]
        for point in product(*spans):
            if source.kind != "merge":
                yield read.source, read.out, point
                continue
            there = {**self.bounds, **dict(zip(source.domain, point, strict=True))}
            for branch in source.inputs:
                yield from self._values(branch, there)

    def order(self, random: Random) -> list[Instance]:
        """Return a random order with every value before its readers."""
        before = {
            at: {maker for value in values for maker in self.makers.get(value, ())}
            for at, values in self.needs.items()
        }
        after: dict[Instance, list[Instance]] = {at: [] for at in before}
        for at, makers in before.items():
            for maker in makers:
                after[maker].append(at)
        ready = [at for at, makers in before.items() if not makers]
        done: list[Instance] = []
        while ready:
            at = ready.pop(random.randrange(len(ready)))
            done.append(at)
            for reader in after[at]:
                before[reader].discard(at)
                if not before[reader]:
                    ready.append(reader)
        assert len(done) == len(before), "a cycle among points"
        return done


def shuffled(program: Program, random: Random) -> tuple[Executable, int]:
    """Return the kernels of a program in a random valid order, with values stored by point.

    Returns:
        The interpreter's program, and the bytes of its outputs.
    """
    graph = PointGraph(program)
    plan = program.memory
    stores = plan.stores
    assert all(store.kind == "point" for store in stores.values())
    assert not program.options.donate, "what dies where depends on the order"
    last: dict[Value, int] = {}
    order = graph.order(random)
    when = {at: k for k, at in enumerate(order)}
    for value, makers in graph.makers.items():
        last[value] = max(when[at] for at in makers)
    for at, values in graph.needs.items():
        for value in values:
            last[value] = max(last.get(value, 0), when[at])
    ends: dict[int, dict[tuple[str, Point], None]] = {}
    for (op_id, out, point), k in last.items():
        if (op_id, out, point) not in graph.kept:
            ends.setdefault(k, {})[plan.stores[op_id, out].lifetime, point] = None
    parts: list[Node] = []
    for k, (op_id, at) in enumerate(order):
        parts.append(Execute(op_id, tuple(map(const, at))))
        parts += [Deallocate(name, tuple(map(const, p))) for name, p in ends.get(k, {})]
    ast = Ast(Sequence(tuple(parts)), program.ast.names, program.ast.values)
    kept = sum(stores[op_id, out].nbytes for op_id, out, _ in graph.kept & graph.makers.keys())
    return Executable(program.fused, ast, plan, engine=program.executable.engine), kept
