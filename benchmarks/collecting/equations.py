"""CartPole's equations (Barto, Sutton and Anderson, 1983) in float64: the reference for all batches."""

from __future__ import annotations

import numpy as np

from benchmarks.collecting import policy
from benchmarks.collecting.cell import ANGLE_LIMIT, MOST_STEPS, TICK, X_LIMIT
from benchmarks.collecting.implementation import Batch

ENVS = 64  # number of checked steps


def after(state: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return the states after a step; the last axis is position, velocity, angle, angular velocity."""
    x, v, angle, spin = np.moveaxis(np.asarray(state, np.float64), -1, 0)
    force = np.where(action == 1, 10.0, -10.0)
    cos, sin = np.cos(angle), np.sin(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    twist = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    pull = push - 0.05 * twist * cos / 1.1
    return np.stack([x + TICK * v, v + TICK * pull, angle + TICK * spin, spin + TICK * twist], -1)


def left(state: np.ndarray) -> np.ndarray:
    """Return the distance of a state beyond the episode's limits; negative within them."""
    return np.maximum(abs(state[..., 0]) - X_LIMIT, abs(state[..., 2]) - ANGLE_LIMIT)


def check(batch: Batch, width: int | None) -> int:
    """Check steps against the equations; return the number of compared steps."""
    b = {name: np.asarray(x) for name, x in batch.items()}
    seen = np.concatenate([b["obs"], b["last_obs"][None]])[:, :ENVS].astype(np.float64)
    keys = ("action", "terminated", "truncated", "valid")
    action, ended, cut, valid = (b[name][:, :ENVS] for name in keys)
    expected, over = after(seen[:-1], action), ended | cut
    goes_on = valid & ~over
    wrong = goes_on & (abs(expected - seen[1:]).max(-1) > 1e-4)
    assert not wrong.any(), f"a step led elsewhere, at {_first(wrong)}"
    beyond = left(expected)
    wrong = valid & (ended != (beyond > 0)) & (abs(beyond) > 1e-4)
    assert not wrong.any(), f"an episode ended elsewhere, at {_first(wrong)}"
    begins = np.ones(valid.shape, bool)  # what follows is the first of an episode, or leads to it
    begins[1:] = over[:-1]
    fresh = abs(seen[:-1]).max(-1) <= 0.05 + 1e-6
    wrong = begins & valid & ~fresh
    assert not wrong.any(), f"an episode did not begin at rest, at {_first(wrong)}"
    length = np.zeros(valid.shape[1], int)
    for t in range(len(valid)):
        length = np.where(begins[t], 0, length) + valid[t]
        wrong = valid[t] & (cut[t] != (length >= MOST_STEPS))
        assert not wrong.any(), f"an episode was cut off after {length[wrong][0]} steps"
    if width:
        logp = policy.log_softmax(policy.logits(policy.weights(width), seen[:-1]))
        own = np.take_along_axis(logp, action[..., None].astype(int), -1)[..., 0]
        wrong = valid & (abs(own - b["log_prob"][:, :ENVS]) > 1e-3)
        assert not wrong.any(), f"a log-probability is another, at {_first(wrong)}"
    return int(goes_on.sum())


def moves(batch: Batch) -> None:
    """Whether another environment's steps go anywhere.

    Raises:
        AssertionError: they do not, or what is seen is no number.
    """
    seen = np.asarray(batch["obs"])
    assert np.isfinite(seen).all() and np.isfinite(batch["reward"]).all(), "what is seen is NaN"
    wrong = (seen[1:] == seen[:-1]).all(-1)
    assert not wrong.any(), f"nothing moved, at {_first(wrong)}"


def _first(wrong: np.ndarray) -> str:
    step, env = np.argwhere(wrong)[0]
    return f"step {step} of environment {env}"
