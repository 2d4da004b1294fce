"""T-maze: a memory task with a corridor and one choice at its end. Source: Bakker 2002."""

from __future__ import annotations

from typing import Any

from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.inputs.tensor_sources import stack, where
from timerl_nb.compiler.language.operations.random_draws import random_randint
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box, Discrete

NORTH, SOUTH, EAST, WEST = range(4)


class TMaze(Environment):
    """Walk along a corridor, then turn to the side that the first observation named.

    The three elements of an observation are 0 or 1: (0, 1, 1) at the start if the goal is in the north, (1, 1, 0) if it
    is in the south, (1, 0, 1) in the corridor and (0, 1, 0) at the junction. The actions are north (0), south (1), east
    (2) and west (3). The choice of north or south at the junction terminates the episode, with the reward 1 for the
    goal's side and -0.1 for the other one. A step against a wall has the reward -0.1, every other step 0.

    Args:
        length: the number of steps from the start to the junction.
        passive: whether the agent walks by itself, so that only north and south are actions. Each episode then has
            `length + 1` steps.
        options: as for `Environment`; `max_steps` is 10 `length` by default.

    Raises:
        ShapeError: the length is invalid.

    Example:
        >>> trl.env.make("TMaze", length=10).max_steps
        100
    """

    obs_space = Box(0.0, 1.0, (3,))

    def __init__(self, length: int = 20, *, passive: bool = False, **options: Any) -> None:
        super().__init__(**options)
        hint = "write length=20 for 20 steps to the junction."
        self.length, self.passive = integer("length", length, least=1, hint=hint), passive
        self.act_space = Discrete(2 if passive else 4)
        self.max_steps = self.max_steps or 10 * self.length

    def first_state(self, domain: Domain) -> tuple[Tensor, Tensor]:
        goal = random_randint(2, domain=domain).named("goal")
        return (goal * 0).named("place"), goal

    def observe(self, state: tuple[Tensor, Tensor]) -> Tensor:
        place, goal = state
        north = goal == NORTH
        starts, arrived = place == 0, place == self.length
        left = where(starts, ~north, ~arrived)
        right = where(starts, north, ~arrived)
        return stack([x.cast("f32") for x in (left, starts | arrived, right)], -1)

    def transition(
        self, state: tuple[Tensor, Tensor], action: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
        place, goal = state
        arrived = place == self.length
        step = 1 if self.passive else (action == EAST).cast("i32") - (action == WEST).cast("i32")
        after = (place + step).clip(0, self.length)
        chosen = arrived & (action <= SOUTH)
        missed = where(after == place, -0.1, 0.0)
        return (after, goal), where(chosen & (action == goal), 1.0, missed), chosen
