"""Clipped PPO with a recurrent policy, for tasks with memory. Source: Schulman et al. 2017; Cho et al. 2014.

The state of a GRU continues over iterations and is reset at the end of an episode. Minibatches consist of segments of
consecutive steps. A segment begins with the state of acting, and gradients flow back to its first step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt

from timerl_nb.base.errors import BoundsError
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.inputs.tensor_sources import (
    concat,
    like,
    random_bits,
    tensor,
    value,
    where,
    zeros,
)
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation, same_step_environment
from timerl_nb.nn.cells import GRUCell
from timerl_nb.nn.layers import orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.policy_networks import DNNBuilder


def recurrent_ppo(
    env: str | Simulation = "TMaze",
    *,
    size: int = 32,
    segment: int = 25,
    epochs: int = 4,
    minibatches: int = 4,
    hidden: Sequence[int] = (),
    gamma: float = 0.99,
    lam: float = 0.95,
    clip: float = 0.2,
    critic: float = 0.5,
    entropy: float = 0.01,
    lr: float = 2e-3,
    anneal: bool = True,
    max_norm: float = 0.5,
) -> Context:
    """Return the program of PPO with a gated recurrent unit.

    Each of I iterations takes T steps in B environments, then makes `epochs` * `minibatches` updates from segments. The
    outputs are "return", the mean over the episodes that end in an iteration (0 if there are none), "episodes", their
    number, and "loss". `segment` must divide T, and `minibatches` must divide the number of segments.

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`.
        size: the size of the unit's state.
        segment: the number of steps of a segment, the limit of back-propagation through time.
        epochs: the number of passes over an iteration's segments, each in a new random order.
        minibatches: the number of minibatches per pass.
        hidden: the widths of the tanh layers between the state and the outputs; actor and critic have separate ones.
        gamma, lam: the discount, and the λ of generalised advantage estimation (Schulman et al. 2016).
        clip: the greatest change of probability ratios in the loss.
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
        >>> trl.algorithms.recurrent_ppo("CartPole-v1", size=8)
        Context(b < B, i < I, t < T, e < E, j < J, m < M, k < K; ... operations)
    """
    env = same_step_environment("recurrent PPO", env)
    gamma, lam = number("gamma", gamma), number("lam", lam, least=0, most=1)
    critic, entropy = number("critic", critic), number("entropy", entropy)
    clip, size = number("clip", clip, least=0), integer("size", size, least=1)
    epochs, minibatches = (
        integer("epochs", epochs, least=1),
        integer("minibatches", minibatches, least=1),
    )
    segment = integer("segment", segment, least=1)

    def segments(bounds: Mapping[str, int]) -> int:
        if bounds["T"] % segment or bounds["B"] * bounds["T"] // segment % minibatches:
            raise BoundsError(
                f"{bounds['B']} times {bounds['T']} steps do not divide into segments of {segment} steps and "
                f"{minibatches} minibatches.",
                hint="choose T divisible by segment, and B * T / segment divisible by minibatches.",
            )
        return bounds["B"] * bounds["T"] // segment // minibatches

    with Context("b", "i", "t", "e", "j", "m", "k") as ctx:
        (b, B), (i, I), (t, T), (e, E), (j, J), (m, M), (k, K) = ctx.dims
        ctx.fix(E, epochs)
        ctx.fix(J, minibatches)
        ctx.fix(M, segments)
        ctx.fix(K, segment)
        with ctx.region("acting"):
            inputs = prod(env.obs_space.shape)
            cell = GRUCell(inputs, size, domain=(i, e, j), name="cell")
            design = DNNBuilder(domain=(i, e, j)).from_env(
                env, hidden, critic="apart", init=orthogonal, gain=sqrt(2), inputs=size
            )
            dnn = design.build()
            old, move = dnn[i, 0, 0], cell[i, 0, 0]
            o = like(env.obs_space, domain=(b, i, t)).named("o")
            h = tensor((size,), domain=(b, i, t)).named("h")
            now = move(h, o.floating().reshape((inputs,)))
            a = old.sample(now).named("a")
            o[b, 0, 0], h[b, 0, 0] = env.reset(domain=(b,)), zeros((size,))
            step = env.step(a)
            o[b, i + 1, 0] = step.obs[b, i, T - 1]
            o[b, i, t + 1], r, done = step.obs, step.reward.named("r"), step.done
            left = where(done, 0.0, now)
            h[b, i + 1, 0] = left[b, i, T - 1]
            h[b, i, t + 1] = left
        with ctx.region("advantages"):
            v = old.value(now).named("v")
            beyond = old.value(move(now, step.final_obs.floating().reshape((inputs,))))
            surprise = r + gamma * where(step.terminated, 0.0, beyond) - v
            advantage = tensor((), domain=(b, i, t)).named("advantage")
            later = where(done, 0.0, advantage[b, i, min(t + 1, T - 1)])
            advantage[t == T - 1] = surprise
            advantage[t < T - 1] = surprise + gamma * lam * later
        with ctx.region("minibatches"):
            bits = random_bits((minibatches,), domain=(i, e, m))[i, e, 0:M]
            order = concat([bits.take(n, axis=1) for n in range(minibatches)]).argsort()
            row = order.take(m * minibatches + j).named("row")
            each = value(T) // segment
            first, whose = row % each * segment, row // each

            def drawn(x: RecurrentTensor, when: RecurrentTensor) -> RecurrentTensor:
                return x.detach()[0:B, i, 0:T].take(when, axis=1).take(whose)

            moments = [o, a, old.log_prob(a), v, advantage, done]
            seen, took, was, known, gain, ends = (drawn(x, first + value(k)) for x in moments)
            begin, target = drawn(h, first), gain + known
            gain = (gain - gain.mean(over=(m, k))) / (gain.std(over=(m, k)) + 1e-8)
        with ctx.region("learning"):
            state = tensor((size,), domain=(i, e, j, m, k)).named("state")
            after = cell(state, seen.floating().reshape((inputs,)))
            state[i, e, j, m, 0] = begin
            state[i, e, j, m, k + 1] = where(ends, 0.0, after)
            dist, new = dnn(after), dnn.value(after)
            ratio = (dist.log_prob(took) - was).exp()
            better = min(ratio * gain, ratio.clip(1 - clip, 1 + clip) * gain)
            lost = critic * 0.5 * (new - target).square() - better - entropy * dist.entropy()
            loss = lost.mean(over=(m, k))
            loss.backward()
            share = 1.0 - value(i).floating() / value(I).floating()
            params = [*cell.params, *dnn.params]
            Adam(
                params,
                lr=lr * share if anneal else lr,
                eps=1e-5,
                max_norm=max_norm,
                along=(i, e, j),
            ).step()
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=(i, t))
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss.mean(over=(e, j)))
    return ctx
