"""Random integers, booleans, categories and permutations, derived from random bits.

Each draw is a function of the run's seed, its stream and its point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from timerl_nb.base.errors import ShapeError, user_origin
from timerl_nb.compiler.ir.operation_attributes import ConstAttrs
from timerl_nb.compiler.ir.shapes import NUMPY, DType, is_float, is_integer, promote, same_shape
from timerl_nb.compiler.language.argument_checks import element_type, integer, is_whole
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import (
    arange,
    random_bits,
    random_gumbel,
    random_uniform,
)
from timerl_nb.compiler.language.policy.environment_and_action_record import Draw
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import (
    RecurrentTensor,
    broadcast_to,
    elementwise,
    operand,
)


@explain_call_errors
def random_randint(
    low: Any,
    high: Any = None,
    shape: Any = None,
    *,
    dtype: Any = "i32",
    domain: Any = None,
    stream: int | str | None = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Draw random integers from `low` to `high` - 1; without `high`, from 0 to `low` - 1.

    If the number n of integers is not a power of 2, the first 2**32 mod n of them have a probability greater by a
    factor of at most 1 + n / 2**32. A tensor draws the same numbers as an integer of the same value.

    Args:
        low, high: the ends of the range: integers, index expressions or integer tensors. For an empty range of
            tensors, the value is `low`.
        shape: the shape of the value at a point; by default that of the ends.
        dtype: the element type.
        domain: the dimensions over which the draws are independent; by default those of the ends.
        stream: the name of the random stream; by default its number in the program.
        shared: let several draws with the same stream name return the same bits.

    Raises:
        ShapeError: a constant range is empty, an end is not an integer, or the range does not fit into the
            element type or the shape.

    Example:
        >>> trl.random.randint(0, 6, (2,), domain=t)
        i32[2] @ (t)
        >>> trl.random.randint(0, t + 1)  # a position up to t
        i32[] @ (t)
    """
    first, end = (0, low) if high is None else (low, high)
    name = element_type(dtype)
    if not is_integer(name):
        raise ShapeError(
            f"randint draws integers, not {NUMPY[name].name}.",
            hint="trl.random.uniform draws floating-point numbers.",
        )
    if not (is_whole(first) and is_whole(end)):
        ends = tuple(_range_end(value, name) for value in (first, end))
        return _between(ends, name, shape, domain, stream, shared)
    count = int(end) - int(first)
    limits = np.iinfo(NUMPY[name])
    if not 1 <= count <= 2**32 or first < limits.min or end - 1 > limits.max:
        raise ShapeError(
            f"there are no integers from {first} to {end} - 1 in {limits.dtype}, or more than 2**32.",
            hint="give low < high, and another dtype= if they do not fit.",
        )
    drawn = random_bits(
        () if shape is None else shape,
        domain=() if domain is None else domain,
        stream=stream,
        shared=shared,
    )
    if count < 2**32:
        drawn = drawn % np.uint32(count)
    if name == "i64":
        return drawn.cast(name) + int(first)
    return (drawn + np.uint32(int(first) % 2**32)).cast(name)  # both wrap


def _range_end(value: Any, name: DType) -> RecurrentTensor:
    """Return an end of a range as a tensor of at most 32 bits that fits into the element type."""
    end = operand(current(), value, like=name)
    if not is_integer(end.dtype):
        raise ShapeError(
            f"randint takes integers, not {value!r}.",
            hint="write randint(low, high, shape); convert a tensor by high.cast('i32').",
        )
    if is_whole(value) and end.dtype == "i64":
        end = operand(current(), value, like="i32")
    if end.dtype == "i64" or promote((end.dtype, name)) != name:
        raise ShapeError(
            f"an end of the range is {end.type}, and the draws are {NUMPY[name].name}.",
            hint="cast the end, as in high.cast('i32'), or give a wider dtype=.",
        )
    return end


def _is_constant(x: RecurrentTensor) -> bool:
    return isinstance(x.op.attrs, ConstAttrs) and not x.op.domain


def _between(
    ends: tuple[RecurrentTensor, ...],
    name: DType,
    shape: Any,
    domain: Any,
    stream: int | str | None,
    shared: bool,
) -> RecurrentTensor:
    """Draw integers from ranges given by tensors."""
    common = promote(end.dtype for end in ends)
    low, high = (end.cast(common if common == "u32" else "i32") for end in ends)
    given = [x.op.attrs.value.array for x in ends if _is_constant(x)]
    if len(given) == 2 and (given[0] >= given[1]).any():
        raise ShapeError(
            f"the range from {given[0]} to {given[1]} - 1 is empty.", hint="give low < high."
        )
    size = elementwise("where", [high > low, (high - low).cast("u32"), np.uint32(1)])
    drawn = random_bits(
        size.shape if shape is None else shape,
        domain=size.domain if domain is None else domain,
        stream=stream,
        shared=shared,
    )
    offset = drawn % size
    if not same_shape(offset.shape, drawn.shape):
        raise ShapeError(
            f"the ends of the range have the shape {size.shape}, but the draws have {drawn.shape}.",
            hint="give a shape to which the ends broadcast.",
        )
    if name == "i64":
        return offset.cast(name) + low.cast(name)
    return (offset + low.cast("u32")).cast(name)  # both wrap


