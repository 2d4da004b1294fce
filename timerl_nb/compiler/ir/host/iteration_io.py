"""What a run is given, and hands out, turn by turn: the two functions on the host that are the run's own.

Where a program names a function of the user's, these stand for what only a run knows: `Given` for values
that come in at a turn of the outermost loop, `HandedOut` for those that leave at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol, cast

import numpy as np

from timerl_nb.base.array_conversion import misfit, narrow_array
from timerl_nb.base.errors import ExecutionError, OptionError, Origin, one_of
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import NUMPY, TensorType
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain


@dataclass(frozen=True)
class Given:
    """Values that a run is given (`trl.given`).

    Attributes:
        names: by output of the operation.
        domain: as the user wrote it: the dimension whose turns bring them, and the leading axes of what
            a turn brings.
        lines: where each was written.
    """

    names: tuple[str, ...]
    domain: Domain
    lines: tuple[Origin, ...] = field(default=(), compare=False)

    @property
    def turn(self) -> str:
        return self.domain[0]

    def select(self, values: Mapping[str, Any], point: Mapping[str, int], axes: Domain) -> Any:
        """The outputs at a point, the dimensions in `axes` as leading axes, of what its turn brings."""
        rest = self.domain[1:]
        where = tuple(slice(None) if d in axes else point[d] for d in rest)
        left = [d for d in rest if d in axes]
        order = tuple(left.index(d) for d in axes)
        found = (values[name][where] if where else values[name] for name in self.names)
        return tuple(in_axes_order(x, order) for x in found)


@dataclass(frozen=True)
class HandedOut:
    """Values that a run hands out at the end of a turn.

    Attributes:
        names: by operand of the operation.
        orders: by operand, the axes that symbolic dimensions have become, in the order of the user's.
    """

    names: tuple[str, ...]
    orders: tuple[tuple[int, ...], ...]

    def by_name(self, operands: Iterable[Any]) -> dict[str, Any]:
        """The values by name, with axes in the user's order."""
        pairs = zip(self.names, self.orders, operands, strict=True)
        return {name: in_axes_order(x, order) for name, order, x in pairs}


def in_axes_order(x: Any, order: tuple[int, ...]) -> Any:
    """An array with its leading axes in another order; the array itself where they have it."""
    if order == tuple(range(len(order))):
        return x
    return x.transpose(*order, *range(len(order), x.ndim))


Turn = Mapping[str, Any]  # values by name


class Supply(Protocol):
    """Where what is given comes from."""

    def turn(self, number: int) -> Turn:
        """The values of a turn, whose shapes and types are right."""
        ...


def given_of(dims: Dims, ops: Iterable[Op]) -> Mapping[str, Inlet]:
    """What a program is to be given, by name."""
    found: dict[str, Inlet] = {}
    for op in ops:
        if is_given(op):
            attrs = op.attrs.function
            for name, kind, line in zip(attrs.names, op.attrs.types, attrs.lines, strict=True):
                found[name] = Inlet(name, kind, attrs.domain, line, dims)
    return found


def is_given(op: Op) -> bool:
    return isinstance(getattr(op.attrs, "function", None), Given)


def is_handed_out(op: Op) -> bool:
    return isinstance(getattr(op.attrs, "function", None), HandedOut)


@dataclass(frozen=True)
class Inlet:
    """One of the tensors that a run is given."""

    name: str
    kind: TensorType
    domain: Domain
    line: Origin
    dims: Dims

    def shape(self, bounds: Mapping[str, int], *, whole: bool = False) -> tuple[int, ...]:
        """The shape of what a turn brings, or of all turns in one array."""
        over = self.domain if whole else self.domain[1:]
        sizes = tuple(int(s) for s in self.kind.shape if isinstance(s, int))
        return (*(self.dims[d].count(bounds) for d in over), *sizes)

    def convert(self, value: Any, shape: tuple[int, ...], turn: int | None) -> Any:
        """Return a given array, converted to the tensor's type.

        An array on a device stays there.

        Raises:
            ExecutionError: it has another shape, or a type that does not fit.
        """
        kind = NUMPY[self.kind.dtype]
        if not (hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "devices")):
            try:
                value = np.asarray(value)
            except (TypeError, ValueError):
                self._refuse(f"{type(value).__name__}, which is no array of numbers", shape, turn)
        if tuple(value.shape) != shape:
            self._refuse(f"{value.dtype}{list(value.shape)}", shape, turn)
        if value.dtype == kind:
            return value
        if wrong := misfit(value, kind):
            known = wrong.startswith("integers")
            self._refuse(wrong if known else f"{value.dtype}{list(value.shape)}", shape, turn)
        return narrow_array(self.name, value, kind, origin=self.line)

    def _refuse(self, what: str, shape: tuple[int, ...], turn: int | None) -> NoReturn:
        at = "" if turn is None else f" at turn {turn}"
        raise ExecutionError(
            f"{self.name} was given {what}{at}, not {NUMPY[self.kind.dtype]}{list(shape)}.",
            origin=self.line,
            hint="a turn brings an array of the tensor's shape, after an axis for each further "
            "dimension of its domain; given= of a whole run has the turns as its first axis.",
        )


