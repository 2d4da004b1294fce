"""Base class of networks: collection, saving, loading and replacement of parameters."""

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
from timerl_nb.compiler.language.foreign_names import (
    MODULES,
    expect_type,
    explain_method_errors,
    missing,
)
from timerl_nb.compiler.language.indexing.index_parsing import Condition, Index
from timerl_nb.compiler.language.inputs.tensor_sources import Parameter, constant
from timerl_nb.compiler.language.policy.environment_and_action_record import FROZEN
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond
from timerl_nb.runtime.state.checkpoint_reader import load


class Parameters(list[Parameter]):
    """A module's parameters at the time of the call to `params`."""

    def __init__(self, module: Module, found: Iterable[Parameter]) -> None:
        super().__init__(found)
        self.module = module


class Module:
    """Network with parameters: those in its attributes, and those of the modules in its attributes.

    Subclass it, set parameters and modules as attributes in `__init__`, and write the equations in `__call__`.

    Example:
        >>> class Scale(trl.nn.Module):
        ...     def __init__(self, size):
        ...         self.factor = trl.parameter(size, init=1.0, domain=i, name="factor")
        ...     def __call__(self, x):
        ...         return x * self.factor
        >>> scale = Scale(3)
        >>> len(scale.params)
        1
        >>> scale(trl.ones(3))
        f32[3] @ (i)
    """

    def __init_subclass__(cls) -> None:
        explain_method_errors(cls)

    def __getattr__(self, name: str) -> Any:
        raise missing("a module", name, dir(type(self)), MODULES)

    @property
    def params(self) -> Parameters:
        """Trainable parameters, each once, in the order of the attributes."""
        return Parameters(self, (p for p in self.saved if p.trainable))

    @property
    def saved(self) -> list[Parameter]:
        """All parameters, including non-trainable ones such as running means."""
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
        """Index the parameters, or restrict the module to a condition.

        `dnn[i, 0]` reads the parameters at other points, and has no parameters to train. `dnn[i == 9]` can be saved at
        the points that satisfy the condition.
        """
        if isinstance(key, Condition):
            return ConditionalModule(self, key.cond)
        entries = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(entry, Index | int) for entry in entries):
            raise IndexExpressionError(
                f"a module takes indices or a condition in brackets, not {key!r}.",
                hint="write dnn[i, 0](o), or dnn[(i + 1) % 10 == 0].checkpoint(path).",
            )
        return self._map_parameters(lambda p: p[key])

    def _map_parameters(self, change: Callable[[Parameter], Any]) -> Self:
        """Return a copy with each parameter replaced."""
        twin = copy(self)
        vars(twin).update(
            {name: map_parameters(value, change) for name, value in vars(self).items()}
        )
        return twin

    def checkpoint(self, path: str | PathLike[str]) -> None:
        """Save the parameters after every iteration's update.

        Args:
            path: the folder. The parameters after iteration 9 of dimension i are saved as `i=9.safetensors`.

        Example:
            >>> network = trl.nn.MLP((4, 8, 2), domain=i)
            >>> network[i == I - 1].checkpoint("runs/first")  # after the last iteration only
        """
        ConditionalModule(self, TRUE).checkpoint(path)

    def load(self, values: str | PathLike[str] | Mapping[str, Any]) -> Self:
        """Set the initial values of the parameters, and return the module.

        Args:
            values: a checkpoint file, or arrays by parameter name, such as `trl.load` and `result.parameters` return.
                The names must be exactly those of the saved parameters.

        Raises:
            ShapeError: names or shapes differ; the error lists all differences.
            ExecutionError: the file cannot be read, or is damaged.

        Example:
            >>> layer = trl.nn.Linear(4, 2, name="head")
            >>> layer = layer.load({"head.weight": np.ones((4, 2), "f4"), "head.bias": np.zeros(2, "f4")})
        """
        given = values if isinstance(values, Mapping) else load(values)
        arrays = {n: as_array(x) for n, x in given.items() if not str(n).startswith(FROZEN)}
        whose = "the mapping" if isinstance(values, Mapping) else f"the checkpoint {values}"
        self._check(whose, arrays, lambda p, x: _starts(p, x) and _are_numbers(x), _AS_IT_WAS)
        for p in self.saved:
            p.start_from(arrays[p.name])
        return self

    def with_values(self, other: Module | Mapping[str, Any] | Sequence[Any]) -> Self:
        """Return the same network with other parameters: a target network, an average, or values after an update.

        Args:
            other: another module with the same parameters in the same order; or tensors or arrays by parameter name;
                or a list of them in the order of `params`, if all are trainable. They may vary over any dimensions.

        Raises:
            ShapeError: names, number or types differ; the error lists all differences.

        Example:
            >>> network = trl.nn.MLP((4, 2), domain=i)
            >>> frozen = network.with_values([p.detach() for p in network.params])
            >>> frozen(trl.zeros(4))
            f32[2] @ (i)
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
                    f"the network has {format_count(len(saved), 'parameter')}, but {len(several)} are given.",
                    hint=f"give values for {', '.join(p.name for p in saved)}.",
                )
            given = {p.name: x for p, x in zip(saved, several, strict=True)}
        found = {name: _tensor(self, name, x) for name, x in given.items()}
        self._check("the set of values", found, lambda p, x: x.type == p.type, _ALL)
        return self._map_parameters(lambda p: found[p.name])

    def _check(
        self,
        whose: str,
        given: Mapping[str, Any],
        fits: Callable[[Parameter, Any], bool],
        hint: str,
    ) -> None:
        """Raise an error unless the values match the parameters one by one."""
        saved = {p.name: p for p in self.saved}
        if not saved:
            raise ShapeError(
                "the network has no parameters.", hint="set parameters as attributes of the module."
            )
        wrong = [f"{name} is missing" for name in saved if name not in given]
        wrong += [
            f"{name} is not a parameter of the network" for name in given if name not in saved
        ]
        wrong += [
            f"{name} is {_type(given[name])}, but must be {p.type}"
            for name, p in saved.items()
            if name in given and not fits(p, given[name])
        ]
        if wrong:
            more = [f"… and {len(wrong) - 20} more"] if len(wrong) > 20 else []
            raise ShapeError(
                f"{whose} does not match {len(wrong)} of the network's parameters.",
                evidence=[*wrong[:20], *more],
                hint=hint,
            )


class ConditionalModule:
    """A module at the points that satisfy a condition."""

    def __init__(self, module: Module, cond: Cond) -> None:
        self._module, self._cond = module, cond

    def checkpoint(self, path: str | PathLike[str]) -> None:
        """Save the parameters after the update of these iterations to the folder `path`."""
        target, origin = folder(path), user_origin()
        params = self._module.saved
        ctx = params[0].ctx if params else current()

        def write() -> None:  # deferred: the module may get more parameters
            params = self._module.saved
            names = [p.name for p in params]
            ctx.add_sink(names, [p.current_update.read for p in params], target, self._cond, origin)

        ctx.at_end(write)


_AS_IT_WAS: Final = "build the network as it was saved, with the same name=; or give a mapping with its present names."
_ALL: Final = (
    "give a value for each parameter; to change only some, write "
    "{**{p.name: p for p in dnn.saved}, name: value}."
)
_OTHER: Final = (
    "a network, a mapping by name or a list",
    "write dnn.with_values(target), or give {name: tensor}.",
)


def _tensor(module: Module, name: str, value: Any) -> RecurrentTensor:
    """Convert a value to a tensor; numbers and arrays take the parameter's element type."""
    if isinstance(value, RecurrentTensor):
        return value
    of = next((p for p in module.saved if p.name == name), None)
    return constant(value, None if of is None else of.dtype)


def _starts(p: Parameter, x: np.ndarray[Any, Any]) -> bool:
    """Test whether an array has the shape of a parameter's initial values."""
    extra = x.ndim - p.rank
    return x.shape[max(extra, 0) :] == p.shape and extra in (0, len(p.op.domain[:-1]))


def _are_numbers(x: np.ndarray[Any, Any]) -> bool:
    """Test whether an array can be cast to floating point."""
    return x.dtype.kind in "fiu" or x.dtype == NUMPY["bf16"]


def _type(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"{x.dtype}[{','.join(map(str, x.shape))}]"
    return str(x.type)


def free_name(kind: str) -> str:
    """Return an unused prefix of parameter names: `linear`, `linear2`, …."""
    taken = {p.name.split(".", 1)[0] for p in current().parameters.values()}
    return next(name for k in count(1) if (name := f"{kind}{k if k > 1 else ''}") not in taken)


def map_parameters(value: Any, change: Callable[[Parameter], Any]) -> Any:
    """Replace the parameters in a module or attribute, at any depth."""
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
