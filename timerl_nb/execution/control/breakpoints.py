"""Conditions on which a run pauses, such as `i = 3` or `return > 400`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Final

from timerl_nb.base.errors import OptionError

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_TEXT: Final = re.compile(rf"([^=!<>]+)({'|'.join(_COMPARE)})([^=!<>]+)")


@dataclass(frozen=True)
class Breakpoint:
    """Comparison of an output, or of the outermost loop's counter, with a number."""

    name: str
    comparison: str
    value: float

    @classmethod
    def from_text(cls, text: str) -> Breakpoint:
        """Parse a condition.

        Raises:
            OptionError: The text is not a comparison with a number.
        """
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        try:
            if found is not None and not isnan(value := float(found[3])):
                return cls(found[1].strip(), found[2], value)
        except ValueError:
            pass
        raise OptionError(
            f"{text!r} is not a condition on which a run can pause.",
            hint="compare an output or the outermost dimension with a number, as in 'i = 3' or 'return > 400'.",
        )

    def holds(self, value: float) -> bool:
        return _COMPARE[self.comparison](value, self.value)

    def is_reached(self, before: int, turn: int) -> bool:
        """Whether the condition holds for the next iteration, or for one that the last call skipped."""
        return any(self.holds(k) for k in range(min(before + 1, turn), turn + 1))

    def __str__(self) -> str:
        return f"{self.name} {self.comparison} {self.value:g}"
