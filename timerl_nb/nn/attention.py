"""Attention: causal along a symbolic dimension, and between the rows of an axis."""

from __future__ import annotations

from math import sqrt
from typing import Any

from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.language.indexing.index_parsing import as_dims
from timerl_nb.compiler.language.inputs.tensor_sources import where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, dot, operand
from timerl_nb.compiler.symbolic.index_expressions import Entry, const, maximum, span
from timerl_nb.nn.layers import Linear, checked_sizes
from timerl_nb.nn.module import Module, free_name


class _Heads(Module):
    """Base of both kinds of attention: four linear maps and the number of heads."""

    def __init__(self, size: int, heads: int = 1, *, domain: Any = (), name: str = "") -> None:
        checked_sizes(size, heads)
        if size % heads:
            raise ShapeError(
                f"{heads} heads do not divide an axis of {size}.",
                hint="choose a size that is a multiple of the number of heads.",
            )
        self.size, self.heads = size, heads
        name = name or free_name("attention")
        parts = ("query", "key", "value", "out")
        self.query, self.key, self.value, self.out = (
            Linear(size, size, domain=domain, name=f"{name}.{part}") for part in parts
        )


class Attention(_Heads):
    """Causal attention along a symbolic dimension: each point attends to itself and to earlier points.

    It reads `k[0:t + 1]`, a prefix of the right length, so it needs no mask. One equation serves acting, where points come
    one by one, and learning.

    Args:
        size: the size of the last axis of input and output.
        heads: the number of heads.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names.

    Raises:
        ShapeError: the number of heads does not divide the size.

    Example:
        >>> attend = trl.nn.Attention(8, heads=2)
        >>> x = trl.data(np.ones((5, 8), "f4"), domain=t)
        >>> attend(x, over=t, window=3)
        f32[8] @ (t)
    """

    def __call__(self, x: RecurrentTensor, over: Any, window: int | None = None) -> RecurrentTensor:
        """Return the result at each point, shape (size,).

        Args:
            x: shape (size,), varying over the dimension `over`.
            over: the dimension.
            window: the greatest number of points to attend to, including the current one.
        """
        x = operand(self.query.weight.ctx, x)
        if x.shape != (self.size,):
            raise ShapeError(
                f"{self.query.weight.name} takes {self.size} numbers, not {x.type}.",
                hint=f"give a tensor of shape ({self.size},) at each point.",
            )
        if window is not None:
            checked_sizes(window)
        names = as_dims(x.ctx, x.ctx.space, over)
        if len(names) != 1 or names[0] not in x.domain:
            raise DomainError(
                f"attention runs along one dimension that x varies over, not {over!r}.",
                hint=f"x varies over ({', '.join(x.domain)}).",
            )
        t = x.ctx.space[names[0]].var
        lo = const(0) if window is None else maximum(const(0), t - (window - 1))
        seen: dict[str, Entry] = {names[0]: span(lo, t + 1)}
        heads = (self.heads, self.size // self.heads)
        q = self.query(x).reshape(heads)
        k, v = (f(x).reshape(heads).settled().at(seen) for f in (self.key, self.value))
        score = dot(k, q, "shd,hd->hs") * (1 / sqrt(heads[1]))
        return self.out(dot(score.softmax(-1), v, "hs,shd->hd").reshape((self.size,)))


class MultiHeadAttention(_Heads):
    """Attention between rows: each query returns a mean of the values, weighted by softmax of q · k.

    Args:
        size: the size of the last axis of input and output.
        heads: the number of heads.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names; unique by default.

    Raises:
        ShapeError: the number of heads does not divide the size.

    Example:
        >>> attend = trl.nn.MultiHeadAttention(8, heads=2)
        >>> attend(trl.zeros((5, 8)))
        f32[5,8] @ ()
    """

    def __call__(
        self,
        query: RecurrentTensor,
        key: RecurrentTensor | None = None,
        value: RecurrentTensor | None = None,
        mask: RecurrentTensor | None = None,
    ) -> RecurrentTensor:
        """Return the result of each query, shape (n, size).

        Args:
            query: shape (n, size).
            key, value: shape (m, size); by default the queries, and the keys.
            mask: booleans that broadcast to shape (n, m): whether a query may attend to a key. A query without
                such a key returns the mean of all values.
        """
        key = query if key is None else key
        value = key if value is None else value
        ctx = self.query.weight.ctx
        query, key, value = (operand(ctx, x) for x in (query, key, value))
        for x in (query, key, value):
            if x.rank != 2 or x.shape[1] != self.size:
                raise ShapeError(
                    f"{self.query.weight.name} takes rows of {self.size}, not {x.type}.",
                    hint=f"give a tensor of shape (n, {self.size}).",
                )
        parts = (self.heads, self.size // self.heads)
        q, k, v = (
            f(x).reshape((x.shape[0], *parts))
            for f, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        score = dot(q, k, "nhd,mhd->hnm") * (1 / sqrt(parts[1]))
        if mask is not None:
            score = where(mask, score, -1e30)
        seen = dot(score.softmax(-1), v, "hnm,mhd->nhd")
        return self.out(seen.reshape((query.shape[0], self.size)))
