"""The base of networks: parameters found by attribute, and saved at chosen iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import count
from os import PathLike
from typing import Any, Final, Self, overload

import numpy as np

from timerl_nb.base.array_conversion import as_array
from timerl_nb.base.errors import IndexExpressionError, ShapeError, user_origin
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.argument_checks import folder
from timerl_nb.compiler.language.foreign_names import MODULES, all_asked, expect_type, missing
from timerl_nb.compiler.language.indexing.index_parsing import Condition, Index
from timerl_nb.compiler.language.inputs.tensor_sources import Parameter, constant
from timerl_nb.compiler.language.policy.environment_and_action_record import FROZEN
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond
from timerl_nb.runtime.state.checkpoint_reader import load


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
        return self._map_parameters(lambda p: p[key])

    def _map_parameters(self, change: Callable[[Parameter], Any]) -> Self:
        """A module with something else in place of each parameter."""
        twin = copy(self)
        vars(twin).update(
            {name: map_parameters(value, change) for name, value in vars(self).items()}
        )
        return twin

    def checkpoint(self, path: str | PathLike[str]) -> None:
        """Save the parameters after every iteration's update to the folder `path`."""
        ConditionalModule(self, TRUE).checkpoint(path)

    def load(self, values: str | PathLike[str] | Mapping[str, Any]) -> Self:
        """Let the parameters start from given values; returns the module itself.

        Args:
            values: a checkpoint file, or arrays by the parameters' names, as `trl.load` and
                `result.parameters` have them; of exactly the parameters that are saved.

        Raises:
            ShapeError: names or shapes differ; all differences are listed.
            ExecutionError: the file cannot be read, or is damaged.
        """
        given = values if isinstance(values, Mapping) else load(values)
        arrays = {n: as_array(x) for n, x in given.items() if not str(n).startswith(FROZEN)}
        whose = "what is given" if isinstance(values, Mapping) else f"the checkpoint {values}"
        self._check(whose, arrays, lambda p, x: _starts(p, x) and _are_numbers(x), _AS_IT_WAS)
        for p in self.saved:
            p.start_from(arrays[p.name])
        return self

    def with_values(self, other: Module | Mapping[str, Any] | Sequence[Any]) -> Self:
        """The same network with other parameters: a target's, an average, values after a step.

        Args:
            other: another module with the same parameters in the same order, whatever their names;
                or tensors (or arrays) by the parameters' names; or a list of them in the order of
                `params`, where all are trained. They may vary over any dimensions.

        Raises:
            ShapeError: they are not those of the network, one by one; all differences are listed.
        """
        saved = self.saved
        given: dict[str, Any]
        if isinstance(other, Mapping):
            given = dict(other)
        else:
            several = (
                other.saved
                if isinstance(other, Module)
                else expect_type(other, (list, tuple), *_OTHER)
            )
            if len(several) != len(saved):
                raise ShapeError(
                    f"the network has {format_count(len(saved), 'parameter')}, and {len(several)} are given.",
                    hint=f"its parameters are {', '.join(p.name for p in saved)}.",
                )
            given = {p.name: x for p, x in zip(saved, several, strict=True)}
        found = {name: _tensor(self, name, x) for name, x in given.items()}
        self._check("what is given", found, lambda p, x: x.type == p.type, _ALL)
        return self._map_parameters(lambda p: found[p.name])

    def _check(
        self,
        whose: str,
        given: Mapping[str, Any],
        fits: Callable[[Parameter, Any], bool],
        hint: str,
    ) -> None:
        """Refuse values that are not those of the parameters, one by one."""
        saved = {p.name: p for p in self.saved}
        if not saved:
            raise ShapeError("the network has no parameters of its own.")
        wrong = [f"{name} is missing" for name in saved if name not in given]
        wrong += [f"{name} is none of its parameters" for name in given if name not in saved]
        wrong += [
            f"{name} is {_type(given[name])}, and here {p.type}"
            for name, p in saved.items()
            if name in given and not fits(p, given[name])
        ]
        if wrong:
            more = [f"… and {len(wrong) - 20} more"] if len(wrong) > 20 else []
            raise ShapeError(
                f"{whose} does not fit the network, in {len(wrong)} of its parameters.",
                evidence=[*wrong[:20], *more],
                hint=hint,
            )


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
            ctx.add_sink(names, [p.current_update.read for p in params], target, self._cond, origin)

        ctx.at_end(write)


_AS_IT_WAS: Final = (
    "build the network as it was, with the same name=; or give a mapping with the names that it has "
    "now."
)
_ALL: Final = (
    "give a value for each; those that stay are the parameters themselves: "
    "{**{p.name: p for p in dnn.saved}, name: value}."
)
_OTHER: Final = (
    "a network, a mapping by name or a list",
    "dnn.with_values(target) or {name: tensor}.",
)


def _tensor(module: Module, name: str, value: Any) -> RecurrentTensor:
    """A value as a tensor of a parameter's element type, where it is a plain number or array."""
    if isinstance(value, RecurrentTensor):
        return value
    of = next((p for p in module.saved if p.name == name), None)
    return constant(value, None if of is None else of.dtype)


def _starts(p: Parameter, x: np.ndarray[Any, Any]) -> bool:
    """Whether an array has the shape of a parameter's first values."""
    extra = x.ndim - p.rank
    return x.shape[max(extra, 0) :] == p.shape and extra in (0, len(p.op.domain[:-1]))


def _are_numbers(x: np.ndarray[Any, Any]) -> bool:
    """Whether an array can be cast to floating-point numbers without being cut."""
    return x.dtype.kind in "fiu" or x.dtype == NUMPY["bf16"]


def _type(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"{x.dtype}[{','.join(map(str, x.shape))}]"
    return str(x.type)


def free_name(kind: str) -> str:
    """A prefix of parameters' names that is not taken yet: `linear`, `linear2`, …"""
    taken = {p.name.split(".", 1)[0] for p in current().parameters.values()}
    return next(name for k in count(1) if (name := f"{kind}{k if k > 1 else ''}") not in taken)


def map_parameters(value: Any, change: Callable[[Parameter], Any]) -> Any:
    """A module, or an attribute of one, with its parameters changed, wherever `_parts` finds them."""
    if isinstance(value, Parameter):
        return change(value)
    if isinstance(value, Module):
        return value._map_parameters(change)
    if isinstance(value, list | tuple):
        return type(value)(map_parameters(x, change) for x in value)
    if isinstance(value, dict):
        return {key: map_parameters(x, change) for key, x in value.items()}
    return value


def _parts(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Parameter | Module):
            yield value
        elif isinstance(value, list | tuple):
            yield from _parts(value)
        elif isinstance(value, dict):
            yield from _parts(value.values())
