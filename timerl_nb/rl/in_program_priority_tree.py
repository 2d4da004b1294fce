"""A sum tree in a program: priorities that are drawn in proportion, as recurrent tensors.

Levels of groups of `fanout` (003_bc3f8b946743a61e, section 4.1). A sum is computed anew from its children,
never changed by a difference: a tree is a function of its leaves alone. Each level of a draw takes random
bits of its own: an offset in float32 carried from the root down has too few of them for a million leaves.

What a draw says of a leaf is taken from the group that it was found in. So whatever depends on the draw
comes behind all that the draw reads, and XLA can put new leaves into the memory of the old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.shapes import is_integer
from timerl_nb.compiler.language.argument_checks import integer
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
    """Leaves that were drawn, in proportion to their priorities.

    Attributes:
        index: i32 [count].
        priority: f32 [count].
        probability: of each, the share of its priority in all of them.
    """

    index: Tensor
    priority: Tensor
    probability: Tensor

    def weight(self, beta: Any) -> Tensor:
        """(p / the least of those drawn) ** -beta, 1 at most; 0 where there was nothing to draw."""
        there = self.priority > 0
        ratio = where(there, self.priority, 1.0) / where(there, self.priority.min(axis=0), 1.0)
        return where(there, ratio ** -operand(None, beta), 0.0)


@dataclass(frozen=True)
class DeviceTree:
    """Priorities of `size` leaves, at a point; `levels` are sums from the root's children to the leaves."""

    size: int
    fanout: int
    levels: tuple[Tensor, ...]

    def __getitem__(self, index: Any) -> DeviceTree:
        """The tree at another point: `tree[t + 1]`."""
        return DeviceTree(self.size, self.fanout, tuple(level[index] for level in self.levels))

    def __setitem__(self, index: Any, other: DeviceTree) -> None:
        """What the tree is there: `tree[t + 1] = tree.with_leaves(at, p)`."""
        if (other.size, other.fanout) != (self.size, self.fanout):
            raise ShapeError(
                f"a tree of {other.size} leaves by {other.fanout} is no tree of {self.size} by "
                f"{self.fanout}.",
                hint="make both with the same size and fanout.",
            )
        for mine, theirs in zip(self.levels, other.levels, strict=True):
            mine[index] = theirs

    @property
    def leaves(self) -> Tensor:
        """All priorities: f32 [size]."""
        return self.levels[-1].slice(0, self.size)

    @property
    def total(self) -> Tensor:
        """Their sum, as draws have it."""
        return self.levels[0].cumsum(ordered=True).take(self.fanout - 1)

    def with_leaves(self, at: Any, priority: Any) -> DeviceTree:
        """The tree with other priorities at some leaves; of one that is named twice the last counts.

        Args:
            at: i32 [count]; those that are no leaves are left out.
            priority: f32 [count], or one for all. What is no positive number counts as 0.
        """
        ctx = self.levels[0].ctx
        at, priority = operand(ctx, at), operand(ctx, priority).cast("f32")
        if not is_integer(at.dtype):
            raise ShapeError(
                f"leaves are integers, not {at.type}.",
                hint="x.floor().cast('i32') makes integers of fractions.",
            )
        at = at.cast("i32")
        if at.rank != 1 or priority.shape not in ((), at.shape):
            raise ShapeError(
                f"priorities {priority.type} do not go with leaves {at.type}.",
                hint="give an axis of leaves, and as many priorities or one.",
            )
        at = where((at >= 0) & (at < self.size), at, -1)
        levels = [self.levels[-1].put(at, where(priority > 0, priority, 0.0))]
        for level in reversed(self.levels[:-1]):
            at = at // self.fanout
            levels.append(level.put(at, self._children(levels[-1], at).sum(axis=-1)))
        return DeviceTree(self.size, self.fanout, tuple(reversed(levels)))

    def draw(self, count: int, *, domain: Any = None) -> Draws:
        """Leaves in proportion to their priorities, stratified: the k-th is of the k-th part of all.

        A leaf with priority 0 is never drawn while there is another one; without any, what is drawn has
        priority 0.

        Args:
            count: how many.
            domain: over which dimensions draws are independent; those of the tree by default.
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
        """The groups of a level: [count, fanout]; zeros for one that is none."""
        return level.reshape(-1, self.fanout).take(group)


def chosen(sums: Tensor, share: Tensor, size: int) -> Tensor:
    """The child of each group at a share of the group's sum: the first that goes beyond it.

    Sums that are added up in order grow only where there is a priority, so that the child has one; at the end, where
    a share may be rounded to the whole sum, it is the first that reaches that. It is the first of all where none has any.

    Args:
        sums: of a group's children, running: [count, size].
        share: [count].
    """
    whole = sums.take(size - 1, 1)
    below = (sums <= (share * whole).unsqueeze(-1)) & (sums < whole.unsqueeze(-1))
    # XLA adds up several at once, and takes minima one by one
    return below.cast("i32").sum(axis=-1)


def device_tree(size: int, fanout: int = 8, *, domain: Any = None) -> DeviceTree:
    """A sum tree of `size` leaves for prioritised replay inside a program.

    Without a domain all its priorities are 0. With one it is a recurrent tree, whose equations follow::

        tree = trl.replay.device_tree(N, domain=(t,))
        tree[0] = trl.replay.device_tree(N)
        drawn = tree.draw(256)
        tree[t + 1] = tree.with_leaves(drawn.index, error ** 0.6)

    Each level is one array of float32, written in place: 4 · size · (1 + 1 / (fanout - 1)) bytes.

    Args:
        size: how many leaves, at least 1.
        fanout: of each group, at least 2.
    """
    size = integer("the size of a tree", size, least=1)
    fanout = integer("fanout", fanout, least=2)
    if size > 2**30:
        raise ShapeError(f"a tree has at most 2**30 leaves, not {size:,}.")
    counts = [size]
    while counts[-1] > fanout:
        counts.append(-(-counts[-1] // fanout))
    sizes = [-(-count // fanout) * fanout for count in reversed(counts)]
    make: Callable[[int], Tensor] = (
        (lambda n: zeros((n,))) if domain is None else (lambda n: tensor((n,), domain=domain))
    )
    levels = tuple(make(n).named(f"level {k}") for k, n in enumerate(sizes))
    return DeviceTree(size, fanout, levels)
