"""The game and the network of the study of self-play."""

from __future__ import annotations

import numpy as np

from benchmarks.scope.connect_four import Position, first_weights, judged, learnt, searched


def after(moves: str) -> tuple[Position, bool]:
    position, has_won = Position(), False
    for column in moves:
        assert not has_won
        position, has_won = position.after(int(column))
    return position, has_won


def test_lines_win_in_every_direction() -> None:
    assert after("0102030")[1] and after("0011223")[1]  # up, and across
    cells = np.zeros((6, 7), np.int8)
    for k in range(3):
        cells[:k, k], cells[k, k], cells[k, 3] = -1, 1, -1
    assert Position(cells).after(3)[1] and Position(cells[:, ::-1].copy()).after(3)[1]
    assert not after("010203")[1] and not after("001122")[1]
    full, _ = after("0" * 6)
    assert full.moves() == [1, 2, 3, 4, 5, 6]


def test_a_search_wins_and_does_not_let_win() -> None:
    weights = first_weights(16, np.random.default_rng(0))
    judge = lambda seen: judged(weights, seen)  # noqa: E731
    assert np.argmax(searched(after("001122")[0], judge, 50)) == 3
    assert np.argmax(searched(after("06050")[0], judge, 300)) == 0


def test_a_step_of_descent_goes_down_the_loss() -> None:
    random = np.random.default_rng(0)
    weights = {name: x.astype(np.float64) for name, x in first_weights(8, random).items()}
    seen = random.integers(0, 2, (5, 84)).astype(np.float64)
    moves, won = np.full((5, 7), 1 / 7), random.uniform(-1, 1, 5)

    def loss(at: dict[str, np.ndarray]) -> float:
        policy, value = judged(at, seen)  # type: ignore[arg-type]
        return float(-(moves * np.log(policy)).sum(1).mean() + ((value - won) ** 2).mean() / 2)

    down = learnt(weights, seen, moves, won, 1.0)  # type: ignore[arg-type]
    for name, x in weights.items():
        index = np.unravel_index(int(np.abs(x - down[name]).argmax()), x.shape)
        moved = {key: value.copy() for key, value in weights.items()}
        moved[name][index] += 1e-6
        slope = (loss(moved) - loss(weights)) / 1e-6  # type: ignore[arg-type]
        assert np.isclose(slope, (x - down[name])[index], rtol=1e-3), name
