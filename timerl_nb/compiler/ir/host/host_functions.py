"""User functions on the host, and resources with ordered access.

A *resource* is external state: a simulator, a file, a buffer. It has one instance per point of its instance
dimensions. Tokens, which are ordinary operands, order the operations of each instance. `Host` has the
resources of one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from traceback import extract_tb
from typing import Any, cast

import numpy as np

from timerl_nb.base.array_conversion import Array, host_array, misfit, narrow_array
from timerl_nb.base.errors import ExecutionError, OptionError, Origin, warn
from timerl_nb.compiler.ir.host.iteration_io import (
    Given,
    IterationOutputs,
    NoInputs,
    Supply,
    Turn,
    discard_outputs,
)
from timerl_nb.compiler.ir.operation_attributes import Attrs, along_text, sizes_of_axes
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import NUMPY, Shape, TensorType, concrete
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain

TOKEN = TensorType((), "bool")


@dataclass(frozen=True, eq=False)
class Resource:
    """External state with ordered access.

    Args:
        make: creates the state of one run and seed: make(sizes, seed), with the bounds of the instance
            dimensions by name.
        instances: the dimensions of independent instances.
        name: the name in messages and pictures.
    """

    make: Callable[[Mapping[str, int], int], Any]
    instances: Domain
    name: str


@dataclass(frozen=True)
class UdfAttrs(Attrs):
    """A host function with its results, resource, and vectorised dimensions.

    With a resource, the last operand and the last output are tokens.

    Attributes:
        function: the function, or a placeholder for given values.
        name: the name in messages and pictures.
        types: the types of the results.
        domain: dimensions besides those of the operands.
        resource: the resource, if it uses one.
        batched: whether one call handles all instances.
        axes: vectorised dimensions, the leading axes of all operands and outputs.
        sizes: the lengths of these axes.
    """

    function: Callable[..., Any] | Given
    name: str
    types: tuple[TensorType, ...]
    domain: Domain = ()
    resource: Resource | None = None
    batched: bool = False
    axes: Domain = ()
    sizes: Shape = sizes_of_axes()

    def __str__(self) -> str:
        uses = f" of {self.resource.name}" if self.resource else ""
        return f"{self.name}{uses}{along_text(self.axes)}"

    def varying_dims(self, dims: Dims) -> Domain:
        # each instance has its own state
        instances = self.resource.instances if self.resource else ()
        return dims.ordered({*self.domain, *instances} - set(self.axes))

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """The types of all outputs, with the token."""
        plain = (*self.types, TOKEN) if self.resource else self.types
        return tuple(TensorType((*self.sizes, *t.shape), t.dtype) for t in plain)


@dataclass(frozen=True)
class CallAttrs(Attrs):
    """A host function called for its effect, at the points of `domain`."""

    function: Callable[..., Any] | IterationOutputs
    name: str
    domain: Domain = ()

    def __str__(self) -> str:
        return self.name

    def varying_dims(self, dims: Dims) -> Domain:
        return self.domain


def resources_of(ops: Iterable[Op]) -> dict[Resource, Origin]:
    """Return the resources of operations, in order, with the line of each one's first use."""
    found: dict[Resource, Origin] = {}
    for op in sorted(ops, key=lambda op: op.id):
        if isinstance(op.attrs, UdfAttrs) and op.attrs.resource is not None:
            found.setdefault(op.attrs.resource, op.origin)
    return found


