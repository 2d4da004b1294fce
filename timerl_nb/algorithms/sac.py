"""Soft actor-critic with an automatic temperature and a replay window. Source: Haarnoja et al. 2018.

The actor draws from a normal distribution mapped by tanh. Its reward includes its entropy, weighted by a temperature
that is learnt too: it rises while the entropy is below a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from timerl_nb.compiler.language.argument_checks import integer, number, numbers, widths
from timerl_nb.compiler.language.inputs.tensor_sources import (
    concat,
    like,
    parameter,
    value,
    where,
)
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.distributions.normal import TanhNormal
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation
from timerl_nb.env.spaces import Box
from timerl_nb.nn.layers import MLP, orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.off_policy_actions import (
    continuing,
    flatten_observations,
    scale_actions,
    uniform_actions,
)
from timerl_nb.rl.replay_window import window
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import Remembered


def sac(
    env: str | Simulation = "Pendulum-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    length: int = 10_000,
    batch: int = 32,
    steps: int = 1,
    gamma: float = 0.99,
    lr: tuple[float, float, float] = (1e-3, 1e-3, 1e-3),
    share: float = 0.005,
    target_entropy: float | None = None,
    lasting: float = 0.0,
    after: int = 500,
) -> Context:
    """Return the program of SAC with replay from the program's own past steps.

    It takes T steps in each of B environments, with one update of actor, both critics and temperature per step from
    `after` on. Before, actions are uniform. The outputs over t are "return", the mean over the episodes that end at t
    (0 if there are none), "episodes", their number, "loss", that of the critics, and "temperature".

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`, with actions in a box.
        hidden: the widths of the tanh layers of actor and critics.
        length, batch, steps, gamma: as for `dqn`.
        lr: Adam's learning rates of actor, critics and temperature.
        share: the fraction by which the target networks approach the critics at each step.
        target_entropy: the entropy of actions, in halves of the box, to which the temperature adapts; None for minus the
            number of their elements.
        lasting: the probability that a uniform action, before step `after`, repeats the previous action.
        after: the first step with an update.

    Returns:
        a context with the dimensions b, t and m; compile it with bounds for B and T.

    Raises:
        EnvError: the actions are not in a box, or the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.sac("Pendulum-v1", length=1_000)
        Context(b < B, t < T, m < M; ... operations)
    """
    env, box = continuing("SAC", env, Box)
    hidden = widths("hidden", hidden)
    steps, after = integer("steps", steps, least=1, most=10_000), integer("after", after, least=0)
    gamma = number("gamma", gamma, least=0, most=1)
    rates = numbers("lr", lr, (0, inf), (0, inf), (0, inf))
    width, actions = prod(env.obs_space.shape), prod(box.shape)
    entropy = (
        -float(actions) if target_entropy is None else number("target_entropy", target_entropy)
    )
    with Context("b", "t", "m") as ctx:
        (b, _), (t, _), (m, M) = ctx.dims
        ctx.fix(M, integer("batch", batch, least=1))  # the drawn transitions
        learns = value(t) >= after

        def flat(x: RecurrentTensor) -> RecurrentTensor:
            return flatten_observations(x, env.obs_space)

        def policy(seen: RecurrentTensor) -> TanhNormal:
            both = actor(seen)
            mean, log_std = (both.slice(k * actions, (k + 1) * actions, axis=-1) for k in range(2))
            return TanhNormal(mean, log_std.clip(-20.0, 2.0))

        def value_of(critic: MLP, seen: RecurrentTensor, did: RecurrentTensor) -> RecurrentTensor:
            return critic(concat([seen, did], axis=-1)).take(0, -1)

        with ctx.region("acting"):
            how = {"domain": (t,), "init": orthogonal}
            actor = MLP((width, *hidden, 2 * actions), name="actor", **how)
            critics = [
                MLP((width + actions, *hidden, 1), name=f"critic{k}", **how) for k in range(2)
            ]
            o = like(env.obs_space, domain=(b, t)).named("o")
            o[b, 0] = env.reset(domain=(b,))
            drawn = uniform_actions(box, (b, t), lasting)
            a = where(learns, policy(flat(o)).sample(), drawn).detach().named("a")
            step = env.step(scale_actions(a, box))
            o[b, t + 1] = step.obs
        with ctx.region("replay"):
            past = Remembered(window(length, over=t, steps=steps), batch, domain=(b, t))
            seen, did = flat(past.starts(o)).take(m), past.starts(a).take(m)
            gain, later, discount = (x.take(m) for x in past.returns(step, gamma))
        with ctx.region("learning"):
            log_temperature = parameter((), domain=(t,), init=0.0, name="log_temperature")
            temperature = log_temperature.exp().detach()
            judges = [Target(one) for one in critics]
            later = flat(later)
            then, likely = policy(later).rsample_and_log_prob(domain=(b, t, m))
            first, second = (value_of(one.network, later, then) for one in judges)
            soft = min(first, second) - temperature * likely
            goal = (gain + discount * soft).detach().named("goal")
            errors = [goal - value_of(one, seen, did) for one in critics]
            loss = (errors[0].square() + errors[1].square()).mean(over=(b, m))
            loss.backward()
            acts, log_prob = policy(seen).rsample_and_log_prob(domain=(b, t, m))
            fixed = [one.with_values([p.detach() for p in one.params]) for one in critics]
            worth = min(*(value_of(one, seen, acts) for one in fixed))
            (temperature * log_prob - worth).mean(over=(b, m)).backward()
            short = entropy + log_prob.detach().mean(over=(b, m))  # of the target entropy
            (-log_temperature * short).backward()
            Adam(actor.params, lr=rates[0], when=learns).step()
            Adam([p for one in critics for p in one.params], lr=rates[1], when=learns).step()
            Adam([log_temperature], lr=rates[2], when=learns).step()
            for one in judges:
                one.approach(where(learns, share, 0.0))
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=t)
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
        ctx.output("temperature", temperature)
    return ctx
