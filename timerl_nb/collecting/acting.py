"""Policies as collecting has them: written into a program, or called on the host; and their weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.distributions import Distribution
from timerl_nb.env.spaces import Discrete, MultiDiscrete
from timerl_nb.errors import EnvError, OptionError, ShapeError
from timerl_nb.frontend.actor import Actor
from timerl_nb.frontend.context import Context
from timerl_nb.frontend.draws import random_randint
from timerl_nb.frontend.given import given
from timerl_nb.frontend.indexing import Index
from timerl_nb.frontend.sources import Parameter, data, like, random_normal, random_uniform, stack
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.ir.reference import Reference
from timerl_nb.ir.shapes import NUMPY
from timerl_nb.live.results import Result
from timerl_nb.nn.module import Module, replaced
from timerl_nb.rl.learnt import LearntPolicy
from timerl_nb.rl.policy import DNNBuilder, Policy
from timerl_nb.runtime.backends import jax as backend
from timerl_nb.runtime.backends import jax_graph as graph

# What a policy makes of observations, by name: the action, and what it adds.
Acted = dict[str, Any]
OnHost = Callable[[Mapping[str, Any], Array], Acted]


@dataclass(frozen=True)
class Acting(ABC):
    """A policy.

    Attributes:
        weights: those that it begins with, by name; empty where nothing is given to it.
    """

    weights: Mapping[str, Any]

    @property
    def why_not_written(self) -> str | None:
        """Why it cannot be part of a program; None where it can."""
        return None

    @abstractmethod
    def written(self, o: RecurrentTensor, i: Index) -> dict[str, RecurrentTensor]:
        """What it makes of an observation, in a program whose turns of `i` bring its weights."""

    @abstractmethod
    def on_host(self, seed: int) -> OnHost:
        """A function of weights and the observations of all environments."""

    @property
    @abstractmethod
    def text(self) -> str:
        """What there is to remember it by: two of the same text take as long."""

    def taken(self, values: Any) -> dict[str, Any]:
        """Weights that somebody has given, if they are its own.

        Raises:
            OptionError: they are nothing with weights, or one is missing or unknown.
            ShapeError: one has another shape.
        """
        if isinstance(values, LearntPolicy):
            values = values.weights
        elif isinstance(values, Result):
            values = {n: x for n, x in values.parameters.items() if n in self.weights}
        if not isinstance(values, Mapping):
            raise OptionError(
                f"weights are arrays by name, not {type(values).__name__}.",
                hint="give a mapping, result.policy() or a result.",
            )
        wrong = [f"{n} is missing" for n in self.weights if n not in values]
        wrong += [f"{n} is none of the policy's" for n in values if n not in self.weights]
        found = {n: _own(x) for n, x in values.items()}
        wrong += [
            f"{n} is {found[n].dtype}{list(found[n].shape)}, and the policy's {x.dtype}{list(x.shape)}"
            for n, x in self.weights.items()
            if n in found and not _fits(found[n], x)
        ]
        if wrong:
            raise ShapeError(
                f"the weights do not fit the policy, in {len(wrong)} of them.",
                evidence=wrong[:20],
                hint=f"its weights are {', '.join(self.weights)}."
                if self.weights
                else "it has none.",
            )
        return {n: found[n].astype(x.dtype) for n, x in self.weights.items()}


def _fits(x: Any, like: Any) -> bool:
    return tuple(x.shape) == tuple(like.shape) and np.can_cast(x.dtype, like.dtype, "same_kind")


def _own(x: Any) -> Any:
    """An array on the device that nobody else changes."""
    found = graph.taken(x)
    return backend.to_device(np.array(found)) if isinstance(found, np.ndarray) else found


@dataclass(frozen=True)
class Random(Acting):
    """Actions that are drawn evenly from their space, or from a normal distribution where it has no ends."""

    space: Any

    def written(self, o: RecurrentTensor, i: Index) -> dict[str, RecurrentTensor]:
        space, over = self.space, o.domain
        if isinstance(space, Discrete):
            return {"action": random_randint(space.n, domain=over)}
        if isinstance(space, MultiDiscrete):
            each = [random_randint(n, domain=over) for n in space.sizes]
            return {"action": stack(each, -1)}
        if self._is_open:
            return {"action": random_normal(space.shape, domain=over)}
        return {"action": random_uniform(space.shape, space.low, space.high, domain=over)}

    @property
    def _is_open(self) -> bool:
        return not np.isfinite([self.space.low, self.space.high]).all()

    def on_host(self, seed: int) -> OnHost:
        space, draw = self.space, np.random.default_rng(seed)
        kind = NUMPY[space.dtype]

        def act(_: Mapping[str, Any], obs: Array) -> Acted:
            rows = len(obs)
            if isinstance(space, Discrete):
                made = draw.integers(space.n, size=rows)
            elif isinstance(space, MultiDiscrete):
                made = draw.integers(space.sizes, size=(rows, len(space.sizes)))
            elif self._is_open:
                made = draw.standard_normal((rows, *space.shape))
            else:
                made = draw.uniform(space.low, space.high, (rows, *space.shape))
            return {"action": made.astype(kind)}

        return act

    @property
    def text(self) -> str:
        return f"random {self.space}"


@dataclass(frozen=True)
class Network(Acting):
    """A network of ours; its weights are values."""

    actor: Actor

    def written(self, o: RecurrentTensor, i: Index) -> dict[str, RecurrentTensor]:
        brought = {n: given(n, x.shape, x.dtype, domain=(i,)) for n, x in self.weights.items()}
        acted = self._acted(brought, o)
        return {name: _over(x, o) for name, x in acted.items()}

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

    def on_host(self, seed: int) -> OnHost:
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
        step, kind = int(draws[0]), NUMPY[actor.dtype]

        def act(values: Mapping[str, Any], obs: Array) -> Acted:
            nonlocal step
            step = (step + 1) % 2**64
            made = rows(values, np.asarray(obs, kind), step)
            return dict(zip(acted, map(backend.to_numpy, made), strict=True))

        return act

    @property
    def text(self) -> str:
        sizes = ", ".join(f"{n} {x.dtype}{list(x.shape)}" for n, x in self.weights.items())
        kind = type(self.actor.network).__name__
        return f"{kind} of {sizes}"


def _over(x: RecurrentTensor, o: RecurrentTensor) -> RecurrentTensor:
    """A tensor at every point of an observation, also where it does not depend on that."""
    if x.domain == o.domain:
        return x
    made = like(x, domain=o.domain)
    made[...] = x
    return made


@dataclass(frozen=True)
class HostFunction(Acting):
    """A function of arrays on the host: of NumPy, or a module of PyTorch's, which keeps its weights."""

    function: Callable[[Any], Any]

    @property
    def why_not_written(self) -> str | None:
        return "the policy is a function on the host"

    def written(self, o: RecurrentTensor, i: Index) -> dict[str, RecurrentTensor]:
        raise AssertionError(self.why_not_written)

    @property
    def is_torch(self) -> bool:
        return hasattr(self.function, "load_state_dict")

    def on_host(self, seed: int) -> OnHost:
        call = graph.with_tensors(self.function) if self.is_torch else self.function

        def act(_: Mapping[str, Any], obs: Array) -> Acted:
            return _named(call(obs))

        return act

    def taken(self, values: Any) -> dict[str, Any]:
        if not self.is_torch:
            return super().taken(values)
        module: Any = self.function
        module.load_state_dict(values)
        return {}

    @property
    def text(self) -> str:
        return f"{type(self.function).__name__} {getattr(self.function, '__qualname__', '')}"


