"""Collector with the policy and environment of a training program (`program.collector`)."""

from __future__ import annotations

from math import prod
from typing import Any

from timerl_nb.base.errors import OptionError
from timerl_nb.collecting.collector import Collector, collect
from timerl_nb.collecting.policies.network_policy import beginning
from timerl_nb.compiler.language.policy.policy_graph import How
from timerl_nb.compiler.language.policy.policy_slice import policy_of
from timerl_nb.driver.compiling_context import Context
from timerl_nb.driver.program import Program
from timerl_nb.rl.exported_policy import LearntPolicy


def collector(
    program: Program,
    ctx: Context,
    params: Any,
    env: Any,
    envs: int | None,
    steps: int | None,
    *,
    seed: int = 0,
    explore: bool = False,
    **options: Any,
) -> Collector:
    """Implementation of `Program.collector`; `ctx` is the context of the program."""
    policy = policy_of(ctx)
    own = next(iter(ctx.environments), None)
    if own is None and env is None:
        raise OptionError(
            "the program has no environment.",
            hint='pass one: program.collector(env="CartPole-v1").',
        )
    axes = own.axes if own is not None else None
    for_envs, for_steps = (_size(program, dims) for dims in axes or ((), ()))
    how = "explore" if explore else "sample"
    begun = beginning(ctx, policy, seed, how, program.bounds)
    graphs: dict[How, Any] = {how: begun.graph}
    given = {**begun.indices, **{n: begun.weights[n] for n in begun.graph.frozen}}
    weights = {n: begun.weights[n] for n in begun.graph.weights}
    named = LearntPolicy(graphs, weights, "as it begins", begun.shape, begun.dtype, given)
    return collect(
        own if env is None else env,
        named,
        envs=envs or for_envs,
        steps=steps or for_steps or 128,
        seed=seed,
        params=params,
        explore=explore,
        **options,
    )


def _size(program: Program, dims: tuple[str, ...]) -> int | None:
    """Return the number of points of some dimensions, or None if unknown."""
    bounds = [program.bounds.get(program.pdg.dims[name].bound) for name in dims]
    known = [n for n in bounds if isinstance(n, int) and n > 0]
    return prod(known) if known and len(known) == len(bounds) else None
