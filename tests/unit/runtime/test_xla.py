"""XLA programs: the interpreter's results, in buffers of the planned sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from tests.actor_critic import actor_critic
from tests.episodes import cartpole
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from tests.unit.checks import assert_same
from timerl_nb.base.errors import OptionError, TimeRLWarning
from timerl_nb.compiler.ir.reference.evaluator import Reference

BOUNDS = {"B": 8, "I": 6, "T": 30}
PROGRAMS: dict[str, Callable[[], trl.Context]] = {
    "Monte Carlo": reinforce,
    "5-step": lambda: reinforce(5),
    "5-step, averaged": lambda: reinforce(5, average_over_time=True),
    "actor and critic": actor_critic,
    "PPO": lambda: trl.algorithms.ppo(hidden=(4,)),
}


def compiled(name: str, **options: object) -> trl.Program:
    return PROGRAMS[name]().compile(BOUNDS, trl.Options(executor="xla", **options))


def assert_close(have: trl.Result, want: Mapping[str, np.ndarray]) -> None:
    parameters = want.parameters if isinstance(want, trl.Result) else {}
    for name, value in [*want.items(), *parameters.items()]:
        found = have[name] if name in want else have.parameters[name]
        np.testing.assert_allclose(found, value, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_numbers_are_the_interpreters(name: str) -> None:
    program = compiled(name)
    assert program.executable.xla_program is not None, program.executable.how
    want = program.with_options(executor="interpret").execute(seed=5)
    have = program.execute(seed=5)
    assert_close(have, want)
    again = program.execute(seed=5)
    for key, value in have.items():
        np.testing.assert_array_equal(again[key], value)
    other = program.execute(seed=6)
    assert any((other[key] != value).any() for key, value in have.items())


@pytest.mark.parametrize("which", ["sum", "max"])
def test_what_is_added_up_begins_anew(which: str) -> None:
    """An iteration's sums use the slots of the previous one's, freed one by one or as a slice."""
    with trl.Context("i", "k", "t") as ctx:
        (i, I), (k, K), (t, T) = ctx.dims
        w, x = trl.tensor((), domain=(i,)), trl.tensor((), domain=(i, k, t))
        w[0] = 1.0
        x[i, k, 0] = w + k
        x[i, k, t + 1] = x.exp() * 0.125
        each = getattr(x, which)(over=t)
        total = getattr(each[i, 0:K].tanh(), which)(axis=0)
        after = getattr(x[i, 0, t].tanh(), which)(over=t)
        w[i + 1] = total * 0.25 + after * 0.125
        ctx.output("w", w)
    program = ctx.compile({I: 4, K: 2, T: 3}, trl.Options(executor="xla", vectorize=False))
    assert re.search(r"free \S+ @ \(i - 1, 0:2\)", str(program.ast)), program.ast
    assert re.search(r"free \S+ @ \(i - 1\)", str(program.ast)), program.ast
    value, want = 1.0, [1.0]
    for _ in range(3):
        rows = [value + np.arange(2)]
        for _ in range(2):
            rows.append(np.exp(rows[-1]) * 0.125)
        values, fold = np.stack(rows), getattr(np, which)
        total, after = fold(np.tanh(fold(values, axis=0))), fold(np.tanh(values[:, 0]))
        value = total * 0.25 + after * 0.125
        want.append(value)
    np.testing.assert_allclose(program.execute()["w"], want, rtol=1e-5)


@pytest.mark.parametrize("fuse", [2, 4, 100])
def test_iterations_run_several_to_a_call(fuse: int) -> None:
    program = compiled("5-step", fuse_iterations=fuse)
    assert_close(program.execute(seed=5), compiled("5-step").execute(seed=5))
    assert program.execute(seed=5).instructions == 1 + -(-BOUNDS["I"] // fuse)
    assert f"for every {fuse} turns of {BOUNDS['I']} of i:" in str(program.executable)


def test_outputs_are_slices_of_what_branches_make() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.tensor((), domain=(i, t))
        x[i, 0] = trl.value(i).cast("f32")
        x[i, t + 1] = (x * 0.5 + 1.0).sin()
        ctx.output("x", x)
        ctx.output("rows", x[i, 0:T])
        ctx.output("all", x[0:I, 0:T])
    options = trl.Options(executor="xla", vectorize=False)
    result = ctx.compile({I: 2, T: 3}, options).execute()
    np.testing.assert_array_equal(result["rows"], result["x"])
    np.testing.assert_array_equal(result["all"], result["x"])


def test_a_loop_without_loops_is_divided_into_calls_of_several_iterations(tmp_path: Path) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 1.0
        x[t + 1] = (x * 0.5 + 1.0).sin()
        ctx.output("x", x)
    whole = ctx.compile({T: 50}, trl.Options(executor="xla"))
    parts = whole.with_options(fuse_iterations=20)
    assert whole.executable.cuts().is_coarse and not parts.executable.cuts().is_coarse
    with pytest.raises(OptionError, match="fuse_iterations=20"):
        whole.start(checkpoint=tmp_path / "whole")
    run = parts.start(checkpoint=tmp_path / "run", paused=True)
    run.step(5)
    run.wait(60)
    run.stop()
    run.result()
    assert 5 <= run.turn < 50
    found = parts.resume(tmp_path / "run")["x"]
    np.testing.assert_array_equal(found, whole.execute()["x"])


def test_a_program_of_one_call_has_no_turns_to_fuse() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", trl.value(t) * 2)
    how = ctx.compile({T: 3}, trl.Options(executor="xla", fuse_iterations=2)).executable.how
    why = "no loop is called turn by turn, so fuse_iterations=2 has no effect"
    assert how == f"1 XLA program; {why}"


@pytest.mark.parametrize("name", ["Monte Carlo", "5-step"])
def test_loops_carry_what_the_plan_proves_and_copy_nothing_large(name: str) -> None:
    program = compiled(name)
    lowered = program.executable.xla_program
    assert lowered is not None
    places = {b.array_shape for b in lowered.layout.buffers.values()}
    text = lowered.hlo(2)
    carried = [m for line in text.splitlines() for m in re.findall(r"= \((.*)\) while\(", line)]
    large = [[s for s in shapes(line) if prod(s) > BOUNDS["B"] * 8] for line in carried]
    assert any(large)
    for each in large:
        assert set(each) <= places, (each, places)
    inner = text[: text.index("\nENTRY ")]
    copied = [s for m in re.findall(r"= (\S+) copy\(", inner) for s in shapes(m)]
    rings = {b.array_shape for b in lowered.layout.buffers.values() if prod(b.slot_counts) > 1}
    assert not rings.intersection(copied)


def shapes(text: str) -> list[tuple[int, ...]]:
    return [
        tuple(map(int, s.split(","))) for s in re.findall(r"(?:f32|s32|pred)\[([\d,]+)\]", text)
    ]


def test_n_step_memory_does_not_grow_with_time() -> None:
    short, long = (
        reinforce(5).compile({**BOUNDS, "T": n}, trl.Options(executor="xla")) for n in (30, 300)
    )
    have = [program.executable.xla_program for program in (short, long)]
    assert have[0] is not None and have[1] is not None
    assert have[0].nbytes == have[1].nbytes
    assert have[0].nbytes <= 1.01 * short.memory.peak + 8 * BOUNDS["B"] * 4


def test_a_recurrence_starts_from_another() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        w, x = trl.tensor((), domain=(i,)), trl.tensor((), domain=(i, t))
        w[0] = 1.0
        x[i, 0] = w
        x[i, t + 1] = (x + trl.random.normal(domain=(i, t))).tanh()
        mean = x.mean(over=t)
        w[i + 1] = w - 0.1 * mean
        ctx.output("mean", mean)
    program = ctx.compile({I: 9, T: 4}, trl.Options(executor="xla"))
    assert program.executable.xla_program is not None, program.executable.how
    want = program.with_options(executor="interpret").execute(seed=2)
    np.testing.assert_allclose(program.execute(seed=2)["mean"], want["mean"], rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["equal_first_values", "first_values_beside_unread_rows", "booleans_of_before"]
)
def test_first_values_stay_in_their_slots(name: str) -> None:
    pattern = PATTERNS[name]
    program = pattern.context().compile(pattern.bounds, trl.Options(executor="xla"))
    assert program.executable.xla_program is not None, program.executable.how
    assert_close(program.execute(), Reference(program.pdg, pattern.bounds, 0).outputs())


def test_a_saved_state_reads_no_slot_of_a_first_value_that_contains_another(tmp_path: Path) -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        c = trl.random.uniform(domain=())
        # the order matters: `c` has slots in both recurrences, which share a buffer
        slow, fast = trl.tensor((), domain=(i,)), trl.tensor((), domain=(i,))
        x = trl.tensor((), domain=(i, t))
        x[i, 0] = fast * 0.5
        x[i, t + 1] = x.tanh()
        mean = x[i, T - 1] * 0.5 + slow * 0.5
        fast[0], fast[i + 1] = c, mean
        slow[0], slow[1], slow[2] = 0.5, c, x[0, 1] * 0.5
        slow[i + 3] = mean
        ctx.output("sum", x.sum(over=t))
    program = ctx.compile({I: 4, T: 3}, trl.Options(executor="xla"))
    with program.start(seed=1, checkpoint=tmp_path, every=1, paused=True) as run:
        run.step(1)
        run.wait()
    want = program.execute(seed=1)
    np.testing.assert_array_equal(program.resume(tmp_path)["sum"], want["sum"])


def test_a_dimension_that_ends_early_ends_the_loop() -> None:
    ctx, done = cartpole(None)
    bounds = {"B": 4, "I": 3, "T": trl.until(done, at_most=60)}
    program = ctx.compile(bounds, trl.Options(executor="xla"))
    assert program.executable.xla_program is not None, program.executable.how
    want = program.with_options(executor="interpret").execute(seed=1)
    have = program.execute(seed=1)
    np.testing.assert_array_equal(have.lengths["T"], want.lengths["T"])
    assert_close(have, want)


@pytest.mark.parametrize("read", [False, True])
def test_a_recurrence_has_a_buffer_if_something_else_than_another_reads_it(read: bool) -> None:
    """The last value of `w` is the first value of `x`, in the buffer of `x`."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        w, x = trl.tensor((2,), domain=(i,)), trl.tensor((2,), domain=(i, t))
        w[0] = trl.random.normal((2,))
        x[i, 0] = w
        x[i, t + 1] = (x * 1.5).sin()
        w[i + 1] = (x.mean(over=t) + x[i, T - 1]).named("after")
        ctx.output("x", x)
        if read:
            ctx.output("w", w)
    bounds = {"I": 3, "T": 5}
    program = ctx.compile(bounds, trl.Options(executor="xla"))
    lowered = program.executable.xla_program
    assert lowered is not None, program.executable.how
    held = [set(buffer.tensors) for buffer in lowered.layout.buffers.values() if buffer.axes]
    assert sum("after" in names for names in held) == 1 + read, str(lowered)
    want = Reference(ctx.pdg(), bounds, seed=2).outputs()
    assert_same(want, dict(program.execute(seed=2)), "lowered")


