"""Proximal policy optimisation with one update per iteration. Source: Schulman et al. 2017.

With one epoch of one batch the probability ratio is 1, and the gradient of the clipped surrogate is that of
-log π · A.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import like, tensor, value, where
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation, made
from timerl_nb.nn.layers import orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.policy_networks import DNNBuilder, Mask


@explain_call_errors
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
            builder = DNNBuilder(domain=(i,)).from_env(
                env, hidden, critic=True, init=orthogonal, gain=sqrt(2), mask=mask
            )
            dnn = builder.build()
            o = like(env.obs_space, domain=(b, i, t)).named("o")
            o[b, i, 0] = env.reset(domain=(b, i))
            a = dnn.sample(o).named("a")
            step = env.step(a)
            o[b, i, t + 1], r, _ = step
            r.named("r")
        with ctx.region("learning"):
            v = dnn.value(o).named("v")
            baseline, next_t = v.detach(), min(t + 1, T - 1)
            advantage = tensor((), domain=(b, i, t)).named("advantage")
            if bootstrap:
                next_value = where(step.terminated, 0.0, dnn.value(step.final_obs).detach())
                last_td_error = td_error = r + gamma * next_value - baseline
            else:
                next_value = step.then(baseline[b, i, next_t])
                last_td_error, td_error = r - baseline, r + gamma * next_value - baseline
            advantage[t == T - 1] = last_td_error
            advantage[t < T - 1] = td_error + gamma * lam * step.then(advantage[b, i, next_t])
            mean = step.mean(advantage, over=(b, t))
            std = step.mean((advantage - mean).square(), over=(b, t)).sqrt()
            normalized = (advantage - mean) / (std + 1e-8)
            value_error = v - (advantage + baseline)
            value_loss = 0.5 * value_error.square()
            step_loss = (
                critic * value_loss - dnn.log_prob(a) * normalized - entropy * dnn(o).entropy()
            )
            loss = step.masked(step_loss).mean(over=(b, t))
            loss.backward()
            lr_decay = 1.0 - value(i).floating() / value(I).floating()
            rate = lr * lr_decay if anneal else lr
            Adam(dnn.params, lr=rate, max_norm=max_norm).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
        ctx.output("loss", loss)
    return ctx
