"""Gradient clipping: by value, then by the global norm."""

from __future__ import annotations

from collections.abc import Sequence

from timerl_nb.compiler.language.inputs.tensor_sources import where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor


def clip_gradients(
    grads: Sequence[RecurrentTensor], *, max_value: float | None, max_norm: float | None
) -> list[RecurrentTensor]:
    """Clip every element to `max_value`, then scale all gradients to a common Euclidean norm of `max_norm`.

    Args:
        grads: one gradient per parameter.
        max_value: bound of the absolute value of every element; None does not clip elements.
        max_norm: bound of the norm of all gradients together; None does not scale them.
    """
    if max_value is not None:
        grads = [g.clip(-max_value, max_value) for g in grads]
    if max_norm is None:
        return [*grads]
    first, *others = ((g * g).sum() for g in grads)
    norm = sum(others, first).sqrt()
    scale = where(norm > max_norm, max_norm / norm, 1.0)
    return [g * scale for g in grads]
