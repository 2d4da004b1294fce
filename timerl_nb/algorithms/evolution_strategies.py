"""Evolution strategies: gradients estimated from returns of perturbed parameters. Source: Salimans et al. 2017.

The population is a dimension. No gradient flows through an episode: the loss is linear in the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import like, random_normal, value
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation, made
from timerl_nb.nn.layers import orthogonal
from timerl_nb.optim import Adam
from timerl_nb.rl.policy_networks import DNNBuilder


@explain_call_errors
def evolution_strategies(
    env: str | Simulation = "CartPole-v1",
    *,
    hidden: Sequence[int] = (32, 32),
    sigma: float = 0.1,
    lr: float = 3e-2,
    anneal: bool = True,
    decay: float = 0.0,
) -> Context:
    """Return the program of evolution strategies.

    Each of I iterations plays an episode of at most T steps with each of 2 N perturbed policies, N antithetic pairs, and
    makes one update. Policies act by their most likely action. The outputs are "return", the mean over the population,
    and "best", its maximum.

    Args:
        env: a name, or `trl.env.make(...)`.
        hidden: the widths of the tanh layers.
        sigma: the standard deviation of the perturbations.
        lr: Adam's initial learning rate.
        anneal: whether the learning rate decreases linearly to 0.
        decay: the weight of the squared parameters in the loss.

    Returns:
        a context with the dimensions s, n, i and t; compile it with bounds for N, I and T. The dimension s has the two
        signs of a pair.

    Raises:
        ShapeError: an argument has an unsuitable value.

    Example:
        >>> trl.algorithms.evolution_strategies("CartPole-v1", hidden=(16,))
        Context(s < S, n < N, i < I, t < T; ... operations)
    """
    sigma, decay = number("sigma", sigma, least=1e-8), number("decay", decay, least=0)
    with Context("s", "n", "i", "t") as ctx:
        (s, S), (n, N), (i, I), (t, _) = ctx.dims
        ctx.fix(S, 2)
        with ctx.region("acting"):
            env = made(env)
            builder = DNNBuilder(domain=(i,)).from_env(env, hidden, init=orthogonal, gain=sqrt(2))
            dnn = builder.build()
            sign = 2.0 * value(s).floating() - 1.0
            noise = {p.name: random_normal(p.shape, domain=(n, i)) for p in dnn.params}
            perturbed = {p.name: p + sigma * sign * noise[p.name] for p in dnn.params}
            population = dnn.with_values(perturbed)
            o = like(env.obs_space, domain=(s, n, i, t)).named("o")
            o[s, n, i, 0] = env.reset(domain=(s, n, i))
            a = population(o).mode().named("a")
            step = env.step(a)
            o[s, n, i, t + 1], r, _ = step
            ctx.policy(dnn, o, lambda dnn, o: dnn(o).mode())
        with ctx.region("learning"):
            fitness = r.named("r").sum(over=t).named("fitness")
            others = fitness[0:S, 0:N]
            comparison = (fitness > others).floating() - (fitness < others).floating()
            rank = 0.5 * comparison.sum(axis=(0, 1)) / value(2 * N - 1).floating()  # -1/2 to 1/2
            projection = sum((p * noise[p.name]).sum() for p in dnn.params)
            squared_norm = sum(p.square().sum() for p in dnn.params)
            loss = decay * squared_norm - (rank * sign * projection).mean(over=(s, n)) / sigma
            loss.backward()
            lr_decay = 1.0 - value(i).floating() / value(I).floating()
            Adam(dnn.params, lr=lr * lr_decay if anneal else lr).step()
        ctx.output("return", fitness.mean(over=(s, n)))
        ctx.output("best", fitness.max(over=(s, n)))
    return ctx
