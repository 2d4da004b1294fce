"""Donation: a kernel reuses the memory of operands that die with it, and no other memory."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from benchmarks.compiler.interpreter import replaced
from tests.reinforce import reinforce
from tests.unit.checks import assert_memory_is_sound, assert_same
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.memory.placement.operand_donation import WHY_NOT
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.fused_kernel import Kernel
from timerl_nb.runtime.interpreter.interpreter import Run

BOUNDS = {"B": 4, "I": 4, "T": 12}
PLAIN = trl.Options(vectorize=False, lift=False, accumulate=False)


class Watch:
    """Run a program, and inspect each kernel's arguments before and after."""

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self.given: dict[int, int] = {}

    def run(self) -> None:
        with replaced(self.executable, self._watched):
            Run(self.executable, 0).complete()

    def _watched(self, kernel: Kernel, function: Any) -> Any:
        def call(*args: Any) -> Any:
            arrays = jax.tree.leaves(args[3:])
            assert not any(x.is_deleted() for x in jax.tree.leaves(args[2:]))
            made = function(*args)
            assert all(x.is_deleted() for x in arrays), "JAX found no output for it"
            assert not any(x.is_deleted() for x in jax.tree.leaves(args[2]))
            self.given[kernel.op.id] = self.given.get(kernel.op.id, 0) + len(arrays)
            return made

        return call


@pytest.mark.parametrize("window", [None, 5])
def test_what_is_taken_over_is_really_given_up(window: int | None) -> None:
    program = reinforce(window).compile(BOUNDS)
    given = [d for d in program.memory.donations.values() if d.output is not None]
    assert len(given) >= 3 * len(program.execute().parameters)  # with both moments of Adam
    watch = Watch(program.executable)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # JAX warns of unusable donations
        watch.run()
    assert sum(watch.given.values()) > len(given)


@pytest.mark.parametrize("window", [None, 5])
def test_it_saves_memory_and_changes_nothing(window: int | None) -> None:
    program = reinforce(window).compile(BOUNDS)
    apart = program.with_options(donate=False)
    events: list[Event] = []
    result = program.execute(seed=2, on_event=events.append)
    assert_memory_is_sound(program, result, events)
    assert_same(dict(apart.execute(seed=2)), result, "without donation")
    assert program.memory.peak < apart.memory.peak
    assert result.instructions < apart.execute().instructions
    assert all(count == 1 for count in program.executable.compiles().values())
    assert not apart.memory.donations and "rt.copied" not in apart.executable.source


def test_a_value_that_lives_on_is_copied() -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        start = trl.random.normal((3,), domain=()).tanh().named("start")
        x = trl.tensor((3,), domain=(i, t))
        x[i, 0] = start * 1.0
        x[i, t + 1] = (x * 0.5 + start).sin().named("x'")
        ctx.output("y", x.sum(axis=0))
    bounds = {"I": 3, "T": 4}
    program = ctx.compile(bounds, PLAIN)
    events: list[Event] = []
    result = program.execute(seed=1, on_event=events.append)
    assert_same(Reference(ctx.pdg(), bounds, 1).outputs(), result, "run")
    assert_memory_is_sound(program, result, events)
    why = [d.why for d in program.memory.donations.values()]
    assert any("if t >= 1, else that of a copy" in text for text in why), why
    assert "rt.copied" in program.executable.source


def reasons(program: trl.Program) -> set[str]:
    found = (d.why for d in program.memory.donations.values() if d.output is None)
    return {key for text in found for key, start in WHY_NOT.items() if text.startswith(start)}


def recurrence(read: Any, **outputs: Any) -> trl.Program:
    """s[t + 1] = read(s, x), with another tensor x at every step."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        s = trl.tensor((2,), domain=(t,))
        s[0] = trl.ones((2,))
        s[t + 1] = read(s, t, T).tanh().named("s'")
        ctx.output("y", s[T - 1])
        for name, value in outputs.items():
            ctx.output(name, value(s, t, T))
    return ctx.compile({"T": 8}, PLAIN.with_(fuse=False))


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (lambda: recurrence(lambda s, t, T: s * 0.5 + s[trl.max(t - 1, 0)] * 0.1), "later"),
        (lambda: recurrence(lambda s, t, T: s * s[trl.min(t, T - 1)]), "shared"),
        (lambda: recurrence(lambda s, t, T: s * 0.5, z=lambda s, t, T: s), "returned"),
        (lambda: recurrence(lambda s, t, T: s * s.sum(axis=0)), "shape"),
        (lambda: recurrence(lambda s, t, T: trl.udf(np.tanh, s, out=s) * 0.5), "host"),
    ],
)
def test_why_something_is_not_taken_over(program: Any, why: str) -> None:
    assert why in reasons(program())


def test_slices_and_sums_are_not_taken_over() -> None:
    assert {"slice", "sum"} <= reasons(reinforce().compile(BOUNDS))


def test_what_a_user_looks_at_stays() -> None:
    """Values shown by a stepped run are not overwritten later."""
    program = reinforce(hidden=()).compile(BOUNDS)
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    while program.step(seed=0) is not None:
        for name, values in program.stores.items():
            if "weight" in name or name == "logits":
                seen += [(x, x.copy()) for x in values.values()]
    assert seen
    for shown, copy in seen:
        np.testing.assert_array_equal(shown, copy)


def test_the_option_is_checked() -> None:
    with pytest.raises(trl.errors.OptionError, match="donate is True or False"):
        trl.Options(donate="yes")
