"""Policy as a graph without dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Read

How = Literal["mode", "sample", "explore"]


@dataclass(frozen=True)
class State:
    """One tensor of a policy's state.

    Attributes:
        op_id: the operation of its value at the current step.
        first: its value at an episode's first step, computed from weights and frozen values.
        after: its value at the next step.
    """

    op_id: int
    first: Read
    after: Read


@dataclass(frozen=True)
class PolicyGraph:
    """Policy as a graph without dimensions, from an environment's outputs to an action.

    Attributes:
        inputs: the operations of the environment's outputs, by name: "obs", and others such as "reward" if
            the policy reads them.
        weights: the operations of the parameters, by name.
        frozen: the operations of values of the last iteration, by name.
        indices: the operations of dimensions and bounds at the last iteration, by name.
        state: the policy's state between steps, by name.
        made: "action"; "log_prob" if it is drawn from a distribution; "value" of a critic.
        draws: whether the action depends on random bits.
        unlikely: the line of random bits without a most likely value; None if all have one.
        origin: the line of the program's environment step.
    """

    pdg: Pdg
    inputs: Mapping[str, int]
    weights: Mapping[str, int]
    frozen: Mapping[str, int]
    indices: Mapping[str, int]
    state: Mapping[str, State]
    made: Mapping[str, Read]
    draws: bool
    unlikely: Origin | None
    origin: Origin

    @property
    def given(self) -> dict[str, int]:
        """Operations of values shared by all environments, by name."""
        return {**self.weights, **self.frozen, **self.indices}

    def shape_of(self, op_id: int) -> tuple[int, ...]:
        """Return the concrete shape of an operation's value."""
        return tuple(n for n in self.pdg[op_id].shape if isinstance(n, int))
