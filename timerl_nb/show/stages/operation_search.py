"""Search for operations in all stages by name, kind, region, place or text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from timerl_nb.base.display_registry import finder
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.compiler.ir.graph_text import about, op_line
from timerl_nb.compiler.ir.operations import DataflowAttrs, Op
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.driver.program import Program
from timerl_nb.show.stages.operation_lineage import Generation, Lineage
from timerl_nb.show.view_model import Key, View


@dataclass(frozen=True)
class Found:
    """Matching operations of one stage."""

    stage: str
    op_ids: tuple[int, ...]


@dataclass(frozen=True)
class SearchView(View):
    """Matching operations of all stages.

    Attributes:
        kinds, regions: the possible filters; nested regions are joined by " / ".

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> trl.show.Index(program).search("output").found[0].stage
        'pdg'
    """

    view = "search"

    query: str
    kind: str | None
    region: str | None
    changed: bool
    found: Annotated[tuple[Found, ...], Key("stages")]
    kinds: tuple[str, ...]
    regions: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{one.stage}: {', '.join(f'%{k}' for k in one.op_ids)}" for one in self.found]
        return "\n".join(lines) or f"no operation matches {self.query!r}."


class Index:
    """Search index of the operations of all stages.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> index = trl.show.Index(program)
        >>> len(index.search(kind="output").found[0].op_ids)
        1
    """

    def __init__(self, program: Program, lineage: Lineage | None = None) -> None:
        if lineage is not None:
            expect_type(lineage, Lineage, "a lineage", "trl.show.Lineage.of(program), or None.")
        self.lineage = Lineage.from_program(program) if lineage is None else lineage
        ops = [op for one in self.lineage.generations for op in one.ops.values()]
        self.kinds = tuple(sorted({op.kind for op in ops}))
        parts = {op.region[:k] for op in ops for k in range(1, len(op.region) + 1)}
        self.regions = tuple(" / ".join(part) for part in sorted(parts))

    @cached_property
    def _texts(self) -> Sequence[Mapping[int, tuple[str, ...]]]:
        """The texts of each operation, by stage; computed for the first search."""
        known: dict[int, tuple[Op, tuple[str, ...]]] = {}  # by identity: stages share operations
        found: list[dict[int, tuple[str, ...]]] = []
        for one in self.lineage.generations:
            for op in one.ops.values():
                if id(op) not in known:
                    known[id(op)] = op, _texts(one, op)
            found.append({op.id: known[id(op)][1] for op in one.ops.values()})
        return found

    def search(
        self,
        query: str | int = "",
        *,
        kind: str | None = None,
        region: str | None = None,
        changed: bool = False,
    ) -> SearchView:
        """Return the operations that match a query, ignoring case; an empty query matches all.

        Args:
            query: an id (`12`, `"%12"`), or part of a name, kind, region, place (`"train.py:12"`), source
                line or text of the operation.
            kind: only operations of this kind.
            region: only operations in this region or in one inside it: `"acting"`, `"acting / reset"`.
            changed: only operations that the stage added or changed.

        Raises:
            OptionError: the kind or the region does not exist.
        """
        for what, value, legal in (
            ("kind", kind, self.kinds),
            ("region", region, self.regions),
        ):
            if value is not None and value not in legal:
                raise OptionError(
                    f"the {what} {value!r} does not exist.", hint=one_of(value, legal)
                )
        has = finder(query)
        inside = tuple(region.split(" / ")) if region else ()
        found: list[Found] = []
        before: Mapping[int, Op] = {}
        for one, texts in zip(self.lineage.generations, self._texts, strict=True):
            ids = [
                op.id
                for op in one.ops.values()
                if (kind is None or op.kind == kind)
                and op.region[: len(inside)] == inside
                and not (changed and (not before or before.get(op.id) == op))
                and any(has(text) for text in texts[op.id])
            ]
            before = one.ops
            if ids:
                found.append(Found(one.stage, tuple(sorted(ids))))
        text = f"%{query}" if isinstance(query, int) else query
        return SearchView(text, kind, region, changed, tuple(found), self.kinds, self.regions)


def _texts(one: Generation, op: Op) -> tuple[str, ...]:
    alone = op.with_(attrs=None) if isinstance(op.attrs, DataflowAttrs) else op
    found = about(alone)
    if not isinstance(op.attrs, DataflowAttrs):
        found.append(op_line(one.ops, op))
    return tuple(text.lower() for text in found)
