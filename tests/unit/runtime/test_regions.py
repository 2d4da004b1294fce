"""Programs with host operations: XLA runs the parts between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.unit.checks import assert_same
from tests.unit.language.test_udf import VARIANTS, Counters, counting
from timerl_nb.base import errors
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.runtime.state.checkpoint_reader import load

BOUNDS = {"B": 3, "I": 2, "T": 4}


@pytest.fixture
def whatever_it_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower programs around host functions even if hardly anything lies between."""
    monkeypatch.setattr("timerl_nb.runtime.executable.too_little", lambda _: None)


def compiled(ctx: trl.Context, bounds: dict[str, Any], **options: Any) -> trl.Program:
    program = ctx.compile(bounds, trl.Options(executor="xla", **options))
    assert program.executable.xla_program is not None, program.executable.how
    return program


def interpreted(program: trl.Program) -> trl.Result:
    return program.with_options(executor="interpret").execute(seed=5)


@pytest.mark.parametrize("name", ["reinforce", "ppo"])
def test_gymnasium_acts_between_calls(name: str) -> None:
    program = compiled(getattr(trl.algorithms, name)("gym.CartPole-v1"), {"B": 3, "I": 3, "T": 20})
    result, want = program.execute(seed=5), interpreted(program)
    for key, value in [*want.items(), *want.parameters.items()]:
        found = result[key] if key in want else result.parameters[key]
        np.testing.assert_allclose(found, value, rtol=2e-4, atol=2e-5, err_msg=key)
    again = program.execute(seed=5)
    for key, value in result.items():
        np.testing.assert_array_equal(again[key], value)
    assert "reset (a Python function)" in program.executable.how
    fused = program.with_options(fuse_iterations=2)
    assert "the host runs every turn, so fuse_iterations=2 has no effect" in fused.executable.how
    assert "on the host (a Python function): reset(i)" in str(program.executable)
    lowered = program.executable.xla_program
    assert lowered is not None and result.memory.peak == lowered.nbytes
    jaxprs = [lowered.jaxpr(k + 1) for k in range(len(lowered.calls))]
    assert any("dot_general" in text for text in jaxprs)
    (turn,) = (part for part in program.executable.to_json()["regions"] if "line" in part)
    assert {part["runs"] for part in turn["parts"]} == {"host", "xla"}


