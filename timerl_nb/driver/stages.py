"""Stages of a compilation, each with its result, duration and changes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.errors import OptionError, Origin, one_of
from timerl_nb.base.graphviz_text import Dot
from timerl_nb.base.text_formatting import format_count, format_milliseconds
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import RewriteStep, Rewritten
from timerl_nb.compiler.ir.graph_text import about, op_line
from timerl_nb.compiler.ir.operations import DataflowAttrs, Op
from timerl_nb.compiler.ir.recorded_pass_decisions import Ask, Candidate, PassChoice
from timerl_nb.compiler.language.foreign_names import expect_type, explain_method_errors, missing


class Listing(Inspectable):
    """The user's source lines, each with its operations."""

    def __init__(self, pdg: Pdg) -> None:
        self.lines: dict[tuple[str, int], tuple[Origin, list[int]]] = {}
        self._ops = pdg.ops
        for op in pdg:
            key = (op.origin.file, op.origin.line)
            self.lines.setdefault(key, (op.origin, []))[1].append(op.id)

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self.searchable_lines())

    def searchable_lines(self) -> Iterable[tuple[str, Sequence[str]]]:
        shown = sorted(self.lines.items())
        width = max((len(origin.place) for _, (origin, _) in shown), default=0)
        for _, (origin, ids) in shown:
            known = dict.fromkeys(part for k in ids for part in about(self._ops[k]))
            yield f"{origin.place:<{width}}  {len(ids):>4} ops  {origin.text}", list(known)

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": "source",
            "lines": [
                {"place": origin.place, "text": origin.text, "op_ids": ids}
                for _, (origin, ids) in sorted(self.lines.items())
            ],
        }

    def to_dot(self) -> str:
        """Return the lines in order, with the number of their operations."""
        graph = Dot("source")
        before = ""
        for k, (_, (origin, ids)) in enumerate(sorted(self.lines.items())):
            graph.node(
                f"l{k}", f"{origin.place}  {origin.text}\n{format_count(len(ids), 'operation')}"
            )
            if before:
                graph.edge(before, f"l{k}")
            before = f"l{k}"
        return str(graph)


@dataclass(frozen=True)
class Change:
    """An operation that a stage has added, removed or changed.

    Attributes:
        what: "added", "removed" or "changed".
        op_id: the operation; None in a comparison of two programs.
        text: the operation, or the changed line of text.
        before: the operations that it replaces.
    """

    what: str
    op_id: int | None
    text: str
    before: tuple[int, ...]

    def __str__(self) -> str:
        sign = {"added": "+", "removed": "-", "changed": "~"}[self.what]
        come = f"   from {', '.join(f'%{k}' for k in self.before)}" if self.before else ""
        return f"{sign} {self.text}{come}"


@dataclass(frozen=True)
class Diff:
    """The changes of a stage."""

    changes: tuple[Change, ...]

    def changes_of_sort(self, what: str) -> tuple[Change, ...]:
        """Return the changes of one sort: "added", "removed" or "changed"."""
        return tuple(change for change in self.changes if change.what == what)

    @property
    def added(self) -> tuple[Change, ...]:
        return self.changes_of_sort("added")

    @property
    def removed(self) -> tuple[Change, ...]:
        return self.changes_of_sort("removed")

    @property
    def changed(self) -> tuple[Change, ...]:
        return self.changes_of_sort("changed")

    def __str__(self) -> str:
        counts = (
            f"{len(self.added)} added, {len(self.removed)} removed, {len(self.changed)} changed"
        )
        return "\n".join([counts, *map(str, self.changes)])

    __repr__ = __str__


