"""REINFORCE on images, whose observations dominate the memory of the device."""

from __future__ import annotations

import timerl_nb as trl
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box, Discrete


class Pixels(Environment):
    """Environment: an image whose colours fade depending on the action; the reward is its mean."""

    act_space = Discrete(3)

    def __init__(self, side: int) -> None:
        super().__init__()
        self.obs_space = Box(-float("inf"), float("inf"), (3, side, side))

    def first_state(self, domain: Domain) -> Tensor:
        return trl.random.uniform(self.obs_space.shape, domain=domain)

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        after = trl.where(action == 1, state * 0.9, (state * 3.0).sin())
        return after, after.mean(axis=(0, 1, 2)), after.sum(axis=(0, 1, 2)) < 0.0


def pixels(window: int | None = None, *, side: int = 4, hidden: int = 8) -> trl.Context:
    """Return a program with Monte Carlo returns, or with returns over `window` steps."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        with ctx.region("acting"):
            env = Pixels(side)
            dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[hidden]).build()
            o = trl.like(env.obs_space, domain=(b, i, t)).named("o")
            o[b, i, 0] = env.reset(domain=(b, i))
            a = dnn.sample(o).named("a")
            o[b, i, t + 1], r, d = env.step(a)
        with ctx.region("learning"):
            end = T if window is None else trl.min(t + window, T)
            g = r[b, i, t:end].discounted_sum(0.99).named("g")
            loss = -dnn.log_prob(a) * (g - g.mean(over=b))
            loss.mean(over=(b, t)).backward()
            trl.optim.Adam(dnn.params, lr=1e-2).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
    return ctx
