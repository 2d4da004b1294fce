"""Installation and removal of function wrappers around native functions.

A wrapper records a call and passes it on. `Taps` replaces functions in modules and classes, and
`Taps.remove_all` restores them. RL-Scope (section 3.2) generates wrapper modules
instead.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from timerl_nb.scope.recording.annotations import guess, operation
from timerl_nb.scope.storage.event_format import Library
from timerl_nb.scope.wrappers import c_or_python_recorder, python_recorder

# Types of native functions, and names of library-specific ones.
_NATIVE: Final = (types.BuiltinFunctionType, types.MethodDescriptorType)
_NATIVE_BY_NAME: Final = frozenset(
    (
        "PjitFunction",
        "_ArrayFunctionDispatcher",  # NumPy functions
        "ufunc",
        "cython_function_or_method",
        "instancemethod",
        "nb_func",
        "nb_method",
    )
)
_MISSING: Final = object()


def is_tap(thing: Any) -> bool:
    """Return whether an object is a wrapper of the C or the Python recorder."""
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
    """Return the function inside of a wrapper, or the object itself if it is no wrapper."""
    return thing._function if is_tap(thing) else thing


def is_native(thing: Any) -> bool:
    """Return whether an object is a native function without a wrapper."""
    kind = type(thing)
    return kind in _NATIVE or kind.__name__ in _NATIVE_BY_NAME


class Taps:
    """Set of installed wrappers, with the replaced objects.

    Attributes:
        matchers: functions from an object of a module to its wrapper, or None for no wrapper.
        undo: called when the wrappers are removed.
    """

    def __init__(self) -> None:
        self.undo: list[Callable[[], object]] = []
        self._before: list[tuple[Any, str, Any, Any]] = []
        self.matchers: list[Callable[[Any], Any]] = []
        # by id of a function: the function and its wrapper
        self._wrapped: dict[int, tuple[Any, Any]] = {}
        self._can_be_bound = False  # whether any wrapper has been created

    def replace(self, owner: Any, name: str, thing: Any) -> bool:
        """Replace an attribute of a module or class; return False if it cannot be replaced."""
        before = vars(owner).get(name, _MISSING)
        try:
            setattr(owner, name, thing)
        except (AttributeError, TypeError):  # an immutable type
            return False
        self._before.append((owner, name, thing, before))
        return True

    def get_or_make(self, function: Any, name: str, library: Library, **how: Any) -> Any:
        """Return the wrapper of a function; create it at the first call."""
        if id(function) not in self._wrapped:
            self._wrapped[id(function)] = function, self.tap(function, name, library, **how)
        return self._wrapped[id(function)][1]

    def tap(
        self,
        function: Any,
        name: str,
        library: Library,
        *,
        guessed: str | Callable[[], operation] | None = None,
    ) -> Any:
        """Return a new wrapper; no reference is stored, so its user decides how long it lives.

        The wrapper binds to instances if the function does, like a method decorated with `jax.jit`.
        Functions such as `time.sleep` do not bind as class attributes.

        Args:
            function: function to wrap.
            name: name of the calls in the recording.
            library: category of the calls.
            guessed: operation to open around a call if no operation is open, or a function
                returning one; None for no operation.
        """
        self._can_be_bound = True
        kind = "MethodTap" if hasattr(type(function), "__get__") else "Tap"
        opened = guess(guessed) if isinstance(guessed, str) else guessed
        return getattr(c_or_python_recorder.module, kind)(self, function, name, library, opened)

    def module(self, module: types.ModuleType, library: Library) -> None:
        """Wrap the native functions of a module and the methods of its native classes."""
        for name, thing in list(vars(module).items()):
            if isinstance(thing, type) and thing.__module__ == module.__name__:
                self.methods(thing, library)
            elif is_native(thing) and not name.startswith("__"):
                self.get_or_make(thing, f"{module.__name__}.{name}", library)

    def methods(self, cls: type, library: Library) -> None:
        """Wrap the native methods of a class, unless the class is immutable."""
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
        """Wrap one function of a class or module, native or not."""
        thing = vars(owner).get(name)
        if callable(thing) and unwrap_function(thing) is thing:
            where = f"{owner.__module__}." if isinstance(owner, type) else ""
            called = f"{where}{owner.__name__}.{name}"
            tap = self.get_or_make(thing, called, library, guessed=guessed)
            self.replace(owner, name, tap)

    def stand_in(self, function: Any, other: Any) -> None:
        """Replace a function by `other` in all modules."""
        self._can_be_bound = True
        self._wrapped[id(function)] = (
            function,
            python_recorder.Tap(self, function, "", Library.PYTHON, instead=other),
        )

    def rebind(self) -> None:
        """Install the wrappers in all modules with a reference to a wrapped function."""
        if not self._wrapped and not self.matchers:
            return
        for module, name, thing in _module_bindings():
            known = self._wrapped.get(id(thing))
            if known is not None and known[0] is thing:
                self.replace(module, name, known[1])
                continue
            for matcher in self.matchers:
                if (tap := matcher(thing)) is not None:
                    self.replace(module, name, tap)

    def __bool__(self) -> bool:
        return bool(self._before)

    def remove_all(self) -> None:
        """Restore the replaced attributes, unless the program has changed them since."""
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
            # the program stored a reference to the wrapper
            if is_tap(thing) and thing._taps is self:
                setattr(module, name, thing._function)
        self.matchers.clear()
        # keep wrappers of permanent functions: `torch.compile` identifies functions by id
        self._wrapped = {k: made for k, made in self._wrapped.items() if type(made[0]) in _NATIVE}


def _module_bindings() -> Iterator[tuple[types.ModuleType, str, Any]]:
    """Yield all attributes of all imported modules."""
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType):
            for name, thing in list(vars(module).items()):
                yield module, name, thing
