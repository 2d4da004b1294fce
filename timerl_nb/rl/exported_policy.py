"""Policy of a run, for use outside of its program: `result.policy()`.

It contains the slice of the program between observation and action, and the weights. It is called with arrays, or
written into another program to play episodes.
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
from timerl_nb.compiler.language.foreign_names import LEARNT, explain_method_errors, missing
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
    """Returns and lengths of evaluation episodes.

    Attributes:
        returns: the sum of rewards of each episode.
        lengths: the number of steps of each episode.
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


@explain_method_errors
class LearntPolicy:
    """Policy with the weights of a run, usable outside of its program.

    It computes actions by the same operations as the program. The program's exploration (random actions, noise) is left out
    unless `explore=True`. A recurrent policy takes and returns its state.

    Attributes:
        weights: arrays by name.
        frozen: other values of the last iteration that it needs, such as running statistics.
        name: the point of the run from which the weights are taken.
        shape, dtype: the type of an observation.
        graphs: the policy as a graph without dimensions, per mode.

    Example:
        >>> policy = program.execute().policy()  # doctest: +SKIP
        >>> action = policy(observation)  # doctest: +SKIP
        >>> policy.evaluate("CartPole-v1", episodes=100)  # doctest: +SKIP
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
        """Return the action for an observation, or one action per observation of a batch.

        Without a seed the action is the most likely one, or the mean if actions are numbers. With a seed the action is
        drawn; it depends on the seed and the position in the batch. A NumPy generator gives a different seed in each
        call.

        Args:
            observation: an array of the policy's shape, with any batch axes before it: of NumPy, JAX, or any library
                with DLPack, such as PyTorch. Actions have the same array type.
            state: for a recurrent policy, the state returned by the last call; None begins an episode.
            seed: an integer, or a NumPy generator.
            explore: act as the program did during training, with random actions and noise.
            beside: other inputs of the policy, by name, such as a mask of actions.

        Returns:
            the action; for a recurrent policy the action and the next state, arrays by name.

        Raises:
            ShapeError: an array has an unsuitable shape or element type.
            OptionError: the policy needs a seed, or an input is missing.
        """
        check_process()
        try:
            given = graph.import_array(observation)
        except (TypeError, ValueError, BufferError) as error:
            raise ShapeError(
                f"an observation must be {self._observation_text}, but this is not an array: {error}.",
                hint="give an array of NumPy, JAX or PyTorch.",
            ) from None
        rows, batch = self._rows(given, isinstance(observation, list | tuple | int | float))
        how = self._choose_how(sample=seed is not None, explore=explore)
        found = self.graph(how)
        if found.draws and seed is None:
            raise OptionError(
                "the program draws its actions and has no most likely action.",
                others={"it draws at": found.unlikely or found.origin},
                hint="give a seed: policy(observation, seed=0); or let ctx.policy's act return a "
                "distribution.",
            )
        taken = {"obs": rows, **self._extra_inputs(found, beside, batch)}
        taken |= self._given_state(found, state, batch)
        action, *after = self._function(how)(
            self._parameter_values, taken, _seed(seed), prod(batch)
        )
        action = graph.to_library_of(action.reshape((*batch, *action.shape[1:])), observation)
        if not found.state:
            return action
        kept = {
            name: graph.to_library_of(x.reshape((*batch, *x.shape[1:])), observation)
            for name, x in zip(found.state, after, strict=True)
        }
        return action, kept

    def initial_state(
        self, *batch: int, sample: bool = False, explore: bool = False
    ) -> dict[str, Any]:
        """Return the state of a recurrent policy at the start of an episode.

        Args:
            batch: batch axes before those of the state.
            sample, explore: the mode of acting, as for `evaluate`.
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
        """Return the policy as a graph without dimensions.

        Raises:
            TimeRLError: the program has no policy in this mode; the error names the line.
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
        """Play complete episodes in parallel and return their returns.

        Args:
            env: a name, or an environment from `trl.env.make`, which is not changed.
            episodes: the number of episodes.
            seed: the seed of first states, of the environment, and of drawn actions.
            sample: draw actions; by default the most likely ones are used.
            explore: act with random actions and noise, as during training.
            max_steps: the greatest number of steps per episode; by default the environment's own.

        Raises:
            EnvError: observations or actions do not match the policy, or the episodes have no step limit.
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
        """Return the observations as rows, and their batch axes."""
        shape, dtype = self.shape, self.dtype
        batch = given.shape[: given.ndim - len(shape)]
        if given.ndim < len(shape) or given.shape[len(batch) :] != shape:
            raise ShapeError(
                f"an observation must be {self._observation_text}, not {given.dtype}{list(given.shape)}.",
                hint=f"give the shape {list(shape)}, or {['n', *shape]} for a batch.".replace(
                    "'", ""
                ),
            )
        if not _fits(given, dtype, plain=plain):
            raise ShapeError(
                f"an observation must be {self._observation_text}, not {given.dtype}{list(given.shape)}.",
                hint=f"convert it as the program's environment does: x.astype({NUMPY[dtype].name!r}).",
            )
        rows = narrow_array("an observation", given, NUMPY[dtype])
        return rows.reshape((prod(batch), *shape)), batch

    def _extra_inputs(
        self, found: PolicyGraph, given: Mapping[str, Any], batch: tuple[int, ...]
    ) -> dict[str, Any]:
        """Return the policy's inputs besides the observation, by name."""
        reads = {name: k for name, k in found.inputs.items() if name != "obs"}
        unknown = [name for name in given if name not in reads]
        if unknown:
            known = (
                f"its inputs are {', '.join(reads)}." if reads else "it reads only the observation."
            )
            raise OptionError(f"the policy has no input {unknown[0]!r}.", hint=known)
        return {name: self._input_of(found, name, k, given, batch) for name, k in reads.items()}

    def _given_state(
        self, found: PolicyGraph, state: Any, batch: tuple[int, ...]
    ) -> dict[str, Any]:
        if state is None and found.state:
            how = next(how for how, one in self.graphs.items() if one is found)
            state = self.initial_state(*batch, sample=how == "sample", explore=how == "explore")
        if not isinstance(state, Mapping | None) or set(state or ()) != set(found.state):
            raise OptionError(
                f"the state must contain {', '.join(found.state)}, not {state!r:.60}."
                if found.state
                else "this policy has no state.",
                hint="give the state returned by the last call with the same mode (seed, explore).",
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
        """Return an input of the policy as an array with one row per observation.

        Raises:
            OptionError: the input is missing.
            ShapeError: its shape or type is unsuitable.
        """
        kind = found.pdg[op_id].type
        shape = (*batch, *found.shape_of(op_id))
        if name not in given:
            if name not in _ENDED:
                raise OptionError(
                    f"the policy's input {name!r} is missing.",
                    origin=found.pdg[op_id].origin,
                    hint=f"write policy(observation, {name}=…), with {kind} for each observation.",
                )
            x: Any = np.zeros(shape, NUMPY[kind.dtype])
        else:
            x = graph.import_array(given[name])
        if x.shape != shape or not _fits(x, kind.dtype, plain=True):
            raise ShapeError(
                f"{name} must be {NUMPY[kind.dtype].name}{list(shape)}, not {x.dtype}{list(x.shape)}.",
                hint="give one value per observation.",
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
                f"the policy cannot be called with arrays: it needs the operation {kind!r}.",
                origin=found.origin,
                hint="use policy.evaluate(env, episodes), which compiles a program.",
            )
        rows = {**found.inputs, **{f"state {name}": s.op_id for name, s in found.state.items()}}
        self._functions[how] = graph.by_rows(found.pdg, wanted, rows, found.given)
        return self._functions[how]


# Optional inputs: a new state begins an episode.
_ENDED: Final = ("terminated", "truncated")


def _seed(seed: Any) -> int:
    if seed is None:
        return 0
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    return integer("the seed", seed, hint="give an integer, or a NumPy generator.")


def _fits(given: Any, dtype: str, *, plain: bool) -> bool:
    """Test whether numbers keep their meaning in another element type: fractions are not integers."""
    kind = np.dtype(given.dtype).kind if given.dtype != NUMPY["bf16"] else "f"
    if is_float(dtype):
        return kind == "f" or (plain and kind in "iu")
    if is_integer(dtype):
        ends = np.iinfo(NUMPY[dtype])
        return kind in "iu" and bool(((given >= ends.min) & (given <= ends.max)).all())
    return kind == "b"


def _trace_policy(actor: Actor, how: How) -> PolicyGraph:
    """Return the policy of `ctx.policy`, or a network, as a graph without dimensions."""
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
                "the policy uses tensors of its program besides its network and the observation.",
                origin=actor.origin,
                evidence=error.what,
                hint="put all modules and parameters of act into the network: "
                'ctx.policy({"q": q, "scale": scale}, o, lambda net, o: '
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
            f"the policy returns {made!r}, which is neither a distribution nor an action.",
            origin=actor.origin,
            hint="in ctx.policy(network, o, act), let act(network, o) return "
            "a distribution or a tensor.",
        )
    return {"action": made}


