"""Grid world with images as observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.language.argument_checks import integer, is_whole
from timerl_nb.compiler.language.inputs.tensor_sources import constant, stack
from timerl_nb.compiler.language.operations.random_draws import random_randint
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.catch import MOST
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box, Discrete

State = tuple[Tensor, Tensor]  # cells of the agent and of the goal, by their number
_ROWS, _COLUMNS = np.array([-1, 0, 1, 0]), np.array([0, 1, 0, -1])  # up, right, down, left


class GridWorld(Environment):
    """Walk to the goal in a grid: up (0), right (1), down (2) or left (3).

    The observation is an image [size, size, 3] of zeros and ones (uint8), with the agent, the goal and the walls in its
    channels. Agent and goal start in random free cells. A step against a wall or the border has no effect. The reward is
    1 at the goal, which terminates the episode, and 0 elsewhere.

    Args:
        size: the number of rows and of columns.
        walls: (row, column) of each cell that is a wall.
        options: as for `Environment`; `max_steps` is 10 `size` by default.

    Raises:
        ShapeError: the size is invalid.
        EnvError: a wall is outside of the grid, or fewer than two cells are free.

    Example:
        >>> trl.env.make("GridWorld", size=5, walls=[(2, 1), (2, 2), (2, 3)]).obs_space.shape
        (5, 5, 3)
    """

    act_space = Discrete(4)

    def __init__(
        self, size: int = 8, walls: Sequence[tuple[int, int]] = (), **options: Any
    ) -> None:
        super().__init__(**options)
        self.size = integer("size", size, least=2, most=MOST, hint="write size=8.")
        self._is_wall = np.zeros((self.size, self.size), bool)
        for wall in walls if isinstance(walls, Sequence) else [walls]:
            pair: Any = wall if isinstance(wall, Sequence) and len(wall) == 2 else (None, None)
            if not all(is_whole(x) and 0 <= x < size for x in pair):
                raise EnvError(
                    f"the wall {wall!r} is not a cell of the grid.",
                    hint=f"give pairs (row, column) from 0 to {size - 1}.",
                )
            self._is_wall[tuple(wall)] = True
        self._free = np.flatnonzero(~self._is_wall).astype(np.int32)
        if len(self._free) < 2:
            raise EnvError(
                "agent and goal need two cells without a wall.", hint="leave out some of the walls."
            )
        self.obs_space = Box(0, 1, (self.size, self.size, 3), "u8")
        self.max_steps = self.max_steps or 10 * self.size

    def first_state(self, domain: Domain) -> State:
        count = len(self._free)
        agent = random_randint(count, domain=domain)
        goal = (agent + 1 + random_randint(count - 1, domain=domain)) % count
        free = constant(self._free)
        return free.take(agent).named("agent"), free.take(goal).named("goal")

    def observe(self, state: State) -> Tensor:
        channels = [cell.one_hot(self.size**2) for cell in state]
        walls = constant(self._is_wall.reshape(-1).astype(np.float32))
        image = stack([*channels, walls + channels[0] * 0.0], -1)
        return image.reshape((self.size, self.size, 3)).cast("u8")

    def transition(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        agent, goal = state
        after = constant(self._neighbours).take(agent * 4 + action)
        return (after, goal), (after == goal).floating(), after == goal

    @property
    def _neighbours(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Cell after each action in each cell, [size² x 4]."""
        rows, columns = np.divmod(np.arange(self.size**2)[:, None], self.size)
        last = self.size - 1
        to = np.clip(rows + _ROWS, 0, last) * self.size + np.clip(columns + _COLUMNS, 0, last)
        stays = self._is_wall.reshape(-1)[to]
        return np.where(stays, np.arange(self.size**2)[:, None], to).astype(np.int32).reshape(-1)
