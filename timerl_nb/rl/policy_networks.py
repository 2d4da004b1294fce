"""Actor and actor-critic networks, sized by an environment's spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Self

from timerl_nb.base.errors import EnvError, ShapeError, TimeRLError, user_origin
from timerl_nb.compiler.ir.operations import Read
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.compiler.language.inputs.tensor_sources import Parameter, parameter
from timerl_nb.compiler.language.policy.environment_and_action_record import Actor, call_network
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.distributions import Categorical, MultiCategorical, Normal
from timerl_nb.env.environment import Simulation
from timerl_nb.env.normalization import NormalizeObservation
from timerl_nb.env.spaces import Box, Discrete, MultiDiscrete
from timerl_nb.nn.layers import MLP, Linear, ScaledInit, scaled_normal
from timerl_nb.nn.module import Module

Critic = bool | Literal["separate"]
Actions = Categorical | MultiCategorical | Normal
Mask = Callable[[RecurrentTensor], RecurrentTensor]  # the allowed actions of an observation


def check_mask(mask: Any, env: Simulation) -> None:
    """Check that a mask is None, or a function that fits the environment's observations.

    Raises:
        TimeRLError: it is not a function.
        EnvError: it is a method of an environment, and reads normalised observations.
    """
    if mask is None:
        return
    if not callable(mask):
        raise TimeRLError(
            f"mask={mask!r} is not a function of the observation.",
            hint="pass a function here, or a tensor to dnn.sample(o, mask=…).",
        )
    name, inner, is_normalized = getattr(mask, "__name__", ""), env, False
    while isinstance(wrapped := getattr(inner, "env", None), Simulation):
        is_normalized |= isinstance(inner, NormalizeObservation)
        inner = wrapped
    if is_normalized and name and getattr(inner, name, None) == mask:
        raise EnvError(
            f"{name} reads the observations of {inner.made_as}, but the network reads normalised ones.",
            hint="leave out NormalizeObservation, or the mask.",
        )


@dataclass(frozen=True)
class Design:
    """Structure of a network: widths of the tanh layers, kind of critic, initialisation, number of features, mask."""

    hidden: tuple[int, ...]
    critic: Critic
    init: ScaledInit
    gain: float
    inputs: int | None = None
    mask: Mask | None = None


class Policy(Module):
    """Tanh network from observations to a distribution over actions, and optionally to a value.

    Discrete actions have categorical distributions with the outputs as logits. Actions in a `Box` have normal
    distributions with the outputs as means; the standard deviations are parameters.

    Example:
        >>> dnn = trl.DNNBuilder(domain=i).from_env(trl.env.make("CartPole-v1"), critic=True).build()
        >>> o = trl.zeros(4)
        >>> a = dnn.sample(o, domain=(b, i))
        >>> a, dnn.log_prob(a), dnn(o).entropy(), dnn.value(o)
        (i32[] @ (b, i), f32[] @ (b, i), f32[] @ (i), f32[] @ (i))
    """

    def __init__(self, env: Simulation, design: Design, domain: Any, name: str) -> None:
        space = env.act_space
        if not isinstance(space, Discrete | MultiDiscrete | Box):
            raise EnvError(
                f"policies choose discrete actions or numbers, but the action space is {space}.",
                hint="use an environment whose action space is Discrete, MultiDiscrete or a Box.",
            )
        if isinstance(space, Box) and space.dtype != "f32":
            raise EnvError(
                f"policies choose float32 numbers, but the action space is {space}.",
                hint='use an action space Box(low, high, shape, "f32").',
            )
        features = design.inputs
        self._obs_shape = tuple(env.obs_space.shape) if features is None else (features,)
        self._inputs = prod(self._obs_shape)
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
        # Small initial weights: the initial policy hardly depends on observations.
        self.actor = Linear(sizes[-1], outputs, gain=0.01, name=f"{name}actor", **how)
        self.log_std = (
            parameter(space.shape, domain=domain, name=f"{name}log_std")
            if isinstance(space, Box)
            else None
        )
        self.critic = Linear(sizes[-1], 1, name=f"{name}critic", **how) if design.critic else None
        self.critic_trunk = (
            MLP(sizes, gain=design.gain, name=f"{name}critic.trunk", **how)
            if design.critic == "separate" and design.hidden
            else None
        )
        self._is_separate, self._mask = design.critic == "separate", design.mask
        self._distributions: dict[int, tuple[RecurrentTensor, Actions]] = {}
        self._seen: dict[Read, RecurrentTensor] = {}
        if features is None:
            seen = self._obs_shape, env.obs_space.dtype
            current().policies.append(Actor(self, *seen, call_network, user_origin()))

    def _map_parameters(self, change: Callable[[Parameter], Any]) -> Self:
        twin = super()._map_parameters(change)
        twin._distributions, twin._seen = {}, {}
        return twin

    def _features(self, o: RecurrentTensor) -> RecurrentTensor:
        """Return the last hidden layer, written once per observation so that its gradients are summed first."""
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
            o: the observation.
            mask: the allowed actions, as for `trl.distributions.Categorical`. Draws, modes, log-probabilities and
                entropy are those of the allowed actions. By default the mask is that of `DNNBuilder.from_env`.

        Raises:
            ShapeError: the mask does not match, or the actions are numbers.
        """
        if mask is None and self._mask is not None:
            mask = self._mask(o)
        if mask is not None and self.log_std is not None:
            raise ShapeError(
                "a mask is for discrete actions, but this policy's actions are numbers.",
                hint="clip the actions, or narrow the bounds of the action space.",
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
        """Return the critic's value of the observation `o`, a scalar.

        Args:
            o: the observation.

        Raises:
            TimeRLError: the network has no critic.
        """
        if self.critic is None:
            raise TimeRLError(
                "this policy has no critic.", hint="build it with from_env(env, critic=True)."
            )
        seen = self._layers(o, self.critic_trunk) if self._is_separate else self._features(o)
        return self.critic(seen).reshape(())

    def sample(self, o: RecurrentTensor, *, mask: Any = None, **options: Any) -> RecurrentTensor:
        """Draw an action for the observation `o`; `log_prob` of it uses the same distribution.

        Args:
            mask: the allowed actions, as for a call; `log_prob` of the action uses it, too. For the entropy, use the
                distribution: `dnn(o, mask).entropy()`.
            options: passed to the distribution's `sample`.
        """
        dist = self(o, mask)
        a = dist.sample(**options)
        self._distributions[a.read.source] = (a, dist)
        return a

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """Return the log-probability of an action drawn by `sample`.

        Raises:
            TimeRLError: this policy has not drawn the action.
        """
        made = self._distributions.get(a.read.source) if isinstance(a, RecurrentTensor) else None
        if made is None or made[0].read != a.read:
            raise TimeRLError(
                "log_prob(a) needs exactly the action that sample(o) returned.",
                hint="for other actions, write dnn(o).log_prob(a).",
            )
        return made[1].log_prob(a)


@explain_constructor
class DNNBuilder:
    """Builder of policy networks, sized by an environment's spaces.

    Args:
        domain: the dimensions that the parameters vary over, usually the iterations.
        name: the prefix of the parameters' names; unique by default.

    Example:
        >>> env = trl.env.make("CartPole-v1")
        >>> dnn = trl.DNNBuilder(domain=i).from_env(env, (64, 64), critic=True).build()
        >>> o = trl.like(env.obs_space, domain=(b, i, t))
        >>> a = dnn.sample(o)
        >>> a, dnn.log_prob(a), dnn.value(o)
        (i32[] @ (b, i, t), f32[] @ (b, i, t), f32[] @ (b, i, t))
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
        inputs: int | None = None,
        mask: Mask | None = None,
    ) -> Self:
        """Set the sizes from an environment, and the structure of the network.

        Args:
            env: the environment.
            hidden: the widths of the tanh layers.
            critic: whether the network has a value output, from the same layers; "separate" gives it separate layers.
            init: the initialiser of the weights, a function of the gain: `nn.scaled_normal` or `nn.orthogonal`.
            gain: the gain of the tanh layers; that of the actor's last layer is 0.01, that of the critic's 1.
            inputs: the number of features, if the network reads features such as the state of a recurrent cell; by
                default it reads observations.
            mask: a function of the observation that returns the allowed actions; it applies wherever the network is
                called without a mask.

        Returns:
            the builder.

        Raises:
            EnvError: `env` is not an environment.
            TimeRLError, ShapeError: an argument is invalid.

        Example:
            >>> builder = trl.DNNBuilder(domain=i).from_env(trl.env.make("CartPole-v1"), (64, 64))
            >>> len(builder.build().params)
            6
        """
        if not isinstance(env, Simulation):
            raise EnvError(f"{env!r} is not an environment.", hint="pass trl.env.make(...).")
        if not isinstance(critic, bool) and critic != "separate":
            raise TimeRLError(
                f"critic={critic!r} is not a kind of critic.", hint="use False, True or 'separate'."
            )
        if not callable(init):
            raise TimeRLError(
                f"init={init!r} is not an initialiser.",
                hint="use nn.scaled_normal or nn.orthogonal.",
            )
        if not isinstance(hidden, Sequence) or isinstance(hidden, str):
            raise ShapeError(
                f"hidden must be a list of widths, not {hidden!r}.", hint="write hidden=[32, 32]."
            )
        if inputs is not None:
            inputs = integer("inputs", inputs, least=1)
        check_mask(mask, env)
        self._given = env, Design(tuple(hidden), critic, init, gain, inputs, mask)
        return self

    def build(self) -> Policy:
        """Create the network's parameters in the open context, and return the network.

        Returns:
            a module: `dnn(o)` is a distribution over actions; `dnn.sample(o)`, `dnn.log_prob(a)`, `dnn.value(o)`.

        Raises:
            TimeRLError: `from_env` has not been called.
            EnvError: the action space is not supported.

        Example:
            >>> dnn = trl.DNNBuilder(domain=i).from_env(trl.env.make("CartPole-v1")).build()
            >>> dnn(trl.zeros(4)).entropy()
            f32[] @ (i)
        """
        if self._given is None:
            raise TimeRLError(
                "build() is called before from_env(env).", hint="call from_env(env) first."
            )
        return Policy(*self._given, self._domain, self._prefix())

    def _prefix(self) -> str:
        if self._name:
            return f"{self._name}."
        taken = {p.name for p in current().parameters.values()}
        number = 1 + sum(name.endswith("actor.weight") for name in taken)
        if number == 1:
            return ""
        while any(name.startswith(f"dnn{number}.") for name in taken):
            number += 1
        return f"dnn{number}."
