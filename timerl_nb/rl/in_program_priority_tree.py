"""Sum tree of priorities as recurrent tensors, for prioritised replay inside a program. Source: PEARL §4.1.

Levels consist of groups of `fanout` elements. Each sum is recomputed from its children, so a tree is a function of its
leaves alone. Each level of a draw uses separate random bits: one float32 offset for all levels would have too few bits
for a million leaves. The drawn priority is read from the group in which the leaf was found; so all uses of a draw come
after its reads, and XLA can write new leaves into the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.shapes import is_integer
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_call_errors, explain_constructor
from timerl_nb.compiler.language.inputs.tensor_sources import (
    arange,
    maximum,
    random_uniform,
    tensor,
    where,
    zeros,
)
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand

Tensor = RecurrentTensor


@dataclass(frozen=True)
class Draws:
    """Leaves drawn in proportion to their priorities.

    Attributes:
        index: the leaves, i32 [count].
        priority: their priorities, f32 [count].
        probability: their priorities as fractions of the total, f32 [count].

    Example:
        >>> tree = trl.replay.device_tree(8).with_leaves([0, 3], 1.0)
        >>> drawn = tree.draw(4, domain=t)
        >>> drawn.index, drawn.weight(0.4)
        (i32[4] @ (t), f32[4] @ (t))
    """

    index: Tensor
    priority: Tensor
    probability: Tensor

    def weight(self, beta: Any) -> Tensor:
        """Return importance weights (p / smallest drawn p)**-beta, at most 1; 0 if all priorities are 0."""
        there = self.priority > 0
        ratio = where(there, self.priority, 1.0) / where(there, self.priority.min(axis=0), 1.0)
        return where(there, ratio ** -operand(None, beta), 0.0)


@explain_constructor
@dataclass(frozen=True)
class DeviceTree:
    """Sum tree of priorities at a point, created by `device_tree`.

    Attributes:
        size: the number of leaves.
        fanout: the number of elements per group.
        levels: the sums, from the root's children to the leaves.

    Example:
        >>> tree = trl.replay.device_tree(8)
        >>> tree.with_leaves([0, 3], 1.0).total
        f32[] @ ()
    """

    size: int
    fanout: int
    levels: tuple[Tensor, ...]

    def __getitem__(self, index: Any) -> DeviceTree:
        """Return the tree at another point: `tree[t + 1]`."""
        return DeviceTree(self.size, self.fanout, tuple(level[index] for level in self.levels))

    def __setitem__(self, index: Any, other: DeviceTree) -> None:
        """Define the tree at other points: `tree[t + 1] = tree.with_leaves(at, p)`."""
        if (other.size, other.fanout) != (self.size, self.fanout):
            raise ShapeError(
                f"a tree of {other.size} leaves with fanout {other.fanout} is assigned to one of "
                f"{self.size} leaves with fanout {self.fanout}.",
                hint="create both with the same size and fanout.",
            )
        for mine, theirs in zip(self.levels, other.levels, strict=True):
            mine[index] = theirs

    @property
    def leaves(self) -> Tensor:
        """All priorities: f32 [size]."""
        return self.levels[-1].slice(0, self.size)

    @property
    def total(self) -> Tensor:
        """Sum of all priorities, as used by draws."""
        return self.levels[0].cumsum(ordered=True).take(self.fanout - 1)

    def with_leaves(self, at: Any, priority: Any) -> DeviceTree:
        """Return the tree with other priorities at some leaves.

        Args:
            at: leaves, i32 [count]; numbers outside the tree are ignored, and the last of repeated ones wins.
            priority: priorities, f32 [count], or one for all; negative numbers and NaN count as 0.

        Raises:
            ShapeError: the leaves are not integers, or the shapes do not match.
        """
        ctx = self.levels[0].ctx
        at, priority = operand(ctx, at), operand(ctx, priority).cast("f32")
        if not is_integer(at.dtype):
            raise ShapeError(
                f"leaves must be integers, not {at.type}.",
                hint="convert fractions by x.floor().cast('i32').",
            )
        at = at.cast("i32")
        if at.rank != 1 or priority.shape not in ((), at.shape):
            raise ShapeError(
                f"priorities {priority.type} do not match leaves {at.type}.",
                hint="give a vector of leaves, and as many priorities or one.",
            )
        at = where((at >= 0) & (at < self.size), at, -1)
        levels = [self.levels[-1].put(at, where(priority > 0, priority, 0.0))]
        for level in reversed(self.levels[:-1]):
            at = at // self.fanout
            levels.append(level.put(at, self._children(levels[-1], at).sum(axis=-1)))
        return DeviceTree(self.size, self.fanout, tuple(reversed(levels)))

    def draw(self, count: int, *, domain: Any = None) -> Draws:
        """Draw leaves in proportion to their priorities, stratified: draw k lies in part k of the total.

        A leaf of priority 0 is drawn only if all priorities are 0.

        Args:
            count: the number of draws.
            domain: the dimensions over which draws are independent; by default those of the tree.
        """
        count = integer("the number of draws", count, least=1)
        over = self.levels[0].domain if domain is None else domain
        group, found = zeros((count,), "i32"), self.levels[0].unsqueeze(0)
        shares = random_uniform((len(self.levels), count), domain=over)
        total, priority = None, found
        for depth, level in enumerate(self.levels):
            share = shares.take(depth)
            if depth:
                found = self._children(level, group)
            else:
                share = (arange(count).floating() + share) / count
            sums = found.cumsum(-1, ordered=True)
            total = sums.take(self.fanout - 1, 1) if total is None else total
            child = chosen(sums, share, self.fanout)
            priority = where(arange(self.fanout) == child.unsqueeze(-1), found, 0.0).sum(axis=-1)
            group = group * self.fanout + child
        return Draws(group, priority, priority / maximum(total, np.float32(1e-38)))

    def _children(self, level: Tensor, group: Tensor) -> Tensor:
        """Return the groups of a level: [count, fanout]; zeros outside the level."""
        return level.reshape(-1, self.fanout).take(group)


def chosen(sums: Tensor, share: Tensor, size: int) -> Tensor:
    """Return the child of each group at a fraction of the group's sum: the first whose running sum exceeds it.

    Sums added in order increase only at positive priorities, so the child has one. If the fraction is rounded up to the whole
    sum, the child is the first that reaches the sum. If all priorities are 0, it is the first child.

    Args:
        sums: the running sums of each group's children: [count, size].
        share: the fractions: [count].
    """
    whole = sums.take(size - 1, 1)
    below = (sums <= (share * whole).unsqueeze(-1)) & (sums < whole.unsqueeze(-1))
    # A sum, not a minimum: XLA vectorises sums
    return below.cast("i32").sum(axis=-1)


@explain_call_errors
def device_tree(size: int, fanout: int = 8, *, domain: Any = None) -> DeviceTree:
    """Create a sum tree of priorities, for prioritised replay inside a program.

    Without a domain all priorities are 0. With a domain it is a recurrent tree, to be defined by branches::

        tree = trl.replay.device_tree(N, domain=(t,))
        tree[0] = trl.replay.device_tree(N)
        drawn = tree.draw(256)
        tree[t + 1] = tree.with_leaves(drawn.index, error ** 0.6)

    Each level is one float32 array, updated in place: 4 · size · (1 + 1 / (fanout - 1)) bytes in all.

    Args:
        size: the number of leaves, from 1 to 2**30.
        fanout: the number of elements per group, at least 2.
        domain: the dimensions that the tree varies over.

    Raises:
        ShapeError: an argument is out of range.

    Example:
        >>> tree = trl.replay.device_tree(100, domain=t)
        >>> tree[0] = trl.replay.device_tree(100)
        >>> tree[t + 1] = tree.with_leaves([3], 1.0)
        >>> tree.draw(4).index
        i32[4] @ (t)
    """
    size = integer("the size of a tree", size, least=1)
    fanout = integer("fanout", fanout, least=2)
    if size > 2**30:
        raise ShapeError(
            f"a tree has at most 2**30 leaves, not {size:,}.", hint="use a smaller size."
        )
    counts = [size]
    while counts[-1] > fanout:
        counts.append(-(-counts[-1] // fanout))
    sizes = [-(-count // fanout) * fanout for count in reversed(counts)]
    make: Callable[[int], Tensor] = (
        (lambda n: zeros((n,))) if domain is None else (lambda n: tensor((n,), domain=domain))
    )
    levels = tuple(make(n).named(f"level {k}") for k, n in enumerate(sizes))
    return DeviceTree(size, fanout, levels)
