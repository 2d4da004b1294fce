"""The benchmark programs: several algorithms on a synthetic environment, and stock PPO on CartPole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import timerl_nb as trl

GAMMA, LAM, RATE = 0.99, 0.96, 1e-4
ENTROPY, CRITIC = 0.01, 0.5


@dataclass(frozen=True)
class Work:
    """Algorithm and sizes of a program.

    Attributes:
        layers: Number of tanh layers minus one.
        window: Rewards in a return of REINFORCE; None for all until the end.
    """

    algorithm: Literal["ppo", "reinforce"]
    envs: int
    steps: int = 250
    layers: int = 2
    width: int = 64
    obs_shape: tuple[int, ...] = (3, 4, 4)
    window: int | None = None

    @property
    def hidden(self) -> list[int]:
        return [self.width] * (self.layers + 1)

    @property
    def points(self) -> int:
        """Return the environment steps of an iteration."""
        return self.envs * self.steps

    def context(self) -> trl.Context:
        """Return the recurrent-tensor program."""
        env = trl.env.make("synthetic", obs_shape=self.obs_shape)
        if self.algorithm == "ppo":
            return trl.algorithms.ppo(
                env,
                hidden=self.hidden,
                gamma=GAMMA,
                lam=LAM,
                critic=CRITIC,
                entropy=ENTROPY,
                lr=RATE,
            )
        return trl.algorithms.reinforce(
            env, hidden=self.hidden, steps=self.window, gamma=GAMMA, lr=RATE
        )

    def compile(self, iterations: int, options: trl.Options | None = None) -> trl.Program:
        bounds = {"B": self.envs, "I": iterations, "T": self.steps}
        return self.context().compile(bounds, options)


@dataclass(frozen=True)
class Stock:
    """PPO with the usual hyper-parameters for CartPole-v1.

    Attributes:
        iterations: Iterations until the learning rate reaches 0.
    """

    envs: int = 4
    steps: int = 128
    iterations: int = 976  # half a million environment steps
    epochs: int = 4
    minibatches: int = 4
    hidden: tuple[int, ...] = (64, 64)
    lam: float = 0.95
    clip: float = 0.2
    rate: float = 2.5e-4
    max_norm: float = 0.5

    @property
    def points(self) -> int:
        """Return the environment steps of an iteration."""
        return self.envs * self.steps

    @property
    def updates(self) -> int:
        """Return the updates of an iteration."""
        return self.epochs * self.minibatches

    def context(self, env: trl.env.Simulation | None = None) -> trl.Context:
        """Return the recurrent-tensor program, optionally with another environment."""
        return trl.algorithms.clipped_ppo(
            env or "CartPole-v1",
            epochs=self.epochs,
            minibatches=self.minibatches,
            hidden=self.hidden,
            gamma=GAMMA,
            lam=self.lam,
            clip=self.clip,
            critic=CRITIC,
            entropy=ENTROPY,
            lr=self.rate,
            max_norm=self.max_norm,
        )

    def compile(self, iterations: int, options: trl.Options | None = None) -> trl.Program:
        bounds = {"B": self.envs, "I": iterations, "T": self.steps}
        return self.context().compile(bounds, options)


LARGE: Final = (3, 32, 32)
WORKS: Final[Mapping[str, Work | Stock]] = {
    "S": Work("ppo", 512),
    "s": Work("ppo", 32, 50),
    "L4": Work("ppo", 512, layers=4),
    "L16": Work("ppo", 512, layers=16),
    "W": Work("ppo", 64, 100, width=512),
    "R-mc": Work("reinforce", 256),
    "R-8": Work("reinforce", 256, window=8),
    "V-mc": Work("reinforce", 32, obs_shape=LARGE),
    "V-8": Work("reinforce", 256, obs_shape=LARGE, window=8),
    "C": Stock(),
}
