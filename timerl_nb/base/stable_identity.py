"""Identity of objects across processes: equal objects have the same text in every process.

The text contains no memory address. It names classes and functions by module and qualified name, and arrays
by a checksum. For the user's own code, it also covers source code, closures, plain values and called
functions. Code of the standard library, of installed packages and of this package counts by name only.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import Enum
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from textwrap import dedent
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from timerl_nb.base.errors import OptionError

_LONGEST: Final = 200  # characters; a longer text is cut and followed by a digest
_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, type(...))
_INSTALLED: Final = tuple(
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")
)


def identity(value: Any) -> str:
    """Return the identity text of a value.

    Raises:
        OptionError: a part has no such text, such as an open file or a lock.
    """
    return _Writer().text(value)


def parts_of(value: Any) -> dict[str, str]:
    """Return the identity texts of an object's attributes, by name; the key "" has the text of its class.

    Raises:
        OptionError: an attribute has no identity text.
    """
    writer = _Writer()
    made = writer.attributes(value)
    return {"": writer.text(type(value)), **{name: writer.text(x) for name, x in made.items()}}


class _Writer:
    """Writer of identity texts. A reference to an enclosing value is written as its nesting depth."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}

    def text(self, value: Any) -> str:
        if type(value) in _PLAIN:
            return _short(repr(value))
        if id(value) in self._open:
            return f"<{self._open[id(value)]}>"
        self._open[id(value)] = len(self._open)
        try:
            return self._format_value(value)
        finally:
            del self._open[id(value)]

    def _format_value(self, value: Any) -> str:
        """Return the text of a value.

        Equal values have equal texts in every process: mappings and sets are sorted, and functions and classes of
        the user include their code.
        """
        if isinstance(value, Enum):
            return f"{_name(type(value))}.{value.name}"
        if isinstance(value, np.generic | np.dtype):
            return repr(value)
        if hasattr(value, "__array__") and hasattr(value, "dtype"):
            return _array(value)
        if isinstance(value, Mapping):
            pairs = sorted(f"{self.text(k)}: {self.text(x)}" for k, x in value.items())
            return f"{self.describe_head(value, dict)}{{{', '.join(pairs)}}}"
        if isinstance(value, set | frozenset):
            return f"{self.describe_head(value, set)}{{{', '.join(sorted(map(self.text, value)))}}}"
        if isinstance(value, list | tuple):
            inner = ", ".join(map(self.text, value))
            head = self.describe_head(value, list, tuple)
            return f"{head}[{inner}]" if isinstance(value, list) else f"{head}({inner})"
        if isinstance(value, ModuleType):
            return value.__name__
        if isinstance(value, type):
            return _name(value) + self._code(value)
        if isinstance(value, partial):
            return f"partial{self.text((value.func, value.args, value.keywords))}"
        if isinstance(value, MethodType):
            return f"{self.text(value.__self__)}.{value.__name__}"
        if isinstance(value, FunctionType):
            return _name(value) + self._code(value)
        inner = getattr(value, "__wrapped__", None)  # set by functools.wraps, jax.jit and others
        if callable(inner):
            return self.text(inner)
        if isinstance(value, BuiltinFunctionType) or hasattr(value, "__qualname__"):
            return _name(value)
        made = (f"{name}={self.text(x)}" for name, x in self.attributes(value).items())
        return f"{self.text(type(value))}({_short(', '.join(made))})"

    def describe_head(self, value: Any, *plain: type) -> str:
        return "" if type(value) in plain else self.text(type(value))

    def attributes(self, value: Any) -> dict[str, Any]:
        """Return an object's attributes, or the arguments of its constructor.

        Raises:
            OptionError: the object has neither.
        """
        arguments = getattr(value, "__getnewargs_ex__", None)
        if arguments is not None:
            given, named = arguments()
            return {**{str(k): x for k, x in enumerate(given)}, **named}
        # a subclass without the decorator may have attributes beyond the fields
        if "__dataclass_fields__" in vars(type(value)):
            return {one.name: getattr(value, one.name) for one in fields(value)}
        slots = chain.from_iterable(vars(c).get("__slots__", ()) for c in type(value).__mro__)
        found = {n: getattr(value, n) for n in slots if n != "__dict__" and hasattr(value, n)}
        found |= getattr(value, "__dict__", {})
        if found:
            late = {n for n in found if isinstance(getattr(type(value), n, None), cached_property)}
            return {name: found[name] for name in sorted(found.keys() - late)}
        try:
            _, arguments, *rest = value.__reduce_ex__(4)
        except (TypeError, ValueError):
            raise OptionError(
                f"objects of the class {type(value).__name__} cannot be distinguished.",
                hint="add an attribute `identity` to the algorithm, with a string that names it.",
            ) from None
        state = [x for x in (*arguments, *rest[:1]) if x is not None and x is not type(value)]
        return {str(k): x for k, x in enumerate(state)}

    # --- code ------------------------------------------------------------------------------------

    def _code(self, value: Any) -> str:
        """Return "#" and a digest of a user's class or function; for an installed function, of its closure
        only.
        """
        told: list[str] = []
        if isinstance(value, type):
            told += self._members(value) if _is_own(value) else ()
        else:
            told += self._closure_texts(value) if value.__closure__ else ()
            told += self._function(value) if _is_own(value) else ()
        return "#" + _digest(told) if told else ""

    def _closure_texts(self, function: FunctionType) -> Iterable[str]:
        for cell in function.__closure__ or ():
            try:
                yield self.text(cell.cell_contents)
            except ValueError:  # an empty cell
                yield "nothing"

    def _members(self, kind: type) -> Iterable[str]:
        for base in kind.__bases__:
            if base is not object:
                yield self.text(base)
        for name, one in sorted(vars(kind).items()):
            for inner in _functions(one):
                yield f"{name}: {self.text(inner)}"
            if type(one) in _PLAIN or isinstance(one, list | tuple | dict | np.ndarray):
                if name not in _OF_CLASSES:
                    yield f"{name} = {self.text(one)}"

    def _function(self, function: FunctionType) -> Iterable[str]:
        code = function.__code__
        try:
            source = None if function.__name__ == "<lambda>" else inspect.getsource(function)
        except (OSError, TypeError):
            source = None
        yield from _instructions(code) if source is None else [dedent(source)]
        yield self.text((function.__defaults__, function.__kwdefaults__))
        for name in sorted(_names(code)):
            used = function.__globals__.get(name)
            if type(used) in _PLAIN or isinstance(used, FunctionType | type | tuple):
                yield f"{name} = {self.text(used)}"


