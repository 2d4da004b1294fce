"""Actor-critic with V-trace returns: IMPALA. Source: Espeholt et al. 2018.

The acting policy is `lag` iterations old. V-trace corrects the returns by clipped probability ratios. With `lag=0` the
ratios are 1, and with `lam=1` the updates are then those of `a2c`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import like, tensor, value, where
from timerl_nb.compiler.language.inputs.tensor_sources import maximum as max
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation, same_step_environment
from timerl_nb.nn.layers import orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.policy_networks import DNNBuilder, Mask


@explain_call_errors
def impala(
    env: str | Simulation = "CartPole-v1",
    *,
    lag: int = 1,
    hidden: Sequence[int] = (64, 64),
    mask: Mask | None = None,
    gamma: float = 0.99,
    lam: float = 1.0,
    rho: float = 1.0,
    c: float = 1.0,
    critic: float = 0.5,
    entropy: float = 0.01,
    lr: float = 1e-3,
    anneal: bool = True,
    max_norm: float = 0.5,
) -> Context:
    """Return the program of IMPALA: an actor-critic that learns from the steps of an older policy.

    Each of I iterations takes T steps in B environments with the parameters of `lag` iterations before, and makes one
    update. The outputs are "return", the mean over the episodes that end in an iteration (0 if there are none),
    "episodes", their number, and "loss".

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`.
        lag: the age of the acting policy in iterations; the first `lag` iterations act with the initial parameters.
        hidden: the widths of the tanh layers; actor and critic have separate networks.
        mask: a function of the observation that returns the allowed actions, such as `trl.env.TicTacToe.legal`; None allows
            all of them.
        gamma: the discount.
        lam: the λ of the returns; 1 sums all rewards up to the end of the iteration.
        rho: the truncation level of the ratio that weights a step's error. It determines the policy whose value is learnt.
        c: the truncation level of the ratio that weights later errors. It determines the speed of convergence.
        critic, entropy: the weights of the critic's loss and of the policy's entropy.
        lr: Adam's initial learning rate.
        anneal: whether the learning rate decreases linearly to 0.
        max_norm: the greatest Euclidean norm of the gradients.

    Returns:
        a context with the dimensions b, i and t; compile it with bounds for B, I and T.

    Raises:
        EnvError: the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.impala("CartPole-v1", lag=4, hidden=(32,))
        Context(b < B, i < I, t < T; ... operations)
    """
    env = same_step_environment("IMPALA", env)
    gamma, lam = number("gamma", gamma), number("lam", lam, least=0, most=1)
    rho, c = number("rho", rho, least=0), number("c", c, least=0)
    lag = integer("lag", lag, least=0)
    with Context("b", "i", "t") as ctx:
        (b, _), (i, I), (t, T) = ctx.dims
        with ctx.region("acting"):
            builder = DNNBuilder(domain=(i,)).from_env(
                env, hidden, critic="separate", init=orthogonal, gain=sqrt(2), mask=mask
            )
            dnn = builder.build()
            behaviour = dnn[max(i - lag, 0)]
            o = like(env.obs_space, domain=(b, i, t)).named("o")
            a = behaviour.sample(o).named("a")
            o[b, 0, 0] = env.reset(domain=(b,))
            step = env.step(a)
            o[b, i + 1, 0] = step.obs[b, i, T - 1]
            o[b, i, t + 1], r, done = step.obs, step.reward.named("r"), step.done
        with ctx.region("learning"):
            dist, v = dnn(o), dnn.value(o).named("v")
            log_prob, baseline = dist.log_prob(a), v.detach()
            ratio = (log_prob - behaviour.log_prob(a)).exp().detach().named("ratio")
            next_value = where(step.terminated, 0.0, dnn.value(step.final_obs).detach())
            td_error = r + gamma * next_value - baseline
            clipped_rho, discounted_c = min(ratio, rho), gamma * lam * min(ratio, c)
            correction = tensor((), domain=(b, i, t)).named("correction")  # V-trace target minus V
            next_correction = where(done, 0.0, correction[b, i, min(t + 1, T - 1)])
            correction[t == T - 1] = clipped_rho * td_error
            correction[t < T - 1] = clipped_rho * td_error + discounted_c * next_correction
            next_correction = where(value(t) < value(T - 1), next_correction, 0.0)
            advantage = clipped_rho * (td_error + gamma * next_correction)
            value_error = v - (correction + baseline)
            value_loss = 0.5 * value_error.square()
            step_loss = critic * value_loss - log_prob * advantage - entropy * dist.entropy()
            loss = step_loss.mean(over=(b, t))
            loss.backward()
            lr_decay = 1.0 - value(i).floating() / value(I).floating()
            rate = lr * lr_decay if anneal else lr
            Adam(dnn.params, lr=rate, eps=1e-5, max_norm=max_norm).step()
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=(i, t))
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
    return ctx
