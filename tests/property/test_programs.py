"""Random programs: reference, fused graph and interpreter agree under all options and orders.

`make fuzz` runs many more of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from itertools import count
from random import Random
from typing import Any

import jax
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import timerl_nb as trl
from tests.eager import eagerly
from tests.property.drawn import ANY, Drawn, Step
from tests.property.learning import convolution, environment, parameter
from tests.property.orders import shuffled
from tests.property.programs import (
    STEPS,
    chain,
    ending_programs,
    hosted,
    programs,
    twice_ending_programs,
)
from tests.property.ways import SEEDS, WAYS, Way, ways
from tests.unit.checks import (
    Expected,
    assert_equal,
    assert_memory_is_sound,
    assert_same,
    assert_same_points,
)
from timerl_nb.base.errors import BoundsError, BranchError, BudgetError, ReadError, ScheduleError
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.language.inputs.dynamic_bound_inputs import write_bound
from timerl_nb.compiler.memory.budget.memory_lower_bound import inevitable, lower_bound
from timerl_nb.compiler.memory.liveness.unavoidable_liveness import live_across
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.compiler.scheduling.statements import Statements
from timerl_nb.runtime.interpreter.interpreter import Run

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"vectorize": False},
    {"fuse": False},
    {"stores": "point"},
    {"donate": False},
    {"trial": False},
    {"simplify": False, "accumulate": False},
    {"lift": False, "contract": False, "vectorize": ("t",)},
    {"incrementalize": 2},
    {"rematerialize": True},
)
BLOCKS: tuple[dict[str, Any], ...] = (
    {"trial": False, "incrementalize": 1},
    {"accumulate": False, "incrementalize": 2},
    {"trial": False, "incrementalize": {"t": 3, "b": 2}, "fuse": False},
    {"trial": False, "incrementalize": {"t": 2, "i": 1}, "contract": False, "lift": False},
    {"incrementalize": {"b": 5, "i": 2, "t": 1}},
    {"rematerialize": True, "incrementalize": {"t": 2, "b": 2}},
    {"rematerialize": True, "incrementalize": {"i": 1, "t": 3}, "fuse": False},
)
# Loops over all dimensions but one.
TILES: tuple[dict[str, Any], ...] = (
    {"tile": {"b": 2}, "vectorize": ("b",)},
    {"tile": {"b": 1}, "vectorize": ("b",), "fuse": False},
    {"tile": {"b": 2}, "vectorize": ("b",), "tile_kernel": "interpret"},
    {"tile": {"t": 3}, "vectorize": ("t",)},
    {"tile": {"i": 2}, "vectorize": ("i",), "trial": False},
    {"tile": "auto"},
)


# `make fuzz` draws new programs every time; `make test` repeats the same ones until a test is
# edited.
FUZZ = "TIMERL_FUZZ" in os.environ
# With `TIMERL_EXAMPLES`: few programs, and always the same.
RUNS = int(os.environ.get("TIMERL_FUZZ", os.environ.get("TIMERL_EXAMPLES", "20")))


def few(part: int) -> int:
    """Return 1/n of the examples; a third of that without fuzzing, because each takes long."""
    return RUNS // part if FUZZ else max(2, RUNS // (3 * part))


pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is read in slices"),
    pytest.mark.filterwarnings("ignore:.*ends by itself"),
]


def chosen(drawn: Drawn, options: dict[str, Any]) -> trl.Options:
    """Return options without those for missing dimensions."""
    found = dict(options)
    for name in ("incrementalize", "tile"):
        if isinstance(blocks := options.get(name), dict):
            found[name] = {d: size for d, size in blocks.items() if d in drawn.symbols} or False
    if isinstance(dims := options.get("vectorize"), tuple):
        found["vectorize"] = tuple(d for d in dims if d in drawn.symbols)
    if not found.get("tile"):
        found.pop("tile_kernel", None)
    return trl.Options(**found)


def ending(drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any]) -> trl.Program | None:
    """Return a program with a condition that ends its last dimension; None if it is refused."""
    d, done = drawn
    last = d.ctx.space.all[-1].bound
    bounds = {**d.bounds, last: trl.until(done, at_most=d.bounds[last])}
    try:
        return d.ctx.compile(bounds, chosen(d, options))
    except (BoundsError, ReadError, ScheduleError) as error:
        event(f"refused: {type(error).__name__}")
        return None


def sampled(examples: int) -> Callable[[Any], Any]:
    """Set the number of examples; alternate between the visible devices."""
    chosen = settings(
        max_examples=examples,
        deadline=None,
        derandomize=not FUZZ,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )

    def decorated(test: Any) -> Any:
        inner, turns = test.hypothesis.inner_test, count()

        @wraps(inner)
        def placed(*args: Any, **named: Any) -> None:
            devices = jax.devices()
            with jax.default_device(devices[next(turns) % len(devices)]):
                inner(*args, **named)

        test.hypothesis.inner_test = placed
        return chosen(test)

    return decorated


@sampled(RUNS)
@given(programs(), st.sampled_from(VARIANTS), ways())
def test_all_ways_of_running_agree(drawn: Drawn, options: dict[str, Any], way: Way) -> None:
    assert_agreement(drawn, options, way)


@sampled(RUNS // 4)
@given(programs(4, last=chain), st.sampled_from(BLOCKS), ways())
def test_blocks_of_any_size_agree(drawn: Drawn, options: dict[str, Any], way: Way) -> None:
    assert_agreement(drawn, options, way)


KINDS: dict[Step | None, set[str]] = {
    None: {step.__name__ for step in (*STEPS, hosted)} | {*ANY, "odd", "above 4", *WAYS},
    parameter: {"SGD", "momentum", "Adam", "AdamW", "RMSProp", "derivative"},
    convolution: {"conv", "strided", "transposed", "plane", "greatest", "mean", "dimension"},
    environment: {"CartPole-v1", "synthetic", "reward", "done", "alive", "final"},
}


@pytest.mark.parametrize("last", KINDS)
def test_each_kind_is_drawn(last: Step | None) -> None:
    """Guards against generators that silently stop drawing a kind."""
    found: Counter[str] = Counter()
    some = {"max_steps": 1, "last": last} if last else {"steps": (*STEPS, hosted)}

    @settings(max_examples=100 if last else 300, derandomize=True, deadline=None)
    @given(programs(**some), ways())
    def look(drawn: Drawn, way: Way) -> None:
        found.update(drawn.kinds | way.kinds)

    look()
    assert not KINDS[last] - set(found), found


def assert_agreement(drawn: Drawn, options: dict[str, Any], way: Way) -> None:
    """Check that reference, fused graph and run agree under these bounds and under smaller ones."""
    graph = drawn.ctx.pdg()
    expected = Expected(graph, drawn.bounds, way.seed)
    program = way.compiled(drawn.ctx, drawn.bounds, chosen(drawn, options))
    fused = Expected(program.fused, drawn.bounds, way.seed)
    expected.assert_same(fused.outputs["output"], "fused graph")
    events: list[Event] = []
    seen = {"on_event": events.append} if way.shows_events else {}
    result = way.run(program, **seen)
    expected.assert_same(result, "run")
    expected.assert_same(result.parameters, "parameters", "parameter")
    assert_same_points(expected.reference.coordinates(), result.coordinates)
    if events:
        assert_memory_is_sound(program, result, events)
    smaller = {name: max(1, bound - 1) for name, bound in drawn.bounds.items()}
    try:
        small = program.with_bounds(smaller)
    except (ReadError, BranchError):
        return  # some indices mention the larger bounds
    except BoundsError as error:
        assert way.devices > 1 and "cannot be divided equally" in str(error)
        return
    Expected(graph, smaller, way.seed).assert_same(way.run(small), "smaller bounds")


@sampled(RUNS // 2)
@given(ending_programs(), st.sampled_from(VARIANTS), ways())
def test_dimensions_that_end_early(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any], way: Way
) -> None:
    d, done = drawn
    last = d.ctx.space.all[-1].bound
    bounds = {**d.bounds, last: trl.until(done, at_most=d.bounds[last])}
    try:
        program = way.compiled(d.ctx, bounds, chosen(d, options))
    except (BoundsError, ReadError) as error:
        event(f"refused: {type(error).__name__}")  # it would mix the lengths of several iterations
        return
    except ScheduleError:
        dim = d.ctx.space.all[-1]
        ends = partial(write_bound, d.ctx, dim, bounds[last])
        graph = DynamicBounds().run(d.ctx.pdg(ends)).pdg
        if d.bounds[last] > 1:  # one point has no dependences
            with pytest.raises(ScheduleError):  # the end depends on the end
                reference = Reference(graph, d.bounds, seed=way.seed)
                reference.outputs()  # it need not read the end
                reference.lengths()
        event("refused: the end depends on the end")
        return
    expected = Expected(program.source_graph, d.bounds, way.seed)
    fused = Expected(program.fused, d.bounds, way.seed)
    expected.assert_same(fused.outputs["output"], "fused graph")
    events: list[Event] = []
    result = way.run(program, **({"on_event": events.append} if way.shows_events else {}))
    assert_same(expected.reference.lengths(), result.lengths, "lengths")
    expected.assert_same(result, "run")
    if events:
        assert_memory_is_sound(program, result, events)


@sampled(few(2))
@given(twice_ending_programs(), st.sampled_from(VARIANTS), ways())
def test_two_dimensions_that_end_early(
    drawn: tuple[Drawn, dict[str, trl.RecurrentTensor]], options: dict[str, Any], way: Way
) -> None:
    d, ends = drawn
    until = {n.upper(): trl.until(x, at_most=d.bounds[n.upper()]) for n, x in ends.items()}
    try:
        program = way.compiled(d.ctx, {**d.bounds, **until}, chosen(d, options))
    except (BoundsError, ReadError, ScheduleError) as error:
        event(f"refused: {type(error).__name__}")
        return
    expected = Expected(program.source_graph, d.bounds, way.seed)
    events: list[Event] = []
    result = way.run(program, **({"on_event": events.append} if way.shows_events else {}))
    assert_same(expected.reference.lengths(), result.lengths, "lengths")
    expected.assert_same(result, "run")
    if events:
        assert_memory_is_sound(program, result, events)


@sampled(RUNS // 4)
@given(programs(), st.sampled_from(VARIANTS), st.integers(0, 2**32))
def test_any_valid_order_gives_the_same(
    drawn: Drawn, options: dict[str, Any], shuffle: int
) -> None:
    expected = Expected(drawn.ctx.pdg(), drawn.bounds, seed=shuffle)
    options = {**options, "stores": "point", "donate": False}
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    executable, kept = shuffled(program, Random(shuffle))
    run = Run(executable, seed=shuffle)
    with eagerly():
        run.complete()
        found = {name: x for (role, name), x in run.outputs().items() if role == "output"}
    expected.assert_same(found, "random order")
    assert run.release() == kept


@sampled(RUNS // 3)
@given(programs(), st.sampled_from(VARIANTS), st.floats(-1, 1), st.sampled_from(SEEDS))
def test_budgets_change_nothing_but_memory(
    drawn: Drawn, options: dict[str, Any], place: float, seed: int
) -> None:
    """Budgets between the minimum with swaps and the unrestricted peak change only memory.

    Smaller budgets change the compilation, or are refused.
    """
    program = drawn.ctx.compile(drawn.bounds, trl.Options(**options))
    most, lowest = program.memory.needed, program.memory.with_swaps_below(1).needed
    least = inevitable(program.pdg, drawn.bounds)
    floor = lower_bound(Statements.from_graph(program.fused), drawn.bounds)
    assert least <= floor <= lowest
    whole = program.stages["fuse" if program.options.fuse else "separate"].previous
    assert whole is not None
    across = live_across(whole, drawn.bounds)
    assert across <= most
    event("live across" if across else "nothing is live across")
    budget = max(
        1, int(lowest * (1 + place)) if place < 0 else lowest + int((most - lowest) * place)
    )
    try:
        swapped = program.with_options(device_memory=budget)
    except BudgetError as error:
        event("refused")
        assert budget < min(lowest, error.needed)
        assert error.evidence and f"device_memory={error.needed} would do" in error.hint
        swapped = program.with_options(device_memory=error.needed)
    else:
        event("below the least peak" if budget < lowest else "swapped")
        assert least <= budget
    events: list[Event] = []
    with eagerly():
        want = program.execute(seed=seed)
        have = swapped.execute(seed=seed, on_event=events.append)
    if str(swapped.fused) == str(program.fused):
        event("the same graph")
        assert_equal(want, have)
    else:  # sums have another order of terms
        Expected(program.pdg, drawn.bounds, seed).assert_same(have, "within a budget")
    assert_memory_is_sound(swapped, have, events)
