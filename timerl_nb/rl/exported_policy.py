"""The policy of a run, to be used outside of it: `result.policy()` is a function from observations to actions.

It holds the slice of the program between the observation and the action (`frontend.acting`), and the
weights. It is called on arrays, or written into a program of its own to play episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array, narrow_array
from timerl_nb.base.errors import (
    EnvError,
    ExecutionError,
    IndexExpressionError,
    OptionError,
    ShapeError,
    TimeRLError,
    point_text,
)
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.operations import reached_from
from timerl_nb.compiler.ir.shapes import NUMPY, is_float, is_integer
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import LEARNT, all_asked, missing
from timerl_nb.compiler.language.inputs.dynamic_bound_inputs import until
from timerl_nb.compiler.language.inputs.tensor_sources import Parameter, constant, data, like, where
from timerl_nb.compiler.language.policy.environment_and_action_record import FROZEN, Actor
from timerl_nb.compiler.language.policy.policy_graph import How, PolicyGraph
from timerl_nb.compiler.language.policy.policy_in_program import InProgram
from timerl_nb.compiler.language.policy.policy_slice import Slicer, policy_of
from timerl_nb.compiler.language.program_context import Context as Frontend
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.distributions import Distribution
from timerl_nb.driver.compiling_context import Context
from timerl_nb.env.environment import Simulation, make
from timerl_nb.nn.module import map_parameters
from timerl_nb.runtime.jax_backend import graph_function as graph
from timerl_nb.runtime.jax_backend.fork_guard import check_process
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint, load


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


Graphs = Mapping[How, PolicyGraph | TimeRLError]


@all_asked
class LearntPolicy:
    """A policy with the weights that a run has learnt, outside of its program.

    It acts as the program did, by the same operations between an observation and the action. The
    program's exploration (random actions, noise) is left out unless `explore=True`. A policy with
    memory is recurrent: it takes and returns its state.

    Attributes:
        weights: arrays by name.
        frozen: other values of the last iteration that it acts by, such as running statistics.
        name: the point of the run that they belong to.
        shape, dtype: the type of an observation.
        graphs: the policy as a graph without dimensions, in each way of acting.
    """

    def __init__(
        self,
        graphs: Graphs,
        weights: Mapping[str, Array],
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        frozen: Mapping[str, Array] | None = None,
    ) -> None:
        self.weights = {name: np.array(x) for name, x in weights.items()}
        self.name, self.graphs = name, dict(graphs)
        self.shape, self.dtype = shape, dtype
        self.frozen = {name: np.array(x) for name, x in (frozen or {}).items()}
        self._functions: dict[How, Any] = {}

    def __call__(
        self,
        observation: Any,
        state: Mapping[str, Any] | None = None,
        *,
        seed: int | np.random.Generator | None = None,
        explore: bool = False,
        **beside: Any,
    ) -> Any:
        """The action for an observation, or for each of many.

        Without a seed the most likely action, the mean where it is a number; with one an action
        drawn by it: the same for the same seed and place in the batch. A NumPy generator gives
        another seed at each call.

        Args:
            observation: an array of the policy's shape, or of any axes before that; of NumPy, JAX or
                whoever exchanges arrays by DLPack, as PyTorch does. Actions are arrays of the same.
            state: of a recurrent policy, what its last call returned; None begins an episode.
            seed: an integer, or a NumPy generator.
            explore: act as the program did while it learnt, with random actions and noise.
            beside: what else the policy reads, by name, such as a mask of actions.

        Returns:
            the action; of a recurrent policy the action and the next state, arrays by name.

        Raises:
            ShapeError: it has another shape or element type; what is expected is said.
            OptionError: the actions of this policy are drawn, and no seed is given; or something that
                the policy reads is missing.
        """
        check_process()
        try:
            given = graph.import_array(observation)
        except (TypeError, ValueError, BufferError) as error:
            raise ShapeError(
                f"an observation is {self._observation_text}, and this is no array: {error}."
            ) from None
        rows, batch = self._rows(given, isinstance(observation, list | tuple | int | float))
        how = self._choose_how(sample=seed is not None, explore=explore)
        found = self.graph(how)
        if found.draws and seed is None:
            raise OptionError(
                "the program says how actions are drawn, not which is the most likely.",
                others={"it does so at": found.unlikely or found.origin},
                hint="give a seed: policy(observation, seed=0); or let ctx.policy's act return a "
                "distribution.",
            )
        taken = {"obs": rows, **self._extra_inputs(found, beside, batch)}
        taken |= self._given_state(found, state, batch)
        action, *after = self._function(how)(
            self._parameter_values, taken, _seed(seed), prod(batch)
        )
        action = graph.given_back(action.reshape((*batch, *action.shape[1:])), observation)
        if not found.state:
            return action
        kept = {
            name: graph.given_back(x.reshape((*batch, *x.shape[1:])), observation)
            for name, x in zip(found.state, after, strict=True)
        }
        return action, kept

    def initial_state(
        self, *batch: int, sample: bool = False, explore: bool = False
    ) -> dict[str, Any]:
        """The state of a recurrent policy at the beginning of an episode, for each of a batch.

        Args:
            batch: the axes before those of the state.
            sample, explore: the way of acting that the state is for.
        """
        found = self.graph(self._choose_how(sample=sample, explore=explore))
        if not found.state:
            return {}
        first = graph.by_rows(found.pdg, [s.first for s in found.state.values()], {}, found.given)
        made = first(self._parameter_values, {}, 0, 1)
        return {
            name: np.broadcast_to(x[0], (*batch, *x.shape[1:])).copy()
            for name, x in zip(found.state, map(np.asarray, made), strict=True)
        }

    def graph(self, how: How) -> PolicyGraph:
        """The policy as a graph without dimensions.

        Raises:
            TimeRLError: the program has no policy of that kind; its line is named.
        """
        found = self.graphs[how]
        if isinstance(found, TimeRLError):
            raise found.with_traceback(None)
        return found

    def evaluate(
        self,
        env: str | Simulation,
        episodes: int = 10,
        seed: int = 0,
        *,
        sample: bool = False,
        explore: bool = False,
        max_steps: int | None = None,
    ) -> Episodes:
        """Play episodes to their end, all side by side.

        Args:
            env: a name, or what `trl.env.make` returns, which stays as it is.
            episodes: how many.
            seed: of first states, of chance in the environment, and of actions that are drawn.
            sample: draw actions, as the program did; the most likely ones otherwise.
            explore: act with random actions and noise, as the program did while it learnt.
            max_steps: the longest that an episode may be; the environment's own by default.

        Raises:
            EnvError: the environment shows something else than the policy sees, takes other
                actions, or its episodes have no end.
        """
        count = integer("the number of episodes", episodes, least=1)
        found = self.graph(self._choose_how(sample=sample, explore=explore))
        sim = fresh(env, self, max_steps)
        with Context("b", "t") as ctx:
            (b, B), (t, T) = ctx.dims
            o = like(sim.obs_space, domain=(b, t))
            o[b, 0] = sim.reset(domain=(b,))
            given = {name: constant(value) for name, value in self._parameter_values.items()}
            acted = InProgram(found, given, o, ("t",))
            step = sim.step(acted.made["action"])
            o[b, t + 1] = step.obs
            acted.goes_on(step, restarts=False)
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

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_functions": {}}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)

    def __repr__(self) -> str:
        size = sum(x.size for x in self.weights.values())
        return (
            f"LearntPolicy({self.name}: {self.dtype}{list(self.shape)} -> actions; "
            f"{format_count(len(self.weights), 'weight')}, {format_count(size, 'number')})"
        )

    # --- calling -----------------------------------------------------------------------------

    @property
    def _parameter_values(self) -> dict[str, Array]:
        return {**self.frozen, **self.weights}

    @property
    def _observation_text(self) -> str:
        return f"{NUMPY[self.dtype].name}{list(self.shape)}"

    def _choose_how(self, *, sample: bool, explore: bool) -> How:
        return "explore" if explore else "sample" if sample else "mode"

    def _rows(self, given: Any, plain: bool) -> tuple[Any, tuple[int, ...]]:
        """The observations one after the other, and the axes that they were laid out in."""
        shape, dtype = self.shape, self.dtype
        batch = given.shape[: given.ndim - len(shape)]
        if given.ndim < len(shape) or given.shape[len(batch) :] != shape:
            raise ShapeError(
                f"an observation is {self._observation_text}, not {given.dtype}{list(given.shape)}.",
                hint=f"give {list(shape)}, or several at once: {['n', *shape]}.".replace("'", ""),
            )
        if not _fits(given, dtype, plain=plain):
            raise ShapeError(
                f"an observation is {self._observation_text}, not {given.dtype}{list(given.shape)}.",
                hint=f"convert it as the program's environment does: x.astype({NUMPY[dtype].name!r}).",
            )
        rows = narrow_array("an observation", given, NUMPY[dtype])
        return rows.reshape((prod(batch), *shape)), batch

    def _extra_inputs(
        self, found: PolicyGraph, given: Mapping[str, Any], batch: tuple[int, ...]
    ) -> dict[str, Any]:
        """The policy's inputs besides the observation, by name."""
        reads = {name: k for name, k in found.inputs.items() if name != "obs"}
        unknown = [name for name in given if name not in reads]
        if unknown:
            known = f"it reads {', '.join(reads)}." if reads else "it reads the observation alone."
            raise OptionError(f"the policy reads no {unknown[0]!r}.", hint=known)
        return {name: self._input_of(found, name, k, given, batch) for name, k in reads.items()}

    def _given_state(
        self, found: PolicyGraph, state: Any, batch: tuple[int, ...]
    ) -> dict[str, Any]:
        if state is None and found.state:
            how = next(how for how, one in self.graphs.items() if one is found)
            state = self.initial_state(*batch, sample=how == "sample", explore=how == "explore")
        if not isinstance(state, Mapping | None) or set(state or ()) != set(found.state):
            raise OptionError(
                f"the state is {', '.join(found.state)}, and {state!r:.60} is something else."
                if found.state
                else "this policy has no state.",
                hint="give what the last call returned, made in the same way (seed, explore).",
            )
        return {
            f"state {name}": self._input_of(found, name, one.op_id, state or {}, batch)
            for name, one in found.state.items()
        }

    def _input_of(
        self,
        found: PolicyGraph,
        name: str,
        op_id: int,
        given: Mapping[str, Any],
        batch: tuple[int, ...],
    ) -> Any:
        kind = found.pdg[op_id].type
        shape = (*batch, *found.shape_of(op_id))
        if name not in given:
            if name not in _ENDED:
                raise OptionError(
                    f"the policy also reads {name!r}, which is missing.",
                    origin=found.pdg[op_id].origin,
                    hint=f"policy(observation, {name}=…), {kind} for each observation.",
                )
            x: Any = np.zeros(shape, NUMPY[kind.dtype])
        else:
            x = graph.import_array(given[name])
        if x.shape != shape or not _fits(x, kind.dtype, plain=True):
            raise ShapeError(
                f"{name} is {NUMPY[kind.dtype].name}{list(shape)} here, not {x.dtype}{list(x.shape)}."
            )
        return x.astype(NUMPY[kind.dtype]).reshape((prod(batch), *found.shape_of(op_id)))

    def _function(self, how: How) -> Any:
        """Return a function from rows of observations to actions and the next state."""
        if how in self._functions:
            return self._functions[how]
        found = self.graph(how)
        wanted = [found.made["action"], *(s.after for s in found.state.values())]
        kind = graph.without_rule(found.pdg, wanted)
        if kind is not None:
            raise ExecutionError(
                f"the policy cannot be called outside of its program: it needs {kind!r}.",
                origin=found.origin,
                hint="policy.evaluate(env, episodes) writes a program of it.",
            )
        rows = {**found.inputs, **{f"state {name}": s.op_id for name, s in found.state.items()}}
        self._functions[how] = graph.by_rows(found.pdg, wanted, rows, found.given)
        return self._functions[how]


