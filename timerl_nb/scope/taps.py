"""Taps: callables around native functions, set where these are looked up, which record their calls.

A tap passes for what it wraps: `inspect.isbuiltin`, `isinstance`, hash, equality, `repr`, pickle and copies. Where
nothing is recorded it calls through; `Taps.off` puts back what was there. (RL-Scope, paper 002, section 3.2, wraps
functions by scripts that write modules.)
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from timerl_nb.scope import native
from timerl_nb.scope.edges import Kind, Library
from timerl_nb.scope.recorder import GUESSED, operation, this_lane

# What is native by its type, and by the name of its type, where that is some library's own.
_NATIVE: Final = (types.BuiltinFunctionType, types.MethodDescriptorType)
_NATIVE_BY_NAME: Final = frozenset(
    ("instancemethod", "nb_func", "nb_method", "cython_function_or_method", "PjitFunction")
)
_MISSING: Final = object()


class Tap:
    """A function, whose calls are recorded.

    Args:
        taps: it is among, and goes with.
        function: is called.
        name: what it is called in the recording.
        library: whose code it runs; calls from inside of that are not recorded.
        guessed: the operation that a call is, where no other is open; None for none.
    """

    __slots__ = ("__weakref__", "_function", "_guessed", "_name", "_of", "_taps", "_top", "_upper")

    def __init__(
        self, taps: Taps, function: Any, name: str, library: Library, guessed: str | None = None
    ) -> None:
        self._taps, self._function, self._name, self._upper = taps, function, name, int(library)
        self._guessed = guessed
        self._of: Any = None  # the recorder that `_top` is of
        self._top = 0

    def __call__(self, *args: Any, **named: Any) -> Any:
        lane = this_lane()
        if lane is None:
            return self._function(*args, **named)
        if self._guessed is not None and not lane.is_in(Kind.OPERATION_EXIT):
            with operation(f"{self._guessed}{GUESSED}"):
                return self(*args, **named)
        writer = lane.writer
        if writer.library == self._upper:
            return self._function(*args, **named)
        if self._of is not lane.recorder:
            self._top = lane.recorder.top(Library(self._upper), self._name)
            self._of = lane.recorder
        try:
            writer.called(self._top)
        except OSError as error:
            lane.recorder.fail(error)
            return self._function(*args, **named)
        try:
            return self._function(*args, **named)
        finally:
            lane.returned()

    # --- passing for the function ------------------------------------------------------------

    @property
    def __class__(self) -> Any:
        return type(self._function)

    @property
    def __doc__(self) -> Any:
        return self._function.__doc__

    @property
    def __module__(self) -> Any:
        return self._function.__module__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __eq__(self, other: object) -> bool:
        return self._function == untapped(other)

    def __hash__(self) -> int:
        return hash(self._function)

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._function.__reduce_ex__(protocol)

    def __copy__(self) -> Tap:
        return self

    def __deepcopy__(self, memo: Any) -> Tap:
        return self


class MethodTap(Tap):
    """The same of a function that is looked up in a class, and called with an instance."""

    __slots__ = ()

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def is_tap(thing: Any) -> bool:
    """Whether something is a tap, of either recorder."""
    return type(thing) in _TAPS


_TAPS: Final = {Tap, MethodTap}
if native.module is not None:
    _TAPS.update((native.module.Tap, native.module.MethodTap))


def untapped(thing: Any) -> Any:
    """What a tap is around; anything else as it is."""
    return thing._function if is_tap(thing) else thing


def is_native(thing: Any) -> bool:
    """Whether a call of something runs native code, and nothing is tapped already."""
    kind = type(thing)
    return kind in _NATIVE or kind.__name__ in _NATIVE_BY_NAME


class Taps:
    """What is tapped now, and what was there before.

    Attributes:
        matchers: each makes a tap of what some module binds, where that is to be tapped.
    """

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any, Any]] = []
        self.matchers: list[Callable[[Any], Tap | None]] = []
        self._made: dict[int, tuple[Any, Any]] = {}  # by a function's id, that and what stands in

    def replace(self, owner: Any, name: str, thing: Any) -> bool:
        """Have an attribute of a module or class be something else; False where that cannot be."""
        before = vars(owner).get(name, _MISSING)
        try:
            setattr(owner, name, thing)
        except (AttributeError, TypeError):  # of an immutable type
            return False
        self._before.append((owner, name, thing, before))
        return True

    def made(
        self,
        function: Any,
        name: str,
        library: Library,
        *,
        is_method: bool = False,
        guessed: str | None = None,
    ) -> Any:
        """The tap of a function."""
        if id(function) not in self._made:
            tap = self._tap(function, name, library, guessed, is_method=is_method)
            self._made[id(function)] = function, tap
        return self._made[id(function)][1]

    def _tap(
        self,
        function: Any,
        name: str,
        library: Library,
        guessed: str | None,
        *,
        is_method: bool,
    ) -> Any:
        if native.module is None or guessed is not None:
            return (MethodTap if is_method else Tap)(self, function, name, library, guessed)
        kind = native.module.MethodTap if is_method else native.module.Tap
        return kind(self, function, name, library)

    def module(self, module: types.ModuleType, library: Library) -> None:
        """Tap the native functions of a module, and the methods of its native classes."""
        for name, thing in list(vars(module).items()):
            if isinstance(thing, type) and thing.__module__ == module.__name__:
                self.methods(thing, library)
            elif is_native(thing) and not name.startswith("__"):
                self.made(thing, f"{module.__name__}.{name}", library)

    def methods(self, cls: type, library: Library) -> None:
        """Tap the native methods of a class that says so itself, as far as it can be changed."""
        for name, thing in list(vars(cls).items()):
            if is_native(thing) and (not name.startswith("__") or name == "__call__"):
                tap = self.made(thing, f"{cls.__qualname__}.{name}", library, is_method=True)
                if not self.replace(cls, name, tap):
                    return

    def method(self, owner: Any, name: str, library: Library, guessed: str | None = None) -> None:
        """Tap one function of a class or module, native or not."""
        thing = vars(owner).get(name)
        if callable(thing) and untapped(thing) is thing:
            where = f"{owner.__module__}." if isinstance(owner, type) else ""
            called = f"{where}{owner.__name__}.{name}"
            tap = self.made(thing, called, library, is_method=True, guessed=guessed)
            self.replace(owner, name, tap)

    def stand_in(self, function: Any, other: Any) -> None:
        """Have something else be called instead of a function, wherever a module binds that."""
        self._made[id(function)] = function, other

    def rebind(self) -> None:
        """Set taps where their functions are bound, in all modules that there are."""
        for module, name, thing in _bound():
            known = self._made.get(id(thing))
            if known is not None and known[0] is thing:
                self.replace(module, name, known[1])
                continue
            for matcher in self.matchers:
                if (tap := matcher(thing)) is not None:
                    self.replace(module, name, tap)

    def __bool__(self) -> bool:
        return bool(self._before)

    def off(self) -> None:
        """Put back what was there, as it was; what somebody else has set since stays."""
        while self._before:
            owner, name, thing, before = self._before.pop()
            if vars(owner).get(name) is not thing:
                continue
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        for module, name, thing in _bound():
            if is_tap(thing) and thing._taps is self:  # bound since
                setattr(module, name, thing._function)
        self._made.clear()


def _bound() -> Iterator[tuple[types.ModuleType, str, Any]]:
    """All that modules bind."""
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType):
            for name, thing in list(vars(module).items()):
                yield module, name, thing
