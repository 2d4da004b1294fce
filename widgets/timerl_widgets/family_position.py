"""Position of an explorer in a family of programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from timerl_nb.show.widget_api import At, CompileObserver, Family, OptionError, Program

NEAR: Final = 16  # positions compiled speculatively


class FamilyPosition:
    """Position in a family of programs; a single program has only one position.

    Attributes:
        at: by argument, the position of its value.
        bounds, options: changes of the family's bounds and options.
        failed: errors by position.
    """

    def __init__(self, family: Family | None) -> None:
        self._family = family
        self.at: dict[str, int] = {} if family is None else family.start
        self.bounds: dict[str, int] = {}
        self.options: dict[str, Any] = {}
        self.failed: dict[tuple[tuple[str, int], ...], str] = {}

    @property
    def family(self) -> Family:
        """The family.

        Raises:
            OptionError: the explorer shows a single program.
        """
        if self._family is None:
            hint = 'write a function with arguments, and call trl.explore(function, bounds={"T": 500}, n=[1, 5]).'
            raise OptionError("the explorer shows a single program without arguments.", hint=hint)
        return self._family

    def positions(self, values: Mapping[str, Any]) -> dict[str, int]:
        """Return the positions of argument values.

        Raises:
            OptionError: the argument does not exist, or its list does not contain the value.
        """
        swept, found = self.family.swept, dict[str, int]()
        for name, value in values.items():
            if value not in swept.get(name, ()):
                given = {n: list(v) for n, v in swept.items()}
                raise OptionError(
                    f"the family has no program with {name}={value!r}.",
                    hint=f"choose among {given}.",
                )
            found[name] = swept[name].index(value)
        return found

    def with_arguments(self, to: At) -> dict[str, int]:
        """Return the position with some arguments changed.

        Raises:
            OptionError: the argument or the position does not exist.
        """
        for name, k in to.items():
            if not 0 <= k < len(self.family.swept.get(name, ())):
                raise OptionError(f"the argument {name!r} has no value at position {k}.")
        return {**self.at, **to}

    def describe_difference(self, at: At) -> str:
        """Describe the current values of the arguments that another position changes."""
        moved = [name for name, k in at.items() if k != self.at[name]]
        return ", ".join(f"{name} {self.family.label(name, self.at[name])}" for name in moved)

    def program(
        self, here: Program, options: Mapping[str, Any], at: At, observer: CompileObserver
    ) -> Program:
        """Return the program at a position with changed options; `here` is the program at the current position."""
        if at == self.at:
            return here.again(options=options, observer=observer, tell=False)
        return self.family.program(at, self.bounds, {**self.options, **options}, observer)

    def nearest_positions(self) -> list[dict[str, int]]:
        """Return the positions near the sliders, the nearest first."""
        if self._family is None:
            return []
        swept = self._family.swept
        steps = [(abs(k - self.at[n]), n, k) for n in swept for k in range(len(swept[n]))]
        return [{**self.at, name: k} for far, name, k in sorted(steps) if far][:NEAR]

    def to_json(self, known: Callable[[At], bool]) -> list[dict[str, Any]]:
        """Return the arguments with their values, the positions of cached programs, and errors."""
        found: list[dict[str, Any]] = []
        for name, values in self._family.swept.items() if self._family is not None else ():
            along = [{**self.at, name: k} for k in range(len(values))]
            found.append(
                {
                    "name": name,
                    "at": self.at[name],
                    "labels": [self.family.label(name, k) for k in range(len(values))],
                    "known": [k for k, at in enumerate(along) if known(at)],
                    "failed": {
                        k: self.failed[key(at)]
                        for k, at in enumerate(along)
                        if key(at) in self.failed
                    },
                }
            )
        return found


def key(at: At) -> tuple[tuple[str, int], ...]:
    """Return a position as a dictionary key."""
    return tuple(at.items())
