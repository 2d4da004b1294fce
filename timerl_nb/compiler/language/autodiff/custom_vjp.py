"""Functions with a gradient of their own (`trl.custom_vjp`)."""

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
    """A function of tensors whose gradient is what a rule says.

    Made by `trl.custom_vjp`, as in JAX: `f.defvjp(forward, backward)`, where `forward(*args)` gives
    the result and what the rule needs of it, and `backward(kept, g)` a gradient for each argument.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Let `forward` stand for the function, and `backward` for its derivative.

        Args:
            forward: takes what the function takes; returns its result (a tensor, or a tuple of some)
                and anything that `backward` needs.
            backward: takes that and the gradient of the result (a tuple of some where there are
                several); returns a tuple with a gradient for each argument: of the argument's shape,
                over its domain (what varies over more is added up), or None for no gradient.
        """
        self._rules = forward, backward

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self._rules is None:
            raise GradientError(
                f"{getattr(self, '__name__', self._function)} has no rule for its gradient yet.",
                hint="write f.defvjp(forward, backward) before it is called.",
            )
        forward, backward = map(explain_call_errors, self._rules)
        args = self._positional(args, named) if named else args
        inputs = [x.settled() if isinstance(x, RecurrentTensor) else x for x in args]
        made = forward(*inputs)
        if not isinstance(made, tuple) or len(made) != 2:
            raise GradientError(
                "the forward rule returns two things: the result, and what backward needs.",
                hint="return y, (x, y)",
            )
        result, kept = made
        several = isinstance(result, tuple)
        results: Sequence[Any] = result if several else (result,)
        if not results or not all(isinstance(y, RecurrentTensor) for y in results):
            raise GradientError(
                "the forward rule's result is no tensor, and no tuple of tensors.",
                hint="return y, (x, y)",
            )
        for x in (*results, *(x for x in inputs if isinstance(x, RecurrentTensor))):
            if x.subset is not TRUE:
                raise GradientError(f"{x.name} is conditional, which no custom rule takes.")
        outputs = tuple(elementwise("copy", [y]) for y in results)
        rule = Rule(outputs, tuple(inputs), kept, backward, several, user_origin())
        for y in outputs:
            y.ctx.rules[y.read.source] = rule
        return outputs if several else outputs[0]

    def _positional(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments in the order of the function's, which is that of the rules'."""
        try:
            given = signature(self._function).bind(*args, **named)
        except TypeError as error:
            raise misfit(self._function, named, error) from None
        given.apply_defaults()
        if given.kwargs:
            raise GradientError(f"the rules get no argument by name ({', '.join(given.kwargs)}).")
        return given.args


@dataclass(frozen=True, eq=False)
class Rule:
    """One call of a function with a gradient of its own.

    Attributes:
        outputs, inputs: what it returned, and was given.
        kept, backward: how gradients follow.
        several: whether it returned a tuple.
        origin: where it was called.
    """

    outputs: tuple[Tensor, ...]
    inputs: tuple[Any, ...]
    kept: Any
    backward: Callable[..., Any]
    several: bool
    origin: Origin

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The inputs that can have a gradient."""
        return tuple(x for x in self.inputs if isinstance(x, RecurrentTensor) and is_float(x.dtype))

    def gradients(self, of: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of `operands`, given those of the outputs.

        Raises:
            GradientError: the rule returns something else.
        """
        found = self.backward(self.kept, tuple(of) if self.several else of[0])
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
            raise self._make_error(f"gives {_describe_value(g)} as the gradient of {x.type}")
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


def custom_vjp(function: Callable[..., Any]) -> CustomVjp:
    """Give a function a gradient of its own: a decorator; see `CustomVjp.defvjp`.

    ```python
    @trl.custom_vjp
    def clipped(x):  # x itself, whose gradient is at most 1
        return x

    clipped.defvjp(lambda x: (x, None), lambda kept, g: (g.clip(-1.0, 1.0),))
    ```
    """
    return CustomVjp(function)
