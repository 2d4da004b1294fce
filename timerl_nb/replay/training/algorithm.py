"""What `trl.replay.train` asks of an algorithm that learns from a buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.runtime.jax_backend import graph_function as graph

_ROUND = 8  # rows to which parts of a batch are filled up, so that few sizes are compiled


@runtime_checkable
class Algorithm(Protocol):
    """An off-policy algorithm as functions of trees of arrays, none of which is changed.

    A gradient is a *sum* over rows, so that those of parts of a batch add up to that of the whole.

    Attributes:
        env: what it acts in, as `trl.collect` takes it.
        fields: of a row of the buffer, as `trl.Replay` takes them.
        gamma: by which a reward is worth less, a step later.
        identity: optional, a string that names the algorithm where `train(folder=…)` goes on with a run. By default class, code and
            attributes tell it from others.
    """

    @property
    def env(self) -> Any: ...

    @property
    def fields(self) -> Mapping[str, tuple[tuple[int, ...], Any]]: ...

    @property
    def gamma(self) -> float: ...

    def begin(self, seed: int) -> Any:
        """All that learning carries from step to step: a tree of arrays."""
        ...

    def acting(self, state: Any) -> Any:
        """What actors act by, a part of the state or made of it."""
        ...

    def act(self, params: Any, obs: Any, key: Any) -> Any:
        """The action of one environment, a pure function of JAX, as `trl.collect` takes it."""
        ...

    def gradient(self, state: Any, rows: Mapping[str, Any], weight: Any) -> tuple[Any, Any, Any]:
        """Of some rows: the sum of their gradients, each by its weight; their errors, [count]; their loss, summed so.

        Args:
            rows: by field, [count, …]; with returns of several steps also `discount`.
            weight: of each, f32[count]; 0 where there is no row.
        """
        ...

    def step(self, state: Any, gradient: Any, count: int) -> Any:
        """The state after a step along the gradient of so many rows."""
        ...


def check_algorithm(algorithm: Any) -> Algorithm:
    """An algorithm.

    Raises:
        CallError: it is none.
    """
    how = "trl.replay.Dqn(), or what has all that trl.replay.Algorithm says."
    return expect_type(algorithm, Algorithm, "an algorithm that learns from a buffer", how)


def parts(
    rows: Mapping[str, Array], weight: Array, counts: Sequence[int]
) -> list[tuple[dict[str, Array], Array]]:
    """A batch in parts of so many rows, each filled up with rows of weight 0 where there are several."""
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
    """The gradient, errors and loss of a batch, of those of its parts."""
    gradient = found[0][0] if len(found) == 1 else graph.sum_trees([one[0] for one in found])
    errors = [np.asarray(one[1])[:count] for one, count in zip(found, counts, strict=True)]
    return gradient, np.concatenate(errors), sum(float(one[2]) for one in found)
