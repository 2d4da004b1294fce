"""Actor and actor-critic networks from an environment's spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Self

from timerl_nb.base.errors import EnvError, ShapeError, TimeRLError, user_origin
from timerl_nb.compiler.ir.operations import Read
from timerl_nb.compiler.language.inputs.tensor_sources import Parameter, parameter
from timerl_nb.compiler.language.policy.environment_and_action_record import Actor, call_network
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.distributions import Categorical, MultiCategorical, Normal
from timerl_nb.env.environment import Simulation
from timerl_nb.env.spaces import Box, Discrete, MultiDiscrete
from timerl_nb.nn.layers import MLP, Linear, ScaledInit, scaled_normal
from timerl_nb.nn.module import Module

Critic = bool | Literal["apart"]
Actions = Categorical | MultiCategorical | Normal


@dataclass(frozen=True)
class Design:
    """What a network looks like: widths of the tanh layers, which critic, first weights."""

    hidden: tuple[int, ...]
    critic: Critic
    init: ScaledInit
    gain: float


class Policy(Module):
    """A tanh network from observations to a distribution over actions, and perhaps to a value.

    Discrete actions are chosen by the softmax of the network's results, each by a part of them where
    there are several; those of a `Box` are drawn around them, with standard deviations that are
    parameters of their own.
    """

    def __init__(self, env: Simulation, design: Design, domain: Any, name: str) -> None:
        space = env.act_space
        if not isinstance(space, Discrete | MultiDiscrete | Box):
            raise EnvError(
                f"policies choose discrete actions or numbers; {space} is not supported.",
                hint="use an environment whose action space is Discrete, MultiDiscrete or a Box.",
            )
        if isinstance(space, Box) and space.dtype != "f32":
            raise EnvError(f"policies choose float32 numbers; {space} is not supported.")
        self._inputs = prod(env.obs_space.shape)
        self._obs_shape = tuple(env.obs_space.shape)
        self._act_shape = tuple(space.shape)
        sizes = [self._inputs, *design.hidden]
        self._sizes = space.sizes if isinstance(space, MultiDiscrete) else None
        outputs = (
            space.n if isinstance(space, Discrete) else sum(self._sizes or (prod(space.shape),))
        )
        how: dict[str, Any] = {"domain": domain, "init": design.init}
        self.trunk = (
            MLP(sizes, gain=design.gain, name=f"{name}trunk", **how) if design.hidden else None
        )
        # small first weights: the first policy hardly depends on what it sees
        self.actor = Linear(sizes[-1], outputs, gain=0.01, name=f"{name}actor", **how)
        self.log_std = (
            parameter(space.shape, domain=domain, name=f"{name}log_std")
            if isinstance(space, Box)
            else None
        )
        self.critic = Linear(sizes[-1], 1, name=f"{name}critic", **how) if design.critic else None
        self.critic_trunk = (
            MLP(sizes, gain=design.gain, name=f"{name}critic.trunk", **how)
            if design.critic == "apart" and design.hidden
            else None
        )
        self._apart = design.critic == "apart"
        self._made: dict[int, tuple[RecurrentTensor, Actions]] = {}
        self._seen: dict[Read, RecurrentTensor] = {}
        seen = tuple(env.obs_space.shape), env.obs_space.dtype
        current().policies.append(Actor(self, *seen, call_network, user_origin()))

    def _map_parameters(self, change: Callable[[Parameter], Any]) -> Self:
        twin = super()._map_parameters(change)
        twin._made, twin._seen = {}, {}
        return twin

    def _features(self, o: RecurrentTensor) -> RecurrentTensor:
        """The last hidden layer, written once per observation: its gradients add up before it."""
        if o.read not in self._seen:
            self._seen[o.read] = self._layers(o, self.trunk)
        return self._seen[o.read]

    def _layers(self, o: RecurrentTensor, trunk: MLP | None) -> RecurrentTensor:
        x = o.floating() if len(self._obs_shape) == 1 else o.floating().reshape((self._inputs,))
        if trunk is None:
            return x
        return trunk(x).tanh().named(f"h{len(trunk.layers) - 1}")

    def __call__(self, o: RecurrentTensor, mask: Any = None) -> Actions:
        """Return the distribution over actions for the observation `o`.

        Args:
            mask: the allowed actions, as for `trl.distributions.Categorical`. Its draws, modes,
                log-probabilities and entropy are those of the allowed actions.

        Raises:
            ShapeError: the mask does not fit, or actions are numbers and so have no mask.
        """
        if mask is not None and self.log_std is not None:
            raise ShapeError(
                "a mask is for discrete actions, but this policy's actions are numbers.",
                hint="clip the actions, or give the space the ends that are allowed.",
            )
        made = self.actor(self._features(o))
        if self.critic is not None:
            made.ctx.critics[made.read.tensor] = lambda: self.value(o)
        if self._sizes is not None:
            return MultiCategorical(made.named("logits"), self._sizes, mask)
        if self.log_std is None:
            return Categorical(made.named("logits"), mask)
        return Normal(made.reshape(self._act_shape).named("mean"), self.log_std)

    def value(self, o: RecurrentTensor) -> RecurrentTensor:
        """The critic's value of the observation `o`, without axes."""
        if self.critic is None:
            raise TimeRLError(
                "this policy has no critic.", hint="build it with from_env(env, critic=True)."
            )
        seen = self._layers(o, self.critic_trunk) if self._apart else self._features(o)
        return self.critic(seen).reshape(())

    def sample(self, o: RecurrentTensor, *, mask: Any = None, **options: Any) -> RecurrentTensor:
        """Draw an action for the observation `o`; `log_prob` knows the distribution it came from.

        Args:
            mask: the allowed actions, as for a call. `log_prob` of the action applies it, too. For
                an entropy, use the distribution: `dnn(o, mask).entropy()`.
            options: passed on to the distribution's `sample`.
        """
        dist = self(o, mask)
        a = dist.sample(**options)
        self._made[a.read.source] = (a, dist)
        return a

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-probability of an action that `sample` returned.

        Raises:
            TimeRLError: the action is not one that this policy sampled.
        """
        made = self._made.get(a.read.source) if isinstance(a, RecurrentTensor) else None
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
        self._given: tuple[Simulation, Design] | None = None

    def from_env(
        self,
        env: Simulation,
        hidden: Sequence[int] = (32, 32),
        *,
        critic: Critic = False,
        init: ScaledInit = scaled_normal,
        gain: float = 1.0,
    ) -> Self:
        """Take sizes from the environment.

        Args:
            hidden: the widths of the tanh layers.
            critic: whether there is a value as well, from the same layers; "apart": from layers of
                its own.
            init: what draws the first weights, given their gain: `nn.scaled_normal` or
                `nn.orthogonal`.
            gain: that of the tanh layers; the actor's is 0.01, the critic's 1.
        """
        if not isinstance(env, Simulation):
            raise EnvError(f"{env!r} is no environment.", hint="pass trl.env.make(...).")
        if not isinstance(critic, bool) and critic != "apart":
            raise TimeRLError(f"critic={critic!r} is none of False, True and 'apart'.")
        if not callable(init):
            raise TimeRLError(
                f"init={init!r} draws no weights.", hint="nn.scaled_normal or nn.orthogonal."
            )
        if not isinstance(hidden, Sequence) or isinstance(hidden, str):
            raise ShapeError(f"hidden is a list of widths, not {hidden!r}.", hint="hidden=[32, 32]")
        self._given = env, Design(tuple(hidden), critic, init, gain)
        return self

    def build(self) -> Policy:
        if self._given is None:
            raise TimeRLError(
                "there is nothing to build.", hint="call from_env(env) before build()."
            )
        return Policy(*self._given, self._domain, self._prefix())

    def _prefix(self) -> str:
        if self._name:
            return f"{self._name}."
        taken = {p.name for p in current().parameters.values()}
        count = sum(name.endswith("actor.weight") for name in taken)
        return f"dnn{count + 1}." if count else ""
