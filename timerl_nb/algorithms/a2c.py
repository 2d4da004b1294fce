"""Advantage actor-critic with n-step returns and bootstrapping. Source: Mnih et al. 2016.

Episodes continue across iterations. A2C is clipped PPO with one update per iteration, so ratios are 1 and nothing is
clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import like, tensor, value, where
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation, same_step_environment
from timerl_nb.nn.layers import orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.policy_networks import DNNBuilder, Mask


@explain_call_errors
def a2c(
    env: str | Simulation = "CartPole-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    mask: Mask | None = None,
    gamma: float = 0.99,
    lam: float = 1.0,
    critic: float = 0.5,
    entropy: float = 0.01,
    lr: float = 1e-3,
    max_norm: float = 0.5,
) -> Context:
    """Return the program of A2C.

    Each of I iterations takes T steps in B environments and makes one update; returns continue with the critic's value
    after the last step, and after a time limit. The outputs are "return", the mean over the episodes that end in an
    iteration (0 if there are none), "episodes", their number, and "loss".

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`.
        hidden: the widths of the tanh layers; actor and critic have separate networks.
        mask: a function of the observation that returns the allowed actions, such as `trl.env.TicTacToe.legal`; None allows
            all of them.
        gamma: the discount.
        lam: the λ of generalised advantage estimation (Schulman et al. 2016); 1 sums all rewards up to the end of the
            iteration.
        critic, entropy: the weights of the critic's loss and of the policy's entropy.
        lr: Adam's initial learning rate; it decreases linearly to 0.
        max_norm: the greatest Euclidean norm of the gradients.

    Returns:
        a context with the dimensions b, i and t; compile it with bounds for B, I and T.

    Raises:
        EnvError: the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.a2c("CartPole-v1", hidden=(32,))
        Context(b < B, i < I, t < T; ... operations)
    """
    env = same_step_environment("A2C", env)
    gamma, lam = number("gamma", gamma), number("lam", lam, least=0, most=1)
    with Context("b", "i", "t") as ctx:
        (b, _), (i, I), (t, T) = ctx.dims
        with ctx.region("acting"):
            builder = DNNBuilder(domain=(i,)).from_env(
                env, hidden, critic="separate", init=orthogonal, gain=sqrt(2), mask=mask
            )
            dnn = builder.build()
            o = like(env.obs_space, domain=(b, i, t)).named("o")
            a = dnn.sample(o).named("a")
            o[b, 0, 0] = env.reset(domain=(b,))
            step = env.step(a)
            o[b, i + 1, 0] = step.obs[b, i, T - 1]
            o[b, i, t + 1], r, done = step.obs, step.reward.named("r"), step.done
        with ctx.region("learning"):
            v = dnn.value(o).named("v")
            baseline = v.detach()
            next_value = where(step.terminated, 0.0, dnn.value(step.final_obs).detach())
            td_error = r + gamma * next_value - baseline
            advantage = tensor((), domain=(b, i, t)).named("advantage")
            next_advantage = where(done, 0.0, advantage[b, i, min(t + 1, T - 1)])
            advantage[t == T - 1] = td_error
            advantage[t < T - 1] = td_error + gamma * lam * next_advantage
            value_error = v - (advantage + baseline)
            value_loss = 0.5 * value_error.square()
            step_loss = (
                critic * value_loss - dnn.log_prob(a) * advantage - entropy * dnn(o).entropy()
            )
            loss = step_loss.mean(over=(b, t))
            loss.backward()
            lr_decay = 1.0 - value(i).floating() / value(I).floating()
            Adam(dnn.params, lr=lr * lr_decay, eps=1e-5, max_norm=max_norm).step()
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=(i, t))
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
    return ctx
