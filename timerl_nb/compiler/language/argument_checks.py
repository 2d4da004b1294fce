"""Validation of non-tensor arguments: names, element types, sizes, discount factors, folders.

This module is independent of tensors.
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

# Names appear in messages, generated code, JSON and file names: control characters and
# separators would break a line, and lone surrogates have no encoding.
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    """Return a text with escapes for unprintable characters."""
    if text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if category(c) in _UNPRINTABLE else c for c in text)


def checked_name(name: Any, of: str = "a name") -> str:
    """Check and return a name chosen by the user.

    Raises:
        DomainError: it is not a string, or contains unprintable characters.
    """
    if not isinstance(name, str):
        raise DomainError(f"{of} must be a string, not {name!r}.", hint='write it in quotes: "x".')
    found = next((c for c in name if category(c) in _UNPRINTABLE), None)
    if found is not None:
        raise DomainError(
            f"{of} contains the unprintable character {ascii(found)}: {ascii(name)}.",
            hint="remove line breaks, other control characters and lone surrogates.",
        )
    return name


def element_type(dtype: Any) -> DType:
    """Return the short name of an element type.

    Raises:
        ShapeError: there is no such element type.
    """
    try:
        return dtype_name(dtype)
    except (KeyError, TypeError):
        raise ShapeError(
            f"{dtype!r} is not an element type.", hint=f"use one of {', '.join(NUMPY)}."
        ) from None


def folder(path: Any) -> str:
    """Check and return the folder of a checkpoint.

    Raises:
        DomainError: it is not a path.
    """
    found = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(found, str):
        raise DomainError(
            f"the folder of a checkpoint must be a path, not {path!r}.",
            hint='name one: checkpoint("runs/first").',
        )
    return checked_name(found, "the name of a folder")


def is_whole(value: Any) -> bool:
    """Test for an integer, Python's or NumPy's."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Test for a number, Python's or NumPy's."""
    return is_whole(value) or isinstance(value, float | np.floating)


def integer(
    what: str, value: Any, least: int | None = None, hint: str = "", most: int | None = None
) -> int:
    """Check and return an integer argument.

    Raises:
        ShapeError: it is not an integer, or outside `least` to `most`.
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
    """Check and return a number argument; with `least`, a finite one.

    Raises:
        ShapeError: it is not a number, or outside `least` to `most`.
    """
    within = ""
    if least is not None:
        within = f" of at least {least:g}" if most == inf else f" from {least:g} to {most:g}"
    if is_number(value) and (least is None or (least <= value <= most and isfinite(value))):
        return float(value)
    raise ShapeError(f"{what} must be a number{within}, not {value!r}.", hint=hint)


def numbers(what: str, value: Any, *bounds: tuple[float | None, float]) -> tuple[float, ...]:
    """Check and return one number per pair of bounds.

    Raises:
        ShapeError: the count differs, or a number is outside its bounds.
    """
    if not isinstance(value, tuple | list) or len(value) != len(bounds):
        raise ShapeError(
            f"{what} must be {len(bounds)} numbers, not {value!r}.", hint="give a tuple of numbers."
        )
    return tuple(
        number(f"{what}[{k}]", one, least=least, most=most)
        for k, (one, (least, most)) in enumerate(zip(value, bounds, strict=True))
    )


def widths(what: str, value: Any) -> tuple[int, ...]:
    """Check and return the widths of layers.

    Raises:
        ShapeError: they are not a list of positive integers.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ShapeError(
            f"{what} must be a list of widths, not {value!r}.", hint=f"write {what}=[32, 32]."
        )
    return tuple(integer(f"{what}[{k}]", one, least=1) for k, one in enumerate(value))


def seed_of(value: Any) -> int:
    """Check and return a random seed.

    Raises:
        OptionError: it is not an integer, or needs more than 64 bits.
    """
    if not is_whole(value):
        raise OptionError(f"the seed must be an integer, not {value!r}.", hint="write seed=0.")
    if not -(2**63) <= value < 2**64:
        raise OptionError(
            f"the seed must fit into 64 bits; {value} does not.",
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
    varies = "for a discount that varies, write a recurrence: g[t] = r[t] + gamma[t] * g[t+1]."
    found = number("the discount", gamma, hint=varies)
    if not isfinite(found):
        raise ShapeError(
            f"the discount must be finite, not {gamma}.", hint="give a number such as 0.99."
        )
    return found
