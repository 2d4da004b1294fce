"""What is measured: one cell of a sweep."""

from __future__ import annotations

from dataclasses import dataclass

TICK, X_LIMIT, ANGLE_LIMIT, MOST_STEPS = 0.02, 2.4, 0.20943951023931953, 500


@dataclass(frozen=True)
class Cell:
    """So many environments, stepped so often in a batch.

    Attributes:
        envs, steps: the paper's N and K.
        width: of both hidden layers of the policy; 0 where actions are drawn, without a policy.
        state, compute: the paper's S and C (section 4.2), of simulation alone, where nothing is kept but
            the state; 0 where CartPole's steps are collected.
    """

    envs: int
    steps: int
    width: int = 64
    state: int = 0
    compute: int = 1

    @property
    def is_simulation(self) -> bool:
        return self.state > 0

    @property
    def points(self) -> int:
        """Steps of all environments."""
        return self.envs * self.steps

    @property
    def floats(self) -> int:
        """How much all steps compute, about."""
        return self.points * max(1, self.state) * self.compute
