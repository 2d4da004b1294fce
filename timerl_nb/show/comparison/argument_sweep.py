"""Sweeps: predicted and measured costs of a function's programs over one of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import numpy as np
from tqdm.auto import tqdm

from timerl_nb.base.errors import OptionError, TimeRLError
from timerl_nb.base.options import Options, progress_by_default
from timerl_nb.base.text_formatting import align_columns, format_bytes, format_milliseconds
from timerl_nb.driver.program import Program
from timerl_nb.driver.program_family import At, Family
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver
from timerl_nb.show.view_model import HIDDEN, Key, View, shown

MEASURED: Final = (
    12  # maximal number of measured points: each is compiled by XLA, which takes seconds
)


@dataclass(frozen=True)
class SweptPoint:
    """One program of a sweep.

    Attributes:
        value, label: the value of the argument, and its text.
        peak: predicted bytes; None if the program does not compile.
        launches: the number of statements that run in one turn of the outermost loop.
        compile_seconds: the duration of the stages.
        turn_seconds: the duration of one turn, the shortest of several; None if not measured.
        saved_by: memory-saving measures, requested or chosen by the compiler.
        problem: the error of the compilation or measurement, else "".
    """

    value: Annotated[Any, HIDDEN]
    label: str
    peak: int | None = None
    launches: int | None = None
    compile_seconds: float | None = None
    turn_seconds: float | None = None
    saved_by: tuple[str, ...] = ()
    problem: str = ""

    @shown
    def plain(self) -> Annotated[float | str | bool | None, Key("value")]:
        """The value; its label if JSON cannot represent the value."""
        known = self.value is None or isinstance(self.value, bool | int | float | str)
        return self.value if known else self.label

    @shown
    def texts(self) -> tuple[str, ...]:
        """The row of the table: label, peak, launches, compile time, time per turn, remarks."""

        def text_if_known(value: Any, text: Callable[[Any], str]) -> str:
            return "–" if value is None else text(value)

        return (
            self.label,
            text_if_known(self.peak, format_bytes),
            text_if_known(self.launches, "{:,}".format),
            text_if_known(self.compile_seconds, lambda s: format_milliseconds(s, ".0f")),
            text_if_known(self.turn_seconds, lambda s: format_milliseconds(s, ".3g")),
            "; ".join([*self.saved_by, *([self.problem] if self.problem else [])]),
        )


@dataclass(frozen=True)
class SweepChart:
    """Values of one chart at every point, None if unknown; in bytes, or in the unit of the title."""

    title: str
    is_bytes: bool
    values: tuple[float | None, ...]

    @property
    def known(self) -> tuple[list[int], list[float]]:
        """The positions and values that are known."""
        pairs = [(k, value) for k, value in enumerate(self.values) if value is not None]
        return [k for k, _ in pairs], [value for _, value in pairs]


def _ms(seconds: Iterable[float | None]) -> tuple[float | None, ...]:
    return tuple(None if one is None else 1e3 * one for one in seconds)


@dataclass(frozen=True, eq=False)
class SweepView(View):
    """Programs of a sweep: all predicted, some measured.

    Attributes:
        function, argument: the names of the function and of the swept argument.
        points: the points so far, in the order of the values.
        of: the total number of points.

    Example:
        >>> def program(width):
        ...     with trl.Context("t") as ctx:
        ...         x = trl.random.normal((width,), domain=ctx.dims[0][:1])
        ...         ctx.output("y", trl.exp(x))
        ...     return ctx
        >>> view = trl.sweep(program, {"T": 4}, width=[1, 2], measure=0, progress=False)
        >>> view[2].peak
        32
    """

    view = "sweep"

    function: str
    argument: str
    points: tuple[SweptPoint, ...]
    of: int

    @shown
    def measured(self) -> tuple[str, ...]:
        """The labels of the measured points."""
        return tuple(point.label for point in self.points if point.turn_seconds is not None)

    def __getitem__(self, value: Any) -> SweptPoint:
        """Return the point of a value.

        Raises:
            OptionError: the sweep does not contain the value.
        """
        for point in self.points:
            if point.value == value and type(point.value) is type(value):
                return point
        known = ", ".join(point.label for point in self.points)
        raise OptionError(f"the sweep does not contain {value!r}.", hint=f"choose one of {known}.")

    def __len__(self) -> int:
        return len(self.points)

    @shown
    def charts(self) -> tuple[SweepChart, ...]:
        """The charts of the sweep, one value per point each."""
        return (
            SweepChart("predicted peak", True, tuple(p.peak for p in self.points)),
            SweepChart("launches per turn", False, tuple(p.launches for p in self.points)),
            SweepChart("compile time, ms", False, _ms(p.compile_seconds for p in self.points)),
            SweepChart(
                "time per turn (measured), ms", False, _ms(p.turn_seconds for p in self.points)
            ),
        )

    @shown
    def summary(self) -> str:
        """The number of points, and the measured ones, in words."""
        measured = ", ".join(self.measured) or "none"
        tried = f"{len(self)}" if len(self) == self.of else f"{len(self)} of {self.of}"
        return f"{self.function} over {self.argument}: {tried} predicted; measured: {measured}"

    def __str__(self) -> str:
        heads = (self.argument, "peak", "launches", "compiled in", "turn", "")
        table = [heads, *(point.texts for point in self.points)]
        return "\n".join([self.summary, *align_columns(table, left=(len(heads) - 1,))])

    def marks(self, most: int) -> dict[int, str]:
        """Return labels of some points by position, including the first and the last one."""
        return {k: self.points[k].label for k in spread(len(self), most)}


class Sweeper:
    """Sweep in progress: predicts all points first, then measures some.

    Args:
        family: the function with its arguments.
        argument: the swept argument.
        at: the values of the other arguments.
        measure: the maximal number of measured points, evenly spaced including both ends.
        bounds, options: changes of the family's bounds and options.
    """

    def __init__(
        self,
        family: Family,
        argument: str,
        at: At,
        measure: int = MEASURED,
        bounds: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(measure, bool) or not isinstance(measure, int) or measure < 0:
            raise OptionError(
                f"measure={measure!r} is not a number of points.",
                hint="choose a whole number of 0 or more.",
            )
        self._family, self._argument, self._at = family, argument, dict(at)
        self._bounds, self._options = dict(bounds or {}), dict(options or {})
        self._points: list[SweptPoint] = []
        self._count = len(family.swept[argument])
        self._measure = spread(self._count, measure)
        self._stopped = False
        self._programs: dict[int, Program] = {}  # programs to be measured

    @property
    def view(self) -> SweepView:
        """The result so far."""
        return SweepView(self._family.name, self._argument, tuple(self._points), self._count)

    @property
    def remaining(self) -> int:
        """The number of remaining predictions and measurements."""
        if self._stopped:
            return 0
        done = len(self._points)
        return self._count - done + sum(k >= done for k in self._measure) + len(self._programs)

    def stop(self) -> None:
        """Discard the remaining work."""
        self._stopped = True

    def step(self, observer: CompileObserver = UNOBSERVED) -> None:
        """Predict or measure the next point.

        Args:
            observer: receives every stage. If it raises a BaseException that is not an Exception, the point
                remains to be done.
        """
        if self._stopped:
            return
        if len(self._points) < self._count:
            self._predict(observer)
        elif self._programs:
            k = next(iter(self._programs))
            try:
                self._points[k] = replace(
                    self._points[k], turn_seconds=self._programs[k].turn_seconds()
                )
            except TimeRLError as error:
                self._points[k] = replace(self._points[k], problem=f"not measured: {error.what}")
            del self._programs[k]

    def _predict(self, observer: CompileObserver) -> None:
        """Compile the program for the next value, and append its predicted costs, or its error."""
        k = len(self._points)
        label = self._family.label(self._argument, k)
        point = SweptPoint(self._family.swept[self._argument][k], label)
        try:
            at = {**self._at, self._argument: k}
            program = self._family.program(at, self._bounds, self._options, observer)
        except (
            Exception
        ) as error:  # an error of the compiler, or of the user's function at this value
            self._points.append(replace(point, problem=problem_of(error)))
            return
        memory = program.memory
        self._points.append(
            replace(
                point,
                peak=memory.peak,
                launches=launches(program),
                compile_seconds=program.stages.seconds,
                saved_by=tuple(memory.saved_by),
            )
        )
        if k in self._measure:
            self._programs[k] = program


def problem_of(error: Exception) -> str:
    """Describe an error in one line."""
    return error.what if isinstance(error, TimeRLError) else f"{type(error).__name__}: {error}"


def launches(program: Program) -> int:
    """Return the maximal number of statements in a turn of the outermost loop; without a loop, the total number."""
    return program.memory.timeline().most_in_turn


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` of `count` positions, evenly spaced including both ends."""
    if most < 1:
        return []
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int)).tolist()