def test_branches_that_ask_where_a_dimension_ended() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((), domain=(t,))
        y = trl.tensor((), domain=(t,))
        y[T - 1] = x[T - 1]
        y[t < T - 1] = (y[trl.min(t + 1, T - 1)] * 0.5 + x).tanh()
        ctx.output("y", y)
        done = trl.value(t) == 2
    program = ctx.compile({T: trl.until(done, at_most=5)}, trl.Options(executor="xla"))
    assert program.executable.xla_program is not None, program.executable.how
    assert_close(program.execute(), program.with_options(executor="interpret").execute())


def test_what_needs_the_host_is_interpreted_and_says_why() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((2,), domain=(t,))
        y = trl.udf(lambda x: x + 1, x, out=x)
        ctx.output("y", y)
    program = ctx.compile({T: 3}, trl.Options(executor="xla"))
    assert "runs on the host" in program.executable.how
    assert "interpreted" in program.stages["executable"].summary
    assert program.execute()["y"].shape == (3, 2)


def test_a_call_shows_its_jaxpr_and_its_hlo() -> None:
    lowered = compiled("5-step").executable.xla_program
    assert lowered is not None
    assert "scan[" in lowered.jaxpr(2) and " while(" in lowered.hlo(2)
    with pytest.raises(trl.errors.OptionError, match="a number from 1 to 2"):
        lowered.hlo(3)


