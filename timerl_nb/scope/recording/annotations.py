"""Annotations of user code: operations and training phases, as context managers or decorators.

The recorder (`_tap.c`, or `python_recorder` as its fallback) writes their start and end events.
Without a recording, they have no effect.
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

GUESSED: Final = " (guessed)"  # suffix of operations opened by a wrapper outside of all annotations


class _Decorator:
    """Decorator form of an annotation: every call of the function enters and exits it."""

    __slots__ = ()
    name: str

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, annotated.

        A generator or a coroutine is annotated from its first step until it ends.

        Args:
            function: a function, generator function or coroutine function.

        Raises:
            OptionError: `function` is an asynchronous generator.
        """
        cls, name = cast("type[operation]", type(self)), self.name
        if inspect.isasyncgenfunction(function):
            raise OptionError(
                f"{function.__qualname__} is an asynchronous generator and cannot be decorated.",
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
    """An operation of the program, such as inference or a gradient step.

    Use it as a context manager or as a decorator. Operations nest, also inside an operation of the
    same name. Without a recording, it has no effect. Source: RL-Scope, section 3.1.

    Args:
        name: any text; the breakdown sums up time by this name.

    Raises:
        OptionError: the name is not a string, or the decorated function is an asynchronous
            generator.

    Example:
        >>> @trl.scope.operation("inference")
        ... def act(observation):
        ...     return observation + 1
        >>> with trl.scope.record() as recording:
        ...     with trl.scope.operation("simulation"):
        ...         action = act(0)
        >>> sorted(name for (name,) in recording.table().by("operation") if name)
        ['inference', 'simulation']
    """

    __slots__ = ()


class phase(_Decorator, Phase):
    """A phase of training around operations, such as data collection or evaluation.

    Use it as a context manager or as a decorator. A phase also includes the threads and thread-pool
    tasks that are started in it. Source: RL-Scope, section 3.1.

    Args:
        name: any text; the breakdown sums up time by this name.

    Raises:
        OptionError: the name is not a string, or the decorated function is an asynchronous
            generator.

    Example:
        >>> with trl.scope.record() as recording:
        ...     with trl.scope.phase("collection"), trl.scope.operation("inference"):
        ...         total = sum(range(100))
        >>> ("collection", "inference") in recording.table().by("phase", "operation")
        True
    """

    __slots__ = ()


def guess(name: str) -> operation:
    """Return an operation for a call outside of all annotations."""
    return operation(f"{name}{GUESSED}")


def written_by(module: Any) -> None:
    """Let the annotations write through `module`, the recorder in C or in Python."""
    for cls, one in ((operation, module.Operation), (phase, module.Phase)):
        for name in ("__enter__", "__exit__"):
            if getattr(cls, name) is not getattr(one, name):
                setattr(cls, name, getattr(one, name))
