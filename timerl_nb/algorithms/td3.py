"""Twin delayed deep deterministic policy gradients with a replay window. Source: Fujimoto et al. 2018.

TD3 is DDPG with three changes: the smaller value of two critics is the target, the target's actions are noisy, and the
actor and all target networks change at every second step only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from timerl_nb.compiler.language.argument_checks import integer, number, numbers, widths
from timerl_nb.compiler.language.inputs.tensor_sources import (
    concat,
    like,
    random_normal,
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
from timerl_nb.rl.off_policy_actions import (
    continuing,
    flatten_observations,
    scale_actions,
    uniform_actions,
)
from timerl_nb.rl.replay_window import window
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import Remembered


def td3(
    env: str | Simulation = "Pendulum-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    length: int = 10_000,
    batch: int = 32,
    steps: int = 1,
    gamma: float = 0.99,
    lr: tuple[float, float] = (1e-3, 1e-3),
    share: float = 0.005,
    noise: float = 0.1,
    target_noise: tuple[float, float] = (0.2, 0.5),
    delay: int = 2,
    after: int = 500,
) -> Context:
    """Return the program of TD3 with replay from the program's own past steps.

    It takes T steps in each of B environments, with one update of both critics per step from `after` on. Before, actions
    are uniform. The outputs over t are "return", the mean over the episodes that end at t (0 if there are none),
    "episodes", their number, and "loss", that of the critics.

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`, with actions in a box.
        hidden: the widths of the tanh layers of actor and critics.
        length, batch, steps, gamma: as for `dqn`.
        lr: Adam's learning rates of actor and critics.
        share: the fraction by which the target networks approach the networks.
        noise: the standard deviation of the exploration noise, in halves of the box.
        target_noise: the standard deviation of the noise of the target's actions, and its greatest size.
        delay: the number of steps between two changes of the actor and of the target networks.
        after: the first step with an update.

    Returns:
        a context with the dimensions b and t; compile it with bounds for B and T.

    Raises:
        EnvError: the actions are not in a box, or the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.td3("Pendulum-v1", length=1_000)
        Context(b < B, t < T...; ... operations)
    """
    env, box = continuing("TD3", env, Box)
    hidden = widths("hidden", hidden)
    steps = integer("steps", steps, least=1, most=10_000)
    delay, after = integer("delay", delay, least=1), integer("after", after, least=0)
    gamma = number("gamma", gamma, least=0, most=1)
    noise = number("noise", noise, least=0)
    spread, most = numbers("target_noise", target_noise, (0, inf), (0, inf))
    rates = numbers("lr", lr, (0, inf), (0, inf))
    width, actions = prod(env.obs_space.shape), prod(box.shape)
    with Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        learns = value(t) >= after
        changes = learns & (value(t) % delay == 0)

        def flat(x: RecurrentTensor) -> RecurrentTensor:
            return flatten_observations(x, env.obs_space)

        def value_of(critic: MLP, seen: RecurrentTensor, did: RecurrentTensor) -> RecurrentTensor:
            return critic(concat([seen, did], axis=-1)).take(0, -1)

        with ctx.region("acting"):
            how = {"domain": (t,), "init": orthogonal}
            actor = MLP((width, *hidden, actions), name="actor", **how)
            critics = [
                MLP((width + actions, *hidden, 1), name=f"critic{k}", **how) for k in range(2)
            ]
            o = like(env.obs_space, domain=(b, t)).named("o")
            o[b, 0] = env.reset(domain=(b,))
            explores = actor(flat(o)).tanh() + noise * random_normal((actions,), domain=(b, t))
            drawn = uniform_actions(box, (b, t))
            a = where(learns, explores.clip(-1.0, 1.0), drawn).detach().named("a")
            step = env.step(scale_actions(a, box))
            o[b, t + 1] = step.obs
        with ctx.region("replay"):
            past = Remembered(window(length, over=t, steps=steps), batch, domain=(b, t))
            seen, did = flat(past.starts(o)), past.starts(a)
            gain, later, discount = past.returns(step, gamma)
        with ctx.region("learning"):
            target, judges = Target(actor), [Target(one) for one in critics]
            off = (spread * random_normal((batch, actions), domain=(b, t))).clip(-most, most)
            later = flat(later)
            then = (target.network(later).tanh() + off).clip(-1.0, 1.0)
            first, second = (value_of(one.network, later, then) for one in judges)
            goal = (gain + discount * min(first, second)).detach().named("goal")
            errors = [goal - value_of(one, seen, did) for one in critics]
            loss = (errors[0].square() + errors[1].square()).mean(axis=0).mean(over=b)
            loss.backward()
            fixed = critics[0].with_values([p.detach() for p in critics[0].params])
            better = value_of(fixed, seen, actor(seen).tanh()).mean(axis=0).mean(over=b)
            (-better).backward()
            Adam(actor.params, lr=rates[0], when=changes).step()
            Adam([p for one in critics for p in one.params], lr=rates[1], when=learns).step()
            for one in (target, *judges):
                one.approach(where(changes, share, 0.0))
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=t)
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
    return ctx
