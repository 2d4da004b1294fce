"""Records of environment steps, draws from distributions and networks, from which a policy is extracted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.operations import Read, Tensor
from timerl_nb.compiler.ir.shapes import DType
from timerl_nb.compiler.symbolic.dimensions import Domain

# Prefix of non-parameter values of a policy in a checkpoint.
FROZEN: Final = "policy: "


def call_network(network: Any, o: Any) -> Any:
    """Call a network with an observation: the default `act` of an `Actor`."""
    return network(o)


@dataclass(frozen=True)
class Actor:
    """Network that may be the program's policy.

    Attributes:
        network: a module, or a list or mapping of modules and parameters.
        shape, dtype: the type of an observation.
        act: a function from the network and an observation to a distribution or an action.
        origin: the line of the user's program.
        marked: whether the user named it by `ctx.policy`; otherwise `trl.DNNBuilder` recorded it.
        seen: the observation passed to `ctx.policy`, if it is a tensor of the program.
    """

    network: Any
    shape: tuple[int, ...]
    dtype: DType
    act: Callable[[Any, Any], Any]
    origin: Origin
    marked: bool = False
    seen: Read | None = None


@dataclass(frozen=True)
class Played:
    """The reset and the step of one environment in a program.

    Attributes:
        space: the space of observations.
        domain: the dimensions of the reset.
        time: the dimensions of the steps, the last one fastest.
        first: results of the reset, by name; "obs" is the observation.
        came: results of the step, by name.
        action: the argument of the step.
        inside: the operations of the environment.
        origin: the line of the step.
    """

    space: Any
    domain: Domain
    time: Domain
    first: Mapping[str, Tensor]
    came: Mapping[str, Tensor]
    action: Read
    inside: frozenset[int]
    origin: Origin


@dataclass(frozen=True)
class Draw:
    """Draw from a distribution.

    Attributes:
        mode: a function that writes the most likely value.
        log_prob: a function that writes the log-probability of a value.
        inside: the operations of the draw.
        origin: the line of the draw.
    """

    mode: Callable[[], Any]
    log_prob: Callable[[Any], Any]
    inside: frozenset[int]
    origin: Origin
