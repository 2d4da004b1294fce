"""Interface of off-policy algorithms for `trl.replay.train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.runtime.jax_backend import graph_function as graph

_ROUND = 8  # row count of a partial batch is rounded up to a multiple of this, which limits the number of compiled sizes


@runtime_checkable
class Algorithm(Protocol):
    """Interface of an off-policy algorithm: functions that return new trees of arrays and change no argument.

    A gradient is a sum over rows, not a mean, so the gradients of parts of a batch add up to the gradient of
    the batch.

    Attributes:
        env: the environment, as in `trl.collect`.
        fields: the fields of the buffer's rows, as in `trl.Replay`.
        gamma: the discount factor per step.
        identity: optional name of the algorithm. `train(folder=…)` resumes a run only with the same
            algorithm. Without a name, two algorithms are the same if their class, code and attributes are
            equal.

    Example:
        >>> isinstance(trl.replay.Dqn("CartPole-v1"), trl.replay.Algorithm)
        True
    """

    @property
    def env(self) -> Any: ...

    @property
    def fields(self) -> Mapping[str, tuple[tuple[int, ...], Any]]: ...

    @property
    def gamma(self) -> float: ...

    def begin(self, seed: int) -> Any:
        """Return the initial state of learning: a tree of arrays."""
        ...

    def acting(self, state: Any) -> Any:
        """Return the part of the state that actors need to choose actions."""
        ...

    def act(self, params: Any, obs: Any, key: Any) -> Any:
        """Return the action of one environment: a pure JAX function, as in `trl.collect`."""
        ...

    def gradient(self, state: Any, rows: Mapping[str, Any], weight: Any) -> tuple[Any, Any, Any]:
        """Return the gradient, the errors and the loss of some rows.

        Args:
            state: the state of learning.
            rows: arrays [count, …] by field; with n-step returns also `discount`. `train` adds
                `batch_position`, the position of each row in the batch, i32[count]. Random draws that depend on
                it, not on the index in the part, are the same for every division of the batch.
            weight: the weight of each row, f32[count]; 0 for padding.

        Returns:
            The weighted sum of the rows' gradients, their errors [count], and the weighted sum of their
            losses.
        """
        ...

    def step(self, state: Any, gradient: Any, count: int) -> Any:
        """Return the state after one optimiser step.

        Args:
            state: the state of learning.
            gradient: a sum over rows.
            count: the number of these rows.
        """
        ...


def check_algorithm(algorithm: Any) -> Algorithm:
    """Check that an object implements `Algorithm`, and return it.

    Raises:
        CallError: a method or attribute is missing.
    """
    how = "trl.replay.Dqn(), Ddpg(), Td3() or Sac(), or an object with all members of trl.replay.Algorithm."
    return expect_type(algorithm, Algorithm, "an algorithm that learns from a buffer", how)


def with_positions(rows: Mapping[str, Array], count: int, first: int) -> dict[str, Array]:
    """Return rows with their positions in the batch.

    Args:
        count: the number of rows.
        first: the position of the first row.
    """
    return {**rows, "batch_position": np.arange(first, first + count, dtype=np.int32)}


def parts(
    rows: Mapping[str, Array], weight: Array, counts: Sequence[int]
) -> list[tuple[dict[str, Array], Array]]:
    """Split a batch into parts of the given sizes, padded with rows of weight 0 if there are several parts."""
    if len(counts) == 1:
        return [(dict(rows), weight)]
    found: list[tuple[dict[str, Array], Array]] = []
    first = 0
    for count in counts:
        filled = -(-count // _ROUND) * _ROUND
        at = np.minimum(np.arange(first, first + filled), first + count - 1)
        w = weight[at]
        w[count:] = 0
        found.append(({name: x[at] for name, x in rows.items()}, w))
        first += count
    return found


def whole(found: Sequence[tuple[Any, Any, Any]], counts: Sequence[int]) -> tuple[Any, Array, float]:
    """Combine the gradients, errors and losses of a batch's parts."""
    gradient = found[0][0] if len(found) == 1 else graph.sum_trees([one[0] for one in found])
    errors = [np.asarray(one[1])[:count] for one, count in zip(found, counts, strict=True)]
    return gradient, np.concatenate(errors), sum(float(one[2]) for one in found)