def test_options_say_what_is_possible() -> None:
    with pytest.raises(OptionError, match="executor"):
        trl.Options(executor="gpu")
    with pytest.raises(OptionError, match="fuse_iterations"):
        trl.Options(fuse_iterations=0)


def test_buffers_keep_to_a_budget_or_the_interpreter_does() -> None:
    program = compiled("5-step")
    peak, lowered = program.memory.peak, program.executable.xla_program
    assert lowered is not None
    assert peak < lowered.nbytes  # rings store the last value separately
    needed = program.memory.needed
    assert needed == lowered.nbytes + program.memory.overhead_bytes
    enough = program.with_options(device_memory=needed)
    assert enough.executable.xla_program is not None and enough.memory.needed == needed
    with pytest.warns(
        TimeRLWarning, match="the interpreter runs the program, several times slower"
    ):
        least = peak + program.memory.overhead_bytes
        tight = program.with_options(device_memory=least, rematerialize=False)
    assert tight.memory.needed <= least
    assert tight.executable.xla_program is None and "are allowed" in tight.executable.how
    assert any("are allowed" in text for text in tight.warnings)


def test_what_starts_two_recurrences_is_read_in_slices_where_it_is_there() -> None:
    """It is in either buffer. Regression: a slice of several parts read the wrong one."""
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        weight = trl.data(np.arange(6, dtype=np.float32).reshape(2, 3) / 6)
        x, y = (trl.tensor((2,), domain=(i,)).named(name) for name in "xy")
        x[0] = trl.random.uniform((2,))
        x[i + 1] = (x * 0.9 + 0.1).tanh()
        y[i <= 1] = x
        y[i >= 2] = (y[i - 2] - x[i - 2]).tanh()
        ctx.output("z", (y @ weight).tanh())
    program = ctx.compile({"I": 5}, trl.Options(executor="xla", trial=False))
    assert program.executable.xla_program is not None
    want = Reference(ctx.pdg(), {"I": 5}).outputs()["z"]
    np.testing.assert_allclose(program.execute(seed=0)["z"], want, rtol=1e-5, atol=1e-6)
