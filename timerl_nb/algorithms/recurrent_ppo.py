"""Clipped PPO with a recurrent policy, for tasks with memory. Source: Schulman et al. 2017; Cho et al. 2014.

The state of a GRU continues over iterations and is reset at the end of an episode. Minibatches consist of segments of
consecutive steps. A segment begins with the state of acting, and gradients flow back to its first step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt

from timerl_nb.base.errors import BoundsError
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
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


@explain_call_errors
def recurrent_ppo(
    env: str | Simulation = "TMaze",
    *,
    state_size: int = 32,
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
        state_size: the size of the unit's state.
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
        >>> trl.algorithms.recurrent_ppo("CartPole-v1", state_size=8)
        Context(b < B, i < I, t < T, e < E, j < J, m < M, k < K; ... operations)
    """
    env = same_step_environment("recurrent PPO", env)
    gamma, lam = number("gamma", gamma), number("lam", lam, least=0, most=1)
    critic, entropy = number("critic", critic), number("entropy", entropy)
    clip = number("clip", clip, least=0)
    state_size = integer("state_size", state_size, least=1)
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
            cell = GRUCell(inputs, state_size, domain=(i, e, j), name="cell")
            builder = DNNBuilder(domain=(i, e, j)).from_env(
                env, hidden, critic="separate", init=orthogonal, gain=sqrt(2), inputs=state_size
            )
            dnn = builder.build()
            old, old_cell = dnn[i, 0, 0], cell[i, 0, 0]
            o = like(env.obs_space, domain=(b, i, t)).named("o")
            h = tensor((state_size,), domain=(b, i, t)).named("h")
            state = old_cell(h, o.floating().reshape((inputs,)))
            a = old.sample(state).named("a")
            o[b, 0, 0], h[b, 0, 0] = env.reset(domain=(b,)), zeros((state_size,))
            step = env.step(a)
            o[b, i + 1, 0] = step.obs[b, i, T - 1]
            o[b, i, t + 1], r, done = step.obs, step.reward.named("r"), step.done
            next_h = where(done, 0.0, state)
            h[b, i + 1, 0] = next_h[b, i, T - 1]
            h[b, i, t + 1] = next_h
        with ctx.region("advantages"):
            v = old.value(state).named("v")
            final_state = old_cell(state, step.final_obs.floating().reshape((inputs,)))
            next_value = where(step.terminated, 0.0, old.value(final_state))
            td_error = r + gamma * next_value - v
            advantage = tensor((), domain=(b, i, t)).named("advantage")
            next_advantage = where(done, 0.0, advantage[b, i, min(t + 1, T - 1)])
            advantage[t == T - 1] = td_error
            advantage[t < T - 1] = td_error + gamma * lam * next_advantage
        with ctx.region("minibatches"):
            bits = random_bits((minibatches,), domain=(i, e, m))[i, e, 0:M]
            order = concat([bits.take(n, axis=1) for n in range(minibatches)]).argsort()
            index = order.take(m * minibatches + j).named("index")
            per_env = value(T) // segment  # segments of an environment
            first_t, b_index = index % per_env * segment, index // per_env

            def minibatch(x: RecurrentTensor, t_index: RecurrentTensor) -> RecurrentTensor:
                return x.detach()[0:B, i, 0:T].take(t_index, axis=1).take(b_index)

            obs, action, old_log_prob, old_value, sampled, is_end = (
                minibatch(x, first_t + value(k))
                for x in (o, a, old.log_prob(a), v, advantage, done)
            )
            initial_h, target = minibatch(h, first_t), sampled + old_value
            mean, std = sampled.mean(over=(m, k)), sampled.std(over=(m, k))
            normalized = (sampled - mean) / (std + 1e-8)
        with ctx.region("learning"):
            new_h = tensor((state_size,), domain=(i, e, j, m, k)).named("new_h")
            new_state = cell(new_h, obs.floating().reshape((inputs,)))
            new_h[i, e, j, m, 0] = initial_h
            new_h[i, e, j, m, k + 1] = where(is_end, 0.0, new_state)
            dist, new_value = dnn(new_state), dnn.value(new_state)
            ratio = (dist.log_prob(action) - old_log_prob).exp()
            surrogate = min(ratio * normalized, ratio.clip(1 - clip, 1 + clip) * normalized)
            value_loss = critic * 0.5 * (new_value - target).square()
            step_loss = value_loss - surrogate - entropy * dist.entropy()
            loss = step_loss.mean(over=(m, k))
            loss.backward()
            lr_decay = 1.0 - value(i).floating() / value(I).floating()
            params = [*cell.params, *dnn.params]
            Adam(
                params,
                lr=lr * lr_decay if anneal else lr,
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
