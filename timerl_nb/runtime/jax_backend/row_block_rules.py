"""Blocks of rows inside a kernel: writing a row in place, and reading ranges of rows."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Lin
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray, Scope


def with_row(block: JaxArray, row: JaxArray, value: JaxArray, *, cut: bool) -> JaxArray:
    """Replace one row of a block, in place if the block is donated.

    Args:
        block: The block.
        row: Number of the row.
        value: New value of the row.
        cut: Whether `row` may lie outside of the block; such a row is ignored.
    """
    if cut:
        old = jax.lax.dynamic_index_in_dim(block, row, 0, keepdims=False)
        value = jnp.where((row >= 0) & (row < block.shape[0]), value, old)
    return jax.lax.dynamic_update_index_in_dim(block, value, row, 0)


def rows(scope: Scope, block: JaxArray, first: Lin, count: int) -> JaxArray:
    """Return `count` rows of a block from row `first`; rows beyond its end have arbitrary values."""
    size = block.shape[0]
    if not first.symbols.intersection(scope.point):
        start = evaluate(first, scope.bounds)
        if start == 0 and count == size:
            return block
        if 0 <= start <= start + count <= size:
            return jax.lax.slice_in_dim(block, start, start + count)
    return jnp.take(block, scope.value(first) + jnp.arange(count), axis=0, mode="clip")


def end_to_end(parts: Sequence[JaxArray]) -> JaxArray:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
