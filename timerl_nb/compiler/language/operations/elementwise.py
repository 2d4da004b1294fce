"""Elementwise arithmetic and functions of tensors.

`RecurrentTensor` implements two primitives, a binary operation and a function of operands; all functions here
are compositions of these.
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
    """Elementwise operators and functions, with NumPy's broadcasting and type promotion."""

    @property
    @abstractmethod
    def dtype(self) -> DType: ...

    @abstractmethod
    def floating(self) -> Self:
        """Convert integers and booleans to float32."""

    @abstractmethod
    def _apply_binary(self, kind: str, other: Any, *, swap: bool = False) -> Self:
        """Apply an operator; return `NotImplemented` if the other operand is not a tensor."""

    @abstractmethod
    def detach(self) -> Self: ...

    @abstractmethod
    def _operand(self, value: Any, like: DType | None = None) -> Self:
        """Convert an operand to a tensor; Python numbers take the type `like`, by default that of this tensor."""

    @abstractmethod
    def _map(self, kind: str, *others: Any) -> Self:
        """Apply a function to this and other operands."""

    def _select(self, x: Any, y: Any) -> Self:
        """Return `x` at true elements and `y` at false ones."""
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
        """Return the bitwise and, elementwise; for booleans the logical and: `x & y`.

        Example:
            >>> trl.bitwise_and(trl.constant([3, 6]), 6)  # 2, 6
            i32[2] @ ()
        """
        return self._apply_binary("and", other)

    def __or__(self, other: Any) -> Self:
        """Return the bitwise or, elementwise; for booleans the logical or: `x | y`.

        Example:
            >>> trl.bitwise_or(trl.constant([3, 6]), 4)  # 7, 6
            i32[2] @ ()
        """
        return self._apply_binary("or", other)

    def __rand__(self, other: Any) -> Self:
        return self._apply_binary("and", other, swap=True)

    def __ror__(self, other: Any) -> Self:
        return self._apply_binary("or", other, swap=True)

    def __invert__(self) -> Self:
        """Return the bitwise complement, elementwise; for booleans the negation: `~x`.

        Example:
            >>> trl.bitwise_not(trl.constant([0, 1]))  # -1, -2
            i32[2] @ ()
        """
        return self._map("not")

    __hash__ = object.__hash__

    def abs(self) -> Self:
        """Return the absolute value, elementwise.

        Example:
            >>> trl.abs(trl.constant([-1.0, 2.0]))  # 1, 2
            f32[2] @ ()
        """
        return self._map("abs")

    def __xor__(self, other: Any) -> Self:
        """Return the bitwise exclusive or, elementwise; for booleans the inequality: `x ^ y`.

        Example:
            >>> trl.bitwise_xor(trl.constant([3, 6]), 6)  # 5, 0
            i32[2] @ ()
        """
        return self._apply_binary("xor", other)

    def __rxor__(self, other: Any) -> Self:
        return self._apply_binary("xor", other, swap=True)

    def __lshift__(self, other: Any) -> Self:
        """Shift the bits to the left, elementwise: `x << n`.

        Example:
            >>> trl.left_shift(trl.constant([1, 3]), 2)  # 4, 12
            i32[2] @ ()
        """
        return self._apply_binary("shl", other)

    def __rlshift__(self, other: Any) -> Self:
        return self._apply_binary("shl", other, swap=True)

    def __rshift__(self, other: Any) -> Self:
        """Shift the bits to the right, elementwise, with sign extension: `x >> n`.

        Example:
            >>> trl.right_shift(trl.constant([4, 12]), 2)  # 1, 3
            i32[2] @ ()
        """
        return self._apply_binary("shr", other)

    def __rrshift__(self, other: Any) -> Self:
        return self._apply_binary("shr", other, swap=True)

    # --- functions ---------------------------------------------------------------------------

    def exp(self) -> Self:
        """Return e**x, elementwise.

        Example:
            >>> trl.exp(trl.constant([0.0, 1.0]))  # 1, 2.718…
            f32[2] @ ()
        """
        return self.floating()._map("exp")

    def expm1(self) -> Self:
        """Return e**x - 1, elementwise, accurate near 0.

        Example:
            >>> trl.expm1(trl.constant([0.0, 1.0]))  # 0, 1.718…
            f32[2] @ ()
        """
        return self.floating()._map("expm1")

    def log(self) -> Self:
        """Return the natural logarithm, elementwise.

        Example:
            >>> trl.log(trl.constant([1.0, 10.0]))  # 0, 2.302…
            f32[2] @ ()
        """
        return self.floating()._map("log")

    def log1p(self) -> Self:
        """Return log(1 + x), elementwise, accurate near 0.

        Example:
            >>> trl.log1p(trl.constant([0.0, 1.0]))  # 0, 0.693…
            f32[2] @ ()
        """
        return self.floating()._map("log1p")

    def sqrt(self) -> Self:
        """Return the square root, elementwise.

        Example:
            >>> trl.sqrt(trl.constant([1.0, 4.0]))  # 1, 2
            f32[2] @ ()
        """
        return self.floating()._map("sqrt")

    def rsqrt(self) -> Self:
        """Return 1 / sqrt(x), elementwise.

        Example:
            >>> trl.rsqrt(trl.constant([1.0, 4.0]))  # 1, 0.5
            f32[2] @ ()
        """
        return 1.0 / self.sqrt()

    def reciprocal(self) -> Self:
        """Return 1 / x, elementwise.

        Example:
            >>> trl.reciprocal(trl.constant([1.0, 4.0]))  # 1, 0.25
            f32[2] @ ()
        """
        return 1.0 / self

    def sin(self) -> Self:
        """Return the sine, elementwise.

        Example:
            >>> trl.sin(trl.constant([0.0, np.pi / 2]))  # 0, 1
            f32[2] @ ()
        """
        return self.floating()._map("sin")

    def cos(self) -> Self:
        """Return the cosine, elementwise.

        Example:
            >>> trl.cos(trl.constant([0.0, np.pi]))  # 1, -1
            f32[2] @ ()
        """
        return self.floating()._map("cos")

    def tan(self) -> Self:
        """Return the tangent, elementwise.

        Example:
            >>> trl.tan(trl.constant([0.0, np.pi / 4]))  # 0, 1
            f32[2] @ ()
        """
        return self.sin() / self.cos()

    def atan2(self, x: Any) -> Self:
        """Return the angle of the point (x, y), from y and x, in radians between -pi and pi.

        Args:
            x: the other coordinate.

        Example:
            >>> trl.arctan2(trl.constant([0.0, 1.0]), 0.0)  # 0, 1.570…
            f32[2] @ ()
        """
        return self.floating()._map("atan2", x)

    def arctan(self) -> Self:
        """Return the inverse tangent between -pi / 2 and pi / 2, elementwise.

        Example:
            >>> trl.arctan(trl.constant([0.0, 1.0]))  # 0, 0.785…
            f32[2] @ ()
        """
        return self.atan2(1.0)

    def arcsin(self) -> Self:
        """Return the inverse sine between -pi / 2 and pi / 2, elementwise.

        Example:
            >>> trl.arcsin(trl.constant([0.0, 1.0]))  # 0, 1.570…
            f32[2] @ ()
        """
        return self.atan2(self._sqrt_one_minus_square())

    def arccos(self) -> Self:
        """Return the inverse cosine between 0 and pi, elementwise.

        Example:
            >>> trl.arccos(trl.constant([1.0, -1.0]))  # 0, 3.141…
            f32[2] @ ()
        """
        return self._sqrt_one_minus_square().atan2(self.floating())

    def _sqrt_one_minus_square(self) -> Self:
        """Return sqrt(1 - x**2) as two factors: at x = 1 and x = -1 only one of them has an infinite derivative."""
        return (1.0 - self).sqrt() * (1.0 + self).sqrt()

    arctan2 = atan2

    def hypot(self, y: Any) -> Self:
        """Return sqrt(x**2 + y**2), elementwise, without overflow; its derivative at (0, 0) is 0.

        Args:
            y: the other operand.

        Example:
            >>> trl.hypot(trl.constant([3.0, 0.0]), 4.0)  # 5, 4
            f32[2] @ ()
        """
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
        """Return the hyperbolic sine, elementwise, accurate near 0.

        Example:
            >>> trl.sinh(trl.constant([0.0, 1.0]))  # 0, 1.175…
            f32[2] @ ()
        """
        half = self * 0.5  # e**(x / 2) is finite for more x than e**x
        grown, shrunk = half.exp(), (-half).exp()
        return half.expm1() * (1.0 + shrunk) * 0.5 * (grown + shrunk)

    def cosh(self) -> Self:
        """Return the hyperbolic cosine, elementwise.

        Example:
            >>> trl.cosh(trl.constant([0.0, 1.0]))  # 1, 1.543…
            f32[2] @ ()
        """
        grown, shrunk = (self * 0.5).exp(), (self * -0.5).exp()
        return grown * 0.5 * grown + shrunk * 0.5 * shrunk

    def tanh(self) -> Self:
        """Return the hyperbolic tangent, elementwise.

        Example:
            >>> trl.tanh(trl.constant([0.0, 1.0]))  # 0, 0.761…
            f32[2] @ ()
        """
        return self.floating()._map("tanh")

    def arcsinh(self) -> Self:
        """Return the inverse hyperbolic sine, elementwise.

        Example:
            >>> trl.arcsinh(trl.constant([0.0, 1.0]))  # 0, 0.881…
            f32[2] @ ()
        """
        x = self.floating()
        size = (x < 0)._select(-x, x)
        found = size._unless_large(
            lambda few: (few + few * few / ((few * few + 1.0).sqrt() + 1.0)).log1p()
        )
        return (x < 0)._select(-found, found)

    def arccosh(self) -> Self:
        """Return the inverse hyperbolic cosine, elementwise; NaN for x < 1.

        Example:
            >>> trl.arccosh(trl.constant([1.0, 2.0]))  # 0, 1.316…
            f32[2] @ ()
        """
        return self.floating()._unless_large(
            lambda x: ((x - 1.0) + (x - 1.0).sqrt() * (x + 1.0).sqrt()).log1p()
        )

    def _unless_large(self, f: Callable[[Self], Self]) -> Self:
        """Return log(2 * x) if x**2 might overflow, else `f(x)`."""
        large = self > 2.0 ** (finfo(NUMPY[self.dtype]).maxexp // 2 - 1)
        above = large._select(self, 1.0).log() + log(2)
        return large._select(above, f(large._select(1.0, self)))

    def arctanh(self) -> Self:
        """Return the inverse hyperbolic tangent, elementwise.

        Example:
            >>> trl.arctanh(trl.constant([0.0, 0.5]))  # 0, 0.549…
            f32[2] @ ()
        """
        x = self.floating()
        return (x.log1p() - (-x).log1p()) * 0.5

    asin, acos, atan = arcsin, arccos, arctan
    asinh, acosh, atanh = arcsinh, arccosh, arctanh

    def sigmoid(self) -> Self:
        """Return 1 / (1 + e**-x), elementwise.

        Example:
            >>> trl.sigmoid(trl.constant([0.0, 1.0]))  # 0.5, 0.731…
            f32[2] @ ()
        """
        return self.floating()._map("sigmoid")

    def erf(self) -> Self:
        """Return the error function, elementwise.

        Example:
            >>> trl.erf(trl.constant([0.0, 1.0]))  # 0, 0.842…
            f32[2] @ ()
        """
        return self.floating()._map("erf")

    def erf_inv(self) -> Self:
        """Return the inverse error function, elementwise.

        Example:
            >>> trl.constant([0.0, 0.5]).erf_inv()  # 0, 0.476…
            f32[2] @ ()
        """
        return self.floating()._map("erf_inv")

    def floor(self) -> Self:
        """Round down to an integer, as a floating-point number, elementwise.

        Example:
            >>> trl.floor(trl.constant([1.5, -1.5]))  # 1, -2
            f32[2] @ ()
        """
        return self.floating()._map("floor")

    def ceil(self) -> Self:
        """Round up to an integer, as a floating-point number, elementwise.

        Example:
            >>> trl.ceil(trl.constant([1.5, -1.5]))  # 2, -1
            f32[2] @ ()
        """
        return -(-self.floating()).floor()

    def round(self) -> Self:
        """Round to the nearest integer, as a floating-point number; halves go to the even one.

        Example:
            >>> trl.round(trl.constant([1.5, 2.5]))  # 2, 2
            f32[2] @ ()
        """
        return self.floating()._map("round")

    def trunc(self) -> Self:
        """Round towards 0 to an integer, as a floating-point number, elementwise.

        Example:
            >>> trl.trunc(trl.constant([1.5, -1.5]))  # 1, -1
            f32[2] @ ()
        """
        x = self.floating()
        return (x < 0)._select(x.ceil(), x.floor())

    def nan_to_num(
        self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """Replace NaN and infinities by finite numbers, elementwise.

        Args:
            nan: the number in place of NaN.
            posinf, neginf: the numbers in place of the infinities; by default the largest and smallest number of the
                element type.

        Example:
            >>> trl.nan_to_num(trl.constant([1.0, float("nan")]))  # 1, 0
            f32[2] @ ()
        """
        if not is_float(self.dtype):
            return self
        ends = finfo(NUMPY[self.dtype])
        x = self.isnan()._select(nan, self)
        x = (x == float("inf"))._select(float(ends.max) if posinf is None else posinf, x)
        return (x == -float("inf"))._select(float(ends.min) if neginf is None else neginf, x)

    def isnan(self) -> Self:
        """Test for NaN, elementwise.

        Example:
            >>> trl.isnan(trl.constant([1.0, float("nan")]))  # False, True
            bool[2] @ ()
        """
        return self.floating() != self.floating()

    def isinf(self) -> Self:
        """Test for positive or negative infinity, elementwise.

        Example:
            >>> trl.isinf(trl.constant([1.0, float("inf")]))  # False, True
            bool[2] @ ()
        """
        return abs(self.floating()) == float("inf")

    def isfinite(self) -> Self:
        """Test for finite numbers, elementwise.

        Example:
            >>> trl.isfinite(trl.constant([1.0, float("inf")]))  # True, False
            bool[2] @ ()
        """
        return abs(self.floating()) < float("inf")

    def sign(self) -> Self:
        """Return the sign: -1, 0 or 1, elementwise.

        Example:
            >>> trl.sign(trl.constant([-2.0, 3.0]))  # -1, 1
            f32[2] @ ()
        """
        return self._map("sign")

    # --- logic -------------------------------------------------------------------------------

    def logical_not(self) -> Self:
        """Test for false or 0, elementwise.

        Example:
            >>> trl.logical_not(trl.constant([0.0, 2.0]))  # True, False
            bool[2] @ ()
        """
        return self._map("not") if self.dtype == "bool" else self._apply_binary("eq", 0)

    def logical_and(self, other: Any) -> Self:
        """Test whether both operands are true, or not 0, elementwise.

        Args:
            other: the other operand.

        Example:
            >>> trl.logical_and(trl.constant([1.0, 2.0]), [True, False])  # True, False
            bool[2] @ ()
        """
        return self._to_boolean() & self._operand(other)._to_boolean()

    def logical_or(self, other: Any) -> Self:
        """Test whether at least one operand is true, or not 0, elementwise.

        Args:
            other: the other operand.

        Example:
            >>> trl.logical_or(trl.constant([1.0, 2.0]), [True, False])  # True, True
            bool[2] @ ()
        """
        return self._to_boolean() | self._operand(other)._to_boolean()

    def logical_xor(self, other: Any) -> Self:
        """Test whether exactly one operand is true, or not 0, elementwise.

        Args:
            other: the other operand.

        Example:
            >>> trl.logical_xor(trl.constant([1.0, 2.0]), [True, False])  # False, True
            bool[2] @ ()
        """
        return self._to_boolean() ^ self._operand(other)._to_boolean()

    def _to_boolean(self) -> Self:
        return self if self.dtype == "bool" else self != 0

    # --- limits and powers ---------------------------------------------------------------------

    def maximum(self, other: Any) -> Self:
        """Return the greater of two operands, elementwise.

        Args:
            other: the other operand.

        Example:
            >>> trl.maximum(trl.constant([1.0, 3.0]), 2.0)  # 2, 3
            f32[2] @ ()
        """
        return self._map("max2", other)

    def minimum(self, other: Any) -> Self:
        """Return the lesser of two operands, elementwise.

        Args:
            other: the other operand.

        Example:
            >>> trl.minimum(trl.constant([1.0, 3.0]), 2.0)  # 1, 2
            f32[2] @ ()
        """
        return self._map("min2", other)

    def power(self, other: Any) -> Self:
        """Return x**other, elementwise.

        Args:
            other: the exponent.

        Raises:
            ShapeError: an integer has a negative exponent.

        Example:
            >>> trl.power(trl.constant([1.0, 3.0]), 2)  # 1, 9
            f32[2] @ ()
        """
        return self**other

    def square(self) -> Self:
        """Return x * x, elementwise.

        Example:
            >>> trl.square(trl.constant([1.0, 3.0]))  # 1, 9
            f32[2] @ ()
        """
        return self * self

    def clip(self, low: Any, high: Any) -> Self:
        """Limit the elements to a range.

        `clip` and `clamp` are the same method.

        Args:
            low, high: the limits; None for no limit.

        Example:
            >>> trl.clip(trl.constant([-2.0, 0.5]), -1.0, 1.0)  # -1, 0.5
            f32[2] @ ()
        """
        x = self if low is None else self._map("max2", low)
        return x if high is None else x._map("min2", high)

    clamp = clip

    # --- activations -------------------------------------------------------------------------

    def relu(self) -> Self:
        """Return max(x, 0), elementwise; its derivative at 0 is 0.

        Example:
            >>> trl.relu(trl.constant([-1.0, 2.0]))  # 0, 2
            f32[2] @ ()
        """
        return (self <= 0)._select(0, self)  # propagates NaN

    def leaky_relu(self, slope: float = 0.01) -> Self:
        """Return x for x > 0 and slope * x otherwise, elementwise.

        Args:
            slope: the slope for negative x.

        Example:
            >>> trl.constant([-1.0, 2.0]).leaky_relu()  # -0.01, 2
            f32[2] @ ()
        """
        return (self > 0)._select(self, self * slope)

    def elu(self, alpha: float = 1.0) -> Self:
        """Return x for x > 0 and alpha * (e**x - 1) otherwise, elementwise.

        Args:
            alpha: minus the limit for x towards minus infinity.

        Example:
            >>> trl.constant([-1.0, 2.0]).elu()  # -0.632…, 2
            f32[2] @ ()
        """
        below = (self > 0)._select(0.0, self.floating())  # avoids overflow for x > 0
        return (self > 0)._select(self, below.expm1() * alpha)

    def softplus(self) -> Self:
        """Return log(1 + e**x), elementwise, without overflow.

        Example:
            >>> trl.constant([0.0, 1.0]).softplus()  # 0.693…, 1.313…
            f32[2] @ ()
        """
        return self.floating().clip(0.0, None) + (-abs(self.floating())).exp().log1p()

    def log_sigmoid(self) -> Self:
        """Return log(sigmoid(x)), elementwise, without underflow.

        Example:
            >>> trl.constant([0.0, 1.0]).log_sigmoid()  # -0.693…, -0.313…
            f32[2] @ ()
        """
        return -(-self.floating()).softplus()

    def silu(self) -> Self:
        """Return x * sigmoid(x), elementwise; also called swish.

        Example:
            >>> trl.constant([0.0, 1.0]).silu()  # 0, 0.731…
            f32[2] @ ()
        """
        return self * self.sigmoid()

    def gelu(self, approximate: bool = False) -> Self:
        """Return x * P(X <= x) for a standard normal X, elementwise.

        Args:
            approximate: use the approximation by tanh.

        Example:
            >>> trl.constant([0.0, 1.0]).gelu()  # 0, 0.841…
            f32[2] @ ()
        """
        x = self.floating()
        if approximate:
            return x * 0.5 * (1.0 + ((x + x * x * x * 0.044715) * sqrt(2 / pi)).tanh())
        return x * 0.5 * (1.0 + (x * sqrt(0.5)).erf())

    def log2(self) -> Self:
        """Return the logarithm to base 2, elementwise.

        Example:
            >>> trl.log2(trl.constant([1.0, 8.0]))  # 0, 3
            f32[2] @ ()
        """
        return self.log() * (1 / log(2))

    def log10(self) -> Self:
        """Return the logarithm to base 10, elementwise.

        Example:
            >>> trl.log10(trl.constant([1.0, 100.0]))  # 0, 2
            f32[2] @ ()
        """
        return self.log() * (1 / log(10))

    def exp2(self) -> Self:
        """Return 2**x, elementwise.

        Example:
            >>> trl.exp2(trl.constant([0.0, 3.0]))  # 1, 8
            f32[2] @ ()
        """
        return self.floating()._apply_binary("pow", 2.0, swap=True)
