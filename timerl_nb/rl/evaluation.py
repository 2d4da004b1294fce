"""Evaluation episodes inside a program, played by the current network at regular iterations."""

from __future__ import annotations

from timerl_nb.base.errors import DomainError, OptionError, TimeRLError
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.tensor_sources import like, value
from timerl_nb.compiler.language.policy.policy_in_program import InProgram
from timerl_nb.compiler.language.policy.policy_slice import Slicer, policy_of
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.index_expressions import sym
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation
from timerl_nb.rl.exported_policy import fresh, graphs_of


def evaluated(
    ctx: Context,
    env: str | Simulation,
    episodes: int,
    every: int,
    *,
    sample: bool,
    explore: bool,
    max_steps: int | None,
) -> RecurrentTensor:
    """Return the returns of evaluation episodes; see `Context.evaluate`."""
    if current() is not ctx:
        raise DomainError(
            "another context is open.", hint="write `with ctx:` around ctx.evaluate(…)."
        )
    count = integer("the number of episodes", episodes, least=1)
    often = integer("every", every, least=1, hint="write every=5 for every fifth iteration.")
    policy = policy_of(ctx)
    graphs = graphs_of(policy)
    found = graphs["explore" if explore else "sample" if sample else "mode"]
    if isinstance(found, TimeRLError):
        raise found
    named = {p.name: p for p in ctx.parameters.values() if p.name in found.weights}
    ways = {p.update_dims for p in named.values() if p.update_dims}
    if len(ways) != 1:
        what = "is not trained yet" if not ways else "changes along different dimensions"
        raise OptionError(
            f"the policy's network {what}: there is no iteration to evaluate it after.",
            others={"it acts at": policy.origin},
            hint="call ctx.evaluate after the optimiser's step().",
        )
    ((outer, *inner),) = ways
    sim = fresh(env, policy, max_steps)
    n, N = ctx.add_dim("episode", count)
    s, _ = ctx.add_dim("step", sim.max_steps or 1)
    with ctx.region("evaluation"), ctx.streams(f"{n}"):
        last = {d: ctx.space[d].size - 1 for d in inner}
        given = {
            name: p.next.at({d: e for d, e in last.items() if d in p.domain})
            for name, p in named.items()
        }
        if isinstance(policy, Slicer):
            frozen = policy.frozen(found)
            ends = {d: ctx.space[d].size - 1 for d in policy.passing if d != outer}
            given |= {
                name: x.at({d: e for d, e in ends.items() if d in x.domain})
                for name, x in frozen.items()
            }
        given |= {name: value(Index(ctx, sym(name))) for name in found.indices}
        dims = ctx.space.ordered({outer, *(d for x in given.values() for d in x.domain)})
        over = tuple(Index(ctx, sym(d)) for d in dims)
        o = like(sim.obs_space, domain=(*over, n, s))
        o[*over, n, 0] = sim.reset(domain=(*over, n))
        acted = InProgram(found, given, o, o.domain[-1:])
        step = sim.step(acted.made["action"])
        o[*over, n, s + 1] = step.obs
        acted.goes_on(step, restarts=False)
        ctx.played.pop()  # evaluation does not change the program's policy
        returns = step.masked(step.reward).sum(over=s)[*over, 0:N]
        if often == 1:
            return returns
        return returns[(Index(ctx, sym(outer)) + 1) % often == 0]
