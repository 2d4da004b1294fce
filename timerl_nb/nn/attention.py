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
    """What both kinds of attention share: four products, and how many parts attend apart."""

    def __init__(self, size: int, heads: int = 1, *, domain: Any = (), name: str = "") -> None:
        checked_sizes(size, heads)
        if size % heads:
            raise ShapeError(f"{heads} heads do not divide an axis of {size}.")
        self.size, self.heads = size, heads
        name = name or free_name("attention")
        parts = ("query", "key", "value", "out")
        self.query, self.key, self.value, self.out = (
            Linear(size, size, domain=domain, name=f"{name}.{part}") for part in parts
        )


class Attention(_Heads):
    """Each point attends to itself and to the points before it along a dimension.

    Written `k[0:t + 1]`, its prefix is as long as t says: no mask, and one equation for acting
    (where points come one by one) and for learning.

    Args:
        size: of the last axis, before and after.
        heads: how many parts of it attend apart.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names.
    """

    def __call__(self, x: RecurrentTensor, over: Any, window: int | None = None) -> RecurrentTensor:
        """What each point makes of x[0:t + 1], shape (size,).

        Args:
            x: shape (size,), varying over the dimension `over`.
            window: attend to that many points at most, the current one included.
        """
        x = operand(self.query.weight.ctx, x)
        if x.shape != (self.size,):
            raise ShapeError(f"{self.query.weight.name} takes {self.size} numbers, not {x.type}.")
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
    """Rows attend to rows: each query takes a mean of the values, weighted by softmax of q · k.

    Args:
        size: of the last axis, before and after.
        heads: how many parts of it attend apart.
        domain: the dimensions that the parameters vary over.
        name: the prefix of the parameters' names; by default it tells layers apart.
    """

    def __call__(
        self,
        query: RecurrentTensor,
        key: RecurrentTensor | None = None,
        value: RecurrentTensor | None = None,
        mask: RecurrentTensor | None = None,
    ) -> RecurrentTensor:
        """What each query makes of the values, shape (n, size).

        Args:
            query: shape (n, size).
            key, value: shape (m, size), a row for each that can be attended to; by default the
                queries, and the keys.
            mask: booleans, shape (n, m) or broadcast to it: which query may attend to which key. One
                that may attend to none finds the mean of all.
        """
        key = query if key is None else key
        value = key if value is None else value
        ctx = self.query.weight.ctx
        query, key, value = (operand(ctx, x) for x in (query, key, value))
        for x in (query, key, value):
            if x.rank != 2 or x.shape[1] != self.size:
                raise ShapeError(
                    f"{self.query.weight.name} takes rows of {self.size}, not {x.type}."
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
