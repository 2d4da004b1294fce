"""DQN, DDPG, TD3 and SAC in window form: parts compared with loops, runs with the reference, and learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from benchmarks.training.off_policy import tenths
from tests.algorithm_pages import assert_page_shows_loops
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.off_policy_actions import scale_actions
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import SampledTransitions

XLA = trl.Options(executor="xla")
GAMMA = 0.9


def played(steps: int) -> dict[str, np.ndarray]:
    """Short episodes of random actions; returns each step, and the n-step transition that ends there."""
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        env = trl.env.make("CartPole-v1", autoreset="same_step", max_steps=13)
        o = trl.like(env.obs_space, domain=(b, t))
        o[b, 0] = env.reset(domain=(b,))
        a = (trl.random.uniform((), domain=(b, t)) < 0.5).cast("i32")
        step = env.step(a)
        o[b, t + 1] = step.obs
        reward = trl.random.uniform((), domain=(b, t))
        step = trl.env.Step(
            step.obs, reward, step.terminated, step.truncated, step.alive, step.final_obs
        )
        reward_sum, final_obs, discount = trl.replay.window(50, over=t, steps=steps).returns(
            step, GAMMA
        )
        returns, episodes = episode_returns(step, over=b, along=t)
        made = {"sum": reward_sum, "obs": final_obs, "discount": discount, "reward": reward}
        made |= {"terminated": step.terminated, "done": step.done, "final": step.final_obs}
        made |= {"returns": returns, "episodes": episodes}
        for name, x in made.items():
            ctx.output(name, x)
    return dict(ctx.compile({"B": 3, "T": 60}, XLA).execute(seed=1))


@pytest.mark.parametrize("steps", [1, 3])
def test_returns_of_several_steps_stop_where_episodes_do(steps: int) -> None:
    x = played(steps)
    cut = 0
    for b in range(3):
        for end in range(steps - 1, 60):
            first, total, k = end - steps + 1, 0.0, 0
            for k in range(steps):
                total += GAMMA**k * x["reward"][b, first + k]
                if x["done"][b, first + k]:
                    break
            last = first + k
            discount = 0.0 if x["terminated"][b, last] else GAMMA ** (k + 1)
            assert x["sum"][b, end] == pytest.approx(total, rel=1e-5)
            assert x["discount"][b, end] == pytest.approx(discount, rel=1e-5)
            np.testing.assert_array_equal(x["obs"][b, end], x["final"][b, last])
            cut += last < end or x["terminated"][b, last] != x["done"][b, last]
    assert cut > 5, "some stop early, or are cut off"
    sums = np.zeros(3)
    for t in range(60):
        sums += x["reward"][:, t]
        ended = x["done"][:, t]
        assert x["episodes"][t] == ended.sum()
        assert x["returns"][t] == pytest.approx(sums[ended].mean() if ended.any() else 0, rel=1e-5)
        sums[ended] = 0


def test_targets_follow_networks() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        nets = [trl.nn.Linear(2, 3, domain=(t,), name=name) for name in ("hard", "soft")]
        targets = [Target(net) for net in nets]
        x = trl.random.normal((2,), domain=(t,))
        for k, (net, target) in enumerate(zip(nets, targets, strict=True)):
            (net(x) - target.network(x) - 1.0).square().sum().backward()
            trl.optim.SGD(net.params, lr=0.1).step()
            [target.hard_update, target.soft_update][k]([3, 0.25][k])
            ctx.output(f"net {k}", net.params[0])
            ctx.output(f"target {k}", target.network.weight)
    found = ctx.compile({"T": 11}, XLA).execute(seed=2)
    hard, soft = (found[f"target {k}"] for k in range(2))
    np.testing.assert_array_equal(hard[0], found["net 0"][0])
    np.testing.assert_array_equal(soft[0], found["net 1"][0])
    for k in range(10):
        taken = found["net 0"][k + 1] if (k + 1) % 3 == 0 else hard[k]
        np.testing.assert_array_equal(hard[k + 1], taken)
        want = soft[k] + 0.25 * (found["net 1"][k + 1] - soft[k])
        np.testing.assert_allclose(soft[k + 1], want, rtol=1e-6)
    assert (hard[10] != hard[0]).any() and (soft[10] != soft[0]).all()


@pytest.mark.parametrize("alpha", [None, 0.7])
def test_what_is_remembered_is_from_the_window(alpha: float | None) -> None:
    """With priorities, entries are drawn in proportion to their errors."""
    length, steps, T, count = 5, 2, 40, 400
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        memory = trl.replay.window(length, over=t, steps=steps)
        past = SampledTransitions(memory, count, domain=(b, t), alpha=alpha, beta=1.0)
        when = past.starts(trl.value(t) * 2 + trl.value(b) * 0)
        ctx.output("when", when // 2)
        ctx.output("weight", trl.zeros(()) + past.weight + trl.value(t).floating() * 0.0)
        past.update((when // 2 % 4 == 0).floating() * 7.0 + 1.0)  # the errors of some are 8
    found = ctx.compile({"B": 2, "T": T}, XLA).execute(seed=5)
    for k in range(10, T):
        there = range(k - steps + 1 - length + 1, k - steps + 2)
        assert set(np.unique(found["when"][:, k])) <= {*there}
        if alpha is None:
            assert set(np.unique(found["when"][:, k])) == {*there}
    if alpha is None:
        assert (found["weight"] == 1.0).all()
        return
    # a new entry has the maximal error so far; the errors of others are known
    when, k = found["when"][:, 30:], np.arange(30, T)[:, None]
    known = when < k - steps + 1
    wrong = (when % 4 == 0) & known
    right = (when % 4 != 0) & known
    share = wrong.sum() / right.sum()
    counts = np.array([[w % 4 == 0 for w in range(j - 5, j - 1)] for j in range(30, T)])
    want = (counts.mean() * 8.001**alpha) / ((1 - counts.mean()) * 1.001**alpha)
    assert share == pytest.approx(want, rel=0.1)
    np.testing.assert_allclose(found["weight"][:, 30:].max(), 1.0, rtol=1e-5)


class Plane(trl.env.Environment):
    """Observations [2, 3] of bytes, and actions [2, 2] in a box."""

    obs_space, act_space = trl.env.Box(0, 1, (2, 3), "u8"), trl.env.Box(-1.0, 1.0, (2, 2))
    max_steps = 3

    def first_state(self, domain: Any) -> Any:
        return trl.random.randint(0, 2, (2, 3), domain=domain)

    def observe(self, state: Any) -> Any:
        return state.cast("u8")

    def transition(self, state: Any, action: Any) -> Any:
        return 1 - state, action.sum(axis=(-1, -2)), trl.constant(False)


class Unbounded(Plane):
    act_space = trl.env.Box(-1.0, float("inf"), (2, 2))


def test_each_element_of_an_action_has_its_bounds() -> None:
    box = trl.env.Box([[0.0, -2.0], [1.0, 5.0]], [[1.0, 2.0], [1.0, 9.0]], (2, 2))
    assert box == trl.env.Box(np.array(box.low), np.array(box.high), (2, 2))
    assert trl.env.Box([3.0, 3.0], 4.0, (2,)).low == 3.0
    with pytest.raises(trl.errors.ShapeError, match="does not match the shape"):
        trl.env.Box([1.0, 2.0, 3.0], 4.0, (2,))
    with trl.Context() as ctx:
        for name, x in {"low": -1.0, "middle": 0.0, "high": 1.0}.items():
            ctx.output(name, scale_actions(trl.constant(np.full(4, x, np.float32)), box))
    found = ctx.compile({}, trl.Options(executor="interpret")).execute(progress=False)
    np.testing.assert_array_equal(found["low"], box.low)
    np.testing.assert_array_equal(found["middle"], [[0.5, 0.0], [1.0, 7.0]])
    np.testing.assert_array_equal(found["high"], box.high)


@pytest.mark.parametrize("name", ["ddpg", "td3"])
def test_observations_have_any_shape(name: str) -> None:
    ctx = getattr(trl.algorithms, name)(Plane(autoreset="same_step"), hidden=(4,), buffer_size=3)
    assert ctx.pdg()


@pytest.mark.some_of("options", 2)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dqn", {"steps": 2, "alpha": 0.6, "scale": (1.0, 0.5, 4.0, 0.5)}),
        ("dqn", {"dueling": True, "hidden": ()}),
        ("dqn", {"dueling": True, "hidden": (4, 3), "double": False}),
        ("dqn", {"atoms": 5, "support": (0, 9), "dueling": True, "steps": 2, "alpha": 0.6}),
        ("ddpg", {"noise_correlation": 0.5, "env": "MountainCarContinuous-v0"}),
        ("td3", {"env": "MountainCarContinuous-v0"}),
        ("sac", {"env": "MountainCarContinuous-v0", "steps": 2, "repeat_probability": 0.5}),
    ],
    ids=str,
)
def test_algorithms_are_what_the_reference_says(name: str, options: dict[str, Any]) -> None:
    if options.get("env") == "plane":
        options = {**options, "env": Plane(autoreset="same_step")}
    small = {"hidden": (4,), "buffer_size": 3, "batch": 2, "learning_starts": 1, **options}
    ctx, bounds = getattr(trl.algorithms, name)(**small), {"B": 2, "T": 4}
    program = ctx.compile(bounds, XLA)
    lowered = program.executable.xla_program
    assert lowered is not None and len(lowered.calls) == 1
    result = program.execute(seed=3)
    want = Reference(ctx.pdg(), program.bounds, 3)
    assert_same(want.outputs(), result, name)
    assert_same(want.outputs("parameter"), result.parameters, "parameters")


@pytest.mark.parametrize(("name", "lr"), [("ddpg", (1e-3, 1e-3)), ("dqn", 1e-3)])
def test_adam_starts_with_the_first_update(name: str, lr: Any) -> None:
    """Adam's first step has the size of the rate. Moments of gradients before `learning_starts` would change it."""
    starts = 3
    small = {"hidden": (4,), "buffer_size": 3, "batch": 2, "steps": 1, "lr": lr}
    small["learning_starts"] = starts
    ctx = getattr(trl.algorithms, name)(**small)
    before, after = (
        ctx.compile({"B": 2, "T": T}, trl.Options(executor="interpret")).execute(seed=3).parameters
        for T in (starts, starts + 1)
    )
    rate = 1e-3 / (starts + 1)  # decreases linearly from 1e-3
    for key, p in after.items():
        np.testing.assert_allclose(abs(p - before[key]), rate, rtol=1e-3, err_msg=key)


