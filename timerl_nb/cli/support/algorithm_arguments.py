"""Command-line arguments of algorithms, derived from their signatures and docstrings.

Names, types and defaults come from the signature, descriptions from the docstring. New algorithms and
arguments therefore need no change here.
"""

from __future__ import annotations

import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from timerl_nb import algorithms
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.driver.compiling_context import Context

Read = Callable[[str], Any]


@dataclass(frozen=True)
class Argument:
    """One argument of an algorithm.

    Attributes:
        name: its name in the signature.
        what: its type in words.
        read: a function from a text to its value; raises ValueError.
        default: its default value.
        about: its description in the docstring.
        several: whether its value is a list.
    """

    name: str
    what: str
    read: Read
    default: Any
    about: str
    several: bool = False

    def validate(self, value: Any) -> Any:
        """Return a stored value, checked and converted.

        Raises:
            OptionError: the value is invalid.
        """
        try:
            return self.read(format_argument(value))
        except ValueError:
            raise OptionError(
                f"{self.name} = {value!r} is invalid.", hint=f"choose {self.what}."
            ) from None


@dataclass(frozen=True)
class Algorithm:
    """A built-in algorithm.

    Attributes:
        name: its name in `trl.algorithms`.
        make: the function that writes the program.
        about: the docstring up to the arguments.
        summary: the first line of its module's docstring.
        arguments: the arguments with a command-line form, by name.
    """

    name: str
    make: Callable[..., Context]
    about: str
    summary: str
    arguments: Mapping[str, Argument]

    def argument(self, name: str) -> Argument:
        """Return one argument.

        Raises:
            OptionError: the name is unknown.
        """
        if name not in self.arguments:
            known = one_of(name, list(self.arguments))
            raise OptionError(f"{self.name} has no argument {name!r}.", hint=known)
        return self.arguments[name]


def algorithm(name: str) -> Algorithm:
    """Return the algorithm with this name.

    Raises:
        OptionError: the name is unknown.
    """
    if name not in algorithms.__all__:
        raise OptionError(
            f"the algorithm {name!r} is unknown.", hint=f"{one_of(name, algorithms.__all__)}."
        )
    return inspect_algorithm(name, getattr(algorithms, name))


def inspect_algorithm(name: str, make: Callable[..., Context]) -> Algorithm:
    """Derive the arguments of a function from its signature and docstring."""
    text = inspect.getdoc(make) or ""
    about, _, _ = text.partition("\nArgs:\n")
    module = inspect.getdoc(inspect.getmodule(make)) or about
    said, hints = _sentences(text), typing.get_type_hints(make)
    found = dict[str, Argument]()
    for parameter in inspect.signature(make).parameters.values():
        known = _reader(hints.get(parameter.name, str))
        if known is not None:
            read, what, several = known
            found[parameter.name] = Argument(
                parameter.name, what, read, parameter.default, said.get(parameter.name, ""), several
            )
    return Algorithm(name, make, about.strip(), module.splitlines()[0], found)


def _sentences(text: str) -> dict[str, str]:
    """Return the description of each argument in a docstring; several names may share one."""
    _, _, listed = text.partition("\nArgs:\n")
    listed, _, _ = listed.partition("\n\n")
    joined = re.sub(r"\n {5,}", " ", listed)
    found = dict[str, str]()
    for line in joined.splitlines():
        names, _, sentence = line.strip().partition(": ")
        found.update({name.strip(): sentence for name in names.split(",")})
    return found


# --- values as text ------------------------------------------------------------------------------


def format_argument(value: Any) -> str:
    """Format a value for the command line."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(format_argument, value))
    return value if isinstance(value, str) else repr(value)


def _number(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError("not a finite number")
    return found


def _truth(text: str) -> bool:
    words = {"true": True, "false": False, "yes": True, "no": False}
    if text.lower() not in words:
        raise ValueError
    return words[text.lower()]


def _text(text: str) -> str:
    if not text:
        raise ValueError("empty")
    return text


def _none(text: str) -> None:
    if text.lower() != "none":
        raise ValueError


_PLAIN: Final[Mapping[Any, tuple[Read, str]]] = {
    bool: (_truth, "true or false"),
    int: (int, "an integer"),
    float: (_number, "a number"),
    str: (_text, "a text"),
    type(None): (_none, "none"),
}
_ORDER: Final = (
    type(None),
    bool,
    int,
    float,
)  # order of the attempts to read a value of several types


def _reader(kind: Any) -> tuple[Read, str, bool] | None:
    """Return a reader of a type, the type in words, and whether it is a list.

    None if no text can express the type. Of `str | Environment` only `str` counts.
    """
    if kind in _PLAIN:
        plain, what = _PLAIN[kind]
        return plain, what, False
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        legal = {format_argument(value): value for value in inside}
        return _first_of([_exactly(legal)]), f"one of {', '.join(legal)}", False
    if origin in (typing.Union, types.UnionType):
        ordered = sorted(inside, key=lambda k: _ORDER.index(k) if k in _ORDER else len(_ORDER))
        known = [found for k in ordered if (found := _reader(k)) is not None]
        if not known or all(k is type(None) or _reader(k) is None for k in inside):
            return None
        ways = sorted({what: read for read, what, _ in known}, key=lambda what: what == "none")
        several = any(several for _, _, several in known)
        return _first_of([read for read, _, _ in known]), " or ".join(ways), several
    if isinstance(origin, type) and issubclass(origin, Sequence) and inside:
        one = _reader(inside[0])
        if one is None or one[2]:
            return None
        read_one = one[0]
        plural = one[1].removeprefix("an ").removeprefix("a ") + "s"
        return (
            lambda text: tuple(read_one(part.strip()) for part in text.split(",")) if text else (),
            f"{plural} separated by commas",
            True,
        )
    return None


def _exactly(legal: Mapping[str, Any]) -> Read:
    def parse(text: str) -> Any:
        if text not in legal:
            raise ValueError
        return legal[text]

    return parse


def _first_of(readers: Sequence[Read]) -> Read:
    """Return a reader that tries several readers in order."""

    def parse(text: str) -> Any:
        for one in readers:
            try:
                return one(text)
            except ValueError:
                pass
        raise ValueError

    return parse
