"""Functions as what is differentiated, as in JAX: `trl.grad(f)(x)`, `trl.value_and_grad(f)(x)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from timerl_nb.base.errors import GradientError, ShapeError
from timerl_nb.compiler.language.autodiff.reverse_mode import grad as grad_of
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, elementwise

Tensor = RecurrentTensor


def grad(loss: Tensor | Callable[..., Tensor], of: Any = None, argnums: Any = 0) -> Any:
    """The gradients of the sum of `loss` over its points, with respect to each tensor in `of`.

    Returns one tensor for one, a list for a list; over the domain of the tensor they belong to.
    Given a function in place of a tensor, it returns the function's gradient as a function, as JAX
    does: `trl.grad(f)(x)` (see `value_and_grad`).

    Raises:
        GradientError: a tensor cannot be reached, or only through what has no derivative.
    """
    if not isinstance(loss, RecurrentTensor) and callable(loss) and of is None:
        both = value_and_grad(loss, argnums)
        return lambda *args, **options: both(*args, **options)[1]
    if of is None:
        raise GradientError(
            "trl.grad(loss) does not say what to differentiate by.",
            hint="write trl.grad(loss, x), or trl.grad(loss, [x, y]); of a function, trl.grad(f)(x).",
        )
    return grad_of(loss, of)  # pyrefly: ignore[bad-argument-type]


def value_and_grad(
    f: Callable[..., Tensor], argnums: int | Sequence[int] = 0
) -> Callable[..., Any]:
    """The function that returns what `f` does and its gradients, with respect to chosen arguments.

    The gradient counts what flows through that argument alone, wherever else its tensor is used. An
    argument may be a tensor, or a list, tuple or dict of some (`dnn.params`); gradients look the same.
    Nothing is differentiated by what is given by name.

    Args:
        f: gives one floating-point tensor, the sum of whose points and elements is differentiated.
        argnums: which arguments: a position, or several (then the gradients are a tuple).
    """
    several = isinstance(argnums, tuple | list)
    chosen: tuple[Any, ...] = tuple(argnums) if isinstance(argnums, tuple | list) else (argnums,)
    if not all(isinstance(k, int) for k in chosen):
        raise GradientError(
            f"argnums are positions of arguments, not {argnums!r}.", hint="write 0, or (0, 1)."
        )

    def compute(*args: Any, **options: Any) -> tuple[Tensor, Any]:
        if any(not -len(args) <= k < len(args) for k in chosen):
            raise GradientError(f"there is no argument {argnums!r} among {len(args)}.")
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
    """What `f` makes of a tensor, or of each in a list, tuple or dict, which stays what it is."""
    if isinstance(x, RecurrentTensor):
        return f(x)
    if isinstance(x, Mapping):
        return {key: _map_tensors(f, one) for key, one in x.items()}
    if isinstance(x, list | tuple):
        parts = [_map_tensors(f, one) for one in x]
        named = hasattr(x, "_fields")  # a NamedTuple takes its parts one by one
        return type(x)(*parts) if named else type(x)(parts)
    raise ShapeError(
        f"{x!r} is no tensor to differentiate by.", hint="argnums names tensor arguments."
    )
