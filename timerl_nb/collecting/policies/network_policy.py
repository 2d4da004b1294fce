"""TimeRL networks as policies, with their weights as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError, OptionError, TimeRLError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.collecting.policies.collecting_policy import (
    STATE,
    Acted,
    Acting,
    CarriedState,
    MaskArgument,
    OnHost,
    StepFeedback,
    Written,
)
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.iteration_inputs import given
from timerl_nb.compiler.language.inputs.tensor_sources import constant
from timerl_nb.compiler.language.policy.environment_and_action_record import Actor
from timerl_nb.compiler.language.policy.policy_graph import How, PolicyGraph
from timerl_nb.compiler.language.policy.policy_in_program import InProgram
from timerl_nb.compiler.language.policy.policy_slice import Slicer
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.action_masks import NAME
from timerl_nb.execution.results.run_result import Result
from timerl_nb.rl.exported_policy import LearntPolicy, graphs_of, indices
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import graph_function as rules


@dataclass(frozen=True)
class Network(Acting):
    """Policy of a graph without dimensions; its weights are values.

    Attributes:
        weights: weights and frozen values, by name.
        graph: the policy's graph.
        indices: dimensions and bounds in the graph, by name.
        shape, dtype: type of an observation.
    """

    graph: PolicyGraph
    indices: Mapping[str, Array]
    shape: tuple[int, ...]
    dtype: str

    def write_into_program(self, o: RecurrentTensor, i: Index, time: Domain) -> Written:
        given_here = {n: given(n, x.shape, x.dtype, domain=(i,)) for n, x in self.weights.items()}
        given_here |= {n: constant(x) for n, x in self.indices.items()}
        acted = InProgram(self.graph, given_here, o, time)
        return Written(acted.made, lambda step: acted.goes_on(step, restarts=True), acted.state)

    def on_host(self, seed: int, space: Any) -> OnHost:
        found = self.graph
        names = list(found.made)
        rows = {**found.inputs, **{f"{STATE}{n}": s.op_id for n, s in found.state.items()}}
        wanted = [*found.made.values(), *(s.after for s in found.state.values())]
        act_on = rules.by_rows(found.pdg, wanted, rows, found.given)
        firsts = [s.first for s in found.state.values()]
        begin_of = rules.by_rows(found.pdg, firsts, {}, found.given)
        draws = np.random.SeedSequence(seed % 2**64).generate_state(1, np.uint64)
        begin, kind = int(draws[0]) + 1, NUMPY[self.dtype]
        self._check_shown()
        carried = CarriedState()

        def act(
            values: Mapping[str, Any],
            obs: Array,
            number: int = 0,
            came: StepFeedback | None = None,
            mask: Array | None = None,
        ) -> Acted:
            given_here = {**self.indices, **values}
            xs: dict[str, Any] = {"obs": np.asarray(obs, kind)}
            now = StepFeedback.before_first_step(len(obs)) if came is None else came
            for name, op_id in found.inputs.items():
                if name == NAME:
                    assert mask is not None
                    xs[name] = mask.astype(NUMPY[found.pdg[op_id].dtype])
                elif name != "obs":
                    came_in = getattr(now, name).astype(NUMPY[found.pdg[op_id].dtype])
                    xs[name] = np.where(now.begins, np.zeros((), came_in.dtype), came_in)
            state: dict[str, Array] = {}
            if firsts:
                state = carried.before(
                    number,
                    now,
                    lambda: {
                        name: np.asarray(x)[0]
                        for name, x in zip(found.state, begin_of(given_here, {}, 0, 1), strict=True)
                    },
                )
            shown = {f"{STATE}{name}": x for name, x in state.items()}
            drawn = (begin + number) % 2**64
            made = act_on(given_here, xs | shown, drawn, len(obs), self.shard)
            arrays = [backend.to_numpy(x) for x in made]
            after = dict(zip(found.state, arrays[len(names) :], strict=True))
            carried.store(number, now, state, after)
            return dict(zip(names, arrays, strict=False)) | shown

        return act

    @property
    def looks_back(self) -> bool:
        return bool(self.graph.state) or bool(set(self.graph.inputs) - {"obs", NAME})

    @property
    def mask_argument(self) -> MaskArgument:
        takes = NAME in self.graph.inputs
        return MaskArgument(takes, takes, allows_gaps=not takes)

    @property
    def state_names(self) -> Sequence[str]:
        return tuple(self.graph.state)

    def check_weights(self, values: Any) -> dict[str, Any]:
        if isinstance(values, LearntPolicy):
            values = {
                n: x for n, x in {**values.frozen, **values.weights}.items() if n in self.weights
            }
        elif isinstance(values, Result):
            values = {**values.frozen, **values.parameters}
            values = {n: x for n, x in values.items() if n in self.weights}
        if isinstance(values, Mapping):
            kept = {n: self.weights[n] for n in self.graph.frozen}
            values = {**kept, **values}
        return super().check_weights(values)

    def _check_shown(self) -> None:
        for name, op_id in self.graph.inputs.items():
            if name not in ("obs", NAME, *StepFeedback.__dataclass_fields__):
                raise OptionError(
                    f"the policy also reads {name!r}, but environments on the host do not provide it.",
                    origin=self.graph.pdg[op_id].origin,
                    hint=f"call the policy itself: policy(observation, {name}=…). A mask of actions must be named "
                    f"{NAME} in the training environment too.",
                )

    @property
    def text(self) -> str:
        sizes = ", ".join(f"{n} {x.dtype}{list(x.shape)}" for n, x in self.weights.items())
        return f"{format_count(len(self.graph.pdg), 'operation')} of {sizes}"

    @property
    def made_of(self) -> Any:
        return str(self.graph.pdg)


def beginning(
    ctx: Context, policy: Slicer | Actor, seed: int, how: How, bounds: Mapping[str, int]
) -> Network:
    """Return a policy with the initial values of its parameters and other values."""
    found = graphs_of(policy)[how]
    if isinstance(found, TimeRLError):
        raise found
    reads = {p.name: p.first.read for p in ctx.parameters.values() if p.name in found.weights}
    if isinstance(policy, Slicer):
        frozen = {name: x.read for name, x in policy.frozen(found).items()}
        reads |= {name: ctx.statistics.get(x.tensor, x) for name, x in frozen.items()}
    pdg = ctx.snapshot()
    values = Reference(pdg, dict.fromkeys((d.bound for d in pdg.dims), 1), seed)
    begin = dict.fromkeys(pdg.dims.names, 0)
    weights = {
        n: backend.hand_over(np.array(values.evaluate_read(r, begin))) for n, r in reads.items()
    }
    last = indices(ctx, bounds, [found])
    return Network(weights, found, last, policy.shape, policy.dtype)


def check_network(network: Network, spaces: tuple[Any, Any]) -> Network:
    """Check that a network has the observation space of the environment."""
    seen = spaces[0]
    if (network.shape, network.dtype) != (tuple(seen.shape), seen.dtype):
        raise EnvError(
            f"the policy expects observations {network.dtype}{list(network.shape)}, but the environment has "
            f"{seen.dtype}{list(seen.shape)}.",
            hint="build the policy for this environment: trl.DNNBuilder().from_env(env, …).",
            others={"the policy is created at": network.graph.origin},
        )
    return network
