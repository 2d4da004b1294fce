"""Gradient clipping: by value, then by the global norm."""

from __future__ import annotations

from collections.abc import Sequence

from timerl_nb.compiler.language.inputs.tensor_sources import where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor


def clip_gradients(
    grads: Sequence[RecurrentTensor], *, max_value: float | None, max_norm: float | None
) -> list[RecurrentTensor]:
    """Clip all elements to `max_value`, then scale all gradients to a common Euclidean norm of at most `max_norm`.

    Args:
        grads: one gradient per parameter.
        max_value: the greatest absolute value of an element; None for no limit.
        max_norm: the greatest norm of all gradients together; None for no limit.
    """
    if max_value is not None:
        grads = [g.clip(-max_value, max_value) for g in grads]
    if max_norm is None:
        return [*grads]
    first, *others = ((g * g).sum() for g in grads)
    norm = sum(others, first).sqrt()
    scale = where(norm > max_norm, max_norm / norm, 1.0)
    return [g * scale for g in grads]
