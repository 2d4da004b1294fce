"""Fully connected networks, Adam and target updates on trees of arrays, shared by the algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.base.errors import OptionError, one_of

_ADAM: Final = (0.9, 0.999, 1e-8)
_ACTIVATIONS: Final[Mapping[str, Any]] = {"relu": jax.nn.relu, "tanh": jnp.tanh}


def check_activation(name: Any) -> None:
    """Check the name of an activation function.

    Raises:
        OptionError: it is unknown.
    """
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise OptionError(
            f"activation={name!r} is not supported.", hint=one_of(str(name), [*_ACTIVATIONS])
        )


def draw_network(random: np.random.Generator, widths: Sequence[int]) -> list[dict[str, Any]]:
    """Return He-initialised layers, the last one scaled by 0.01.

    NumPy draws the weights: JAX would compile a program for each shape.
    """
    layers: list[dict[str, Any]] = []
    for n, m in zip(widths, widths[1:], strict=False):
        drawn = random.standard_normal((n, m), np.float32) * np.float32((2 / n) ** 0.5)
        layers.append({"weight": jnp.asarray(drawn), "bias": jnp.asarray(np.zeros(m, "f4"))})
    layers[-1]["weight"] = layers[-1]["weight"] * np.float32(0.01)
    return layers


def apply_network(layers: Sequence[Mapping[str, Any]], x: Any, activation: str) -> Any:
    """Return the output of the last layer for a vector."""
    *inner, last = layers
    for layer in inner:
        x = _ACTIVATIONS[activation](x @ layer["weight"] + layer["bias"])
    return x @ last["weight"] + last["bias"]


def zeros_of(weights: Any) -> Any:
    """Return zeros in the shapes of a tree."""
    return jax.tree.map(jnp.zeros_like, weights)


def adam_step(
    weights: Any, gradient: Any, mean: Any, square: Any, t: Any, lr: float
) -> tuple[Any, Any, Any]:
    """Return the weights after step `t` of Adam, counted from 1, and its new moments.

    Source: Kingma and Ba 2015, Algorithm 1.
    """
    a, b, eps = _ADAM
    mean = jax.tree.map(lambda m, x: a * m + (1 - a) * x, mean, gradient)
    square = jax.tree.map(lambda v, x: b * v + (1 - b) * x**2, square, gradient)

    def update_weight(w: Any, m: Any, v: Any) -> Any:
        return w - lr * (m / (1 - a**t)) / (jnp.sqrt(v / (1 - b**t)) + eps)

    return jax.tree.map(update_weight, weights, mean, square), mean, square


def select(condition: Any, new: Any, old: Any) -> Any:
    """Return the tree `new` if a scalar condition holds, else `old`."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)


def soft_update(target: Any, weights: Any, tau: Any) -> Any:
    """Return target weights moved by a fraction of the distance to the weights."""
    return jax.tree.map(lambda y, x: y + tau * (x - y), target, weights)
