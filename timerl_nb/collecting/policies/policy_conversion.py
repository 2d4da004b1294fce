"""What somebody gives as a policy, as collecting has it."""

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


def acting_of(policy: Any, spaces: tuple[Any, Any], seed: int, how: How = "sample") -> Acting:
    """A policy as collecting has it.

    Args:
        spaces: of observations and actions.
        how: whether it explores.

    Raises:
        OptionError: it is none.
        EnvError: it sees something else than the environment shows.
    """
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
            raise OptionError("the network has no parameters of its own.")
        ctx = params[0].ctx
        actors = [one for one in ctx.policies if one.network is policy]
        actor = actors[0] if actors else None
        if actor is None:
            raise OptionError(
                f"{type(policy).__name__} does not say how it acts.",
                hint="pass what trl.DNNBuilder builds, or let the program say so, "
                "ctx.policy(network, o, act), and pass result.policy().",
            )
        return check_network(beginning(ctx, actor, seed, how, {}), spaces)
    if callable(policy):
        return function_of(policy)
    raise OptionError(
        f"{policy!r} is no policy.",
        hint="pass trl.DNNBuilder().from_env(env, hidden=[64, 64]), result.policy(), trl.policies.random, "
        "or a function from observations to actions.",
    )
