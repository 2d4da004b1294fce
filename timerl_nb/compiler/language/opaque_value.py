"""What is only known when the program runs: a program is written with it, and Python gets no value.

Tensors, indices and conditions are opaque. Python's protocols for numbers, sequences and copies are
refused at the user's line, with what to write instead; so are names that only other libraries have.
NumPy's functions of tensors are those of ours (`numpy_calls`).
"""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, Self

from timerl_nb.base.errors import CallError, MissingNameError, TimeRLError
from timerl_nb.compiler.language.foreign_names import missing

# `numpy_calls` stands above all tensors and enters itself here.
_UFUNC: list[Callable[..., Any]] = []
_FUNCTION: list[Callable[..., Any]] = []


def register_numpy(ufunc: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Let NumPy's functions of something opaque be calls of these two."""
    _UFUNC[:], _FUNCTION[:] = [ufunc], [function]


class Opaque:
    """A value that Python cannot look at while the program is written."""

    __slots__ = ()

    _KIND: ClassVar[str]
    _WORDS: ClassVar[Mapping[str, str]]
    _ERROR: ClassVar[type[TimeRLError]]

    @abstractmethod
    def _as_tensor(self) -> str:
        """How it is written in an expression whose methods compute with it."""

    def _refuse(self, what: str, hint: str) -> NoReturn:
        raise self._ERROR(f"{self._KIND} ({self}) {what}.", hint=hint)

    def _no_number(self, kind: str) -> NoReturn:
        self._refuse(
            f"is no {kind} while the program is written",
            f"compute with its operators and methods, as in {self._as_tensor()}.exp(); numbers are "
            'there after a run: ctx.output("x", x), then result["x"].',
        )

    # --- numbers ---------------------------------------------------------------------------------

    def __float__(self) -> float:
        self._no_number("Python float")

    def __int__(self) -> int:
        self._no_number("Python integer")

    def __index__(self) -> int:
        self._refuse(
            "is no Python integer while the program is written",
            "there are no loops over a dimension: an equation with t in it holds at every t; "
            "trl.arange(5) counts along an axis, trl.value(t) is the index as a tensor.",
        )

    def __complex__(self) -> complex:
        self._no_number("complex number")

    def __trunc__(self) -> int:
        self._no_number("Python integer")

    def __array__(self, *_: Any, **__: Any) -> Any:
        self._refuse(
            "is no array while the program is written",
            f"compute with its operators and methods, as in {self._as_tensor()}.exp(), trl.stack and "
            "trl.concat; trl.udf calls a function of arrays on the host.",
        )

    @property
    def __jax_array__(self) -> Any:
        # the operators of JAX's arrays ask, too, and leave to us what is not theirs
        if os.path.basename(sys._getframe(1).f_code.co_filename) == "array_methods.py":
            raise AttributeError("__jax_array__")
        self._refuse(
            "is no JAX array while the program is written",
            f"compute with its operators and methods, as in {self._as_tensor()}.exp(); trl.udf calls "
            "a function of arrays on the host.",
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _UFUNC[0](ufunc, method, inputs, options)

    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> Any:
        return _FUNCTION[0](function, args, options)

    def __divmod__(self, other: Any) -> Any:
        x: Any = self
        return x // other, x % other

    def __rdivmod__(self, other: Any) -> Any:
        x: Any = self
        return other // x, other % x

    def __pos__(self) -> Self:
        return self

    # --- sequences -------------------------------------------------------------------------------

    def __len__(self) -> int:
        self._refuse(
            "has no length as Python counts it",
            "x.shape has the sizes of its axes; the bound T is the number of values over t.",
        )

    def __iter__(self) -> Any:
        self._refuse(
            "cannot be iterated over",
            "an equation holds at every point of a dimension; x.unstack(axis) gives the slices of a "
            "concrete axis.",
        )

    __reversed__ = __iter__

    def __contains__(self, _: object) -> bool:
        self._refuse("cannot be asked what it contains", "compare and reduce: (x == 3).any().")

    def __delitem__(self, _: Any) -> None:
        self._refuse("loses no elements", "x.slice(lo, hi, axis) leaves out what is around.")

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse(
                f"takes no format {spec!r}", "print values after a run; f'{x}' is its type."
            )
        return str(self)

    # --- names and copies --------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        raise missing(self._KIND, name, dir(type(self)), self._WORDS)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Any) -> NoReturn:
        self._refuse(
            "cannot be copied deeply: a copy would have no place in the program",
            "make another: trl.parameter(...), or build the module twice; tensors are values, and "
            "need no copies.",
        )

    def __reduce_ex__(self, _: Any) -> NoReturn:
        # a `TypeError`, too, as whoever pickles things expects
        raise CallError(
            f"{self._KIND} ({self}) cannot be pickled: it is a part of its context.",
            hint='x.checkpoint("folder") saves values; keep the code that writes the program.',
        )


class Fixed(Opaque):
    """Opaque, and without attributes of the user's."""

    __slots__ = ()
    _OWN: ClassVar[frozenset[str]]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._OWN and not name.startswith("_"):
            raise MissingNameError(
                f"{self._KIND} takes no attribute {name!r}.",
                hint="x.named('x') names it; tensors are values: write y = … for another.",
            )
        object.__setattr__(self, name, value)