@pytest.mark.parametrize("name", ["ddpg", "dqn", "r2d2", "sac", "td3"])
def test_pages_show_the_loops(name: str) -> None:
    bounds = {"B": 2, "I": 40, "T": 10} if name == "r2d2" else {"B": 2, "T": 40}
    program = getattr(trl.algorithms, name)(hidden=()).compile(bounds, XLA)
    assert_page_shows_loops(name, program)


def test_replayed_sequences_are_what_the_reference_says() -> None:
    env = trl.env.make("TMaze", length=1, max_steps=5, autoreset="same_step")
    small: dict[str, Any] = {
        "hidden": (3,),
        "state_size": 3,
        "buffer_size": 2,
        "batch": 2,
        "burn_in": 2,
    }
    ctx = trl.algorithms.r2d2(env, **small, steps=3, alpha=0.6, learning_starts=1, target_every=2)
    program = ctx.compile({"B": 2, "I": 4, "T": 3}, XLA)
    result = program.execute(seed=3, progress=False)
    want = Reference(ctx.pdg(), program.bounds, 3)
    assert_same(want.outputs(), result, "r2d2")
    assert_same(want.outputs("parameter"), result.parameters, "parameters")
    assert result["loss"][1:].all() and result["episodes"].all()
    most = max(store.most for store in program.memory.stores.values())
    assert most == (2 + 1) * 3 + 1, "two sequences, the one before them, and an observation"


