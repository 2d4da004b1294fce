"""Networks of ours as policies: their weights are values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.collecting.acting import Acted, Acting, OnHost
from timerl_nb.distributions import Distribution
from timerl_nb.errors import EnvError
from timerl_nb.frontend.actor import Actor
from timerl_nb.frontend.context import Context
from timerl_nb.frontend.given import given
from timerl_nb.frontend.indexing import Index
from timerl_nb.frontend.sources import Parameter, data, like
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.ir.reference import Reference
from timerl_nb.ir.shapes import NUMPY
from timerl_nb.nn.module import replaced
from timerl_nb.rl.policy import Policy
from timerl_nb.runtime.backends import jax as backend
from timerl_nb.runtime.backends import jax_graph as graph


@dataclass(frozen=True)
class Network(Acting):
    """A network of ours; its weights are values."""

    actor: Actor

    def written(self, o: RecurrentTensor, i: Index) -> dict[str, RecurrentTensor]:
        brought = {n: given(n, x.shape, x.dtype, domain=(i,)) for n, x in self.weights.items()}
        acted = self._acted(brought, o)
        return {name: over(x, o) for name, x in acted.items()}

    def _acted(self, weights: Mapping[str, Any], o: RecurrentTensor) -> dict[str, RecurrentTensor]:
        network = replaced(self.actor.network, lambda p: weights[p.name])
        made = self.actor.act(network, o)
        if isinstance(made, Distribution):
            action = made.sample()
            acted = {"action": action, "log_prob": made.log_prob(action)}
        else:
            acted = {"action": made}
        if isinstance(network, Policy) and network.critic is not None:
            acted["value"] = network.value(o)
        return acted

    def on_host(self, seed: int, space: Any) -> OnHost:
        actor = self.actor
        with Context() as ctx:
            o = data(np.zeros(actor.shape, NUMPY[actor.dtype]), dtype=actor.dtype)
            weights = {n: data(np.zeros(x.shape, x.dtype)) for n, x in self.weights.items()}
            acted = {n: x.settled() for n, x in self._acted(weights, o).items()}
        given_at = {name: w.read.source for name, w in weights.items()}
        rows = graph.by_rows(
            ctx.snapshot(), [x.read for x in acted.values()], o.read.source, given_at
        )
        draws = np.random.SeedSequence(seed % 2**64).generate_state(1, np.uint64)
        first, kind = int(draws[0]) + 1, NUMPY[actor.dtype]

        def act(values: Mapping[str, Any], obs: Array, number: int = 0) -> Acted:
            made = rows(values, np.asarray(obs, kind), (first + number) % 2**64)
            return dict(zip(acted, map(backend.to_numpy, made), strict=True))

        return act

    @property
    def text(self) -> str:
        sizes = ", ".join(f"{n} {x.dtype}{list(x.shape)}" for n, x in self.weights.items())
        kind = type(self.actor.network).__name__
        return f"{kind} of {sizes}"


def over(x: RecurrentTensor, o: RecurrentTensor) -> RecurrentTensor:
    """A tensor at every point of an observation, also where it does not depend on that."""
    if x.domain == o.domain:
        return x
    made = like(x, domain=o.domain)
    made[...] = x
    return made


def beginning(ctx: Context, actor: Actor, seed: int) -> Network:
    """A network with the first values of its parameters."""
    found: dict[str, Parameter] = {}
    replaced(actor.network, lambda p: found.setdefault(p.name, p))
    pdg = ctx.snapshot()
    values = Reference(pdg, dict.fromkeys((d.bound for d in pdg.dims), 1), seed)
    weights = {
        name: backend.to_device(np.array(values.read(p.first.read, {})))
        for name, p in found.items()
    }
    return Network(weights, actor)


def checked(network: Network, spaces: tuple[Any, Any]) -> Network:
    """A network that sees what an environment shows."""
    actor, seen = network.actor, spaces[0]
    if (actor.shape, actor.dtype) != (tuple(seen.shape), seen.dtype):
        raise EnvError(
            f"the policy sees {actor.dtype}{list(actor.shape)}, and the environment shows "
            f"{seen.dtype}{list(seen.shape)}.",
            others={"the policy is made at": actor.origin},
        )
    return network
