"""Sources of reads with merges resolved, compared with a walk over branches, point by point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests import patterns_conditional, patterns_indexing  # noqa: F401  (enter their programs)
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from timerl_nb.compiler.ir.analysis.resolved_reads import accesses
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.passes.fusion.alias_cycles import break_alias_cycles
from timerl_nb.compiler.scheduling.statements import Statements
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Slice, index_text
from timerl_nb.show.graph.graph_reads import flows
from timerl_nb.show.graph.region_hierarchy import Clusters

Place = tuple[tuple[int, int], tuple[int, ...]]  # a tensor and a point of it


def points(pdg: Pdg, op: Op, bounds: dict[str, int]) -> Iterator[dict[str, int]]:
    for at in product(*(range(bounds[pdg.dims[d].bound]) for d in op.domain)):
        env = {**bounds, **dict(zip(op.domain, at, strict=True))}
        if evaluate(op.where, env):
            yield env


def walked(pdg: Pdg, read: Read, env: dict[str, int], bounds: dict[str, int]) -> set[Place]:
    """Return the values of a read at a point, branch by branch, entry by entry."""
    entries = [
        range(evaluate(e.lo, env), evaluate(e.hi, env))
        if isinstance(e, Slice)
        else [evaluate(e, env)]
        for e in read.index
    ]
    source, found = pdg[read.source], set[Place]()
    for at in product(*entries):
        if source.kind != "merge":
            found.add((read.tensor, at))
            continue
        inner = {**bounds, **dict(zip(source.domain, at, strict=True))}
        holding = [branch for branch in source.inputs if evaluate(branch.cond, inner)]
        assert len(holding) == 1
        found |= walked(pdg, holding[0], inner, bounds)
    return found


def check(pdg: Pdg, bounds: dict[str, int]) -> Counter[str]:
    """Compare all reads of merges; return their number and kinds."""
    compared = Counter[str]()
    for op in pdg:
        for read in op.inputs if op.kind != "merge" else ():
            found = list(accesses(pdg, read))
            across = any(a.across for a in found)
            ways = {len(a.way) for a in found}
            compared["merges"] += ways != {1}
            compared["nested"] += max(ways) > 2
            compared["across"] += across
            for env in points(pdg, op, bounds):
                want = walked(pdg, read, env, bounds)
                there = [a for a in found if evaluate(a.read.cond, env)]
                have = [walked(pdg, a.read, env, bounds) for a in there]
                if not across:
                    assert len(there) == 1 and have[0] == want, (op.id, read, env)
                else:  # an over-approximation is allowed
                    assert want <= set[Place]().union(*have), (op.id, read, env)
    return compared


def test_accesses_are_what_reads_yield() -> None:
    total = Counter[str]()
    for case in PATTERNS.values():
        bounds: dict[str, Any] = {k: min(n, 4) for k, n in case.bounds.items()}
        try:
            program = case.context().compile(bounds)
        except trl.errors.TimeRLError:  # data or an index of its own size
            bounds = dict(case.bounds)
            program = case.context().compile(bounds)
        total += check(break_alias_cycles(program.pdg).pdg, bounds)
    assert total["merges"] > 150 and total["nested"] > 10 and total["across"] > 20, total


def test_a_slice_across_branches_is_of_all_that_it_may_be() -> None:
    """The whole sliced dimension, and the reader's point along the others."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        o = trl.tensor((), domain=(i, t)).named("o")
        o[i, 0] = trl.value(i).cast("f32")
        o[i, t + 1] = o * 0.5
        ctx.output("y", o[trl.max(i - 1, 0), 0:T].sum(axis=0))
    pdg = ctx.compile({I: 3, T: 4}).pdg
    (read,) = (r for op in pdg if op.kind == "sum" for r in op.inputs)
    first, later = accesses(pdg, read)
    assert (index_text(first.read.index), first.read.cond) == ("[max(i - 1, 0)]", TRUE)
    assert (index_text(later.read.index), later.read.cond) == ("[max(i - 1, 0), 0:T]", TRUE)
    assert first.across == later.across == (read,)
    assert not first.is_direct and [r.source for r in first.way] == [read.source, first.read.source]


@pytest.mark.parametrize("window", [None, 3])
def test_statements_are_given_what_reads_yield(window: int | None) -> None:
    bounds = {"B": 2, "I": 3, "T": 5}
    program = reinforce(window, hidden=(4,)).compile(bounds)
    assert check(program.fused, bounds)["merges"] >= 2
    statements = Statements.from_graph(program.fused)
    assert {s.executor for s in statements} == {"kernel"}
    assert {output.op.kind for output in statements.outputs} == {"output"}
    returned = {op.id for op in program.fused.sinks if op.kind == "output"}
    assert {output.id for output in statements.outputs} == returned


def test_a_resource_s_token_is_no_operand(tmp_path: Path) -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        book = trl.Resource(lambda sizes, seed: list[float](), name="book")
        x = trl.random.normal((2,), domain=(i, t), stream="x")
        y = trl.udf(_write, x, out="f32", resource=book).named("y")
        w = trl.parameter(np.float32(0.5), domain=(i,), name="w")
        (y * w).mean(over=t).backward()
        trl.optim.SGD([w], lr=0.1).step()
        w.checkpoint(tmp_path / "w")
        done = (x.sum() > 0.5) & (y > 0.0)
    program = ctx.compile({"I": 2, "T": trl.until(done, at_most=3)})
    statements = Statements.from_graph(program.fused)
    assert {s.executor for s in statements} == {"kernel", "function", "checkpoint", "bound"}
    (called,) = (s for s in statements if s.executor == "function")
    assert len(called.operands) == 1 and len(called.waits_for) == 1
    assert [operand.read for operand in called.reads] == list(called.op.inputs)
    assert (called.id, 1) in called.waits_for[0].tensors, "it hands the token on to itself"
    assert not any(s.waits_for for s in statements if s is not called)


def _write(book: list[float], at: tuple[int, ...], x: np.ndarray) -> np.float32:
    book.append(float(x.sum()))
    return np.float32(len(book))


def test_edges_behind_a_slice_are_labelled_from_the_branch_on() -> None:
    """The label of a slice across branches is the branch's read, composed with later merges."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        w = trl.tensor((), domain=(i,)).named("w")
        s = trl.tensor((), domain=(i, t)).named("s")
        w[0] = trl.constant(1.0)
        s[i, 0] = w[trl.max(i - 2, 0)]
        s[i, t + 1] = s * 0.5 + 0.1
        w[i + 1] = trl.udf(np.sum, s[i, 0:T], out="f32").tanh()
        ctx.output("w", w)
    program = ctx.compile({"I": 4, "T": 3}, trl.Options(vectorize=False, lift=False))
    found = flows(program.fused, Clusters.from_graph(program.fused))
    assert "[max(i - 2, 0) - 1] if t == 0 & max(i - 2, 0) >= 1" in {one.label for one in found}
