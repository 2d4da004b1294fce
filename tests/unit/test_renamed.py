"""Names of dimensions change no result."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.symbolic.domain import Dim, Dims
from timerl_nb.symbolic.expr import TRUE, minimum, sym
from timerl_nb.symbolic.polyhedra import Set

# Symbols that the compiler invented under these names could be confused with a program's.
ONCE_OURS = ("v", "value", "turn", "along", "length")


@pytest.mark.parametrize("name", ["p", *ONCE_OURS])
def test_the_greatest_value_of_an_expression_over_a_set(name: str) -> None:
    dims = Dims((Dim(name, "N"),))
    points = Set.of(dims, (name,), TRUE)
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
