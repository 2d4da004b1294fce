"""Environments as recurrence equations.

An environment's state is a recurrent tensor: the reset gives it at time 0, the transition at t + 1.
The time dimension is the one that `step` has and `reset` lacks; along several, the last one fastest,
episodes go on: those of `reset(domain=(b,))` from iteration to iteration. In the default
episode-mask mode an episode that is done stands still: its state is frozen, its rewards are 0,
`alive` is false (semantics.md §8); with `autoreset` a new episode begins, at the next step or at the
same one, as in Gymnasium's modes of these names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from timerl_nb.base.errors import DomainError, EnvError, Origin, one_of, user_origin
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.argument_checks import checked_name, is_whole
from timerl_nb.compiler.language.foreign_names import expect_type
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
State = Any  # a tensor, or a tuple of them
Autoreset = Literal["next_step", "same_step"]
# names of a step's tensors; a tensor with several names gets the first
_SHOWN = ("obs", "reward", "terminated", "truncated", "alive", "final_obs")


@dataclass(frozen=True)
class Step:
    """What a step returns; it unpacks to observation, reward and done.

    `alive` says whether the step was part of an episode, `final_obs` is the observation that the
    transition led to even where `obs` already belongs to the next episode. `endless` episodes end
    with the time dimension alone: nothing need be masked.
    """

    obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    alive: Tensor
    final_obs: Tensor
    endless: bool = False

    @property
    def done(self) -> Tensor:
        return self.terminated | self.truncated

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.obs, self.reward, self.done))

    def masked(self, x: Tensor) -> Tensor:
        """`x` where the step is part of an episode, 0 elsewhere."""
        return x if self.endless else where(self.alive, x, 0.0)

    def mean(self, x: Tensor, over: Any) -> Tensor:
        """Return the mean of `x` over the steps that are part of an episode, 0 if there are none."""
        if self.endless:
            return x.mean(over=over)
        count = self.alive.sum(over=over).maximum(1)
        return self.masked(x).sum(over=over) / count.cast(x.dtype)

    def then(self, x: Tensor) -> Tensor:
        """`x`, which belongs to the next step, where the episode goes on; 0 where it is over."""
        return x if self.endless else where(self.done, 0.0, x)


class Simulation(ABC):
    """What environments share: spaces, modes, one reset and one step equation.

    Args:
        autoreset: None (episode mask), "next_step" or "same_step".
        max_steps: the length after which an episode is truncated; the environment's own by default.
    """

    obs_space: Any
    act_space: Any
    max_steps: int | None = None
    axes: tuple[Domain, Domain] | None = None  # of environments and steps, once it is stepped
    _arguments: tuple[tuple[Any, ...], dict[str, Any]] = (), {}

    def __new__(cls, *args: Any, **named: Any) -> Self:
        made = super().__new__(cls)
        made._arguments = args, named
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments by which the environment was made; they tell it from others of its class."""
        return self._arguments

    def __init__(
        self,
        *,
        autoreset: Autoreset | None = None,
        max_steps: int | None = None,
    ) -> None:
        if autoreset is not None and not (
            isinstance(autoreset, str) and autoreset in get_args(Autoreset)
        ):
            raise EnvError(
                f"autoreset={autoreset!r} is not a mode.",
                hint="use None (episode mask), 'next_step' or 'same_step'.",
            )
        if max_steps is not None and not (is_whole(max_steps) and max_steps >= 1):
            raise EnvError(
                f"max_steps must be an integer of at least 1, not {max_steps!r}.",
                hint="max_steps=500; None for the environment's own.",
            )
        self.autoreset = autoreset
        self.max_steps = max_steps or type(self).max_steps
        self._reset: tuple[Domain, Tensor, Origin] | None = None
        self._stepped: Origin | None = None
        self._shown: dict[str, Any] = {}  # by the reset
        self._inside = range(0)  # the reset's operations

    @property
    def made_as(self) -> str:
        """The name that `make` knows it by, or else its class's."""
        known = (name for name, made in _FACTORIES.items() if made is type(self))
        return next(known, type(self).__name__)

    def __repr__(self) -> str:
        spaces = f"observations {self.obs_space}, actions {self.act_space}"
        modes = f"max_steps={self.max_steps}, autoreset={self.autoreset!r}"
        return f"Environment({self.made_as}: {spaces}, {modes})"

    def unstarted(self, *, max_steps: int | None = None) -> Self:
        """The same environment, neither reset nor stepped, whose episodes end once each.

        Args:
            max_steps: another length after which they are truncated.
        """
        twin = copy(self)
        twin.autoreset, twin._reset, twin._stepped = None, None, None
        twin.max_steps = max_steps or self.max_steps
        return twin

    @abstractmethod
    def begin(self, domain: Domain) -> Tensor:
        """The first observation of every episode."""

    @abstractmethod
    def play(self, action: Tensor, time: Domain, first: Tensor) -> Step:
        """One step along the dimensions `time`; `first` is what `begin` returned."""

    def reset(self, *, domain: Any) -> Tensor:
        """The first observation of every episode, over `domain` (environments, iterations).

        Raises:
            EnvError: the environment has been reset already.
        """
        ctx = current()
        if self._reset is not None:
            raise EnvError(
                "this environment has been reset already.",
                others={"first at": self._reset[2]},
                hint="make another environment for another set of episodes.",
            )
        names = as_dims(ctx, ctx.space, domain)
        with ctx.region("reset"):
            begun = len(ctx.op_ids)
            first = self.begin(names)
            self._inside = range(begun, len(ctx.op_ids))
            self._shown = {"obs": first, **self._public()}
            self._reset = (names, first, user_origin())
            ctx.environments.append(self)
            return first

    def _public(self) -> dict[str, Tensor]:
        """Tensors among the environment's attributes, such as a mask of actions."""
        own = {n: x for n, x in vars(self).items() if isinstance(x, RecurrentTensor)}
        return {name: x for name, x in own.items() if not name.startswith("_")}

    def step(self, action: Tensor) -> Step:
        """Take one action per environment and time.

        Raises:
            EnvError: before `reset`, a second time, or with actions that do not fit.
        """
        if self._reset is None:
            raise EnvError("step comes before reset.", hint="call env.reset(domain=(b, i)) first.")
        if self._stepped is not None:
            raise EnvError(
                "this environment has been stepped already.",
                others={"first at": self._stepped},
                hint="an environment has one step equation; make another environment.",
            )
        domain, first, _ = self._reset
        self._check_action(action)
        time = tuple(d for d in action.domain if d not in domain)
        if not time or set(domain) - set(action.domain):
            raise DomainError(
                f"actions vary over ({', '.join(action.domain)}) and resets over "
                f"({', '.join(domain)}): the time dimension is the one that actions have and "
                "resets lack.",
                hint="let actions vary over the resets' dimensions and one more.",
            )
        if len(time) > 1 and self.autoreset is None:
            raise EnvError(
                f"episodes go on along {', '.join(time)}, but no new ones begin.",
                hint="make the environment with autoreset='same_step', or reset it at each "
                f"{' and '.join(time[:-1])}.",
            )
        self._stepped, self.axes = user_origin(), (domain[:-1] or domain, time[-1:])
        ctx = action.ctx
        begun = len(ctx.op_ids)
        step = self.play(action, time, first)
        step = replace(
            step,
            reward=_at_each(step.reward, action.domain),
            terminated=_at_each(step.terminated, action.domain),
            truncated=_at_each(step.truncated, action.domain),
            alive=_at_each(step.alive, action.domain),
        )
        came = {name: getattr(step, name) for name in _SHOWN} | self._public()
        ctx.played.append(
            Played(
                self.obs_space,
                domain,
                time,
                {name: x.read.tensor for name, x in self._shown.items()},
                {name: x.read.tensor for name, x in came.items()},
                action.read,
                frozenset((*self._inside, *range(begun, len(ctx.op_ids)))),
                self._stepped,
            )
        )
        return step

    def _check_action(self, action: Tensor) -> None:
        space = self.act_space
        if action.shape != space.shape or action.dtype != space.dtype:
            raise EnvError(
                f"an action is {space.dtype}{list(space.shape)}, not {action.type}.",
                hint=f"the action space is {space}.",
            )


