"""Interface of passes, and pipelines of passes.

A pass is a small immutable value. It transforms a valid graph into a valid graph with equal meaning. It
returns the new graph, the map from old to new ids, its named steps, and the reasons for unchanged
operations. A pipeline is a tuple of passes with a one-line text form, which can be parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Rewritten

# Actual bounds by name, as a field of a pass.
Bounds = tuple[tuple[str, int], ...]


class Pass(Protocol):
    """One transformation; its options are its fields."""

    @property
    def name(self) -> str: ...

    def run(self, pdg: Pdg) -> Rewritten:
        """Return the transformed graph."""
        ...


@dataclass(frozen=True)
class Pipeline:
    """Passes in execution order."""

    passes: tuple[Pass, ...]

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.passes)

    def without(self, *names: str) -> Pipeline:
        """Return the pipeline without the named passes.

        Raises:
            OptionError: there is no such pass.
        """
        known = [p.name for p in self.passes]
        for name in names:
            if name not in known:
                raise OptionError(f"there is no pass {name!r}.", hint=one_of(name, known))
        return Pipeline(tuple(p for p in self.passes if p.name not in names))

    def __str__(self) -> str:
        return " | ".join(p.name for p in self.passes)

    @classmethod
    def parse(cls, text: str, passes: Mapping[str, Pass]) -> Pipeline:
        """Return the pipeline of a one-line text, from passes by name."""
        names = [name.strip() for name in text.split("|") if name.strip()]
        for name in names:
            if name not in passes:
                raise OptionError(f"there is no pass {name!r}.", hint=one_of(name, list(passes)))
        return cls(tuple(passes[name] for name in names))
