"""Values passed in and out of a run at each iteration of the outermost loop.

`Given` and `IterationOutputs` are placeholders for user functions in the graph: `Given` for input values,
`IterationOutputs` for output values at the end of an iteration. Each run provides the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol, cast

import numpy as np

from timerl_nb.base.array_conversion import host_array, misfit, narrow_array
from timerl_nb.base.errors import ExecutionError, OptionError, Origin, one_of
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import NUMPY, TensorType
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain


@dataclass(frozen=True)
class Given:
    """Input values of a run (`trl.given`).

    Attributes:
        names: by output of the operation.
        domain: the user's dimensions: first the one of the iterations, and then the leading axes of each
            value.
        lines: the user's line of each value.
    """

    names: tuple[str, ...]
    domain: Domain
    lines: tuple[Origin, ...] = field(default=(), compare=False)

    @property
    def turn(self) -> str:
        return self.domain[0]

    def select(self, values: Mapping[str, Any], point: Mapping[str, int], axes: Domain) -> Any:
        """Return the outputs at a point from an iteration's values, with the dimensions in `axes` as leading
        axes.
        """
        rest = self.domain[1:]
        where = tuple(slice(None) if d in axes else point[d] for d in rest)
        left = [d for d in rest if d in axes]
        order = tuple(left.index(d) for d in axes)
        found = (values[name][where] if where else values[name] for name in self.names)
        return tuple(in_axes_order(x, order) for x in found)


@dataclass(frozen=True)
class IterationOutputs:
    """Output values of a run at the end of an iteration.

    Attributes:
        names: by operand of the operation.
        orders: by operand, the positions of the vectorised dimensions in the user's order.
    """

    names: tuple[str, ...]
    orders: tuple[tuple[int, ...], ...]

    def by_name(self, operands: Iterable[Any]) -> dict[str, Any]:
        """Return the values by name, with axes in the user's order."""
        pairs = zip(self.names, self.orders, operands, strict=True)
        return {name: in_axes_order(x, order) for name, order, x in pairs}


def in_axes_order(x: Any, order: tuple[int, ...]) -> Any:
    """Return an array with its leading axes in another order."""
    if order == tuple(range(len(order))):
        return x
    return x.transpose(*order, *range(len(order), x.ndim))


Turn = Mapping[str, Any]  # values by name


class Supply(Protocol):
    """Source of the input values of a run."""

    def turn(self, number: int) -> Turn:
        """Return the values of an iteration, with correct shapes and types."""
        ...


def given_of(dims: Dims, ops: Iterable[Op]) -> Mapping[str, Inlet]:
    """Return the inputs of a program, by name."""
    found: dict[str, Inlet] = {}
    for op in ops:
        if is_given(op):
            attrs = op.attrs.function
            for name, kind, line in zip(attrs.names, op.attrs.types, attrs.lines, strict=True):
                found[name] = Inlet(name, kind, attrs.domain, line, dims)
    return found


def is_given(op: Op) -> bool:
    return isinstance(getattr(op.attrs, "function", None), Given)


def is_iteration_output(op: Op) -> bool:
    return isinstance(getattr(op.attrs, "function", None), IterationOutputs)


@dataclass(frozen=True)
class Inlet:
    """One input tensor of a run."""

    name: str
    kind: TensorType
    domain: Domain
    line: Origin
    dims: Dims

    def shape(self, bounds: Mapping[str, int], *, whole: bool = False) -> tuple[int, ...]:
        """Return the shape of one iteration's value, or of all iterations in one array."""
        over = self.domain if whole else self.domain[1:]
        sizes = tuple(int(s) for s in self.kind.shape if isinstance(s, int))
        return (*(self.dims[d].count(bounds) for d in over), *sizes)

    def convert(self, value: Any, shape: tuple[int, ...], turn: int | None) -> Any:
        """Return an input array, converted to the tensor's type; arrays on a device stay there.

        Raises:
            ExecutionError: the array has another shape, or an unsuitable type.
        """
        kind = NUMPY[self.kind.dtype]
        if not (hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "devices")):
            try:
                value = host_array(value)
            except (TypeError, ValueError):
                self._refuse(
                    f"{type(value).__name__}, which is not an array of numbers", shape, turn
                )
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
            hint="pass the tensor's shape after one axis for each further dimension of its domain; "
            "for a whole run, the iterations are the first axis.",
        )


