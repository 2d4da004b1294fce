"""How a program acts: by which network, on what it sees. Contexts remember it, for after a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from timerl_nb.errors import Origin
from timerl_nb.ir.shapes import DType


def called(network: Any, o: Any) -> Any:
    """What a network makes of an observation by itself."""
    return network(o)


@dataclass(frozen=True)
class Actor:
    """A policy as a program has it.

    Attributes:
        network: a module, or a list or mapping of modules and parameters.
        shape, dtype: what an observation is.
        act: from the network and an observation to a distribution, or to an action.
        origin: the line that says so.
        marked: whether the user said so; else the network was made to act.
    """

    network: Any
    shape: tuple[int, ...]
    dtype: DType
    act: Callable[[Any, Any], Any]
    origin: Origin
    marked: bool = False
