"""Base of values that are unknown while the program is written: tensors, indices, conditions.

Python's protocols for numbers, sequences and copies raise an error at the user's line, with an alternative in the
hint; so do attribute names of other libraries. `operations.numpy_dispatch` handles NumPy's functions.
"""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, Self

from timerl_nb.base.errors import CallError, MissingNameError, TimeRLError
from timerl_nb.compiler.language.foreign_names import missing

# Set by `operations.numpy_dispatch`, which imports this module.
_UFUNC: list[Callable[..., Any]] = []
_FUNCTION: list[Callable[..., Any]] = []


def register_numpy(ufunc: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Register the handlers of NumPy's ufuncs and functions."""
    _UFUNC[:], _FUNCTION[:] = [ufunc], [function]


class Opaque:
    """Value that Python cannot inspect while the program is written."""

    __slots__ = ()

    _KIND: ClassVar[str]
    _WORDS: ClassVar[Mapping[str, str]]
    _ERROR: ClassVar[type[TimeRLError]]

    @abstractmethod
    def _as_tensor(self) -> str:
        """Return source text that denotes the value as a tensor, for hints."""

    def _refuse(self, what: str, hint: str) -> NoReturn:
        raise self._ERROR(f"{self._KIND} ({self}) {what}.", hint=hint)

    def _no_number(self, kind: str) -> NoReturn:
        self._refuse(
            f"is not a {kind} while the program is written",
            f"compute with its operators and methods, as in {self._as_tensor()}.exp(); for its value "
            'after a run, write ctx.output("x", x), then result["x"].',
        )

    # --- numbers ---------------------------------------------------------------------------------

    def __float__(self) -> float:
        self._no_number("Python float")

    def __int__(self) -> int:
        self._no_number("Python integer")

    def __index__(self) -> int:
        self._refuse(
            "is not a Python integer while the program is written",
            "write an equation with t instead of a loop: it holds at every t. trl.arange(5) counts along "
            "an axis; trl.value(t) is the index as a tensor.",
        )

    def __complex__(self) -> complex:
        self._no_number("complex number")

    def __trunc__(self) -> int:
        self._no_number("Python integer")

    def __array__(self, *_: Any, **__: Any) -> Any:
        self._refuse(
            "is not an array while the program is written",
            f"compute with its operators and methods, as in {self._as_tensor()}.exp(), trl.stack and "
            "trl.concat; to call a function of arrays, use trl.udf.",
        )

    @property
    def __jax_array__(self) -> Any:
        # JAX's array operators probe this attribute, then fall back to the operators of this class.
        if os.path.basename(sys._getframe(1).f_code.co_filename) == "array_methods.py":
            raise AttributeError("__jax_array__")
        self._refuse(
            "is not a JAX array while the program is written",
            f"compute with its operators and methods, as in {self._as_tensor()}.exp(); to call a function "
            "of JAX arrays, use trl.jaxed.",
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
            "has no Python length",
            "use x.shape for the sizes of its axes, and the bound T for the number of points of t.",
        )

    def __iter__(self) -> Any:
        self._refuse(
            "cannot be iterated over",
            "write an equation: it holds at every point of a dimension. For the slices of an axis, use "
            "x.unstack(axis).",
        )

    __reversed__ = __iter__

    def __contains__(self, _: object) -> bool:
        self._refuse("does not support `in`", "compare and reduce: (x == 3).any().")

    def __delitem__(self, _: Any) -> None:
        self._refuse(
            "is immutable: it cannot lose elements", "select a part: x.slice(lo, hi, axis)."
        )

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse(
                f"takes no format {spec!r}", "format values after a run; f'{x}' is its type."
            )
        return str(self)

    # --- names and copies --------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        raise missing(self._KIND, name, dir(type(self)), self._WORDS)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Any) -> NoReturn:
        self._refuse(
            "cannot be copied deeply",
            "create another one with trl.parameter(...), or build the module twice; tensors are immutable "
            "and need no copies.",
        )

    def __reduce_ex__(self, _: Any) -> NoReturn:
        # `CallError` is a TypeError, which pickling code expects
        raise CallError(
            f"{self._KIND} ({self}) cannot be pickled: it belongs to its context.",
            hint='save values with x.checkpoint("folder"), and keep the code that writes the program.',
        )


class Fixed(Opaque):
    """Opaque value that accepts no attributes from users."""

    __slots__ = ()
    _OWN: ClassVar[frozenset[str]]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._OWN and not name.startswith("_"):
            raise MissingNameError(
                f"{self._KIND} takes no attribute {name!r}.",
                hint="to name it, write x.named('x'); tensors are immutable: assign a new one to a variable.",
            )
        object.__setattr__(self, name, value)
