"""Extraction of a program's policy, as a slice between an environment's observation and its action.

`policy_graph_writer` writes the slice as a graph without dimensions (`PolicyGraph`). It is evaluated by the kernels'
rules, or written into another program by `policy_in_program`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from timerl_nb.base.errors import OptionError, Origin, TimeRLError
from timerl_nb.compiler.ir.operation_attributes import CheckpointAttrs, OutputAttrs
from timerl_nb.compiler.ir.operations import Read, reached_from
from timerl_nb.compiler.ir.shapes import DType
from timerl_nb.compiler.language.policy.environment_and_action_record import (
    FROZEN,
    Actor,
    Played,
    call_network,
)
from timerl_nb.compiler.language.policy.policy_cone import PolicyCone
from timerl_nb.compiler.language.policy.policy_graph import How, PolicyGraph
from timerl_nb.compiler.language.policy.policy_graph_writer import PolicyWriter
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor


class Slicer:
    """Policies of one program in all three modes: most likely action, sampled action, exploration.

    Args:
        ctx: the program; descriptions of draws are added to it temporarily.
        played: the environment's reset and step.
    """

    def __init__(self, ctx: Context, played: Played) -> None:
        self._ctx, self._played = ctx, played
        self._graphs: dict[How, PolicyGraph] = {}
        self._reads: dict[str, Read] = {}
        self.passing: set[str] = set()  # the dimensions of iterations and steps

    def graph(self, how: How) -> PolicyGraph:
        """Return the policy with the most likely action, with draws, or exactly as in the program.

        Raises:
            OptionError: the program has no such slice; the error names the line.
        """
        if how not in self._graphs:
            with self._ctx.discard_operations():
                source = PolicyCone(self._ctx, self._played)
                self._graphs[how] = PolicyWriter(source, how).graph()
                self._reads |= source.frozen_reads
                self.passing = {*source.iterations, *self._played.time}
        return self._graphs[how]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an observation."""
        return tuple(self._played.space.shape)

    @property
    def dtype(self) -> DType:
        """Element type of an observation."""
        return self._played.space.dtype

    @property
    def origin(self) -> Origin:
        """Line of the environment's step."""
        return self._played.origin

    def frozen(self, graph: PolicyGraph) -> dict[str, RecurrentTensor]:
        """Return the program's tensors whose last values are a graph's frozen values."""
        return {name: RecurrentTensor(self._ctx, self._reads[name]) for name in graph.frozen}


def policy_of(ctx: Context) -> Slicer | Actor:
    """Return the policy of a context's program: a slice of its graph, or the actor named by `ctx.policy`.

    Raises:
        OptionError: the program steps no environment, or several.
    """
    marked = next((one for one in ctx.policies if one.marked), None)
    found: list[Played] = ctx.played
    if marked is not None:
        if marked.act is not call_network:
            _check_observation(ctx, marked)
            return marked
        names = {p.name for p in getattr(marked.network, "saved", ())}
        found = [one for one in found if names & weights_of(ctx, one)]
        if not found:
            return marked
    elif len(found) > 1:
        learns = [one for one in found if weights_of(ctx, one)]
        found = learns if len(learns) == 1 else found
    if len(found) == 1:
        return Slicer(ctx, found[0])
    if not found:
        raise OptionError(
            "the program has no policy: it steps no environment.",
            others={"a network is made at": ctx.policies[0].origin} if ctx.policies else {},
            hint="write ctx.policy(network, o, act): o is an example of an observation, and "
            "act(network, o) returns a distribution or an action.",
        )
    raise OptionError(
        f"the program acts in {len(found)} environments.",
        others={"one is stepped at": found[0].origin, "another at": found[1].origin},
        hint="name the network of the policy: ctx.policy(dnn).",
    )


def _check_observation(ctx: Context, actor: Actor) -> None:
    """Check that a policy of `ctx.policy` reads the observations of its environment.

    Raises:
        OptionError: the program normalises them by running statistics, which the policy does not contain.
    """
    inside = {x for one in ctx.played for x in (*one.came.values(), *one.first.values())}
    if actor.seen is None or actor.seen.tensor in inside:
        return

    def list_operands(k: int) -> Iterable[int]:
        return [r.source for r in ctx[k].inputs if r.tensor not in inside]

    found = set(reached_from([actor.seen.source], list_operands))
    if any(k in found for k, _ in ctx.statistics):
        raise OptionError(
            "the policy reads normalised observations, but ctx.policy does not contain their statistics.",
            others={"it is declared at": actor.origin},
            hint="normalise observations in act, or train without trl.env.NormalizeObservation.",
        )


def weights_of(ctx: Context, played: Played) -> set[str]:
    """Return the names of the parameters on which an environment's actions depend."""
    inside = {*played.came.values(), *played.first.values()}
    params = {**ctx.parameters, **ctx.after_update}

    def list_operands(k: int) -> Iterable[int]:
        return () if k in params else [r.source for r in ctx[k].inputs if r.tensor not in inside]

    return {
        params[k].name for k in reached_from([played.action.source], list_operands) if k in params
    }


def return_frozen(ctx: Context) -> None:
    """Add the policy's non-parameter values to the run's outputs and to checkpoints."""
    try:
        found = policy_of(ctx)
        if isinstance(found, Actor):
            return
        graph = found.graph("explore")
        frozen = found.frozen(graph)
    except TimeRLError:
        return  # the error is raised when the policy is requested
    if frozen:
        _save_frozen(ctx, set(graph.weights), frozen, found.passing)
    for name, x in frozen.items():
        last = x.at({d: ctx.space[d].size - 1 for d in x.domain if d in found.passing})
        ctx.add("output", [last.read], OutputAttrs(name, "policy", last.domain))


def _save_frozen(
    ctx: Context, weights: set[str], frozen: Mapping[str, RecurrentTensor], passing: set[str]
) -> None:
    """Add a policy's frozen values to the checkpoints that contain its weights."""
    for op_id in ctx.op_ids:
        op = ctx[op_id]
        if not isinstance(op.attrs, CheckpointAttrs) or not weights <= set(op.attrs.names):
            continue
        named: dict[str, Read] = {}
        for name, x in frozen.items():
            outside = [d for d in x.domain if d not in op.domain and d in passing]
            last = x.at({d: ctx.space[d].size - 1 for d in outside}).settled()
            if set(last.domain) <= set(op.domain):
                named[f"{FROZEN}{name}"] = last.read
        ctx.add_to_checkpoint(op_id, named)
