"""Deep deterministic policy gradients with a replay window. Source: Lillicrap et al. 2016."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod, sqrt

from timerl_nb.compiler.language.argument_checks import integer, number, numbers, widths
from timerl_nb.compiler.language.inputs.tensor_sources import (
    concat,
    like,
    random_normal,
    tensor,
    value,
    where,
)
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation
from timerl_nb.env.spaces import Box
from timerl_nb.nn.layers import MLP, orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.off_policy_actions import continuing, flatten_observations, scale_actions
from timerl_nb.rl.replay_window import window
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import Remembered


def ddpg(
    env: str | Simulation = "Pendulum-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    length: int = 10_000,
    batch: int = 32,
    steps: int = 1,
    alpha: float | None = None,
    beta: float = 0.4,
    gamma: float = 0.99,
    lr: tuple[float, float] = (1e-3, 1e-3),
    share: float = 0.005,
    noise: tuple[float, float, int] = (1.0, 0.1, 5_000),
    lasting: float = 0.0,
    after: int = 500,
) -> Context:
    """Return the program of DDPG with replay from the program's own past steps.

    It takes T steps in each of B environments, with one update of actor and critic per step from `after` on. The
    outputs over t are "return", the mean over the episodes that end at t (0 if there are none), "episodes", their
    number, and "loss", the critic's.

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`, with actions in a box.
        hidden: the widths of the tanh layers of actor and critic.
        length, batch, steps, alpha, beta, gamma: as for `dqn`.
        lr: Adam's initial learning rates of actor and critic; they decrease linearly to 0.
        share: the fraction by which the target networks approach the networks at each step.
        noise: (first, last, steps): the standard deviation of the exploration noise, in halves of the box. It changes
            linearly from `first` to `last` over `steps` steps.
        lasting: the correlation of consecutive noise; 0.85 resembles an Ornstein-Uhlenbeck process.
        after: the first step with an update.

    Returns:
        a context with the dimensions b and t; compile it with bounds for B and T.

    Raises:
        EnvError: the actions are not in a box, or the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.ddpg("Pendulum-v1", length=1_000)
        Context(b < B, t < T...; ... operations)
    """
    env, box = continuing("DDPG", env, Box)
    hidden = widths("hidden", hidden)
    steps = integer("steps", steps, least=1, most=10_000)
    gamma = number("gamma", gamma, least=0, most=1)
    first, last, until = numbers("noise", noise, (0, inf), (0, inf), (1, inf))
    at_first = numbers("lr", lr, (0, inf), (0, inf))
    lasting = number("lasting", lasting, least=0, most=1)
    width, actions = prod(env.obs_space.shape), prod(box.shape)
    with Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims

        def flat(x: RecurrentTensor) -> RecurrentTensor:
            return flatten_observations(x, env.obs_space)

        def acts(network: MLP, seen: RecurrentTensor) -> RecurrentTensor:
            return network(seen).tanh()

        def worth_of(network: MLP, seen: RecurrentTensor, did: RecurrentTensor) -> RecurrentTensor:
            return network(concat([seen, did], axis=-1)).take(0, -1)

        with ctx.region("acting"):
            how = {"domain": (t,), "init": orthogonal}
            actor = MLP((width, *hidden, actions), name="actor", **how)
            critic = MLP((width + actions, *hidden, 1), name="critic", **how)
            o = like(env.obs_space, domain=(b, t)).named("o")
            o[b, 0] = env.reset(domain=(b,))
            fresh = random_normal((actions,), domain=(b, t))
            off = tensor((actions,), domain=(b, t)).named("off")
            off[b, 0] = fresh[b, 0]
            off[b, t + 1] = lasting * off + sqrt(1 - lasting**2) * fresh[b, t + 1]
            explores = first + (last - first) * min(value(t).floating() / until, 1.0)
            a = (acts(actor, flat(o)) + explores * off).clip(-1.0, 1.0).detach().named("a")
            step = env.step(scale_actions(a, box))
            o[b, t + 1] = step.obs
        with ctx.region("replay"):
            memory = window(length, over=t, steps=steps)
            past = Remembered(memory, batch, domain=(b, t), alpha=alpha, beta=beta)
            seen, did = flat(past.starts(o)), past.starts(a)
            gain, later, worth = past.returns(step, gamma)
        with ctx.region("learning"):
            target, judge = Target(actor), Target(critic)
            later = flat(later)
            goal = gain + worth * worth_of(judge.network, later, acts(target.network, later))
            error = goal.detach() - worth_of(critic, seen, did)
            loss = (past.weight * error.square()).mean(axis=0).mean(over=b)
            loss.backward()
            still = critic.with_values([p.detach() for p in critic.params])
            better = worth_of(still, seen, acts(actor, seen)).mean(axis=0).mean(over=b)
            (-better).backward()
            left = 1.0 - value(t).floating() / value(T).floating()
            rates = [where(value(t) >= after, rate * left, 0.0) for rate in at_first]
            Adam(actor.params, lr=rates[0]).step()
            Adam(critic.params, lr=rates[1]).step()
            for one in (target, judge):
                one.approach(share)
            past.update(error)
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=t)
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
    return ctx
