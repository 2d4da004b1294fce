"""Actor-critic in the style of PPO, one epoch per iteration: the program for compile-time measurements."""

from __future__ import annotations

from collections.abc import Sequence

import timerl_nb as trl


def actor_critic(
    hidden: Sequence[int] = (64, 64),
    *,
    gamma: float = 0.99,
    lam: float = 0.96,
    clip: float = 0.2,
    lr: float = 1e-3,
) -> trl.Context:
    """Advantages by a backward recurrence, clipped ratios, value loss, entropy, Adam."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        with ctx.region("acting"):
            env = trl.env.make("CartPole-v1")
            dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=hidden, critic=True).build()
            o = trl.like(env.obs_space, domain=(b, i, t)).named("o")
            o[b, i, 0] = env.reset(domain=(b, i))
            a = dnn.sample(o).named("a")
            step = env.step(a)
            o[b, i, t + 1], r, d = step
        with ctx.region("learning"):
            alive = step.alive.cast("f32")
            v = dnn.value(o).named("v")
            kept = v.detach()
            later = kept[b, i, trl.min(t + 1, T - 1)] * trl.where(t < T - 1, 1.0, 0.0)
            delta = r + gamma * later - kept
            advantage = trl.tensor((), domain=(b, i, t)).named("advantage")
            advantage[t == T - 1] = delta
            advantage[t < T - 1] = delta + gamma * lam * advantage[b, i, trl.min(t + 1, T - 1)]
            mean = advantage.mean(over=(b, t))
            spread = (advantage - mean).square().mean(over=(b, t)).sqrt()
            scaled = (advantage - mean) / (spread + 1e-8)
            log_prob = dnn.log_prob(a)
            ratio = (log_prob - log_prob.detach()).exp()
            actor = -trl.min(ratio * scaled, ratio.clip(1 - clip, 1 + clip) * scaled)
            critic = (v - (advantage + kept)).square() * 0.5
            loss = actor + 0.5 * critic - 0.01 * dnn(o).entropy()
            (loss * alive).mean(over=(b, t)).backward()
            trl.optim.Adam(dnn.params, lr=lr).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
    return ctx
