"""Random programs: reference, fused graph and interpreter agree, whatever the options and order.

`make fuzz` runs many more of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, wraps
from itertools import count
from random import Random
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.orders import shuffled
from tests.property.programs import Drawn, chain, ending_programs, programs
from tests.unit.checks import assert_memory_is_sound, assert_same, assert_same_points
from timerl_nb.errors import BoundsError, BranchError, ReadError, ScheduleError
from timerl_nb.events import Event
from timerl_nb.frontend.until import write_bound
from timerl_nb.ir.reference import Reference
from timerl_nb.memory.lower_bound import inevitable, lower_bound
from timerl_nb.passes.dynamic_bounds import DynamicBounds
from timerl_nb.runtime.interpret import Run
from timerl_nb.statements.statements import Statements

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


# `make fuzz` draws other programs every time, `make test` the same ones until a test is edited.
FUZZ = "TIMERL_FUZZ" in os.environ
# Few of them, and always the same ones, with `TIMERL_EXAMPLES`.
RUNS = int(os.environ.get("TIMERL_FUZZ", os.environ.get("TIMERL_EXAMPLES", "100")))

pytestmark = pytest.mark.filterwarnings("ignore:.*is read in slices")


def chosen(drawn: Drawn, options: dict[str, Any]) -> trl.Options:
    """Options without block sizes for dimensions that the program lacks."""
    blocks = options.get("incrementalize", "auto")
    if isinstance(blocks, dict):
        blocks = {d: size for d, size in blocks.items() if d in drawn.symbols}
    return trl.Options(**{**options, "incrementalize": blocks})


def sampled(examples: int) -> Callable[[Any], Any]:
    """So many examples, on the visible devices by turns."""
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
@given(programs(), st.sampled_from(VARIANTS))
def test_all_ways_of_running_agree(drawn: Drawn, options: dict[str, Any]) -> None:
    assert_agreement(drawn, options)


@sampled(RUNS // 2)
@given(programs(4, last=chain), st.sampled_from(BLOCKS))
def test_blocks_of_any_size_agree(drawn: Drawn, options: dict[str, Any]) -> None:
    assert_agreement(drawn, options)


def assert_agreement(drawn: Drawn, options: dict[str, Any]) -> None:
    """Reference, fused graph and run give the same, under these bounds and under smaller ones."""
    graph = drawn.ctx.pdg()
    reference = Reference(graph, drawn.bounds, seed=3)
    want = reference.outputs()
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    assert_same(want, Reference(program.fused, drawn.bounds, seed=3).outputs(), "fused graph")
    events: list[Event] = []
    with jax.disable_jit():  # the kernels' contents, without a compilation per program
        result = program.execute(seed=3, on_event=events.append)
    assert_same(want, result, "run")
    assert_same_points(reference.coordinates(), result.coordinates)
    assert_memory_is_sound(program, result, events)
    smaller = {name: max(1, bound - 1) for name, bound in drawn.bounds.items()}
    try:
        small = program.with_bounds(smaller)
    except (ReadError, BranchError):
        return  # some index means the larger bounds
    want = Reference(graph, smaller, seed=3).outputs()
    with jax.disable_jit():
        assert_same(want, small.execute(seed=3), "smaller bounds")


@sampled(RUNS // 2)
@given(ending_programs(), st.sampled_from(VARIANTS))
def test_dimensions_that_end_early(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any]
) -> None:
    d, done = drawn
    last = d.ctx.space.all[-1].bound
    bounds = {**d.bounds, last: trl.until(done, at_most=d.bounds[last])}
    try:
        program = d.ctx.compile(bounds, chosen(d, options))
    except (BoundsError, ReadError) as error:
        event(f"refused: {type(error).__name__}")  # it would mix the lengths of several iterations
        return
    except ScheduleError:
        dim = d.ctx.space.all[-1]
        ends = partial(write_bound, d.ctx, dim, bounds[last])
        graph = DynamicBounds().run(d.ctx.pdg(ends)).pdg
        if d.bounds[last] > 1:  # with one point there is nothing to depend on
            with pytest.raises(ScheduleError):  # the end depends on the end
                reference = Reference(graph, d.bounds, seed=3)
                reference.outputs()  # which need not ask for the end
                reference.lengths()
        event("refused: the end depends on the end")
        return
    reference = Reference(program.meaning, d.bounds, seed=3)
    want = reference.outputs()
    assert_same(want, Reference(program.fused, d.bounds, seed=3).outputs(), "fused graph")
    events: list[Event] = []
    with jax.disable_jit():
        result = program.execute(seed=3, on_event=events.append)
    assert_same(reference.lengths(), result.lengths, "lengths")
    assert_same(want, result, "run")
    assert_memory_is_sound(program, result, events)


@sampled(RUNS // 4)
@given(programs(), st.sampled_from(VARIANTS), st.integers(0, 2**32))
def test_any_valid_order_gives_the_same(
    drawn: Drawn, options: dict[str, Any], shuffle: int
) -> None:
    want = Reference(drawn.ctx.pdg(), drawn.bounds, seed=3).outputs()
    options = {**options, "stores": "point", "donate": False}
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    executable, kept = shuffled(program, Random(shuffle))
    run = Run(executable, seed=3)
    with jax.disable_jit():
        run.complete()
        found = {name: x for (role, name), x in run.outputs().items() if role == "output"}
    assert_same(want, found, "random order")
    assert run.release() == kept


@sampled(RUNS // 2)
@given(programs(), st.sampled_from(VARIANTS), st.floats(0, 1))
def test_budgets_change_nothing_but_memory(
    drawn: Drawn, options: dict[str, Any], place: float
) -> None:
    """Under any budget between the least that swapping reaches and the peak without it."""
    program = drawn.ctx.compile(drawn.bounds, trl.Options(**options))
    peak, lowest = program.memory.peak, program.memory.swapped(1).peak
    floor = lower_bound(Statements.of(program.fused), drawn.bounds)
    assert inevitable(program.pdg, drawn.bounds) <= floor <= lowest
    budget = lowest + int((peak - lowest) * place)
    swapped = program.with_options(device_memory=max(1, budget))
    events: list[Event] = []
    with jax.disable_jit():
        want = program.execute(seed=3)
        have = swapped.execute(seed=3, on_event=events.append)
    for name, value in want.items():
        np.testing.assert_array_equal(have[name], value, err_msg=name)
    assert_memory_is_sound(swapped, have, events)
