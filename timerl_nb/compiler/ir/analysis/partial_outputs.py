"""Outputs of conditional tensors: values and their coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.ir.operations import Op

Coordinates = Mapping[str, Array]


def attach_coordinates(
    values: Array, points: Sequence[tuple[int, ...]], sink: Op
) -> tuple[Array, Coordinates]:
    """Return the values in the order of their points, and the coordinates of each value.

    Args:
        values: one row per point of the sink's domain, with vectorised dimensions as further axes.
        points: the points, in the order of the rows.
        sink: the output.
    """
    attrs: OutputAttrs = sink.attrs
    many = len(attrs.axes)
    lead, shape = values.shape[: 1 + many], values.shape[1 + many :]
    row, *along = np.unravel_index(np.arange(prod(lead)), lead)
    at = np.asarray(points, np.int64).reshape(len(points), len(sink.domain))
    found = {d: at[row, k] for k, d in enumerate(sink.domain)}
    found |= dict(zip(attrs.axes, along, strict=True))
    order = np.lexsort([found[d] for d in reversed(attrs.dims)])
    flat = values.reshape(len(row), *shape)[order]
    return flat, {d: found[d][order] for d in attrs.dims}
