"""Arguments common to Optuna and Ray Tune: the function of a trial, its seed, the interval of reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timerl_nb.base.errors import CallError, OptionError
from timerl_nb.driver.program import Program

Seed = int | Callable[[Any], int]


def check_function(function: Any, of: str) -> None:
    """Refuse a value that is not a function.

    Raises:
        CallError: `function` is not one.
    """
    if not callable(function) or isinstance(function, type | Program):
        raise CallError(
            f"{function!r} is not a function of {of}.",
            hint=f"pass a function of {of}, and return a compiled program from it.",
        )


def program_of(function: Callable[[Any], Program], given: Any) -> Program:
    """Return the program of a trial.

    Raises:
        CallError: the function returned something else.
    """
    made = function(given)
    if not isinstance(made, Program):
        name = getattr(function, "__name__", repr(function))
        raise CallError(
            f"{name} returned {type(made).__name__}, not a program.",
            hint="end it by `return ctx.compile({…})`.",
        )
    return made


def seed_of_trial(seed: Seed, given: Any) -> int:
    """Return the seed of a trial: a constant, or a function of the trial."""
    return seed(given) if callable(seed) else seed


def check_every(every: Any) -> None:
    """Refuse an interval that is not a positive number of iterations.

    Raises:
        OptionError: `every` is not one.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise OptionError(
            f"every={every!r} is not a number of iterations.", hint="pass a positive integer."
        )
