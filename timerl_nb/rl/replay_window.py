"""Replay from a window of the program's own past, without a separate buffer.

A program can read its earlier points. Values read from a window are stored in a ring buffer of the window's length,
for any length of the dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from timerl_nb.base.errors import DomainError
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.indexing.index_parsing import as_dims
from timerl_nb.compiler.language.inputs.tensor_sources import random_bits, where
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand, value_of
from timerl_nb.compiler.symbolic.index_expressions import Slice, maximum, minimum, span, sym
from timerl_nb.env.environment import Step


@dataclass(frozen=True)
class Window:
    """The last `length` transitions of `steps` points each that have ended by the current point.

    Positions count from the oldest transition, 0, to the one that ends at the current point. Before the first transition has
    ended there is one position, with values of an incomplete transition.

    Example:
        >>> memory = trl.replay.window(1_000, over=t)
        >>> at = memory.draw(8, domain=t)
        >>> o = trl.data(np.zeros((5, 4), "f4"), domain=t)
        >>> memory.starts(o, at)
        f32[8,4] @ (t)
    """

    ctx: Any
    length: int
    along: str
    steps: int

    @property
    def count(self) -> RecurrentTensor:
        """Number of transitions in the window, at least 1: i32 over the dimension."""
        return value_of(self.ctx, self._end_points.length)

    def draw(self, count: int, *, domain: Any) -> RecurrentTensor:
        """Draw positions of transitions uniformly.

        Args:
            count: the number of draws.
            domain: the dimensions of the draws, including the window's; add that of environments for a separate
                draw per environment.

        Returns:
            positions, i32 [count] over `domain`.

        Raises:
            DomainError: the domain does not contain the window's dimension.
        """
        names = as_dims(self.ctx, self.ctx.space, domain)
        if self.along not in names:
            raise DomainError(
                f"draws from a window along {self.along} vary over ({', '.join(names)}), but not over "
                f"{self.along}.",
                hint=f"add {self.along} to the domain.",
            )
        bits = random_bits((integer("the number of draws", count, least=1),), domain=names)
        positions = bits % self.count.cast("u32")
        self.ctx.label_by_default("positions", positions)
        return positions.cast("i32")

    def starts(self, x: RecurrentTensor, at: Any) -> RecurrentTensor:
        """Return a tensor's values at the points where transitions began; no gradient flows through them.

        Args:
            x: the tensor; it may be constant along the window's dimension.
            at: positions in the window.

        Returns:
            the axes of `at`, then those of `x`, over the dimensions of both.
        """
        back, now = self.steps - 1, sym(self.along)
        first, last = maximum(now - self.length + 1 - back, 0), maximum(now - back, 0)
        return self._gather_at(x, span(first, last + 1), at)

    def ends(self, x: RecurrentTensor, at: Any) -> RecurrentTensor:
        """Return a tensor's values at the points where the same transitions ended, such as their returns."""
        return self._gather_at(x, self._end_points, at)

    def returns(
        self, step: Step, gamma: float
    ) -> tuple[RecurrentTensor, RecurrentTensor, RecurrentTensor]:
        """Return the n-step return of the transition that ends at the current point, its final observation, and the discount there.

        Rewards are discounted by `gamma`. At the end of an episode the sum stops: the final observation is that step's
        `final_obs`, and the discount is 0 if the episode terminated, but not if it was truncated. The target of a value
        is `reward + discount * value(final_obs)`.

        Args:
            step: the result of `env.step`.
            gamma: the discount.

        Returns:
            (reward, final_obs, discount): the discounted sum of rewards, the final observation, and the discount of its value.
        """

        def read_back(x: RecurrentTensor, k: int) -> RecurrentTensor:
            return x.at({self.along: maximum(sym(self.along) - k, 0)}) if k else x

        reward, final_obs = step.reward, step.final_obs
        discount = where(step.terminated, 0.0, gamma)
        for k in range(1, self.steps):
            done, terminated = read_back(step.done, k), read_back(step.terminated, k)
            obs = read_back(step.final_obs, k)
            reward = read_back(step.reward, k) + where(done, 0.0, gamma * reward)
            final_obs = where(done.reshape((1,) * final_obs.rank), obs, final_obs)
            discount = where(done, where(terminated, 0.0, gamma), gamma * discount)
        if self.steps > 1:
            self.ctx.label_by_default("n_step_reward", reward)
            self.ctx.label_by_default("n_step_final_obs", final_obs)
        self.ctx.label_by_default("n_step_discount", discount)
        return reward, final_obs, discount

    @property
    def leaf(self) -> RecurrentTensor:
        """Leaf of the transition that ends at the current point in a tree of `length`: i32 [1], -1 if none ends."""
        now = value_of(self.ctx, sym(self.along))
        return where(now >= self.steps - 1, now % self.length, -1).reshape((1,))

    def of_leaves(self, leaf: RecurrentTensor) -> RecurrentTensor:
        """Return the positions of the transitions of such leaves."""
        now = value_of(self.ctx, sym(self.along))
        return now - (now - leaf) % self.length - value_of(self.ctx, self._end_points.lo)

    @property
    def _end_points(self) -> Slice:
        """The points at which the transitions ended."""
        now = sym(self.along)
        return span(maximum(now - self.length + 1, minimum(self.steps - 1, now)), now + 1)

    def _gather_at(self, x: RecurrentTensor, part: Slice, at: Any) -> RecurrentTensor:
        if self.along in x.domain:
            return x.detach().at({self.along: part}).take(at)
        shape = operand(self.ctx, at, like="i32").shape
        return x.detach().reshape((*(1,) * len(shape), *x.shape)).expand(*shape, *x.shape)


@explain_call_errors
def window(length: int, over: Any, *, steps: int = 1) -> Window:
    """Create a replay window over the last `length` transitions along a dimension.

    `memory.draw(8, domain=(b, t))` draws positions for each environment and step; `memory.starts(o, at)` returns the
    observations there. Each tensor read this way is stored in one ring buffer of `length` values (`length + steps - 1`
    for `starts`).

    Args:
        length: the number of transitions, at least 1.
        over: one dimension.
        steps: the number of points per transition.

    Returns:
        a `Window`.

    Raises:
        ShapeError: `length` or `steps` is not an integer of at least 1.
        DomainError: `over` is not one dimension.

    Example:
        >>> memory = trl.replay.window(100_000, over=t)
        >>> memory.draw(8, domain=(b, t))
        i32[8] @ (b, t)
    """
    ctx = current()
    names = as_dims(ctx, ctx.space, over)
    if len(names) != 1:
        raise DomainError("a window extends along one dimension.", hint="write over=t.")
    long = integer("the length of a window", length, least=1, most=2**31 - 1)
    return Window(ctx, long, names[0], integer("steps", steps, least=1))
