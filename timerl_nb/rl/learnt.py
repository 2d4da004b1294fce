"""What a run has learnt, to be used: `result.policy()` is a function from observations to actions.

The network is written once more, outside the program, with values in place of its parameters: to be
called on arrays, or inside a program of its own that plays episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from timerl_nb.arrays import Array, narrowed
from timerl_nb.distributions import Distribution
from timerl_nb.driver.context import Context
from timerl_nb.entry_points import register_entry_point
from timerl_nb.env.core import Simulation, make
from timerl_nb.errors import (
    EnvError,
    ExecutionError,
    IndexExpressionError,
    OptionError,
    ShapeError,
    point_text,
)
from timerl_nb.frontend.actor import Actor
from timerl_nb.frontend.arguments import integer
from timerl_nb.frontend.context import Context as Frontend
from timerl_nb.frontend.foreign import LEARNT, all_asked, missing
from timerl_nb.frontend.sources import Parameter, constant, data, like, where
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.frontend.until import until
from timerl_nb.ir.shapes import NUMPY, is_float, is_integer
from timerl_nb.nn.module import replaced
from timerl_nb.runtime.backends import jax_graph as graph
from timerl_nb.runtime.backends.jax_forks import check_process
from timerl_nb.runtime.loading import Kept, load


@dataclass(frozen=True)
class Episodes:
    """What episodes came to.

    Attributes:
        returns: the sum of rewards of each.
        lengths: its number of steps.
    """

    returns: Array
    lengths: Array

    def __len__(self) -> int:
        return len(self.returns)

    def __repr__(self) -> str:
        returns, lengths = self.returns, self.lengths
        if not len(self):
            return "Episodes(0)"
        return (
            f"Episodes({len(self)}: return {returns.mean():.4g} ± {returns.std():.2g}, "
            f"from {returns.min():.4g} to {returns.max():.4g}; {lengths.mean():.4g} steps)"
        )


@all_asked
class LearntPolicy:
    """A policy with the weights that a run has learnt, outside of its program.

    Attributes:
        weights: by name.
        name: of which point of the run they are.
        actor: what it is in its program.
    """

    def __init__(self, actor: Actor, weights: Mapping[str, Array], name: str) -> None:
        self.weights = {name: np.array(x) for name, x in weights.items()}
        self.name, self.actor = name, actor

    def __call__(self, observation: Any, *, seed: int | np.random.Generator | None = None) -> Any:
        """The action for an observation, or for each of many.

        Without a seed the most likely action, the mean where it is a number; with one an action
        drawn by it: the same for the same seed and place in the batch. A NumPy generator gives
        another seed at each call.

        Args:
            observation: an array of the policy's shape, or of any axes before that; of NumPy, JAX or
                whoever exchanges arrays by DLPack, as PyTorch does. Actions are arrays of the same.
            seed: an integer, or a NumPy generator.

        Raises:
            ShapeError: it has another shape or element type; what is expected is said.
            OptionError: the actions of this policy are drawn, and no seed is given.
        """
        check_process()
        try:
            given = graph.taken(observation)
        except (TypeError, ValueError, BufferError) as error:
            raise ShapeError(
                f"an observation is {self._wanted}, and this is no array: {error}."
            ) from None
        rows, batch = self._rows(given, isinstance(observation, list | tuple | int | float))
        act, by_chance = self._sampled if seed is not None else self._likely
        if by_chance and seed is None:
            raise OptionError(
                "the program says how actions are drawn, not which is the most likely.",
                others={"it does so at": self.actor.origin},
                hint="give a seed: policy(observation, seed=0); or let ctx.policy's act return a "
                "distribution.",
            )
        (made,) = act(self.weights, rows, _seed(seed))
        return graph.given_back(made.reshape((*batch, *made.shape[1:])), observation)

    def evaluate(
        self,
        env: str | Simulation,
        episodes: int = 10,
        seed: int = 0,
        *,
        sample: bool = False,
        max_steps: int | None = None,
    ) -> Episodes:
        """Play episodes to their end, all side by side.

        Args:
            env: a name, or what `trl.env.make` returns, which stays as it is.
            episodes: how many.
            seed: of first states, of chance in the environment, and of actions that are drawn.
            sample: draw actions, as the program did; the most likely ones otherwise.
            max_steps: the longest that an episode may be; the environment's own by default.

        Raises:
            EnvError: the environment shows something else than the policy sees, takes other
                actions, or its episodes have no end.
        """
        count = integer("the number of episodes", episodes, least=1)
        sim = fresh(env, self.actor, max_steps)
        with Context("b", "t") as ctx:
            (b, B), (t, T) = ctx.dims
            o = like(sim.obs_space, domain=(b, t))
            o[b, 0] = sim.reset(domain=(b,))
            weights = {name: constant(value) for name, value in self.weights.items()}
            step = sim.step(action(self.actor, weights, o, sample=sample))
            o[b, t + 1] = step.obs
            ctx.output("return", where(step.alive, step.reward, 0.0).sum(over=t))
            ctx.output("length", step.alive.cast("i32").sum(over=t))
            over = (~step.alive | step.done).all(over=b)
        longest: Any = sim.max_steps
        bound = longest if step.endless else until(over, at_most=longest)
        program = ctx.compile({B: count, T: bound}, tell=False)
        result = program.execute(seed, progress=False)
        return Episodes(result["return"], result["length"])

    def __getattr__(self, name: str) -> Any:
        raise missing("a policy", name, dir(type(self)), LEARNT)

    def __repr__(self) -> str:
        size = sum(x.size for x in self.weights.values())
        return (
            f"LearntPolicy({self.name}: {self.actor.dtype}{list(self.actor.shape)} -> actions; "
            f"{len(self.weights)} weights, {size:,} numbers)"
        )

    # --- calling -----------------------------------------------------------------------------

    @property
    def _wanted(self) -> str:
        return f"{NUMPY[self.actor.dtype].name}{list(self.actor.shape)}"

    def _rows(self, given: Any, plain: bool) -> tuple[Any, tuple[int, ...]]:
        """The observations one after the other, and the axes that they were laid out in."""
        shape, dtype = self.actor.shape, self.actor.dtype
        batch = given.shape[: given.ndim - len(shape)]
        if given.ndim < len(shape) or given.shape[len(batch) :] != shape:
            raise ShapeError(
                f"an observation is {self._wanted}, not {given.dtype}{list(given.shape)}.",
                hint=f"give {list(shape)}, or several at once: {['n', *shape]}.".replace("'", ""),
            )
        if not _fits(given, dtype, plain=plain):
            raise ShapeError(
                f"an observation is {self._wanted}, not {given.dtype}{list(given.shape)}.",
                hint=f"convert it as the program's environment does: x.astype({NUMPY[dtype].name!r}).",
            )
        rows = narrowed("an observation", given, NUMPY[dtype])
        return rows.reshape((prod(batch), *shape)), batch

    @cached_property
    def _likely(self) -> tuple[Any, bool]:
        return self._function(sample=False)

    @cached_property
    def _sampled(self) -> tuple[Any, bool]:
        return self._function(sample=True)

    def _function(self, *, sample: bool) -> tuple[Any, bool]:
        """What makes actions of rows, and whether it draws them."""
        actor = self.actor
        with Frontend() as ctx:
            o = data(np.zeros(actor.shape, NUMPY[actor.dtype]), dtype=actor.dtype)
            weights = {name: data(np.zeros(x.shape, x.dtype)) for name, x in self.weights.items()}
            a = _action(actor, weights, o, sample=sample).settled()
        pdg = ctx.snapshot()
        kind = graph.without_rule(pdg, a.read)
        if kind is not None:
            raise ExecutionError(
                f"the policy cannot be called outside of its program: it needs {kind!r}.",
                origin=actor.origin,
                hint="policy.evaluate(env, episodes) writes a program of it.",
            )
        given = {name: w.read.source for name, w in weights.items()}
        return graph.by_rows(pdg, [a.read], o.read.source, given), graph.draws(pdg, a.read)


def _seed(seed: Any) -> int:
    if seed is None:
        return 0
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    return integer("the seed", seed, hint="give an integer, or a NumPy generator.")


def _fits(given: Any, dtype: str, *, plain: bool) -> bool:
    """Whether numbers mean the same as another element type: fractions stay fractions."""
    kind = np.dtype(given.dtype).kind if given.dtype != NUMPY["bf16"] else "f"
    if is_float(dtype):
        return kind == "f" or (plain and kind in "iu")
    if is_integer(dtype):
        ends = np.iinfo(NUMPY[dtype])
        return kind in "iu" and bool(((given >= ends.min) & (given <= ends.max)).all())
    return kind == "b"


def _action(
    actor: Actor, weights: Mapping[str, RecurrentTensor], o: RecurrentTensor, *, sample: bool
) -> RecurrentTensor:
    """The action of a policy with other weights, at an observation."""

    def value(p: Parameter) -> RecurrentTensor:
        return weights[p.name]

    try:
        made = actor.act(replaced(actor.network, value), o)
    except IndexExpressionError as error:
        raise ExecutionError(
            "the policy uses more of its program than its network and the observation.",
            origin=actor.origin,
            evidence=error.what,
            hint="put all modules and parameters that act uses into the network, and take them from "
            'there: ctx.policy({"q": q, "scale": scale}, o, lambda net, o: net["q"](o * net["scale"])).',
        ) from error
    if isinstance(made, Distribution):
        return made.sample() if sample else made.mode()
    if not isinstance(made, RecurrentTensor):
        raise ExecutionError(
            f"the policy makes {made!r}, which is neither a distribution nor an action.",
            origin=actor.origin,
            hint="ctx.policy(network, o, act): act takes the network and an observation, and returns "
            "a distribution or a tensor.",
        )
    return made


def action(
    actor: Actor, weights: Mapping[str, RecurrentTensor], o: RecurrentTensor, *, sample: bool
) -> RecurrentTensor:
    """The action of a policy at every point of an observation, also where it does not depend on that."""
    a = _action(actor, weights, o, sample=sample)
    if a.domain == o.domain:
        return a
    made = like(a, domain=o.domain)
    made[...] = a
    return made


def fresh(env: Any, actor: Actor, max_steps: int | None) -> Simulation:
    """An environment as another one, neither reset nor stepped, whose episodes end once.

    Raises:
        EnvError: it is none, or shows something else than the policy sees, or its episodes have no end.
    """
    if isinstance(env, str):
        env = make(env, **({} if max_steps is None else {"max_steps": max_steps}))
    if not isinstance(env, Simulation):
        raise EnvError(
            f"{env!r} is no environment.", hint='give a name, or trl.env.make("CartPole-v1").'
        )
    sim = env.anew(max_steps=max_steps)
    if sim.max_steps is None:
        raise EnvError(f"episodes of {sim!r} may have no end.", hint="give max_steps=1000, say.")
    seen = tuple(sim.obs_space.shape), sim.obs_space.dtype
    if seen != (actor.shape, actor.dtype):
        raise EnvError(
            f"the policy sees {actor.dtype}{list(actor.shape)}, and the environment shows "
            f"{seen[1]}{list(seen[0])}.",
            hint=f"it was learnt with the network at {actor.origin.place}.",
        )
    return sim


# --- of a result ---------------------------------------------------------------------------------


def learnt(
    candidates: Sequence[Actor],
    parameters: Mapping[str, Array],
    kept: Sequence[Kept],
    step: int | Mapping[str, int] | None,
) -> LearntPolicy:
    """The policy of a run; see `Result.policy`."""
    actor = actor_of(candidates)
    named: dict[str, tuple[int, ...]] = {}

    def note(p: Parameter) -> Parameter:
        named[p.name] = tuple(int(n) for n in p.shape if isinstance(n, int))
        return p

    replaced(actor.network, note)
    if step is None:
        values, name = parameters, "after the last iteration"
        lost = [n for n in named if n not in parameters]
        if lost:
            raise ExecutionError(
                f"the run has no last value of {', '.join(lost)}.",
                hint="result.policy(step=…) is that of a checkpoint that was kept.",
            )
    else:
        chosen = _chosen([one for one in kept if set(named) <= set(one.names)], step)
        values, name = load(chosen.path), f"at {point_text(chosen.point)}"
    several = [n for n, shape in named.items() if values[n].shape != shape]
    if several:
        raise ExecutionError(
            f"there are several values of {', '.join(several[:3])}: "
            f"{list(values[several[0]].shape)} where the network takes {list(named[several[0]])}.",
            hint="checkpoint one of them, as in dnn[k == 0].checkpoint(folder), and give its step.",
        )
    return LearntPolicy(actor, {n: values[n] for n in named}, name)


def actor_of(candidates: Sequence[Actor]) -> Actor:
    """What the program acts by."""
    marked = [one for one in candidates if one.marked]
    found = marked or list(candidates)
    if len(found) == 1:
        return found[0]
    if not found:
        raise OptionError(
            "the program does not say which network its policy is.",
            hint="write ctx.policy(network, o, act) in it: o is what an observation looks like, and "
            "act(network, o) returns a distribution or an action; trl.DNNBuilder's say so themselves. "
            "A result that was copied or pickled knows its parameters alone.",
        )
    raise OptionError(
        f"the program has {len(found)} networks that act.",
        others={"one is made at": found[0].origin, "another at": found[1].origin},
        hint="say in it which is meant: ctx.policy(dnn).",
    )


def _chosen(kept: Sequence[Kept], step: Any) -> Kept:
    """The kept checkpoint of a step: the last one at that point of the first dimension."""
    if isinstance(step, Mapping):
        found = [one for one in kept if dict(one.point) == dict(step)]
    else:
        number = integer("the step", step, hint="give an iteration, or a point: {'i': 9}.")
        found = [one for one in kept if next(iter(one.point.values()), None) == number]
    if found:
        return max(found, key=lambda one: tuple(one.point.values()))
    if not kept:
        raise OptionError(
            f"there is no step {step!r}: the run has kept no checkpoint of the policy's weights.",
            hint="dnn[(i + 1) % 10 == 0].checkpoint(folder) keeps one every ten iterations; "
            "result.policy() is the last.",
        )
    steps = sorted({next(iter(one.point.values()), 0) for one in kept})
    shown = [str(n) for n in steps]
    shown = shown if len(shown) < 13 else [*shown[:6], "…", *shown[-3:], f"({len(steps)} in all)"]
    raise OptionError(
        f"no checkpoint was kept of step {step!r}.",
        hint=f"there are the steps {', '.join(shown)}; without one it is the last.",
    )


register_entry_point("program.policy", learnt)