HOWS: Final[tuple[How, ...]] = ("mode", "sample", "explore")


def graphs_of(policy: Slicer | Actor) -> dict[How, PolicyGraph | TimeRLError]:
    """Return a policy in each mode, or the error if it has no such mode."""

    def make_graph(how: How) -> PolicyGraph | TimeRLError:
        try:
            return policy.graph(how) if isinstance(policy, Slicer) else _trace_policy(policy, how)
        except TimeRLError as error:
            return error

    return {how: make_graph(how) for how in HOWS}


def fresh(env: Any, policy: Any, max_steps: int | None) -> Simulation:
    """Return a copy of an environment, neither reset nor stepped, with one episode per instance.

    Wrappers of results are left out: the policy contains those that it needs.

    Raises:
        EnvError: it is not an environment, its observations do not match the policy, or its episodes have no limit.
    """
    if isinstance(env, str):
        env = make(env, **({} if max_steps is None else {"max_steps": max_steps}))
    if not isinstance(env, Simulation):
        raise EnvError(
            f"{env!r} is not an environment.", hint='give a name, or trl.env.make("CartPole-v1").'
        )
    sim = env.raw.unstarted(max_steps=max_steps)
    if sim.max_steps is None:
        raise EnvError(
            f"episodes of {sim!r} may have no end.", hint="set a limit, such as max_steps=1000."
        )
    seen = tuple(sim.obs_space.shape), sim.obs_space.dtype
    if seen != (policy.shape, policy.dtype):
        raise EnvError(
            f"the policy's observations are {policy.dtype}{list(policy.shape)}, but the environment returns "
            f"{seen[1]}{list(seen[0])}.",
            hint="give an environment with the same observation space as in training.",
        )
    return sim


