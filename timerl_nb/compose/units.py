"""Amounts and times whose kinds do not mix: what adds words to bytes is no expression."""

from __future__ import annotations

from dataclasses import dataclass

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import number


@dataclass(frozen=True, order=True)
class Bytes:
    """So many bytes.

    Raises:
        ShapeError: the count is negative, NaN or infinite.
    """

    count: float

    def __post_init__(self) -> None:
        number("a count of bytes", self.count, least=0)

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(self.count + other.count) if isinstance(other, Bytes) else NotImplemented

    def __mul__(self, times: float) -> Bytes:
        return Bytes(self.count * times)

    __rmul__ = __mul__


@dataclass(frozen=True)
class Words:
    """So many numbers; their width gives the bytes.

    Raises:
        ShapeError: the count is negative, NaN or infinite.
    """

    count: float

    def __post_init__(self) -> None:
        number("a count of words", self.count, least=0)

    def to_bytes(self, width: int) -> Bytes:
        """In bytes, `width` for each."""
        return Bytes(self.count * width)


@dataclass(frozen=True)
class Link:
    """What brings bytes from one device to another, or to itself.

    Attributes:
        latency: seconds until the first arrives.
        bandwidth: bytes a second; 0 for none, infinite for no time.

    Raises:
        ShapeError: a figure is negative or NaN, or the latency infinite.
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        number("the latency of a link", self.latency, least=0)
        if not number("the bandwidth of a link", self.bandwidth) >= 0:
            raise ShapeError(f"the bandwidth of a link must be 0 or more, not {self.bandwidth!r}.")

    def seconds(self, amount: Bytes) -> float:
        """How long an amount takes; without an end where nothing gets through."""
        if not isinstance(amount, Bytes):
            raise TypeError(f"a link brings bytes, not {type(amount).__name__}")
        if not amount.count:
            return 0.0
        return self.latency + (
            amount.count / self.bandwidth if self.bandwidth > 0 else float("inf")
        )
