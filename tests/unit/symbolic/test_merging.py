"""Schedules independent of names, and merging of sibling loops that isl leaves separate."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

import timerl_nb as trl
from tests.actor_critic import actor_critic
from tests.reinforce import reinforce
from timerl_nb.compiler.isl import isl_scheduler as scheduling
from timerl_nb.compiler.isl.isl_scheduler import Edge, ScheduleTree, in_loop, one_by_one, solve
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set, primed_name
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.index_expressions import Cond, Lin, all_of, const, eq, ge, sym

CEILING = 10_000_000
DIMS = Dims((Dim("t", "T"),))
T, HERE, THERE = sym("T"), sym("t"), sym(primed_name("t"))
POINTS = Set.from_condition(DIMS, ("t",))

# --- names ---------------------------------------------------------------------------------------


def synthetic(of: Callable[..., trl.Context], **parts: object) -> trl.Context:
    return of(trl.env.make("synthetic", obs_shape=(3,)), hidden=(4,), **parts)


REAL: Mapping[str, tuple[Callable[[], trl.Context], object]] = {
    "5 steps": (lambda: reinforce(5), ("b",)),
    "4 steps, nothing vectorised": (lambda: synthetic(trl.algorithms.reinforce, steps=4), False),
    "actor-critic": (actor_critic, True),
    "ppo": (lambda: synthetic(trl.algorithms.ppo), True),
}


@pytest.mark.parametrize("name", REAL)
def test_a_schedule_does_not_depend_on_names(name: str) -> None:
    """50 permutations of names and of the order of statements and dependences."""
    write, vectorize = REAL[name]
    ctx = write()
    bounds = {dim.bound: 6 for dim in ctx.pdg().dims}
    options = trl.Options().with_(vectorize=vectorize)
    constraints = Constraints(ctx.compile(bounds, options).fused)
    dims, names = constraints.pdg.dims, list(constraints.points)
    found: set[str] = set()
    for seed in range(50):
        chance = random.Random(seed)
        new = dict(zip(names, chance.sample(names, len(names)), strict=True))
        if seed % 2:
            new = {name: f"{own}_{chance.randrange(10**6)}" for name, own in new.items()}
        validity, proximity = (
            [Edge(new[e.source], new[e.sink], e.pairs) for e in chance.sample(edges, len(edges))]
            for edges in (constraints.validity, constraints.proximity)
        )
        statements = {new[k]: constraints.points[k] for k in chance.sample(names, len(names))}
        tree = solve(dims, statements, validity, proximity, CEILING)
        times = tree.times()
        found.add(str([[str(e) for e in times[new[old]]] for old in names]))
    assert len(found) == 1


# --- the merging rule
# ------------------------------------------------------------------------------


def loops(*names: str) -> ScheduleTree:
    """Return a loop over t for each statement, in sequence."""
    return one_by_one([in_loop("t", 1, ScheduleTree.leaf(DIMS, n, POINTS)) for n in names])


def edge(source: str, sink: str, *conds: Cond) -> Edge:
    """Points t' of the sink need points t of the source."""
    pairs = Relation.from_condition(DIMS, ("t",), ("t",), all_of(*conds)).restrict_range(POINTS)
    return Edge(source, sink, pairs.inverse().restrict_range(POINTS).inverse())


def same_turn(source: str, sink: str, ahead: Lin | int = 0) -> Edge:
    return edge(source, sink, eq(HERE, THERE + ahead))


def merged(tree: ScheduleTree, needs: list[Edge], near: list[Edge] | None = None) -> ScheduleTree:
    validity, proximity = (
        [scheduling._name_tuples(e.pairs, e.source, e.sink) for e in edges]
        for edges in (needs, needs if near is None else near)
    )
    raw = scheduling.merge_sibling_loops(tree.raw, validity, proximity)
    made = ScheduleTree(DIMS, tree.statements, raw)
    assert made.violation(needs) is None
    return made


def times(tree: ScheduleTree) -> dict[str, list[str]]:
    return {name: [str(e) for e in time] for name, time in tree.times().items()}


def turns(tree: ScheduleTree) -> dict[str, tuple[int, str]]:
    return {name: (loop, str(at)) for name, ((loop, at),) in tree.loops().items()}