# may be missing: here a new state begins an episode
_ENDED: Final = ("terminated", "truncated")


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


def _trace_policy(actor: Actor, how: How) -> PolicyGraph:
    """The policy of `ctx.policy`, or a network, as a graph without dimensions."""
    with Frontend() as ctx:
        o = data(np.zeros(actor.shape, NUMPY[actor.dtype]), dtype=actor.dtype).named("obs")
        weights: dict[str, RecurrentTensor] = {}

        def value(p: Parameter) -> RecurrentTensor:
            if p.name not in weights:
                sizes = [n for n in p.shape if isinstance(n, int)]
                array = np.zeros(sizes, NUMPY[p.dtype])
                weights[p.name] = data(array, dtype=p.dtype).named(p.name)
            return weights[p.name]

        try:
            made = actor.act(map_parameters(actor.network, value), o)
        except IndexExpressionError as error:
            raise ExecutionError(
                "the policy uses more of its program than its network and the observation.",
                origin=actor.origin,
                evidence=error.what,
                hint="put all modules and parameters that act uses into the network, and take them "
                'from there: ctx.policy({"q": q, "scale": scale}, o, lambda net, o: '
                'net["q"](o * net["scale"])).',
            ) from error
        acted = _policy_outputs(actor, made, how)
        values = [value() for value in list(ctx.critics.values())]
        acted |= {"value": values[0]} if len(values) == 1 and how != "mode" else {}
        reads = {name: x.settled().read for name, x in acted.items()}
        pdg = ctx.snapshot()
    needed = reached_from([reads["action"].source], lambda k: pdg[k].sources)
    chance = [k for k in needed if pdg[k].kind == "rng"]
    return PolicyGraph(
        pdg,
        {"obs": o.read.source},
        {name: x.read.source for name, x in weights.items()},
        {},
        {},
        {},
        reads,
        bool(chance),
        actor.origin if chance else None,
        actor.origin,
    )