def test_memory_is_that_of_the_window() -> None:
    """Except for outputs, memory does not depend on T."""
    ctx = trl.algorithms.dqn(hidden=(8,), buffer_size=60, batch=2, steps=3, alpha=0.6)
    found = dict[int, Any]()
    for T in (70, 500):
        program = ctx.compile({"B": 2, "T": T}, XLA)
        lowered = program.executable.xla_program
        assert lowered is not None and len(lowered.calls) == 1
        stores = [s for s in program.memory.stores.values() if s.kind != "slot"]
        returned = [s for s in stores if s.kind == "point"]
        assert len(returned) == 3 and all(s.most == T for s in returned)
        rings = {s.size for s in stores if s.kind == "ring"}
        assert rings == {2, 3, 60, 62}, rings  # rows: end and start states
        found[T] = lowered.layout.nbytes - sum(s.most * s.nbytes for s in returned)
    assert found[70] == found[500]


def test_returns_are_those_of_the_episodes_that_ended_in_each_tenth() -> None:
    returns, episodes = np.arange(20.0), np.zeros(20, np.int32)
    episodes[[0, 1, 19]] = 3, 1, 2
    found = tenths(returns, episodes)
    assert (found[0], found[9]) == (0.25, 19.0) and np.isnan(found[1:9]).all()


