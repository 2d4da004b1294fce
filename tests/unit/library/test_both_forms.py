"""DQN in window form and over `trl.Replay`: equal updates for equal draws."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.compiler.language.program_context import current
from timerl_nb.nn.layers import MLP
from timerl_nb.replay import Dqn, Proportional, Replay
from timerl_nb.rl import q_network
from timerl_nb.rl.transition_sampling import SampledTransitions

T, LENGTH, BATCH, LR, EVERY = 7, 4, 3, 0.02, 3
LAYERS = (4, 3, 2)


def played(
    monkeypatch: pytest.MonkeyPatch, envs: int, alpha: float | None
) -> dict[str, np.ndarray]:
    """Run the window form; return its observations, actions, draws and weights at every step."""
    nets: list[MLP] = []

    def network(*sizes: Any, **given: Any) -> MLP:
        nets.append(MLP(*sizes, **given))
        return nets[-1]

    class Told(SampledTransitions):
        seen = 0

        def starts(self, x: Any) -> Any:
            current().output(("obs", "action")[self.seen], x)
            self.seen += 1
            return super().starts(x)

        def returns(self, step: trl.env.Step, gamma: float) -> Any:
            of = {"reward": step.reward, "terminated": step.terminated, "next_obs": step.final_obs}
            for name, x in {**of, "at": self.at}.items():
                current().output(name, x)
            for k, p in enumerate(nets[0].params):
                current().output(f"weights {k}", p)
            return super().returns(step, gamma)

    module = sys.modules["timerl_nb.algorithms.dqn"]  # the package exports a function of this name
    monkeypatch.setattr(module, "SampledTransitions", Told)
    monkeypatch.setattr(q_network, "MLP", network)
    env = trl.env.make("CartPole-v1", autoreset="same_step", max_steps=4)
    how: dict[str, Any] = {"hidden": LAYERS[1:2], "buffer_size": LENGTH, "batch": BATCH, "lr": LR}
    ctx = trl.algorithms.dqn(
        env, **how, steps=1, alpha=alpha, target_every=EVERY, learning_starts=0, max_norm=1e9
    )
    return dict(ctx.compile({"B": envs, "T": T}, trl.Options(executor="xla")).execute(seed=4))


class Told:
    """A fixed sequence of draws, for a buffer with priorities and one without."""

    def __init__(self, draws: list[np.ndarray]) -> None:
        self._draws = iter(draws)

    def integers(self, most: int, size: int) -> np.ndarray:
        return self.draw(size, None)

    def draw(self, count: int, random: Any) -> np.ndarray:
        found = next(self._draws)
        assert found.shape == (count,)
        return found


@pytest.mark.parametrize(("envs", "alpha"), [(2, None), (1, 0.6)])
def test_both_forms_make_the_same_updates(
    monkeypatch: pytest.MonkeyPatch, envs: int, alpha: float | None
) -> None:
    run = played(monkeypatch, envs, alpha)
    dqn = Dqn("CartPole-v1", LAYERS[1:2], lr=LR, target_every=EVERY, activation="tanh")
    priority = None if alpha is None else Proportional(alpha, 1e-3)
    # an engine with a method for the draws, which the test replaces
    buffer = Replay(LENGTH * envs, dqn.fields, priority=priority, weights="batch", engine="numpy")
    # position k in a window is step k of that environment, and every `envs`-th row of the buffer
    first = np.maximum(np.arange(T) - LENGTH + 1, 0)
    serial = (run["at"] + first[:, None]) * envs + np.arange(envs)[:, None, None]
    told = Told([(serial[:, t] % buffer.capacity).ravel() for t in range(T)])
    if alpha is None:
        buffer._random = told  # type: ignore[assignment]
    else:
        monkeypatch.setattr(buffer.tree, "draw", told.draw)

    def weights(t: int) -> list[dict[str, np.ndarray]]:
        found = [run[f"weights {k}"][t] for k in range(4)]
        return [{"weight": a, "bias": b} for a, b in zip(found[::2], found[1::2], strict=True)]

    state: Any = {**dqn.begin(0), "weights": weights(0), "target": weights(0)}
    count = envs * BATCH
    for t in range(T):
        buffer.insert({name: run[name][:, t] for name in dqn.fields})
        drawn = buffer.sample(count, beta=0.4)
        for k, got in enumerate(drawn["reward"]):
            np.testing.assert_array_equal(
                drawn["obs"][k], run["obs"][k // BATCH, serial[k // BATCH, t, k % BATCH] // envs]
            )
            assert got == 1.0
        gradient, errors, loss = dqn.gradient(state, drawn.rows, drawn.weight)
        np.testing.assert_allclose(loss / count, run["loss"][t], rtol=1e-4)
        state = replace(dqn, lr=LR * (1 - t / T)).step(state, gradient, count)
        if alpha is not None:
            assert buffer.update(drawn.ticket, errors) == 0
        if t + 1 < T:
            for mine, theirs in zip(
                jax.tree.leaves(state["weights"]), jax.tree.leaves(weights(t + 1)), strict=True
            ):
                np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)
    assert run["terminated"].shape == (envs, T) and np.ptp(run["loss"]) > 0
    if alpha is not None:
        assert drawn.weight.min() < drawn.weight.max() == 1.0  # they were weighted
