"""Actor and actor-critic networks from an environment's spaces."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Self

from timerl_nb.distributions import Categorical
from timerl_nb.env.core import Simulation
from timerl_nb.env.spaces import Discrete
from timerl_nb.errors import EnvError, ShapeError, TimeRLError
from timerl_nb.frontend.context import current
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.nn.layers import MLP, Linear
from timerl_nb.nn.module import Module


class Policy(Module):
    """A tanh network from observations to a distribution over actions, and perhaps to a value."""

    def __init__(
        self, env: Simulation, hidden: Sequence[int], domain: Any, critic: bool, name: str
    ) -> None:
        space = env.act_space
        if not isinstance(space, Discrete):
            raise EnvError(
                f"policies choose among discrete actions; {space} is not supported yet.",
                hint="use an environment with a Discrete action space.",
            )
        self._inputs = prod(env.obs_space.shape)
        self._obs_shape = tuple(env.obs_space.shape)
        sizes = [self._inputs, *hidden]
        # small first weights: the first policy is close to uniform
        self.trunk = MLP(sizes, domain=domain, name=f"{name}trunk") if hidden else None
        self.actor = Linear(sizes[-1], space.n, domain=domain, gain=0.01, name=f"{name}actor")
        self.critic = Linear(sizes[-1], 1, domain=domain, name=f"{name}critic") if critic else None
        self._made: dict[int, tuple[RecurrentTensor, Categorical]] = {}

    def _features(self, o: RecurrentTensor) -> RecurrentTensor:
        x = o.floating() if len(self._obs_shape) == 1 else o.floating().reshape((self._inputs,))
        if self.trunk is None:
            return x
        return self.trunk(x).tanh().named(f"h{len(self.trunk.layers) - 1}")

    def __call__(self, o: RecurrentTensor) -> Categorical:
        """The distribution over actions for the observation `o`."""
        return Categorical(self.actor(self._features(o)).named("logits"))

    def value(self, o: RecurrentTensor) -> RecurrentTensor:
        """The critic's value of the observation `o`, without axes."""
        if self.critic is None:
            raise TimeRLError(
                "this policy has no critic.", hint="build it with from_env(env, critic=True)."
            )
        return self.critic(self._features(o)).reshape(())

    def sample(self, o: RecurrentTensor, **options: Any) -> RecurrentTensor:
        """An action for the observation `o`; `log_prob` knows the distribution it came from."""
        dist = self(o)
        a = dist.sample(**options)
        self._made[a.read.source] = (a, dist)
        return a

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-probability of an action that `sample` returned.

        Raises:
            TimeRLError: the action is not one that this policy sampled.
        """
        made = self._made.get(a.read.source)
        if made is None or made[0].read != a.read:
            raise TimeRLError(
                "log_prob(a) needs exactly the action that sample(o) returned.",
                hint="dnn(o).log_prob(a) takes any observation and action.",
            )
        return made[1].log_prob(a)


class DNNBuilder:
    """Builds policies whose parameters vary over `domain` (the iterations).

    `name` goes before the parameters' names; by default it tells several policies apart.
    """

    def __init__(self, domain: Any = (), name: str = "") -> None:
        self._domain, self._name = domain, name
        self._given: tuple[Simulation, list[int], bool] | None = None

    def from_env(
        self, env: Simulation, hidden: Sequence[int] = (32, 32), *, critic: bool = False
    ) -> Self:
        """Take sizes from the environment; `hidden` are the widths of the tanh layers."""
        if not isinstance(env, Simulation):
            raise EnvError(f"{env!r} is no environment.", hint="pass trl.env.make(...).")
        if not isinstance(hidden, Sequence) or isinstance(hidden, str):
            raise ShapeError(f"hidden is a list of widths, not {hidden!r}.", hint="hidden=[32, 32]")
        self._given = (env, list(hidden), critic)
        return self

    def build(self) -> Policy:
        if self._given is None:
            raise TimeRLError(
                "there is nothing to build.", hint="call from_env(env) before build()."
            )
        env, hidden, critic = self._given
        return Policy(env, hidden, self._domain, critic, self._prefix())

    def _prefix(self) -> str:
        if self._name:
            return f"{self._name}."
        taken = {p.name for p in current().parameters.values()}
        count = sum(name.endswith("actor.weight") for name in taken)
        return f"dnn{count + 1}." if count else ""
