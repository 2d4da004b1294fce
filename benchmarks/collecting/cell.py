"""One configuration (cell) of a sweep."""

from __future__ import annotations

from dataclasses import dataclass

TICK, X_LIMIT, ANGLE_LIMIT, MOST_STEPS = 0.02, 2.4, 0.20943951023931953, 500


@dataclass(frozen=True)
class Cell:
    """Number of environments and steps per batch of one measurement.

    Attributes:
        envs, steps: N and K in the paper.
        width: Width of both hidden layers of the policy; 0 for random actions without a policy.
        state, compute: S and C in the paper (section 4.2), for pure simulation that stores only
        the
            state; 0 for collecting CartPole's steps.
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
        """Return the total number of environment steps."""
        return self.envs * self.steps

    @property
    def floats(self) -> int:
        """Return the approximate number of floating-point operations of all steps."""
        return self.points * max(1, self.state) * self.compute
