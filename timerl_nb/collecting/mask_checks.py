"""Checks of the masks of actions that environments on the host report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError, OptionError
from timerl_nb.collecting.policies.collecting_policy import MaskArgument
from timerl_nb.env.action_masks import Rows

_HINT = "report it in the infos of every reset and step, as Gymnasium's Taxi-v4 does."


def first_masks(argument: MaskArgument, rows: Rows | None) -> Array | None:
    """Return the masks after the first reset; None if the environments report none.

    Raises:
        OptionError: the policy needs masks.
        EnvError: some environments report none, and the policy reads masks.
    """
    if rows is None:
        if argument.is_needed:
            raise OptionError(
                "the policy takes an action_mask, but the environments report none in the infos of their reset.",
                hint="let reset and step return the mask as info['action_mask'], or give the argument a default: "
                "action_mask=None.",
            )
        return None
    return complete_masks(argument, rows, rows.masks.shape[1:], np.zeros_like(rows.reported), None)


def complete_masks(
    argument: MaskArgument,
    rows: Rows | None,
    shape: Sequence[int],
    optional: Array,
    step: int | None,
    ids: Array | None = None,
) -> Array:
    """Return the masks of all environments; all actions are permitted without a reported mask.

    Args:
        argument: use of masks by the policy.
        rows: the reported masks.
        shape: shape of the first mask.
        optional: whether a mask may be missing, because its observation ends an episode, [envs].
        step: step of the batch; None for the reset.
        ids: numbers of the environments, if they are not all.

    Raises:
        EnvError: a mask is missing and the policy reads masks, or it has another shape.
    """
    made = np.ones((len(optional), *shape), bool)
    reported = np.zeros_like(optional) if rows is None else rows.reported
    if rows is not None:
        if rows.masks.shape[1:] != tuple(shape):
            raise EnvError(
                f"action masks {_after(step)} have the shape {list(rows.masks.shape[1:])}, but earlier ones have "
                f"{list(shape)}.",
                hint="report masks of equal shapes.",
            )
        made[reported] = rows.masks[reported]
    missing = ~(reported | optional)
    if missing.any() and not argument.allows_gaps:
        at = int(missing.argmax())
        raise EnvError(
            f"environment {at if ids is None else ids[at]} reports no action_mask {_after(step)}, but the policy "
            "reads it.",
            hint=_HINT,
        )
    return made


def check_masks_reported(argument: MaskArgument, rows: Rows | None, step: int) -> None:
    """Check that environments without masks after the reset report none later.

    Raises:
        EnvError: they do, and the policy reads masks.
    """
    if rows is not None and not argument.allows_gaps:
        raise EnvError(
            f"the environments report an action_mask {_after(step)}, but not in the infos of their reset.",
            hint=_HINT,
        )


def _after(step: int | None) -> str:
    return "after the reset" if step is None else f"after step {step} of the batch"