def _policy_outputs(actor: Actor, made: Any, how: How) -> dict[str, RecurrentTensor]:
    if isinstance(made, Distribution):
        if how == "mode":
            return {"action": made.mode()}
        action = made.sample()
        return {"action": action, "log_prob": made.log_prob(action)}
    if not isinstance(made, RecurrentTensor):
        raise ExecutionError(
            f"the policy makes {made!r}, which is neither a distribution nor an action.",
            origin=actor.origin,
            hint="ctx.policy(network, o, act): act takes the network and an observation, and returns "
            "a distribution or a tensor.",
        )
    return {"action": made}


HOWS: Final[tuple[How, ...]] = ("mode", "sample", "explore")


def graphs_of(policy: Slicer | Actor) -> dict[How, PolicyGraph | TimeRLError]:
    """A policy in each way of acting, or why it does not act so."""

    def make_graph(how: How) -> PolicyGraph | TimeRLError:
        try:
            return policy.graph(how) if isinstance(policy, Slicer) else _trace_policy(policy, how)
        except TimeRLError as error:
            return error

    return {how: make_graph(how) for how in HOWS}


def fresh(env: Any, policy: Any, max_steps: int | None) -> Simulation:
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
    sim = env.unstarted(max_steps=max_steps)
    if sim.max_steps is None:
        raise EnvError(f"episodes of {sim!r} may have no end.", hint="give max_steps=1000, say.")
    seen = tuple(sim.obs_space.shape), sim.obs_space.dtype
    if seen != (policy.shape, policy.dtype):
        raise EnvError(
            f"the policy sees {policy.dtype}{list(policy.shape)}, and the environment shows "
            f"{seen[1]}{list(seen[0])}.",
            hint="give an environment like the one that it learnt in.",
        )
    return sim


