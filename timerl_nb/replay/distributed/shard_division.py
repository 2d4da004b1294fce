"""Division of a buffer among shards: capacities, and the shard of each draw."""

from __future__ import annotations

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.replay.prioritization.sum_tree import SumTree


def shard_capacities(capacity: int, count: int) -> list[int]:
    """Divide a capacity among shards as evenly as possible.

    Raises:
        OptionError, ShapeError: there are no shards, or more shards than rows.
    """
    count = integer("the number of shards", count, least=1)
    if count > capacity:
        raise OptionError(
            f"a capacity of {format_count(capacity, 'row')} cannot be divided among {count:,} shards.",
            hint="choose at most as many shards as rows.",
        )
    each, more = divmod(capacity, count)
    return [each + (k < more) for k in range(count)]


def divide_shares(totals: Array, shares: Array) -> tuple[Array, Array]:
    """Select a shard for each share of the sum of priorities, and the remaining sum within this shard.

    Args:
        totals: the sum of priorities of each shard, f64[shards], not all zero.
        shares: fractions of the whole sum, f64[count] from 0 to 1.

    Returns:
        The shards, i64[count]; none with a sum of zero. And the targets for their trees, f64[count] from 0 to
        the shard's sum.
    """
    top = SumTree(len(totals), engine="numpy")
    top.update(np.arange(len(totals)), totals)
    chosen = top.entries_at(shares)
    before = np.concatenate([[0.0], np.cumsum(totals)[:-1]])
    targets = shares * top.total - before[chosen]
    return chosen, np.clip(targets, 0.0, totals[chosen])
