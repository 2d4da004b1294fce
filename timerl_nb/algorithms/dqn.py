"""Deep Q-learning with a replay window (Mnih et al. 2015).

Options: double Q-learning (van Hasselt et al. 2016), multi-step returns, prioritised replay (Schaul et al. 2016),
dueling streams (Wang et al. 2016), and distributions over returns, C51 (Bellemare et al. 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod

from timerl_nb.compiler.language.argument_checks import integer, number, numbers, widths
from timerl_nb.compiler.language.inputs.tensor_sources import (
    constant,
    like,
    random_uniform,
    value,
    where,
)
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation
from timerl_nb.env.spaces import Discrete
from timerl_nb.optim import Adam
from timerl_nb.rl.categorical_returns import Support
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.off_policy_actions import (
    best_action,
    continuing,
    flatten_observations,
    random_action,
)
from timerl_nb.rl.policy_networks import Mask, check_mask
from timerl_nb.rl.q_network import QNetwork
from timerl_nb.rl.replay_window import window
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import Remembered


def dqn(
    env: str | Simulation = "CartPole-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    mask: Mask | None = None,
    length: int = 5_000,
    batch: int = 16,
    steps: int = 10,
    double: bool = True,
    dueling: bool = False,
    atoms: int | None = None,
    support: tuple[float, float] = (0.0, 100.0),
    alpha: float | None = None,
    beta: float = 0.4,
    gamma: float = 0.99,
    lr: float = 2e-3,
    target_every: int = 500,
    epsilon: tuple[float, float, int] = (1.0, 0.01, 3_000),
    after: int = 500,
    max_norm: float = 10.0,
    scale: Sequence[float] | None = None,
) -> Context:
    """Return the program of DQN with replay from the program's own past steps.

    It takes T steps in each of B environments, with one update per step from `after` on. The outputs over t are
    "return", the mean over the episodes that end at t (0 if there are none), "episodes", their number, and "loss".

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`.
        hidden: the widths of the tanh layers.
        mask: a function of observations that returns the allowed actions, such as `trl.env.TicTacToe.legal`; axes of draws
            may come first. None allows all actions.
        length: the number of steps per environment in the replay window.
        batch: the number of steps drawn per environment and update.
        steps: the number of rewards in a return.
        double: choose the next action by the network and evaluate it by the target network.
        dueling: a dueling network, with separate streams for the value of an observation and the actions' advantages.
        atoms: the number of atoms of the return distribution of each action (C51). Loss and priority are then its
            cross-entropy. None learns mean returns.
        support: the smallest and the greatest atom; choose them by the environment's returns with `gamma`.
        alpha: draw steps with probabilities proportional to `(|error| + 1e-3)**alpha`; None draws uniformly.
        beta: the exponent of the importance weights that correct this; 1 is the full correction.
        gamma: the discount.
        lr: Adam's initial learning rate; it decreases linearly to 0.
        target_every: the number of steps between copies of the network to its target.
        epsilon: (first, last, steps): the probability of a random action. It changes linearly from `first` to `last`
            over `steps` steps.
        after: the first step with an update.
        max_norm: the greatest Euclidean norm of the gradients.
        scale: factors of the observations; use them if some components vary much less than others.

    Returns:
        a context with the dimensions b and t; compile it with bounds for B and T.

    Raises:
        EnvError: the actions are not discrete, or the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.dqn("CartPole-v1", length=1_000)
        Context(b < B, t < T...; ... operations)
    """
    env, choices = continuing("DQN", env, Discrete)
    hidden = widths("hidden", hidden)
    check_mask(mask)
    steps = integer("steps", steps, least=1, most=10_000)
    actions, gamma = choices.n, number("gamma", gamma, least=0, most=1)
    first, last, until = numbers("epsilon", epsilon, (0, 1), (0, 1), (1, inf))
    low, high = numbers("support", support, (-inf, inf), (-inf, inf))
    returned = None if atoms is None else Support(low, high, atoms)
    if scale is not None:
        scale = numbers("scale", scale, *[(-inf, inf)] * prod(env.obs_space.shape[-1:]))
    with Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims

        def mean(found: RecurrentTensor) -> RecurrentTensor:
            return found if returned is None else returned.mean(found)

        def pick(found: RecurrentTensor, action: RecurrentTensor) -> RecurrentTensor:
            which = action.one_hot(actions)
            if returned is None:
                return (found * which).sum(axis=-1)
            return (found * which.unsqueeze(-1)).sum(axis=-2)

        def flat(x: RecurrentTensor) -> RecurrentTensor:
            return flatten_observations(x, env.obs_space)

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
            explores = first + (last - first) * min(value(t).floating() / until, 1.0)
            drawn = random_action(actions, mask, o, (b, t))
            best = best_action(mean(q(flat(o))), mask, o)
            a = where(random_uniform((), domain=(b, t)) < explores, drawn, best).named("a")
            step = env.step(a)
            o[b, t + 1] = _scale_observations(step.obs, scale)
            step = replace(step, final_obs=_scale_observations(step.final_obs, scale))
        with ctx.region("replay"):
            memory = window(length, over=t, steps=steps)
            past = Remembered(memory, batch, domain=(b, t), alpha=alpha, beta=beta)
            seen, did = flat(past.starts(o)), past.starts(a)
            gain, later, worth = past.returns(step, gamma)
        with ctx.region("learning"):
            target = Target(q)
            then = target.network(flat(later))
            which = best_action(mean(q(flat(later)) if double else then), mask, later)
            then, now = pick(then, which), pick(q(seen), did)
            if returned is None:
                goal = (gain + worth * then).detach()
                error = goal - now
                size = abs(error)
                regret = where(size < 1.0, 0.5 * error.square(), size - 0.5)
            else:
                goal = returned.project(then.softmax(-1), gain, worth).detach()
                error = regret = -(goal * now.log_softmax(-1)).sum(axis=-1)
            loss = (past.weight * regret).mean(axis=0).mean(over=b)
            loss.backward()
            left = 1.0 - value(t).floating() / value(T).floating()
            rate = where(value(t) >= after, lr * left, 0.0)
            Adam(q.params, lr=rate, max_norm=max_norm).step()
            target.take_over(target_every)
            past.update(error)
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=t)
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
    return ctx


def _scale_observations(obs: RecurrentTensor, scale: Sequence[float] | None) -> RecurrentTensor:
    return obs if scale is None else obs * constant(scale, "f32")
