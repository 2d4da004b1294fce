"""Checks and conversions of results of policies and environments on the host."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, Protocol

import numpy as np

from timerl_nb.base.array_conversion import (
    Array,
    as_array,
    convert_array,
    misfit,
    narrow_array,
    numbers_of,
)
from timerl_nb.base.errors import EnvError, ShapeError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.policies.collecting_policy import Actions
from timerl_nb.compiler.ir.shapes import NUMPY, dtype_name

REWARDS: Final = "the environments' rewards"
_LINE: Final = 64  # JAX shares memory of this alignment (bytes) without a copy


def memory(shape: Sequence[int], kind: Any) -> Array:
    """Return an uninitialized array with the alignment required by JAX."""
    size = prod(shape) * np.dtype(kind).itemsize
    whole = np.empty(size + _LINE, np.uint8)
    at = -whole.ctypes.data % _LINE
    return whole[at : at + size].view(kind).reshape(shape)


class HostChecks:
    """Checks of one step's results.

    Args:
        task: the task.
        rows: number of environments per call of the policy.

    Attributes:
        seen: shape and type of an observation.
        acts: shape and type of the actions of a call.
        allowed: check of the range of actions.
    """

    def __init__(self, task: Task, rows: int) -> None:
        seen, acts = task.spaces
        self.seen = (*seen.shape,), NUMPY[seen.dtype]
        self.acts = (rows, *acts.shape), NUMPY[acts.dtype]
        self.allowed = Actions(acts, task.position.first)
        self._rows = rows

    def check_actions(self, made: Any) -> Array:
        """Return actions after a check of shape and type."""
        made = numbers_of("the policy's action", made)
        shape, kind = self.acts
        wrong = "" if self.allowed.sizes is not None else misfit(made, kind)
        if wrong.startswith("integers"):
            raise ShapeError(f"the policy's action has {wrong}.", hint="clip it to the space.")
        if made.shape != shape or wrong or not np.can_cast(made.dtype, kind, "same_kind"):
            raise ShapeError(
                f"the policy's action is {_kind(made)}, but the environments expect "
                f"{_kind(np.empty((0, *shape), kind)[:0], shape)}.",
                hint="return one action per environment, for the observations of all environments.",
            )
        if self.allowed.sizes is not None:  # the range is checked at each step
            return made
        return narrow_array("the policy's action", made, kind)

    def convert_observations(self, obs: Any) -> Array:
        """Return observations in the element type of the batch.

        Raises:
            EnvError: an integer is out of range.
        """
        return convert_array("the environments' observations", obs, self.seen[1], error=EnvError)

    def check_extra(self, name: str, made: Any, wanted: Sequence[int], t: int) -> Array:
        """Return an extra of the policy after a check of its shape."""
        one = as_array(made)
        if one.shape != tuple(wanted) or one.shape[:1] != (self._rows,):
            raise ShapeError(
                f"the policy's {name} is {_kind(one)} at step {t}, but needs one row for each of "
                f"{format_count(self._rows, 'environment')}, and equal shapes at every step.",
                hint="return extras with environments as the first dimension.",
            )
        return one


class _Faulty(Protocol):
    """Environments that may fail; see `Stepping`."""

    def at_fault(self, error: Exception) -> tuple[Sequence[int], str]: ...

    @property
    def seeds(self) -> Sequence[int] | None: ...


def environment_error(
    stepping: _Faulty, error: Exception, when: str, first_env: int = 0
) -> EnvError:
    """Return an error with the failed environment, its seed and the time of the failure.

    Args:
        stepping: the environments.
        error: the error of one of them.
        when: the time of the failure.
        first_env: number of the first environment among those of all workers.
    """
    which, said = stepping.at_fault(error)
    seeds, first = stepping.seeds, first_env + which[0]
    name = f"environment {first}" if len(which) == 1 else f"one of {len(which)} environments"
    if len(which) > 1 and first != 0:
        name += f", {first} to {first_env + which[-1]},"
    if seeds is not None:
        known = ", ".join(str(seeds[k]) for k in which[:8])
        name += f" (seed {known}{', …' if len(which) > 8 else ''})"
    return EnvError(
        f"{name} failed {when}: {said}.",
        hint="fix the environment and create a new collector. Collected batches stay valid.",
    )


def _kind(x: Array, shape: Sequence[int] | None = None) -> str:
    try:
        name = dtype_name(x.dtype)
    except (KeyError, TypeError):
        name = str(x.dtype)
    return f"{name}{list(x.shape if shape is None else shape)}"
