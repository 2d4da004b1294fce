"""REINFORCE with Monte-Carlo or n-step returns. Source: Williams 1992."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import like
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation, made
from timerl_nb.nn.layers import orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.policy_networks import DNNBuilder, Mask


@explain_call_errors
def reinforce(
    env: str | Simulation = "CartPole-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    mask: Mask | None = None,
    steps: int | None = None,
    gamma: float = 0.99,
    baseline: bool = False,
    lr: float = 1e-3,
) -> Context:
    """Return the program of REINFORCE.

    Each of I iterations takes T steps in B environments and makes one update. The outputs are "return", the mean over
    environments, and "loss".

    Args:
        env: a name, or `trl.env.make(...)`.
        hidden: the widths of the tanh layers.
        mask: a function of the observation that returns the allowed actions, such as `trl.env.TicTacToe.legal`; None allows
            all of them.
        steps: the number of rewards in a return; None for all rewards to the end.
        gamma: the discount.
        baseline: subtract from each return the mean over environments at the same step.
        lr: Adam's learning rate.

    Returns:
        a context with the dimensions b, i and t; compile it with bounds for B, I and T.

    Example:
        >>> trl.algorithms.reinforce("CartPole-v1", steps=10)
        Context(b < B, i < I, t < T; ... operations)
    """
    with Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        with ctx.region("acting"):
            env = made(env)
            builder = DNNBuilder(domain=(i,)).from_env(
                env, hidden, init=orthogonal, gain=sqrt(2), mask=mask
            )
            dnn = builder.build()
            o = like(env.obs_space, domain=(b, i, t)).named("o")
            o[b, i, 0] = env.reset(domain=(b, i))
            a = dnn.sample(o).named("a")
            step = env.step(a)
            o[b, i, t + 1], r, _ = step
            r.named("r")
        with ctx.region("learning"):
            end = T if steps is None else min(t + integer("steps", steps), T)
            g = r[b, i, t:end].discounted_sum(gamma).named("g")
            advantage = g - g.mean(over=b) if baseline else g
            loss = step.masked(-dnn.log_prob(a) * advantage).mean(over=(b, t))
            loss.backward()
            Adam(dnn.params, lr=lr).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
        ctx.output("loss", loss)
    return ctx
