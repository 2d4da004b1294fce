"""A car in a valley that is too weak to drive straight out of it (Moore 1990), in two forms.

With the constants of Gymnasium's MountainCar-v0 and MountainCarContinuous-v0, whose velocity is
changed first and then moves the car.
"""

from __future__ import annotations

from timerl_nb.compiler.language.inputs.tensor_sources import full, random_uniform, stack, where
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box, Discrete

LEFT, RIGHT = -1.2, 0.6  # the ends of the track; the hill is sin(3 x)
FASTEST = 0.07  # a step
GRAVITY = 0.0025


class _Valley(Environment):
    """What both forms share. The state, and the observation: position, and velocity per step."""

    obs_space = Box(LEFT, RIGHT, (2,))
    goal: float

    def first_state(self, domain: Domain) -> Tensor:
        start = random_uniform((), -0.6, -0.4, domain=domain)
        return stack([start, start * 0.0])

    def push_car(self, state: Tensor, push: Tensor) -> tuple[Tensor, Tensor]:
        """The state after a push, and whether the goal is reached."""
        x, velocity = state.unstack(-1)
        velocity = velocity + push - GRAVITY * (3.0 * x).cos()
        velocity = velocity.clip(-FASTEST, FASTEST)
        x = (x + velocity).clip(LEFT, RIGHT)
        stopped = (x <= LEFT) & (velocity < 0.0)  # at the left end there is a wall
        velocity = where(stopped, 0.0, velocity)
        return stack([x, velocity], -1), (x >= self.goal) & (velocity >= 0.0)


class MountainCar(_Valley):
    """Push left (0), not at all (1) or right (2), to reach 0.5.

    The reward is -1 per step; an episode is truncated after 200 steps.
    """

    act_space = Discrete(3)
    max_steps = 200
    goal = 0.5

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        after, reached = self.push_car(state, (action - 1).floating() * 0.001)
        return after, full((), -1.0), reached


class MountainCarContinuous(_Valley):
    """Push with a force of -1 to 1, to reach 0.45.

    The reward is 100 there, less 0.1 times the squared action at each step; an episode is truncated
    after 999 steps.
    """

    act_space = Box(-1.0, 1.0, (1,))
    max_steps = 999
    goal = 0.45

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        force = action.take(0, -1)
        after, reached = self.push_car(state, force.clip(-1.0, 1.0) * 0.0015)
        return after, where(reached, 100.0, 0.0) - 0.1 * force.square(), reached
