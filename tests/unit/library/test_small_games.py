"""Catch, GridWorld and TicTacToe: equal to twins in plain NumPy, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timerl_nb as trl

NAMES = ("obs", "reward", "terminated", "alive")


def play(env: Any, actions: np.ndarray, executor: str = "xla") -> trl.Result:
    """Episodes of given actions, [environments, steps]."""
    with trl.Context("v", "t") as ctx:
        v, t = (d for d, _ in ctx.dims)
        o = trl.like(env.obs_space, domain=(v, t))
        o[v, 0] = env.reset(domain=(v,))
        step = env.step(trl.data(actions.astype(np.int32), domain=(v, t)))
        o[v, t + 1] = step.obs
        ctx.output("o", o)
        for name in NAMES:
            ctx.output(name, getattr(step, name))
    options = trl.Options(executor=executor)
    return ctx.compile(dict(zip("VT", actions.shape, strict=True)), options).execute(seed=3)


def choose(count: int, shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(0).integers(0, count, shape)


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_catch_is_its_twin(executor: str) -> None:
    rows, columns = 5, 4
    actions = choose(3, (16, 6))
    found = play(trl.env.make("Catch", rows=rows, columns=columns), actions, executor)
    rewards = set()
    for k, chosen in enumerate(actions):
        board = np.zeros((rows, columns))
        (column,) = np.flatnonzero(found["o"][k, 0, 0])
        paddle = columns // 2
        for j, action in enumerate(chosen[: rows - 1]):
            paddle = min(max(paddle + action - 1, 0), columns - 1)
            board[:] = 0
            board[j + 1, column] = board[-1, paddle] = 1
            np.testing.assert_array_equal(found["obs"][k, j], board)
            ends = j + 1 == rows - 1
            reward = (1 if paddle == column else -1) if ends else 0
            assert (found["reward"][k, j], found["terminated"][k, j]) == (reward, ends)
            rewards.add(reward)
    assert rewards == {-1, 0, 1}
    assert not found["alive"][:, rows - 1 :].any()
    assert len(np.unique(found["o"][:, 0, 0], axis=0)) == columns


def test_a_board_of_one_column_always_catches() -> None:
    found = play(trl.env.make("Catch", rows=2, columns=1), choose(3, (1, 2)))
    assert found["obs"][0, 0].tolist() == [[0], [1]] and found["reward"][0].tolist() == [1, 0]


MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_a_grid_world_is_its_twin(executor: str) -> None:
    size, walls = 3, [(1, 1), (0, 2)]
    actions = choose(4, (12, 15))
    found = play(trl.env.make("GridWorld", size=size, walls=walls), actions, executor)
    assert found["obs"].dtype == np.uint8
    starts = set()
    for k, chosen in enumerate(actions):
        images = found["o"][k, 0].transpose(2, 0, 1)
        agent, goal = (tuple(map(int, np.argwhere(x)[0])) for x in images[:2])
        assert agent != goal and not {agent, goal} & {*walls}
        starts.add(agent)
        is_over = False
        for j, action in enumerate(chosen):
            to = agent[0] + MOVES[action][0], agent[1] + MOVES[action][1]
            if not is_over and to not in walls and min(to) >= 0 and max(to) < size:
                agent = to
            reached = agent == goal and not is_over
            is_over |= reached
            image = np.zeros((size, size, 3))
            image[*agent, 0] = image[*goal, 1] = 1
            image[*zip(*walls, strict=True), 2] = 1
            np.testing.assert_array_equal(found["obs"][k, j], image)
            assert (found["reward"][k, j], found["terminated"][k, j]) == (reached, reached)
    assert len(starts) > 3 and 3 < found["terminated"].sum() < 12


def test_a_grid_with_two_free_cells_is_solved_in_a_step() -> None:
    env = trl.env.make("GridWorld", size=2, walls=[(1, 0), (1, 1)])
    found = play(env, np.array([[1, 3], [3, 1]] * 4))
    assert (found["reward"].sum(1) == 1).all() and len(np.unique(found["o"][:, 0], axis=0)) == 2


LINES = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]


def has_won(cells: set[int]) -> bool:
    return any(cells >= {*line} for line in LINES)


def test_players_of_tic_tac_toe_move_in_turn() -> None:
    rng = np.random.default_rng(1)
    actions = np.array([rng.permutation(9) for _ in range(40)])
    actions[:5, 3] = actions[:5, 0]  # an occupied cell
    found = play(trl.env.make("TicTacToe"), actions)
    assert not found["o"][:, 0].any()
    rewards: list[float] = []
    for k, chosen in enumerate(actions):
        sides: list[set[int]] = [set(), set()]
        for j, action in enumerate(map(int, chosen)):
            mover = j % 2
            illegal = action in sides[0] | sides[1]
            if not illegal:
                sides[mover].add(action)
            won = has_won(sides[mover])
            ends = illegal or won or len(sides[0] | sides[1]) == 9
            board = np.zeros((2, 9))
            board[0, [*sides[1 - mover]]] = board[1, [*sides[mover]]] = 1
            np.testing.assert_array_equal(found["obs"][k, j], board)
            rewards.append(-1 if illegal else 1 if won else 0)
            assert (found["reward"][k, j], found["terminated"][k, j]) == (rewards[-1], ends)
            if ends:
                break
    assert rewards.count(-1) == 5 and rewards.count(1) > 20
    assert (found["terminated"] & (found["reward"] == 0)).any(), "a draw"


def test_a_random_opponent_answers_in_the_same_step() -> None:
    rng = np.random.default_rng(2)
    actions = np.array([rng.permutation(9)[:5] for _ in range(80)])
    found = play(trl.env.make("TicTacToe", opponent="random"), actions)
    ends, answers = [], []
    for k, chosen in enumerate(actions):
        own: set[int] = set()
        other: set[int] = set()
        for j, action in enumerate(map(int, chosen)):
            if (illegal := action in own | other) is False:
                own.add(action)
            now = {*map(int, np.flatnonzero(found["obs"][k, j, 1]))}
            assert {*map(int, np.flatnonzero(found["obs"][k, j, 0]))} == own
            ended = illegal or has_won(own) or len(own | other) == 9
            answer = now - other
            assert len(answer) == (not ended) and not answer & own
            answers += [*answer]
            other = now
            lost = not ended and has_won(other)
            reward = -1 if illegal or lost else 1 if has_won(own) else 0
            ended |= lost or len(own | other) == 9
            assert (found["reward"][k, j], found["terminated"][k, j]) == (reward, ended)
            if ended:
                ends.append((illegal, lost, reward))
                break
    assert {*answers} == {*range(9)} and len({*ends}) >= 3


def test_a_policy_plays_legal_moves_only() -> None:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        env = trl.env.make("TicTacToe")
        dnn = trl.DNNBuilder().from_env(env, hidden=[4]).build()
        o = trl.like(env.obs_space, domain=(b, t))
        o[b, 0] = env.reset(domain=(b,))
        step = env.step(dnn.sample(o, mask=env.legal(o)))
        o[b, t + 1] = step.obs
        ctx.output("reward", step.reward)
        ctx.output("over", step.done.any(over=t))
    result = ctx.compile({B: 16, T: 9}).execute(seed=0)
    assert (result["reward"] >= 0).all() and result["over"].all()
    assert result.policy()(np.zeros((2, 9), np.float32)).shape == ()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Catch", {"rows": 1}, "rows must be an integer of at least 2, not 1"),
        ("Catch", {"columns": 2.0}, "columns must be an integer of at least 1, not 2.0"),
        ("GridWorld", {"size": 1_025}, "size must be an integer of at least 2 and at most 1,024"),
    ],
)
def test_sizes_are_checked(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(trl.errors.ShapeError, match=message):
        trl.env.make(name, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("GridWorld", {"walls": [(0, 8)]}, "is not a cell of the grid"),
        ("GridWorld", {"size": 2, "walls": [(0, 0), (0, 1), (1, 0)]}, "two cells without a wall"),
        ("TicTacToe", {"opponent": "perfect"}, "opponent='perfect' is not an opponent"),
    ],
)
def test_options_are_checked(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(trl.errors.EnvError, match=message):
        trl.env.make(name, **options)
