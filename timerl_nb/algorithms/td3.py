"""Twin delayed deep deterministic policy gradients with a replay window. Source: Fujimoto et al. 2018.

TD3 is DDPG with three changes: the smaller value of two critics is the target, the target's actions are noisy, and the
actor and all target networks change at every second step only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from timerl_nb.compiler.language.argument_checks import integer, number, numbers, widths
from timerl_nb.compiler.language.foreign_names import explain_call_errors
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
    flatten,
    off_policy_environment,
    scale_actions,
    uniform_actions,
)
from timerl_nb.rl.replay_window import window
from timerl_nb.rl.target_network import Target
from timerl_nb.rl.transition_sampling import SampledTransitions


@explain_call_errors
def td3(
    env: str | Simulation = "Pendulum-v1",
    *,
    hidden: Sequence[int] = (64, 64),
    buffer_size: int = 10_000,
    batch: int = 32,
    steps: int = 1,
    gamma: float = 0.99,
    lr: tuple[float, float] = (1e-3, 1e-3),
    tau: float = 0.005,
    noise: float = 0.1,
    target_noise: tuple[float, float] = (0.2, 0.5),
    delay: int = 2,
    learning_starts: int = 500,
) -> Context:
    """Return the program of TD3 with a replay window of the program's own past steps.

    It takes T steps in each of B environments, with one update of both critics per step from `learning_starts` on. Before, actions
    are uniform. The outputs over t are "return", the mean over the episodes that end at t (0 if there are none),
    "episodes", their number, and "loss", that of the critics.

    Args:
        env: a name, or `trl.env.make(..., autoreset="same_step")`, with actions in a box.
        hidden: the widths of the tanh layers of actor and critics.
        buffer_size, batch, steps, gamma: as for `dqn`.
        lr: Adam's learning rates of actor and critics.
        tau: the fraction by which the target networks approach the networks, whenever the actor is updated.
        noise: the standard deviation of the exploration noise, for actions scaled to [-1, 1].
        target_noise: the standard deviation of the noise of the target's actions, and its greatest absolute value.
        delay: the number of steps between two updates of the actor and of the target networks.
        learning_starts: the first step with an update.

    Returns:
        a context with the dimensions b and t; compile it with bounds for B and T.

    Raises:
        EnvError: the actions are not in a box, or the environment does not reset itself in the same step.
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.td3("Pendulum-v1", buffer_size=1_000)
        Context(b < B, t < T...; ... operations)
    """
    env, box = off_policy_environment("TD3", env, Box)
    hidden = widths("hidden", hidden)
    steps = integer("steps", steps, least=1, most=10_000)
    delay = integer("delay", delay, least=1)
    learning_starts = integer("learning_starts", learning_starts, least=0)
    gamma = number("gamma", gamma, least=0, most=1)
    noise = number("noise", noise, least=0)
    target_std, noise_clip = numbers("target_noise", target_noise, (0, inf), (0, inf))
    actor_lr, critic_lr = numbers("lr", lr, (0, inf), (0, inf))
    obs_size, action_size = prod(env.obs_space.shape), prod(box.shape)
    with Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        learns = value(t) >= learning_starts
        updates_actor = learns & (value(t) % delay == 0)

        def q_value(critic: MLP, obs: RecurrentTensor, action: RecurrentTensor) -> RecurrentTensor:
            return critic(concat([obs, action], axis=-1)).take(0, -1)

        with ctx.region("acting"):
            layers = {"domain": (t,), "init": orthogonal}
            actor = MLP((obs_size, *hidden, action_size), name="actor", **layers)
            critics = [
                MLP((obs_size + action_size, *hidden, 1), name=f"critic{k}", **layers)
                for k in range(2)
            ]
            o = like(env.obs_space, domain=(b, t)).named("o")
            o[b, 0] = env.reset(domain=(b,))
            action_noise = noise * random_normal((action_size,), domain=(b, t))
            explored = actor(flatten(o, env.obs_space)).tanh() + action_noise
            uniform = uniform_actions(box, (b, t))
            a = where(learns, explored.clip(-1.0, 1.0), uniform).detach().named("a")
            step = env.step(scale_actions(a, box))
            o[b, t + 1] = step.obs
        with ctx.region("replay"):
            buffer = window(buffer_size, over=t, steps=steps)
            sample = SampledTransitions(buffer, batch, domain=(b, t))
            obs, action = flatten(sample.starts(o), env.obs_space), sample.starts(a)
            reward, next_obs, discount = sample.returns(step, gamma)
            next_obs = flatten(next_obs, env.obs_space)
        with ctx.region("learning"):
            target_actor, target_critics = Target(actor), [Target(critic) for critic in critics]
            smoothing = target_std * random_normal((batch, action_size), domain=(b, t))
            smoothing = smoothing.clip(-noise_clip, noise_clip)
            next_action = (target_actor.network(next_obs).tanh() + smoothing).clip(-1.0, 1.0)
            next_q1, next_q2 = (
                q_value(critic.network, next_obs, next_action) for critic in target_critics
            )
            next_value = min(next_q1, next_q2)
            target = (reward + discount * next_value).named("target").detach()
            td_errors = [target - q_value(critic, obs, action) for critic in critics]
            loss = (td_errors[0].square() + td_errors[1].square()).mean(axis=0).mean(over=b)
            loss.backward()
            fixed_critic = critics[0].with_values([p.detach() for p in critics[0].params])
            policy_value = q_value(fixed_critic, obs, actor(obs).tanh()).mean(axis=0).mean(over=b)
            (-policy_value).backward()
            critic_params = [p for critic in critics for p in critic.params]
            Adam(actor.params, lr=actor_lr, when=updates_actor).step()
            Adam(critic_params, lr=critic_lr, when=learns).step()
            for network in (target_actor, *target_critics):
                network.soft_update(where(updates_actor, tau, 0.0))
        with ctx.region("returns"):
            returns, episodes = episode_returns(step, over=b, along=t)
        ctx.output("return", returns)
        ctx.output("episodes", episodes)
        ctx.output("loss", loss)
    return ctx
