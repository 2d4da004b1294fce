"""Soft actor-critic with an automatic temperature and a replay window. Source: Haarnoja et al. 2018.

The actor draws from a normal distribution mapped by tanh. Its reward includes its entropy, weighted by a temperature
that is learnt too: it rises while the entropy is below a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from timerl_nb.compiler.language.argument_checks import integer, number, numbers, widths
from timerl_nb.compiler.language.foreign_names import explain_call_errors
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
    flatten,
    off_policy_environment,
    scale_actions,
    uniform_actions,
)
from timerl_nb.rl.replay_window import window
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import SampledTransitions


@explain_call_errors
def sac(
    env: str | Simulation = "Pendulum-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    buffer_size: int = 10_000,
    batch: int = 32,
    steps: int = 1,
    gamma: float = 0.99,
    lr: tuple[float, float, float] = (1e-3, 1e-3, 1e-3),
    tau: float = 0.005,
    target_entropy: float | None = None,
    repeat_probability: float = 0.0,
    learning_starts: int = 500,
) -> Context:
    """Return the program of SAC with a replay window of the program's own past steps.

    It takes T steps in each of B environments, with one update of actor, both critics and temperature per step from
    `learning_starts` on. Before, actions are uniform. The outputs over t are "return", the mean over the episodes that end at t
    (0 if there are none), "episodes", their number, "loss", that of the critics, and "temperature".

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`, with actions in a box.
        hidden: the widths of the tanh layers of actor and critics.
        buffer_size, batch, steps, gamma: as for `dqn`.
        lr: Adam's learning rates of actor, critics and temperature.
        tau: the fraction by which the target networks approach the critics at each step.
        target_entropy: the entropy to which the temperature adapts, for actions scaled to [-1, 1]. None for minus the
            number of elements of an action.
        repeat_probability: the probability that a step before `learning_starts` repeats the previous action, instead of
            a uniform draw.
        learning_starts: the first step with an update.

    Returns:
        a context with the dimensions b, t and m; compile it with bounds for B and T.

    Raises:
        EnvError: the actions are not in a box, or the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.sac("Pendulum-v1", buffer_size=1_000)
        Context(b < B, t < T, m < M; ... operations)
    """
    env, box = off_policy_environment("SAC", env, Box)
    hidden = widths("hidden", hidden)
    steps = integer("steps", steps, least=1, most=10_000)
    learning_starts = integer("learning_starts", learning_starts, least=0)
    gamma = number("gamma", gamma, least=0, most=1)
    actor_lr, critic_lr, temperature_lr = numbers("lr", lr, (0, inf), (0, inf), (0, inf))
    obs_size, action_size = prod(env.obs_space.shape), prod(box.shape)
    if target_entropy is None:
        target_entropy = -float(action_size)
    target_entropy = number("target_entropy", target_entropy)
    with Context("b", "t", "m") as ctx:
        (b, _), (t, _), (m, M) = ctx.dims
        ctx.fix(M, integer("batch", batch, least=1))  # the sampled transitions
        learns = value(t) >= learning_starts

        def policy(obs: RecurrentTensor) -> TanhNormal:
            outputs = actor(obs)
            mean = outputs.slice(0, action_size, axis=-1)
            log_std = outputs.slice(action_size, 2 * action_size, axis=-1)
            return TanhNormal(mean, log_std.clip(-20.0, 2.0))

        def q_value(critic: MLP, obs: RecurrentTensor, action: RecurrentTensor) -> RecurrentTensor:
            return critic(concat([obs, action], axis=-1)).take(0, -1)

        with ctx.region("acting"):
            layers = {"domain": (t,), "init": orthogonal}
            actor = MLP((obs_size, *hidden, 2 * action_size), name="actor", **layers)
            critics = [
                MLP((obs_size + action_size, *hidden, 1), name=f"critic{k}", **layers)
                for k in range(2)
            ]
            o = like(env.obs_space, domain=(b, t)).named("o")
            o[b, 0] = env.reset(domain=(b,))
            uniform = uniform_actions(box, (b, t), repeat_probability)
            sampled = policy(flatten(o, env.obs_space)).sample()
            a = where(learns, sampled, uniform).detach().named("a")
            step = env.step(scale_actions(a, box))
            o[b, t + 1] = step.obs
        with ctx.region("replay"):
            buffer = window(buffer_size, over=t, steps=steps)
            sample = SampledTransitions(buffer, batch, domain=(b, t))
            obs, action = flatten(sample.starts(o), env.obs_space).take(m), sample.starts(a).take(m)
            reward, next_obs, discount = (x.take(m) for x in sample.returns(step, gamma))
            next_obs = flatten(next_obs, env.obs_space)
        with ctx.region("learning"):
            log_temperature = parameter((), domain=(t,), init=0.0, name="log_temperature")
            temperature = log_temperature.exp().named("temperature").detach()
            target_critics = [Target(critic) for critic in critics]
            next_action, next_log_prob = policy(next_obs).rsample_and_log_prob(domain=(b, t, m))
            next_q1, next_q2 = (
                q_value(critic.network, next_obs, next_action) for critic in target_critics
            )
            next_value = min(next_q1, next_q2) - temperature * next_log_prob
            target = (reward + discount * next_value).named("target").detach()
            td_errors = [target - q_value(critic, obs, action) for critic in critics]
            loss = (td_errors[0].square() + td_errors[1].square()).mean(over=(b, m))
            loss.backward()
            new_action, log_prob = policy(obs).rsample_and_log_prob(domain=(b, t, m))
            fixed_critics = [c.with_values([p.detach() for p in c.params]) for c in critics]
            q = min(*(q_value(critic, obs, new_action) for critic in fixed_critics))
            (temperature * log_prob - q).mean(over=(b, m)).backward()
            entropy_error = target_entropy + log_prob.detach().mean(over=(b, m))
            (-log_temperature * entropy_error).backward()
            critic_params = [p for critic in critics for p in critic.params]
            Adam(actor.params, lr=actor_lr, when=learns).step()
            Adam(critic_params, lr=critic_lr, when=learns).step()
            Adam([log_temperature], lr=temperature_lr, when=learns).step()
            for critic in target_critics:
                critic.soft_update(where(learns, tau, 0.0))
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=t)
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
        ctx.output("temperature", temperature)
    return ctx
