"""CartPole-v1, with Gymnasium's constants. Source: Barto, Sutton and Anderson 1983."""

from __future__ import annotations

from math import pi

from timerl_nb.compiler.language.inputs.tensor_sources import ones, random_uniform, stack, where
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box, Discrete

GRAVITY = 9.8  # m/s²
CART, POLE = 1.0, 0.1  # kg
TOTAL = CART + POLE
LENGTH = 0.5  # m, half of the pole
FORCE = 10.0  # N
TICK = 0.02  # s
X_LIMIT = 2.4  # m
ANGLE_LIMIT = 12 * pi / 180


class CartPole(Environment):
    """Balance a pole on a cart by pushing it left (0) or right (1).

    State and observation: position (m), velocity (m/s), angle (rad), angular velocity (rad/s). The reward is 1 per step. An
    episode terminates beyond ±2.4 m or ±12° and is truncated after 500 steps.

    Example:
        >>> trl.env.make("CartPole-v1").act_space
        Discrete(n=2, shape=(), dtype='i32')
    """

    obs_space = Box(-float("inf"), float("inf"), (4,))
    act_space = Discrete(2)
    max_steps = 500

    def first_state(self, domain: Domain) -> Tensor:
        return random_uniform((4,), -0.05, 0.05, domain=domain)

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, velocity, angle, spin = state.unstack(-1)
        force = where(action == 1, FORCE, -FORCE)
        sin, cos = angle.sin(), angle.cos()
        push = (force + POLE * LENGTH * spin * spin * sin) / TOTAL
        twist = (GRAVITY * sin - cos * push) / (LENGTH * (4.0 / 3.0 - POLE * cos * cos / TOTAL))
        acceleration = push - POLE * LENGTH * twist * cos / TOTAL
        after = [
            x + TICK * velocity,
            velocity + TICK * acceleration,
            angle + TICK * spin,
            spin + TICK * twist,
        ]
        for name, component in zip(("x", "velocity", "angle", "spin"), after, strict=True):
            state.ctx.label_by_default(f"next_{name}", component)
        ended = (abs(after[0]) > X_LIMIT) | (abs(after[2]) > ANGLE_LIMIT)
        return stack(after, -1), ones(()), ended
