"""Acrobot-v1, with Gymnasium's constants and integration. Source: Sutton and Barto 2018, section 11.3."""

from __future__ import annotations

from math import pi

from timerl_nb.compiler.language.inputs.tensor_sources import random_uniform, stack, where
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box, Discrete

GRAVITY = 9.8  # m/s²
MASS, LENGTH, CENTRE = 1.0, 1.0, 0.5  # kg, m, m: both links are equal
INERTIA = 1.0  # kg m², of each link
FASTEST = (4 * pi, 9 * pi)  # rad/s
TICK = 0.2  # s

Motion = list[Tensor]  # two angles and two angular velocities, or their derivatives


class Acrobot(Environment):
    """Swing up a two-link pendulum by a torque of -1, 0 or 1 N m (actions 0, 1, 2) at the joint between its links.

    State: the angle of the first link from the downward vertical, the angle of the second link from the first one, and
    both angular velocities (rad, rad/s). The observation contains cosine and sine of both angles, and the velocities. The
    reward is -1 per step and 0 at the end. An episode terminates when the tip is more than a link length above the first
    joint, and is truncated after 500 steps.

    Example:
        >>> trl.env.make("Acrobot-v1").obs_space.shape
        (6,)
    """

    obs_space = Box(-FASTEST[1], FASTEST[1], (6,))
    act_space = Discrete(3)
    max_steps = 500

    def first_state(self, domain: Domain) -> Tensor:
        return random_uniform((4,), -0.1, 0.1, domain=domain)

    def observe(self, state: Tensor) -> Tensor:
        first, second, *spins = state.unstack(-1)
        return stack([first.cos(), first.sin(), second.cos(), second.sin(), *spins], -1)

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        torque = (action - 1).floating()
        first, second, *spins = _integrate(state.unstack(-1), torque)
        first, second = ((angle + pi) % (2 * pi) - pi for angle in (first, second))
        spins = [x.clip(-most, most) for x, most in zip(spins, FASTEST, strict=True)]
        ended = -first.cos() - (first + second).cos() > 1.0
        return stack([first, second, *spins], -1), where(ended, 0.0, -1.0), ended


def _integrate(state: Motion, torque: Tensor) -> Motion:
    """Return the state after a time step of the Runge-Kutta method of fourth order."""

    def moved(slopes: Motion, time: float) -> Motion:
        return [x + time * slope for x, slope in zip(state, slopes, strict=True)]

    one = _derivative(state, torque)
    two = _derivative(moved(one, TICK / 2), torque)
    three = _derivative(moved(two, TICK / 2), torque)
    four = _derivative(moved(three, TICK), torque)
    mean = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(one, two, three, four, strict=True)]
    return moved(mean, TICK)


def _derivative(state: Motion, torque: Tensor) -> Motion:
    """Return velocities and accelerations by the equations of motion of the book."""
    first, second, spin, turn = state
    sin, cos = second.sin(), second.cos()
    coupling = MASS * LENGTH * CENTRE
    inner = MASS * CENTRE**2 + INERTIA  # of the second link about the joint
    both = MASS * CENTRE**2 + MASS * (LENGTH**2 + CENTRE**2) + 2 * INERTIA + 2 * coupling * cos
    mixed = inner + coupling * cos
    pull = MASS * CENTRE * GRAVITY * (first + second).sin()
    drag = (
        (MASS * CENTRE + MASS * LENGTH) * GRAVITY * first.sin()
        + pull
        - coupling * turn * sin * (turn + 2 * spin)
    )
    bend = (torque + mixed / both * drag - coupling * spin * spin * sin - pull) / (
        inner - mixed * mixed / both
    )
    return [spin, turn, -(mixed * bend + drag) / both, bend]
