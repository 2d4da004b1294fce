"""Pendulum-v1, with Gymnasium's constants and integration."""

from __future__ import annotations

from math import pi

from timerl_nb.compiler.language.inputs.tensor_sources import constant, random_uniform, stack
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box

GRAVITY = 10.0  # m/s²
MASS, LENGTH = 1.0, 1.0  # kg, m
TORQUE = 2.0  # N m, maximum
SPIN = 8.0  # rad/s, maximum
TICK = 0.05  # s


class Pendulum(Environment):
    """Swing up a pendulum by a torque of -2 to 2 at the joint; an angle of 0 is upright.

    The observation contains cosine and sine of the angle, and the angular velocity. The reward is
    -(angle² + 0.1 spin² + 0.001 torque²), with the angle from -π to π. An episode never terminates; it is truncated after 200
    steps.

    Example:
        >>> trl.env.make("Pendulum-v1").obs_space.shape
        (3,)
    """

    obs_space = Box(-SPIN, SPIN, (3,))
    act_space = Box(-TORQUE, TORQUE, (1,))
    max_steps = 200
    terminates = False

    def first_state(self, domain: Domain) -> Tensor:
        angle = random_uniform((), -pi, pi, domain=domain)
        spin = random_uniform((), -1.0, 1.0, domain=domain)
        return stack([angle, spin])

    def observe(self, state: Tensor) -> Tensor:
        angle, spin = state.unstack(-1)
        return stack([angle.cos(), angle.sin(), spin], -1)

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle, spin = state.unstack(-1)
        torque = action.take(0, -1).clip(-TORQUE, TORQUE)
        off = (angle + pi) % (2 * pi) - pi
        cost = off.square() + 0.1 * spin.square() + 0.001 * torque.square()
        pull = 1.5 * GRAVITY / LENGTH * angle.sin() + 3.0 / (MASS * LENGTH**2) * torque
        spin = (spin + TICK * pull).clip(-SPIN, SPIN)
        return stack([angle + TICK * spin, spin], -1), -cost, constant(False)