def _own(array: Any) -> Any:
    """Return a copy of an array of the host; arrays on devices never change.

    XLA may read its arguments after a call has returned. By then the producer may have written the
    next turn's values to the same array.
    """
    return np.array(array) if isinstance(array, np.ndarray) else array


class WholeRun:
    """Given arrays of all turns: `execute(given={name: array[I, …]})`."""

    def __init__(
        self, inlets: Mapping[str, Inlet], bounds: Mapping[str, int], given: Any, *, copied: bool
    ) -> None:
        """Check the arrays.

        Args:
            copied: copy the host's arrays, for a run in the background.

        Raises:
            OptionError: they are no mapping, one is missing, or a name is unknown.
            ExecutionError: one has another shape or type.
        """
        values = by_name(inlets, given)
        self._arrays: dict[str, Any] = {}
        for name, inlet in inlets.items():
            array = inlet.convert(values[name], inlet.shape(bounds, whole=True), None)
            self._arrays[name] = _own(array) if copied else array

    def turn(self, number: int) -> Turn:
        return {name: array[number] for name, array in self._arrays.items()}


def by_name(inlets: Mapping[str, Inlet], given: Any, turn: int | None = None) -> Turn:
    """What was given, if it is what is to be given.

    Raises:
        OptionError: it is no mapping, one is missing, or a name is unknown.
    """
    at = "" if turn is None else f" at turn {turn}"
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise OptionError(
            f"what is given{at} is a {type(given).__name__}, not arrays by name.",
            hint="write {" + ", ".join(f"{name!r}: …" for name in inlets) + "}.",
        )
    for name, inlet in inlets.items():
        if name not in given:
            raise OptionError(
                f"{name} is not given{at}.",
                origin=inlet.line,
                hint=f"pass given={{{name!r}: …}}: an array whose first axis counts turns to execute(), "
                "one turn's after the other to turns().",
            )
    found = cast(Turn, given)
    for name in found:
        if name not in inlets:
            raise OptionError(
                f"{name!r} is given{at}, and the program takes nothing of that name.",
                hint=one_of(str(name), list(inlets)) if inlets else "it has no trl.given.",
            )
    return found


class TurnByTurn:
    """Given values that come one turn after the other.

    Args:
        given: of each turn, in order: a mapping of arrays by name.
        first: the number of the first turn.

    Attributes:
        is_over: no more came.
    """

    def __init__(
        self,
        inlets: Mapping[str, Inlet],
        bounds: Mapping[str, int],
        given: Iterable[Turn],
        first: int = 0,
    ) -> None:
        self._inlets, self._bounds = inlets, bounds
        self._given: Iterator[Any] = iter(given)
        self._next = first
        self._last: dict[int, Turn] = {}
        self.is_over = False

    def fetch_up_to(self, number: int) -> bool:
        """Take what comes up to a turn; whether there is as much."""
        while self._next <= number and not self.is_over:
            try:
                given = next(self._given)
            except StopIteration:
                self.is_over = True
                break
            values = by_name(self._inlets, given, self._next)
            self._last[self._next] = {
                name: _own(inlet.convert(values[name], inlet.shape(self._bounds), self._next))
                for name, inlet in self._inlets.items()
            }
            self._last.pop(self._next - _KEPT, None)
            self._next += 1
        return self._next > number

    def turn(self, number: int) -> Turn:
        if not self.fetch_up_to(number):
            raise ExecutionError(f"nothing is given for turn {number}: given= came to its end.")
        return self._last[number]


_KEPT: Final = 2  # turns whose values are there: a schedule may read those of the turn before


class NothingGiven:
    """The supply of a run that was given nothing."""

    def turn(self, number: int) -> Turn:
        raise ExecutionError(
            "the program is to be given values (trl.given), and the run was given none.",
            hint="execute(), start() and turns() take given=; stepping and measuring give nothing.",
        )


def discard_outputs(turn: int, values: Turn) -> None:
    """What takes what a run hands out, where nobody asked for it."""
