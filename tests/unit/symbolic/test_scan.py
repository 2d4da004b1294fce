"""Loop nests too large for one isl call: generated in parts, or with guards inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.compiler.isl import ast_generation as scan
from timerl_nb.compiler.isl.operation_limit import TooMuchWork
from timerl_nb.compiler.loops.loop_nodes import If, Loop, Node, Sequence
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Slice

BOUNDS = {"B": 2, "I": 2, "T": 4}


def ppo() -> trl.Context:
    return trl.algorithms.ppo(trl.env.make("synthetic", obs_shape=(3,)))


def windows() -> trl.Context:
    """Acting, and two learners some steps later."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        s = trl.tensor((), domain=(i, t))
        s[i, 0] = 0.5
        s[i, t + 1] = (s * 0.5).sin() + 0.1
        x = s[i, t : trl.min(t + 3, T)].sum(axis=0)
        p = trl.tensor((), domain=(i,))
        p[0] = 1.0
        p[i + 1] = p * 0.5 + (x * x).sum(over=t)
        y = (s * p).named("y")
        ctx.output("y", y)
        ctx.output("last", y[i, T - 1] * p)
    return ctx


def visits(node: Node, env: Mapping[str, int]) -> Iterator[tuple[object, ...]]:
    """Return the statements, frees and moves of a loop nest, in order."""
    if isinstance(node, Sequence):
        for part in node.parts:
            yield from visits(part, env)
    elif isinstance(node, Loop):
        first, last = evaluate(node.first, env), evaluate(node.last, env)
        for k in range(first, last + 1, node.step):
            yield from visits(node.body, {**env, node.counter: k})
    elif isinstance(node, If):
        taken = node.then if evaluate(node.cond, env) else node.other
        if taken is not None:
            yield from visits(taken, env)
    else:
        point: Any = node.point
        ends = [
            (evaluate(e.lo, env), evaluate(e.hi, env)) if isinstance(e, Slice) else evaluate(e, env)
            for e in point
        ]
        what = getattr(node, "op_id", None), getattr(node, "lifetime", None)
        yield type(node).__name__, *what, *ends


@pytest.mark.parametrize(
    ("context", "options"),
    [
        (windows, trl.Options(fuse=False, vectorize=False, lift=False)),
        (windows, trl.Options(vectorize=False, lift=False)),
        (ppo, trl.Options(vectorize=False)),
    ],
    ids=["windows apart", "windows", "ppo"],
)
def test_the_parts_of_a_nest_do_what_it_does_whole(
    context: Callable[[], trl.Context], options: trl.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = {d.bound: BOUNDS[d.bound] for d in context().pdg().dims}
    program = context().compile(bounds, options)
    nests = count(monkeypatch)
    monkeypatch.setattr(scan, "_WHOLE", 2_000)
    monkeypatch.setattr(scan, "_PART", 5_000)
    parts = context().compile(bounds, options)
    assert sum(nests) > 3
    assert not parts.ast.guarded
    assert list(visits(parts.ast.root, bounds)) == list(visits(program.ast.root, bounds))


def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the nests that isl generates from here on."""
    found: list[int] = []
    nest = scan.Scan._nest

    def counted(self: Any, *args: Any) -> Any:
        found.append(1)
        return nest(self, *args)

    monkeypatch.setattr(scan.Scan, "_nest", counted)
    return found


def test_a_program_of_parts_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    options = trl.Options(fuse=False, vectorize=False, lift=False)
    bounds = {"I": 3, "T": 5}
    want = windows().compile(bounds).execute(progress=False)
    monkeypatch.setattr(scan, "_WHOLE", 2_000)
    monkeypatch.setattr(scan, "_PART", 2_000)
    program = windows().compile(bounds, options)
    found = program.execute(progress=False)
    for name in ("y", "last"):
        np.testing.assert_allclose(found[name], want[name], rtol=1e-5)


def test_a_nest_that_cannot_be_split_keeps_its_guards_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = np.arange(5, dtype=np.float32)
    with trl.Context("t") as ctx:
        ctx.output("y", trl.data(given, domain=("t",)) * 2.0)

    def stopped(*_: object) -> Any:
        raise TooMuchWork(in_one_call=True)

    monkeypatch.setattr(scan, "_loops", stopped)
    options = trl.Options(vectorize=False, lift=False)
    with pytest.warns(
        trl.errors.TimeRLWarning, match="exceeds the limit of isl operations"
    ) as told:
        program = ctx.compile({"T": 5}, options)
    assert program.ast.guarded
    assert program.ast.guarded[0] in program.warnings[0]
    assert told[0].filename == __file__
    np.testing.assert_array_equal(program.execute(progress=False)["y"], given * 2)
