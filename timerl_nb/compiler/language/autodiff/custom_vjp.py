"""Functions with user-defined gradients (`trl.custom_vjp`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from inspect import signature
from typing import Any

from timerl_nb.base.errors import GradientError, Origin, user_origin
from timerl_nb.compiler.ir.shapes import is_float, same_shape
from timerl_nb.compiler.language.foreign_names import explain_call_errors, misfit
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, elementwise
from timerl_nb.compiler.symbolic.index_expressions import TRUE

Tensor = RecurrentTensor


class CustomVjp:
    """Function of tensors with a user-defined gradient, created by `trl.custom_vjp`.

    As in JAX, `f.defvjp(forward, backward)` defines it: `forward(*args)` returns the result and the residuals;
    `backward(residuals, g)` returns a gradient for each argument.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Set the function's forward and backward rules.

        Args:
            forward: takes the function's arguments; returns its result, a tensor or a tuple of tensors, and the
                residuals, any object.
            backward: takes the residuals and the gradient of the result, a tuple if the result is one. Returns a
                tuple with one gradient per argument, of the argument's shape, or None for no gradient. It is summed
                over dimensions that the argument does not vary over.

        Example:
            >>> f = trl.custom_vjp(lambda x: x)
            >>> f.defvjp(lambda x: (x, None), lambda residuals, g: (g.clip(-1.0, 1.0),))
        """
        self._rules = forward, backward

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self._rules is None:
            raise GradientError(
                f"{getattr(self, '__name__', self._function)} has no rule for its gradient yet.",
                hint="write f.defvjp(forward, backward) before the first call.",
            )
        forward, backward = map(explain_call_errors, self._rules)
        args = self._positional(args, named) if named else args
        inputs = [x.settled() if isinstance(x, RecurrentTensor) else x for x in args]
        made = forward(*inputs)
        if not isinstance(made, tuple) or len(made) != 2:
            raise GradientError(
                "the forward rule does not return a pair of result and residuals.",
                hint="return a pair, such as y, (x, y).",
            )
        result, residuals = made
        several = isinstance(result, tuple)
        results: Sequence[Any] = result if several else (result,)
        if not results or not all(isinstance(y, RecurrentTensor) for y in results):
            raise GradientError(
                "the forward rule's result is neither a tensor nor a tuple of tensors.",
                hint="return a pair of tensor and residuals, such as y, (x, y).",
            )
        for x in (*results, *(x for x in inputs if isinstance(x, RecurrentTensor))):
            if x.subset is not TRUE:
                raise GradientError(
                    f"{x.name} is conditional, which a custom rule does not support.",
                    hint="define its value everywhere: x.otherwise(0.0).",
                )
        outputs = tuple(elementwise("copy", [y]) for y in results)
        rule = Rule(outputs, tuple(inputs), residuals, backward, several, user_origin())
        for y in outputs:
            y.ctx.rules[y.read.source] = rule
        return outputs if several else outputs[0]

    def _positional(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return all arguments in the order of the function's parameters."""
        try:
            given = signature(self._function).bind(*args, **named)
        except TypeError as error:
            raise misfit(self._function, named, error) from None
        given.apply_defaults()
        if given.kwargs:
            raise GradientError(
                f"the rules do not accept keyword-only arguments ({', '.join(given.kwargs)}).",
                hint="declare them as positional parameters of the function.",
            )
        return given.args


@dataclass(frozen=True, eq=False)
class Rule:
    """One call of a function with a user-defined gradient.

    Attributes:
        outputs, inputs: its results and arguments.
        residuals, backward: the residuals, and the backward rule.
        several: whether it returned a tuple.
        origin: the line of the call.
    """

    outputs: tuple[Tensor, ...]
    inputs: tuple[Any, ...]
    residuals: Any
    backward: Callable[..., Any]
    several: bool
    origin: Origin

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The inputs that can have a gradient."""
        return tuple(x for x in self.inputs if isinstance(x, RecurrentTensor) and is_float(x.dtype))

    def gradients(self, of: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients of `operands`, from the gradients of the outputs.

        Raises:
            GradientError: the rule's result is not one gradient per argument.
        """
        found = self.backward(self.residuals, tuple(of) if self.several else of[0])
        if not isinstance(found, tuple) or len(found) != len(self.inputs):
            raise self._make_error(
                f"returns {_describe_value(found)} for {len(self.inputs)} argument(s)"
            )
        pairs = zip(self.inputs, found, strict=True)
        operands = set(map(id, self.operands))
        return [self._check_gradient(x, g) for x, g in pairs if id(x) in operands]

    def _check_gradient(self, x: Tensor, g: Any) -> Tensor | None:
        if g is None:
            return None
        if not isinstance(g, RecurrentTensor) or not same_shape(g.shape, x.shape):
            raise self._make_error(f"returns {_describe_value(g)} as the gradient of {x.type}")
        extra = [d for d in g.domain if d not in x.domain]
        return (g.sum(over=extra) if extra else g).cast(x.dtype)

    def _make_error(self, said: str) -> GradientError:
        return GradientError(
            f"the backward rule {said}.",
            others={"the function was called at": self.origin},
            hint="return a tuple with one gradient for each argument, of the argument's shape, or None.",
        )


def _describe_value(value: Any) -> str:
    if isinstance(value, RecurrentTensor):
        return str(value.type)
    return f"{len(value)} value(s)" if isinstance(value, tuple) else type(value).__name__


@explain_call_errors
def custom_vjp(function: Callable[..., Any]) -> CustomVjp:
    """Define a function with a user-defined gradient; usable as a decorator.

    Args:
        function: a function of tensors. Set its rules with `defvjp(forward, backward)`.

    Returns:
        a `CustomVjp`, called like the function.

    Example:
        >>> @trl.custom_vjp
        ... def limited(x):  # the identity, with gradients limited to 1
        ...     return x
        >>> limited.defvjp(lambda x: (x, None), lambda residuals, g: (g.clip(-1.0, 1.0),))
        >>> w = trl.parameter((2,), name="w")
        >>> limited(w).sum().backward()
        gradients of 1 parameter
    """
    return CustomVjp(function)