# present in every class, and irrelevant to its instances
_OF_CLASSES: Final = frozenset(
    {"__doc__", "__module__", "__qualname__", "__annotations__", "__slots__", "__firstlineno__"}
    | {"__static_attributes__", "__dataclass_fields__", "__match_args__", "__abstractmethods__"}
)


def _functions(member: Any) -> Iterable[Any]:
    """Return the functions in a class member."""
    if isinstance(member, property):
        return [f for f in (member.fget, member.fset, member.fdel) if f is not None]
    if isinstance(member, staticmethod | classmethod):
        return [member.__func__]
    if isinstance(member, cached_property):
        return [member.func]
    if isinstance(member, FunctionType | type) or callable(getattr(member, "__wrapped__", None)):
        return [member]
    return []


def _instructions(code: CodeType) -> Iterable[str]:
    """Yield the text of compiled code; sets among the constants are sorted."""
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _instructions(one)
        else:
            yield repr(sorted(map(repr, one)) if isinstance(one, frozenset) else one)


def _names(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _name(value: Any) -> str:
    """Return the module and qualified name; for code of the main script, the name of its file."""
    module = getattr(value, "__module__", None) or ""
    if module in ("__main__", "__mp_main__"):
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else module
    return f"{module}.{getattr(value, '__qualname__', type(value).__name__)}".removeprefix(
        "builtins."
    )


def _is_own(value: Any) -> bool:
    """Whether code belongs to the user."""
    module = sys.modules.get(getattr(value, "__module__", None) or "builtins")
    if module is not None and module.__name__.partition(".")[0] == __name__.partition(".")[0]:
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return module is None or module.__name__ == "__main__"
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in _INSTALLED)


def _array(value: Any) -> str:
    array = np.asarray(value)
    content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return f"{array.dtype}{list(array.shape)}#{_digest([content.hex()])}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:40]}…#{_digest([text])}"


def _digest(parts: Iterable[str]) -> str:
    found = hashlib.sha256()
    for one in parts:
        found.update(one.encode("utf-8", "surrogatepass") + b"\0")
    return found.hexdigest()[:16]
