"""Digest of a graph, equal in all processes that write the same graph.

Source locations do not count, since notebook cells have different file names in every process. Whether two
operations share a line does count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any, Final, cast

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import ConstArray
from timerl_nb.compiler.symbolic.dimensions import LATER
from timerl_nb.compiler.symbolic.index_expressions import Node

_PLAIN: Final = bool, int, float, str, bytes  # a union would be built in every call


@dataclass(frozen=True)
class Digest:
    """Identity of a graph.

    Attributes:
        text: the digest.
        lines: the distinct source lines, in order of first use.
    """

    text: str
    lines: tuple[Origin, ...]


def digest(pdg: Pdg) -> Digest | None:
    """Return the digest; None if the graph contains objects without comparable contents, such as functions."""
    walk = _Walk()
    try:
        walk.add((pdg.dims, tuple(pdg), pdg.orders))
    except TypeError:
        return None
    text = hashlib.sha256("".join(walk.written).encode()).hexdigest()
    return Digest(text, tuple(walk.origins))


def digest_by_names(pdg: Pdg, *, lines: bool = False) -> str:
    """Return the digest with functions and other objects represented by their names.

    Args:
        pdg: the graph.
        lines: whether shared source lines count.
    """
    walk = _Walk(by_names=True, lines=lines)
    walk.add((pdg.dims, tuple(pdg), pdg.orders))
    return hashlib.sha256("".join(walk.written).encode()).hexdigest()


class _Walk:
    """Walk through values. Each distinct expression and line is written once, and then by number.

    Args:
        by_names: whether to write the names of objects without comparable contents.
        lines: whether to write shared source lines.
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
            TypeError: the value is neither plain nor a record of plain values.
        """
        if value is None or isinstance(value, _PLAIN):
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
            self._write(
                named.__qualname__
            )  # without its module, which is `__main__` in the main script
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
