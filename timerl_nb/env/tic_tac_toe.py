"""Tic-tac-toe for two players, or against random moves."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.language.inputs.tensor_sources import constant, stack, where
from timerl_nb.compiler.language.operations.random_draws import random_categorical
from timerl_nb.compiler.language.policy.policy_in_program import broadcast_over
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box, Discrete

State = tuple[Tensor, Tensor]  # f32[9]: the cells of the next player, and those of the other one
_LINES: Final = np.array(
    [*np.eye(3).repeat(3, 1), *np.tile(np.eye(3), 3), np.eye(3).ravel(), np.eye(3)[::-1].ravel()],
    np.float32,
)  # [8, 9]: cells of each row, column and diagonal


class TicTacToe(Environment):
    """Place marks on a 3 x 3 board; three in a line win.

    The observation [2, 9] contains the cells of the player to move, then those of the opponent, as zeros and ones. The
    action is a cell; `legal` returns the free cells as a mask. A winning move has the reward 1 and terminates the
    episode, and so does a full board, with the reward 0. A move to an occupied cell loses: the reward is -1.

    Args:
        opponent: None for self-play: the players move in turn, the observation changes sides at each step, and the reward
            is that of the player who moved. "random": the opponent answers each move in the same step by a random one,
            and its win has the reward -1.
        options: as for `Environment`.

    Raises:
        EnvError: there is no such opponent.

    Example:
        >>> env = trl.env.make("TicTacToe", opponent="random")
        >>> dnn = trl.DNNBuilder(domain=i).from_env(env).build()
        >>> o = trl.like(env.obs_space, domain=(b, i, t))
        >>> dnn.sample(o, mask=env.legal(o))
        i32[] @ (b, i, t)
    """

    obs_space = Box(0.0, 1.0, (2, 9))
    act_space = Discrete(9)
    max_steps = 10  # never reached

    def __init__(self, opponent: Literal["random"] | None = None, **options: Any) -> None:
        super().__init__(**options)
        if opponent not in (None, "random"):
            raise EnvError(
                f"opponent={opponent!r} is not an opponent.",
                hint='use None for self-play, or "random".',
            )
        self.opponent = opponent

    @staticmethod
    def legal(o: Tensor) -> Tensor:
        """Return the mask of legal actions, bool[9], of an observation."""
        return o.sum(axis=-2) == 0.0

    def first_state(self, domain: Domain) -> State:
        empty = constant(np.zeros(9, np.float32))
        return (
            broadcast_over(empty, domain).named("own"),
            broadcast_over(empty, domain).named("other"),
        )

    def observe(self, state: State) -> Tensor:
        return stack([*state], -2)

    def transition(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        own, other = state
        own, reward, ended = _move(own, other, action)
        if self.opponent is None:
            return (other, own), reward, ended
        free = where(own + other == 0.0, 0.0, -1e9)
        answer = random_categorical(broadcast_over(free, action.domain))
        replied, lost, over = _move(other, own, answer)
        other = where(ended, other, replied)
        return (own, other), where(ended, reward, -lost), ended | over


def _move(own: Tensor, other: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a player's cells after a move, its reward, and whether the game has ended."""
    mark = cell.one_hot(9)
    illegal = ((own + other) * mark).sum(axis=-1) > 0.0
    after = own.maximum(mark)
    won = ((constant(_LINES) * after).sum(axis=-1) == 3.0).any(axis=-1)
    full = (after + other).sum(axis=-1) >= 9.0
    reward = where(illegal, -1.0, where(won, 1.0, 0.0))
    return where(illegal, own, after), reward, illegal | won | full
