"""Recurrent deep Q-learning from replayed sequences, R2D2. Source: Kapturowski et al. 2019.

R2D2 is double DQN with a recurrent network. Each iteration adds a sequence of T steps per environment to the replay
window, with the network's states. An update reads the stored state `burn_in` steps before the beginning of a sampled
sequence. From there, it computes the state at the beginning with the current parameters (burn-in).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from timerl_nb.compiler.language.argument_checks import integer, number, numbers, widths
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import (
    like,
    random_uniform,
    tensor,
    value,
    where,
    zeros,
)
from timerl_nb.compiler.language.inputs.tensor_sources import maximum as max
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation
from timerl_nb.env.spaces import Discrete
from timerl_nb.optim import Adam
from timerl_nb.optim.schedules import linear
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.off_policy_actions import (
    flatten,
    greedy_action,
    off_policy_environment,
    random_action,
)
from timerl_nb.rl.policy_networks import Mask, check_mask
from timerl_nb.rl.recurrent_q_network import RecurrentQNetwork
from timerl_nb.rl.replay_window import window
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import SampledTransitions

Network, Tensor = RecurrentQNetwork, RecurrentTensor
Pair = tuple[Tensor, Tensor]


@explain_call_errors
def r2d2(
    env: str | Simulation = "TMaze",
    *,
    hidden: Sequence[int] = (32,),
    mask: Mask | None = None,
    state_size: int = 32,
    buffer_size: int = 500,
    batch: int = 4,
    burn_in: int = 8,
    steps: int = 5,
    alpha: float | None = None,
    beta: float = 0.4,
    eta: float = 0.9,
    gamma: float = 0.99,
    lr: float = 2e-3,
    target_every: int = 50,
    epsilon: tuple[float, float, int] = (1.0, 0.01, 400),
    learning_starts: int = 20,
    max_norm: float = 10.0,
) -> Context:
    """Return the program of R2D2 with a replay window of the program's own past sequences.

    Each iteration takes T steps in each of B environments. Iterations from `learning_starts` on also make one update. T is the
    length of the sequences, so gradients flow back through at most T steps. The outputs over i are "return", the mean
    over the episodes that end in the iteration (0 if there are none), "episodes", their number, and "loss".

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`, with discrete actions.
        hidden: the widths of the tanh layers before the GRU.
        mask: a function of observations that returns the allowed actions, such as `trl.env.TicTacToe.legal`.
            Observations may have a leading axis, of a batch of samples. None allows all actions.
        state_size: the size of the GRU's state.
        buffer_size: the number of sequences per environment in the replay window.
        batch: the number of sequences drawn per environment and update.
        burn_in: the number of burn-in steps before a sequence, at most T; 0 begins with the stored state.
        steps: the number n of rewards in an n-step return; returns end at the end of a sequence.
        alpha, beta: as for `dqn`. The error of a sequence is `eta` times the greatest absolute TD error of its steps,
            plus `1 - eta` times their mean.
        eta: the weight of the greatest error.
        gamma: the discount factor.
        lr: Adam's initial learning rate; it decreases linearly to 0.
        target_every: the number of iterations between copies of the parameters into the target network.
        epsilon: (first, last, iterations): the probability of a random action. It changes linearly from `first` to
            `last` over `iterations` iterations.
        learning_starts: the first iteration with an update, at least 1.
        max_norm: the greatest Euclidean norm of the gradients.

    Returns:
        a context with the dimensions b, i and t; compile it with bounds for B, I and T.

    Raises:
        EnvError: the actions are not discrete, or the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.r2d2("TMaze", buffer_size=100)
        Context(b < B, i < I, t < T; ... operations)
    """
    env, act_space = off_policy_environment("R2D2", env, Discrete)
    hidden = widths("hidden", hidden)
    check_mask(mask, env)
    steps, burn_in = (
        integer("steps", steps, least=1, most=1_000),
        integer("burn_in", burn_in, least=0),
    )
    state_size = integer("state_size", state_size, least=1)
    learning_starts = integer("learning_starts", learning_starts, least=1)
    actions, gamma = act_space.n, number("gamma", gamma, least=0, most=1)
    eta = number("eta", eta, least=0, most=1)
    first, last, epsilon_steps = numbers("epsilon", epsilon, (0, 1), (0, 1), (1, inf))
    with Context("b", "i", "t") as ctx:
        (b, _), (i, I), (t, T) = ctx.dims
        with ctx.region("acting"):
            inputs = prod(env.obs_space.shape)
            q = RecurrentQNetwork(inputs, hidden, state_size, actions, domain=(i,))
            o = like(env.obs_space, domain=(b, i, t)).named("o")
            h = tensor((state_size,), domain=(b, i, t)).named("h")
            o[b, 0, 0], h[b, 0, 0] = env.reset(domain=(b,)), zeros((state_size,))
            state = q.next_state(h, flatten(o, env.obs_space))
            exploration_rate = linear(i, first, last, int(epsilon_steps))
            random = random_action(actions, mask, o, (b, i, t))
            explores = random_uniform((), domain=(b, i, t)) < exploration_rate
            a = where(explores, random, greedy_action(q(state), mask, o)).named("a")
            step = env.step(a)
            next_h = where(step.done, 0.0, state).detach()
            o[b, i + 1, 0], h[b, i + 1, 0] = step.obs[b, i, T - 1], next_h[b, i, T - 1]
            o[b, i, t + 1], h[b, i, t + 1] = step.obs, next_h
        with ctx.region("replay"):
            buffer = window(buffer_size, over=i, steps=2)  # a sequence and the one before it
            sample = SampledTransitions(buffer, batch, domain=(b, i), alpha=alpha, beta=beta)
            obs, action, reward = (sample.ends(x) for x in (o, a, step.reward))
            done, terminated = sample.ends(step.done), sample.ends(step.terminated)
            final_obs = sample.ends(step.final_obs)
            burn_in_obs, burn_in_done = sample.starts(o), sample.starts(step.done)
            if burn_in:
                stored_state = sample.starts(h[b, i, max(T - burn_in, 0)])
            else:
                stored_state = sample.ends(h[b, i, 0])

        def unroll(
            network: Network, start: Tensor, obs: Tensor, done: Tensor, first: Any, name: str
        ) -> Pair:
            """Return the state after each observation, and the initial state of the following sequence.

            The recurrence begins at step `first` from the state `start`; `name` is a prefix of labels.
            """
            h = tensor((batch, state_size), domain=(b, i, t)).named(f"{name}_h")
            state = network.next_state(h, flatten(obs, env.obs_space)).named(f"{name}_state")
            next_h = where(done.unsqueeze(-1), 0.0, state).named(f"{name}_next_h")
            h[b, i, 0] = start
            h[b, i, t + 1] = where(value(t) < first, start, next_h)
            return state, next_h[b, i, T - 1]

        def states(network: Network, name: str) -> Tensor:
            h = stored_state
            if burn_in:
                begin = value(T) - burn_in
                _, h = unroll(network, h, burn_in_obs, burn_in_done, begin, f"{name}_burn_in")
            return unroll(network, h.detach(), obs, done, 0, name)[0]

        with ctx.region("learning"):
            target_q = Target(q)
            target_network = target_q.network
            state, target_state = states(q, "online"), states(target_network, "target")
            flat_final_obs = flatten(final_obs, env.obs_space)
            next_state = q.next_state(state, flat_final_obs)
            next_target_state = target_network.next_state(target_state, flat_final_obs)
            next_action = greedy_action(q(next_state), mask, final_obs)
            next_values = target_network(next_target_state)
            next_value = (next_values * next_action.one_hot(actions)).sum(axis=-1)
            one_step = (reward + where(terminated, 0.0, gamma * next_value)).named("one_step")
            is_last = done | (value(t) == value(T) - 1)
            target = one_step = one_step.detach()
            for k in range(2, steps + 1):
                target = where(is_last, one_step, reward + gamma * target[b, i, min(t + 1, T - 1)])
                target = target.named(f"target_{k}_steps")
            td_error = target - (q(state) * action.one_hot(actions)).sum(axis=-1)
            size = abs(td_error)
            huber = where(size < 1.0, 0.5 * td_error.square(), size - 0.5)
            loss = (sample.weight * huber.mean(over=t)).mean(axis=0).mean(over=b)
            loss.backward()
            lr_decay = 1.0 - value(i).floating() / value(I).floating()
            learns = value(i) >= learning_starts
            Adam(q.params, lr=lr * lr_decay, max_norm=max_norm, when=learns).step()
            target_q.hard_update(target_every)
            sample.update(eta * size.max(over=t) + (1.0 - eta) * size.mean(over=t))
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=(i, t))
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
    return ctx