def _named(made: Any) -> Acted:
    """What a function returns: an action, an action and one more, or an action and more by name."""
    if not isinstance(made, tuple):
        return {"action": made}
    if len(made) == 2 and isinstance(made[1], Mapping):
        return {"action": made[0], **made[1]}
    if len(made) <= 3:
        return dict(zip(("action", "log_prob", "value"), made, strict=False))
    raise ShapeError(
        f"the policy returns {len(made)} arrays.",
        hint="return the action; or action, log_prob and value; or the action and a dict of others.",
    )


def random(*_: Any) -> None:
    """The policy that draws its actions: `trl.collect("CartPole-v1", trl.policies.random)`."""
    raise OptionError(
        "trl.policies.random stands for a policy, and is not called.",
        hint='trl.collect("CartPole-v1", trl.policies.random, …).',
    )


def acting_of(policy: Any, spaces: tuple[Any, Any], seed: int) -> Acting:
    """A policy as collecting has it.

    Args:
        spaces: of observations and actions.

    Raises:
        OptionError: it is none.
        EnvError: it sees something else than the environment shows, or its actions are others.
    """
    if policy is random:
        return Random({}, spaces[1])
    if isinstance(policy, LearntPolicy):
        weights = {n: _own(x) for n, x in policy.weights.items()}
        return _checked(Network(weights, policy.actor), spaces)
    if isinstance(policy, DNNBuilder):
        with Context() as ctx:
            policy.build()
        return _checked(_beginning(ctx, ctx.policies[-1], seed), spaces)
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
        return _checked(_beginning(ctx, actor, seed), spaces)
    if callable(policy):
        return HostFunction({}, policy)
    raise OptionError(
        f"{policy!r} is no policy.",
        hint="pass trl.DNNBuilder().from_env(env, hidden=[64, 64]), result.policy(), trl.policies.random, "
        "or a function from observations to actions.",
    )


def _beginning(ctx: Context, actor: Actor, seed: int) -> Network:
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


def _checked(network: Network, spaces: tuple[Any, Any]) -> Network:
    """A network that sees what an environment shows."""
    actor, seen = network.actor, spaces[0]
    if (actor.shape, actor.dtype) != (tuple(seen.shape), seen.dtype):
        raise EnvError(
            f"the policy sees {actor.dtype}{list(actor.shape)}, and the environment shows "
            f"{seen.dtype}{list(seen.shape)}.",
            others={"the policy is made at": actor.origin},
        )
    return network
