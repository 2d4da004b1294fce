"""Index expressions against brute force; sets and relations against enumeration."""

from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timerl_nb.compiler.isl.sets_and_relations import Relation, Set, primed_name, union
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import (
    FALSE,
    TRUE,
    Cond,
    Lin,
    Slice,
    all_of,
    any_of,
    const,
    eq,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    ne,
    negate,
    pick,
    span,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst, subst_cond
from timerl_nb.compiler.symbolic.value_ranges import extent, simplify_condition

DIMS = Dims((Dim("i", "I"), Dim("t", "T")))
BOUNDS = {"I": 3, "T": 7}
i, t, I, T = map(sym, ("i", "t", "I", "T"))
WITHIN = {"i": (0, 2), "t": (0, 6), "I": (3, 3), "T": (7, 7)}
GRID = [dict(zip(("i", "t"), p, strict=True)) | BOUNDS for p in product(range(3), range(7))]

# An expression is drawn together with a Python function of the same meaning.
leaves = st.sampled_from(
    [
        (t, lambda e: e["t"]),
        (i, lambda e: e["i"]),
        (T, lambda e: e["T"]),
        *((const(k), lambda e, k=k: k) for k in (-3, 0, 1, 4)),
    ]
)


def _grow(inner: Any) -> Any:
    pairs = st.tuples(inner, inner)
    k = st.integers(1, 4)
    return st.one_of(
        pairs.map(lambda p: (p[0][0] + p[1][0], lambda e: p[0][1](e) + p[1][1](e))),
        pairs.map(lambda p: (p[0][0] - p[1][0], lambda e: p[0][1](e) - p[1][1](e))),
        st.tuples(inner, st.integers(-3, 3)).map(
            lambda p: (p[0][0] * p[1], lambda e: p[0][1](e) * p[1])
        ),
        st.tuples(inner, k).map(lambda p: (p[0][0] // p[1], lambda e: p[0][1](e) // p[1])),
        st.tuples(inner, k).map(lambda p: (p[0][0] % p[1], lambda e: p[0][1](e) % p[1])),
        pairs.map(lambda p: (minimum(p[0][0], p[1][0]), lambda e: min(p[0][1](e), p[1][1](e)))),
        pairs.map(lambda p: (maximum(p[0][0], p[1][0]), lambda e: max(p[0][1](e), p[1][1](e)))),
        st.tuples(inner, inner, inner).map(
            lambda p: (
                pick(ge(p[0][0], 1), p[1][0], p[2][0]),
                lambda e: p[1][1](e) if p[0][1](e) >= 1 else p[2][1](e),
            )
        ),
    )


expressions = st.recursive(leaves, _grow, max_leaves=6)
RELATIONS = [
    (eq, lambda a, b: a == b),
    (ne, lambda a, b: a != b),
    (lt, lambda a, b: a < b),
    (le, lambda a, b: a <= b),
    (gt, lambda a, b: a > b),
    (ge, lambda a, b: a >= b),
]
comparisons = st.tuples(expressions, expressions, st.sampled_from(RELATIONS)).map(
    lambda p: (p[2][0](p[0][0], p[1][0]), lambda e: p[2][1](p[0][1](e), p[1][1](e)))
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(
            lambda p: (all_of(p[0][0], p[1][0]), lambda e: p[0][1](e) and p[1][1](e))
        ),
        st.tuples(inner, inner).map(
            lambda p: (any_of(p[0][0], p[1][0]), lambda e: p[0][1](e) or p[1][1](e))
        ),
        inner.map(lambda p: (negate(p[0]), lambda e: not p[1](e))),
    ),
    max_leaves=3,
)


@given(expressions)
def test_simplification_keeps_the_value(pair: tuple[Lin, Any]) -> None:
    e, meaning = pair
    assert [evaluate(e, env) for env in GRID] == [meaning(env) for env in GRID]


@given(conditions)
def test_conditions_keep_their_truth(pair: tuple[Cond, Any]) -> None:
    cond, meaning = pair
    assert [bool(evaluate(cond, env)) for env in GRID] == [bool(meaning(env)) for env in GRID]


@given(expressions)
def test_an_expression_lies_within_its_extent(pair: tuple[Lin, Any]) -> None:
    e, meaning = pair
    low, high = extent(e, WITHIN)
    assert all(low <= meaning(env) <= high for env in GRID)


@given(conditions)
def test_what_is_certain_within_ranges_is_left_out(pair: tuple[Cond, Any]) -> None:
    cond, meaning = pair
    rest = simplify_condition(cond, WITHIN)
    assert [bool(evaluate(rest, env)) for env in GRID] == [bool(meaning(env)) for env in GRID]


def test_a_condition_that_holds_within_ranges_is_true() -> None:
    assert simplify_condition(all_of(ge(t, 0), lt(t, T), ne(i, 3)), WITHIN) is TRUE
    assert simplify_condition(any_of(gt(t, 6), eq(i, -1)), WITHIN) is FALSE
    assert simplify_condition(all_of(ge(t, 0), ge(t, 2)), WITHIN) is ge(t, 2)


@given(expressions, expressions)
def test_substitution_is_evaluation_elsewhere(a: Any, b: Any) -> None:
    replaced = subst(a[0], {"t": b[0]})
    for env in GRID:
        assert evaluate(replaced, env) == a[1]({**env, "t": b[1](env)})


@given(conditions)
@settings(max_examples=60)
def test_sets_hold_the_points_of_their_condition(pair: tuple[Cond, Any]) -> None:
    cond, meaning = pair
    made = Set.from_condition(DIMS, ("i", "t"), cond)
    want = [(e["i"], e["t"]) for e in GRID if meaning(e)]
    assert list(made.points(BOUNDS)) == want
    sample = made.with_bounds(BOUNDS).sample()
    assert (sample is None) == (not want)
    if sample is not None:
        assert (sample["i"], sample["t"]) in want
    # and back: the set as a condition
    back = made.condition(Set.from_condition(DIMS, ("i", "t")))
    assert [(e["i"], e["t"]) for e in GRID if evaluate(back, e)] == want


INDEX = [
    t + 1,
    t - 2,
    T - 1 - t,
    t // 2,
    2 * t,
    t % 3,
    minimum(t + 2, T - 1),
    const(0),
    T - 1,
    span(t, T),
    span(0, t + 1),
    span(t, minimum(t + 3, T)),
    span(maximum(t - 2, 0), t + 1),
    span(0, T),
    span(4 * (t // 4), minimum(4 * (t // 4) + 4, T)),
    pick(ge(t, 3), t, T - 1),
]


def _reads(entry: Lin | Slice, env: dict[str, int]) -> list[int]:
    if isinstance(entry, Slice):
        return list(range(evaluate(entry.lo, env), evaluate(entry.hi, env)))
    return [evaluate(entry, env)]


@pytest.mark.parametrize("entry", INDEX, ids=str)
def test_relations_and_their_inverses(entry: Lin | Slice) -> None:
    points = Set.from_condition(DIMS, ("t",))
    relation = Relation.reads(points, (entry,), points).restrict_range(points)
    pairs = {
        (k, q)
        for k in range(BOUNDS["T"])
        for q in _reads(entry, {**BOUNDS, "t": k})
        if 0 <= q < BOUNDS["T"]
    }
    back = relation.inverse()
    readers = {q: [k for k, r in pairs if r == q] for q in range(BOUNDS["T"])}
    inside = back.domain().condition(points)
    first, last = back.bounds("t")
    for q, found in readers.items():
        env = {**BOUNDS, "t": q}
        assert bool(evaluate(inside, env)) == bool(found)
        if found:
            assert (evaluate(first, env), evaluate(last, env)) == (min(found), max(found))
    if relation.is_injective():  # for all bounds, so for these
        assert all(len(found) < 2 for found in readers.values())
    twice = relation.then(back).with_bounds(BOUNDS)
    both = {(a, b) for a, q in pairs for b, r in pairs if q == r}
    if both:
        left, right = twice.sample() or ({}, {})
        assert (left["t"], right["t"]) in both


def test_equal_expressions_are_the_same_object() -> None:
    assert (t + 1) - 1 is t
    assert minimum(t, t + 5) is t
    assert (4 * t + 3) // 4 is t
    assert all_of(ge(t, 1), negate(ge(t, 1))) is FALSE
    assert any_of(ge(t, 1), negate(ge(t, 1))) is TRUE
    assert pickle.loads(pickle.dumps(minimum(t + 5, T))) is minimum(t + 5, T)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (T - 1 - t, "T - t - 1"),
        (3 * ((t + 1) // 2), "3*((t + 1) // 2)"),
        (minimum(t + 5, T), "min(t + 5, T)"),
        (span(t, minimum(t + 5, T)), "t:min(t + 5, T)"),
        (span(t, minimum(t + 5, T)).length, "min(5, T - t)"),
        (eq((i + 1) % 10, 0), "(i + 1) % 10 == 0"),
        (lt(t, T), "t < T"),
        (all_of(ge(t, 1), ne(t, T - 1)), "t >= 1 & T != t + 1"),
        (pick(ge(t, 3), t, T), "where(t >= 3, t, T)"),
        (-t + 0, "-t"),
    ],
)
def test_text(node: Any, text: str) -> None:
    assert str(node) == text


def test_conditions_over_both_sides_of_a_relation() -> None:
    later = Relation.from_condition(DIMS, ("t",), ("t",), lt(t, sym(primed_name("t"))))
    inside = later.restrict_range(Set.from_condition(DIMS, ("t",)))
    pair = inside.with_bounds(BOUNDS).sample()
    assert pair is not None
    assert pair[0]["t"] < pair[1]["t"] < 7
    assert subst_cond(lt(t, T), {"t": T}) is FALSE
    joined = union([inside, inside.inverse()])
    assert joined is not None
    assert not (joined - inside).with_bounds({"T": 3, "I": 1}).is_empty()


def test_sets_over_different_dimensions_do_not_mix() -> None:
    with pytest.raises(AssertionError, match="sets over"):
        _ = Set.from_condition(DIMS, ("t",)) & Set.from_condition(DIMS, ("i",))
    with pytest.raises(AssertionError, match="does not meet"):
        same = Relation.reads(
            Set.from_condition(DIMS, ("t",)), (t,), Set.from_condition(DIMS, ("t",))
        )
        other = Relation.reads(
            Set.from_condition(DIMS, ("i",)), (i,), Set.from_condition(DIMS, ("i",))
        )
        same.then(other)


def test_greatest_value_over_a_set() -> None:
    points = Set.from_condition(DIMS, ("t",))
    assert points.greatest(minimum(t + 5, T) - t, {"T": 10, "I": 1}) == 5
    assert points.greatest(T - t, {"T": 10, "I": 1}) == 10
