"""The base of networks: parameters found by attribute, and saved at chosen iterations."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any

from timerl_nb.errors import IndexExpressionError, user_origin
from timerl_nb.frontend.arguments import folder
from timerl_nb.frontend.context import current
from timerl_nb.frontend.indexing import Condition
from timerl_nb.frontend.sources import Parameter
from timerl_nb.symbolic.expr import TRUE, Cond


class Module:
    """Something with parameters: its own attributes' and those of the modules among them."""

    @property
    def params(self) -> list[Parameter]:
        """All parameters, each once, in the order in which the attributes were set."""
        found: dict[int, Parameter] = {}
        for value in _parts(vars(self).values()):
            for p in [value] if isinstance(value, Parameter) else value.params:
                found.setdefault(p.read.source, p)
        return list(found.values())

    def __getitem__(self, condition: Condition) -> ConditionalModule:
        """The module at the points where a condition holds; it can be saved there."""
        if not isinstance(condition, Condition):
            raise IndexExpressionError(
                f"a module is indexed by a condition, not by {condition!r}.",
                hint="write dnn[(i + 1) % 10 == 0].checkpoint(path).",
            )
        return ConditionalModule(self, condition.cond)

    def checkpoint(self, path: str | PathLike[str]) -> None:
        """Save the parameters after every iteration's update to the folder `path`."""
        ConditionalModule(self, TRUE).checkpoint(path)


class ConditionalModule:
    """A module at the points where a condition holds."""

    def __init__(self, module: Module, cond: Cond) -> None:
        self._module, self._cond = module, cond

    def checkpoint(self, path: str | PathLike[str]) -> None:
        """Save the parameters after the update of these iterations to the folder `path`."""
        target, origin = folder(path), user_origin()
        params = self._module.params
        ctx = params[0].ctx if params else current()

        def write() -> None:
            names = [p.name for p in params]
            ctx.add_sink(names, [p.next.read for p in params], target, self._cond, origin)

        ctx.at_end(write)


def _parts(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Parameter | Module):
            yield value
        elif isinstance(value, list | tuple):
            yield from _parts(value)
        elif isinstance(value, dict):
            yield from _parts(value.values())
