"""Deep Q-learning with a replay window (Mnih et al. 2015).

Options: double Q-learning (van Hasselt et al. 2016), multi-step returns, prioritised replay (Schaul et al. 2016),
dueling streams (Wang et al. 2016), and distributions over returns, C51 (Bellemare et al. 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod

from timerl_nb.compiler.language.argument_checks import integer, number, numbers, widths
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import (
    constant,
    like,
    random_uniform,
    value,
    where,
)
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation
from timerl_nb.env.spaces import Discrete
from timerl_nb.optim import Adam
from timerl_nb.optim.schedules import linear
from timerl_nb.rl.categorical_returns import Support
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.off_policy_actions import (
    flatten,
    greedy_action,
    off_policy_environment,
    random_action,
)
from timerl_nb.rl.policy_networks import Mask, check_mask
from timerl_nb.rl.q_network import QNetwork
from timerl_nb.rl.replay_window import window
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import SampledTransitions


@explain_call_errors
def dqn(
    env: str | Simulation = "CartPole-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    mask: Mask | None = None,
    buffer_size: int = 5_000,
    batch: int = 16,
    steps: int = 10,
    double: bool = True,
    dueling: bool = False,
    atoms: int | None = None,
    support: tuple[float, float] = (0.0, 100.0),
    alpha: float | None = None,
    beta: float = 0.4,
    gamma: float = 0.99,
    lr: float = 1e-3,
    target_every: int = 250,
    epsilon: tuple[float, float, int] = (1.0, 0.01, 3_000),
    learning_starts: int = 500,
    max_norm: float = 10.0,
    scale: Sequence[float] | None = None,
) -> Context:
    """Return the program of DQN with a replay window of the program's own past steps.

    It takes T steps in each of B environments, with one update per step from `learning_starts` on. The outputs over t are
    "return", the mean over the episodes that end at t (0 if there are none), "episodes", their number, and "loss".

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`.
        hidden: the widths of the tanh layers.
        mask: a function of observations that returns the allowed actions, such as `trl.env.TicTacToe.legal`.
            Observations may have a leading axis, of a batch of samples. None allows all actions.
        buffer_size: the number of steps per environment in the replay window.
        batch: the number of steps drawn per environment and update.
        steps: the number n of rewards in an n-step return.
        double: double Q-learning: the network chooses the next action, and the target network evaluates it.
        dueling: a dueling network, with separate streams for the value of an observation and the actions' advantages.
        atoms: the number of atoms of the return distribution of each action (C51). Loss and priority are then its
            cross-entropy. None learns mean returns.
        support: the smallest and the greatest atom. Choose them to enclose the discounted returns of the environment.
        alpha: draw steps with probabilities proportional to `(|TD error| + 1e-3)**alpha`; None draws uniformly.
        beta: the exponent of the importance weights that correct for `alpha`; 1 is the full correction.
        gamma: the discount factor.
        lr: Adam's initial learning rate; it decreases linearly to 0.
        target_every: the number of steps between copies of the parameters into the target network.
        epsilon: (first, last, steps): the probability of a random action. It changes linearly from `first` to `last`
            over `steps` steps.
        learning_starts: the first step with an update.
        max_norm: the greatest Euclidean norm of the gradients.
        scale: a factor for each component of the observations; None for no scaling. Use it if some components vary much
            less than others.

    Returns:
        a context with the dimensions b and t; compile it with bounds for B and T.

    Raises:
        EnvError: the actions are not discrete, or the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.dqn("CartPole-v1", buffer_size=1_000)
        Context(b < B, t < T...; ... operations)
    """
    env, act_space = off_policy_environment("DQN", env, Discrete)
    hidden = widths("hidden", hidden)
    check_mask(mask, env)
    steps = integer("steps", steps, least=1, most=10_000)
    learning_starts = integer("learning_starts", learning_starts, least=0)
    actions, gamma = act_space.n, number("gamma", gamma, least=0, most=1)
    first, last, epsilon_steps = numbers("epsilon", epsilon, (0, 1), (0, 1), (1, inf))
    low, high = numbers("support", support, (-inf, inf), (-inf, inf))
    categorical = None if atoms is None else Support(low, high, atoms)
    if scale is not None:
        scale = numbers("scale", scale, *[(-inf, inf)] * prod(env.obs_space.shape[-1:]))
    with Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims

        def q_values(outputs: RecurrentTensor) -> RecurrentTensor:
            return outputs if categorical is None else categorical.mean(outputs)

        def of_action(outputs: RecurrentTensor, action: RecurrentTensor) -> RecurrentTensor:
            one_hot = action.one_hot(actions)
            if categorical is None:
                return (outputs * one_hot).sum(axis=-1)
            return (outputs * one_hot.unsqueeze(-1)).sum(axis=-2)

        with ctx.region("acting"):
            q = QNetwork(
                prod(env.obs_space.shape),
                hidden,
                actions,
                atoms=atoms,
                dueling=dueling,
                domain=(t,),
            )
            o = like(env.obs_space, domain=(b, t)).named("o")
            o[b, 0] = _scale_observations(env.reset(domain=(b,)), scale)
            exploration_rate = linear(t, first, last, int(epsilon_steps))
            random = random_action(actions, mask, o, (b, t))
            greedy = greedy_action(q_values(q(flatten(o, env.obs_space))), mask, o)
            explores = random_uniform((), domain=(b, t)) < exploration_rate
            a = where(explores, random, greedy).named("a")
            step = env.step(a)
            o[b, t + 1] = _scale_observations(step.obs, scale)
            step = replace(step, final_obs=_scale_observations(step.final_obs, scale))
        with ctx.region("replay"):
            buffer = window(buffer_size, over=t, steps=steps)
            sample = SampledTransitions(buffer, batch, domain=(b, t), alpha=alpha, beta=beta)
            obs, action = flatten(sample.starts(o), env.obs_space), sample.starts(a)
            reward, next_obs, discount = sample.returns(step, gamma)
        with ctx.region("learning"):
            target_q = Target(q)
            flat_next_obs = flatten(next_obs, env.obs_space)
            next_outputs = target_q.network(flat_next_obs)
            selection = q(flat_next_obs) if double else next_outputs
            next_action = greedy_action(q_values(selection), mask, next_obs)
            next_value = of_action(next_outputs, next_action)
            prediction = of_action(q(obs), action)
            if categorical is None:
                target = (reward + discount * next_value).named("target").detach()
                td_error = target - prediction
                size = abs(td_error)
                sample_loss = where(size < 1.0, 0.5 * td_error.square(), size - 0.5)  # Huber
            else:
                target = categorical.project(next_value.softmax(-1), reward, discount)
                target = target.named("target").detach()
                cross_entropy = -(target * prediction.log_softmax(-1)).sum(axis=-1)
                td_error = sample_loss = cross_entropy
            loss = (sample.weight * sample_loss).mean(axis=0).mean(over=b)
            loss.backward()
            lr_decay = 1.0 - value(t).floating() / value(T).floating()
            learns = value(t) >= learning_starts
            Adam(q.params, lr=lr * lr_decay, max_norm=max_norm, when=learns).step()
            target_q.hard_update(target_every)
            sample.update(td_error)
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=t)
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
    return ctx


def _scale_observations(obs: RecurrentTensor, scale: Sequence[float] | None) -> RecurrentTensor:
    return obs if scale is None else obs * constant(scale, "f32")