class Host:
    """The host side of a run: resources, created at first use, and the values passed in and out.

    Args:
        dims: the dimensions.
        bounds: actual bounds.
        seed: the seed.
        supply: the source of the values of `trl.given`; None for no values.
        receive: takes the number of an iteration and its output values.
    """

    def __init__(
        self,
        dims: Dims,
        bounds: Mapping[str, int],
        seed: int,
        supply: Supply | None = None,
        receive: Callable[[int, Turn], object] = discard_outputs,
    ) -> None:
        self._dims, self._bounds, self._seed = dims, bounds, seed
        self._supply = NoInputs() if supply is None else supply
        self._receive = receive
        # by resource and offset of the seed: the state, with the line of its first use
        self._states: dict[tuple[Resource, int], tuple[Any, Origin]] = {}

    def call(
        self, attrs: UdfAttrs, point: Mapping[str, int], args: Sequence[Any], origin: Origin
    ) -> list[Array]:
        """Call a host function, check its outputs against their declaration, and return them.

        Args:
            attrs: the function.
            point: the coordinates of the operation's dimensions.
            args: the operands without the token.
            origin: the user's line.

        Raises:
            ExecutionError: the function failed, or returned undeclared values.
        """
        if isinstance(attrs.function, Given):
            brought = self._supply.turn(point[attrs.function.turn])
            return [*attrs.function.select(brought, point, attrs.axes)]
        given: list[Any] = [np.asarray(x) for x in args]
        seeds = self._dims.seeds
        if attrs.resource is not None and seeds is not None and seeds.name in attrs.axes:
            return self._by_seeds(attrs, seeds.name, point, given, origin)
        order = self._order(attrs)
        if attrs.resource is not None:
            given = [x.transpose(*order, *range(len(order), x.ndim)) for x in given]
            at = tuple(point.get(d, slice(None)) for d in attrs.resource.instances)
            after = point[seeds.name] if seeds else 0
            given = [self._state(attrs.resource, after, origin), at, *given]
        made: Any = _call_user_function(attrs.name, point, origin, attrs.function, *given)
        values: list[Any] = [*made] if isinstance(made, tuple) else [made]
        if not attrs.types:  # called for its effect on the resource only
            values = []
        types = attrs.outputs[: len(attrs.types)]
        if len(values) != len(types):
            raise ExecutionError(
                f"{attrs.name} returned {len(values)} values, but {len(types)} are declared.",
                origin=origin,
                hint="return a tuple with one array per declared output.",
            )
        found = [
            self._check_output(attrs, k, x, types[k], order, origin) for k, x in enumerate(values)
        ]
        if attrs.resource is not None:
            found.append(np.zeros(concrete(attrs.outputs[-1].shape, self._bounds), np.bool_))
        return found

    def _by_seeds(
        self,
        attrs: UdfAttrs,
        name: str,
        point: Mapping[str, int],
        args: Sequence[Array],
        origin: Origin,
    ) -> list[Array]:
        """Call the function once per seed, for seeds as an axis, and stack the outputs."""
        axis = attrs.axes.index(name)
        left = (
            (*attrs.axes[:axis], *attrs.axes[axis + 1 :]),
            (*attrs.sizes[:axis], *attrs.sizes[axis + 1 :]),
        )
        alone = replace(attrs, axes=left[0], sizes=left[1])
        rows = [
            self.call(alone, {**point, name: s}, [x.take(s, axis) for x in args], origin)
            for s in range(self._seeds)
        ]
        return [np.stack(parts, axis) for parts in zip(*rows, strict=True)]

    @property
    def _seeds(self) -> int:
        """The number of parallel runs, each with its own states."""
        return self._dims.seeds.count(self._bounds) if self._dims.seeds else 1

    def effect(
        self, attrs: CallAttrs, point: Mapping[str, int], args: Sequence[Any], origin: Origin
    ) -> None:
        """Call a function for its effect: function(point, *operands)."""
        if isinstance(attrs.function, IterationOutputs):
            (turn,) = point.values()
            self._receive(turn, attrs.function.by_name(args))
            return
        given = [np.asarray(x) for x in args]
        _call_user_function(attrs.name, point, origin, attrs.function, dict(point), *given)

    def _state(self, resource: Resource, after: int, origin: Origin) -> Any:
        if (resource, after) not in self._states:
            bounds = {d: self._dims[d].count(self._bounds) for d in resource.instances}
            make, seed = resource.make, self._seed + after
            state = _call_user_function(resource.name, {}, origin, make, bounds, seed)
            self._states[resource, after] = state, origin
        return self._states[resource, after][0]

    def save(self, resources: Mapping[Resource, Origin]) -> list[dict[str, Array]]:
        """Return the saved states of resources, as arrays by name.

        Args:
            resources: the resources of the program, with the lines of their use. Missing states are
                created.

        Raises:
            ExecutionError: a `save()` raised an error or returned something else.
        """
        return [
            {
                self._name(after, name): array
                for after in range(self._seeds)
                for name, array in self._save_resource(one, after, origin).items()
            }
            for one, origin in resources.items()
        ]

    def _name(self, after: int, name: str) -> str:
        """Return the name of a state's array among those of all parallel runs."""
        return f"{self._dims.seeds.name}={after} {name}" if self._dims.seeds else name

    def _save_resource(self, resource: Resource, after: int, origin: Origin) -> dict[str, Array]:
        state = self._state(resource, after, origin)
        if isinstance(state, np.ndarray):
            return {"": np.array(cast(Array, state))}
        made: Any = _call_user_function(f"save() of {resource.name}", {}, origin, state.save)
        what = type(made).__name__
        if isinstance(made, Mapping):
            found = {name: np.array(x) for name, x in cast("Mapping[Any, Any]", made).items()}
            if all(
                isinstance(n, str) and x.dtype.kind in "biuf" and x.dtype.itemsize <= 8
                for n, x in found.items()
            ):
                return found
        raise ExecutionError(
            f"save() of {resource.name} returned {what}.",
            origin=origin,
            hint="return a dictionary of numbers or arrays of numbers, by name.",
        )

    def load(
        self, resources: Mapping[Resource, Origin], saved: Sequence[Mapping[str, Array]]
    ) -> None:
        """Restore saved states of resources.

        Raises:
            ExecutionError: a `load()` raised an error.
        """
        for (resource, origin), arrays in zip(resources.items(), saved, strict=True):
            for after in range(self._seeds):
                head = self._name(after, "")
                own = {n.removeprefix(head): x for n, x in arrays.items() if n.startswith(head)}
                self._load(resource, after, own, origin)

    def _load(
        self, resource: Resource, after: int, arrays: dict[str, Array], origin: Origin
    ) -> None:
        state, what = self._state(resource, after, origin), f"load() of {resource.name}"
        if isinstance(state, np.ndarray):
            _call_user_function(what, {}, origin, _copy, arrays, state)
        else:
            _call_user_function(what, {}, origin, state.load, arrays)

    def begin_saving(self, resources: Mapping[Resource, Origin]) -> None:
        """Announce to states with a method `begin_saving()` that they will be saved; missing states are
        created.

        Raises:
            OptionError: a state is not an array, and lacks `save()` or `load()`.
        """
        for (resource, origin), after in product(resources.items(), range(self._seeds)):
            state: Any = self._state(resource, after, origin)
            if not isinstance(state, np.ndarray) and not all(
                callable(getattr(state, name, None)) for name in ("save", "load")
            ):
                raise OptionError(
                    f"the state of {resource.name}, of type {type(state).__name__}, cannot be saved.",
                    origin=origin,
                    hint="define save() to return numbers and arrays by name, and load(saved) to restore "
                    "them; or run without a checkpoint.",
                )
            told: Any = getattr(cast(Any, state), "begin_saving", None)
            if callable(told):
                _call_user_function(f"begin_saving() of {resource.name}", {}, origin, told)

    def _check_output(
        self,
        attrs: UdfAttrs,
        k: int,
        value: Any,
        kind: TensorType,
        order: Sequence[int],
        origin: Origin,
    ) -> Array:
        """Return output `k` of a user's function as a new array of the declared shape and type.

        Args:
            attrs: the function.
            k: the number of the output.
            value: the returned value.
            kind: the declared type, with axes for the mapped dimensions in front.
            order: the positions in `kind` of the leading axes of `value`.
            origin: the user's line.

        Raises:
            ExecutionError: the shape or type differs from the declaration, or an integer does not fit.
        """
        whole, dtype = concrete(kind.shape, self._bounds), NUMPY[kind.dtype]
        array = _call_user_function(attrs.name, {}, origin, host_array, value)
        shape = (*(whole[j] for j in order), *whole[len(order) :])
        wrong = misfit(array, dtype)
        if array.shape != shape or (wrong and not wrong.startswith("integers")):
            raise ExecutionError(
                f"{attrs.name} returned {array.dtype}{list(array.shape)} as output {k}, but "
                f"{dtype.name}{list(shape)} is declared.",
                origin=origin,
                hint="return arrays of the declared shapes, or correct the declaration out=.",
            )
        if wrong:
            raise ExecutionError(
                f"{attrs.name} returned {wrong} (output {k}).",
                origin=origin,
                hint="subtract a common offset from the values, or declare a wider type in out=.",
            )
        # a copy, since the function may reuse its array
        array = np.array(narrow_array(f"output {k} of {attrs.name}", array, dtype, origin=origin))
        back = [order.index(j) for j in range(len(order))]
        return array.transpose(*back, *range(len(back), array.ndim))

    def _order(self, attrs: UdfAttrs) -> list[int]:
        """Return the leading axes in the order of the resource's dimensions."""
        dims = attrs.resource.instances if attrs.resource else attrs.axes
        return [attrs.axes.index(d) for d in dims if d in attrs.axes]

    def close(self, error: BaseException | None = None) -> None:
        """Close every state with a method `close()`; a failure does not stop the others.

        Args:
            error: the error of the run. Failures are added to it as notes, or else reported as warnings.
        """
        failed = self._close_all()
        for one in failed:
            if error is not None:
                error.add_note(f"And then {one}")
            else:
                warn(
                    f"the run has finished with complete results, but {one.what}", origin=one.origin
                )

    def _close_all(self) -> list[ExecutionError]:
        failed: list[ExecutionError] = []
        try:
            while self._states:
                (resource, _), (state, origin) = self._states.popitem()
                try:
                    _call_user_function(f"{resource.name}.close", {}, origin, _close, state)
                except ExecutionError as error:
                    failed.append(error)
        finally:  # an interrupt stops the closing of one state only
            if self._states:
                failed += self._close_all()
        return failed


def _close(state: Any) -> None:
    close = getattr(state, "close", None)
    if callable(close):
        close()


def _copy(saved: Mapping[str, Array], state: Array) -> None:
    """Restore the saved values of an array."""
    np.copyto(state, saved[""])


def _call_user_function(
    name: str, point: Mapping[str, int], origin: Origin, function: Callable[..., Any], *args: Any
) -> Any:
    try:
        return function(*args)
    except Exception as error:
        *_, frame = extract_tb(error.__traceback__)
        inside = (
            frame.filename != __file__
        )  # a call with wrong arguments fails outside the function
        text = f": {error}" if str(error) else ""
        at = f" at {', '.join(f'{d} = {v}' for d, v in point.items())}" if point else ""
        raise ExecutionError(
            f"{name} raised {type(error).__name__}{at}{text}.",
            origin=origin,
            evidence=f"raised at {Path(frame.filename).name}:{frame.lineno}: {frame.line}"
            if inside
            else (),
            hint="correct the function, and run again.",
        ) from error
