"""Arithmetic and functions of tensors, element by element.

Everything here is made of two primitives that `RecurrentTensor` provides, an operation with another
operand and a function of operands, and so are all functions that have no kind of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import log, pi, sqrt
from typing import Any, Self

from timerl_nb.errors import ShapeError
from timerl_nb.ir.shapes import DType, is_float


class Arithmetic(ABC):
    """Operators and functions, after NumPy's rules of broadcasting and type promotion."""

    @property
    @abstractmethod
    def dtype(self) -> DType: ...

    @abstractmethod
    def floating(self) -> Self:
        """Integers and booleans as float32."""

    @abstractmethod
    def _with(self, kind: str, other: Any, *, swap: bool = False) -> Self:
        """An operator: `NotImplemented` where the other operand is no tensor."""

    @abstractmethod
    def _map(self, kind: str, *others: Any) -> Self:
        """A function of this and other operands."""

    def _where(self, x: Any, y: Any) -> Self:
        """`x` where this holds, else `y`."""
        return self._map("where", x, y)

    def __add__(self, other: Any) -> Self:
        return self._with("add", other)

    def __radd__(self, other: Any) -> Self:
        return self._with("add", other, swap=True)

    def __sub__(self, other: Any) -> Self:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> Self:
        return self._with("sub", other, swap=True)

    def __mul__(self, other: Any) -> Self:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> Self:
        return self._with("mul", other, swap=True)

    def __truediv__(self, other: Any) -> Self:
        return self.floating()._with("div", other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.floating()._with("div", other, swap=True)

    def __floordiv__(self, other: Any) -> Self:
        return self._with("floordiv", other)

    def __mod__(self, other: Any) -> Self:
        return self._with("mod", other)

    def __rfloordiv__(self, other: Any) -> Self:
        return self._with("floordiv", other, swap=True)

    def __rmod__(self, other: Any) -> Self:
        return self._with("mod", other, swap=True)

    def __pow__(self, other: Any) -> Self:
        if not is_float(self.dtype) and isinstance(other, int) and other < 0:
            raise ShapeError(
                f"integers ({self}) have no power {other}.", hint="write x.floating() ** -1."
            )
        return self._with("pow", other)

    def __rpow__(self, other: Any) -> Self:
        return self.floating()._with("pow", other, swap=True)

    def __neg__(self) -> Self:
        return self._map("neg")

    def __abs__(self) -> Self:
        return self._map("abs")

    def __eq__(self, other: object) -> Any:
        return self._with("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._with("ne", other)

    def __lt__(self, other: Any) -> Self:
        return self._with("lt", other)

    def __le__(self, other: Any) -> Self:
        return self._with("le", other)

    def __gt__(self, other: Any) -> Self:
        return self._with("lt", other, swap=True)

    def __ge__(self, other: Any) -> Self:
        return self._with("le", other, swap=True)

    def __and__(self, other: Any) -> Self:
        return self._with("and", other)

    def __or__(self, other: Any) -> Self:
        return self._with("or", other)

    def __rand__(self, other: Any) -> Self:
        return self._with("and", other, swap=True)

    def __ror__(self, other: Any) -> Self:
        return self._with("or", other, swap=True)

    def __invert__(self) -> Self:
        return self._map("not")

    __hash__ = object.__hash__

    def abs(self) -> Self:
        return self._map("abs")

    def __xor__(self, other: Any) -> Self:
        return self._with("xor", other)

    def __rxor__(self, other: Any) -> Self:
        return self._with("xor", other, swap=True)

    def __lshift__(self, other: Any) -> Self:
        return self._with("shl", other)

    def __rlshift__(self, other: Any) -> Self:
        return self._with("shl", other, swap=True)

    def __rshift__(self, other: Any) -> Self:
        return self._with("shr", other)

    def __rrshift__(self, other: Any) -> Self:
        return self._with("shr", other, swap=True)

    # --- functions ---------------------------------------------------------------------------

    def exp(self) -> Self:
        return self.floating()._map("exp")

    def expm1(self) -> Self:
        """e**x - 1, exact also where x is small."""
        return self.floating()._map("expm1")

    def log(self) -> Self:
        return self.floating()._map("log")

    def log1p(self) -> Self:
        """log(1 + x), exact also where x is small."""
        return self.floating()._map("log1p")

    def sqrt(self) -> Self:
        return self.floating()._map("sqrt")

    def rsqrt(self) -> Self:
        """1 / sqrt(x)."""
        return 1.0 / self.sqrt()

    def reciprocal(self) -> Self:
        """1 / x."""
        return 1.0 / self

    def sin(self) -> Self:
        return self.floating()._map("sin")

    def cos(self) -> Self:
        return self.floating()._map("cos")

    def tan(self) -> Self:
        return self.sin() / self.cos()

    def atan2(self, x: Any) -> Self:
        """The angle of the point (x, self), in radians between -pi and pi."""
        return self.floating()._map("atan2", x)

    def arctan(self) -> Self:
        return self.atan2(1.0)

    def arcsin(self) -> Self:
        return self.atan2(((1.0 - self) * (1.0 + self)).sqrt())

    def arccos(self) -> Self:
        return ((1.0 - self) * (1.0 + self)).sqrt().atan2(self.floating())

    def tanh(self) -> Self:
        return self.floating()._map("tanh")

    def arctanh(self) -> Self:
        return (self.log1p() - (-self).log1p()) * 0.5

    def sigmoid(self) -> Self:
        return self.floating()._map("sigmoid")

    def erf(self) -> Self:
        return self.floating()._map("erf")

    def erf_inv(self) -> Self:
        return self.floating()._map("erf_inv")

    def floor(self) -> Self:
        return self.floating()._map("floor")

    def ceil(self) -> Self:
        return -(-self.floating()).floor()

    def round(self) -> Self:
        """The nearest integer, the even one of two, as a floating-point number."""
        return self.floating()._map("round")

    def isnan(self) -> Self:
        return self.floating() != self.floating()

    def isinf(self) -> Self:
        return abs(self.floating()) == float("inf")

    def isfinite(self) -> Self:
        return abs(self.floating()) < float("inf")

    def sign(self) -> Self:
        return self._map("sign")

    def square(self) -> Self:
        return self * self

    def clip(self, low: Any, high: Any) -> Self:
        """Values below `low` and above `high` replaced by these; None for no end."""
        x = self if low is None else self._map("max2", low)
        return x if high is None else x._map("min2", high)

    # --- activations -------------------------------------------------------------------------

    def relu(self) -> Self:
        """max(x, 0); its derivative at 0 is 0."""
        return (self > 0)._where(self, 0)

    def leaky_relu(self, slope: float = 0.01) -> Self:
        """x where it is positive, else slope * x."""
        return (self > 0)._where(self, self * slope)

    def elu(self, alpha: float = 1.0) -> Self:
        """x where it is positive, else alpha * (e**x - 1)."""
        below = (self > 0)._where(0.0, self.floating())  # no overflow on the side not taken
        return (self > 0)._where(self, below.expm1() * alpha)

    def softplus(self) -> Self:
        """log(1 + e**x), without overflow."""
        return self.floating().clip(0.0, None) + (-abs(self.floating())).exp().log1p()

    def log_sigmoid(self) -> Self:
        """log(sigmoid(x)), without underflow."""
        return -(-self.floating()).softplus()

    def silu(self) -> Self:
        """x * sigmoid(x), also called swish."""
        return self * self.sigmoid()

    def gelu(self, approximate: bool = False) -> Self:
        """x * P(X <= x) for a standard normal X; by tanh where `approximate`."""
        x = self.floating()
        if approximate:
            return x * 0.5 * (1.0 + ((x + x * x * x * 0.044715) * sqrt(2 / pi)).tanh())
        return x * 0.5 * (1.0 + (x * sqrt(0.5)).erf())

    def log2(self) -> Self:
        return self.log() * (1 / log(2))
