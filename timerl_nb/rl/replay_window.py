"""Replay without a buffer: the last points of a dimension, some of which are looked at again.

A program reads its own past (semantics.md, section 3). What it picks from a window of it is kept in a
ring of the window's length, whatever the dimension's is, and looked up there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from timerl_nb.base.errors import DomainError
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.indexing.index_parsing import as_dims
from timerl_nb.compiler.language.inputs.tensor_sources import random_bits, where
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand, value_of
from timerl_nb.compiler.symbolic.index_expressions import Slice, maximum, minimum, span, sym
from timerl_nb.env.environment import Step


@dataclass(frozen=True)
class Window:
    """The last `length` transitions of `steps` points each that have ended by the current point.

    Their positions count from the oldest, 0, to the one that ends now. Until the first has ended there
    is one position, which stands for what is not there yet.
    """

    ctx: Any
    length: int
    along: str
    steps: int

    @property
    def count(self) -> RecurrentTensor:
        """How many there are, at least 1: i32 over the dimension."""
        return value_of(self.ctx, self._end_points.length)

    def draw(self, count: int, *, domain: Any) -> RecurrentTensor:
        """Positions of `count` transitions, each as likely as the others: i32 [count] over `domain`.

        Args:
            domain: has the window's dimension; with those of environments each draws its own.

        Raises:
            DomainError: it lacks that dimension.
        """
        names = as_dims(self.ctx, self.ctx.space, domain)
        if self.along not in names:
            raise DomainError(
                f"what is drawn from a window along {self.along} varies over it, not over "
                f"({', '.join(names)}) alone.",
                hint=f"add {self.along} to the domain.",
            )
        bits = random_bits((integer("the number of draws", count, least=1),), domain=names)
        return (bits % self.count.cast("u32")).cast("i32")

    def starts(self, x: RecurrentTensor, at: Any) -> RecurrentTensor:
        """What a tensor was where the transitions at some positions began; no gradient flows there.

        What does not vary over the dimension was the same everywhere.

        Returns:
            the axes of `at` and then those of `x`, over the dimensions of both.
        """
        back, now = self.steps - 1, sym(self.along)
        first, last = maximum(now - self.length + 1 - back, 0), maximum(now - back, 0)
        return self._gather_at(x, span(first, last + 1), at)

    def ends(self, x: RecurrentTensor, at: Any) -> RecurrentTensor:
        """What a tensor was where the same transitions ended, such as the return of their rewards."""
        return self._gather_at(x, self._end_points, at)

    def returns(
        self, step: Step, gamma: float
    ) -> tuple[RecurrentTensor, RecurrentTensor, RecurrentTensor]:
        """Of the transition that ends now: the sum of its rewards, what it led to, and a value's worth there.

        Rewards and values are worth less step by step by `gamma`. It stops where an episode does: what
        it led to is that step's `final_obs`, where a value is worth nothing if the episode terminated, and
        is still worth something if it was cut off. A target is `gain + worth * value(after)`.
        """

        def read_back(x: RecurrentTensor, k: int) -> RecurrentTensor:
            return x.at({self.along: maximum(sym(self.along) - k, 0)}) if k else x

        gain, after = step.reward, step.final_obs
        worth = where(step.terminated, 0.0, gamma)
        for k in range(1, self.steps):
            done, ended = read_back(step.done, k), read_back(step.terminated, k)
            seen = read_back(step.final_obs, k)
            gain = read_back(step.reward, k) + where(done, 0.0, gamma * gain)
            after = where(done.reshape((1,) * after.rank), seen, after)
            worth = where(done, where(ended, 0.0, gamma), gamma * worth)
        return gain, after, worth

    @property
    def leaf(self) -> RecurrentTensor:
        """The leaf that the transition which ends now has in a tree of `length`: i32 [1], -1 if none ends."""
        now = value_of(self.ctx, sym(self.along))
        return where(now >= self.steps - 1, now % self.length, -1).reshape((1,))

    def of_leaves(self, leaf: RecurrentTensor) -> RecurrentTensor:
        """The positions of the transitions that leaves of such a tree stand for."""
        now = value_of(self.ctx, sym(self.along))
        return now - (now - leaf) % self.length - value_of(self.ctx, self._end_points.lo)

    @property
    def _end_points(self) -> Slice:
        """The points at which they ended."""
        now = sym(self.along)
        return span(maximum(now - self.length + 1, minimum(self.steps - 1, now)), now + 1)

    def _gather_at(self, x: RecurrentTensor, part: Slice, at: Any) -> RecurrentTensor:
        if self.along in x.domain:
            return x.detach().at({self.along: part}).take(at)
        shape = operand(self.ctx, at, like="i32").shape
        return x.detach().reshape((*(1,) * len(shape), *x.shape)).expand(*shape, *x.shape)


def window(length: int, over: Any, *, steps: int = 1) -> Window:
    """The last `length` transitions along a dimension, to be drawn from.

    `memory = trl.replay.window(100_000, over=t)`; `at = memory.draw(8, domain=(b, t))` are positions for
    each environment and step; `memory.starts(o, at)` is what had been observed there. Of a tensor that is
    read so the last `length` values are kept (`length + steps - 1` of what `starts` reads), in one ring.

    Args:
        length: how many, at least 1.
        over: one dimension.
        steps: of a transition: it begins so many points, less one, before it ends.

    Raises:
        ShapeError: `length` or `steps` is no integer of at least 1.
        DomainError: there is no such dimension, or there are several.
    """
    ctx = current()
    names = as_dims(ctx, ctx.space, over)
    if len(names) != 1:
        raise DomainError("a window goes back along one dimension.", hint="over=t, for example.")
    long = integer("the length of a window", length, least=1, most=2**31 - 1)
    return Window(ctx, long, names[0], integer("steps", steps, least=1))
