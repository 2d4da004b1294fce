"""Pure JAX functions as operations (`trl.jaxed`): networks, environments and solvers of others.

A function is an operation for each of its values, all of which a kernel makes by one call. Its
gradient is that of `jax.vjp`, by one more function that computes it anew from the operands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import extract_tb
from typing import Any

import jax
import jax.numpy as jnp

from timerl_nb.base.errors import CallError, GradientError, ShapeError, TimeRLError, user_origin
from timerl_nb.compiler.ir.operation_attributes import JaxedAttrs
from timerl_nb.compiler.ir.shapes import NUMPY, TensorType, dtype_name, is_float, same_shape
from timerl_nb.compiler.language.argument_checks import checked_name
from timerl_nb.compiler.language.autodiff.custom_vjp import Rule
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.user_defined_functions import parse_declared_type
from timerl_nb.compiler.language.program_context import Context, current
from timerl_nb.compiler.language.recurrent_tensor import (
    RecurrentTensor,
    elementwise,
    operand,
    tensor_of,
)

Tensor = RecurrentTensor


@dataclass(frozen=True)
class _Same:
    """A function that equals itself alone, whatever it says of that."""

    function: Callable[..., Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.function is self.function

    def __hash__(self) -> int:
        return id(self.function)


class Pure(ABC):
    """A function of arrays that returns a tuple of them; equal ones are the same function."""

    @abstractmethod
    def values(self, *arrays: Any) -> Any:
        """What it returns, in whatever structure."""

    @cached_property
    def jaxpr(self) -> Any:
        """It as JAX traces it, once for arguments of the same types."""
        return jax.jit(self.values, inline=True)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(jax.tree.leaves(self.jaxpr(*arrays)))

    def sum_over_axis(self, out: int, mapped: tuple[bool, ...]) -> Pure | None:
        """A function whose value `out` is that of this one added up along an axis of the arguments
        `mapped`, in front; None where no single call makes it."""
        return None


@dataclass(frozen=True)
class _Called(Pure):
    """A function of the user's, whose arguments are the arrays in `structure`."""

    function: _Same
    structure: Any

    def values(self, *arrays: Any) -> Any:
        return self.function.function(*jax.tree.unflatten(self.structure, arrays))


@dataclass(frozen=True)
class _Pulled(Pure):
    """The gradients of the arrays `by`, from all arrays and the gradients of the results `of`.

    Results may have axes in front; for each of them `have` says which of their gradients have it, and
    those that do not are the same along it.
    """

    function: Pure
    by: tuple[int, ...]
    of: tuple[int, ...]
    have: tuple[tuple[bool, ...], ...] = ()

    def values(self, *arrays: Any) -> Any:
        count = len(arrays) - len(self.of)
        xs, gs = arrays[:count], arrays[count:]

        def results(*varied: Any) -> tuple[Any, ...]:
            whole = list(xs)
            for k, x in zip(self.by, varied, strict=True):
                whole[k] = x
            made = self.function(*whole)
            return tuple(made[k] for k in self.of)

        made, back = jax.vjp(results, *(xs[k] for k in self.by))
        whole = (
            self._repeat_gradient(k, g, y.shape)
            for k, (g, y) in enumerate(zip(gs, made, strict=True))
        )
        return back(tuple(whole))

    def _repeat_gradient(self, k: int, g: Any, shape: tuple[int, ...]) -> Any:
        for axis, have in enumerate(self.have):
            g = g if have[k] else jnp.expand_dims(g, axis)
        return jnp.broadcast_to(g, shape)

    def sum_over_axis(self, out: int, mapped: tuple[bool, ...]) -> Pure | None:
        """By what all points share, the gradient of all of them together."""
        count = len(mapped) - len(self.of)
        given, have = mapped[:count], mapped[count:]
        if given[self.by[out]] or not any(given):
            return None
        return _Pulled(_Mapped(self.function, given), self.by, self.of, (have, *self.have))


@dataclass(frozen=True)
class _Mapped(Pure):
    """A function along an axis of some of its arguments, in front."""

    function: Pure
    mapped: tuple[bool, ...]

    def values(self, *arrays: Any) -> Any:
        return jax.vmap(self.function, in_axes=tuple(0 if has else None for has in self.mapped))(
            *arrays
        )


