"""The views of one program, each created when first shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from timerl_nb.show import (
    CostView,
    GraphView,
    Index,
    InspectorView,
    IterationSpaceView,
    LaunchView,
    Lineage,
    LoopView,
    MemoryView,
    OutlineView,
    PipelineView,
    SearchView,
    StepsView,
    StoresView,
    Turn,
    ValuesView,
    View,
    graph_view,
    laid_out,
    source_view,
)
from timerl_nb.show.colours import of_statements, of_tensors
from timerl_nb.show.offline_rendering import arrange_pictures
from timerl_nb.show.stages.compile_progress import LAST
from timerl_nb.show.stages.measured_launches import Measured
from timerl_nb.show.widget_api import (
    DataflowAttrs,
    DrawingError,
    ExecutionError,
    Instruction,
    OptionError,
    Pdg,
    Program,
    Recorded,
    Running,
    format_count,
)
from timerl_widgets.requests import Inspect, Search
from timerl_widgets.view_messages import NOTHING, ViewMessage, pack_view

FEW = 3  # operations described in one answer of the inspector, and tensors with values
NO_SEARCH = Search("", None, None, changed=False)
FIRST_SHOWN = "fuse"  # the stage shown first: the fused graph


class Drawing:
    """The views of a program as traits of the explorer."""

    def __init__(self, program: Program, first: Program | None = None) -> None:
        """Create the views.

        Args:
            program: the program.
            first: the explorer's first program; operations and tensors with the same names get the same
                colours.
        """
        self.program, self.first = program, first or program
        self.view: GraphView | None = None  # the graph as last drawn
        self._graphs: dict[str, GraphView] = {}  # by stage, before manual folding
        # by identity of a view, which its graph creates once: the view before, and as drawn
        self._drawn: dict[int, tuple[GraphView, tuple[GraphView, ViewMessage]]] = {}
        self._of_stage: dict[tuple[str, str], ViewMessage] = {}  # by view and stage

    @cached_property
    def lineage(self) -> Lineage:
        return Lineage.from_program(self.program)

    @cached_property
    def turn(self) -> Turn:
        return Turn.from_program(self.program)

    @cached_property
    def space(self) -> IterationSpaceView:
        return IterationSpaceView.of_turn(
            self.turn, of_statements(self.first.schedule, self.program.schedule)
        )

    def launches(self, measured: Measured | Recorded | None = None) -> LaunchView:
        """Return the launches of the turn, with measured durations if there are measurements."""
        colours = of_statements(self.first.schedule, self.program.schedule)
        return LaunchView.of_turn(self.turn, self.program, measured, colours)

    @cached_property
    def memory(self) -> MemoryView:
        return MemoryView.of_turn(self.turn, of_tensors(self.first.memory, self.program.memory))

    @cached_property
    def loops(self) -> LoopView:
        return LoopView.from_program(self.program)

    @cached_property
    def index(self) -> Index:
        return Index(self.program, self.lineage)

    @cached_property
    def operation_ids(self) -> frozenset[int]:
        """The operations of all stages."""
        return frozenset(op_id for one in self.lineage.generations for op_id in one.ops)

    def nearest_stage(self, stage: str) -> str:
        """Return the name of this stage, or of the stage to show if the pass did not run."""
        return next(name for name in (stage, *LAST) if name in self.program.stages)

    def check_stage(self, stage: str) -> str:
        """Return the name of a stage, or raise an `OptionError` if it does not exist."""
        return self.program.stages[stage].name

    def graph_of(self, stage: str) -> Pdg:
        """Return the graph that a stage shows: its own, or the graph that it schedules and runs."""
        artifact = self.program.stages[stage].artifact
        if isinstance(artifact, Pdg):
            return artifact
        return self.program.pdg if stage == "source" else self.program.fused

    def graph(self, stage: str, before: GraphView | None = None) -> ViewMessage:
        """Return the graph of a stage, with the manually opened and folded clusters of an earlier view."""
        return self.draw(self._graph_in(stage, before))

    def lay_out(self, stage: str, before: GraphView | None = None) -> None:
        """Create the views of a stage, without changing the graph as last drawn."""
        self.steps(stage), self.stores(stage)
        if not self.outline(stage):
            self.layout_of(self._graph_in(stage, before))

    def _graph_in(self, stage: str, before: GraphView | None) -> GraphView:
        if stage not in self._graphs:
            self._graphs[stage] = graph_view(self.graph_of(stage), bounds=self.program.bounds)
        view = self._graphs[stage]
        return view if before is None else view.as_in(before)

    def fold(self, key: str, folded: bool) -> GraphView:
        """Return the view of the graph with a cluster folded or open, not yet laid out.

        Raises:
            DrawingError: the cluster does not exist, or no graph has been drawn.
        """
        if self.view is None:
            raise DrawingError("no graph has been drawn.", hint="draw a graph by `graph` first.")
        return self.view.fold(key) if folded else self.view.unfold(key)

    def draw(self, view: GraphView) -> ViewMessage:
        """Return a view of the graph with its picture."""
        self.view, graph = self.layout_of(view)
        return graph

    def layout_of(self, view: GraphView) -> tuple[GraphView, ViewMessage]:
        """Return a view, folded as far as its layout requires, and the view packed with its picture."""
        if id(view) not in self._drawn:
            self._drawn[id(view)] = view, drawn(view)
        return self._drawn[id(view)][1]

    def outline(self, stage: str) -> ViewMessage:
        """Return the text of a stage without a graph."""
        return self._once("outline", stage, lambda: OutlineView.from_stage(self.program, stage))

    def stores(self, stage: str) -> ViewMessage:
        """Return the storage view of the stage `memory`."""
        return self._stores if stage == "memory" else NOTHING

    @cached_property
    def _stores(self) -> ViewMessage:
        return pack_view(
            StoresView.from_program(
                self.program, of_tensors(self.first.memory, self.program.memory)
            )
        )

    def steps(self, stage: str) -> ViewMessage:
        of = self.program.stages[stage]
        return self._once("steps", stage, lambda: StepsView.from_stage(of))

    def _once(self, name: str, stage: str, make: Callable[[], View | None]) -> ViewMessage:
        """Return a packed view of a stage, made once."""
        if (name, stage) not in self._of_stage:
            view = make()
            self._of_stage[name, stage] = NOTHING if view is None else pack_view(view)
        return self._of_stage[name, stage]

    def inspector(self, asked: Inspect, ids: Sequence[int]) -> ViewMessage:
        """Return the details of the first few of some operations; a kernel takes precedence over its operations.

        Args:
            asked: the request.
            ids: the requested operations that exist.
        """
        inside = self._operations_within(ids)
        alone = [op_id for op_id in ids if op_id not in inside] or list(ids)
        shown = asked.stage if asked.stage in self.program.stages else None
        view = InspectorView.from_program(
            self.program, alone[:FEW], shown, self.lineage, asked.tensors
        )
        more = len(alone) - len(alone[:FEW])
        told = [[*asked.ids], [[*tensor] for tensor in asked.tensors]]
        return pack_view(view, asked=told, more=more)

    def values(
        self,
        running: Running,
        ids: Sequence[int],
        tensors: Sequence[tuple[int, int]],
        instant: int | None,
    ) -> ViewMessage:
        """Return heat maps of values that a paused run holds, or would have at an instant of its next iteration.

        Args:
            running: a run of the program.
            ids: operations, whose tensors are shown.
            tensors: if not empty, only these tensors.
            instant: the instant; None for the beginning of the iteration.

        Raises:
            ExecutionError: the run has ended.
        """
        plan, related = self.program.memory, set[int]().union(*self.lineage.relatives(ids).values())
        shown = [
            tensor
            for tensor in plan.stores
            if (tensor in tensors if tensors else tensor[0] in ids)
            or (not tensors and plan.computing_operation(*tensor).id in related)
        ]
        wanted = {tensor: plan.names[tensor] for tensor in shown[:FEW]}
        at = f"after {format_count(running.turn, 'iteration')}"
        values = None
        if instant is not None:
            try:
                values = self.program.values_after(running, self.launch_at(instant))
                at = f"{at}, at instant {instant} of the next one"
            except ExecutionError as error:
                at = f"{at}; {error.what}"
        if values is None:
            values = running.live_values()
        view = ValuesView.from_values(values, at, wanted)
        return pack_view(view, more=len(shown) - len(wanted))

    def launch_at(self, instant: int) -> Callable[[Instruction], bool]:
        """Return whether an instruction is the launch at an instant of the turn, in any iteration of the run."""
        one = self.turn.points[self.turn.statement[instant]]
        (k,) = np.flatnonzero(one.time == instant)
        outer = self.program.memory.timeline().outer
        free = self.turn.fixed if outer is None else (outer,)  # outermost loops may differ
        domain = self.program.fused[one.op_id].domain
        at = {place: one.coordinates[d][k] for place, d in enumerate(domain) if d not in free}
        return lambda done: (
            done.name == one.name and all(done.point[place] == value for place, value in at.items())
        )

    def picture(self, stage: str) -> str:
        """Return the picture of a saved page: the graph and the loop nest above the iteration space and the
        memory.
        """
        text = OutlineView.from_stage(self.program, stage)
        graph = (graph_view(self.graph_of(stage)) if text is None else text).to_svg()
        above = [(stage, graph), ("loop nest", self.loops.to_svg())]
        under = [("iteration space", self.space.to_svg()), ("memory", self.memory.to_svg())]
        return arrange_pictures([above, under])

    def search(self, asked: Search) -> ViewMessage:
        """Return the results of a search; a request without a query and filters has none.

        Raises:
            OptionError: the program has no such kind or region.
        """
        if asked == NO_SEARCH:
            kinds, regions = self.index.kinds, self.index.regions
            return pack_view(SearchView("", None, None, False, (), kinds, regions))
        filters = {"kind": asked.kind, "region": asked.region, "changed": asked.changed}
        return pack_view(self.index.search(asked.query, **filters))

    def drop_missing_filters(self, asked: Search) -> Search:
        """Return a search without filters that this program does not have."""
        kind = asked.kind if asked.kind in self.index.kinds else None
        region = asked.region if asked.region in self.index.regions else None
        return replace(asked, kind=kind, region=region)

    def traits(self, stage: str, before: GraphView | None = None) -> dict[str, Any]:
        """Return all traits that depend on the program, except the search."""
        return {
            **self._program_views,
            "stage": stage,
            "graph": self.graph(stage, before),
            "steps": self.steps(stage),
            "outline": self.outline(stage),
            "stores": self.stores(stage),
            "inspector": NOTHING,
        }

    def prepare(
        self, stage: str, before: GraphView | None, check: Callable[[object], None]
    ) -> None:
        """Create the views for `traits` and for searches; call `check` with each."""
        for name in ("lineage", "pipeline", "turn", "space", "memory", "loops", "index"):
            check(getattr(self, name))
        self.traits(self.nearest_stage(stage), before)

    @cached_property
    def pipeline(self) -> PipelineView:
        return PipelineView.from_program(self.program)

    @cached_property
    def _program_views(self) -> Mapping[str, ViewMessage]:
        """The views of the whole program."""
        costs = CostView.from_program(self.program)
        views = {
            "lineage": self.lineage,
            "pipeline": self.pipeline,
            "space": self.space,
            "memory": self.memory,
            "launches": self.launches(),
            "loops": self.loops,
            "source": source_view(self.program, costs=costs),
            "cost": costs,
        }
        return {name: pack_view(view) for name, view in views.items()}

    def _operations_within(self, ids: Sequence[int]) -> set[int]:
        chosen, found = set(ids), set[int]()
        for op in self.program.fused:
            if op.id in chosen and isinstance(op.attrs, DataflowAttrs):
                found.update(inner.id for inner in op.attrs.body)
        return found


def drawn(view: GraphView) -> tuple[GraphView, ViewMessage]:
    """Return a view, folded as far as its layout required, and the view packed with its picture."""
    shown, svg = laid_out(view)
    return shown, pack_view(shown, svg=svg)


def known_ids(drawing: Drawing, ids: object) -> list[int]:
    """Return the ids of existing operations among the ids that a page sent, without duplicates."""
    if not isinstance(ids, list | tuple):
        raise OptionError(
            "the selection is not a list of operation ids.", hint="assign a list of integers."
        )
    whole = [k for k in ids if isinstance(k, int) and not isinstance(k, bool)]
    return [k for k in dict.fromkeys(whole) if k in drawing.operation_ids]
