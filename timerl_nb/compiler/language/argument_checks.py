"""What a user gives beside tensors: names, element types, sizes, discounts and folders.

Nothing here knows of tensors; `tensor` and `sources` build on it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf, isfinite
from typing import Any
from unicodedata import category

import numpy as np

from timerl_nb.base.errors import DomainError, OptionError, ShapeError
from timerl_nb.compiler.ir.shapes import NUMPY, DType, dtype_name
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.symbolic.index_expressions import Lin

# Names stand in lines of text, in generated programs, in JSON and in the names of files: control
# characters and separators would break a line, half a surrogate pair has no encoding.
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    """A text from elsewhere, with escapes for what cannot be written down."""
    if text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if category(c) in _UNPRINTABLE else c for c in text)


def checked_name(name: Any, of: str = "a name") -> str:
    """A name that the user gives to something.

    Raises:
        DomainError: it is no string, or has characters that cannot be written down.
    """
    if not isinstance(name, str):
        raise DomainError(f"{of} must be a string, not {name!r}.")
    found = next((c for c in name if category(c) in _UNPRINTABLE), None)
    if found is not None:
        raise DomainError(
            f"{of} has the character {ascii(found)}, which cannot be written down: {ascii(name)}.",
            hint="leave out line breaks, other control characters and lone surrogates.",
        )
    return name


def element_type(dtype: Any) -> DType:
    """The short name of an element type.

    Raises:
        ShapeError: there is none of that name.
    """
    try:
        return dtype_name(dtype)
    except (KeyError, TypeError):
        raise ShapeError(
            f"{dtype!r} is not an element type.", hint=f"use one of {', '.join(NUMPY)}."
        ) from None


def folder(path: Any) -> str:
    """The folder that a checkpoint goes to.

    Raises:
        DomainError: it is no path.
    """
    found = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(found, str):
        raise DomainError(
            f"a checkpoint goes to a folder, not to {path!r}.",
            hint='name one: checkpoint("runs/first").',
        )
    return checked_name(found, "the name of a folder")


def is_whole(value: Any) -> bool:
    """Whether a value is an integer, perhaps NumPy's."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a number, perhaps NumPy's."""
    return is_whole(value) or isinstance(value, float | np.floating)


def integer(
    what: str, value: Any, least: int | None = None, hint: str = "", most: int | None = None
) -> int:
    """An integer.

    Raises:
        ShapeError: it is none, or below `least`, or above `most`.
    """
    is_within = is_whole(value) and (least is None or value >= least)
    if not is_within or (most is not None and value > most):
        more = "" if least is None else f" of at least {least}"
        more += "" if most is None or not is_within else f" and at most {most:,}"
        raise ShapeError(f"{what} must be an integer{more}, not {value!r}.", hint=hint)
    return int(value)


def number(
    what: str, value: Any, hint: str = "", least: float | None = None, most: float = inf
) -> float:
    """A number; with bounds, a finite one.

    Raises:
        ShapeError: it is none, or below `least`, or above `most`.
    """
    within = ""
    if least is not None:
        within = f" of at least {least:g}" if most == inf else f" from {least:g} to {most:g}"
    if is_number(value) and (least is None or (least <= value <= most and isfinite(value))):
        return float(value)
    raise ShapeError(f"{what} must be a number{within}, not {value!r}.", hint=hint)


def numbers(what: str, value: Any, *bounds: tuple[float | None, float]) -> tuple[float, ...]:
    """As many numbers as there are bounds, each within its own.

    Raises:
        ShapeError: they are none, or one is not within its bounds.
    """
    if not isinstance(value, tuple | list) or len(value) != len(bounds):
        raise ShapeError(f"{what} must be {len(bounds)} numbers, not {value!r}.")
    return tuple(
        number(f"{what}[{k}]", one, least=least, most=most)
        for k, (one, (least, most)) in enumerate(zip(value, bounds, strict=True))
    )


def widths(what: str, value: Any) -> tuple[int, ...]:
    """The widths of layers.

    Raises:
        ShapeError: they are no list of positive integers.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ShapeError(f"{what} is a list of widths, not {value!r}.", hint=f"{what}=[32, 32].")
    return tuple(integer(f"{what}[{k}]", one, least=1) for k, one in enumerate(value))


def seed_of(value: Any) -> int:
    """What all chance begins with.

    Raises:
        OptionError: it is no integer, or has more than 64 bits.
    """
    if not is_whole(value):
        raise OptionError(f"the seed must be an integer, not {value!r}.", hint="seed=0.")
    if not -(2**63) <= value < 2**64:
        raise OptionError(
            f"the seed must have 64 bits, which {value} has not.",
            hint="give an integer from 0 to 2**64 - 1.",
        )
    return int(value)


def is_size(value: Any) -> bool:
    return isinstance(value, int | np.integer | Index | Lin)


def as_size(value: Any) -> Any:
    if isinstance(value, Index):
        return value.lin
    return int(value) if isinstance(value, np.integer) else value


def checked_gamma(gamma: Any) -> float:
    varies = "write a discount that varies as a recurrence: g[t] = r[t] + gamma[t] * g[t+1]."
    found = number("the discount", gamma, hint=varies)
    if not isfinite(found):
        raise ShapeError(f"the discount must be finite, not {gamma}.")
    return found