def test_what_needs_nothing_ahead_shares_the_loop_as_it_is() -> None:
    made = merged(loops("x", "y"), [same_turn("x", "y")])
    assert turns(made) == {"x": (0, "t"), "y": (0, "t")}


def test_what_needs_points_ahead_follows_by_as_many_turns() -> None:
    """y[t] = x[t + 3] + x[t]."""
    needs = [same_turn("x", "y", 3), same_turn("x", "y")]
    assert turns(merged(loops("x", "y"), needs)) == {"x": (0, "t"), "y": (0, "t + 3")}


def test_what_needs_the_past_goes_ahead() -> None:
    """y[t] = x[t - 2] alone: no value of x needs to be stored."""
    made = merged(loops("x", "y"), [same_turn("x", "y", -2)])
    assert turns(made) == {"x": (0, "t"), "y": (0, "t - 2")}


def test_what_needs_the_whole_is_left() -> None:
    """y[t] needs the last x, any number of iterations ahead, and also x[t]."""
    whole = edge("x", "y", eq(HERE, T - 1), ge(THERE, 0))
    near = same_turn("x", "y")
    apart = merged(loops("x", "y"), [whole, near])
    assert turns(apart) == {"x": (0, "t"), "y": (1, "t")}
    together = merged(loops("x", "y"), [near])
    violated = together.violation([whole, near])
    assert violated is not None and violated[0] is whole


def test_nothing_is_merged_that_keeps_no_value() -> None:
    """y[0] alone reads x: with y in its loop, no value of x would be freed earlier."""
    first = edge("x", "y", eq(HERE, const(0)), ge(THERE, 0))
    assert len({at[0] for at in turns(merged(loops("x", "y"), [first])).values()}) == 2
    assert len({at[0] for at in turns(merged(loops("x", "y"), [])).values()}) == 2


def test_what_is_between_goes_before_or_behind() -> None:
    """m needs all of x, and nothing reads m; f has no operands, and y needs f."""
    all_of_x = edge("x", "m", ge(HERE, 0), ge(THERE, 0))
    needs = [same_turn("x", "y"), all_of_x, edge("f", "y", ge(HERE, 0), ge(THERE, 0))]
    made = merged(loops("x", "m", "f", "y"), needs)
    around = turns(made)
    assert around["x"][0] == around["y"][0]
    order = sorted(around, key=lambda name: around[name][0])
    assert order[0] == "f" and order[-1] == "m"


def test_what_is_needed_between_refuses() -> None:
    """y needs x of the same iteration, and m, which needs all of x."""
    all_of_x = edge("x", "m", ge(HERE, 0), ge(THERE, 0))
    needs = [same_turn("x", "y"), all_of_x, same_turn("m", "y")]
    around = turns(merged(loops("x", "m", "y"), needs))
    assert around["x"][0] < around["m"][0] == around["y"][0]


def test_loops_inside_are_merged_within_a_turn() -> None:
    dims = Dims((Dim("i", "I"), Dim("t", "T")))
    points = Set.from_condition(dims, ("i", "t"))
    inner = [in_loop("t", 1, ScheduleTree.leaf(dims, n, points)) for n in ("x", "y")]
    tree = in_loop("i", 1, one_by_one(inner))

    def pairs(*conds: Cond) -> Relation:
        made = Relation.from_condition(dims, ("i", "t"), ("i", "t"), all_of(*conds)).restrict_range(
            points
        )
        return made.inverse().restrict_range(points).inverse()

    own = eq(sym(primed_name("i")), sym("i"))
    needs = [
        Edge("x", "y", pairs(own, eq(sym("t"), sym(primed_name("t")) + 1))),
        Edge(
            "y", "x", pairs(eq(sym(primed_name("i")), sym("i") + 1))
        ),  # all of the previous iteration
    ]
    raw = scheduling.merge_sibling_loops(
        tree.raw,
        [scheduling._name_tuples(e.pairs, e.source, e.sink) for e in needs],
        [scheduling._name_tuples(e.pairs, e.source, e.sink) for e in needs],
    )
    made = ScheduleTree(dims, tree.statements, raw)
    assert made.violation(needs) is None
    assert [str(at) for _, at in made.loops()["y"]] == ["i", "t + 1"]
    assert [k for k, _ in made.loops()["y"]] == [k for k, _ in made.loops()["x"]]