@explain_call_errors
def random_bernoulli(
    p: Any = 0.5,
    shape: Any = None,
    *,
    domain: Any = None,
    stream: int | str | None = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Draw booleans that are true with probability `p`, accurate to 2**-23.

    Args:
        p: the probability, a number or a tensor.
        shape: the shape of the value at a point; by default that of `p`.
        domain: the dimensions over which the draws are independent; by default those of `p`.
        stream: the name of the random stream; by default its number in the program.
        shared: let several draws with the same stream name return the same bits.

    Raises:
        ShapeError: `p` is boolean.

    Example:
        >>> trl.random.bernoulli(0.1, (4,), domain=t)
        bool[4] @ (t)
    """
    if isinstance(shape, float):
        raise ShapeError(
            f"bernoulli takes a shape after the probability, not {shape!r}.",
            hint="write bernoulli(p, shape), as in bernoulli(0.5, ()).",
        )
    p = operand(None, p)
    if p.dtype == "bool":
        raise ShapeError(
            f"p must be a probability, not {p.type}.", hint="give a number from 0 to 1."
        )
    shape = p.shape if shape is None else shape
    domain = p.domain if domain is None else domain

    def log_prob(x: RecurrentTensor) -> RecurrentTensor:
        return elementwise("where", [x, p.log(), (-p).log1p()]).sum()

    def mode() -> RecurrentTensor:
        return broadcast_to(p > 0.5, made.shape)

    with current().drawing() as record:
        made = random_uniform(shape, domain=domain, stream=stream, shared=shared) < p
        origin = user_origin()
        record(made.read, lambda inside: Draw(mode, log_prob, inside, origin))
    return made


@explain_call_errors
def random_categorical(
    logits: Any,
    axis: int = -1,
    *,
    domain: Any = None,
    stream: int | str | None = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Draw positions along an axis with probabilities softmax(logits).

    Args:
        logits: unnormalized log-probabilities.
        axis: the axis, which the result does not have.
        domain: the dimensions over which the draws are independent; by default those of `logits`.
        stream: the name of the random stream; by default its number in the program.
        shared: let several draws with the same stream name return the same bits.

    Returns:
        positions, as int32.

    Raises:
        ShapeError: the logits are not floating-point, or have no axis.

    Example:
        >>> logits = trl.data(np.zeros((8, 4), "f4"), domain=t)
        >>> trl.random.categorical(logits)
        i32[] @ (t)
    """
    logits = operand(None, logits)
    if not logits.rank or not is_float(logits.dtype):
        raise ShapeError(
            f"logits must be floating-point and have at least one axis, not {logits}.",
            hint="convert them by logits.floating().",
        )
    domain = logits.domain if domain is None else domain

    def log_prob(x: RecurrentTensor) -> RecurrentTensor:
        k = logits._axis(axis)
        whole = logits.log_softmax(k)
        last = whole.transpose(*(d for d in range(whole.rank) if d != k), k)
        size = integer("the number of positions", last.shape[-1])
        return elementwise("where", [x.one_hot(size, "bool"), last, 0.0]).sum(axis=-1)

    with current().drawing() as record:
        noise = random_gumbel(logits.shape, domain=domain, stream=stream, shared=shared)
        made = (logits + noise).argmax(axis)
        origin = user_origin()
        record(
            made.read,
            lambda inside: Draw(lambda: logits.argmax(axis), log_prob, inside, origin),
        )
    return made


@explain_call_errors
def random_permutation(
    x: Any,
    axis: int = 0,
    *,
    domain: Any = None,
    stream: int | str | None = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Permute the positions of an axis randomly; for an integer n, the integers 0 to n - 1.

    The positions are sorted by random 32-bit keys. Two equal keys, with probability 2**-32 per pair, keep their
    positions' order.

    Args:
        x: a tensor or an integer.
        axis: an axis of integer size.
        domain: the dimensions over which the permutations are independent; by default those of `x`.
        stream: the name of the random stream; by default its number in the program.
        shared: let several draws with the same stream name return the same bits.

    Raises:
        ShapeError: the axis has a symbolic size.

    Example:
        >>> trl.random.permutation(8, domain=i)
        i32[8] @ (i)
    """
    if is_whole(x):
        x, axis = arange(int(x)), 0
    x = operand(None, x)
    size = x.shape[x._axis(axis)]
    if not isinstance(size, int):
        raise ShapeError(
            f"axis {axis} of {x.type} has a symbolic length and cannot be permuted.",
            hint="permute an axis of integer size.",
        )
    domain = x.domain if domain is None else domain
    order = random_bits((size,), domain=domain, stream=stream, shared=shared).argsort(0)
    return x.take(order, axis)