@explain_method_errors
@dataclass(frozen=True)
class Stage:
    """One step of a compilation.

    Attributes:
        name: the stage's name.
        artifact: its result.
        seconds: its duration.
        summary: counts, in one line.
        rewritten: for passes, the named steps, the map of ids and the refusals.
        previous: the graph before it.
        known: whether a trial had computed the result before, without additional time.
        search_choices: choices of a search for passes without a stage.
    """

    name: str
    artifact: Inspectable
    seconds: float
    summary: str
    rewritten: Rewritten | None = None
    previous: Pdg | None = None
    known: bool = False
    search_choices: tuple[PassChoice, ...] = ()

    @property
    def cost(self) -> str:
        """The duration as text."""
        return "reused" if self.known else format_milliseconds(self.seconds)

    def diff(self, against: Stage | None = None) -> Diff:
        """Return the operations that the stage has added, removed and changed.

        Args:
            against: a stage of another program. The result then contains the differing lines of the two
                texts.
        """
        if against is not None:
            expect_type(
                against,
                Stage,
                "a stage",
                f"diff(other.stages[{self.name!r}]) compares two programs.",
            )
            return _lines_changed(str(against.artifact), str(self.artifact))
        if self.rewritten is None or self.previous is None:
            return Diff(())
        old, new = self.previous, self.rewritten.pdg
        came: dict[int, list[int]] = {}
        for before, after in self.rewritten.ids.items():
            for op_id in after:
                if op_id != before:
                    came.setdefault(op_id, []).append(before)
        changes = [_change("removed", old, old[k], ()) for k in old.ops if k not in new.ops]
        for k in new.ops:
            if k not in old.ops:
                changes.append(_change("added", new, new[k], tuple(came.get(k, ()))))
            elif new[k] != old[k]:
                changes.append(_change("changed", new, new[k], tuple(came.get(k, ()))))
        return Diff(tuple(changes))

    @property
    def steps(self) -> tuple[RewriteStep, ...]:
        """The rewrites of the pass, in order."""
        return () if self.rewritten is None else self.rewritten.steps

    def with_forecast_source(self, ask: Ask) -> Stage:
        """Return the same stage with candidates that request their own forecasts."""
        if self.rewritten is None or not self.rewritten.choices:
            return self
        choices = tuple(choice.with_forecast_source(ask) for choice in self.rewritten.choices)
        return replace(self, rewritten=replace(self.rewritten, choices=choices))

    @property
    def choices(self) -> tuple[PassChoice, ...]:
        """Decisions of the pass, each with the cost of every candidate and the reason for the choice."""
        return (*(self.rewritten.choices if self.rewritten else ()), *self.search_choices)

    def why(self, op_id: int | None = None) -> str | None:
        """Return the reason why the stage left an operation unchanged, or None.

        Raises:
            CallError: the argument is not the id of an operation.
        """
        refused = {} if self.rewritten is None else self.rewritten.refused
        known = ", ".join(f"why({k})" for k in sorted(refused)[:4])
        how = f"{known} have reasons." if known else f"{self.name} has no recorded reasons."
        return refused.get(expect_type(op_id, int, "an operation's id", how))

    def __repr__(self) -> str:
        return f"{self.name}: {self.summary} ({self.cost})"


def _lines_changed(before: str, after: str) -> Diff:
    signs = {"+ ": "added", "- ": "removed"}
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    changed = [(signs[line[:2]], line[2:]) for line in lines if line[:2] in signs]
    return Diff(tuple(Change(what, None, text, ()) for what, text in changed))


def _change(what: str, pdg: Pdg, op: Op, before: tuple[int, ...]) -> Change:
    if isinstance(op.attrs, DataflowAttrs):
        text = (
            f"%{op.id} {op.label!r} = dataflow of {format_count(len(op.attrs.body), 'operation')}"
        )
    else:
        text = op_line(pdg.ops, op)
    return Change(what, op.id, text, before)


def _ignore(_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class CompileObserver:
    """Callbacks of one compilation. An exception in a callback ends the compilation.

    Attributes:
        stage: receives every new stage, in order.
        candidate: receives every decision with a forecast, during the search within a memory budget.
    """

    stage: Callable[[Stage], object] = _ignore
    candidate: Callable[[Candidate], object] = _ignore

    @property
    def of_candidates(self) -> CompileObserver:
        """The observer for trial compilations, without their stages."""
        return CompileObserver(candidate=self.candidate)


UNOBSERVED: Final = CompileObserver()


class Stages(Mapping[str, Stage]):
    """The stages of a compilation in order, by name."""

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self._stages = {stage.name: stage for stage in stages}

    def __getitem__(self, name: str) -> Stage:
        if name not in self._stages:
            raise OptionError(f"there is no stage {name!r}.", hint=one_of(name, list(self._stages)))
        return self._stages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __contains__(self, name: object) -> bool:
        return name in self._stages

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            words = {stage: f"stages[{stage!r}]." for stage in vars(self).get("_stages", ())}
            raise missing("a program's mapping of stages", name, words, words)

    @property
    def seconds(self) -> float:
        """The total duration of all stages."""
        return sum(stage.seconds for stage in self._stages.values())

    def __repr__(self) -> str:
        width = max(map(len, self._stages))
        lines = [
            f"{stage.name:<{width}}  {stage.cost:>10}  {stage.summary}"
            for stage in self._stages.values()
        ]
        return "\n".join([*lines, f"{'total':<{width}}  {format_milliseconds(self.seconds):>10}"])
