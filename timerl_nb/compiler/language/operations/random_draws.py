"""Draws that are made of random bits, uniform and Gumbel numbers: of seed, stream and point alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from timerl_nb.base.errors import ShapeError, user_origin
from timerl_nb.compiler.ir.shapes import NUMPY, is_float, is_integer
from timerl_nb.compiler.language.argument_checks import element_type, integer, is_whole
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

Stream = int | str | None


def random_randint(
    low: int,
    high: int | None = None,
    shape: Any = (),
    *,
    dtype: Any = "i32",
    domain: Any = (),
    stream: Stream = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Random integers from `low` to `high` - 1; from 0 to `low` - 1 without `high`.

    Where their number n is no power of 2, the first 2**32 mod n of them are likelier than the
    others, by a share of n / 2**32 at most.
    """
    first, end = (0, low) if high is None else (low, high)
    for value in (first, end):
        if not is_whole(value):
            raise ShapeError(
                f"randint takes integers, not {value!r}.",
                hint="randint(low, high, shape); take the remainder of random.bits for ends that vary.",
            )
    name, count = element_type(dtype), int(end) - int(first)
    if not is_integer(name):
        raise ShapeError(f"randint makes integers, not {NUMPY[name].name}.")
    ends = np.iinfo(NUMPY[name])
    if not 1 <= count <= 2**32 or first < ends.min or end - 1 > ends.max:
        raise ShapeError(
            f"there are no integers from {first} to {end} - 1 in {ends.dtype}, or more than 2**32.",
            hint="give low < high, and dtype= where they need another type.",
        )
    drawn = random_bits(shape, domain=domain, stream=stream, shared=shared)
    if count < 2**32:
        drawn = drawn % np.uint32(count)
    if name == "i64":
        return drawn.cast(name) + int(first)
    return (drawn + np.uint32(int(first) % 2**32)).cast(name)  # both wrap


def random_bernoulli(
    p: Any = 0.5,
    shape: Any = None,
    *,
    domain: Any = None,
    stream: Stream = None,
    shared: bool = False,
) -> RecurrentTensor:
    """Booleans that hold with probability `p` (a number or a tensor), to 2**-23.

    Args:
        shape, domain: those of `p` by default.
    """
    p = operand(None, p)
    if p.dtype == "bool":
        raise ShapeError(f"p is a probability, not {p.type}.")
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


def random_categorical(
    logits: Any,
    axis: int = -1,
    *,
    domain: Any = None,
    stream: Stream = None,
    shared: bool = False,
) -> RecurrentTensor:
    """A position along an axis (int32), with probability softmax(logits).

    Args:
        domain: that of `logits` by default; more dimensions give independent draws along them.
    """
    logits = operand(None, logits)
    if not logits.rank or not is_float(logits.dtype):
        raise ShapeError(f"logits are floating-point and have at least one axis, not {logits}.")
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


def random_permutation(
    x: Any,
    axis: int = 0,
    *,
    domain: Any = None,
    stream: Stream = None,
    shared: bool = False,
) -> RecurrentTensor:
    """The positions of an axis in random order; of an integer n, the integers 0 to n - 1.

    The order is that of 32-bit draws, the same ones staying in order: any two of n positions are so
    with probability 2**-32.

    Args:
        axis: of integer size.
        domain: that of `x` by default; there is an order for each of its points.
    """
    if is_whole(x):
        x, axis = arange(int(x)), 0
    x = operand(None, x)
    size = x.shape[x._axis(axis)]
    if not isinstance(size, int):
        raise ShapeError(
            f"axis {axis} of {x.type} has a symbolic length: it has no random order.",
            hint="reorder an axis of integer size.",
        )
    domain = x.domain if domain is None else domain
    order = random_bits((size,), domain=domain, stream=stream, shared=shared).argsort(0)
    return x.take(order, axis)
