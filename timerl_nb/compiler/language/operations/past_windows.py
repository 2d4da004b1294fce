"""Windows over the most recent points of a symbolic dimension, such as frame stacks."""

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
    """Tensor methods that read earlier points of a symbolic dimension."""

    # --- primitives, implemented by `RecurrentTensor` ------------------------------------------

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
        """Return this tensor at the points that satisfy the condition, and `elsewhere` at the others."""

    # --- windows -----------------------------------------------------------------------------------

    def window(self, n: int, over: Any, fill: Any = 0, *, starts: Any = None) -> Self:
        """Stack the values at the last `n` points of a dimension, oldest first.

        `o.window(4, over=t)` is a frame stack: at t it holds o at t - 3, t - 2, t - 1 and t along a new axis 0. Only
        the last `n` values are stored, unless another operation needs more. Gradients flow to the earlier values.

        Args:
            n: the number of points, at least 1; it may exceed the number of points of the dimension.
            over: one dimension that the tensor varies over.
            fill: the value for points before the first: a number, or "first" to repeat the first value.
            starts: booleans over the dimension, true at the last point of an episode. The window contains no
                earlier values after such a point, but `fill`. Pass `done` for an environment that returns the next
                episode's first observation immediately (`autoreset="same_step"`), and `~step.alive` for one that
                returns it one step later (`autoreset="next_step"`). If `starts` has axes, they are the first axes
                of the tensor.

        Returns:
            shape (n, *shape), over the dimensions of the tensor and of `starts`.

        Raises:
            ShapeError: `n`, `fill` or `starts` has an unsuitable type or shape, or the length of an axis varies
                over the dimension.
            DomainError: the tensor does not vary over the dimension, or is conditional.

        Example:
            >>> o = trl.data(np.zeros((8, 84, 84), "f4"), domain=t)
            >>> o.window(4, over=t)
            f32[4,84,84] @ (t)
        """
        n = integer("the length of a window", n, least=1)
        name, *more = self._names(over) or ("",)
        if more or not name:
            raise DomainError(
                "a window extends along one dimension.",
                hint="call window twice: x.window(2, over=b).window(3, over=t).",
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
        """Return the value k points earlier, or `before` if there are fewer points."""
        return self.at({name: sym(name) - k})._select_where(ge(sym(name), k), before)

    def _expect_whole(self, name: str) -> None:
        if self.subset is not TRUE:
            raise DomainError(
                f"a window would contain points at which this tensor is undefined: {self!r}.",
                hint="define a value at all points first: x.otherwise(0).window(...).",
            )
        if any(name in s.symbols for s in self.shape if isinstance(s, Lin)):
            raise ShapeError(
                f"values whose length varies over {name} cannot be stacked: {self.type}.",
                hint="reduce the slice first, as in x[0:t + 1].sum(axis=0).",
            )

    def _same_episode(self, starts: Any, name: str, n: int) -> list[Self]:
        """Return for 0 to n - 1 points ago whether the episode has been the same since then."""
        starts = self._operand(starts)
        if starts.dtype != "bool" or starts.rank > self.rank:
            raise ShapeError(
                f"starts must be booleans with the first axes of {self.type}, not {starts.type}.",
                hint="give a tensor that is true at the end of an episode, such as done of env.step.",
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
                f"{fill!r} does not fill a window of {self.type}.",
                hint='give a number of its element type, or "first".',
            )
        return made._broadcast_to(self.shape)
