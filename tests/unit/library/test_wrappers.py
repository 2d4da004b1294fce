"""Wrappers of environments: equal to Gymnasium's, step by step, and to twins in NumPy."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector
from gymnasium.wrappers.utils import RunningMeanStd

import timerl_nb as trl
from tests.unit.library.test_evaluation import Remembering, played
from tests.unit.library.test_policy_slices import CARTPOLE, Writing, by_hand
from timerl_nb.env import (
    ClipReward,
    FrameStackObservation,
    NormalizeObservation,
    NormalizeReward,
    RepeatAction,
    TimeLimit,
)
from timerl_nb.runtime.jax_backend import graph_function

NAMES = ("obs", "reward", "terminated", "truncated", "alive", "final_obs")
B, I, T = 3, 2, 7


class Line(trl.env.Environment):
    """Walk by the action minus 1 on a line; the reward is the place, and 3 ends an episode."""

    obs_space, act_space = trl.env.Box(-9.0, 9.0, (2,)), trl.env.Discrete(3)

    def first_state(self, domain: Any) -> Any:
        return trl.random.uniform((), -1.0, 1.0, domain=domain)

    def observe(self, state: Any) -> Any:
        return trl.stack([state, 2.0 * state + 1.0], -1)

    def transition(self, state: Any, action: Any) -> Any:
        state = state + (action - 1).floating()
        return state, state, abs(state) > 3.0


def draw_actions(*shape: int, p: Any = (0.1, 0.2, 0.7)) -> np.ndarray:
    return np.random.default_rng(0).choice(3, shape, p=p).astype(np.int32)


def play(
    env: Any, actions: np.ndarray, *, continues: bool = False, executor: str = "interpret"
) -> dict[str, np.ndarray]:
    """Results of given actions [B, I, T], and the observations before them."""
    with trl.Context("v", "i", "t") as ctx:
        (v, V), (i, I), (t, T) = ctx.dims
        o = trl.like(env.obs_space, domain=(v, i, t))
        if continues:
            o[v, 0, 0] = env.reset(domain=(v,))
        else:
            o[v, i, 0] = env.reset(domain=(v, i))
        step = env.step(trl.data(actions, domain=(v, i, t)))
        o[v, i, t + 1] = step.obs
        if continues:
            o[v, i + 1, 0] = step.obs[v, i, T - 1]
        ctx.output("o", o)
        for name in NAMES:
            ctx.output(name, getattr(step, name))
    bounds = dict(zip("VIT", actions.shape, strict=True))
    options = trl.Options(executor=executor)
    return dict(ctx.compile(bounds, options, tell=False).execute(seed=1, progress=False))


class Replayed(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Gymnasium vector environment that returns given results."""

    def __init__(self, found: dict[str, np.ndarray], mode: AutoresetMode) -> None:
        self.metadata = {"autoreset_mode": mode}
        self.num_envs = len(found["o"])
        box = gymnasium.spaces.Box(-np.inf, np.inf, found["o"].shape[3:])
        self.single_observation_space = box
        self.observation_space = gymnasium.vector.utils.batch_space(box, self.num_envs)
        self.single_action_space = gymnasium.spaces.Discrete(3)
        self.action_space = gymnasium.vector.utils.batch_space(
            self.single_action_space, self.num_envs
        )
        self._found, self._first = found, found["o"][:, 0, 0]
        self._steps = {n: found[n].reshape(self.num_envs, -1, *found[n].shape[3:]) for n in NAMES}
        self._at = -1

    def reset(self, **_: Any) -> Any:
        return self._first, {}

    def step(self, actions: Any) -> Any:
        self._at += 1
        return *(self._steps[n][:, self._at] for n in NAMES[:4]), {}


