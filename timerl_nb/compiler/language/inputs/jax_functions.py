"""Pure JAX functions as operations (`trl.jaxed`): networks, environments and solvers from other libraries.

Each result of a function is one operation; a kernel computes all results by one call. The gradient is that of
`jax.vjp`, computed by another function from the operands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
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
    """A function compared by identity, even if it defines `__eq__`."""

    function: Callable[..., Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.function is self.function

    def __hash__(self) -> int:
        return id(self.function)


class Pure(ABC):
    """A function from arrays to a tuple of arrays; equal objects are the same function."""

    @abstractmethod
    def values(self, *arrays: Any) -> Any:
        """Return the results, in any tree structure."""

    @cached_property
    def jaxpr(self) -> Any:
        """The function traced by JAX, cached per argument types."""
        return jax.jit(self.values, inline=True)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(jax.tree.leaves(self.jaxpr(*arrays)))

    def sum_over_axis(self, out: int, mapped: tuple[bool, ...]) -> Pure | None:
        """Return a function whose result `out` is this one's, summed over a leading axis of the arguments `mapped`.

        Returns None if no single call computes it.
        """
        return None


@dataclass(frozen=True)
class _Called(Pure):
    """A user's function; its arguments are the arrays in `structure`."""

    function: _Same
    structure: Any

    def values(self, *arrays: Any) -> Any:
        return self.function.function(*jax.tree.unflatten(self.structure, arrays))


@dataclass(frozen=True)
class _Pulled(Pure):
    """The gradients of the arrays `by`, computed from all arrays and the gradients of the results `of`.

    Results may have leading axes. For each of these, `have` marks the gradients with the axis; the others are
    constant along it.
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
        """Compute the gradient of an operand shared by all points in one call."""
        count = len(mapped) - len(self.of)
        given, have = mapped[:count], mapped[count:]
        if given[self.by[out]] or not any(given):
            return None
        return _Pulled(_Mapped(self.function, given), self.by, self.of, (have, *self.have))


@dataclass(frozen=True)
class _Mapped(Pure):
    """A function mapped over a leading axis of some of its arguments."""

    function: Pure
    mapped: tuple[bool, ...]

    def values(self, *arrays: Any) -> Any:
        return jax.vmap(self.function, in_axes=tuple(0 if has else None for has in self.mapped))(
            *arrays
        )


@explain_call_errors
def jaxed(function: Callable[..., Any], *xs: Any, out: Any = None, name: str = "") -> Any:
    """Apply a pure JAX function at every point, as a compiled part of the program (unlike `trl.udf`).

    JAX traces the function with the arguments of one point, so it computes with `jax.numpy`, depends on nothing
    else and does not inspect values. It is vectorised by `jax.vmap` and differentiated by `jax.vjp`. For random
    numbers, pass a key: `jax.random.wrap_key_data(bits)` with `bits = trl.random.bits((2,))`.

    Args:
        function: the function.
        xs: tensors, numbers or arrays, also in lists, dicts and other trees, such as a network's parameters.
            Bind other arguments with `functools.partial`.
        out: the types of the results, as for `trl.udf`; by default found by tracing. Required if an argument
            has a symbolic size, such as x[0:B].
        name: the name in errors and pictures; by default the function's.

    Returns:
        one tensor, or tensors in the structure that the function returns.

    Raises:
        CallError: JAX cannot trace the function with these arguments.
        ShapeError: the results differ from `out`, or have an unsupported element type.

    Example:
        >>> import jax.numpy as jnp
        >>> x = trl.data(np.ones((8, 3), "f4"), domain=t)
        >>> trl.jaxed(lambda v: jnp.fft.rfft(v).real, x)
        f32[2] @ (t)
    """
    if not callable(function):
        raise CallError(f"{function!r} is not a function.", hint="write trl.jaxed(function, x).")
    ctx = current()
    leaves, structure = jax.tree.flatten(xs)
    operands = [operand(ctx, x) for x in leaves]
    label = checked_name(name or name_of(function))
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
            f"{label} returns no array.",
            hint="return an array; trl.udf calls functions for their side effects.",
        )
    return jax.tree.unflatten(tree, _with_gradient(ctx, pure, label, operands, types))


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function in errors and pictures: that of the function inside `functools.partial`."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__).strip("<>")


def _with_gradient(
    ctx: Context, pure: Pure, label: str, xs: Sequence[Tensor], types: Sequence[TensorType]
) -> list[Tensor]:
    """Return the results of a function; floating-point ones have its gradient rule."""
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
                    hint="stop the gradient with detach(), or define one with jax.custom_vjp.",
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


# --- tracing and its errors ------------------------------------------------------------------------


def _trace_function(pure: Pure, label: str, xs: Sequence[Tensor]) -> Any:
    """Return the shapes and dtypes of the results for arguments of these types.

    Raises:
        CallError: JAX cannot trace the function; the first evidence gives the reason.
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
            f"{label} is not a pure function: it has the effect {effects[0]}.",
            evidence=f"it has the effect {effects[0]}",
            hint="trl.udf calls functions with side effects on the host, in order.",
        )
    return traced.out_info


