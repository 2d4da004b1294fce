"""Catch: a falling ball and a paddle, as in bsuite. Source: Osband et al. 2020."""

from __future__ import annotations

from typing import Any, Final

from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.inputs.tensor_sources import where
from timerl_nb.compiler.language.operations.random_draws import random_randint
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box, Discrete

MOST: Final = 1_024  # rows and columns of a board
State = tuple[Tensor, Tensor, Tensor]  # row and column of the ball, column of the paddle


class Catch(Environment):
    """Catch a ball, which falls one row per step, by moving the paddle left (0), not at all (1) or right (2).

    The observation is the board, [rows, columns], with 1 at the ball and at the paddle and 0 elsewhere. The ball starts in
    a random column of the top row, the paddle in the middle of the bottom row. An episode terminates when the ball reaches
    the bottom row, with the reward 1 if the paddle is there and -1 otherwise.

    Args:
        rows, columns: the size of the board.
        options: as for `Environment`.

    Raises:
        ShapeError: a size is invalid.

    Example:
        >>> trl.env.make("Catch").obs_space.shape
        (10, 5)
    """

    act_space = Discrete(3)

    def __init__(self, rows: int = 10, columns: int = 5, **options: Any) -> None:
        super().__init__(**options)
        self.rows = integer("rows", rows, least=2, most=MOST, hint="write rows=10.")
        self.columns = integer("columns", columns, least=1, most=MOST, hint="write columns=5.")
        self.obs_space = Box(0.0, 1.0, (self.rows, self.columns))
        self.max_steps = self.max_steps or self.rows

    def first_state(self, domain: Domain) -> State:
        column = random_randint(self.columns, domain=domain).named("column")
        return (column * 0).named("row"), column, (column * 0 + self.columns // 2).named("paddle")

    def observe(self, state: State) -> Tensor:
        row, column, paddle = state
        ball = row.one_hot(self.rows).reshape((-1, 1)) * column.one_hot(self.columns)
        bottom = (row * 0 + self.rows - 1).one_hot(self.rows)
        return ball.maximum(bottom.reshape((-1, 1)) * paddle.one_hot(self.columns))

    def transition(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        row, column, paddle = state
        row = row + 1
        paddle = (paddle + action - 1).clip(0, self.columns - 1)
        ended = row >= self.rows - 1
        reward = where(ended, where(paddle == column, 1.0, -1.0), 0.0)
        return (row, column, paddle), reward, ended