def _at_each(x: Tensor, domain: Domain) -> Tensor:
    """Return a tensor broadcast over a domain."""
    if set(domain) <= set(x.domain):
        return x
    made = x.ctx.open_merge(x.type, domain)
    x.ctx.set_branches(made.id, [x.read])
    return tensor_of(x.ctx, made)


class Environment(Simulation):
    """An environment written in recurrent tensors.

    Subclasses say what a first state, a transition and an observation are; episodes, truncation and
    masks are the same for all. A state is a tensor, or a tuple of tensors.

    Args:
        autoreset, max_steps: as for `Simulation`.
        differentiable: let gradients flow through transitions into the actions.

    `terminates` is False where no state ends an episode: without `max_steps` nothing is masked then.
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
        """A state to start from, drawn independently over the domain."""

    @abstractmethod
    def transition(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        """The next state, the reward, and whether the episode has terminated."""

    def observe(self, state: State) -> Tensor:
        """What is seen of a state; all of it by default."""
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
                f"{self.made_as}: a state of {was} becomes one of {now}.",
                hint="let `transition` return as many tensors as `first_state`.",
            )
        return after, reward, ended

    def _masked_step(self, episode: _Episode, action: Tensor) -> Step:
        state, alive = episode.state, episode.flag("alive", True)
        after, reward, ended = self._advance(state, action)
        state_next = _select_state(alive, after, state)
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
        state_next = _select_state(over, fresh, after)
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
        state_next = _select_state(done, self.first_state(action.domain), after)
        episode.carry(state, state_next)
        episode.carry(steps, where(done, 0, steps + 1))
        alive = steps >= 0  # every step belongs to an episode
        reward = where(alive, reward, 0.0)
        return Step(
            self.observe(state_next), reward, terminated, truncated, alive, self.observe(after)
        )

    _steps = {None: _masked_step, "next_step": _next_step, "same_step": _same_step}

    def _is_truncated(self, steps: Any, episode: _Episode) -> Tensor:
        """Whether an episode of `steps` steps (an index expression or a tensor) is cut off."""
        ctx = episode.ctx
        if self.max_steps is None:
            return constant(ctx, False)
        if isinstance(steps, Lin):
            return value_of(ctx, ge(steps, self.max_steps))
        return steps >= self.max_steps


def _count(state: State) -> str:
    return format_count(len(state), "tensor") if isinstance(state, tuple) else "a tensor"


def _select_state(condition: Tensor, x: State, y: State) -> State:
    """One state where the condition holds, another elsewhere."""
    if isinstance(x, tuple):
        return tuple(where(condition, a, b) for a, b in zip(x, y, strict=True))
    return where(condition, x, y)


class _Episode:
    """The recurrent tensors of one environment's episodes: state, flags and counters over time."""

    def __init__(self, action: Tensor, time: Domain, first: State) -> None:
        self.ctx, self.time, self.domain = action.ctx, time, action.domain
        if isinstance(first, tuple):
            self.state: State = tuple(self.recurrent(x.op.label or "state", x) for x in first)
        else:
            self.state = self.recurrent("state", first)

    def recurrent(self, name: str, first: Tensor) -> Tensor:
        """A tensor that is `first` at time 0; `carry` gives its value later on."""
        x = tensor(first.shape, first.dtype, domain=self.domain).named(name)
        self.ctx.add_branch(x.read.source, initial_branch(first, self.time))
        return x

    def flag(self, name: str, first: bool) -> Tensor:
        return self.recurrent(name, constant(self.ctx, first))

    def counter(self) -> Tensor:
        return self.recurrent("steps", constant(self.ctx, 0, "i32"))

    def always_false(self) -> Tensor:
        """False at every point."""
        x = tensor((), "bool", domain=self.domain)
        self.ctx.add_branch(x.read.source, constant(self.ctx, False).read)
        return x

    def elapsed_at_time(self) -> Lin:
        """The steps taken before the current time where no episode restarts."""
        return sym(self.time[-1])

    def carry(self, x: State, value: State) -> None:
        """Let `x` be `value` one step later."""
        if isinstance(x, tuple):
            for one, its_value in zip(x, value, strict=True):
                self.carry(one, its_value)
            return
        after = value.settled().named_if_new(f"{x.name}'")
        for read in previous_branches(after, self.time):
            self.ctx.add_branch(x.read.source, read)


