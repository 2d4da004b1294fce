"""n-step returns: combines n consecutive steps of an environment into one replay entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.replay.storage.ring_rows import Field

LATER = (
    "next_obs",
    "terminated",
    "truncated",
)  # fields of a return's last step; all others belong to its first step
_ENDS = ("terminated", "truncated")


def check_env_count(count: int, before: int) -> None:
    """Check that a step has the rows of all environments.

    Raises:
        ShapeError: the number of environments changed.
    """
    if count != before:
        raise ShapeError(
            f"rows of {count} environments follow rows of {before} environments.",
            hint="pass one row per environment in every step: n-step returns, sequences and episodes need all of them.",
        )


def ends_of(rows: Mapping[str, Array], envs: int) -> tuple[Array, Array]:
    """Return which environments have made a step, and whose episodes have ended with it, bool[envs] each."""
    valid = np.asarray(rows.get("valid", np.ones(envs, bool)))
    ends = [np.asarray(rows[n]) for n in _ENDS if n in rows]
    return valid, valid & np.logical_or.reduce([np.zeros(envs, bool), *ends])


class Steps:
    """Incomplete n-step returns, per environment.

    Args:
        fields: the fields of the buffer's rows.
        count: n.
        gamma: the discount factor per step.

    Raises:
        OptionError: the fields lack `reward`, `next_obs` or `terminated`.
    """

    def __init__(self, fields: Mapping[str, Field], count: int, gamma: float) -> None:
        missing = [n for n in ("reward", "next_obs", "terminated") if n not in fields]
        if count > 1 and missing:
            raise OptionError(
                f"n-step returns need the missing fields {', '.join(missing)}.",
                hint="declare reward, next_obs (the observation after the step) and terminated. The buffer adds discount.",
            )
        self._fields = {n: f for n, f in fields.items() if n != "discount"}
        self.count, self.gamma = count, gamma
        self._pending_rows: dict[str, Array] = {}
        self._length = self._head = np.zeros(0, np.int64)

    def empty_copy(self) -> Steps:
        """Return an empty object with the same options."""
        return Steps(self._fields, self.count, self.gamma)

    @property
    def names(self) -> Sequence[str]:
        """The required fields of the rows."""
        return list(self._fields)

    @property
    def fields(self) -> dict[str, Field]:
        """The fields of an entry."""
        return {**self._fields, "discount": Field((), self._fields["reward"].dtype)}

    @property
    def envs(self) -> int:
        return len(self._length)

    @property
    def incomplete_count(self) -> int:
        """The number of steps in incomplete returns."""
        return int(self._length.sum())

    def take_completed(self, rows: Mapping[str, Array]) -> list[dict[str, Array]]:
        """Add one step of each environment, and return the entries that it completes, in order.

        Args:
            rows: [envs, …] by field. May also contain `truncated`, and `valid`: False for an environment
                without a step.

        Raises:
            ShapeError: the number of environments changed.
        """
        envs = len(next(iter(rows.values())))
        if not self.envs:
            self._begin(envs)
        check_env_count(envs, self.envs)
        valid, ends = ends_of(rows, envs)
        stepped = np.flatnonzero(valid)
        at = ((self._head + self._length) % self.count)[stepped]
        for name in self._fields:
            self._pending_rows[name][stepped, at] = rows[name][stepped]
        self._length[stepped] += 1
        made = [self._oldest(np.flatnonzero(ends | (self._length == self.count)))]
        while len(left := np.flatnonzero(ends & (self._length > 0))):
            made.append(self._oldest(left))
        return [one for one in made if len(one["reward"])]

    def _begin(self, envs: int) -> None:
        self._pending_rows = {
            n: np.zeros((envs, self.count, *f.shape), f.dtype) for n, f in self._fields.items()
        }
        self._length, self._head = np.zeros(envs, np.int64), np.zeros(envs, np.int64)

    def _oldest(self, envs: Array) -> dict[str, Array]:
        """Return the entries that begin at the oldest steps of some environments, and drop these steps."""
        head, length = self._head[envs], self._length[envs]
        last = (head + length - 1) % self.count
        found = {
            n: x[envs, last if n in LATER else head].copy() for n, x in self._pending_rows.items()
        }
        reward = self._pending_rows["reward"]
        total = np.zeros((len(envs), *self._fields["reward"].shape))
        for k in range(self.count):
            one = self.gamma**k * reward[envs, (head + k) % self.count].astype(np.float64)
            total += np.where((k < length).reshape(-1, *[1] * (total.ndim - 1)), one, 0)
        found["reward"] = total.astype(reward.dtype)
        found["discount"] = self.gamma ** length.astype(np.float64)
        self._head[envs] = (head + 1) % self.count
        self._length[envs] -= 1
        return found

    def state(self) -> dict[str, Array]:
        """Return all incomplete returns as arrays by name."""
        kept = {f"held {n}": x for n, x in self._pending_rows.items()}
        return {**kept, "held length": self._length, "held head": self._head}

    def held_in(self, state: Mapping[str, Any]) -> int:
        """Return the n of the returns in `state`, or this object's n if `state` has none."""
        held = state.get("held reward")
        return self.count if held is None else held.shape[1]

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load the arrays returned by `state`; a buffer without rows has none."""
        self._begin(len(state.get("held length", ())))
        if not self.envs:
            self._pending_rows = {}
            return
        for name in self._pending_rows:
            self._pending_rows[name][:] = state[f"held {name}"]
        self._length[:], self._head[:] = state["held length"], state["held head"]
