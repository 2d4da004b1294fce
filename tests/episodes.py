"""Programs with early ends of iterations (semantics.md §2)."""

from __future__ import annotations

from collections.abc import Sequence

import timerl_nb as trl


def cartpole(
    window: int | None, hidden: Sequence[int] = (4,)
) -> tuple[trl.Context, trl.RecurrentTensor]:
    """Return REINFORCE on CartPole, and the condition that ends an iteration: all poles have fallen."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, bound) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=hidden).build()
        o = trl.like(env.obs_space, domain=(b, i, t)).named("o")
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn.sample(o)
        step = env.step(a)
        o[b, i, t + 1], r, d = step
        end = bound if window is None else trl.min(t + window, bound)
        g = r[b, i, t:end].discounted_sum(0.99)
        loss = -dnn.log_prob(a) * (g - g.mean(over=b)) * step.alive
        loss.mean(over=(b, t)).backward()
        trl.optim.Adam(dnn.params, lr=1e-2).step()
        ctx.output("reward", r)
        ctx.output("return", r.sum(over=t).mean(over=b))
        done = (d | ~step.alive).all(over=b).named("done")
    return ctx, done
