"""Policy of all implementations: two tanh layers, two logits; weights and NumPy evaluation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Weights = tuple[tuple[np.ndarray, np.ndarray], ...]
Act = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]]


def weights(width: int) -> Weights:
    """Return the matrices and biases of each layer; none for a width of 0."""
    if not width:
        return ()
    draw = np.random.default_rng(0)
    sizes = ((4, width, 1.0), (width, width, 1.0), (width, 2, 0.1))
    return tuple(
        (
            (scale * draw.standard_normal((n, m)) / np.sqrt(n)).astype(np.float32),
            (0.1 * draw.standard_normal(m)).astype(np.float32),
        )
        for n, m, scale in sizes
    )


def logits(layers: Weights, obs: np.ndarray) -> np.ndarray:
    x = obs
    for w, b in layers[:-1]:
        x = np.tanh(x @ w + b)
    w, b = layers[-1]
    return x @ w + b


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def by_numpy(width: int) -> Act:
    """Return a function from observations, [envs, 4], to actions and log-probabilities, [envs]."""
    layers, draw = weights(width), np.random.default_rng(1)

    def act(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if not layers:
            return draw.integers(2, size=len(obs)), None
        logp = log_softmax(logits(layers, obs))
        action = (draw.random(len(obs), dtype=np.float32) >= np.exp(logp[:, 0])).astype(np.int64)
        return action, logp[np.arange(len(obs)), action]

    return act