_FACTORIES: dict[str, Callable[..., Simulation]] = {}
_FAMILIES: dict[str, Callable[..., Simulation]] = {}


def register(name: str, factory: Callable[..., Simulation]) -> None:
    """Let `make(name, …)` call `factory(…)`; for a name `family.*`, `factory(rest, …)`."""
    if checked_name(name, "an environment's name").endswith(".*"):
        _FAMILIES[name[:-2]] = factory
    else:
        _FACTORIES[name] = factory


def make(name: str, **options: Any) -> Simulation:
    """The environment of that name; options go to its class.

    Raises:
        EnvError: there is no environment of that name, or an option that it does not take.
    """
    expect_type(name, str, "the name of an environment", 'trl.env.make("CartPole-v1").')
    family, dot, rest = str(name).partition(".")
    if dot and family in _FAMILIES:
        return _FAMILIES[family](rest, **options)
    if name not in _FACTORIES:
        raise EnvError(
            f"there is no environment {name!r}.", hint=one_of(str(name), list(_FACTORIES))
        )
    try:
        return _FACTORIES[name](**options)
    except TypeError as error:
        raise EnvError(f"{name}: {error}.") from None


def made(env: Simulation | str, **options: Any) -> Simulation:
    """Return an environment that is given, or make it by its name with options.

    Raises:
        CallError: it is neither.
        EnvError: there is no environment of that name.
    """
    if isinstance(env, str):
        return make(env, **options)
    return expect_type(
        env, Simulation, "an environment", 'trl.env.make("CartPole-v1"), or its name.'
    )
