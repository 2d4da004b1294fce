"""Temporary memory of kernels: estimated, stated by XLA, and checked against a budget."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from tests.pixels import pixels
from tests.reinforce import reinforce
from timerl_nb.base.errors import BudgetError, TimeRLWarning
from timerl_nb.compiler.memory.budget.kernel_temporaries import temporaries
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered

SIDE = 256
BYTES = SIDE * SIDE * 4


def squared() -> trl.Context:
    with trl.Context() as ctx:
        x = trl.data(np.eye(SIDE, dtype=np.float32)).named("x")
        ctx.output("y", (x @ x).sum())
    return ctx


def test_what_is_given_and_what_is_computed_within_a_kernel_count() -> None:
    program = squared().compile({})
    memory = program.memory
    assert memory.peak == 4  # the sum is the only carried value
    assert memory.constants == BYTES and memory.temporaries >= BYTES
    assert memory.needed == memory.peak + memory.temporaries + memory.constants
    assert f"temporaries: {memory.temporaries:,} bytes, estimated, the most in y" in str(memory)
    assert f"given arrays: {BYTES:,} bytes" in str(memory)
    assert "uncertain: temporaries in y, because libraries compute contractions" in str(memory)
    assert memory.to_json()["needed"] == memory.needed


@pytest.mark.filterwarnings("ignore:the interpreter runs the program")  # it needs 4 bytes less
@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_a_refusal_names_what_would_do(executor: str) -> None:
    options = trl.Options(executor=executor, device_memory=1024)
    with pytest.raises(BudgetError, match="the budget is 1,024") as caught:
        squared().compile({}, options)
    needed = caught.value.needed
    assert any("given arrays" in line or "x: " in line for line in caught.value.evidence)
    assert squared().compile({}, options.with_(device_memory=needed)).execute()["y"] == SIDE
    with pytest.raises(BudgetError):
        squared().compile({}, options.with_(device_memory=needed - 1))


def test_a_kernel_whose_values_are_read_twice_each_is_gone_through_once() -> None:
    with trl.Context() as ctx:
        x = trl.data(np.ones(64, np.float32))
        for _ in range(80):  # with 2**80 paths to the end
            x = x * 0.5 + x.sin()
        ctx.output("y", x.sum() * 2.0)
    # x, its sine, the next x, and 0.5 in their shape: XLA states three arrays for larger ones
    assert ctx.compile({}).memory.temporaries == 4 * 64 * 4


@pytest.mark.parametrize("vectorize", [("b",), True])
def test_estimates_are_of_the_order_of_what_xla_states(vectorize: bool | tuple[str, ...]) -> None:
    """Contractions over larger arrays, reductions, and random bits, which use the most."""
    program = pixels(side=16).compile(
        {"B": 16, "I": 3, "T": 40}, trl.Options(vectorize=vectorize, executor="xla")
    )
    lowered = program.executable.xla_program
    assert lowered is not None
    assert lowered.temporaries / 2 <= program.memory.temporaries <= 4 * lowered.temporaries


def test_xla_keeps_to_a_budget_that_temporaries_decide() -> None:
    bounds, options = {"B": 64, "I": 3, "T": 200}, trl.Options(executor="xla")
    whole = reinforce(None, hidden=(32, 32)).compile(bounds, options)
    budget = whole.memory.needed // 3
    assert budget < whole.memory.temporaries  # carried values do not cause the excess
    program = whole.with_options(device_memory=budget)
    lowered = program.executable.xla_program
    assert lowered is not None and program.memory.needed <= budget
    have, want = program.execute(seed=1), whole.execute(seed=1)
    assert lowered.total_bytes <= budget
    np.testing.assert_allclose(have["return"], want["return"], rtol=1e-4)


def products() -> trl.Context:
    """A product at each step; a block may hold some or all."""
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        x = trl.random.normal((64, 64), domain=(b, t), stream="x")
        ctx.output("y", (x @ x).tanh().sum(axis=(0, 1)).mean(over=(b, t)))
    return ctx


def state_more(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make XLA state some bytes more than it does."""
    stated = Lowered.temporaries.func  # type: ignore[attr-defined]
    monkeypatch.setattr(Lowered, "temporaries", property(lambda self: stated(self) + more))


def test_what_xla_states_is_held_against_the_budget_before_the_first_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program is planned again with a budget reduced by the excess."""
    whole = products().compile({"B": 4, "T": 24}, trl.Options(executor="xla"))
    lowered, budget = whole.executable.xla_program, whole.memory.needed
    assert lowered is not None
    state_more(budget - lowered.temporaries + (1 << 16), monkeypatch)
    program = whole.with_options(device_memory=budget)
    assert program.memory.needed == budget
    with pytest.warns(TimeRLWarning, match="compiled again, to fit into") as told:
        result = program.execute(seed=3)
    assert len(told) <= 3 and "bytes of temporaries; the estimate" in str(told[0].message)
    lowered = program.executable.xla_program
    assert lowered is not None and lowered.total_bytes <= budget == program.options.budget
    np.testing.assert_allclose(result["y"], whole.execute(seed=3)["y"], rtol=1e-4, atol=1e-4)


def test_where_no_decision_keeps_to_what_xla_states_the_program_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = products().compile({"B": 4, "T": 6}, trl.Options(executor="xla"))
    budget = whole.memory.needed
    state_more(whole.memory.temporaries + (1 << 16), monkeypatch)
    with (
        pytest.warns(TimeRLWarning, match="compiled again, to fit into"),  # others are tried first
        pytest.raises(BudgetError, match=r"needs [\d,]+ bytes") as caught,
    ):
        whole.with_options(device_memory=budget).execute()
    assert caught.value.needed > budget and "XLA reports" in caught.value.evidence[0]


def squares(*, kept: bool, donate: bool) -> trl.Program:
    """Sequential products, each a kernel; either all values of `u` are live or one."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        x = trl.data(np.ones((2, 3, SIDE, SIDE), np.float32), domain=(i, t))
        u = (x @ trl.data(np.eye(SIDE, dtype=np.float32))).named("u")
        ctx.output("y", (u @ u).named("v").sum())
        if kept:
            ctx.output("all", u)
    options = trl.Options(fuse=False, vectorize=False, donate=donate)
    return ctx.compile({"I": 2, "T": 3}, options)


@pytest.mark.parametrize(
    ("kept", "donate", "u", "v"),
    [(False, False, 0, 0), (False, True, BYTES, BYTES), (True, False, BYTES, BYTES)],
)
def test_what_is_carried_alone_counts_once(kept: bool, donate: bool, u: int, v: int) -> None:
    """A second carried result, or one in its operand's slot, is made elsewhere and copied."""
    plan = squares(kept=kept, donate=donate).memory
    names = {plan.pdg.names[op.id]: op for op in plan.statements.ops.values()}
    assert plan.kernel_temporaries(plan.sizes, names["u"]) == u
    assert plan.kernel_temporaries(plan.sizes, names["v"]) == v
    assert temporaries(plan.sizes, names["v"]) == 0  # lower bound for every plan


def test_contractions_that_add_nothing_up_are_not_stored() -> None:
    with trl.Context() as ctx:
        a = trl.data(np.ones((SIDE, 1), np.float32))
        ctx.output("outer", ((a @ a.T) * 2.0).sum())
        ctx.output("inner", ((a.T @ a) * 2.0).sum())
    assert 0 < ctx.compile({}).memory.temporaries <= 16  # sums, and a product of two vectors
