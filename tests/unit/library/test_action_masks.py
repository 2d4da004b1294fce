"""Masks of actions shown by an environment: in programs, evaluation, collectors and exported policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timerl_nb as trl


class Forbidding(trl.env.Environment):
    """One of three actions is forbidden, by the state alone; it has the reward -1, the others 1."""

    obs_space, act_space = trl.env.Box(0.0, 1.0, (1,)), trl.env.Discrete(3)
    max_steps = 4

    def first_state(self, domain: Any) -> Any:
        return trl.random.randint(3, domain=domain)

    def observe(self, state: Any) -> Any:
        self.legal = state.one_hot(3) == 0.0
        return (state * 0).floating().reshape((1,))

    def transition(self, state: Any, action: Any) -> Any:
        return (state + 1) % 3, trl.where(action == state, -1.0, 1.0), trl.constant(False)


def program_of(env: Any) -> trl.Context:
    with trl.Context("v", "i", "t") as ctx:
        (v, V), (i, I), (t, T) = ctx.dims
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4], critic=True).build()
        o = trl.like(env.obs_space, domain=(v, i, t))
        mask = trl.tensor((3,), "bool", domain=(v, i, t))
        o[v, i, 0] = env.reset(domain=(v, i))
        mask[v, i, 0] = env.legal
        a = dnn.sample(o, mask=mask)
        step = env.step(a)
        o[v, i, t + 1], mask[v, i, t + 1] = step.obs, env.legal
        step.masked(-dnn.log_prob(a) * step.reward).mean(over=(v, t)).backward()
        trl.optim.SGD([p for p in dnn.params if p.has_grad], lr=0.1).step()
        ctx.output("reward", step.reward)
        ctx.output("evaluation", ctx.evaluate(Forbidding(), 5, sample=True))
    return ctx


@pytest.mark.parametrize("mode", [None, "same_step"])
def test_a_mask_is_kept_by_all(mode: Any) -> None:
    env = Forbidding(autoreset=mode)
    env = trl.env.NormalizeReward(env) if mode is None else trl.env.TimeLimit(env, 4)
    program = program_of(env).compile({"V": 6, "I": 2, "T": 9})
    result = program.execute(seed=0, progress=False)
    assert (result["reward"] >= 0).all() and (result["evaluation"] == 4).all()
    policy = result.policy()
    assert policy.evaluate(Forbidding(), 20, sample=True).returns.tolist() == [4] * 20
    seen, legal = np.zeros((200, 1), np.float32), np.tile([True, False, True], (200, 1))
    drawn = policy(seen, seed=1, legal=legal)
    assert {*drawn.tolist()} == {0, 2}
    with trl.collect(Forbidding(), policy, envs=4, steps=7, how="step") as collector:
        batches = [collector.next().numpy() for _ in range(2)]
    for batch in batches:
        assert (batch.reward == 1).all() and {*batch.action.ravel().tolist()} == {0, 1, 2}
    assert batches[0].truncated.any()


def test_an_environment_without_the_mask_is_refused() -> None:
    result = program_of(Forbidding()).compile({"V": 2, "I": 1, "T": 2}).execute(progress=False)

    class Other(Forbidding):
        def observe(self, state: Any) -> Any:
            return (state * 0).floating().reshape((1,))

    with pytest.raises(
        trl.errors.OptionError, match="reads 'legal', but this environment does not"
    ):
        result.policy().evaluate(Other(), 2)
    with pytest.raises(trl.errors.OptionError, match="input 'legal' is missing"):
        result.policy()(np.zeros(1))


@pytest.mark.parametrize(
    ("name", "bounds", "options"),
    [
        ("reinforce", {"B": 4, "I": 2, "T": 9}, {}),
        ("clipped_ppo", {"B": 4, "I": 3, "T": 8}, {"epochs": 1, "minibatches": 1}),
        (
            "dqn",
            {"B": 2, "T": 60},
            {"buffer_size": 9, "batch": 2, "learning_starts": 5, "epsilon": (1.0, 0.5, 60)},
        ),
        (
            "r2d2",
            {"B": 2, "I": 8, "T": 8},
            {"buffer_size": 9, "batch": 2, "learning_starts": 2, "burn_in": 2},
        ),
    ],
)
def test_algorithms_choose_legal_actions(name: str, bounds: Any, options: Any) -> None:
    """In self-play, only an illegal move has a negative reward."""
    make = getattr(trl.algorithms, name)
    least = {}
    for mask in (None, trl.env.TicTacToe.legal):
        program = make("TicTacToe", hidden=(4,), mask=mask, **options).compile(bounds)
        least[mask is None] = program.execute(seed=0, progress=False)["return"].min()
    assert least[True] < 0 <= least[False]


def test_a_mask_of_a_network_is_a_function() -> None:
    env = trl.env.make("TicTacToe")
    with pytest.raises(trl.errors.TimeRLError, match="is not a function of the observation"):
        trl.DNNBuilder().from_env(env, mask=[True])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a2c", "dqn", "r2d2"])
def test_a_mask_of_raw_observations_is_refused_for_normalized_ones(name: str) -> None:
    """A free cell is 0 before normalisation, and no number of it afterwards."""
    raw = trl.env.TicTacToe("random", autoreset="same_step")
    env = trl.env.ClipReward(trl.env.NormalizeObservation(raw), -1.0, 1.0)
    make = getattr(trl.algorithms, name)
    with pytest.raises(trl.errors.EnvError, match="legal reads the observations of TicTacToe"):
        make(env, mask=trl.env.TicTacToe.legal)
    own: list[Any] = []
    make(env, mask=lambda o: own.append(o.shape) or trl.constant(np.ones(9, np.bool_)))
    assert own[0] == (2, 9)  # a function for normalised observations
    make(trl.env.NormalizeReward(raw), mask=raw.legal)
