"""Conversion of a user's policy argument."""

from __future__ import annotations

from typing import Any

from timerl_nb.base.errors import OptionError
from timerl_nb.collecting.policies.collecting_policy import Acting, own
from timerl_nb.collecting.policies.function_policy import function_of
from timerl_nb.collecting.policies.network_policy import Network, beginning, check_network
from timerl_nb.collecting.policies.ready_policies import Random, random
from timerl_nb.compiler.language.policy.policy_graph import How
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.nn.module import Module
from timerl_nb.rl.exported_policy import LearntPolicy
from timerl_nb.rl.policy_networks import DNNBuilder


def acting_of(
    policy: Any, spaces: tuple[Any, Any], seed: int, how: How = "sample", state: Any = None
) -> Acting:
    """Return the policy of a user's argument.

    Args:
        policy: the argument.
        spaces: observation and action space.
        seed: seed of its random numbers.
        how: "sample", or "explore" for the exploration of the training program.
        state: first state of a recurrent JAX function.

    Raises:
        OptionError: it is not a supported policy.
        EnvError: it has another observation space than the environment.
    """
    if state is not None:
        return function_of(policy, state)
    if policy is random:
        return Random({}, spaces[1])
    if isinstance(policy, LearntPolicy):
        found = policy.graph(how)
        given = {**policy.frozen, **policy.weights}
        weights = {n: own(given[n]) for n in (*found.weights, *found.frozen)}
        last = {n: given[n] for n in found.indices}
        return check_network(Network(weights, found, last, policy.shape, policy.dtype), spaces)
    if isinstance(policy, DNNBuilder):
        with Context() as ctx:
            policy.build()
        return check_network(beginning(ctx, ctx.policies[-1], seed, how, {}), spaces)
    if isinstance(policy, Module):
        params = policy.saved
        if not params:
            raise OptionError(
                "the network has no parameters.", hint="pass a network built by trl.DNNBuilder."
            )
        ctx = params[0].ctx
        actors = [one for one in ctx.policies if one.network is policy]
        actor = actors[0] if actors else None
        if actor is None:
            raise OptionError(
                f"{type(policy).__name__} does not define an action.",
                hint="pass a network built by trl.DNNBuilder, or define the action by "
                "ctx.policy(network, o, act) in the program and pass result.policy().",
            )
        return check_network(beginning(ctx, actor, seed, how, {}), spaces)
    if callable(policy):
        return function_of(policy)
    raise OptionError(
        f"{policy!r} is not a policy.",
        hint="pass trl.DNNBuilder().from_env(env, hidden=[64, 64]), result.policy(), trl.policies.random, "
        "or a function from observations to actions.",
    )
