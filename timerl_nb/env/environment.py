"""Environments as recurrence equations.

The state of an environment is a recurrent tensor: `reset` defines it at time 0, the transition at t + 1. The time
dimension is the one that `step` has and `reset` does not. With several such dimensions the last one is fastest, and
episodes continue: those of `reset(domain=(b,))` from iteration to iteration.

By default (episode mask) a finished episode stands still: its state is frozen, its rewards are 0 and `alive` is
false. With `autoreset` a new episode begins, at the next step or in the same one, as in Gymnasium.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, Self

from timerl_nb.base.errors import CallError, DomainError, EnvError, Origin, one_of, user_origin
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.argument_checks import checked_name, is_whole
from timerl_nb.compiler.language.foreign_names import (
    expect_type,
    explain_call_errors,
    explain_constructor,
)
from timerl_nb.compiler.language.indexing.index_parsing import as_dims
from timerl_nb.compiler.language.indexing.recurrence_initialization import (
    initial_branch,
    previous_branches,
)
from timerl_nb.compiler.language.inputs.tensor_sources import tensor, where
from timerl_nb.compiler.language.policy.environment_and_action_record import Played
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import (
    RecurrentTensor,
    constant,
    tensor_of,
    value_of,
)
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Lin, ge, sym

Tensor = RecurrentTensor
State = Any  # a tensor, or a tuple of tensors


class AutoresetMode(Enum):
    """Modes of `autoreset=`, with the names of Gymnasium's `gymnasium.vector.AutoresetMode`.

    Example:
        >>> trl.env.make("CartPole-v1", autoreset=trl.env.AutoresetMode.SAME_STEP).autoreset
        'same_step'
    """

    NEXT_STEP = "next_step"
    SAME_STEP = "same_step"
    DISABLED = "disabled"


Autoreset = Literal["next_step", "same_step", "disabled"] | AutoresetMode
# Names of a step's tensors; a tensor with several names gets the first one.
_SHOWN = ("obs", "reward", "terminated", "truncated", "alive", "final_obs")


@explain_constructor
@dataclass(frozen=True)
class Step:
    """Result of `env.step`; it unpacks to observation, reward and done.

    Attributes:
        obs: the next observation; after an automatic reset it belongs to the next episode.
        reward: the reward, 0 after the end of an episode.
        terminated: whether the episode reached a terminal state.
        truncated: whether the episode reached its step limit.
        alive: whether the step belongs to an episode.
        final_obs: the observation after the transition, of the same episode in any case.
        endless: whether episodes end only with the time dimension, so that nothing needs a mask.
        shown: the environment's attributes with tensors, such as a mask of actions, after the reset and after the step.

    Example:
        >>> env = trl.env.make("CartPole-v1")
        >>> o = trl.like(env.obs_space, domain=(b, t))
        >>> o[b, 0] = env.reset(domain=b)
        >>> step = env.step(trl.random.randint(2, domain=(b, t)))
        >>> o[b, t + 1], reward, done = step
        >>> step.mean(reward, over=(b, t))  # over the steps inside episodes
        f32[] @ ()
    """

    obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    alive: Tensor
    final_obs: Tensor
    endless: bool = False
    shown: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def done(self) -> Tensor:
        """Whether the episode has ended, by termination or truncation."""
        done = self.terminated | self.truncated
        done.ctx.label_by_default("step.done", done)
        return done

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.obs, self.reward, self.done))

    def masked(self, x: Tensor) -> Tensor:
        """Return `x` at steps inside an episode, and 0 at the others."""
        return x if self.endless else where(self.alive, x, 0.0)

    def mean(self, x: Tensor, over: Any) -> Tensor:
        """Return the mean of `x` over the steps inside episodes; 0 if there are none."""
        if self.endless:
            return x.mean(over=over)
        count = self.alive.sum(over=over).maximum(1)
        return self.masked(x).sum(over=over) / count.cast(x.dtype)

    def then(self, x: Tensor) -> Tensor:
        """Return `x`, a value of the next step, if the episode continues, and 0 otherwise."""
        return x if self.endless else where(self.done, 0.0, x)


class Simulation(ABC):
    """Base class of all environments: spaces, modes, one reset and one step equation.

    Args:
        autoreset: None or "disabled" (episode mask), "next_step" or "same_step", or a mode of `AutoresetMode` or of
            Gymnasium's enumeration.
        max_steps: the number of steps after which an episode is truncated; by default the environment's own.

    Raises:
        EnvError: an argument is invalid.

    Example:
        >>> env: trl.env.Simulation = trl.env.make("CartPole-v1", max_steps=200, autoreset="same_step")
        >>> env.max_steps
        200
    """

    obs_space: Any
    act_space: Any
    max_steps: int | None = None
    axes: tuple[Domain, Domain] | None = None  # dimensions of environments and steps, set by `step`
    _arguments: tuple[tuple[Any, ...], dict[str, Any]] = (), {}

    def __new__(cls, *args: Any, **named: Any) -> Self:
        made = super().__new__(cls)
        made._arguments = args, named
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the constructor's arguments, which distinguish environments of one class."""
        return self._arguments

    def __init__(
        self,
        *,
        autoreset: Autoreset | None = None,
        max_steps: int | None = None,
    ) -> None:
        if max_steps is not None and not (is_whole(max_steps) and max_steps >= 1):
            raise EnvError(
                f"max_steps must be an integer of at least 1, not {max_steps!r}.",
                hint="write max_steps=500, or None for the environment's own limit.",
            )
        self.autoreset = _mode_of(autoreset)
        self.max_steps = max_steps or type(self).max_steps
        self._reset: tuple[Domain, Tensor, Origin] | None = None
        self._stepped: Origin | None = None
        self._shown: dict[str, Any] = {}  # outputs of the reset by name
        self._came: dict[str, Any] = {}  # outputs of the step by name
        self._inside = range(0)  # operations of the reset
        self._within: frozenset[int] = frozenset()  # operations of reset and step

    @property
    def made_as(self) -> str:
        """The name registered with `make`, or the class name."""
        known = (name for name, made in _FACTORIES.items() if made is type(self))
        return next(known, type(self).__name__)

    def __repr__(self) -> str:
        spaces = f"observations {self.obs_space}, actions {self.act_space}"
        modes = f"max_steps={self.max_steps}, autoreset={self.autoreset!r}"
        return f"Environment({self.made_as}: {spaces}, {modes})"

    def unstarted(self, *, max_steps: int | None = None) -> Self:
        """Return a copy that is neither reset nor stepped, with one episode per instance.

        Args:
            max_steps: the number of steps after which episodes are truncated; by default unchanged.
        """
        twin = copy(self)
        twin.autoreset, twin._reset, twin._stepped = None, None, None
        twin.max_steps = max_steps or self.max_steps
        return twin

    def limited(self, most: int) -> Self:
        """Return a copy that is neither reset nor stepped, with a step limit of at most `most`."""
        twin = self.unstarted(max_steps=min(most, self.max_steps or most))
        twin.autoreset = self.autoreset
        return twin

    @abstractmethod
    def begin(self, domain: Domain) -> Tensor:
        """Return the first observation of every episode."""

    @abstractmethod
    def play(self, action: Tensor, time: Domain, first: Tensor) -> Step:
        """Return one step along the dimensions `time`; `first` is the result of `begin`."""

    def reset(self, *, domain: Any) -> Tensor:
        """Return the first observation of every episode.

        Args:
            domain: the dimensions of the episodes, such as environments and iterations.

        Raises:
            EnvError: the environment has already been reset.

        Example:
            >>> env = trl.env.make("CartPole-v1")
            >>> env.reset(domain=(b, i))
            f32[4] @ (b, i)
        """
        ctx = current()
        if self._reset is not None:
            raise EnvError(
                "this environment has been reset already.",
                others={"first at": self._reset[2]},
                hint="create another environment for another set of episodes.",
            )
        names = as_dims(ctx, ctx.space, domain)
        with ctx.region("reset"):
            first = self.record_reset(names)
            self._reset = (names, first, user_origin())
            ctx.environments.append(self)
            return first

    @property
    def raw(self) -> Simulation:
        """The environment whose results an exported policy reads: this one, or the wrapped one."""
        return self

    def record_reset(self, domain: Domain) -> Tensor:
        """Return the result of `begin`, and record the tensors that an exported policy reads."""
        ctx = current()
        begun = len(ctx.op_ids)
        first = self.begin(domain)
        self._inside = range(begun, len(ctx.op_ids))
        self._shown = {"obs": first, **self._public()}
        return first

    def record_step(self, action: Tensor, time: Domain, first: Tensor) -> Step:
        """Return the result of `play` at each action, and record the tensors that an exported policy reads."""
        begun = len(action.ctx.op_ids)
        step = self.play(action, time, first)
        step = replace(
            step,
            reward=_at_each(step.reward, action.domain),
            terminated=_at_each(step.terminated, action.domain),
            truncated=_at_each(step.truncated, action.domain),
            alive=_at_each(step.alive, action.domain),
        )
        self._came = {name: getattr(step, name) for name in _SHOWN} | self._public()
        self._within = frozenset((*self._inside, *range(begun, len(action.ctx.op_ids))))
        return step

    def _public(self) -> dict[str, Tensor]:
        """Return tensors among the environment's public attributes, such as a mask of actions."""
        own = {n: x for n, x in vars(self).items() if isinstance(x, RecurrentTensor)}
        return {name: x for name, x in own.items() if not name.startswith("_")}

    def step(self, action: Tensor) -> Step:
        """Return the result of one action per environment and time step.

        Args:
            action: the actions, over the dimensions of the reset and at least one time dimension.

        Raises:
            EnvError: the environment has not been reset, has already been stepped, or the actions do not match its space.
            DomainError: the actions do not vary over the dimensions of the reset and one more.

        Example:
            >>> env = trl.env.make("CartPole-v1")
            >>> o = trl.like(env.obs_space, domain=(b, t))
            >>> o[b, 0] = env.reset(domain=b)
            >>> o[b, t + 1], reward, done = env.step(trl.random.randint(2, domain=(b, t)))
            >>> reward
            f32[] @ (b, t)
        """
        if self._reset is None:
            raise EnvError(
                "step is called before reset.", hint="call env.reset(domain=(b, i)) first."
            )
        if self._stepped is not None:
            raise EnvError(
                "this environment has been stepped already.",
                others={"first at": self._stepped},
                hint="an environment has one step equation; create another environment.",
            )
        domain, first, _ = self._reset
        self._check_action(action)
        time = tuple(d for d in action.domain if d not in domain)
        if not time or set(domain) - set(action.domain):
            raise DomainError(
                f"actions vary over ({', '.join(action.domain)}) and resets over "
                f"({', '.join(domain)}): there is no time dimension, which only actions have.",
                hint="let actions vary over the resets' dimensions and one more.",
            )
        if len(time) > 1 and self.autoreset is None:
            raise EnvError(
                f"episodes continue along {', '.join(time)}, but no new ones begin.",
                hint="create the environment with autoreset='same_step', or reset it at each "
                f"{' and '.join(time[:-1])}.",
            )
        self._stepped, self.axes = user_origin(), (domain[:-1] or domain, time[-1:])
        step, raw = self.record_step(action, time, first), self.raw
        for name in ("reward", "terminated", "truncated", "alive", "final_obs"):
            action.ctx.label_by_default(f"step.{name}", getattr(step, name))
        action.ctx.played.append(
            Played(
                raw.obs_space,
                domain,
                time,
                {name: x.read.tensor for name, x in raw._shown.items()},
                {name: x.read.tensor for name, x in raw._came.items()},
                action.read,
                raw._within,
                self._stepped,
            )
        )
        first, after = raw._shown, raw._came
        return replace(step, shown={n: (first[n], after[n]) for n in raw._public() if n in first})

    def _check_action(self, action: Tensor) -> None:
        space = self.act_space
        if action.shape != space.shape or action.dtype != space.dtype:
            raise EnvError(
                f"an action must be {space.dtype}{list(space.shape)}, not {action.type}.",
                hint=f"give actions of the space {space}.",
            )


