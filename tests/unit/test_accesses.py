"""What reads are of, merges looked through, against walking the branches point by point."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

import timerl_nb as trl
from tests import patterns_conditional, patterns_indexing  # noqa: F401  (enter their programs)
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from timerl_nb.ir.accesses import accesses, tensors
from timerl_nb.ir.ops import Op, Read, is_sliced
from timerl_nb.ir.pdg import Pdg
from timerl_nb.passes.fuse import break_alias_cycles
from timerl_nb.statements.statements import Statements
from timerl_nb.symbolic.evaluate import evaluate
from timerl_nb.symbolic.expr import Slice

Place = tuple[tuple[int, int], tuple[int, ...]]  # a tensor and a point of it


def points(pdg: Pdg, op: Op, bounds: dict[str, int]) -> Iterator[dict[str, int]]:
    for at in product(*(range(bounds[pdg.dims[d].bound]) for d in op.domain)):
        env = {**bounds, **dict(zip(op.domain, at, strict=True))}
        if evaluate(op.where, env):
            yield env


def walked(pdg: Pdg, read: Read, env: dict[str, int], bounds: dict[str, int]) -> set[Place]:
    """The values that a read yields at a point, branch after branch, entry after entry."""
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


def check(pdg: Pdg, bounds: dict[str, int]) -> int:
    """How many reads of merges were compared."""
    compared = 0
    for op in pdg:
        for read in op.inputs if op.kind != "merge" else ():
            found = list(accesses(pdg, read))
            assert tensors(pdg, read) == {access.tensor for access in found}
            compared += not found[0].direct
            for env in points(pdg, op, bounds):
                want = walked(pdg, read, env, bounds)
                there = [a for a in found if evaluate(a.read.cond, env)]
                have = [walked(pdg, a.read, env, bounds) for a in there]
                if not any(a.across for a in found):
                    assert len(there) == 1 and have[0] == want, (op.id, read, env)
                else:  # all that it may be, and no more is promised
                    assert want <= set[Place]().union(*have), (op.id, read, env)
    return compared


@pytest.mark.parametrize("name", PATTERNS)
def test_accesses_are_what_reads_yield(name: str) -> None:
    case = PATTERNS[name]
    bounds: dict[str, Any] = {k: min(n, 4) for k, n in case.bounds.items()}
    try:
        program = case.context().compile(bounds)
    except trl.errors.TimeRLError:  # data or an index of its own size
        bounds = dict(case.bounds)
        program = case.context().compile(bounds)
    check(break_alias_cycles(program.pdg).pdg, bounds)


@pytest.mark.parametrize("window", [None, 3])
def test_statements_are_given_what_reads_yield(window: int | None) -> None:
    bounds = {"B": 2, "I": 3, "T": 5}
    program = reinforce(window, hidden=(4,)).compile(bounds)
    assert check(program.fused, bounds) >= 2
    statements = Statements.of(program.fused)
    assert {s.op.kind for s in statements} == {"dataflow"}
    assert {s.executor for s in statements} == {"kernel"}
    for statement in statements:
        assert [operand.read for operand in statement.reads] == list(statement.op.inputs)
        assert all(operand.is_sliced == is_sliced(operand.read) for operand in statement.operands)
    returned = {op.id for op in program.fused.sinks if op.kind == "output"}
    assert {output.id for output in statements.outputs} == returned
