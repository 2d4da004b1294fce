"""Search for the arrays in reach of a kernel: through its arguments, their contents, and the variables in its
code.
"""

from __future__ import annotations

import array
import ctypes
import functools
import inspect
import mmap
from collections import deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.memory_segments import is_memory

DEPTH: Final = 4  # nesting depth of attributes
_BUFFERS: Final = bytearray, memoryview, array.array, mmap.mmap, ctypes.Array
_SEQUENCES: Final = list, tuple, deque
_LEAVES: Final = str, bytes, int, float, complex, type, type(None), np.generic, np.dtype


@dataclass(frozen=True)
class ReachableMemory:
    """Reachable memory of a kernel.

    Attributes:
        name: its expression in the user's code; "" if only `reads` or `writes` return it.
        value: an array, or another object with a buffer.
        is_used: whether it is an argument or named in the code, so that `reads` or `writes` must return it.
        is_captured: whether the name is a variable outside the function.
    """

    name: str
    value: Any
    is_used: bool = False
    is_captured: bool = False


def reachable(kernel: Kernel) -> list[ReachableMemory]:
    """Return the reachable memory of a kernel; an array occurs once per name."""
    call = kernel.run
    found: list[ReachableMemory] = []
    if isinstance(call, functools.partial):
        given = _arguments(call)
        walk = _Walk(call.func, given)
        for name, value in given.items():
            found += walk.values(name, value)
        for name, value in walk.captured.items():
            found += walk.values(name, value, is_captured=True)
    known = {id(one.value) for one in found}
    found += [one for one in _Walk(None, {}).values("", kernel.keep) if id(one.value) not in known]
    return found


def _arguments(call: functools.partial[Any]) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    function: Any = call.func
    given = {"self": function.__self__} if isinstance(function, MethodType) else {}
    try:
        bound = inspect.signature(function).bind(*call.args, **call.keywords)
    except (TypeError, ValueError):  # a built-in function without a signature
        named = {f"argument {k}": value for k, value in enumerate(call.args)}
        return {**given, **named, **call.keywords}
    bound.apply_defaults()
    for parameter in bound.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= bound.arguments.pop(parameter.name)
    return given | bound.arguments


class _Walk:
    """Traversal of objects.

    Attributes:
        captured: the values of outer variables in the function's code, by name.
    """

    def __init__(self, function: Any, given: Mapping[str, Any]) -> None:
        self._names: set[str] = set()  # names in the code of the function and its callees
        self._followed: set[int] = set()
        self.captured: dict[str, Any] = {}
        self._module = getattr(_plain(function), "__globals__", None)
        self._follow(function)
        for value in (*given.values(), *list(self.captured.values())):
            self._follow_methods(value)

    def _follow(self, function: Any) -> None:
        """Collect the names in a function, in functions of its module and in its closure."""
        if isinstance(function, functools.partial):
            for name, value in _arguments(function).items():
                self.captured.setdefault(name, value)
        plain = _plain(function)
        if not isinstance(plain, FunctionType) or id(plain) in self._followed:
            return
        self._followed.add(id(plain))
        names = _names_in(plain.__code__)
        self._names |= names
        seen: dict[str, Any] = {}
        for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
            try:
                seen[name] = cell.cell_contents
            except ValueError:  # a variable without a value yet
                continue
        if plain.__globals__ is self._module:
            seen |= {n: plain.__globals__[n] for n in names if n in plain.__globals__}
        for name, value in seen.items():
            if isinstance(value, ModuleType):
                for inner in names & vars(value).keys():
                    held = vars(value)[inner]
                    if is_memory(held) or isinstance(held, (*_BUFFERS, *_SEQUENCES, Mapping)):
                        self.captured[f"{name}.{inner}"] = held
            elif isinstance(_plain(value), FunctionType):
                self._follow(value)
            else:
                self.captured[name] = value

    def _follow_methods(self, value: Any) -> None:
        """Collect the names in the methods that the code calls on an object."""
        before = 0
        while before != len(self._followed):
            before = len(self._followed)
            for name in list(self._names):
                held = inspect.getattr_static(type(value), name, None)
                self._follow(held.fget if isinstance(held, property) else held)

    def values(
        self, name: str, value: Any, *, is_captured: bool = False, is_used: bool | None = None
    ) -> Iterator[ReachableMemory]:
        """Yield the memory in a value."""
        seen: set[int] = set()
        is_used = bool(name) if is_used is None else is_used
        todo = deque([(name, value, is_used, DEPTH)])
        while todo:
            name, value, is_used, depth = todo.popleft()
            if isinstance(value, _LEAVES) or id(value) in seen:
                continue
            seen.add(id(value))
            inner: Iterator[tuple[str, Any, bool]] = iter(())
            if isinstance(value, np.ndarray):
                yield ReachableMemory(name, value, is_used, is_captured)
                if isinstance(value, np.ma.MaskedArray) and value.mask is not np.ma.nomask:
                    yield ReachableMemory(
                        f"{name}.mask", np.asarray(value.mask), is_used, is_captured
                    )
                if value.dtype == object:
                    inner = ((f"{name}.flat[{k}]", v, is_used) for k, v in enumerate(value.flat))
            elif is_memory(value) or isinstance(value, _BUFFERS):
                yield ReachableMemory(name, value, is_used, is_captured)
            elif isinstance(value, Mapping):
                inner = ((f"{name}[{key!r}]", v, is_used) for key, v in list(value.items()))
            elif isinstance(value, _SEQUENCES):
                inner = ((f"{name}[{k}]", v, is_used) for k, v in enumerate(list(value)))
            elif isinstance(value, Set):
                inner = ((name, v, is_used) for v in list(value))
            elif depth and not isinstance(value, ModuleType):
                depth -= 1
                inner = (
                    (f"{name}.{attribute}", v, is_used and attribute in self._names)
                    for attribute, v in _attributes(value)
                )
            todo += [(n, v, used, depth) for n, v, used in inner]


def _plain(function: Any) -> Any:
    """Return the function of a method, a partial function or a kernel."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType | staticmethod | classmethod):
            function = function.__func__
        elif isinstance(function, FunctionType) or not callable(function):
            return function
        elif isinstance(getattr(function, "function", None), FunctionType):  # of trl.kernel
            function = vars(function)["function"]
        else:
            return getattr(type(function).__call__, "__func__", type(function).__call__)


def _names_in(code: CodeType) -> set[str]:
    """Return the names of variables and attributes in a function's code, including nested functions."""
    names = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes stored in an object, without running its code."""
    yield from list(getattr(value, "__dict__", {}).items())
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if inspect.ismemberdescriptor(held := vars(cls).get(name)):
                try:
                    yield name, held.__get__(value)
                except AttributeError:  # the attribute is not set
                    continue
