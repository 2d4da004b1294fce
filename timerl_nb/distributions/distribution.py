"""What distributions share: how two of them are compared, and what one of them cannot tell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, Self

from timerl_nb.base.errors import ShapeError, TimeRLError, user_origin
from timerl_nb.compiler.ir.shapes import is_float
from timerl_nb.compiler.language.policy.environment_and_action_record import Draw
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, broadcast_to, operand

Stream = int | str | None
INSIDE = 1 - 2**-24  # the last float32 below 1: a draw there has a finite density


class Distribution(ABC):
    """A probability distribution at every point of the domain of its parameters.

    Draws are independent over the domain that `sample` is given, by default the parameters' own; to
    draw independently per environment from parameters that do not vary over environments, name the
    dimension. `stream` names the draws, so that they stay when others are added; `shared` lets a name
    stand for the same draws more than once. No gradient flows through `sample`.

    Each draw is recorded in the context, so a policy can act by the most likely value instead.
    """

    def __init_subclass__(cls) -> None:
        for name in ("sample", "rsample", "rsample_and_log_prob"):
            if name in vars(cls):
                setattr(cls, name, _record_draws(vars(cls)[name]))

    @abstractmethod
    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """A draw at every point of `domain`."""

    @abstractmethod
    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The logarithm of the probability (or density) of `a`."""

    @abstractmethod
    def entropy(self) -> RecurrentTensor:
        """In nats."""

    @abstractmethod
    def mode(self) -> RecurrentTensor:
        """What is most likely."""

    def kl(self, other: Self) -> RecurrentTensor:
        """The Kullback-Leibler divergence of `other` from this one, E[log p - log q], in nats.

        It is infinite where `other` excludes a value that this one allows. Its gradient is then that of a
        large finite logarithm in place of -inf; masked and impossible positions have none.

        Raises:
            ShapeError: the other is of another kind or shape, or there is no closed form.
        """
        if type(other) is not type(self):
            raise ShapeError(
                f"kl compares two distributions of one kind, not {type(self).__name__} with "
                f"{type(other).__name__}.",
            )
        for name, x in vars(self).items():
            y: Any = getattr(other, name, None)
            if isinstance(x, RecurrentTensor) and x.shape != y.shape:
                raise ShapeError(f"kl compares two of one shape, not {x.type} with {y.type}.")
        return self._kl(other)

    def _kl(self, other: Any) -> RecurrentTensor:
        raise self._unknown("divergence")

    def _unknown(self, what: str) -> TimeRLError:
        return ShapeError(
            f"{type(self).__name__} has no {what} in closed form.",
            hint="estimate it from draws: the mean of log_prob, of this one or of both.",
        )


def _record_draws(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that the context records its draws."""

    @wraps(draw)
    def drawing(self: Distribution, *args: Any, **options: Any) -> Any:
        ctx = current()
        with ctx.drawing() as record:
            made = draw(self, *args, **options)
            x, known = made if isinstance(made, tuple) else (made, None)
            record(
                x.read,
                lambda inside: Draw(
                    self.mode,
                    self.log_prob if known is None else lambda _: known,
                    inside,
                    user_origin(),
                ),
            )
        return made

    return drawing


def numbers(what: str, x: Any) -> RecurrentTensor:
    """A floating-point tensor that is a parameter of a distribution.

    Raises:
        ShapeError: it is another.
    """
    found = operand(None, x)
    if not is_float(found.dtype):
        raise ShapeError(f"{what} is floating-point, not {found.type}.")
    return found


def alike(
    names: tuple[str, str], first: RecurrentTensor, second: Any
) -> tuple[RecurrentTensor, RecurrentTensor, tuple[str, ...]]:
    """Two parameters of the shape of the first, and the domain of both.

    Raises:
        ShapeError: the second cannot be broadcast to the first.
    """
    given = operand(first.ctx, second, like=first.dtype)
    both = first + given
    if not is_float(given.dtype) or both.shape != first.shape:
        raise ShapeError(f"{names[1]} is {given.type}, which does not go with {first.type}.")
    return first, broadcast_to(given, both.shape), both.domain


def expect_draw(a: Any, like: RecurrentTensor) -> RecurrentTensor:
    """A draw of the shape of a parameter.

    Raises:
        ShapeError: it has another shape.
    """
    a = operand(like.ctx, a)
    if a.shape != like.shape:
        raise ShapeError(f"a draw is {like.type}, not {a.type}.")
    return a