def test_dqn_learns_to_balance() -> None:
    how = {
        "steps": 10,
        "batch": 8,
        "lr": 2e-3,
        "epsilon": (1.0, 0.01, 1000),
        "learning_starts": 100,
    }
    program = trl.algorithms.dqn(**how).compile({"B": 8, "T": 1800}, XLA)
    found = program.execute(seed=0)

    def mean(part: slice) -> float:
        episodes = found["episodes"][part]
        return float((found["return"][part] * episodes).sum() / episodes.sum())

    first, last = mean(slice(0, 300)), mean(slice(1400, 1800))
    assert first < 40 and last > 80, (first, last)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: trl.algorithms.dqn("Pendulum-v1"), "DQN needs discrete actions"),
        (lambda: trl.algorithms.r2d2("Pendulum-v1"), "R2D2 needs discrete actions"),
        (lambda: trl.algorithms.ddpg("CartPole-v1"), "DDPG needs actions in a Box"),
        (lambda: trl.algorithms.td3("CartPole-v1"), "TD3 needs actions in a Box"),
        (lambda: trl.algorithms.sac("CartPole-v1"), "SAC needs actions in a Box"),
        (lambda: trl.algorithms.dqn(trl.env.make("CartPole-v1")), "resets in the same step"),
        (
            lambda: trl.algorithms.sac(Unbounded(autoreset="same_step")),
            "needs actions between two bounds",
        ),
    ],
)
def test_environments_that_do_not_fit(wrong: Any, message: str) -> None:
    with pytest.raises(trl.errors.EnvError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("write", "given", "message"),
    [
        (trl.algorithms.dqn, {"epsilon": (1, 0)}, r"epsilon must be 3 numbers, not \(1, 0\)"),
        (
            trl.algorithms.dqn,
            {"epsilon": (1, 0, 0)},
            r"epsilon\[2\] must be a number of at least 1",
        ),
        (
            trl.algorithms.dqn,
            {"gamma": float("nan")},
            "gamma must be a number from 0 to 1, not nan",
        ),
        (trl.algorithms.dqn, {"atoms": 1}, "atoms must be an integer of at least 2"),
        (trl.algorithms.dqn, {"atoms": 5, "support": (1, 1)}, "its ends are 1 and 1"),
        (trl.algorithms.ddpg, {"lr": 1e-3}, "lr must be 2 numbers, not 0.001"),
        (trl.algorithms.ddpg, {"noise": (1, -1, 5)}, r"noise\[1\] must be a number of at least 0"),
        (
            trl.algorithms.ddpg,
            {"noise_correlation": 2},
            "noise_correlation must be a number from 0 to 1",
        ),
        (
            trl.algorithms.r2d2,
            {"learning_starts": 0},
            "learning_starts must be an integer of at least 1",
        ),
        (trl.algorithms.r2d2, {"eta": 2}, "eta must be a number from 0 to 1"),
        (trl.algorithms.td3, {"target_noise": 0.2}, "target_noise must be 2 numbers"),
        (trl.algorithms.td3, {"delay": 0}, "delay must be an integer"),
        (trl.algorithms.sac, {"target_entropy": "auto"}, "target_entropy must be a number"),
    ],
)
def test_numbers_that_do_not_fit(write: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(trl.errors.ShapeError, match=message):
        write(**given)


def test_a_scale_is_a_number_for_each_observation() -> None:
    with pytest.raises(trl.errors.ShapeError, match="scale must be 2 numbers"):
        trl.algorithms.dqn("MountainCar-v0", scale=(15.0,))
