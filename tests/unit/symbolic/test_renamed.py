"""Names of dimensions change no result."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import islpy as isl
import numpy as np
import pytest

import timerl_nb as trl
from tests.pixels import pixels
from tests.reinforce import reinforce
from tests.words import WORDS, bound_of
from timerl_nb.compiler.isl.piecewise_affine import isl_name
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate, variable
from timerl_nb.compiler.symbolic.index_expressions import TRUE, all_of, eq, ge, minimum, sym
from timerl_nb.runtime.interpreter.generated_source import Source

# Compiler-generated symbols of these names would clash with a program's.
ONCE_OURS = ("v", "value", "turn", "along", "length")


@pytest.mark.parametrize("name", ["p", *ONCE_OURS])
def test_the_greatest_value_of_an_expression_over_a_set(name: str) -> None:
    dims = Dims((Dim(name, "N"),))
    points = Set.from_condition(dims, (name,), TRUE)
    assert points.greatest(minimum(sym(name) + 3, sym("N")) * 2 - sym(name), {"N": 8}) == 11


@pytest.mark.parametrize("executor", ["xla", "interpret"])
@pytest.mark.parametrize("name", ["p", *ONCE_OURS])
def test_sums_of_windows_of_a_recurrence(name: str, executor: str) -> None:
    with trl.Context(name) as ctx:
        ((v, V),) = ctx.dims
        s = trl.tensor((), domain=(v,))
        s[0] = 1.0
        s[v + 1] = s + 1
        sums = s[v : trl.min(v + 3, V)].discounted_sum(0.5)
        ctx.output("sums", sums)
        ctx.output("gradient", trl.grad(s[trl.min(2 * v, V - 1)].square().sum(over=v), s))
    result = ctx.compile({V: 5}, trl.Options(executor=executor)).execute(progress=False)
    values = np.arange(1.0, 6.0)
    want = [sum(0.5**k * values[t + k] for k in range(3) if t + k < 5) for t in range(5)]
    np.testing.assert_allclose(result["sums"], want)
    want = [30.0 + 6 + 2, 30.0 + 6, 30.0 + 6, 30.0, 30.0]  # s[4] is read three times
    np.testing.assert_allclose(result["gradient"], want)


@pytest.mark.parametrize("name", ["p", *ONCE_OURS])
def test_a_window_under_a_dynamic_bound(name: str) -> None:
    with trl.Context("i", name) as ctx:
        (i, I), (v, V) = ctx.dims
        s = trl.tensor((), domain=(i, v))
        s[i, 0] = 1.0
        s[i, v + 1] = s + 1
        done = s >= trl.value(i) + 3
        ctx.output("sums", s[i, v : trl.min(v + 2, V)].sum(axis=0).sum(over=v))
        ctx.output("last", s[i, trl.max(V - 2 - v, 0)].sum(over=v))
    program = ctx.compile({I: 2, V: trl.until(done, at_most=9)})
    result = program.execute(progress=False)
    lengths = (3, 4)
    want = [sum(sum(range(t, min(t + 2, n + 1))) for t in range(1, n + 1)) for n in lengths]
    np.testing.assert_allclose(result["sums"], want)
    want = [sum(max(n - 2 - t, 0) + 1 for t in range(n)) for n in lengths]
    np.testing.assert_allclose(result["last"], want)


# --- the compiler's names ------------------------------------------------------------------------


def test_a_dimension_may_have_any_name() -> None:
    """Each word names a dimension with divisions and remainders; isl parses its output again."""
    for name in WORDS:
        bound = bound_of(name)
        dims = Dims((Dim(name, bound),))
        e = minimum(sym(name) // 3 * 2 + sym(name) % 2, sym(bound) - 1)
        points = Set.from_condition(dims, (name,), all_of(ge(e, 1), eq(e % 2, 0)))
        assert isl.Set(str(points)).is_equal(points.raw), name
        assert evaluate(e, {name: 7, bound: 9}) == 5, name
        assert list(points.points({bound: 9})) == [(4,), (6,), (8,)], name


@pytest.mark.parametrize("name", ["t", "e0", "mod", "i0"])
def test_isl_reads_its_texts_again_where_divisions_have_no_formula(name: str) -> None:
    """isl names such a division e0, and adds primes to a used name."""
    dims = Dims((Dim(name, bound_of(name)), Dim("z", "Z")))
    x, y, z = sym(name), sym(f"{name}'"), sym("z")
    some = all_of(ge(z * 2 + y * 3, x), ge(x + 3, z * 2 + y * 3), ge(z * 3 + x, 0))
    some = all_of(some, ge(y * 5 + 7, z * 3 + x))
    pairs = Relation.from_condition(dims, ("z", name), (name,), some)
    raw = pairs.raw.project_out(isl.dim_type.in_, 0, 1)
    assert "exists" in str(raw)
    again = isl.Map(str(raw))
    assert again.is_equal(raw) and isl.Map(str(again)).is_equal(raw)


@pytest.mark.parametrize("change", [variable, isl_name])
def test_different_symbols_have_different_names(change: Callable[[str], str]) -> None:
    """Also if one symbol equals the other's new name."""
    symbols = {word + end for word in (*WORDS, *map(bound_of, WORDS)) for end in ("", "_", "__")}
    assert len(set(map(change, symbols))) == len(symbols)


@pytest.mark.parametrize("budget", [None, 47_866])
def test_a_generated_program_uses_no_variable_of_a_symbol_for_anything_else(
    budget: int | None,
) -> None:
    """No other name of the program equals the variable of a symbol."""
    ctx, options = (
        (reinforce(hidden=()), {}) if budget is None else (pixels(), {"vectorize": ("b",)})
    )
    bounds = {"B": 2, "I": 3, "T": 12} if budget is None else {"B": 16, "I": 3, "T": 12}
    program = ctx.compile(
        bounds, trl.Options(executor="interpret", device_memory=budget, **options)
    )
    counters = {f"c{k}" for k in range(9)}
    symbols = {*program.fused.dims.names, *program.fused.dims.bounds}
    own = program.executable
    for record in (False, True):
        text = Source(own.pdg, own.ast, own.plan, own.kernels, record=record).text()
        tree = ast.parse(text)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        others = names - symbols - counters
        assert {"rt", "range", "program"} <= others
        assert not [name for name in others if variable(name) == name]


def test_an_array_that_no_checkpoint_could_name(tmp_path: Path) -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        w = trl.parameter((2,), domain=(i,), name="__metadata__")
        w.checkpoint(tmp_path)
        ctx.output("w", w)
    with pytest.raises(trl.errors.DomainError, match="called '__metadata__'") as caught:
        ctx.compile({I: 3})
    assert "w.checkpoint(tmp_path)" in str(caught.value)