# --- policy of a result ---------------------------------------------------------------------------


def learnt(
    ctx: Frontend,
    bounds: Mapping[str, int],
    parameters: Mapping[str, Array],
    frozen: Mapping[str, Array],
    checkpoints: Sequence[WrittenCheckpoint],
    step: int | Mapping[str, int] | None,
) -> LearntPolicy:
    """Return the policy of a run; see `Result.policy`."""
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
                hint="use a checkpoint: result.policy(step=…).",
            )
    else:
        chosen = _select_checkpoint(
            [one for one in checkpoints if set(named) <= set(one.names)], step
        )
        values, name = load(chosen.path), f"at {point_text(chosen.point)}"
    several = [n for n, shape in named.items() if values[n].shape != shape]
    if several:
        raise ExecutionError(
            f"the run has several values of {', '.join(several[:3])}: "
            f"the shape is {list(values[several[0]].shape)}, but the network takes {list(named[several[0]])}.",
            hint="save one of them, as in dnn[k == 0].checkpoint(folder), and pass step=.",
        )
    others = {n: one for one in there for n in one.frozen}
    if step is not None:
        frozen = {n: values[f"{FROZEN}{n}"] for n in others if f"{FROZEN}{n}" in values}
    lost = [n for n in others if n not in frozen]
    if lost:
        raise ExecutionError(
            f"{'the run' if step is None else 'the checkpoint'} has no value of {', '.join(lost)}, "
            "which the policy needs.",
            hint="" if step is None else "use the last iteration: result.policy().",
        )
    last = {n: frozen[n] for n in others} | indices(ctx, bounds, there)
    return LearntPolicy(
        graphs, {n: values[n] for n in named}, name, policy.shape, policy.dtype, last
    )


def indices(
    ctx: Frontend, bounds: Mapping[str, int], graphs: Sequence[PolicyGraph]
) -> dict[str, Array]:
    """Return the dimensions at their last points, and the bounds, that policies read."""
    known = {d.name: bounds[d.bound] - 1 for d in ctx.space if d.bound in bounds}
    known |= {name: int(value) for name, value in bounds.items()}
    return {n: np.array(known[n], np.int32) for one in graphs for n in one.indices}


def _select_checkpoint(checkpoints: Sequence[WrittenCheckpoint], step: Any) -> WrittenCheckpoint:
    """Return the checkpoint of a step: the last one at that point of the first dimension."""
    if isinstance(step, Mapping):
        found = [one for one in checkpoints if dict(one.point) == dict(step)]
    else:
        number = integer("the step", step, hint="give an iteration, or a point: {'i': 9}.")
        found = [one for one in checkpoints if next(iter(one.point.values()), None) == number]
    if found:
        return max(found, key=lambda one: tuple(one.point.values()))
    if not checkpoints:
        raise OptionError(
            f"there is no step {step!r}: the run has no checkpoint of the policy's weights.",
            hint="write dnn[(i + 1) % 10 == 0].checkpoint(folder) to save one every ten iterations; "
            "result.policy() returns the last policy.",
        )
    steps = sorted({next(iter(one.point.values()), 0) for one in checkpoints})
    shown = [str(n) for n in steps]
    shown = shown if len(shown) < 13 else [*shown[:6], "…", *shown[-3:], f"({len(steps)} in all)"]
    raise OptionError(
        f"there is no checkpoint of step {step!r}.",
        hint=f"saved steps: {', '.join(shown)}; omit step= for the last policy.",
    )
