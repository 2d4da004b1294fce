"""Masks of actions in the infos of Gymnasium's environments: `info["action_mask"]`.

Worker processes execute the text of this file; it imports no other module of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

NAME = "action_mask"


class Rows(NamedTuple):
    """Masks of several environments.

    Attributes:
        masks: true for the permitted actions, [envs, …]; false rows for unreported masks.
        reported: whether each environment reported a mask, [envs].
    """

    masks: Array
    reported: Array

    def take(self, at: Any) -> Rows:
        """Return some of the rows."""
        return Rows(self.masks[at], self.reported[at])


class Masks(NamedTuple):
    """Masks of a step.

    Attributes:
        now: masks of the observations after the step.
        final: masks of the last observations of ended episodes in order of environments, if their resets belong to the
            same step; None if there are no such masks.
    """

    now: Rows | None
    final: Rows | None = None


def reported_rows(infos: Mapping[str, Any], count: int) -> Rows | None:
    """Return the masks in the infos of a vector environment; None if it reports none.

    The parts of a mask that is a tuple, such as for a `MultiDiscrete` space, become one vector.

    Args:
        infos: infos, with arrays of all environments.
        count: number of environments.
    """
    found = infos.get(NAME)
    if found is None or isinstance(found, dict):  # a `Dict` space has no vector of actions
        return None
    known = infos.get("_" + NAME)
    reported = np.ones(count, bool) if known is None else np.array(known, bool)
    if isinstance(found, np.ndarray) and found.dtype != object:
        return Rows(found != 0, reported)
    rows = {k: _flat(x) for k, x in enumerate(found) if x is not None and reported[k]}
    if not rows:
        return None
    masks = np.zeros((count, *next(iter(rows.values())).shape), bool)
    for k, row in rows.items():
        masks[k] = row
    return Rows(masks, np.isin(np.arange(count), [*rows]))


def _flat(mask: Any) -> Array:
    if isinstance(mask, tuple):
        return np.concatenate([np.ravel(part) for part in mask]) != 0
    return np.asarray(mask) != 0


def joined(parts: Sequence[Rows | None], counts: Sequence[int]) -> Rows | None:
    """Return the rows of several groups of environments as one; None if no group has masks."""
    shape = next((part.masks.shape[1:] for part in parts if part is not None), None)
    if shape is None:
        return None
    pairs = [
        Rows(np.zeros((count, *shape), bool), np.zeros(count, bool)) if part is None else part
        for part, count in zip(parts, counts, strict=True)
    ]
    return Rows(*(np.concatenate(arrays) for arrays in zip(*pairs, strict=True)))
