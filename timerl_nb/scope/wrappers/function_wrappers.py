"""Taps: callables around native functions, set where these are looked up, which record their calls.

Where nothing is recorded a tap (`pure`) calls through; `Taps.remove_all` puts back what was there. (RL-Scope, paper 002,
section 3.2, wraps functions by scripts that write modules.)
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from timerl_nb.scope.recording.annotations import guess, operation
from timerl_nb.scope.storage.event_format import Library
from timerl_nb.scope.wrappers import c_or_python_recorder, python_recorder

# What is native by its type, and by the name of its type, where that is some library's own.
_NATIVE: Final = (types.BuiltinFunctionType, types.MethodDescriptorType)
_NATIVE_BY_NAME: Final = frozenset(
    (
        "PjitFunction",
        "_ArrayFunctionDispatcher",  # NumPy's functions, and
        "ufunc",
        "cython_function_or_method",
        "instancemethod",
        "nb_func",
        "nb_method",
    )
)
_MISSING: Final = object()


def is_tap(thing: Any) -> bool:
    """Whether something is a tap, of either recorder."""
    kind = type(thing)
    return kind in _TAPS or (
        kind is types.FunctionType and thing.__code__ in python_recorder.FUNCTIONS
    )


_TAPS: Final = {
    kind
    for module in (python_recorder, c_or_python_recorder.module)
    for kind in (module.Tap, module.MethodTap)
}


def unwrap_function(thing: Any) -> Any:
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
        undo: is called as the taps go off.
    """

    def __init__(self) -> None:
        self.undo: list[Callable[[], object]] = []
        self._before: list[tuple[Any, str, Any, Any]] = []
        self.matchers: list[Callable[[Any], Any]] = []
        self._made: dict[int, tuple[Any, Any]] = {}  # by a function's id, that and what stands in
        self._can_be_bound = False  # whether a tap has ever been made

    def replace(self, owner: Any, name: str, thing: Any) -> bool:
        """Have an attribute of a module or class be something else; False where that cannot be."""
        before = vars(owner).get(name, _MISSING)
        try:
            setattr(owner, name, thing)
        except (AttributeError, TypeError):  # of an immutable type
            return False
        self._before.append((owner, name, thing, before))
        return True

    def get_or_make(self, function: Any, name: str, library: Library, **how: Any) -> Any:
        """The tap of a function, made by `tap` where there is none yet."""
        if id(function) not in self._made:
            self._made[id(function)] = function, self.tap(function, name, library, **how)
        return self._made[id(function)][1]

    def tap(
        self,
        function: Any,
        name: str,
        library: Library,
        *,
        guessed: str | Callable[[], operation] | None = None,
    ) -> Any:
        """A tap of a function that is not remembered: it goes when its user lets go of it.

        It binds to instances where the function does: `jax.jit` decorates methods, and `time.sleep` in a class is none.

        Args:
            guessed: the operation that a call is, where no other is open, or what says so as it is called; None for none.
        """
        self._can_be_bound = True
        kind = "MethodTap" if hasattr(type(function), "__get__") else "Tap"
        opened = guess(guessed) if isinstance(guessed, str) else guessed
        return getattr(c_or_python_recorder.module, kind)(self, function, name, library, opened)

    def module(self, module: types.ModuleType, library: Library) -> None:
        """Tap the native functions of a module, and the methods of its native classes."""
        for name, thing in list(vars(module).items()):
            if isinstance(thing, type) and thing.__module__ == module.__name__:
                self.methods(thing, library)
            elif is_native(thing) and not name.startswith("__"):
                self.get_or_make(thing, f"{module.__name__}.{name}", library)

    def methods(self, cls: type, library: Library) -> None:
        """Tap the native methods of a class that says so itself, as far as it can be changed."""
        for name, thing in list(vars(cls).items()):
            if is_native(thing) and (not name.startswith("__") or name == "__call__"):
                tap = self.get_or_make(thing, f"{cls.__qualname__}.{name}", library)
                if not self.replace(cls, name, tap):
                    return

    def method(
        self,
        owner: Any,
        name: str,
        library: Library,
        guessed: str | Callable[[], operation] | None = None,
    ) -> None:
        """Tap one function of a class or module, native or not."""
        thing = vars(owner).get(name)
        if callable(thing) and unwrap_function(thing) is thing:
            where = f"{owner.__module__}." if isinstance(owner, type) else ""
            called = f"{where}{owner.__name__}.{name}"
            tap = self.get_or_make(thing, called, library, guessed=guessed)
            self.replace(owner, name, tap)

    def stand_in(self, function: Any, other: Any) -> None:
        """Have something else be called instead of a function, wherever a module binds that."""
        self._can_be_bound = True
        self._made[id(function)] = (
            function,
            python_recorder.Tap(self, function, "", Library.PYTHON, instead=other),
        )

    def rebind(self) -> None:
        """Set taps where their functions are bound, in all modules that there are."""
        if not self._made and not self.matchers:
            return
        for module, name, thing in _module_bindings():
            known = self._made.get(id(thing))
            if known is not None and known[0] is thing:
                self.replace(module, name, known[1])
                continue
            for matcher in self.matchers:
                if (tap := matcher(thing)) is not None:
                    self.replace(module, name, tap)

    def __bool__(self) -> bool:
        return bool(self._before)

    def remove_all(self) -> None:
        """Put back what was there, as it was; what somebody else has set since stays."""
        while self.undo:
            self.undo.pop()()
        while self._before:
            owner, name, thing, before = self._before.pop()
            if vars(owner).get(name) is not thing:
                continue
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        for module, name, thing in _module_bindings() if self._can_be_bound else ():
            if is_tap(thing) and thing._taps is self:  # bound since
                setattr(module, name, thing._function)
        self.matchers.clear()
        # taps of what is there as long as its library are used again: `torch.compile` knows them by their ids
        self._made = {k: made for k, made in self._made.items() if type(made[0]) in _NATIVE}


def _module_bindings() -> Iterator[tuple[types.ModuleType, str, Any]]:
    """All that modules bind."""
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType):
            for name, thing in list(vars(module).items()):
                yield module, name, thing