def _mode_of(autoreset: Any) -> Literal["next_step", "same_step"] | None:
    """Return the name of a mode, which may be of Gymnasium's enumeration; None for the episode mask.

    Raises:
        EnvError: there is no such mode.
    """
    name = autoreset.name.lower() if isinstance(autoreset, Enum) else autoreset
    if name is None or name == "disabled":
        return None
    if name in ("next_step", "same_step"):
        return name
    raise EnvError(
        f"autoreset={autoreset!r} is not a mode.",
        hint="use None or 'disabled' (episode mask), 'next_step' or 'same_step'.",
    )


def _at_each(x: Tensor, domain: Domain) -> Tensor:
    """Broadcast a tensor over a domain."""
    if set(domain) <= set(x.domain):
        return x
    made = x.ctx.open_merge(x.type, domain)
    x.ctx.set_branches(made.id, [x.read])
    return tensor_of(x.ctx, made)


@explain_constructor
class Environment(Simulation):
    """Environment written with tensors.

    Subclasses define the first state, the transition and the observation; this class adds episodes, truncation and masks. A
    state is a tensor or a tuple of tensors. Set the class attribute `terminates` to False if no state ends an episode:
    without `max_steps` no masks are needed then.

    Args:
        autoreset, max_steps: as for `Simulation`.
        differentiable: whether gradients flow through transitions into the actions.

    Example:
        >>> class Walk(trl.env.Environment):
        ...     obs_space, act_space = trl.env.Box(-1.0, 1.0), trl.env.Discrete(2)
        ...     def first_state(self, domain):
        ...         return trl.random.uniform((), -1.0, 1.0, domain=domain)
        ...     def transition(self, state, action):
        ...         after = state + trl.where(action == 1, 0.1, -0.1)
        ...         return after, -abs(after), abs(after) > 1.0
        >>> env = Walk(max_steps=100)
        >>> env.reset(domain=(b, i))
        f32[] @ (b, i)
    """

    terminates = True

    def __init__(
        self,
        *,
        autoreset: Autoreset | None = None,
        max_steps: int | None = None,
        differentiable: bool = False,
    ) -> None:
        super().__init__(autoreset=autoreset, max_steps=max_steps)
        self.differentiable = differentiable
        self._first: State = None

    @abstractmethod
    def first_state(self, domain: Domain) -> State:
        """Return a random first state, drawn independently over the domain."""

    @abstractmethod
    def transition(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        """Return the next state, the reward, and whether the episode has terminated."""

    def observe(self, state: State) -> Tensor:
        """Return the observation of a state; by default the state."""
        return state

    def begin(self, domain: Domain) -> Tensor:
        self._first = self.first_state(domain)
        return self.observe(self._first)

    def play(self, action: Tensor, time: Domain, first: Tensor) -> Step:
        assert self._first is not None
        episode = _Episode(action, time, self._first)
        if not self.terminates and self.max_steps is None:
            return self._step_unbounded(episode, action)
        return self._steps[self.autoreset](self, episode, action)

    def _advance(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        action = action if self.differentiable else action.detach()
        after, reward, ended = self.transition(state, action)
        if (was := _count(state)) != (now := _count(after)):
            raise EnvError(
                f"{self.made_as}: the first state has {was}, but the transition returns {now}.",
                hint="let `transition` return as many tensors as `first_state`.",
            )
        return after, reward, ended

    def _masked_step(self, episode: _Episode, action: Tensor) -> Step:
        state, alive = episode.state, episode.flag("alive", True)
        after, reward, ended = self._advance(state, action)
        state_next = select_state(alive, after, state)
        terminated = alive & ended
        truncated = alive & self._is_truncated(episode.elapsed_at_time() + 1, episode)
        episode.carry(state, state_next)
        episode.carry(alive, alive & ~(terminated | truncated))
        obs = self.observe(state_next)
        return Step(obs, where(alive, reward, 0.0), terminated, truncated, alive, obs)

    def _step_unbounded(self, episode: _Episode, action: Tensor) -> Step:
        after, reward, _ = self._advance(episode.state, action)
        episode.carry(episode.state, after)
        obs, never = self.observe(after), episode.always_false()
        return Step(obs, reward, never, never, ~never, obs, endless=True)

    def _next_step(self, episode: _Episode, action: Tensor) -> Step:
        state, over = episode.state, episode.flag("over", False)
        steps = episode.counter()
        after, reward, ended = self._advance(state, action)
        alive = ~over
        fresh = self.first_state(action.domain)
        state_next = select_state(over, fresh, after)
        terminated = alive & ended
        truncated = alive & self._is_truncated(steps + 1, episode)
        episode.carry(state, state_next)
        episode.carry(over, terminated | truncated)
        episode.carry(steps, where(over, 0, steps + 1))
        obs = self.observe(state_next)
        return Step(obs, where(alive, reward, 0.0), terminated, truncated, alive, obs)

    def _same_step(self, episode: _Episode, action: Tensor) -> Step:
        state, steps = episode.state, episode.counter()
        after, reward, terminated = self._advance(state, action)
        truncated = self._is_truncated(steps + 1, episode)
        done = terminated | truncated
        state_next = select_state(done, self.first_state(action.domain), after)
        episode.carry(state, state_next)
        episode.carry(steps, where(done, 0, steps + 1))
        alive = steps >= 0  # always true: every step belongs to an episode
        reward = where(alive, reward, 0.0)
        final = self.observe(after)  # first: the last call sets attributes, such as masks
        return Step(self.observe(state_next), reward, terminated, truncated, alive, final)

    _steps = {None: _masked_step, "next_step": _next_step, "same_step": _same_step}

    def _is_truncated(self, steps: Any, episode: _Episode) -> Tensor:
        """Test whether an episode is truncated after `steps` steps, an index expression or a tensor."""
        ctx = episode.ctx
        if self.max_steps is None:
            return constant(ctx, False)
        if isinstance(steps, Lin):
            return value_of(ctx, ge(steps, self.max_steps))
        return steps >= self.max_steps


def _count(state: State) -> str:
    return format_count(len(state), "tensor") if isinstance(state, tuple) else "a tensor"


def select_state(condition: Tensor, x: State, y: State) -> State:
    """Return state `x` where the condition is true, `y` elsewhere."""
    if isinstance(x, tuple):
        return tuple(where(condition, a, b) for a, b in zip(x, y, strict=True))
    return where(condition, x, y)


class _Episode:
    """Recurrent tensors of one environment's episodes: state, flags and counters over time."""

    def __init__(self, action: Tensor, time: Domain, first: State) -> None:
        self.ctx, self.time, self.domain = action.ctx, time, action.domain
        if isinstance(first, tuple):
            self.state: State = tuple(self.recurrent(x.op.label or "state", x) for x in first)
        else:
            self.state = self.recurrent("state", first)

    def recurrent(self, name: str, first: Tensor) -> Tensor:
        """Create a tensor that is `first` at time 0; `carry` defines its later values."""
        x = tensor(first.shape, first.dtype, domain=self.domain).named(name)
        self.ctx.add_branch(x.read.source, initial_branch(first, self.time))
        return x

    def flag(self, name: str, first: bool) -> Tensor:
        return self.recurrent(name, constant(self.ctx, first))

    def counter(self) -> Tensor:
        return self.recurrent("steps", constant(self.ctx, 0, "i32"))

    def always_false(self) -> Tensor:
        """Return a tensor that is false at every point."""
        x = tensor((), "bool", domain=self.domain)
        self.ctx.add_branch(x.read.source, constant(self.ctx, False).read)
        return x

    def elapsed_at_time(self) -> Lin:
        """Return the number of earlier steps, if no episode restarts."""
        return sym(self.time[-1])

    def carry(self, x: State, value: State) -> None:
        """Set `x` to `value` one step later."""
        if isinstance(x, tuple):
            for one, its_value in zip(x, value, strict=True):
                self.carry(one, its_value)
            return
        after = value.settled().named_if_new(f"{x.name}'")
        for read in previous_branches(after, self.time):
            self.ctx.add_branch(x.read.source, read)


_FACTORIES: dict[str, Callable[..., Simulation]] = {}
_FAMILIES: dict[str, Callable[..., Simulation]] = {}


@explain_call_errors
def register(name: str, factory: Callable[..., Simulation]) -> None:
    """Register an environment for `make`.

    Args:
        name: the name, or `family.*` for all names that begin with `family.`.
        factory: the function that `make` calls with its options; for a family, the rest of the name comes first.

    Raises:
        DomainError: `name` is not a printable string.

    Example:
        >>> trl.env.register("ShortCartPole", lambda **options: trl.env.CartPole(max_steps=50, **options))
        >>> trl.env.make("ShortCartPole").max_steps
        50
    """
    if checked_name(name, "an environment's name").endswith(".*"):
        _FAMILIES[name[:-2]] = factory
    else:
        _FACTORIES[name] = factory


def registered_as(name: str) -> str:
    """Return the name of the registration that `make` uses for a name: this name, or `family.*`."""
    family, dot, _ = name.partition(".")
    return f"{family}.*" if dot and family in _FAMILIES else name


def registered(name: str) -> Callable[..., Simulation] | None:
    """Return the function that `make` calls for a name, or None if the name is not registered."""
    family, dot, _ = name.partition(".")
    return _FAMILIES.get(family) if dot and family in _FAMILIES else _FACTORIES.get(name)


@explain_call_errors
def make(name: str, **options: Any) -> Simulation:
    """Create an environment by its name.

    Args:
        name: a built-in name such as "CartPole-v1", or "gym.…", "gymnax.…", "brax.…" and "envpool.…" with a name of
            that library.
        options: arguments of the environment's class, such as `autoreset` and `max_steps`.

    Raises:
        EnvError: there is no such environment, or it does not accept an option.

    Example:
        >>> trl.env.make("CartPole-v1").obs_space.shape
        (4,)
    """
    expect_type(name, str, "the name of an environment", 'write trl.env.make("CartPole-v1").')
    family, dot, rest = str(name).partition(".")
    if dot and family in _FAMILIES:
        return _FAMILIES[family](rest, **options)
    if name not in _FACTORIES:
        raise EnvError(
            f"there is no environment {name!r}.", hint=one_of(str(name), list(_FACTORIES))
        )
    try:
        return _FACTORIES[name](**options)
    except CallError as error:
        raise EnvError(f"{name}: {error.what}", hint=error.hint) from None
    except TypeError as error:
        raise EnvError(f"{name}: {error}.", hint="leave out the option.") from None


def made(env: Simulation | str, **options: Any) -> Simulation:
    """Return a given environment, or create it by its name with options.

    Raises:
        CallError: the argument is neither.
        EnvError: there is no environment of this name.
    """
    if isinstance(env, str):
        return make(env, **options)
    return expect_type(
        env, Simulation, "an environment", 'give trl.env.make("CartPole-v1"), or a name.'
    )


def same_step_environment(algorithm: str, env: Simulation | str) -> Simulation:
    """Return a given environment, or create it by its name, for an algorithm that needs resets in the same step.

    Raises:
        EnvError: the environment does not reset itself in the same step, or there is none of this name.
    """
    env = made(env, autoreset="same_step")
    if env.autoreset != "same_step":
        raise EnvError(
            f"{algorithm} needs an environment that resets itself in the same step, not {env!r}.",
            hint="make it with autoreset='same_step'.",
        )
    return env
