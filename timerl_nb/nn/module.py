"""The base of networks: parameters found by attribute, and saved at chosen iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import count
from os import PathLike
from typing import Any, Self, overload

from timerl_nb.errors import IndexExpressionError, user_origin
from timerl_nb.frontend.arguments import folder
from timerl_nb.frontend.context import current
from timerl_nb.frontend.foreign import MODULES, all_asked, missing
from timerl_nb.frontend.indexing import Condition, Index
from timerl_nb.frontend.sources import Parameter
from timerl_nb.symbolic.expr import TRUE, Cond


class Parameters(list[Parameter]):
    """The parameters that a module had when it was asked for them."""

    def __init__(self, module: Module, found: Iterable[Parameter]) -> None:
        super().__init__(found)
        self.module = module


class Module:
    """Something with parameters: its own attributes' and those of the modules among them."""

    def __init_subclass__(cls) -> None:
        all_asked(cls)

    def __getattr__(self, name: str) -> Any:
        raise missing("a module", name, dir(type(self)), MODULES)

    @property
    def params(self) -> Parameters:
        """What is trained: each once, in the order in which the attributes were set."""
        return Parameters(self, (p for p in self.saved if p.trainable))

    @property
    def saved(self) -> list[Parameter]:
        """What is saved: the trained parameters and those that follow from what was seen."""
        found: dict[int, Parameter] = {}
        for value in _parts(vars(self).values()):
            for p in [value] if isinstance(value, Parameter) else value.saved:
                found.setdefault(p.read.source, p)
        return list(found.values())

    @overload
    def __getitem__(self, key: Condition) -> ConditionalModule: ...
    @overload
    def __getitem__(self, key: Index | int | tuple[Index | int, ...]) -> Self: ...
    def __getitem__(self, key: Any) -> Any:
        """With an index: the module as its parameters are there, `dnn[i, 0]`; it has none to train.

        With a condition: the module at the points where it holds; it can be saved there.
        """
        if isinstance(key, Condition):
            return ConditionalModule(self, key.cond)
        entries = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(entry, Index | int) for entry in entries):
            raise IndexExpressionError(
                f"a module is indexed by points or by a condition, not by {key!r}.",
                hint="write dnn[i, 0](o), or dnn[(i + 1) % 10 == 0].checkpoint(path).",
            )
        return self._changed(lambda p: p[key])

    def _changed(self, change: Callable[[Parameter], Any]) -> Self:
        """A module with something else in place of each parameter."""
        twin = copy(self)
        vars(twin).update({name: _replaced(value, change) for name, value in vars(self).items()})
        return twin

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
        params = self._module.saved
        ctx = params[0].ctx if params else current()

        def write() -> None:  # at the end, when it is complete
            params = self._module.saved
            names = [p.name for p in params]
            ctx.add_sink(names, [p.after.read for p in params], target, self._cond, origin)

        ctx.at_end(write)


def free_name(kind: str) -> str:
    """A prefix of parameters' names that is not taken yet: `linear`, `linear2`, …"""
    taken = {p.name.split(".", 1)[0] for p in current().parameters.values()}
    return next(name for k in count(1) if (name := f"{kind}{k if k > 1 else ''}") not in taken)


def _replaced(value: Any, change: Callable[[Parameter], Any]) -> Any:
    """An attribute with its parameters changed, wherever `_parts` finds them."""
    if isinstance(value, Parameter):
        return change(value)
    if isinstance(value, Module):
        return value._changed(change)
    if isinstance(value, list | tuple):
        return type(value)(_replaced(x, change) for x in value)
    if isinstance(value, dict):
        return {key: _replaced(x, change) for key, x in value.items()}
    return value


def _parts(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Parameter | Module):
            yield value
        elif isinstance(value, list | tuple):
            yield from _parts(value)
        elif isinstance(value, dict):
            yield from _parts(value.values())
