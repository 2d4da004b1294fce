"""Where an explorer stands among the programs of a family, and how it gets to the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from timerl_nb.show.widget_api import At, CompileObserver, Family, OptionError, Program

NEAR: Final = 16  # positions that are compiled ahead of the hand


class FamilyPosition:
    """A position in a family of programs; of one program alone there is just that one.

    Attributes:
        at: by argument, the position of its value.
        bounds, options: what was changed of the family's own.
        failed: why there is no program, by position.
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
            OptionError: there is one program alone.
        """
        if self._family is None:
            hint = (
                'write a function of them, and trl.explore(function, bounds={"T": 500}, n=[1, 5]).'
            )
            raise OptionError("this is the explorer of one program without arguments.", hint=hint)
        return self._family

    def positions(self, values: Mapping[str, Any]) -> dict[str, int]:
        """The positions of values of arguments.

        Raises:
            OptionError: there is no such argument, or it is not given such a value.
        """
        swept, found = self.family.swept, dict[str, int]()
        for name, value in values.items():
            if value not in swept.get(name, ()):
                given = {n: list(v) for n, v in swept.items()}
                raise OptionError(f"there is no {name}={value!r}.", hint=f"there are {given}.")
            found[name] = swept[name].index(value)
        return found

    def with_arguments(self, to: At) -> dict[str, int]:
        """The position with some arguments at others.

        Raises:
            OptionError: there is no such argument, or no such position.
        """
        for name, k in to.items():
            if not 0 <= k < len(self.family.swept.get(name, ())):
                raise OptionError(f"there is no value {k} of {name!r}.")
        return {**self.at, **to}

    def describe_difference(self, at: At) -> str:
        """What is so here of the arguments that are otherwise at another position."""
        moved = [name for name, k in at.items() if k != self.at[name]]
        return ", ".join(f"{name} {self.family.label(name, self.at[name])}" for name in moved)

    def program(
        self, here: Program, options: Mapping[str, Any], at: At, observer: CompileObserver
    ) -> Program:
        """The program at a position with some more options changed, `here` being that at this one."""
        if at == self.at:
            return here.again(options=options, observer=observer, tell=False)
        return self.family.program(at, self.bounds, {**self.options, **options}, observer)

    def nearest_positions(self) -> list[dict[str, int]]:
        """The positions that a slider comes to next, the nearest first."""
        if self._family is None:
            return []
        swept = self._family.swept
        steps = [(abs(k - self.at[n]), n, k) for n in swept for k in range(len(swept[n]))]
        return [{**self.at, name: k} for far, name, k in sorted(steps) if far][:NEAR]

    def to_json(self, known: Callable[[At], bool]) -> list[dict[str, Any]]:
        """The arguments with their values, and of each which are `known`, and why others cannot be."""
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
    """A position as a key."""
    return tuple(at.items())
