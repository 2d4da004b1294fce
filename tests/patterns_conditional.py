"""Patterns with conditional tensors (semantics.md §6)."""

from __future__ import annotations

import timerl_nb as trl
from tests.patterns import pattern, values


@pattern("bt", B=2, T=7)
def conditional_arithmetic(ctx, b, B, t, T):
    x = trl.data(values(2, 7), domain=(b, t))
    third, late = x[t % 3 == 1], x[(t > 2) & ~(t == 5)]
    ctx.output("third", third * 2 + 1)
    ctx.output("both", third * late + x)
    ctx.output("either", x[(t < 2) | (b == 1)].tanh())
    ctx.output("corner", x[b + t >= 6] * x[b, 0])
    ctx.output("more", trl.constant(values(3))[t == b] * t)
    ctx.output("nowhere", x[t > 90] + 1)
    ctx.output("joined", trl.stack([third, x[b, T - 1 - t]]))


@pattern("bit", B=2, I=3, T=5)
def conditional_reductions(ctx, b, B, i, I, t, T):
    x = trl.data(values(2, 3, 5, 2), domain=(b, i, t))
    c = x[(t % 2 == 1) & (i > 0)]
    ctx.output("sum", c.sum(over=t))
    ctx.output("all", c.sum(over=(b, i, t)))
    ctx.output("mean", c.mean(over=(b, t)))
    ctx.output("max", c.max(over=(i, t)))
    ctx.output("min", c.min(over=i))
    ctx.output("prod", c.prod(over=(t,)))
    ctx.output("any", (c > 0.5).any(over=t))
    ctx.output("every", (c > -9.0).all(over=(i, t)))
    ctx.output("count", (c > 0).sum(over=(b, i, t)))
    ctx.output("diagonal", x[i == t].mean(over=(i, t)))
    ctx.output("none", x[t > 90].mean(over=b).sum(over=t))
    ctx.output("axis", c.sum(axis=0).mean(over=t))


@pattern("bt", B=2, T=6)
def conditional_branches(ctx, b, B, t, T):
    x = trl.data(values(2, 6), domain=(b, t))
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, t + 1] = (y * 0.5 + x)[t % 2 == 0]
    y[b, t + 1] = (x[t % 2 == 1] - y).tanh()
    z = trl.like(x)
    z[b, t] = x[t % 2 == 0]
    z[(t % 2 == 1) & (b == 0)] = x[b, 0]
    z[b, t] = x[(t % 2 == 1) & (b == 1)] * 2
    ctx.output("y", y)
    ctx.output("z", z)
    ctx.output("filled", x[t > 2].otherwise(x[b, 0]) + x[t < 1].otherwise(7.0))
    ctx.output("ahead", x[t > 1][b, trl.min(trl.max(t + 1, 2), T - 1)])
    ctx.output("window", x[t > 1][b, 2:T].sum(axis=0))


@pattern("bt", B=2, T=6)
def conditional_gradients(ctx, b, B, t, T):
    x = trl.data(values(2, 6), domain=(b, t))
    w = trl.data(values(2, seed=1), domain=(b,))
    c = (x * w)[t % 2 == 1]
    ctx.output("own", trl.grad((c * c).tanh(), x))
    ctx.output("mean", trl.grad((c * c).mean(over=(b, t)), [x, w])[1])
    ctx.output("max", trl.grad(c.max(over=t), x))
    ctx.output("of", trl.grad((c * c).sum(over=t), c))
    ctx.output("shifted", trl.grad((c * x[b, t - 1]).tanh(), x))
    ctx.output("subset", trl.grad((c + (c * x)[b == 0]).tanh(), [c, x])[1])
    ctx.output("some", trl.grad((c.tanh()[t > 2] * c), c))
    ctx.output("slice", trl.grad(c[t > 2] * x[b, t:T].sum(axis=0), x))
    ctx.output("broadcast", trl.grad(w[t > 2] * 2.0, w))
    h = trl.like(x)
    h[b, 0] = x[b, 0]
    h[b, t + 1] = (h * 0.5 + x).tanh()
    ctx.output("through time", trl.grad(h[t % 3 == 2].square(), x))


@pattern("bit", B=3, I=4, T=4)
def learning_now_and_then(ctx, b, B, i, I, t, T):
    x = trl.data(values(3, 2), domain=(b,))
    w = trl.parameter((2,), domain=(i,), init=lambda s: trl.ones(s), name="w")
    loss = ((x @ w) - 1.0).square()
    loss[i % 2 == 0].mean(over=b).backward()
    trl.optim.SGD([w], lr=0.1, momentum=0.5).step()
    ctx.output("w", w)
    ctx.output("grad", w.grad)
    ctx.output("seen", loss.mean(over=b)[(i + 1) % 2 == 0])
