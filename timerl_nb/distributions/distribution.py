"""Base class of distributions: recording of draws, divergence, validation of parameters."""

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
INSIDE = 1 - 2**-24  # greatest float32 below 1: its density is finite


class Distribution(ABC):
    """Probability distribution at every point of the domain of its parameters.

    No gradient flows through `sample`. The context records each draw, so that an extracted policy can use the most likely
    value.

    Example:
        >>> logits = trl.data(np.zeros((8, 4), "f4"), domain=t)
        >>> d = trl.distributions.Categorical(logits)
        >>> a = d.sample()
        >>> d.log_prob(a)
        f32[] @ (t)
    """

    def __init_subclass__(cls) -> None:
        for name in ("sample", "rsample", "rsample_and_log_prob"):
            if name in vars(cls):
                setattr(cls, name, _record_draws(vars(cls)[name]))

    @abstractmethod
    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Draw a value at every point of a domain.

        Args:
            domain: the dimensions over which draws are independent; by default those of the parameters. Name the
                dimension of environments if the parameters do not vary over it.
            stream: a name for the draws: named draws do not change when other draws are added.
            shared: let several draws with the same stream name be equal.
        """

    @abstractmethod
    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """Return the logarithm of the probability (or density) of `a`."""

    @abstractmethod
    def entropy(self) -> RecurrentTensor:
        """Return the entropy in nats."""

    @abstractmethod
    def mode(self) -> RecurrentTensor:
        """Return the most likely value."""

    def kl(self, other: Self) -> RecurrentTensor:
        """Return the Kullback-Leibler divergence E[log p - log q] from this distribution p to another q, in nats.

        It is infinite if q excludes a value that p allows. Its gradient then is that of a large finite logarithm in place of
        -inf. Masked and impossible positions have no gradient.

        Args:
            other: the distribution q, of the same class and shape.

        Raises:
            ShapeError: `other` has another class or shape, or there is no closed form.

        Example:
            >>> p = trl.distributions.Normal(trl.zeros(2), 0.0)
            >>> q = trl.distributions.Normal(trl.ones(2), 0.0)
            >>> p.kl(q)
            f32[] @ ()
        """
        if type(other) is not type(self):
            raise ShapeError(
                f"kl compares distributions of one class, not {type(self).__name__} with "
                f"{type(other).__name__}.",
                hint="give two distributions of one class, such as two Normal.",
            )
        for name, x in vars(self).items():
            y: Any = getattr(other, name, None)
            if isinstance(x, RecurrentTensor) and x.shape != y.shape:
                raise ShapeError(
                    f"kl compares distributions of one shape, not {x.type} with {y.type}.",
                    hint="broadcast the parameters to one shape.",
                )
        return self._kl(other)

    def _kl(self, other: Any) -> RecurrentTensor:
        raise self._unknown("divergence")

    def _unknown(self, what: str) -> TimeRLError:
        return ShapeError(
            f"{type(self).__name__} has no {what} in closed form.",
            hint="estimate it from draws, by the mean of log_prob.",
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
    """Check and return a floating-point parameter of a distribution.

    Raises:
        ShapeError: it is not floating-point.
    """
    found = operand(None, x)
    if not is_float(found.dtype):
        raise ShapeError(
            f"{what} must be floating-point, not {found.type}.", hint="write x.floating()."
        )
    return found


def alike(
    names: tuple[str, str], first: RecurrentTensor, second: Any
) -> tuple[RecurrentTensor, RecurrentTensor, tuple[str, ...]]:
    """Return two parameters of the first one's shape, and their common domain.

    Raises:
        ShapeError: the second does not broadcast to the first.
    """
    given = operand(first.ctx, second, like=first.dtype)
    both = first + given
    if not is_float(given.dtype) or both.shape != first.shape:
        raise ShapeError(
            f"{names[1]} is {given.type}, which does not broadcast to {first.type}.",
            hint=f"give {names[1]} the shape of {names[0]}.",
        )
    return first, broadcast_to(given, both.shape), both.domain


def expect_draw(a: Any, like: RecurrentTensor) -> RecurrentTensor:
    """Check and return a value of the shape of a draw.

    Raises:
        ShapeError: it has another shape.
    """
    a = operand(like.ctx, a)
    if a.shape != like.shape:
        raise ShapeError(
            f"a draw must have the shape of {like.type}, not {a.type}.",
            hint="give a value such as sample() returns.",
        )
    return a
