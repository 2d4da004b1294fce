"""What was there at the points before: windows of the past along a symbolic dimension."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.ir.operation_attributes import AxisAttrs
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.operations.axis_methods import AxisOps
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond, Entry, Lin, ge, sym


class Past(AxisOps):
    """What reads the points before the current one."""

    # --- what a tensor provides ----------------------------------------------------------------

    @property
    @abstractmethod
    def domain(self) -> Domain: ...

    @property
    @abstractmethod
    def subset(self) -> Cond: ...

    @abstractmethod
    def at(self, entries: dict[str, Entry]) -> Self: ...

    @abstractmethod
    def settled(self) -> Self: ...

    @abstractmethod
    def unsqueeze(self, axis: int) -> Self: ...

    @abstractmethod
    def _names(self, over: Any) -> Domain: ...

    @abstractmethod
    def _select_where(self, cond: Cond, elsewhere: Self) -> Self:
        """This where the condition holds, and `elsewhere` where it does not."""

    # --- windows -----------------------------------------------------------------------------------

    def window(self, n: int, over: Any, fill: Any = 0, *, starts: Any = None) -> Self:
        """The values at the last `n` points of a dimension, oldest first: a stack of frames.

        `o.window(4, over=t)` at t holds o at t - 3, t - 2, t - 1 and t along a new axis 0. Gradients
        flow to what was there. Only the last `n` values are kept, where nobody else needs more.

        Args:
            n: how many, at least 1; there may be more than the dimension has points.
            over: one dimension that this tensor varies over.
            fill: what stands for points before the first: a number, or "first", which repeats the
                first value.
            starts: booleans that vary over the dimension; where they hold, another episode begins at
                the *next* point, and nothing of the points so far is seen from there on: `fill`
                stands for it. So `o.window(4, over=t, starts=done)` goes with
                `o[b, i, t + 1], r, done = env.step(a)`, if the environment returns the next
                episode's first observation when one ends (`autoreset="same_step"`); if it does so
                one step later (`autoreset="next_step"`), with `starts=~step.alive`. Their axes, if
                they have any, are the first ones of this tensor.

        Returns:
            shape (n, *shape), over the dimensions of this tensor and of `starts`.

        Raises:
            ShapeError: `n` or `fill` is not of that kind; `starts` is not boolean, or of another
                shape; the length of an axis varies over the dimension.
            DomainError: the tensor does not vary over the dimension, or is conditional.
        """
        n = integer("the length of a window", n, least=1)
        name, *more = self._names(over) or ("",)
        if more or not name:
            raise DomainError(
                "a window goes back along one dimension.",
                hint="take a window of a window: x.window(2, over=b).window(3, over=t).",
            )
        self._expect_whole(name)
        x = self.settled()
        filling = None if isinstance(fill, str) and fill == "first" else x._fill_value(fill)
        same = None if starts is None else x._same_episode(starts, name, n)
        frames = [x]
        for k in range(1, n):
            instead = frames[-1] if filling is None else filling
            frame = x._read_back(name, k, instead)
            frames.append(frame if same is None else same[k]._select(frame, instead))
        first, *rest = (frame.unsqueeze(0) for frame in reversed(frames))
        return first._apply_operation("concat", AxisAttrs(0), *rest)

    def _read_back(self, name: str, k: int, before: Self) -> Self:
        """The value k points ago, or what was `before` the first."""
        return self.at({name: sym(name) - k})._select_where(ge(sym(name), k), before)

    def _expect_whole(self, name: str) -> None:
        if self.subset is not TRUE:
            raise DomainError(
                f"a window would hold points at which this tensor is not defined: {self!r}.",
                hint="give it a value everywhere first: x.otherwise(0).window(...).",
            )
        if any(name in s.symbols for s in self.shape if isinstance(s, Lin)):
            raise ShapeError(
                f"values whose length varies over {name} cannot be stacked: {self.type}.",
                hint="reduce the slice first, as in x[0:t + 1].sum(axis=0).",
            )

    def _same_episode(self, starts: Any, name: str, n: int) -> list[Self]:
        """For 0 to n - 1 points ago, whether the episode has been the same since then."""
        starts = self._operand(starts)
        if starts.dtype != "bool" or starts.rank > self.rank:
            raise ShapeError(
                f"starts are booleans with the first axes of {self.type}, not {starts.type}.",
                hint="give whether an episode ended at each point, such as what env.step returns.",
            )
        starts._names(name)
        starts._expect_whole(name)
        starts = starts.settled().reshape((*starts.shape, *(1,) * (self.rank - starts.rank)))
        always, never = (starts._operand(x)._broadcast_to(starts.shape) for x in (True, False))
        same = [always]
        for k in range(1, n):
            same.append(same[-1] & ~starts._read_back(name, k, never))
        return same

    def _fill_value(self, fill: Any) -> Self:
        if self.dtype == "bool" and isinstance(fill, int) and fill in (0, 1):
            fill = bool(fill)
        made = self._operand(fill)
        if made.rank or made.domain or made.dtype != self.dtype:
            raise ShapeError(
                f"{fill!r} does not fill up a window of {self.type}.",
                hint='give a number of its type, or "first".',
            )
        return made._broadcast_to(self.shape)
