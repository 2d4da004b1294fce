"""Connect Four, and a small network that plays it by tree search: what the study of self-play trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

ROWS, COLUMNS, LINE = 6, 7, 4
Floats = npt.NDArray[np.float32]
Weights = Mapping[str, Floats]
Judge = Callable[[Floats], tuple[Floats, Floats]]
_EXPLORES: Final = 1.5  # how much a prior counts beside what was found


@dataclass(frozen=True)
class Position:
    """Stones by cell, of row by row from below: 1 of who moves next, -1 of the other, 0 of nobody."""

    cells: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros((ROWS, COLUMNS), np.int8))

    def moves(self) -> list[int]:
        """The columns that are not full."""
        return np.flatnonzero(self.cells[-1] == 0).tolist()

    def after(self, column: int) -> tuple[Position, bool]:
        """The position for the other player, and whether the move has won."""
        row = int((self.cells[:, column] != 0).sum())
        cells = -self.cells
        cells[row, column] = -1
        return Position(cells), _is_line(cells == -1, row, column)

    def seen(self) -> Floats:
        """As the network sees it: own stones, and the other's."""
        return np.concatenate([self.cells == 1, self.cells == -1], axis=None).astype(np.float32)


def _is_line(stones: npt.NDArray[np.bool_], row: int, column: int) -> bool:
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        length = 1
        for sign in (1, -1):
            r, c = row + sign * down, column + sign * right
            while 0 <= r < ROWS and 0 <= c < COLUMNS and stones[r, c]:
                length, r, c = length + 1, r + sign * down, c + sign * right
        if length >= LINE:
            return True
    return False


class Node:
    """A position in the tree, with what its moves have come to."""

    def __init__(self, position: Position, prior: Floats) -> None:
        self.position, self.moves = position, position.moves()
        self.prior = prior[self.moves] / prior[self.moves].sum()
        self.visits = np.zeros(len(self.moves))
        self.value = np.zeros(len(self.moves))  # sums, for who moves here
        self.below: dict[int, Node] = {}


def searched(root: Position, judge: Judge, simulations: int) -> Floats:
    """How often each column was tried by a search (PUCT) that asks a judge of every new position."""
    prior, _ = judge(root.seen()[None])
    top = Node(root, prior[0])
    for _ in range(simulations):
        node, path, value = top, list[tuple[Node, int]](), 0.0
        while True:
            tried = node.value / np.maximum(node.visits, 1)
            bonus = _EXPLORES * node.prior * sqrt(node.visits.sum() + 1) / (1 + node.visits)
            k = int(np.argmax(tried + bonus))
            path.append((node, k))
            position, has_won = node.position.after(node.moves[k])
            if has_won or not position.moves():
                value = 1.0 if has_won else 0.0
                break
            if k not in node.below:
                prior, found = judge(position.seen()[None])
                node.below[k] = Node(position, prior[0])
                value = -float(found[0])
                break
            node = node.below[k]
        for node, k in reversed(path):
            node.visits[k] += 1
            node.value[k] += value
            value = -value
    counts = np.zeros(COLUMNS, np.float32)
    counts[top.moves] = top.visits
    return counts


def first_weights(hidden: int, random: np.random.Generator) -> dict[str, Floats]:
    """A network of one hidden layer, with a policy and a value."""
    seen = 2 * ROWS * COLUMNS
    return {
        "in": random.normal(0, 1 / sqrt(seen), (seen, hidden)).astype(np.float32),
        "policy": random.normal(0, 1 / sqrt(hidden), (hidden, COLUMNS)).astype(np.float32),
        "value": random.normal(0, 1 / sqrt(hidden), (hidden, 1)).astype(np.float32),
    }


def judged(weights: Weights, seen: Floats) -> tuple[Floats, Floats]:
    """Probabilities of moves, and who is ahead, from -1 to 1."""
    hidden = np.maximum(seen @ weights["in"], 0)
    scores = hidden @ weights["policy"]
    raised = np.exp(scores - scores.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True), np.tanh(hidden @ weights["value"])[:, 0]


def learnt(weights: Weights, seen: Floats, moves: Floats, won: Floats, lr: float) -> Weights:
    """The weights after a step of gradient descent towards what searches have tried, and games have come to."""
    hidden = np.maximum(seen @ weights["in"], 0)
    policy, value = judged(weights, seen)
    on_scores = (policy - moves) / len(seen)
    on_value = ((value - won) * (1 - value**2) / len(seen))[:, None]
    on_hidden = on_scores @ weights["policy"].T + on_value @ weights["value"].T
    gradients = {
        "in": seen.T @ (on_hidden * (hidden > 0)),
        "policy": hidden.T @ on_scores,
        "value": hidden.T @ on_value,
    }
    return {name: weights[name] - lr * gradients[name] for name in weights}