def test_what_has_no_operands_gets_none_of_the_one_before(tmp_path: Path) -> None:
    """An iteration ends with a checkpoint, and the next begins with a reset."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        env = trl.env.make("gym.CartPole-v1", max_steps=3)
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4]).build()
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn.sample(o)
        step = env.step(a)
        o[b, i, t + 1], r, _ = step
        g = r[b, i, t:T].discounted_sum(0.9)
        step.masked(-dnn.log_prob(a) * g).mean(over=(b, t)).backward()
        trl.optim.Adam(dnn.params).step()
        dnn[i % 2 == 0].checkpoint(str(tmp_path))
        ctx.output("o", o)
    program = compiled(ctx, {"B": 2, "I": 4, "T": 4}, vectorize=("b",))
    lines = str(program.executable).splitlines()
    assert any("checkpoint" in line for line in lines)
    indents = [len(line) - len(line.lstrip()) for line in lines]
    others = [k for k, line in enumerate(lines) if line.strip() == "else:"]
    assert others and all(indents[k + 1] == indents[k] + 2 for k in others)
    assert_same(dict(interpreted(program)), program.execute(seed=5), "lowered")


def test_iterations_with_checkpoints_stay_whole(tmp_path: Path) -> None:
    bounds = {"B": 2, "I": 20, "T": 4}
    saved: list[dict[str, Any]] = []
    for executor in ("xla", "interpret"):
        folder = tmp_path / executor
        ctx = reinforce(3, hidden=(4,), checkpoint=str(folder))
        program = ctx.compile(bounds, trl.Options(executor=executor))
        result = program.execute(seed=5)
        files = sorted(folder.iterdir())
        assert [p.name for p in files] == ["i=19.safetensors", "i=9.safetensors"]
        saved.append({f"{p.name} {k}": x for p in files for k, x in load(p).items()})
        if executor == "xla":
            assert "checkpoint (it writes a file), on the host" in program.executable.how
            # the start, two calls per iteration, and for each file a call and the file
            assert result.instructions == 1 + 2 * bounds["I"] + 2 * 2
    for name, value in saved[1].items():
        np.testing.assert_allclose(saved[0][name], value, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.some_of("options", 1)
@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("batched", [False, True])
def test_a_resource_is_used_in_order(batched: bool, options: dict[str, Any]) -> None:
    calls: list[Any] = []
    ctx = counting(batched, calls)
    reference = Reference(ctx.pdg(), BOUNDS, seed=5)
    want = reference.outputs()
    assert_same(want, compiled(ctx, BOUNDS, **options).execute(seed=5), "run")
    assert calls == [(point, x.item()) for _, point, (x,) in reference.calls()]
    used = Counters.made[-1]
    assert used.closed
    for instance in range(3):
        mine = [name for name, at in used.log if at in ((instance,), (slice(None),))]
        assert mine == ["reset", *["step"] * 4] * 2


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("over", [False, True])
def test_host_functions_end_a_dimension(over: bool) -> None:
    lengths: list[int] = []

    def median(x: np.ndarray) -> np.ndarray:
        lengths.append(len(x))
        return np.median(x).astype(np.float32)

    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        counters = trl.Resource(lambda sizes, seed: [0], instances=(), name="counter")
        x = trl.tensor((), domain=(i, t))

        def count(state: list[int], at: Any, x: np.ndarray) -> Any:
            state[0] += 1
            return np.float32(np.tanh(x + state[0])), np.bool_(state[0] % 3 == 0)

        x[i, 0] = trl.random.normal((), domain=(i,))
        made, done = trl.udf(count, x * 0.5, out=["f32", "bool"], resource=counters)
        x[i, t + 1] = made
        whole = x[i, 0:T] if over else x[i, 0 : t + 1]
        ctx.output("y", trl.udf(median, whole.sin() * 2.0, out="f32") * 2.0)
        ctx.output("x", x)
    program = compiled(ctx, {"I": 3, "T": trl.until(done, at_most=7)})
    result = program.execute(seed=5)
    seen = sorted(lengths)
    lengths.clear()
    want = interpreted(program)
    np.testing.assert_array_equal(result.lengths["T"], want.lengths["T"])
    assert set(want.lengths["T"]) == {3} and seen == sorted(lengths)
    assert_same(dict(want), dict(result), "lowered")


@pytest.mark.usefixtures("whatever_it_gains")
def test_what_may_not_be_made_is_there_in_later_calls_of_its_turn() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(np.array([0.3, 0.2, 0.1], np.float32), domain=(t,))
        start = trl.udf(lambda x: np.tanh(x) * np.float32(0.5), x, out=x)
        y = trl.tensor((), domain=(t,))
        y[0] = start[0]
        y[t + 1] = trl.udf(np.tanh, y * 0.5 + start, out=x)
        ctx.output("y", y.sin())
        done = (trl.random.uniform((), domain=(t,)) < 0.1) & (trl.value(t) < 0)
    program = compiled(ctx, {T: trl.until(done, at_most=2)})
    assert "if t < T:" in str(program.executable)
    assert_same(dict(interpreted(program)), program.execute(seed=5), "lowered")


@pytest.mark.usefixtures("whatever_it_gains")
def test_turns_are_those_of_the_loop_that_there_is() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.data(np.array([[0.3], [0.2], [0.1]], np.float32), domain=(i, t))
        y = trl.tensor((), domain=(i, t))
        y[0, t] = x[0, t]
        y[i + 1, t] = trl.udf(np.tanh, y * 0.5 + x, out=x)
        ctx.output("y", y.sin())
    program = compiled(ctx, {I: 3, T: 1}, vectorize=False)
    assert_same(dict(interpreted(program)), program.execute(seed=5), "lowered")


@pytest.mark.usefixtures("whatever_it_gains")
def test_what_the_first_turn_makes_ahead_of_its_loop_reaches_it() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(np.array([0.3, 0.2], np.float32), domain=(t,))
        y = trl.tensor((), domain=(t,))
        y[0] = x[0]
        y[t + 1] = trl.udf(np.tanh, y * 0.5 + x, out=x)
        trl.udf(lambda point, x: None, x, out=[], where=t % 2 == 0, name="see")
        ctx.output("tanh", x.tanh())
        ctx.output("y", y.sin())
    program = compiled(ctx, {T: 2})
    assert_same(dict(interpreted(program)), program.execute(seed=5), "lowered")


@pytest.mark.usefixtures("whatever_it_gains")
def test_a_function_that_fails_leaves_nothing_behind() -> None:
    made: list[Any] = []

    class Shop:
        def __init__(self, sizes: Any, seed: int) -> None:
            self.closed = False
            made.append(self)

        def close(self) -> None:
            self.closed = True

    def buy(shop: Shop, at: Any, x: np.ndarray) -> np.ndarray:
        if x > 1.5:
            raise KeyError("lost")
        return x

    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        shop = trl.Resource(Shop, name="shop")
        x = trl.value(t).cast("f32") * 1.0
        ctx.output("y", trl.udf(buy, x, out="f32", resource=shop).tanh())
    program = compiled(ctx, {T: 4})
    for _ in range(2):
        with pytest.raises(errors.ExecutionError, match="raised KeyError at t = 2") as caught:
            program.execute()
        assert "trl.udf(buy, x" in str(caught.value) and made[-1].closed
    assert len(made) == 2


def test_a_loop_of_no_loops_is_one_call() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("y", trl.random.normal(domain=(t,)).tanh().named("y"))
    program = compiled(ctx, {"T": 5}, vectorize=False)
    lines = str(program.executable).splitlines()
    assert lines[:3] == ["call 1, once:", "  for t in range(0, 5):", "    y(t)"]
    assert program.execute().instructions == 1


def test_where_hardly_anything_lies_between_the_interpreter_runs() -> None:
    program = counting(True).compile(BOUNDS, trl.Options(executor="xla"))
    assert program.executable.xla_program is None
    how = program.executable.how
    assert "run on the host, and between them there is no loop and no pair of operations" in how
