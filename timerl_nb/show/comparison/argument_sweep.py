"""Sweeps: what the programs of a function come to, over the values of one of its arguments."""

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

MEASURED: Final = 12  # points at most: to measure one XLA compiles it, which takes seconds


@dataclass(frozen=True)
class SweptPoint:
    """One program of a sweep.

    Attributes:
        value, label: of the argument.
        peak: predicted bytes; None where the program is not compiled.
        launches: how many statements run in a turn of the outermost loop.
        compile_seconds: what its stages cost.
        turn_seconds: of one turn of the outermost loop, the least of a few; None where not measured.
        saved_by: what keeps the peak down, by the compiler's choice or asked for.
        problem: why it could not be compiled, or not be measured; empty where there is none.
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
        """The value; of what JSON does not know, the label."""
        known = self.value is None or isinstance(self.value, bool | int | float | str)
        return self.value if known else self.label

    @shown
    def texts(self) -> tuple[str, ...]:
        """The row of a table: label, peak, launches, compile time, time per turn, remarks."""

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
    """A figure of every point, None where it is not known; in bytes, or as the title says."""

    title: str
    is_bytes: bool
    values: tuple[float | None, ...]

    @property
    def known(self) -> tuple[list[int], list[float]]:
        """Positions at which it is known, and what it is there."""
        pairs = [(k, value) for k, value in enumerate(self.values) if value is not None]
        return [k for k, _ in pairs], [value for _, value in pairs]


def _ms(seconds: Iterable[float | None]) -> tuple[float | None, ...]:
    return tuple(None if one is None else 1e3 * one for one in seconds)


@dataclass(frozen=True, eq=False)
class SweepView(View):
    """Programs by the values of one argument, predicted all, and measured some.

    Attributes:
        points: those that have been tried so far, in the order of the values.
        of: how many there are in all.
    """

    view = "sweep"

    function: str
    argument: str
    points: tuple[SweptPoint, ...]
    of: int

    @shown
    def measured(self) -> tuple[str, ...]:
        """The labels of the points whose time per turn was measured."""
        return tuple(point.label for point in self.points if point.turn_seconds is not None)

    def __getitem__(self, value: Any) -> SweptPoint:
        """The point of a value.

        Raises:
            OptionError: it was not swept.
        """
        for point in self.points:
            if point.value == value and type(point.value) is type(value):
                return point
        known = ", ".join(point.label for point in self.points)
        raise OptionError(f"{value!r} was not swept.", hint=f"the values are {known}.")

    def __len__(self) -> int:
        return len(self.points)

    @shown
    def charts(self) -> tuple[SweepChart, ...]:
        """What is drawn of the points, each in a chart of its own."""
        return (
            SweepChart("predicted peak", True, tuple(p.peak for p in self.points)),
            SweepChart("launches per turn", False, tuple(p.launches for p in self.points)),
            SweepChart("compiled in, ms", False, _ms(p.compile_seconds for p in self.points)),
            SweepChart("a turn, measured, ms", False, _ms(p.turn_seconds for p in self.points)),
        )

    @shown
    def told(self) -> str:
        """How many points were tried, and which of them were measured."""
        measured = ", ".join(self.measured) or "none"
        tried = f"{len(self)}" if len(self) == self.of else f"{len(self)} of {self.of}"
        return f"{self.function} over {self.argument}: {tried} predicted; measured: {measured}"

    def __str__(self) -> str:
        heads = (self.argument, "peak", "launches", "compiled in", "turn", "")
        table = [heads, *(point.texts for point in self.points)]
        return "\n".join([self.told, *align_columns(table, left=(len(heads) - 1,))])

    def marks(self, most: int) -> dict[int, str]:
        """Labels of some points by position, the first and the last among them."""
        return {k: self.points[k].label for k in spread(len(self), most)}


class Sweeper:
    """A sweep that is under way: all points are predicted first, then some are measured.

    Args:
        at: where the other arguments are held.
        measure: how many points are measured, at most; spread evenly, both ends among them.
        bounds, options: what is changed of the family's own.
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
                f"measure={measure!r} is no number of points.", hint="give 0 or more."
            )
        self._family, self._argument, self._at = family, argument, dict(at)
        self._bounds, self._options = dict(bounds or {}), dict(options or {})
        self._points: list[SweptPoint] = []
        self._count = len(family.swept[argument])
        self._measure = spread(self._count, measure)
        self._stopped = False
        self._programs: dict[int, Program] = {}  # which are still to be measured

    @property
    def view(self) -> SweepView:
        """What is known so far."""
        return SweepView(self._family.name, self._argument, tuple(self._points), self._count)

    @property
    def remaining(self) -> int:
        """How many pieces of work are left."""
        if self._stopped:
            return 0
        done = len(self._points)
        return self._count - done + sum(k >= done for k in self._measure) + len(self._programs)

    def stop(self) -> None:
        """Leave what is left."""
        self._stopped = True

    def step(self, observer: CompileObserver = UNOBSERVED) -> None:
        """Predict, or measure, one more point.

        Args:
            observer: gets every stage; what it raises, if it is no `Exception`, leaves the point
                to be done.
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
        k = len(self._points)
        label = self._family.label(self._argument, k)
        point = SweptPoint(self._family.swept[self._argument][k], label)
        try:
            at = {**self._at, self._argument: k}
            program = self._family.program(at, self._bounds, self._options, observer)
        except Exception as error:  # of the compiler, or of the user's function at this value
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
    """What is wrong, in a line."""
    return error.what if isinstance(error, TimeRLError) else f"{type(error).__name__}: {error}"


def launches(program: Program) -> int:
    """How many statements run in a turn of the outermost loop, at most; in all where none is one."""
    return program.memory.timeline().most_in_turn


def spread(count: int, most: int) -> list[int]:
    """At most so many of some positions, evenly, the first and the last among them."""
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
    """What a function's programs come to over the argument that is given as a list.

    All are predicted: peak, launches, compile time. Some are measured for a few turns, spread evenly
    over the list; the result says which. `trl.show.sweep` draws it. Interrupting it gives what is
    known by then.

    Args:
        function: returns a context, or a program.
        bounds: those that contexts are compiled under, or programs again, by name.
        options: those that contexts are compiled with.
        arguments: of the function: one list or range, which is swept; all else is passed on.
        measure: how many points are measured at most; 0 measures none.
        progress: show a progress bar, if not the environment variable TIMERL_PROGRESS says no.

    Raises:
        CallError: the function does not take such arguments, or returns something else.
        OptionError: not just one argument is a list; or the list is empty, or has a value twice.
        TimeRLError: the first program cannot be compiled; what is wrong with others is said beside
            them.
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
    """The argument to sweep, which must be named where several are given as lists.

    Raises:
        OptionError: there is no such list, or none is named and there is not one alone.
    """
    known = list(family.swept)
    if name is None and len(known) == 1:
        return known[0]
    if name not in known:
        what = "one argument is swept at a time" if name is None else f"{name!r} is no list"
        given = ", ".join(known) or "none"
        raise OptionError(f"{what}: lists are given for {given}.", hint="a tuple is one value.")
    return name