def _not_pure(label: str, error: Exception) -> CallError:
    """Return the error for a function that JAX cannot trace, with the failing line."""
    said = (str(error).strip().splitlines() or [""])[0]
    inside = [f for f in extract_tb(error.__traceback__) if f.filename != __file__]
    own = [f for f in inside if f"{Path(jax.__file__).parent}" not in f.filename] or inside
    where = [f"raised at {Path(f.filename).name}:{f.lineno}: {f.line}" for f in own[-1:]]
    asks = isinstance(
        error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError
    )
    asks = asks or isinstance(error, jax.errors.TracerIntegerConversionError)
    hint = (
        "use jax.numpy, jnp.where and jax.lax.cond; for a NumPy function use trl.udf, which runs on the host."
        if asks
        else "the function receives the arrays of one point; pass tensors as arguments of trl.jaxed."
    )
    what = "needs the values of an array, which are unknown during tracing"
    return CallError(
        f"JAX cannot trace {label} with these arguments: it {what if asks else f'raised {type(error).__name__}: {said}'}.",
        evidence=(f"{type(error).__name__}: {said}", *where),
        hint=hint,
    )


def _type(made: Any) -> TensorType:
    try:
        return TensorType(tuple(made.shape), dtype_name(made.dtype))
    except (KeyError, TypeError):
        raise ShapeError(
            f"a JAX function returns {made.dtype}, which is not a supported element type.",
            hint=f"return one of {', '.join(NUMPY)}; for a random key return jax.random.key_data(key).",
        ) from None


def _is_known(kind: TensorType) -> bool:
    return all(isinstance(s, int) for s in kind.shape)


def _check_shape(label: str, x: Tensor) -> None:
    dims = x.ctx.space.names
    for s in x.shape:
        if not isinstance(s, int) and s.symbols.intersection(dims):
            raise ShapeError(
                f"an argument of {label} is {x.type}, whose length ({s}) differs from point to point.",
                hint="a JAX function needs arguments of one shape: reduce the slice first, or pass "
                "a window of fixed length.",
            )


def _need_sizes(label: str, xs: Sequence[Tensor]) -> None:
    for x in xs:
        if not _is_known(x.type):
            raise ShapeError(
                f"an argument of {label} is {x.type}, so its result type is not known yet.",
                hint='declare the result: out=((4,), "f32"), or a list of such pairs.',
            )


def _check_declared(label: str, types: Sequence[TensorType], found: Sequence[TensorType]) -> None:
    same = len(types) == len(found) and all(
        a.dtype == b.dtype and same_shape(a.shape, b.shape)
        for a, b in zip(types, found, strict=True)
    )
    if not same:
        raise ShapeError(
            f"{label} returns {', '.join(map(str, found))}, but is declared to return "
            f"{', '.join(map(str, types))}.",
            hint="omit out=, or return arrays of the declared shapes and types.",
        )
