"""REINFORCE on CartPole, as in the README and the first notebook, with options for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import timerl_nb as trl


def reinforce(
    window: int | None = None,
    *,
    hidden: Sequence[int] = (32, 32),
    gamma: float = 0.99,
    optimizer: Any = trl.optim.Adam,
    lr: float = 1e-2,
    baseline: bool = True,
    average_over_time: bool = False,
    checkpoint: str | None = None,
) -> trl.Context:
    """Return a program with Monte Carlo returns, or with returns over `window` steps."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        with ctx.region("acting"):
            env = trl.env.make("CartPole-v1")
            dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=hidden).build()
            o = trl.like(env.obs_space, domain=(b, i, t)).named("o")
            o[b, i, 0] = env.reset(domain=(b, i))
            a = dnn.sample(o).named("a")
            step = env.step(a)
            o[b, i, t + 1], r, d = step
        with ctx.region("learning"):
            end = T if window is None else trl.min(t + window, T)
            g = r[b, i, t:end].discounted_sum(gamma).named("g")
            advantage = g - g.mean(over=b) if baseline else g
            if average_over_time:
                advantage = advantage - advantage.mean(over=(b, t))
            loss = -dnn.log_prob(a) * advantage * step.alive
            loss.mean(over=(b, t)).backward()
            optimizer(dnn.params, lr=lr).step()
        if checkpoint is not None:
            dnn[(i + 1) % 10 == 0].checkpoint(checkpoint)
        ctx.output("return", r.sum(over=t).mean(over=b))
    return ctx
