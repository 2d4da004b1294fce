"""What a pass is, and how passes make a pipeline.

A pass is a small frozen value: valid graph in, valid graph out, meaning unchanged. It returns the
new graph with the map from old ids to new, its named steps, and per operation why it did nothing
there. A pipeline is a tuple of passes that prints as one line and parses back.
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
        """The transformed graph."""
        ...


@dataclass(frozen=True)
class Pipeline:
    """Passes in the order in which they run."""

    passes: tuple[Pass, ...]

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.passes)

    def without(self, *names: str) -> Pipeline:
        """The pipeline with the named passes left out.

        Raises:
            OptionError: there is no pass of that name.
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
        """The pipeline that prints as `text`, of the given passes by name."""
        names = [name.strip() for name in text.split("|") if name.strip()]
        for name in names:
            if name not in passes:
                raise OptionError(f"there is no pass {name!r}.", hint=one_of(name, list(passes)))
        return cls(tuple(passes[name] for name in names))