def _own(array: Any) -> Any:
    """Return a copy of an array on the host; arrays on devices never change.

    XLA may read its arguments after a call has returned. By then, the producer may have overwritten the
    array with the values of the next iteration.
    """
    return np.array(array) if isinstance(array, np.ndarray) else array


class WholeRun:
    """Input arrays for all iterations: `execute(given={name: array[I, …]})`."""

    def __init__(
        self, inlets: Mapping[str, Inlet], bounds: Mapping[str, int], given: Any, *, copied: bool
    ) -> None:
        """Check the arrays.

        Args:
            inlets: the inputs of the program.
            bounds: actual bounds.
            given: arrays by name.
            copied: whether to copy arrays of the host, for a run in the background.

        Raises:
            OptionError: `given` is not a mapping, an array is missing, or a name is unknown.
            ExecutionError: an array has another shape or type.
        """
        values = by_name(inlets, given)
        self._arrays: dict[str, Any] = {}
        for name, inlet in inlets.items():
            array = inlet.convert(values[name], inlet.shape(bounds, whole=True), None)
            self._arrays[name] = _own(array) if copied else array

    def turn(self, number: int) -> Turn:
        return {name: array[number] for name, array in self._arrays.items()}


def by_name(inlets: Mapping[str, Inlet], given: Any, turn: int | None = None) -> Turn:
    """Return the input values after a check of their names.

    Raises:
        OptionError: `given` is not a mapping, a value is missing, or a name is unknown.
    """
    at = "" if turn is None else f" at turn {turn}"
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise OptionError(
            f"the value of given={at} is a {type(given).__name__}, not a mapping of arrays by name.",
            hint="pass {" + ", ".join(f"{name!r}: …" for name in inlets) + "}.",
        )
    for name, inlet in inlets.items():
        if name not in given:
            raise OptionError(
                f"the input {name} is missing{at}.",
                origin=inlet.line,
                hint=f"pass given={{{name!r}: …}}: to execute(), an array with iterations as its first "
                "axis; to turns(), one mapping per iteration.",
            )
    found = cast(Turn, given)
    for name in found:
        if name not in inlets:
            raise OptionError(
                f"{name!r} is given{at}, but the program has no such input.",
                hint=one_of(str(name), list(inlets))
                if inlets
                else "leave out given=: the program has no trl.given.",
            )
    return found


class TurnByTurn:
    """Input values that arrive one iteration at a time.

    Args:
        inlets: the inputs of the program.
        bounds: actual bounds.
        given: a mapping of arrays by name for each iteration, in order.
        first: the number of the first iteration.

    Attributes:
        is_over: whether the iterable is exhausted.
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
        """Fetch the values up to an iteration, and return whether they exist."""
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
            raise ExecutionError(
                f"there are no input values for turn {number}: given= is exhausted.",
                hint="pass an iterable with one mapping per iteration.",
            )
        return self._last[number]


_KEPT: Final = (
    2  # iterations whose values are stored: a schedule may read those of the previous one
)


class NoInputs:
    """Supply of a run without input values."""

    def turn(self, number: int) -> Turn:
        raise ExecutionError(
            "the program needs input values (trl.given), and the run has none.",
            hint="pass given= to execute(), start() or turns(); step() and measurements cannot pass any.",
        )


def discard_outputs(turn: int, values: Turn) -> None:
    """Ignore the outputs of an iteration."""