@explain_call_errors
def jaxed(function: Callable[..., Any], *xs: Any, out: Any = None, name: str = "") -> Any:
    """The values of a pure JAX function, at every point: a part of the program, unlike `trl.udf`.

    It is called with the arguments of one point, and traced: it computes with `jax.numpy`, does not ask
    arrays for their values, and returns the same for the same. It runs for many points together by
    `jax.vmap`, and is differentiated by `jax.vjp`, which calls it anew. Random numbers come from a key
    that it is given: `jax.random.wrap_key_data(bits)` of `bits = trl.random.bits((2,))`.

    Args:
        xs: tensors, or what becomes some, also in lists, dicts and other trees: the parameters of a
            network, say. What is no number is closed over (`functools.partial`).
        out: what it returns, as for `trl.udf`; found by tracing where it is left out. It is needed
            where a shape has a bound in it, as of x[0:B].
        name: what errors and pictures call it; the function's own name by default.

    Returns:
        a tensor, or tensors in the structure that it returns arrays in.

    Raises:
        CallError: it is no pure JAX function of these arguments.
        ShapeError: it returns something else than is declared, or what has no element type here.
    """
    if not callable(function):
        raise CallError(f"{function!r} is no function.", hint="write trl.jaxed(function, x).")
    ctx = current()
    leaves, structure = jax.tree.flatten(xs)
    operands = [operand(ctx, x) for x in leaves]
    label = checked_name(name or getattr(function, "__name__", "jaxed").strip("<>"))
    for x in operands:
        _check_shape(label, x)
    pure = _Called(_Same(function), structure)
    if out is None:
        _need_sizes(label, operands)
        made = _trace_function(pure, label, operands)
        types, tree = tuple(map(_type, jax.tree.leaves(made))), jax.tree.structure(made)
    else:
        several = isinstance(out, list)
        types = tuple(parse_declared_type(one) for one in (out if several else [out]))
        tree = jax.tree.structure((0,) * len(types) if several else 0)
        if all(_is_known(t) for t in (*types, *(x.type for x in operands))):
            made = _trace_function(pure, label, operands)
            _check_declared(label, types, tuple(map(_type, jax.tree.leaves(made))))
    if not types:
        raise ShapeError(
            f"{label} returns no array.", hint="a pure function without a value does nothing."
        )
    return jax.tree.unflatten(tree, _with_gradient(ctx, pure, label, operands, types))


