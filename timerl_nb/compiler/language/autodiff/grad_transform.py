"""Gradients of tensors and of functions: `trl.grad(loss, x)`, `trl.grad(f)(x)`, `trl.value_and_grad(f)(x)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from timerl_nb.base.errors import GradientError, ShapeError
from timerl_nb.compiler.language.autodiff.reverse_mode import grad as grad_of
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, elementwise

Tensor = RecurrentTensor


@explain_call_errors
def grad(loss: Tensor | Callable[..., Tensor], of: Any = None, argnums: Any = 0) -> Any:
    """Return gradients of the sum of `loss` over its points.

    For a function in place of a tensor, return its gradient function, as JAX does: `trl.grad(f)(x)`.

    Args:
        loss: a floating-point tensor, or a function that returns one.
        of: the tensor to differentiate by, or a list of tensors.
        argnums: for a function, the positions of the arguments to differentiate by; see `value_and_grad`.

    Returns:
        one gradient, or a list of gradients for a list. Each varies over the domain of its tensor.

    Raises:
        GradientError: the loss does not depend on a tensor, or only through operations without a derivative.

    Example:
        >>> x = trl.data(np.ones((8, 3), "f4"), domain=t)
        >>> trl.grad(x.square().sum(), x)
        f32[3] @ (t)
        >>> trl.grad(lambda v: v.square().sum())(x)
        f32[3] @ (t)
    """
    if not isinstance(loss, RecurrentTensor) and callable(loss) and of is None:
        both = value_and_grad(loss, argnums)
        return lambda *args, **options: both(*args, **options)[1]
    if of is None:
        raise GradientError(
            "trl.grad(loss) needs the tensors to differentiate by.",
            hint="write trl.grad(loss, x), or trl.grad(loss, [x, y]); for a function, trl.grad(f)(x).",
        )
    return grad_of(loss, of)  # pyrefly: ignore[bad-argument-type]


@explain_call_errors
def value_and_grad(
    f: Callable[..., Tensor], argnums: int | Sequence[int] = 0
) -> Callable[..., Any]:
    """Return a function that computes the value of `f` and its gradients by some arguments.

    A gradient counts only the paths through its argument, even if `f` uses the same tensor elsewhere. An argument
    may be a tensor, or a list, tuple or dict of tensors such as `dnn.params`; its gradient has the same structure.
    Keyword arguments are not differentiated.

    Args:
        f: a function that returns one floating-point tensor; the sum of its elements over all points is
            differentiated.
        argnums: the position of an argument, or a tuple of positions; the gradients of several are a tuple.

    Returns:
        a function with the arguments of `f` that returns (value, gradients).

    Raises:
        GradientError: `argnums` are not positions of arguments.

    Example:
        >>> x = trl.data(np.ones((8, 3), "f4"), domain=t)
        >>> value, gradient = trl.value_and_grad(lambda v: v.square().sum())(x)
        >>> value, gradient
        (f32[] @ (t), f32[3] @ (t))
    """
    several = isinstance(argnums, tuple | list)
    chosen: tuple[Any, ...] = tuple(argnums) if isinstance(argnums, tuple | list) else (argnums,)
    if not all(isinstance(k, int) for k in chosen):
        raise GradientError(
            f"argnums must be positions of arguments, not {argnums!r}.", hint="write 0, or (0, 1)."
        )

    def compute(*args: Any, **options: Any) -> tuple[Tensor, Any]:
        if any(not -len(args) <= k < len(args) for k in chosen):
            raise GradientError(
                f"there is no argument {argnums!r} among {len(args)}.",
                hint="count positional arguments from 0; keyword arguments are not differentiated.",
            )
        positions = [k % len(args) for k in chosen]
        leaves: list[Tensor] = []

        def own(x: Tensor) -> Tensor:
            leaves.append(elementwise("copy", [x]))
            return leaves[-1]

        whole = [_map_tensors(own, x) if k in positions else x for k, x in enumerate(args)]
        loss = f(*whole, **options)
        found = dict(zip(map(id, leaves), grad_of(loss, leaves), strict=True))
        made = tuple(_map_tensors(lambda x: found[id(x)], whole[k]) for k in positions)
        return loss, made if several else made[0]

    return compute


def _map_tensors(f: Callable[[Tensor], Any], x: Any) -> Any:
    """Apply `f` to each tensor in nested lists, tuples and dicts."""
    if isinstance(x, RecurrentTensor):
        return f(x)
    if isinstance(x, Mapping):
        return {key: _map_tensors(f, one) for key, one in x.items()}
    if isinstance(x, list | tuple):
        parts = [_map_tensors(f, one) for one in x]
        named = hasattr(x, "_fields")  # a NamedTuple takes its items as separate arguments
        return type(x)(*parts) if named else type(x)(parts)
    raise ShapeError(
        f"{x!r} is not a tensor to differentiate by.",
        hint="give positions of tensor arguments as argnums.",
    )