def sweep(
    function: Callable[..., Any],
    /,
    bounds: Mapping[str, Any] | None = None,
    *,
    options: Options | None = None,
    measure: int = MEASURED,
    progress: bool | None = None,
    **arguments: Any,
) -> SweepView:
    """Compare a function's programs over one argument that is given as a list.

    All programs are predicted: peak memory, launches, compile time. Some, evenly spaced over the list, are
    also measured for a few turns. `trl.show.sweep` plots the result. Ctrl-C returns the result so far.

    Args:
        function: a function that returns a context or a program.
        bounds: the bounds for compilation, by name.
        options: the options for compilation.
        measure: the maximal number of measured points; 0 for none.
        progress: show a progress bar; by default unless the environment variable TIMERL_PROGRESS disables it.
        arguments: arguments of the function. Exactly one list or range is swept; other values are passed
            unchanged.

    Returns:
        The view of the sweep, also a table.

    Raises:
        CallError: the function rejects the arguments, or returns neither a context nor a program.
        OptionError: no argument or several are lists; or the list is empty or repeats a value.
        TimeRLError: the first program does not compile. Errors of other programs appear in the result.

    Example:
        >>> def program(width):
        ...     with trl.Context("t") as ctx:
        ...         x = trl.random.normal((width,), domain=ctx.dims[0][:1])
        ...         ctx.output("y", trl.exp(x))
        ...     return ctx
        >>> view = trl.sweep(program, {"T": 4}, width=[1, 2], measure=0, progress=False)
        >>> [point.peak for point in view.points]
        [16, 32]
    """
    family = Family(function, arguments, bounds, options)
    sweeper = Sweeper(family, swept_argument(family), {}, measure)
    shows = progress_by_default() if progress is None else progress
    with (
        suppress(KeyboardInterrupt),
        tqdm(total=sweeper.remaining, disable=not shows, leave=False) as bar,
    ):
        while sweeper.remaining:
            sweeper.step()
            bar.update(bar.total - bar.n - sweeper.remaining)
    return sweeper.view


def swept_argument(family: Family, name: str | None = None) -> str:
    """Return the argument to sweep; `name` is required if several arguments are lists.

    Raises:
        OptionError: the argument is not a list, or the choice is ambiguous.
    """
    known = list(family.swept)
    if name is None and len(known) == 1:
        return known[0]
    if name not in known:
        what = (
            "exactly one argument is swept"
            if name is None
            else f"the argument {name!r} is not a list"
        )
        given = ", ".join(known) or "none"
        raise OptionError(
            f"{what}, but the arguments with lists are {given}.",
            hint="pass one list; a tuple counts as one value.",
        )
    return name
