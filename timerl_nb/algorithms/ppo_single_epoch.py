"""Proximal policy optimisation with one update per iteration. Source: Schulman et al. 2017.

With one epoch of one batch the probability ratio is 1, and the gradient of the clipped surrogate is that of
-log π · A.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.inputs.tensor_sources import like, tensor, value, where
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation, made
from timerl_nb.nn.layers import orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.policy_networks import DNNBuilder, Mask


def ppo(
    env: str | Simulation = "CartPole-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    mask: Mask | None = None,
    gamma: float = 0.99,
    lam: float = 0.96,
    critic: float = 0.5,
    entropy: float = 0.01,
    lr: float = 1e-3,
    anneal: bool = False,
    max_norm: float | None = None,
    bootstrap: bool = False,
) -> Context:
    """Return the program of PPO with one update per iteration.

    Each of I iterations takes T steps in B environments. The outputs are "return", the mean over environments, and "loss".

    Args:
        env: a name, or `trl.env.make(...)`.
        hidden: the widths of the tanh layers, shared by actor and critic.
        mask: a function of the observation that returns the allowed actions, such as `trl.env.TicTacToe.legal`; None allows
            all of them.
        gamma, lam: the discount, and the λ of generalised advantage estimation (Schulman et al. 2016).
        critic, entropy: the weights of the critic's loss and of the policy's entropy. Actor and critic share their layers.
            With returns in the hundreds, as in CartPole, use a weight such as 0.001, or the critic's loss dominates.
        lr: Adam's initial learning rate.
        anneal: whether the learning rate decreases linearly to 0.
        max_norm: the greatest Euclidean norm of the gradients; None for no limit.
        bootstrap: whether returns bootstrap from the critic after the last step of an iteration and after a time
            limit. By default the value there is 0.

    Returns:
        a context with the dimensions b, i and t; compile it with bounds for B, I and T.

    Raises:
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.ppo("CartPole-v1", hidden=(32,))
        Context(b < B, i < I, t < T; ... operations)
    """
    gamma, lam = number("gamma", gamma), number("lam", lam, least=0, most=1)
    with Context("b", "i", "t") as ctx:
        (b, _), (i, I), (t, T) = ctx.dims
        with ctx.region("acting"):
            env = made(env)
            design = DNNBuilder(domain=(i,)).from_env(
                env, hidden, critic=True, init=orthogonal, gain=sqrt(2), mask=mask
            )
            dnn = design.build()
            o = like(env.obs_space, domain=(b, i, t)).named("o")
            o[b, i, 0] = env.reset(domain=(b, i))
            a = dnn.sample(o).named("a")
            step = env.step(a)
            o[b, i, t + 1], r, _ = step
            r.named("r")
        with ctx.region("learning"):
            v = dnn.value(o).named("v")
            known, after = v.detach(), min(t + 1, T - 1)
            advantage = tensor((), domain=(b, i, t)).named("advantage")
            if bootstrap:
                beyond = where(step.terminated, 0.0, dnn.value(step.final_obs).detach())
                last = surprise = r + gamma * beyond - known
            else:
                last, surprise = r - known, r + gamma * step.then(known[b, i, after]) - known
            advantage[t == T - 1] = last
            advantage[t < T - 1] = surprise + gamma * lam * step.then(advantage[b, i, after])
            mean = step.mean(advantage, over=(b, t))
            spread = step.mean((advantage - mean).square(), over=(b, t)).sqrt()
            scaled = (advantage - mean) / (spread + 1e-8)
            regret = 0.5 * (v - (advantage + known)).square()
            lost = critic * regret - dnn.log_prob(a) * scaled - entropy * dnn(o).entropy()
            loss = step.masked(lost).mean(over=(b, t))
            loss.backward()
            left = 1.0 - value(i).floating() / value(I).floating()
            Adam(dnn.params, lr=lr * left if anneal else lr, max_norm=max_norm).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
        ctx.output("loss", loss)
    return ctx
