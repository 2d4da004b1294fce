"""Arithmetic and functions of tensors, element by element.

Everything here is made of two primitives that `RecurrentTensor` provides, an operation with another
operand and a function of operands, and so are all functions that have no kind of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import log, pi, sqrt
from typing import Any, Self

from ml_dtypes import finfo

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.shapes import NUMPY, DType, is_float


class Arithmetic(ABC):
    """Operators and functions, after NumPy's rules of broadcasting and type promotion."""

    @property
    @abstractmethod
    def dtype(self) -> DType: ...

    @abstractmethod
    def floating(self) -> Self:
        """Integers and booleans as float32."""

    @abstractmethod
    def _apply_binary(self, kind: str, other: Any, *, swap: bool = False) -> Self:
        """An operator: `NotImplemented` where the other operand is no tensor."""

    @abstractmethod
    def detach(self) -> Self: ...

    @abstractmethod
    def _operand(self, value: Any, like: DType | None = None) -> Self:
        """A tensor of whatever arithmetic accepts; Python numbers are of type `like`, or this one's."""

    @abstractmethod
    def _map(self, kind: str, *others: Any) -> Self:
        """A function of this and other operands."""

    def _select(self, x: Any, y: Any) -> Self:
        """`x` where this holds, else `y`."""
        return self._map("where", x, y)

    def __add__(self, other: Any) -> Self:
        return self._apply_binary("add", other)

    def __radd__(self, other: Any) -> Self:
        return self._apply_binary("add", other, swap=True)

    def __sub__(self, other: Any) -> Self:
        return self._apply_binary("sub", other)

    def __rsub__(self, other: Any) -> Self:
        return self._apply_binary("sub", other, swap=True)

    def __mul__(self, other: Any) -> Self:
        return self._apply_binary("mul", other)

    def __rmul__(self, other: Any) -> Self:
        return self._apply_binary("mul", other, swap=True)

    def __truediv__(self, other: Any) -> Self:
        return self.floating()._apply_binary("div", other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.floating()._apply_binary("div", other, swap=True)

    def __floordiv__(self, other: Any) -> Self:
        return self._apply_binary("floordiv", other)

    def __mod__(self, other: Any) -> Self:
        return self._apply_binary("mod", other)

    def __rfloordiv__(self, other: Any) -> Self:
        return self._apply_binary("floordiv", other, swap=True)

    def __rmod__(self, other: Any) -> Self:
        return self._apply_binary("mod", other, swap=True)

    def __pow__(self, other: Any) -> Self:
        if not is_float(self.dtype) and isinstance(other, int) and other < 0:
            raise ShapeError(
                f"integers ({self}) have no power {other}.", hint="write x.floating() ** -1."
            )
        return self._apply_binary("pow", other)

    def __rpow__(self, other: Any) -> Self:
        return self._apply_binary("pow", other, swap=True)

    def __neg__(self) -> Self:
        return self._map("neg")

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self._map("abs")

    def __eq__(self, other: object) -> Any:
        return self._apply_binary("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._apply_binary("ne", other)

    def __lt__(self, other: Any) -> Self:
        return self._apply_binary("lt", other)

    def __le__(self, other: Any) -> Self:
        return self._apply_binary("le", other)

    def __gt__(self, other: Any) -> Self:
        return self._apply_binary("lt", other, swap=True)

    def __ge__(self, other: Any) -> Self:
        return self._apply_binary("le", other, swap=True)

    def __and__(self, other: Any) -> Self:
        return self._apply_binary("and", other)

    def __or__(self, other: Any) -> Self:
        return self._apply_binary("or", other)

    def __rand__(self, other: Any) -> Self:
        return self._apply_binary("and", other, swap=True)

    def __ror__(self, other: Any) -> Self:
        return self._apply_binary("or", other, swap=True)

    def __invert__(self) -> Self:
        return self._map("not")

    __hash__ = object.__hash__

    def abs(self) -> Self:
        """The absolute value."""
        return self._map("abs")

    def __xor__(self, other: Any) -> Self:
        return self._apply_binary("xor", other)

    def __rxor__(self, other: Any) -> Self:
        return self._apply_binary("xor", other, swap=True)

    def __lshift__(self, other: Any) -> Self:
        return self._apply_binary("shl", other)

    def __rlshift__(self, other: Any) -> Self:
        return self._apply_binary("shl", other, swap=True)

    def __rshift__(self, other: Any) -> Self:
        return self._apply_binary("shr", other)

    def __rrshift__(self, other: Any) -> Self:
        return self._apply_binary("shr", other, swap=True)

    # --- functions ---------------------------------------------------------------------------

    def exp(self) -> Self:
        """e**x."""
        return self.floating()._map("exp")

    def expm1(self) -> Self:
        """e**x - 1, exact also where x is small."""
        return self.floating()._map("expm1")

    def log(self) -> Self:
        """The natural logarithm."""
        return self.floating()._map("log")

    def log1p(self) -> Self:
        """log(1 + x), exact also where x is small."""
        return self.floating()._map("log1p")

    def sqrt(self) -> Self:
        """The square root."""
        return self.floating()._map("sqrt")

    def rsqrt(self) -> Self:
        """1 / sqrt(x)."""
        return 1.0 / self.sqrt()

    def reciprocal(self) -> Self:
        """1 / x."""
        return 1.0 / self

    def sin(self) -> Self:
        """The sine."""
        return self.floating()._map("sin")

    def cos(self) -> Self:
        """The cosine."""
        return self.floating()._map("cos")

    def tan(self) -> Self:
        """The tangent."""
        return self.sin() / self.cos()

    def atan2(self, x: Any) -> Self:
        """The angle of the point (x, self), in radians between -pi and pi."""
        return self.floating()._map("atan2", x)

    def arctan(self) -> Self:
        """The inverse tangent, between -pi / 2 and pi / 2."""
        return self.atan2(1.0)

    def arcsin(self) -> Self:
        """The inverse sine, between -pi / 2 and pi / 2."""
        return self.atan2(self._sqrt_one_minus_square())

    def arccos(self) -> Self:
        """The inverse cosine, between 0 and pi."""
        return self._sqrt_one_minus_square().atan2(self.floating())

    def _sqrt_one_minus_square(self) -> Self:
        """sqrt(1 - x**2), in two factors: at the ends one has an infinite derivative, the other none."""
        return (1.0 - self).sqrt() * (1.0 + self).sqrt()

    arctan2 = atan2

    def hypot(self, y: Any) -> Self:
        """sqrt(x**2 + y**2), without overflow on the way; its derivative at (0, 0) is 0."""
        x, y = self.floating(), self._operand(y).floating()
        endless = x.isinf() | y.isinf()
        x, y = endless._select(0.0, x), endless._select(0.0, y)
        most = abs(x).maximum(abs(y)).detach()
        scale = (most > 0)._select(most, 1.0)
        squares = (x / scale).square() + (y / scale).square()
        positive = squares > 0
        root = positive._select(positive._select(squares, 1.0).sqrt(), squares.detach())
        return endless._select(float("inf"), root * scale)

    def sinh(self) -> Self:
        """The hyperbolic sine, exact also where x is small."""
        half = self * 0.5  # what e**x exceeds, its half may not
        grown, shrunk = half.exp(), (-half).exp()
        return half.expm1() * (1.0 + shrunk) * 0.5 * (grown + shrunk)

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        grown, shrunk = (self * 0.5).exp(), (self * -0.5).exp()
        return grown * 0.5 * grown + shrunk * 0.5 * shrunk

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self.floating()._map("tanh")

    def arcsinh(self) -> Self:
        """The inverse of sinh."""
        x = self.floating()
        size = (x < 0)._select(-x, x)
        found = size._unless_large(
            lambda few: (few + few * few / ((few * few + 1.0).sqrt() + 1.0)).log1p()
        )
        return (x < 0)._select(-found, found)

    def arccosh(self) -> Self:
        """The inverse of cosh, NaN where x is below 1."""
        return self.floating()._unless_large(
            lambda x: ((x - 1.0) + (x - 1.0).sqrt() * (x + 1.0).sqrt()).log1p()
        )

    def _unless_large(self, f: Callable[[Self], Self]) -> Self:
        """`f` where the square is far from overflowing, and log(2 * x) above."""
        large = self > 2.0 ** (finfo(NUMPY[self.dtype]).maxexp // 2 - 1)
        above = large._select(self, 1.0).log() + log(2)
        return large._select(above, f(large._select(1.0, self)))

    def arctanh(self) -> Self:
        """The inverse of tanh."""
        x = self.floating()
        return (x.log1p() - (-x).log1p()) * 0.5

    asin, acos, atan = arcsin, arccos, arctan
    asinh, acosh, atanh = arcsinh, arccosh, arctanh

    def sigmoid(self) -> Self:
        """1 / (1 + e**-x)."""
        return self.floating()._map("sigmoid")

    def erf(self) -> Self:
        """The error function."""
        return self.floating()._map("erf")

    def erf_inv(self) -> Self:
        """The inverse error function."""
        return self.floating()._map("erf_inv")

    def floor(self) -> Self:
        """The greatest integer that is not above x, as a floating-point number."""
        return self.floating()._map("floor")

    def ceil(self) -> Self:
        """The least integer that is not below x, as a floating-point number."""
        return -(-self.floating()).floor()

    def round(self) -> Self:
        """The nearest integer, the even one of two, as a floating-point number."""
        return self.floating()._map("round")

    def trunc(self) -> Self:
        """The nearest integer towards 0, as a floating-point number."""
        x = self.floating()
        return (x < 0)._select(x.ceil(), x.floor())

    def nan_to_num(
        self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """Other numbers for NaN and infinities; by default 0 and the ends of the element type."""
        if not is_float(self.dtype):
            return self
        ends = finfo(NUMPY[self.dtype])
        x = self.isnan()._select(nan, self)
        x = (x == float("inf"))._select(float(ends.max) if posinf is None else posinf, x)
        return (x == -float("inf"))._select(float(ends.min) if neginf is None else neginf, x)

    def isnan(self) -> Self:
        """Whether x is no number."""
        return self.floating() != self.floating()

    def isinf(self) -> Self:
        """Whether x is infinite."""
        return abs(self.floating()) == float("inf")

    def isfinite(self) -> Self:
        """Whether x is a number, and not infinite."""
        return abs(self.floating()) < float("inf")

    def sign(self) -> Self:
        """-1, 0 or 1."""
        return self._map("sign")

    # --- logic -------------------------------------------------------------------------------

    def logical_not(self) -> Self:
        """Whether x is false, or 0."""
        return self._map("not") if self.dtype == "bool" else self._apply_binary("eq", 0)

    def logical_and(self, other: Any) -> Self:
        """Whether both are true, or not 0."""
        return self._to_boolean() & self._operand(other)._to_boolean()

    def logical_or(self, other: Any) -> Self:
        """Whether one is true, or not 0."""
        return self._to_boolean() | self._operand(other)._to_boolean()

    def logical_xor(self, other: Any) -> Self:
        """Whether just one is true, or not 0."""
        return self._to_boolean() ^ self._operand(other)._to_boolean()

    def _to_boolean(self) -> Self:
        return self if self.dtype == "bool" else self != 0

    # --- parts -------------------------------------------------------------------------------

    def maximum(self, other: Any) -> Self:
        """The greater of two, element by element."""
        return self._map("max2", other)

    def minimum(self, other: Any) -> Self:
        """The lesser of two, element by element."""
        return self._map("min2", other)

    def power(self, other: Any) -> Self:
        """x ** other."""
        return self**other

    def square(self) -> Self:
        """x * x."""
        return self * self

    def clip(self, low: Any, high: Any) -> Self:
        """Values below `low` and above `high` replaced by these; None for no end."""
        x = self if low is None else self._map("max2", low)
        return x if high is None else x._map("min2", high)

    clamp = clip

    # --- activations -------------------------------------------------------------------------

    def relu(self) -> Self:
        """max(x, 0); its derivative at 0 is 0."""
        return (self <= 0)._select(0, self)  # NaN stays

    def leaky_relu(self, slope: float = 0.01) -> Self:
        """x where it is positive, else slope * x."""
        return (self > 0)._select(self, self * slope)

    def elu(self, alpha: float = 1.0) -> Self:
        """x where it is positive, else alpha * (e**x - 1)."""
        below = (self > 0)._select(0.0, self.floating())  # no overflow on the side not taken
        return (self > 0)._select(self, below.expm1() * alpha)

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
        """The logarithm to base 2."""
        return self.log() * (1 / log(2))

    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self.log() * (1 / log(10))

    def exp2(self) -> Self:
        """2**x."""
        return self.floating()._apply_binary("pow", 2.0, swap=True)