# --- of a result ---------------------------------------------------------------------------------


def learnt(
    ctx: Frontend,
    bounds: Mapping[str, int],
    parameters: Mapping[str, Array],
    frozen: Mapping[str, Array],
    kept: Sequence[WrittenCheckpoint],
    step: int | Mapping[str, int] | None,
) -> LearntPolicy:
    """The policy of a run; see `Result.policy`."""
    policy = policy_of(ctx)
    graphs = graphs_of(policy)
    there = [one for one in graphs.values() if isinstance(one, PolicyGraph)]
    if not there:
        raise next(one for one in graphs.values() if isinstance(one, TimeRLError))
    named = {name: one.shape_of(k) for one in there for name, k in one.weights.items()}
    if step is None:
        values, name = parameters, "after the last iteration"
        lost = [n for n in named if n not in parameters]
        if lost:
            raise ExecutionError(
                f"the run has no last value of {', '.join(lost)}.",
                hint="result.policy(step=…) is that of a checkpoint that was kept.",
            )
    else:
        chosen = _select_checkpoint([one for one in kept if set(named) <= set(one.names)], step)
        values, name = load(chosen.path), f"at {point_text(chosen.point)}"
    several = [n for n, shape in named.items() if values[n].shape != shape]
    if several:
        raise ExecutionError(
            f"there are several values of {', '.join(several[:3])}: "
            f"{list(values[several[0]].shape)} where the network takes {list(named[several[0]])}.",
            hint="checkpoint one of them, as in dnn[k == 0].checkpoint(folder), and give its step.",
        )
    others = {n: one for one in there for n in one.frozen}
    if step is not None:
        frozen = {n: values[f"{FROZEN}{n}"] for n in others if f"{FROZEN}{n}" in values}
    lost = [n for n in others if n not in frozen]
    if lost:
        raise ExecutionError(
            f"{'the run' if step is None else 'the checkpoint'} has no value of {', '.join(lost)}, "
            "by which the policy acts, too.",
            hint="" if step is None else "result.policy() is that of the last iteration.",
        )
    last = {n: frozen[n] for n in others} | indices(ctx, bounds, there)
    return LearntPolicy(
        graphs, {n: values[n] for n in named}, name, policy.shape, policy.dtype, last
    )


def indices(
    ctx: Frontend, bounds: Mapping[str, int], graphs: Sequence[PolicyGraph]
) -> dict[str, Array]:
    """Dimensions at their last points, and bounds, as far as policies read them."""
    known = {d.name: bounds[d.bound] - 1 for d in ctx.space if d.bound in bounds}
    known |= {name: int(value) for name, value in bounds.items()}
    return {n: np.array(known[n], np.int32) for one in graphs for n in one.indices}


def _select_checkpoint(kept: Sequence[WrittenCheckpoint], step: Any) -> WrittenCheckpoint:
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
