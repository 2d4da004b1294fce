"""Patterns for every row of the indexing table (semantics.md §3)."""

from __future__ import annotations

import timerl_nb as trl
from tests.patterns import pattern, values


@pattern("ab", A=3, B=9)
def point_rows(ctx, a, A, b, B):
    x = trl.data(values(3, 9, 2), domain=(a, b))
    rows = {
        "linear": x[...],
        "ahead": x[a + 1, b][a < A - 1],
        "clamped": x[a, trl.min(b + 4, B - 1)],
        "reversed": x[a, B - 1 - b],
        "modulo": x[a, b % 8],
        "halved": x[a // 2, b],
        "both": x[A - 1 - a, b % 8],
        "constant": x[2],
        "last": x[A - 1],
        "corner": x[A - 1, 0],
        "left out": x[..., trl.max(b - 3, 0)],
        "first of all": x[0, ...],
        "scaled": x[a, 2 * (b // 4) + 1],
        "negated": x[a, -b + 8],
        "chosen": x[trl.min(a, b), trl.max(a, b)],
    }
    for name, row in rows.items():
        ctx.output(name, row.sum(axis=0))
    both = sum(row.sum(over=row.domain) for row in rows.values() if row.domain) * 1.0
    ctx.output("gradient", trl.grad((both * both * 0.01).tanh(), x))


@pattern("ab", A=3, B=3)
def crossed_rows(ctx, a, A, b, B):
    x = trl.data(values(3, 3), domain=(a, b))
    ctx.output("b, b linear", x[b])
    ctx.output("transposed", x[b, a] - x)
    ctx.output("b at a", x[..., a])
    ctx.output("a of b", trl.data(values(3), domain=(a,))[b])
    ctx.output("gradient", trl.grad(x[b, a] * x + x[b], x))


@pattern("ab", A=3, B=6)
def slice_rows(ctx, a, A, b, B):
    x = trl.data(values(3, 6, 2), domain=(a, b))
    ctx.output("constant", x[a, 0:5])
    ctx.output("whole", x[a, 0:B] + x[a, :])
    ctx.output("half open", x[a, 2:].sum(axis=0) + x[a, :2].sum(axis=0))
    ctx.output("suffix", x[a, b:B].mean(axis=0))
    ctx.output("window", x[a, b : trl.min(b + 2, B)].max(axis=0))
    ctx.output("prefix", x[a, 0 : b + 1].sum(axis=0))
    ctx.output("other", x[0:A, b].sum(axis=0))
    ctx.output("left out", x[..., 1:4].sum(axis=0))
    ctx.output("at a", x[a, a : a + 3].sum(axis=0))
    ctx.output("of b by a", x[trl.min(b, A - 1), 0 : a + 1].sum(axis=0))


@pattern("ab", A=3, B=4)
def several_slices(ctx, a, A, b, B):
    x = trl.data(values(3, 4, 2), domain=(a, b))
    ctx.output("constant", x[0:2, 1:4])
    ctx.output("whole", x[0:A, 0:B].transpose(1, 0, 2))
    ctx.output("moving", x[0 : a + 1, b:B].sum(axis=(0, 1)))
    ctx.output("inner", x[0 : a + 1, b:B].sum(axis=1).max(axis=0))
    ctx.output("gradient", trl.grad((x[0 : a + 1, b:B].sum(axis=(0, 1))).tanh(), x))


@pattern("at", A=3, T=8)
def blocks(ctx, a, A, t, T):
    x = trl.data(values(8, 2), domain=(t,))
    ctx.output("block", x[2 * a : 2 * a + 2])
    ctx.output("ragged", x[3 * a : trl.min(3 * a + 3, T)].sum(axis=0))
    ctx.output("mean", x[3 * a : trl.min(3 * a + 3, T)].mean(axis=0))
    ctx.output("strided", x[2 * a + 1] * x[a])
    ctx.output("of t", x[t // 4 * 4 : t // 4 * 4 + 4].max(axis=0))
    ctx.output("gradient", trl.grad(x[2 * a : 2 * a + 2].tanh().sum(axis=0), x))


@pattern("abcd", A=2, B=3, C=2, D=3)
def four_dimensions(ctx, a, A, b, B, c, C, d, D):
    x = trl.data(values(2, 3, 2, 3), domain=(a, b, c, d))
    ctx.output("mixed", x[A - 1 - a, b, ..., trl.min(d + 1, D - 1)])
    ctx.output("slices", x[a, 0:B, c, 0 : d + 1].sum(axis=(0, 1)))
    ctx.output("fewer", x[0, b, 1])
    ctx.output("reduced", x[a, (b + d) % 3].sum(over=(a, d)))
    ctx.output("conditions", x[(a == c) & ~((b == 1) | (d > b))].sum(over=(b, c)))
    s = trl.like(x)
    s[a, b, c, 0] = x[a, b, c, 0]
    s[a, b, c, d + 1] = (s + x[a, b, C - 1 - c]).tanh()
    ctx.output("recurrence", s)


@pattern("t", T=5)
def lengths_that_vary(ctx, t, T):
    x = trl.data(values(5, 4), domain=(t,))
    ahead, behind = x[t:T], x[0 : t + 1]
    ctx.output("turned", ahead.flip(0).discounted_sum(0.5))
    ctx.output("turned twice", (ahead.flip(0).cumsum().flip(0) * behind.flip(1).sum()).max(axis=0))
    ctx.output("joined", trl.concat([behind, ahead * 2.0]))
    ctx.output("behind a constant", trl.concat([trl.ones((2, 4)), ahead]).cumsum().max(axis=0))
    ctx.output("between", trl.concat([ahead, x.unsqueeze(0), behind.flip(0)]).discounted_sum(0.7))
    ctx.output("split", ahead.reshape((T - t, 2, 1, 2)).max(axis=2).sum(axis=(0, 1)))
    ctx.output("wider", behind.reshape((1, t + 1, 2, 2)).transpose(1, 0, 3, 2).sum(axis=0))
    ctx.output("columns", trl.concat([ahead, ahead.flip(1)], axis=1).sum(axis=0))


@pattern("t", T=4)
def gradients_of_lengths_that_vary(ctx, t, T):
    x = trl.data(values(4, 2), domain=(t,))
    turned = x[t:T].flip(0) * trl.concat([trl.zeros((1, 2)), x[t + 1 : T].tanh()])
    ctx.output("turned", trl.grad(turned.sum(), x))
    joined = trl.concat([x[0 : t + 1].exp(), x[t:T]]).tanh()
    ctx.output("joined", trl.grad((joined * joined.flip(0)).sum(), x))
    parts = x[t:T].reshape((T - t, 1, 2)).square()
    ctx.output("parts", trl.grad(parts.sum().tanh(), x))


@pattern("vt", V=3, T=8)
def positions_from_the_end(ctx, v, V, t, T):
    x = trl.data(values(3, 8, 2), domain=(v, t))
    ctx.output("point", x[-1] + x[v, -2] * x[-1, -8])
    ctx.output("slices", x[v, -3:] + x[v, -5:-2])
    ctx.output("but the last", x[v, :-1].sum(axis=0) + x[v, -4:-1].max(axis=0))
    back = trl.like(x)
    back[v, t] = back[v, t + 1] * 0.5 + x
    back[v, -1] = x[v, -1]
    ctx.output("back", back)
    ctx.output("gradient", trl.grad((x[v, -2] * x[-1, -8:].sum(axis=0) + back[v, 1]).tanh(), x))


@pattern("vt", V=1, T=1)
def positions_from_the_end_of_one_point(ctx, v, V, t, T):
    x = trl.data(values(1, 1), domain=(v, t))
    ctx.output("point", x[-1, -1] + x[v, -1:].sum(axis=0))
    ctx.output("nothing", x[v, :-1].sum(axis=0))


@pattern("vt", V=3, T=8)
def indices_in_pieces(ctx, v, V, t, T):
    x = trl.data(values(3, 8), domain=(v, t))
    rows = {
        "halves swapped": x[v, trl.where(t < 4, t + 4, t - 4)],
        "nested": x[v, trl.where(t < 2, 0, trl.where(t < 5, 5, t))],
        "two dimensions": x[trl.where(t < v, trl.where(v > 1, 0, 1), v), t],
        "integers": x[v, trl.where(t % 3 == 1, 2, 7)],
        "arithmetic": x[v, trl.min(2 * trl.where(t < 4, t, v), T - 1)],
        "suffix": x[v, trl.where(t < 4, t, 4) : T].tanh().sum(axis=0),
        "window": x[v, t : trl.where(t < 4, t + 4, T)].discounted_sum(0.5),
        "block": x[v, trl.where(t < 4, 0, 4) : trl.where(t < 4, 4, T)].max(axis=0),
    }
    for name, row in rows.items():
        ctx.output(name, row)
    ctx.output("condition", x[trl.where(t < 4, t, 0) == 0])
    total = sum((row * x).tanh() for row in rows.values())
    ctx.output("gradient", trl.grad(total, x))


@pattern("vt", V=3, T=5)
def branches_with_precedence(ctx, v, V, t, T):
    x = trl.data(values(3, 5), domain=(v, t))
    rate = trl.tensor((), domain=(v,))
    rate[0] = 0.1
    rate[v] = rate[v - 1] * 0.98
    grid = trl.like(x)
    grid[v, t] = (grid[v - 1, t] + grid[v, t - 1]) * 0.5 + x
    grid[0, t] = grid[0, t - 1] * 0.5 - x[0, t]
    grid[v, 0] = x[v, 0] + grid[v - 1, 0]
    grid[0, 0] = x[0, 0] * rate[-1]
    first = trl.first_match(trl.like(x))
    first[(v + t) % 3 == 0] = x
    first[v, t + 1] = (first * x).sin()
    first[...] = x * x
    ctx.output("rate", rate)
    ctx.output("grid", grid)
    ctx.output("first", first)
    ctx.output("gradient", trl.grad((grid * first).tanh(), x))


@pattern("vt", V=1, T=1)
def branches_with_precedence_at_one_point(ctx, v, V, t, T):
    x = trl.data(values(1, 1), domain=(v, t))
    grid = trl.like(x)
    grid[v, t] = grid[v - 1, t] + grid[v, t - 1]
    grid[0, t] = grid[0, t - 1]
    grid[v, 0] = grid[v - 1, 0]
    grid[0, 0] = x[0, 0]
    ctx.output("grid", grid)
    ctx.output("gradient", trl.grad(grid.square(), x))
