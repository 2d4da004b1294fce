"""Deep deterministic policy gradients with a replay window. Source: Lillicrap et al. 2016."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod, sqrt

from timerl_nb.compiler.language.argument_checks import integer, number, numbers, widths
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import (
    concat,
    like,
    random_normal,
    tensor,
    value,
    where,
)
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation
from timerl_nb.env.spaces import Box
from timerl_nb.nn.layers import MLP, orthogonal
from timerl_nb.optim import Adam
from timerl_nb.optim.schedules import linear
from timerl_nb.rl.episode_returns import episode_returns
from timerl_nb.rl.off_policy_actions import flatten, off_policy_environment, scale_actions
from timerl_nb.rl.replay_window import window
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import SampledTransitions


@explain_call_errors
def ddpg(
    env: str | Simulation = "Pendulum-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    buffer_size: int = 10_000,
    batch: int = 32,
    steps: int = 1,
    alpha: float | None = None,
    beta: float = 0.4,
    gamma: float = 0.99,
    lr: tuple[float, float] = (1e-3, 1e-3),
    tau: float = 0.005,
    noise: tuple[float, float, int] = (1.0, 0.1, 5_000),
    noise_correlation: float = 0.0,
    learning_starts: int = 500,
) -> Context:
    """Return the program of DDPG with a replay window of the program's own past steps.

    It takes T steps in each of B environments, with one update of actor and critic per step from `learning_starts` on. The
    outputs over t are "return", the mean over the episodes that end at t (0 if there are none), "episodes", their
    number, and "loss", the critic's.

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`, with actions in a box.
        hidden: the widths of the tanh layers of actor and critic.
        buffer_size, batch, steps, alpha, beta, gamma: as for `dqn`.
        lr: Adam's initial learning rates of actor and critic; they decrease linearly to 0.
        tau: the fraction by which the target networks approach the networks at each step.
        noise: (first, last, steps): the standard deviation of the exploration noise, for actions scaled to [-1, 1]. It
            changes linearly from `first` to `last` over `steps` steps.
        noise_correlation: the correlation of the noise of consecutive steps; 0.85 resembles an Ornstein-Uhlenbeck
            process.
        learning_starts: the first step with an update.

    Returns:
        a context with the dimensions b and t; compile it with bounds for B and T.

    Raises:
        EnvError: the actions are not in a box, or the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.ddpg("Pendulum-v1", buffer_size=1_000)
        Context(b < B, t < T...; ... operations)
    """
    env, box = off_policy_environment("DDPG", env, Box)
    hidden = widths("hidden", hidden)
    steps = integer("steps", steps, least=1, most=10_000)
    learning_starts = integer("learning_starts", learning_starts, least=0)
    gamma = number("gamma", gamma, least=0, most=1)
    first, last, noise_steps = numbers("noise", noise, (0, inf), (0, inf), (1, inf))
    actor_lr, critic_lr = numbers("lr", lr, (0, inf), (0, inf))
    rho = number("noise_correlation", noise_correlation, least=0, most=1)
    obs_size, action_size = prod(env.obs_space.shape), prod(box.shape)
    with Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims

        def mu(actor: MLP, obs: RecurrentTensor) -> RecurrentTensor:
            return actor(obs).tanh()

        def q_value(critic: MLP, obs: RecurrentTensor, action: RecurrentTensor) -> RecurrentTensor:
            return critic(concat([obs, action], axis=-1)).take(0, -1)

        with ctx.region("acting"):
            layers = {"domain": (t,), "init": orthogonal}
            actor = MLP((obs_size, *hidden, action_size), name="actor", **layers)
            critic = MLP((obs_size + action_size, *hidden, 1), name="critic", **layers)
            o = like(env.obs_space, domain=(b, t)).named("o")
            o[b, 0] = env.reset(domain=(b,))
            gaussian = random_normal((action_size,), domain=(b, t))
            action_noise = tensor((action_size,), domain=(b, t)).named("action_noise")
            action_noise[b, 0] = gaussian[b, 0]
            action_noise[b, t + 1] = rho * action_noise + sqrt(1 - rho**2) * gaussian[b, t + 1]
            noise_std = linear(t, first, last, int(noise_steps))
            explored = mu(actor, flatten(o, env.obs_space)) + noise_std * action_noise
            a = explored.clip(-1.0, 1.0).detach().named("a")
            step = env.step(scale_actions(a, box))
            o[b, t + 1] = step.obs
        with ctx.region("replay"):
            buffer = window(buffer_size, over=t, steps=steps)
            sample = SampledTransitions(buffer, batch, domain=(b, t), alpha=alpha, beta=beta)
            obs, action = flatten(sample.starts(o), env.obs_space), sample.starts(a)
            reward, next_obs, discount = sample.returns(step, gamma)
            next_obs = flatten(next_obs, env.obs_space)
        with ctx.region("learning"):
            target_actor, target_critic = Target(actor), Target(critic)
            next_action = mu(target_actor.network, next_obs)
            next_value = q_value(target_critic.network, next_obs, next_action)
            target = reward + discount * next_value
            td_error = target.detach() - q_value(critic, obs, action)
            loss = (sample.weight * td_error.square()).mean(axis=0).mean(over=b)
            loss.backward()
            fixed_critic = critic.with_values([p.detach() for p in critic.params])
            policy_value = q_value(fixed_critic, obs, mu(actor, obs)).mean(axis=0).mean(over=b)
            (-policy_value).backward()
            lr_decay = 1.0 - value(t).floating() / value(T).floating()
            learns = value(t) >= learning_starts
            Adam(actor.params, lr=actor_lr * lr_decay, when=learns).step()
            Adam(critic.params, lr=critic_lr * lr_decay, when=learns).step()
            for network in (target_actor, target_critic):
                network.soft_update(where(learns, tau, 0.0))
            sample.update(td_error)
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=t)
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
    return ctx
