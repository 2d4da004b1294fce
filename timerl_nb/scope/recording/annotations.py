"""What a user says of a program: `with operation(name):`, `with phase(name):`, or the same as decorators.

They are written by the recorder (`_tap.c` or `pure.py`), of which they are; nothing is done where nothing is recorded.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from timerl_nb.base.errors import OptionError
from timerl_nb.scope.wrappers import c_or_python_recorder, python_recorder

if TYPE_CHECKING:
    Operation, Phase = python_recorder.Operation, python_recorder.Phase
else:
    Operation, Phase = c_or_python_recorder.module.Operation, c_or_python_recorder.module.Phase

P = ParamSpec("P")
R = TypeVar("R")

GUESSED: Final = " (guessed)"  # behind the name of an operation that nobody annotated


class _Decorator:
    """What is entered at each call of a function, and left with it."""

    __slots__ = ()
    name: str

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, which is in it while it runs; a generator or a coroutine while that is open.

        Raises:
            OptionError: it is an asynchronous generator.
        """
        cls, name = cast("type[operation]", type(self)), self.name
        if inspect.isasyncgenfunction(function):
            raise OptionError(
                f"{function.__qualname__} is an asynchronous generator, which cannot be decorated.",
                hint=f"write `with trl.scope.{cls.__name__}({name!r}):` inside of it.",
            )
        if inspect.iscoroutinefunction(function):

            async def call_coroutine(*args: P.args, **named: P.kwargs) -> Any:
                with cls(name):
                    return await function(*args, **named)

            return cast("Callable[P, R]", functools.wraps(function)(call_coroutine))
        if inspect.isgeneratorfunction(function):

            def call_generator(*args: P.args, **named: P.kwargs) -> Any:
                with cls(name):
                    return (yield from function(*args, **named))

            return cast("Callable[P, R]", functools.wraps(function)(call_generator))

        @functools.wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            with cls(name):
                return function(*args, **named)

        return call


class operation(_Decorator, Operation):
    """What the program does, in its user's words: `with operation("inference"):`, or a decorator.

    Operations nest, also in themselves; nothing is done where nothing is recorded (RL-Scope, paper 002,
    section 3.1).

    Raises:
        OptionError: it has no name, or decorates an asynchronous generator.
    """

    __slots__ = ()


class phase(_Decorator, Phase):
    """A stage of training, around operations (RL-Scope, paper 002, section 3.1).

    Raises:
        OptionError: it has no name, or decorates an asynchronous generator.
    """

    __slots__ = ()


def guess(name: str) -> operation:
    """An operation that nobody annotated."""
    return operation(f"{name}{GUESSED}")


def written_by(module: Any) -> None:
    """Have a recorder write them from now on, be it another one than they are of."""
    for cls, one in ((operation, module.Operation), (phase, module.Phase)):
        for name in ("__enter__", "__exit__"):
            if getattr(cls, name) is not getattr(one, name):
                setattr(cls, name, getattr(one, name))
