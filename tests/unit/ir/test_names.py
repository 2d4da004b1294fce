"""Names: taken from the user's program, unique, and equal in every compilation."""

from __future__ import annotations

import re

import pytest

import timerl_nb as trl
from timerl_nb.show import InspectorView, LoopView, graph_view


def monte_carlo() -> trl.Context:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4]).build()
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn.sample(o)
        o[b, i, t + 1], r, _ = env.step(a)
        g = r[b, i, t:T].discounted_sum(0.95)
        loss = -dnn.log_prob(a) * g
        loss.mean(over=(b, t)).backward()
        trl.optim.Adam(dnn.params, lr=1e-3).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
    return ctx


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return monte_carlo().compile({"B": 3, "I": 4, "T": 6})


def test_variables_name_tensors_that_have_no_name(program: trl.Program) -> None:
    labels = {op.label for op in program.pdg}
    assert {"o", "a", "r", "g", "loss", "return", "trunk.0.weight"} <= labels
    assert not {"b", "t", "dnn", "env"} & labels


def test_results_of_a_step_without_a_variable_are_named_after_the_step(
    program: trl.Program,
) -> None:
    labels = [op.label for op in program.pdg]
    assert {"step.terminated", "step.truncated", "next_angle"} <= set(labels)
    assert "step.reward" not in labels and labels.count("r") == 1  # the variable has priority

    with trl.Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1", autoreset="same_step")
        o = trl.like(env.obs_space, domain=(b, t))
        o[b, 0] = env.reset(domain=b)
        step = env.step(trl.random.randint(2, domain=(b, t)))
        o[b, t + 1] = step.obs
        memory = trl.replay.window(5, over=t, steps=2)
        rewards = memory.ends(memory.returns(step, 0.9)[0], memory.draw(3, domain=(b, t)))
        ctx.output("mean", rewards.mean(axis=0).mean(over=b))
    named = {op.label for op in ctx.compile({"B": 2, "T": 8}).pdg}
    assert {"step.reward", "step.done", "n_step_reward", "positions"} <= named


def test_a_default_name_of_a_discarded_operation_names_no_later_one() -> None:
    with trl.Context("t") as ctx:
        x = trl.data([1.0, 2.0], domain=ctx.dims[0][:1])
        with pytest.raises(ZeroDivisionError), ctx.attempt():
            ctx.label_by_default("lost", x + 1.0)
            raise ZeroDivisionError
        ctx.output("y", (x * 2.0) + 3.0)
    assert "lost" not in {op.label for op in ctx.compile({"T": 2}).pdg}


def test_a_name_of_its_own_is_kept() -> None:
    with trl.Context("t") as ctx:
        x = trl.data([1.0, 2.0], domain=ctx.dims[0][:1]).named("mine")
        ctx.output("y", x * 2)
    assert {op.label for op in ctx.compile({"T": 2}).pdg} >= {"mine", "y"} and x.name == "mine"


def test_kernels_are_called_as_what_wrote_them(program: trl.Program) -> None:
    assert set(program.schedule.statements) == {"init", "reset", "sample+step", "backward+update"}
    assert str(program.ast).startswith("init()\nfor i in range(0, 4):\n  reset(i)\n  for t in")
    assert str(LoopView.from_program(program)) == str(program.ast)


def test_every_tensor_has_a_name_of_its_own_that_says_what_it_is(program: trl.Program) -> None:
    names = [*program.memory.names.values()]
    assert len(set(names)) == len(names)
    assert {"a", "r", "r.sum", "return", "o.init", "trunk.0.weight'", "state'[:]"} <= set(names)
    shown = (program.schedule, program.memory, program.ast, program.executable)
    for text in [*names, *map(str, shown)]:
        assert not re.search(r"%\d|\bc\d\b", text)


@pytest.mark.parametrize("off", ["fuse", "vectorize", "lift", "donate"])
def test_names_are_unique_and_stay_in_variants(program: trl.Program, off: str) -> None:
    other = program.with_options(**{off: False})
    statements, tensors = other.schedule.names, other.memory.names
    assert len(set(statements.values())) == len(statements)
    assert len(set(tensors.values())) == len(tensors)
    assert {"a", "r", "return", "trunk.0.weight'"} <= set(tensors.values())


def test_names_are_those_of_another_compilation(program: trl.Program) -> None:
    again = monte_carlo().compile({"B": 2, "I": 2, "T": 9})
    assert [*again.schedule.names.values()] == [*program.schedule.names.values()]
    assert [*again.memory.names.values()] == [*program.memory.names.values()]


def test_the_inspector_and_the_graph_name_what_a_kernel_makes(program: trl.Program) -> None:
    kernel = program.schedule.statements["sample+step"]
    (found,) = InspectorView.from_program(program, [kernel.id]).to_json()["ops"]
    made = [out["name"] for out in found["outputs"]]
    stores = {store["name"] for store in found["stores"]}
    assert {"logits", "a", "state'", "r", "r.sum"} <= set(made) and stores == set(made)
    assert found["name"] == "sample+step"
    assert {"o", "alive", "trunk.0.weight"} <= {one["name"] for one in found["reads"]}
    view = graph_view(program.fused)
    (node,) = (node for node in view.nodes if node.op_ids[0] == kernel.id)
    assert [value.name for value in node.values] == made


def test_sums_of_one_value_keep_their_own_names() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.random.normal((4,), domain=(i, t)).named("x")
        ctx.output("rows", x.sum(over=t).named("rows"))
        ctx.output("columns", x.sum(over=i).named("columns"))
        ctx.output("all", x.sum(over=(i, t)).named("all"))
    program = ctx.compile({I: 3, T: 5}, trl.Options(vectorize=False))
    names = [*program.memory.names.values()]
    assert len(set(names)) == len(names)
    assert {"rows.sum", "columns.sum", "all.sum"} <= {*names}


def test_a_sum_in_a_kernel_is_called_as_the_user_did() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        total = trl.value(t).cast("float32").exp().sum(over=t)
        ctx.output("total", total)
    program = ctx.compile({T: 5}, trl.Options(vectorize=False))
    assert "total" in {*program.memory.names.values()} and "total(t)" in str(program.ast)
