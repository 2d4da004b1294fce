"""Episodes that are played inside a program, now and then, by what it has learnt until then."""

from __future__ import annotations

from timerl_nb.driver.context import Context
from timerl_nb.entry_points import register_entry_point
from timerl_nb.env.core import Simulation
from timerl_nb.errors import DomainError, OptionError
from timerl_nb.frontend.arguments import integer
from timerl_nb.frontend.context import current
from timerl_nb.frontend.indexing import Index
from timerl_nb.frontend.sources import Parameter, like
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.nn.module import replaced
from timerl_nb.rl.learnt import action, actor_of, fresh
from timerl_nb.symbolic.expr import sym


def evaluated(
    ctx: Context,
    env: str | Simulation,
    episodes: int,
    every: int,
    *,
    sample: bool,
    max_steps: int | None,
) -> RecurrentTensor:
    """The returns of episodes; see `Context.evaluate`."""
    if current() is not ctx:
        raise DomainError(
            "another context is open.", hint="write `with ctx:` around ctx.evaluate(…)."
        )
    count = integer("the number of episodes", episodes, least=1)
    often = integer("every", every, least=1, hint="every=5 is after every fifth iteration.")
    actor = actor_of(ctx.policies)
    named: dict[str, Parameter] = {}

    def note(p: Parameter) -> Parameter:
        named[p.name] = p
        return p

    replaced(actor.network, note)
    ways = {p.along for p in named.values() if p.along}
    if len(ways) != 1:
        found = "is not trained yet" if not ways else "changes along different dimensions"
        raise OptionError(
            f"the network that acts {found}: there is no iteration to evaluate it after.",
            others={"it is made at": actor.origin},
            hint="evaluate after the optimiser's step() is written.",
        )
    ((outer, *inner),) = ways
    sim = fresh(env, actor, max_steps)
    n, N = ctx.add_dim("episode", count)
    s, _ = ctx.add_dim("step", sim.max_steps or 1)
    with ctx.region("evaluation"), ctx.streams(f"{n}"):
        last = {d: ctx.space[d].size - 1 for d in inner}
        weights = {
            name: p.next.at({d: e for d, e in last.items() if d in p.domain})
            for name, p in named.items()
        }
        dims = ctx.space.ordered({outer, *(d for w in weights.values() for d in w.domain)})
        over = tuple(Index(ctx, sym(d)) for d in dims)
        o = like(sim.obs_space, domain=(*over, n, s))
        o[*over, n, 0] = sim.reset(domain=(*over, n))
        step = sim.step(action(actor, weights, o, sample=sample))
        o[*over, n, s + 1] = step.obs
        returns = step.masked(step.reward).sum(over=s)[*over, 0:N]
        if often == 1:
            return returns
        return returns[(Index(ctx, sym(outer)) + 1) % often == 0]


register_entry_point("program.evaluate", evaluated)