def _with_gradient(
    ctx: Context, pure: Pure, label: str, xs: Sequence[Tensor], types: Sequence[TensorType]
) -> list[Tensor]:
    """The values of a function, those that can have a gradient with the rule for it."""
    by = tuple(k for k, x in enumerate(xs) if is_float(x.dtype))
    of = tuple(k for k, t in enumerate(types) if is_float(t.dtype))
    if not by or not of:
        return _operations(ctx, pure, label, xs, types)
    xs = [x.settled() for x in xs]
    made = _operations(ctx, pure, label, xs, types)
    outputs = tuple(elementwise("copy", [made[k]]).named(made[k].op.label) for k in of)

    def backward(_: Any, gs: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        back, its_name = _Pulled(pure, by, of), f"d{label}"
        given = [*xs, *(g.cast(types[k].dtype) for g, k in zip(gs, of, strict=True))]
        wanted = [xs[k].type for k in by]
        if all(_is_known(x.type) for x in given):
            try:
                _trace_function(back, its_name, given)
            except CallError as error:
                raise GradientError(
                    f"the gradient of {label} is not supported, because {error.evidence[0]}.",
                    others={"the function was called at": origin},
                    hint="let it stop with detach(), or give it a rule of its own (jax.custom_vjp).",
                ) from error
        found: list[Tensor | None] = [None] * len(xs)
        for k, g in zip(by, _with_gradient(ctx, back, its_name, given, wanted), strict=True):
            found[k] = g
        return tuple(found)

    origin = user_origin()
    rule = Rule(outputs, tuple(xs), None, backward, True, origin)
    for k, y in zip(of, outputs, strict=True):
        ctx.rules[y.read.source] = rule
        made[k] = y
    return made


def _operations(
    ctx: Context, pure: Pure, label: str, xs: Sequence[Tensor], types: Sequence[TensorType]
) -> list[Tensor]:
    takes, reads = tuple(x.dtype for x in xs), [x.read for x in xs]
    every = [JaxedAttrs(pure, label, takes, kind, k) for k, kind in enumerate(types)]
    return [tensor_of(ctx, ctx.add("jaxed", reads, attrs, label=label)) for attrs in every]


# --- tracing, and what can be wrong ----------------------------------------------------------------


def _trace_function(pure: Pure, label: str, xs: Sequence[Tensor]) -> Any:
    """What a function returns for arguments of these types, as shapes and dtypes.

    Raises:
        CallError: JAX cannot trace it; the first evidence says why.
    """
    given = [jax.ShapeDtypeStruct(x.shape, NUMPY[x.dtype]) for x in xs]
    try:
        traced = pure.jaxpr.trace(*given)
    except TimeRLError:
        raise
    except Exception as error:
        raise _not_pure(label, error) from error
    effects = [e for e in traced.jaxpr.effects if "Debug" not in type(e).__name__]
    if effects:
        raise CallError(
            f"{label} is no pure function: it has the effect {effects[0]}.",
            evidence=f"it has the effect {effects[0]}",
            hint="trl.udf calls functions for their effect, on the host, in order.",
        )
    return traced.out_info


def _not_pure(label: str, error: Exception) -> CallError:
    """Why JAX cannot trace a function, with the line of it that says so."""
    said = (str(error).strip().splitlines() or [""])[0]
    inside = [f for f in extract_tb(error.__traceback__) if f.filename != __file__]
    own = [f for f in inside if f"{Path(jax.__file__).parent}" not in f.filename] or inside
    where = [f"raised at {Path(f.filename).name}:{f.lineno}: {f.line}" for f in own[-1:]]
    asks = isinstance(
        error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError
    )
    asks = asks or isinstance(error, jax.errors.TracerIntegerConversionError)
    hint = (
        "write it with jax.numpy, jnp.where and jax.lax.cond; what only NumPy can do, trl.udf does on the host."
        if asks
        else "it is called with the arrays of one point; tensors that it uses are arguments of trl.jaxed."
    )
    what = "asks an array for its values, which are not there while it is traced"
    return CallError(
        f"{label} is no JAX function of these arguments: it {what if asks else f'raised {type(error).__name__}: {said}'}.",
        evidence=(f"{type(error).__name__}: {said}", *where),
        hint=hint,
    )


def _type(made: Any) -> TensorType:
    try:
        return TensorType(tuple(made.shape), dtype_name(made.dtype))
    except (KeyError, TypeError):
        raise ShapeError(
            f"a JAX function returns {made.dtype}, which is no element type here.",
            hint=f"return one of {', '.join(NUMPY)}; of a random key its jax.random.key_data.",
        ) from None


def _is_known(kind: TensorType) -> bool:
    return all(isinstance(s, int) for s in kind.shape)


def _check_shape(label: str, x: Tensor) -> None:
    dims = x.ctx.space.names
    for s in x.shape:
        if not isinstance(s, int) and s.symbols.intersection(dims):
            raise ShapeError(
                f"{label} is given {x.type}, whose length ({s}) differs from point to point.",
                hint="a JAX function has arguments of one shape: reduce the slice first, or give "
                "it a window of fixed length.",
            )


def _need_sizes(label: str, xs: Sequence[Tensor]) -> None:
    for x in xs:
        if not _is_known(x.type):
            raise ShapeError(
                f"{label} is given {x.type}, so what it returns is not known yet.",
                hint='declare it: out=((4,), "f32"), or a list of such.',
            )


def _check_declared(label: str, types: Sequence[TensorType], found: Sequence[TensorType]) -> None:
    same = len(types) == len(found) and all(
        a.dtype == b.dtype and same_shape(a.shape, b.shape)
        for a, b in zip(types, found, strict=True)
    )
    if not same:
        raise ShapeError(
            f"{label} returns {', '.join(map(str, found))}, and is declared to return "
            f"{', '.join(map(str, types))}.",
            hint="leave out= out, or return arrays of these shapes and types.",
        )
