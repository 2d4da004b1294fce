"""A graph as a number that another process finds again, if it writes the same graph.

Where lines stand does not count, only which operations share one: notebook cells are other files in
every process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any, cast

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import ConstArray
from timerl_nb.compiler.symbolic.dimensions import LATER
from timerl_nb.compiler.symbolic.index_expressions import Node


@dataclass(frozen=True)
class Digest:
    """What a graph is.

    Attributes:
        text: the number.
        lines: the distinct lines behind it, in the order in which they are counted.
    """

    text: str
    lines: tuple[Origin, ...]


def digest(pdg: Pdg) -> Digest | None:
    """The digest; None where the graph holds what has no contents to compare: functions."""
    walk = _Walk()
    try:
        walk.add((pdg.dims, tuple(pdg), pdg.orders))
    except TypeError:
        return None
    text = hashlib.sha256("".join(walk.written).encode()).hexdigest()
    return Digest(text, tuple(walk.origins))


def digest_by_names(pdg: Pdg, *, lines: bool = False) -> str:
    """The number where functions and other objects count by their names alone.

    Args:
        lines: which operations share a line counts.
    """
    walk = _Walk(by_names=True, lines=lines)
    walk.add((pdg.dims, tuple(pdg), pdg.orders))
    return hashlib.sha256("".join(walk.written).encode()).hexdigest()


class _Walk:
    """A walk through values; each distinct expression and line is written once, then by number.

    Args:
        by_names: take in the names of what has no contents to compare.
        lines: take in which operations share one.
    """

    def __init__(self, *, by_names: bool = False, lines: bool = True) -> None:
        self._by_names, self._lines = by_names, lines
        self.written: list[str] = []
        self.origins: dict[Origin, int] = {}
        self._nodes: dict[Node, int] = {}
        self._fields: dict[type, tuple[Field[Any], ...]] = {}

    def add(self, value: Any) -> None:
        """Add a value.

        Raises:
            TypeError: it is neither a plain value nor a record of such.
        """
        if value is None or isinstance(value, bool | int | float | str | bytes):
            self._write(f"{type(value).__name__}:{value!r}")
        elif isinstance(value, Node):
            self._node(value)
        elif isinstance(value, Origin):
            if self._lines:
                self._write(f"line:{self.origins.setdefault(value, len(self.origins))}")
        elif isinstance(value, tuple):
            parts = cast("tuple[Any, ...]", value)
            self._write_all(f"tuple:{len(parts)}", parts)
        elif isinstance(value, ConstArray):
            self._array(value.array)
        elif is_dataclass(value) and not isinstance(value, type):
            kind = type(value)
            if kind not in self._fields:
                self._fields[kind] = tuple(fields(kind))
            self._write(kind.__qualname__)
            for one in self._fields[kind]:
                inner = getattr(value, one.name)
                if LATER not in one.metadata or inner != one.default:
                    self.add(inner)
        elif self._by_names:
            named = cast(Any, value if hasattr(value, "__qualname__") else type(value))
            self._write(named.__qualname__)  # its module is `__main__` where it is run
        else:
            raise TypeError(f"{type(value).__name__} has no contents to compare")

    def _write(self, text: str) -> None:
        self.written.append(f"{len(text)};{text}")

    def _write_all(self, head: str, values: Iterable[Any]) -> None:
        self._write(head)
        for value in values:
            self.add(value)

    def _node(self, node: Node) -> None:
        number = self._nodes.get(node)
        if number is not None:
            self._write(f"node:{number}")
            return
        self._write_all(type(node).__qualname__, node.fields)
        self._nodes[node] = len(self._nodes)

    def _array(self, array: Array) -> None:
        if array.dtype.hasobject:
            raise TypeError("arrays of objects have no contents to compare")
        contents = hashlib.sha256(array.tobytes()).hexdigest()
        self._write(f"{array.dtype.str}{array.shape}{contents}")