MODES = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_observations_are_normalised_as_by_gymnasium(executor: str) -> None:
    actions = draw_actions(B, I, T)
    env = Line(autoreset="next_step", max_steps=5)
    raw = play(env, actions, continues=True)
    assert raw["truncated"].any() and raw["terminated"].any() and not raw["alive"].all()
    theirs = vector.NormalizeObservation(Replayed(raw, AutoresetMode.NEXT_STEP))
    found = play(NormalizeObservation(Line(autoreset="next_step", max_steps=5)), actions,
                 continues=True, executor=executor)  # fmt: skip
    np.testing.assert_allclose(found["o"][:, 0, 0], theirs.reset()[0], rtol=2e-4, atol=2e-5)
    for k in range(I * T):
        seen, *_ = theirs.step(None)
        np.testing.assert_allclose(found["obs"][:, k // T, k % T], seen, rtol=2e-4, atol=2e-5)
    for name in NAMES[1:5]:
        np.testing.assert_array_equal(found[name], raw[name])


@pytest.mark.parametrize("mode", [None, "same_step"])
def test_statistics_of_observations_are_those_of_a_twin(mode: Any) -> None:
    actions = draw_actions(B, I, T)
    raw = play(Line(autoreset=mode, max_steps=5), actions)
    found = play(NormalizeObservation(Line(autoreset=mode, max_steps=5)), actions)
    moments = RunningMeanStd(shape=(2,))

    def normalize(x: np.ndarray) -> np.ndarray:
        return (x - moments.mean) / np.sqrt(moments.var + 1e-8)

    for i in range(I):
        moments.update(raw["o"][:, i, 0])
        np.testing.assert_allclose(found["o"][:, i, 0], normalize(raw["o"][:, i, 0]), rtol=1e-4)
        for t in range(T):
            new = raw["obs"][raw["alive"][:, i, t], i, t]
            if len(new):
                moments.update(new)
            for name in ("obs", "final_obs"):
                want = normalize(raw[name][:, i, t])
                np.testing.assert_allclose(found[name][:, i, t], want, rtol=2e-4, atol=2e-5)
    assert (raw["obs"] != raw["final_obs"]).any() == (mode is not None)


@pytest.mark.parametrize(
    ("mode", "executor"), [("next_step", "xla"), ("next_step", "interpret"), ("same_step", "xla")]
)
def test_rewards_are_normalised_as_by_gymnasium(mode: Any, executor: str) -> None:
    actions = draw_actions(B, I, T)
    raw = play(Line(autoreset=mode, max_steps=5), actions, continues=True)
    theirs = vector.NormalizeReward(Replayed(raw, MODES[mode]), gamma=0.9)
    env = NormalizeReward(Line(autoreset=mode, max_steps=5), gamma=0.9)
    found = play(env, actions, continues=True, executor=executor)
    theirs.reset()
    for k in range(I * T):
        _, reward, *_ = theirs.step(None)
        np.testing.assert_allclose(found["reward"][:, k // T, k % T], reward, rtol=2e-4, atol=1e-6)
    np.testing.assert_array_equal(found["obs"], raw["obs"])


def test_rewards_of_ended_episodes_do_not_count() -> None:
    actions = draw_actions(B, I, T)
    raw, found = (play(f(Line(max_steps=5)), actions) for f in (lambda x: x, NormalizeReward))
    moments = RunningMeanStd(shape=())
    for i in range(I):
        total = np.zeros(B)
        for t in range(T):
            alive = raw["alive"][:, i, t]
            total[alive] = (total * 0.99 * ~raw["terminated"][:, i, t] + raw["reward"][:, i, t])[
                alive
            ]
            if alive.any():
                moments.update(total[alive])
            want = raw["reward"][:, i, t] / np.sqrt(moments.var + 1e-8)
            np.testing.assert_allclose(found["reward"][:, i, t], want, rtol=2e-4, atol=1e-6)
    assert not raw["alive"].all()


class GymLine(gymnasium.Env[Any, Any]):
    """`Line` as a Gymnasium environment, which begins at a given place."""

    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (2,))
    action_space = gymnasium.spaces.Discrete(3)
    place = 0.0

    def reset(self, **options: Any) -> Any:
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.place += int(action) - 1
        return self._seen(), self.place, abs(self.place) > 3.0, False, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.place, 2.0 * self.place + 1.0], np.float32)


theirs = gymnasium.wrappers
ORDERS: dict[str, tuple[Any, Any]] = {
    "stack": (
        lambda **options: FrameStackObservation(Line(max_steps=5, **options), 3),
        lambda env: theirs.FrameStackObservation(theirs.TimeLimit(env, 5), 3),
    ),
    "stack of one, padded": (
        lambda **options: FrameStackObservation(
            Line(max_steps=5, **options), 1, padding_type="zero"
        ),
        lambda env: theirs.FrameStackObservation(theirs.TimeLimit(env, 5), 1, padding_type="zero"),
    ),
    "stack of repeated actions": (
        lambda **options: FrameStackObservation(
            RepeatAction(TimeLimit(Line(**options), 5), 2), 3, padding_type="zero"
        ),
        lambda env: theirs.FrameStackObservation(
            theirs.RepeatAction(theirs.TimeLimit(env, 5), 2), 3, padding_type="zero"
        ),
    ),
    "repeated actions of a stack": (
        lambda **options: RepeatAction(FrameStackObservation(Line(max_steps=6, **options), 3), 2),
        lambda env: theirs.RepeatAction(
            theirs.FrameStackObservation(theirs.TimeLimit(env, 6), 3), 2
        ),
    ),
    "two limits": (
        lambda **options: TimeLimit(RepeatAction(Line(max_steps=9, **options), 2), 3),
        lambda env: theirs.TimeLimit(theirs.RepeatAction(theirs.TimeLimit(env, 9), 2), 3),
    ),
    "a limit above the repeated actions": (
        lambda **options: TimeLimit(RepeatAction(Line(max_steps=7, **options), 3), 9),
        lambda env: theirs.TimeLimit(theirs.RepeatAction(theirs.TimeLimit(env, 7), 3), 9),
    ),
    "clipped": (
        lambda **options: ClipReward(RepeatAction(Line(max_steps=8, **options), 3), -1.0, 2.5),
        lambda env: theirs.ClipReward(theirs.RepeatAction(theirs.TimeLimit(env, 8), 3), -1.0, 2.5),
    ),
}


@pytest.mark.parametrize("mode", [None, "same_step"])
@pytest.mark.parametrize("order", ORDERS)
def test_wrappers_in_any_order_are_gymnasiums(order: str, mode: Any) -> None:
    make, wrap = ORDERS[order]
    actions = draw_actions(4, 1, 9, p=(0.3, 0.2, 0.5))
    found = {n: x[:, 0] for n, x in play(make(autoreset=mode), actions).items()}
    ends = 0
    for k in range(len(actions)):
        inside = GymLine()
        env = wrap(inside)
        begins, first = True, found["o"][k, 0]
        for t, action in enumerate(actions[k, 0]):
            if begins:
                inside.place = float(first.reshape(-1, 2)[-1, 0])
                np.testing.assert_allclose(first, env.reset()[0], rtol=1e-5, atol=1e-6)
            seen, reward, terminated, truncated, _ = env.step(action)
            assert found["alive"][k, t]
            np.testing.assert_allclose(found["final_obs"][k, t], seen, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(found["reward"][k, t], reward, rtol=1e-5)
            assert found["terminated"][k, t] == terminated
            # Gymnasium does not reach the limit if a repetition ends the episode before
            assert found["truncated"][k, t] == truncated or terminated
            begins = terminated or truncated
            ends += begins
            if begins and mode is None:
                assert not found["alive"][k, t + 1 :].any()
                assert (found["obs"][k, t:] == found["obs"][k, t]).all()
                break
            first = found["obs"][k, t]
    assert ends >= 3


# --- policies -------------------------------------------------------------------------------------


def wrapped(env: Any) -> Any:
    return ClipReward(NormalizeReward(NormalizeObservation(env)), -5.0, 5.0)


@pytest.mark.parametrize("continues", [False, True])
def test_an_exported_policy_is_the_trained_one(continues: bool) -> None:
    env = wrapped(trl.env.make("Pendulum-v1", autoreset="same_step" if continues else None))
    with trl.Context("v", "i", "t") as ctx:
        (v, V), (i, I), (t, T) = ctx.dims
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4]).build()
        o = trl.like(env.obs_space, domain=(v, i, t))
        o[v, 0 if continues else i, 0] = env.reset(domain=(v,) if continues else (v, i))
        a = dnn.sample(o)
        step = env.step(a)
        o[v, i, t + 1] = step.obs
        if continues:
            o[v, i + 1, 0] = step.obs[v, i, T - 1]
        (-dnn.log_prob(a) * step.reward).mean(over=(v, t)).backward()
        trl.optim.SGD(dnn.params, lr=0.1).step()
        ctx.output("first", env.raw._shown["obs"])
        ctx.output("raw", env.raw._came["obs"])
        ctx.output("mean", dnn(o).mean)
        ctx.output("o", o)
    result = ctx.compile({V: 3, I: 2, T: 4}).execute(seed=0, progress=False)
    policy = pickle.loads(pickle.dumps(result.policy()))
    moments = RunningMeanStd(shape=(3,))
    for i in range(2):
        if i == 0 or not continues:
            moments.update(result["first"] if continues else result["first"][:, i])
        for t in range(4):
            moments.update(result["raw"][:, i, t])
    assert policy.graph("mode").inputs.keys() == {"obs"} and not policy.graph("mode").state
    np.testing.assert_allclose(
        policy.frozen["observation_mean"], moments.mean, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(policy.frozen["observation_var"], moments.var, rtol=1e-4)
    raw = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    x = (raw - moments.mean) / np.sqrt(moments.var + 1e-8)
    for layer in ("trunk.0", "actor"):
        x = x @ policy.weights[f"{layer}.weight"] + policy.weights[f"{layer}.bias"]
        x = np.tanh(x) if layer == "trunk.0" else x
    np.testing.assert_allclose(policy(raw), x, rtol=1e-3, atol=1e-6)
    returns = [policy.evaluate(one, 2, max_steps=5).returns for one in (env, "Pendulum-v1")]
    np.testing.assert_array_equal(*returns)
    assert (returns[0] < -1.0).all(), "not normalised"


def test_evaluation_in_a_program_has_the_statistics_of_its_iteration() -> None:
    Remembering.firsts = []
    with trl.Context("b", "i", "t") as ctx:
        env = NormalizeObservation(trl.env.make("CartPole-v1", max_steps=40))
        CARTPOLE["mirrored"](Writing(ctx, env))
        ctx.output("evaluation", ctx.evaluate(Remembering(), 4, max_steps=30))
        ctx.output("first", Remembering.firsts[-1])
    program = ctx.compile({"B": 3, "I": 2, "T": 5})
    result = program.execute(seed=5, progress=False)
    assert result["evaluation"].shape == (2, 4)
    policy = result.policy()
    want = [played(state, by_hand(policy), 30) for state in result["first"][-1]]
    np.testing.assert_array_equal(result["evaluation"][-1], want)
    with program.collector(result, envs=2, steps=3, how="step") as collector:
        batch = collector.next().numpy()
    assert (abs(batch.obs[0]) < 0.05).all(), "of the environment inside"
    graph = policy.graph("sample")
    rows = {**graph.inputs, "action": graph.made["action"].source}
    call = graph_function.by_rows(graph.pdg, [graph.made["log_prob"]], rows, graph.given)
    given = {"obs": batch.obs[1], "action": batch.action[1]}
    (log_prob,) = call({**policy.frozen, **policy.weights}, given, 0, 2)
    np.testing.assert_allclose(batch.log_prob[1], log_prob, rtol=1e-4, atol=1e-5)
    with program.collector(envs=2, steps=3, how="step") as begins:
        first = begins.weights
    assert first["observation_mean"].tolist() == [0] * 4
    assert first["observation_var"].tolist() == [1] * 4


def test_a_collector_refuses_wrapped_results_without_their_policy() -> None:
    env = wrapped(trl.env.make("CartPole-v1"))
    with pytest.raises(trl.errors.EnvError, match="changes results in programs only"):
        trl.collect(env, trl.policies.random)
    with trl.collect(env.raw, trl.policies.random, envs=2, steps=3, how="step") as collector:
        assert (abs(collector.next().obs[0]) < 0.05).all()


def test_other_environments_than_equations() -> None:
    env = trl.env.make("gym.CartPole-v1", max_steps=20)
    with pytest.raises(trl.errors.EnvError, match="changes equations, which gym.CartPole-v1 does"):
        FrameStackObservation(env, 2)
    with pytest.raises(trl.errors.EnvError, match="wrap in another order: ClipReward"):
        RepeatAction(ClipReward(Line(), 0.0), 2)
    assert TimeLimit(env, 7).max_steps == 7 and TimeLimit(env, 70).max_steps == 20
    found = play(NormalizeObservation(TimeLimit(env, 4)), draw_actions(2, 1, 5, p=(0.5, 0.5, 0)))
    raw = play(
        TimeLimit(trl.env.make("gym.CartPole-v1"), 4), draw_actions(2, 1, 5, p=(0.5, 0.5, 0))
    )
    assert found["truncated"][:, 0, 3].all() and not found["alive"][:, 0, 4].any()
    x = raw["o"][:, 0, 0]
    np.testing.assert_allclose(
        found["o"][:, 0, 0], (x - x.mean(0)) / np.sqrt(x.var(0) + 5e-5), atol=0.05
    )


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda env: TimeLimit(env, 0), "max_episode_steps must be an integer of at least 1"),
        (lambda env: FrameStackObservation(env, 0), "stack_size must be an integer of at least 1"),
        (
            lambda env: FrameStackObservation(env, 2, padding_type="none"),
            "is not a kind of padding",
        ),
        (lambda env: RepeatAction(env, 1.5), "num_repeats must be an integer of at least 1"),
        (lambda env: ClipReward(env), "both bounds are None"),
        (lambda env: ClipReward(env, 1.0, -1.0), "is greater than max_reward"),
        (lambda env: NormalizeReward(env, gamma=1.5), "gamma must be a number from 0 to 1"),
        (lambda env: NormalizeObservation(env, epsilon=0), "epsilon must be a number of at least"),
        (lambda env: NormalizeObservation("CartPole-v1"), "is not an environment"),
        (lambda env: FrameStackObservation("CartPole-v1", 2), "is not an environment"),
    ],
)
def test_arguments_are_checked(wrap: Any, message: str) -> None:
    with pytest.raises(trl.errors.TimeRLError, match=message):
        wrap(Line())
