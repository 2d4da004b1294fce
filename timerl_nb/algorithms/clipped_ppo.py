"""Proximal policy optimisation with epochs of minibatches and clipped ratios. Source: Schulman et al. 2017.

Episodes continue across iterations. Parameters vary over iterations, epochs and minibatches and change along all
three; acting reads their values before an iteration's first minibatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

from timerl_nb.base.errors import BoundsError, ShapeError
from timerl_nb.compiler.language.argument_checks import is_whole, number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import (
    concat,
    like,
    random_bits,
    tensor,
    value,
    where,
)
from timerl_nb.compiler.language.inputs.tensor_sources import maximum as max
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation, same_step_environment
from timerl_nb.nn.layers import orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.policy_networks import DNNBuilder, Mask


@explain_call_errors
def clipped_ppo(
    env: str | Simulation = "CartPole-v1",
    *,
    epochs: int = 4,
    minibatches: int = 4,
    hidden: Sequence[int] = (64, 64),
    mask: Mask | None = None,
    gamma: float = 0.99,
    lam: float = 0.95,
    clip: float = 0.2,
    value_clip: float | None = 0.2,
    target_kl: float | None = None,
    critic: float = 0.5,
    entropy: float = 0.01,
    lr: float = 2.5e-4,
    anneal: bool = True,
    max_norm: float = 0.5,
) -> Context:
    """Return the program of PPO with clipped ratios.

    Each of I iterations takes T steps in B environments, then makes `epochs` * `minibatches` updates. The outputs are
    "return", the mean over the episodes that end in an iteration (0 if there are none), "episodes", their number, "loss",
    and with `target_kl` "updates", the number of updates made. `minibatches` must divide B * T. Returns bootstrap
    from the critic after the last step of an iteration, and after a time limit.

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`.
        epochs: the number of passes over an iteration's steps, each in a new random order.
        minibatches: the number of minibatches per pass.
        hidden: the widths of the tanh layers; actor and critic have separate networks.
        mask: a function of the observation that returns the allowed actions, such as `trl.env.TicTacToe.legal`; None allows
            all of them.
        gamma, lam: the discount, and the λ of generalised advantage estimation (Schulman et al. 2016).
        clip: the greatest change of probability ratios in the loss.
        value_clip: the greatest change of values in the critic's loss; None for no limit.
        target_kl: the updates of an iteration stop before the first minibatch whose approximate KL divergence from the
            acting policy exceeds 1.5 times this value; None for no limit. The approximation is the mean of
            ratio - 1 - log ratio. Skipped updates are still computed.
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
        >>> trl.algorithms.clipped_ppo("CartPole-v1", epochs=2)
        Context(b < B, i < I, t < T, e < E, j < J, m < M; ... operations)
    """
    env = same_step_environment("clipped PPO", env)
    gamma, lam = number("gamma", gamma), number("lam", lam, least=0, most=1)
    clip = number("clip", clip, least=0)
    if value_clip is not None:
        value_clip = number("value_clip", value_clip, least=0)
    if target_kl is not None:
        target_kl = number("target_kl", target_kl, least=0)
    if not all(is_whole(n) and n > 0 for n in (epochs, minibatches)):
        raise ShapeError(
            f"epochs and minibatches must be positive integers, not {epochs!r} and {minibatches!r}.",
            hint="write epochs=4, minibatches=4.",
        )

    epochs, minibatches = int(epochs), int(minibatches)

    def minibatch_size(bounds: Mapping[str, int]) -> int:
        steps = bounds["B"] * bounds["T"]
        if steps % minibatches:
            raise BoundsError(
                f"B * T = {steps} steps do not divide into {minibatches} minibatches.",
                hint="choose B and T with a product divisible by minibatches.",
            )
        return steps // minibatches

    with Context("b", "i", "t", "e", "j", "m") as ctx:
        (b, B), (i, I), (t, T), (e, E), (j, J), (m, M) = ctx.dims
        ctx.fix(E, epochs)
        ctx.fix(J, minibatches)
        ctx.fix(M, minibatch_size)
        with ctx.region("acting"):
            builder = DNNBuilder(domain=(i, e, j)).from_env(
                env, hidden, critic="separate", init=orthogonal, gain=sqrt(2), mask=mask
            )
            dnn = builder.build()
            old = dnn[i, 0, 0]
            o = like(env.obs_space, domain=(b, i, t)).named("o")
            a = old.sample(o).named("a")
            o[b, 0, 0] = env.reset(domain=(b,))
            step = env.step(a)
            o[b, i + 1, 0] = step.obs[b, i, T - 1]
            o[b, i, t + 1], r = step.obs, step.reward.named("r")
        with ctx.region("advantages"):
            v = old.value(o).named("v")
            next_value = where(step.terminated, 0.0, old.value(step.final_obs))
            td_error = r + gamma * next_value - v
            advantage = tensor((), domain=(b, i, t)).named("advantage")
            next_advantage = where(step.done, 0.0, advantage[b, i, min(t + 1, T - 1)])
            advantage[t == T - 1] = td_error
            advantage[t < T - 1] = td_error + gamma * lam * next_advantage
        with ctx.region("minibatches"):
            bits = random_bits((minibatches,), domain=(i, e, m))[i, e, 0:M]
            order = concat([bits.take(k, axis=1) for k in range(minibatches)]).argsort()
            index = order.take(m * minibatches + j).named("index")
            t_index, b_index = index % value(T), index // value(T)

            def minibatch(x: RecurrentTensor) -> RecurrentTensor:
                return x.detach()[0:B, i, 0:T].take(t_index, axis=1).take(b_index)

            obs, action, old_log_prob, old_value = map(minibatch, (o, a, old.log_prob(a), v))
            sampled = minibatch(advantage)
            target = sampled + old_value
            normalized = (sampled - sampled.mean(over=m)) / (sampled.std(over=m) + 1e-8)
        with ctx.region("learning"):
            dist, new_value = dnn(obs), dnn.value(obs)
            log_ratio = dist.log_prob(action) - old_log_prob
            ratio = log_ratio.exp()
            surrogate = min(ratio * normalized, ratio.clip(1 - clip, 1 + clip) * normalized)
            squared_error = (new_value - target).square()
            if value_clip is not None:
                clipped_value = old_value + (new_value - old_value).clip(-value_clip, value_clip)
                squared_error = max(squared_error, (clipped_value - target).square())
            value_loss = 0.5 * squared_error
            step_loss = critic * value_loss - surrogate - entropy * dist.entropy()
            loss = step_loss.mean(over=m)
            loss.backward()
            is_updated = None
            if target_kl is not None:
                stopped = tensor((), "bool", domain=(i, e, j)).named("stopped")
                approx_kl = (ratio - 1.0 - log_ratio).detach().mean(over=m)
                stop = stopped | (approx_kl > 1.5 * target_kl)
                stopped[i, 0, 0] = False
                stopped[i, e + 1, 0] = stop[i, e, J - 1]
                stopped[i, e, j + 1] = stop
                is_updated = ~stop
                ctx.output("updates", is_updated.sum(over=(e, j)))
            lr_decay = 1.0 - value(i).floating() / value(I).floating()
            rate = lr * lr_decay if anneal else lr
            settings = {"eps": 1e-5, "max_norm": max_norm, "along": (i, e, j), "when": is_updated}
            Adam(dnn.params, lr=rate, **settings).step()
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=(i, t))
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss.mean(over=(e, j)))
    return ctx
