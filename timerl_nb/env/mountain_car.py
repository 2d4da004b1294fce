"""MountainCar-v0 and MountainCarContinuous-v0, with Gymnasium's constants. Source: Moore 1990.

The velocity changes first, then it moves the car.
"""

from __future__ import annotations

from timerl_nb.compiler.language.inputs.tensor_sources import full, random_uniform, stack, where
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box, Discrete

LEFT, RIGHT = -1.2, 0.6  # the ends of the track; the hill is sin(3 x)
FASTEST = 0.07  # greatest change of the position per step
GRAVITY = 0.0025


class _Valley(Environment):
    """Base of both variants. State and observation: position, and velocity per step."""

    obs_space = Box(LEFT, RIGHT, (2,))
    goal: float

    def first_state(self, domain: Domain) -> Tensor:
        start = random_uniform((), -0.6, -0.4, domain=domain)
        return stack([start, start * 0.0])

    def push_car(self, state: Tensor, push: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state after a push, and whether the goal is reached."""
        x, velocity = state.unstack(-1)
        velocity = velocity + push - GRAVITY * (3.0 * x).cos()
        velocity = velocity.clip(-FASTEST, FASTEST)
        x = (x + velocity).clip(LEFT, RIGHT)
        stopped = (x <= LEFT) & (velocity < 0.0)  # a wall at the left end
        velocity = where(stopped, 0.0, velocity)
        return stack([x, velocity], -1), (x >= self.goal) & (velocity >= 0.0)


class MountainCar(_Valley):
    """Drive a weak car out of a valley by pushing left (0), not at all (1) or right (2); the goal is 0.5.

    State and observation: position, and velocity per step. The reward is -1 per step. An episode is truncated after 200 steps.

    Example:
        >>> trl.env.make("MountainCar-v0").act_space
        Discrete(n=3, shape=(), dtype='i32')
    """

    act_space = Discrete(3)
    max_steps = 200
    goal = 0.5

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        after, reached = self.push_car(state, (action - 1).floating() * 0.001)
        return after, full((), -1.0), reached


class MountainCarContinuous(_Valley):
    """Drive a weak car out of a valley by a force of -1 to 1; the goal is 0.45.

    State and observation: position, and velocity per step. The reward is 100 at the goal, minus 0.1 times the squared action
    at each step. An episode is truncated after 999 steps.

    Example:
        >>> trl.env.make("MountainCarContinuous-v0").act_space.shape
        (1,)
    """

    act_space = Box(-1.0, 1.0, (1,))
    max_steps = 999
    goal = 0.45

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        force = action.take(0, -1)
        after, reached = self.push_car(state, force.clip(-1.0, 1.0) * 0.0015)
        return after, where(reached, 100.0, 0.0) - 0.1 * force.square(), reached
