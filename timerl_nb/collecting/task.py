"""What is to be collected: of which environment, by which policy, how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from timerl_nb.collecting.acting import Acting
from timerl_nb.env.core import Simulation
from timerl_nb.env.gym import GymEnvironment


@dataclass(frozen=True)
class Task:
    """What is to be collected.

    Attributes:
        name: of the environment, where it has one.
        env: ours or Gymnasium's by name; None where it is neither.
        vector: a vector environment of Gymnasium's that was given.
        acting: the policy.
        envs, steps: how many environments, and steps of each in a batch.
        seed: of all chance.
    """

    name: str
    env: Simulation | None
    vector: Any
    acting: Acting
    envs: int
    steps: int
    seed: int

    @property
    def is_ours(self) -> bool:
        """Whether the environment is one of recurrence equations."""
        return self.env is not None and not isinstance(self.env, GymEnvironment)
