"""Units of the composer: sizes in bytes or words, and links; a sum of bytes and words is an error."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import explain_constructor


@explain_constructor
@dataclass(frozen=True, order=True)
class Bytes:
    """A number of bytes.

    Raises:
        ShapeError: the number is negative, NaN or infinite.

    Example:
        >>> (trl.compose.Bytes(8) + 2 * trl.compose.Bytes(4)).count
        16
    """

    count: float

    def __post_init__(self) -> None:
        number("a count of bytes", self.count, least=0)

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(self.count + other.count) if isinstance(other, Bytes) else NotImplemented

    def __mul__(self, times: float) -> Bytes:
        return Bytes(self.count * times)

    __rmul__ = __mul__


@explain_constructor
@dataclass(frozen=True)
class Words:
    """A number of words, such as the elements of an array.

    Raises:
        ShapeError: the number is negative, NaN or infinite.

    Example:
        >>> trl.compose.Words(10).to_bytes(width=4).count
        40
    """

    count: float

    def __post_init__(self) -> None:
        number("a count of words", self.count, least=0)

    def to_bytes(self, width: int) -> Bytes:
        """Return the size in bytes.

        Args:
            width: bytes per word.
        """
        return Bytes(self.count * width)


@explain_constructor
@dataclass(frozen=True)
class Link:
    """Connection between two devices, or of a device with itself.

    Attributes:
        latency: seconds up to the first byte.
        bandwidth: bytes per second; 0 for no connection, infinite for no transfer time.

    Raises:
        ShapeError: a figure is negative or NaN, or the latency is infinite.

    Example:
        >>> trl.compose.Link(latency=0.5, bandwidth=1000.0).seconds(trl.compose.Bytes(500))
        1.0
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        number("the latency of a link", self.latency, least=0)
        if not number("the bandwidth of a link", self.bandwidth) >= 0:
            raise ShapeError(
                f"the bandwidth of a link is {self.bandwidth!r}.",
                hint="pass bytes per second, 0 or more.",
            )

    def seconds(self, amount: Bytes) -> float:
        """Return seconds of a transfer; infinite without a connection.

        Args:
            amount: size of the transfer.
        """
        if not isinstance(amount, Bytes):
            raise TypeError(f"a link transfers Bytes, not {type(amount).__name__}")
        if not amount.count:
            return 0.0
        return self.latency + (
            amount.count / self.bandwidth if self.bandwidth > 0 else float("inf")
        )
