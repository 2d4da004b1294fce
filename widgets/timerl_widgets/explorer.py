"""`Explorer`: a program's stages, graph, loops, schedule, memory and run in one widget."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import traitlets

from timerl_nb.show import (
    ComparisonView,
    CostView,
    OutlineView,
    RunView,
    SweepView,
    detail,
    source_view,
)
from timerl_nb.show.comparison.argument_sweep import MEASURED, Sweeper, problem_of, swept_argument
from timerl_nb.show.stages.compile_progress import Progress, following, tried_text
from timerl_nb.show.stages.measured_launches import Measured, measured_run
from timerl_nb.show.widget_api import (
    At,
    Candidate,
    CompileObserver,
    DrawingError,
    ExecutionError,
    Family,
    Program,
    Recorded,
    Running,
    TimeRLError,
    a_program,
    check_mapping,
    explain_call_errors,
    format_count,
)
from timerl_widgets.background_worker import BackgroundWorker
from timerl_widgets.bundles import module
from timerl_widgets.cancellable_waits import CancellableWaits
from timerl_widgets.drawing import FIRST_SHOWN, NO_SEARCH, Drawing, drawn, known_ids
from timerl_widgets.drawing_cache import DrawingCache
from timerl_widgets.family_position import FamilyPosition, key
from timerl_widgets.requests import (
    Cancel,
    Command,
    Compare,
    CompareGraphs,
    Detail,
    Fold,
    Inspect,
    Request,
    Search,
    SetArgument,
    SetBounds,
    SetOptions,
    Shown,
    Sweep,
    is_bookmark,
    parse,
)
from timerl_widgets.run_charts import NO_TURN
from timerl_widgets.run_controller import RunController
from timerl_widgets.speculative_compilation import (
    Change,
    Check,
    Interrupted,
    SpeculativeCompiler,
    guesses,
    rest,
)
from timerl_widgets.view_messages import NOTHING, ViewMessage, pack_view
from timerl_widgets.widget import Widget


class Explorer(Widget):
    """Interactive view of a program. A selection in one view is marked in all views.

    Changed options and bounds compile on a separate thread. After an error the explorer keeps showing the
    previous program.

    Attributes:
        selected: the ids of the selected operations, of any stages; assign to select from Python.
        stage: the stage whose graph is shown.
        instant: the selected position in the turn, or None.
        bookmarks: named positions: `name`, `stage`, `ids` of operations, and `instant`.
        status: the result of the last change: `state`, and `seconds`, `known` (whether it was cached) and
            `warnings`, or `text` and `hint` of an error.
        program: the shown program, with the changes made in the page.
        arguments: the sliders of a family's arguments: `labels` of the values, the position `at`, the
            compiled positions `known`, and errors `failed`.
        sweeping: the last sweep, with the number `left` of remaining steps.
        running: the latest run, or None.
        ahead: whether to compile likely changes while the page is visible and the kernel is idle.
        foreseen: the number `left` of changes still to compile speculatively, `of` all.
    """

    _esm = module("explorer")
    written = frozenset({"selected", "stage", "instant", "bookmarks"})

    pipeline = traitlets.Dict().tag(sync=True)
    lineage = traitlets.Dict().tag(sync=True)
    graph = traitlets.Dict().tag(sync=True)
    against = traitlets.Unicode("").tag(sync=True)
    steps = traitlets.Dict().tag(sync=True)
    outline = traitlets.Dict().tag(sync=True)
    stores = traitlets.Dict().tag(sync=True)
    source = traitlets.Dict().tag(sync=True)
    cost = traitlets.Dict().tag(sync=True)
    detail_view = traitlets.Dict().tag(sync=True)
    loops = traitlets.Dict().tag(sync=True)
    space = traitlets.Dict().tag(sync=True)
    memory = traitlets.Dict().tag(sync=True)
    launches = traitlets.Dict().tag(sync=True)
    inspector = traitlets.Dict().tag(sync=True)
    search = traitlets.Dict().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    comparison = traitlets.Dict().tag(sync=True)
    graphs = traitlets.Dict().tag(sync=True)
    run = traitlets.Dict().tag(sync=True)
    acknowledged = traitlets.Int(0).tag(sync=True)
    pause_when = traitlets.Unicode("").tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    arguments = traitlets.Dict().tag(sync=True)
    sweeping = traitlets.Dict().tag(sync=True)
    foreseen = traitlets.Dict().tag(sync=True)
    stage = traitlets.Unicode("pdg").tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    instant = traitlets.Int(None, allow_none=True).tag(sync=True)
    bookmarks = traitlets.List(traitlets.Dict()).tag(sync=True)

    @explain_call_errors
    def __init__(
        self,
        program: Program,
        other: Program | None = None,
        *,
        stage: str = FIRST_SHOWN,
        ahead: bool = True,
        family: Family | None = None,
    ) -> None:
        """Show a program and the graph of one of its stages, optionally next to another program.

        Args:
            program: the program.
            other: a program to compare with.
            stage: the initial stage.
            ahead: compile likely changes while the kernel is idle.
            family: the family whose first program is `program`; its arguments get sliders.

        Raises:
            CallError: an argument is not a program.
            OptionError: the stage does not exist.
        """
        for one in (program, other):
            if one is not None:
                a_program(one)
        self._run_controller = RunController(self._show_run)
        self._position = FamilyPosition(family)
        self._drawings, self._first = DrawingCache(self._position, program), program
        self._sweeper: Sweeper | None = None
        self._drawing = self._drawings.get_drawing(Drawing(program))
        self.ahead, self._is_shown = ahead, False
        self._beside, self._titles = other, ("other", "this")
        self._graphs: tuple[Drawing, Drawing] | None = None  # of both programs, as last drawn
        self._worker = BackgroundWorker("timerl explorer", self._fail)
        self._compiler = BackgroundWorker(
            "timerl details", self._fail
        )  # slow requests must not delay others
        self._inspected: Inspect | None = None
        self._shown_values: tuple[Any, ...] | None = None  # what `values` shows
        self._sought = NO_SEARCH
        self._cancelled = Event()
        self._waits = CancellableWaits(
            lambda: self.status, lambda status: setattr(self, "status", status)
        )
        # pending changes of bounds, options and positions
        self._changes: deque[tuple[Mapping[str, int], Mapping[str, Any], At]] = deque()
        shown = self._drawing.nearest_stage(stage) if stage == FIRST_SHOWN else stage
        views = self._drawing.traits(self._drawing.check_stage(shown))
        self._drawn_stage = views["stage"]
        views["comparison"] = self._comparison(self._drawing)
        views["search"] = self._drawing.search(self._sought)
        super().__init__(**views, status={"state": "ready"})
        self.on_msg(self._receive)
        self.observe(self._show_stage, "stage")
        self.observe(lambda _: self._submit("values", self._show_values), ["selected", "instant"])
        self._tell_arguments()

    # --- Python interface --------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        return self._drawing.program

    @property
    def running(self) -> Running | None:
        return self._run_controller.running

    def start(self, **options: Any) -> Running:
        """Run the shown program, with the options of `Program.start`."""
        return self._run_controller.start(self.program, **options)

    def compare(self, other: Program | None) -> None:
        """Show the program next to another one, or alone if `other` is None."""
        self._beside = None if other is None else a_program(other)
        self._titles = "before", "now"
        self._submit("compare", self._look_beside)

    def change(self, bounds: Mapping[str, int] | None = None, **options: Any) -> None:
        """Compile with other options and bounds in the background; see `wait`.

        Changes during a compilation are combined and applied to its result.
        """
        check_mapping(bounds := bounds or {})
        self._change(bounds, options)

    def measured(self, given: Measured | Recorded | Mapping[int, float]) -> None:
        """Show the measured time of each line, of each operation and of each launch.

        Args:
            given: a profile of the program (`trl.profile`), or a recording of its run (`trl.scope.record`). Seconds by
                operation (`Profile.by_op`) do not change the durations of launches.

        Raises:
            CallError: the argument is none of these.
            OptionError: the measurements contain no launch of the program.
        """
        if not isinstance(given, Mapping):
            self.launches = pack_view(self._drawing.launches(given))
            given = measured_run(given).by_op
        costs = CostView.from_program(self.program, given)
        self.source, self.cost = pack_view(source_view(self.program, costs=costs)), pack_view(costs)

    def vary(self, **values: Any) -> None:
        """Show the program for other argument values, compiled in the background; see `wait`.

        Raises:
            OptionError: the argument does not exist, or its list does not contain the value.
        """
        self._change({}, {}, self._position.positions(values))

    def sweep(self, argument: str | None = None, measure: int = MEASURED) -> None:
        """Predict the programs of all values of an argument in the background, and measure some.

        Bounds, options and other arguments are the shown ones. See `wait`, `swept` and `stop_sweep`.

        Raises:
            ExecutionError: a run is active, which would distort the measurement.
            OptionError: the argument does not exist, or `argument` is omitted and there are several.
        """
        place = self._position
        name = swept_argument(place.family, argument)
        if self._runs():
            raise ExecutionError(
                "an active run would distort the sweep.", hint="stop the run first."
            )
        self._sweeper = Sweeper(place.family, name, place.at, measure, place.bounds, place.options)
        self._submit("sweep", self._sweep_on)

    def stop_sweep(self) -> None:
        """Stop the sweep; its results remain."""
        if self._sweeper is not None:
            self._sweeper.stop()
            self._submit("sweep", self._sweep_on)

    @property
    def swept(self) -> SweepView | None:
        """The results of the latest sweep so far, or None."""
        return None if self._sweeper is None else self._sweeper.view

    def cancel(self) -> None:
        """Cancel the compiling change at its next step, all pending changes, and waits for views."""
        self._changes.clear()
        self._cancelled.set()
        self._waits.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the results of all requests are shown; return False after a timeout."""
        return self._worker.wait(timeout) and self._compiler.wait(timeout)

    def close(self) -> None:
        """Close the widget, and cancel its compilations and its sweep; an active run continues."""
        if "_worker" in vars(self):  # the constructor has completed
            self._is_shown = False
            self.cancel()
            if self._sweeper is not None:
                self._sweeper.stop()
            self._run_controller.detach()
            self._worker.run_in_background(None)
        super().close()

    def _shown_as(self) -> tuple[str, Callable[[], str]]:
        return f"Explorer of {self.program!r}", lambda: self._drawing.picture(self.stage)

    # --- messages of the page ---------------------------------------------------------------------

    @traitlets.validate("selected")
    def _are_known(self, proposal: dict[str, Any]) -> list[int]:
        return known_ids(self._drawing, proposal["value"])

    @traitlets.validate("stage")
    def _is_stage(self, proposal: dict[str, Any]) -> str:
        """Return an existing stage; an unknown name sent by a page changes nothing."""
        name = proposal["value"]
        return name if name in self.program.stages else self._drawing.nearest_stage(self.stage)

    @traitlets.validate("bookmarks")
    def _are_positions(self, proposal: dict[str, Any]) -> list[dict[str, Any]]:
        return [one for one in proposal["value"] if is_bookmark(one)]

    @traitlets.validate("instant")
    def _in_turn(self, proposal: dict[str, Any]) -> int | None:
        value, count = proposal["value"], len(self._drawing.turn)
        return None if value is None or not count else min(max(value, 0), count - 1)

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        try:
            self._act(parse(content))
        except TimeRLError as error:
            self._fail(error)

    def _act(self, request: Request) -> None:
        match request:
            case Shown():
                self._is_shown = True
                self._look_ahead()
            case Cancel():
                self.cancel()
            case SetOptions(changes):
                self._change({}, changes)
            case SetBounds(changes):
                self._change(changes, {})
            case SetArgument(name, at):
                self._position.with_arguments(
                    {name: at}
                )  # raises for an unknown argument or position
                self._change({}, {}, {name: at})
            case Sweep(argument, stop):
                self.stop_sweep() if stop else self.sweep(argument)
            case Command():
                # processed immediately: no command may be lost
                self.acknowledged = max(self.acknowledged, request.number)
                self._run_controller.act(request, self.program)
                self.pause_when = self._run_controller.condition
            case Compare(close):
                self.compare(None if close else self.program)
            case CompareGraphs():
                self._submit("graphs", lambda: self._compare_graphs(request))
            case Inspect():
                self._submit("inspect", lambda: self._inspect(request))
            case Fold(key, folded):
                self._submit("fold", lambda: self._fold(key, folded))
            case Detail(name):
                # of several steps, only the last one matters
                kind = "step" if name.startswith("step ") else name
                self._compiler.ask(kind, lambda: self._show_detail(self._drawing, name))
            case Search():
                self._submit("search", lambda: self._search(request))

    # --- background work --------------------------------------------------------------------------

    def _submit(self, kind: str, act: Callable[[], None]) -> None:
        """Run a function on the worker; its errors are shown."""
        self._worker.ask(kind, act)

    def _change(
        self, bounds: Mapping[str, int], options: Mapping[str, Any], at: At | None = None
    ) -> None:
        made = changed_text(bounds, options) or "another value of an argument"
        self.status = {"state": "compiling", "text": f"compiling: {made} …"}
        self._cancelled.clear()
        self._changes.append((bounds, options, at or {}))
        self._submit("compile", self._recompile)

    def _changed(self) -> Changed:
        """Return the program with all pending changes, or raise an error and apply none of them."""
        start, stage = time.perf_counter(), self.stage
        bounds: dict[str, int] = {}
        options: dict[str, Any] = {}
        at = dict(self._position.at)
        while self._changes:
            of_bounds, of_options, of_at = self._changes.popleft()
            bounds.update(of_bounds)
            options.update(of_options)
            at.update(of_at)
        self._go_on()
        place, moves = self._position, at != self._position.at
        before = place.describe_difference(at) or was(self.program, bounds, options)
        show = self._progress_observer(complete=not bounds and not moves, before=before)
        sketch = following(self.program, bounds, options, show)
        tried: list[Candidate] = []
        budget = self.program.options.with_(**options).budget

        def watch(stage: Any) -> None:
            if any(of_at for _, _, of_at in self._changes):  # the slider has moved on
                self._changes.appendleft((bounds, options, at))
                raise Interrupted
            sketch(stage)

        def try_on(candidate: Candidate) -> None:
            self._go_on()
            tried.append(candidate)
            self.status = {"state": "compiling", "text": tried_text(tried, budget)}

        known, observer = None, CompileObserver(watch, try_on)
        try:
            if not bounds:
                known = self._drawings.changed(self.program, options, at)
                drawing = known or self._drawings.get_or_compile(
                    self.program, options, at, observer
                )
            elif not moves:
                program = self.program.again(
                    bounds=bounds, options=options, observer=observer, tell=False
                )
                drawing = Drawing(program, self._first)
            else:
                under, given = {**place.bounds, **bounds}, {**place.options, **options}
                shown = place.family.program(at, under, given, observer)
                drawing = Drawing(shown, self._first)
            seconds = time.perf_counter() - start
            comparison = self._draw_changed(drawing, stage, is_known=known is not None)
        except Exception as error:
            if moves and not self._cancelled.is_set():
                place.failed[key(at)] = problem_of(error)
            raise
        place.at = at
        place.bounds.update(bounds)
        place.options.update(options)
        drawing = self._drawings.get_drawing(drawing)
        return Changed(drawing, known is not None, before, seconds, comparison)

    def _draw_changed(self, drawing: Drawing, stage: str, *, is_known: bool) -> ViewMessage:
        """Create the views of the program that is shown next, unless cancelled, and return its comparison."""
        if not is_known:
            self.status = {"state": "compiling", "text": "drawing the program …"}
        before, shown = self._drawing.view, drawing.nearest_stage(stage)
        self._waits.run(layout_text(drawing, shown), lambda: drawing.lay_out(shown, before))
        drawing.prepare(stage, before, lambda _: self._go_on())
        return self._compare_programs(drawing) if self._beside is not None else NOTHING

    def _go_on(self) -> None:
        """Raise an error if the compiling change has been cancelled."""
        if self._cancelled.is_set():
            raise ExecutionError("the change has been cancelled; the program is unchanged.")

    def _look_ahead(self) -> None:
        """Compile likely changes while the kernel is idle."""
        drawing, stage = self._drawing, self.stage
        seconds = drawing.program.stages.seconds
        clicks = guesses(drawing.pipeline.switches, seconds)
        near = self._position.nearest_positions() if clicks else []
        here = self._position.at
        changes = [*(({}, at) for at in near), *((change, here) for change in clicks)]
        if not self.ahead or not self._is_shown or not changes:
            self._worker.run_in_background(None)
            self.foreseen = {}
            return

        def make(change: tuple[Change, At], check: Check) -> None:
            options, at = change
            if key(at) in self._position.failed:
                return
            try:
                made = self._drawings.get_or_compile(
                    drawing.program, options, at, CompileObserver(check)
                )
            except Exception as error:
                if at is here:
                    raise
                self._position.failed[key(at)] = problem_of(error)
            else:
                made.prepare(stage, drawing.view, check)

        def on_remaining(left: int) -> None:
            self.foreseen = {"left": left, "of": len(changes)}
            self._tell_arguments()

        on_remaining(len(changes))
        ahead = SpeculativeCompiler(
            make, changes, lambda: self._worker.waits, self._runs, on_remaining
        )
        self._worker.run_in_background(ahead, rest(seconds))

    def _runs(self) -> bool:
        return self.running is not None and self.running.state == "running"

    def _tell_arguments(self) -> None:
        """Update the sliders' positions, and the set of cached positions."""
        program, place = self.program, self._position
        told = place.to_json(lambda at: self._drawings.has_program(program, at))
        self.arguments = {"arguments": told} if told else {}

    def _sweep_on(self) -> None:
        """Do one step of the sweep, then handle requests that arrived meanwhile."""
        sweeper = self._sweeper
        assert sweeper is not None

        def check(_: object) -> None:
            if self._worker.waits:
                raise Interrupted

        with suppress(Interrupted):
            sweeper.step(CompileObserver(check))
        view = sweeper.view
        self.sweeping = pack_view(view, left=sweeper.remaining)
        if sweeper.remaining:
            self._submit("sweep", self._sweep_on)

    def _progress_observer(self, complete: bool, before: str) -> Callable[[Progress], None]:
        """Return an observer that reports the next step, and shows the passes after they have run if nothing
        else changes.
        """
        shown, drawing = self.stage, self._drawing.view
        waits = (
            complete and self.program.stages[shown].previous is not None
        )  # for the graph of a pass

        def show(progress: Progress) -> None:
            nonlocal waits
            self._go_on()
            with self.hold_sync():
                is_it = progress.stage.name == shown or progress.is_planning
                view = progress.graph if waits and is_it and self.stage == shown else None
                if view is not None:
                    _, graph = drawn(view if drawing is None else view.as_in(drawing))
                    self._show_graph(graph, before)
                    self.steps, waits = pack_view(progress.steps), False
                if complete and progress.is_planning:
                    self.pipeline = pack_view(progress.pipeline)
                self.status = {"state": "compiling", "text": progress.text}

        return show

    def _recompile(self) -> None:
        stage = self.stage
        shown = self.pipeline, self.graph, self.steps
        try:
            made = self._changed()
        except Interrupted:  # newer requests are combined with this one
            return
        except Exception:
            with self.hold_sync():
                if self.graph is not shown[1]:
                    self.pipeline, self.steps = shown[0], shown[2]
                    self._show_graph(shown[1])
            self._tell_arguments()
            raise
        drawing = made.drawing
        views = drawing.traits(drawing.nearest_stage(stage), self._drawing.view)
        views["against"], views["comparison"] = made.before, made.comparison
        self._drawing = drawing
        with self.hold_sync():
            if self.stage != stage:  # another stage was requested meanwhile, and is drawn next
                for name in ("stage", "graph", "against", "steps", "outline", "stores"):
                    del views[name]
            self._drawn_stage = views.get("stage", self._drawn_stage)
            for name, value in views.items():
                setattr(self, name, value)
            self.selected = known_ids(drawing, self.selected)
            self.instant = self.instant  # validated against the new turn
            told = list(drawing.program.warnings)
            self._tell_arguments()
            self.status = {
                "state": "ready",
                "seconds": made.seconds,
                "known": made.is_known,
                "warnings": told,
            }
        self._sought = drawing.drop_missing_filters(self._sought)
        self.search = drawing.search(self._sought)
        if self._run_controller.view is not None:  # possibly of the previous program
            self._show_run(self._run_controller.view)
        self._look_ahead()

    def _show_stage(self, _: Any) -> None:
        self._submit("stage", self._draw_stage)

    def _draw_stage(self) -> None:
        drawing, stage = self._drawing, self.stage
        if stage not in drawing.program.stages:  # switched off since the request
            self.stage = drawing.nearest_stage(stage)
            return
        try:
            self._waits.run(
                layout_text(drawing, stage), lambda: drawing.lay_out(stage, drawing.view)
            )
        except ExecutionError:
            self.stage = self._drawn_stage  # the page returns to it
            raise
        steps, outline, stores = drawing.steps(stage), drawing.outline(stage), drawing.stores(stage)
        graph = None if outline else drawing.graph(stage, drawing.view)
        with self.hold_sync():
            if graph is not None:
                before = f"stage {self._drawn_stage}" if self._drawn_stage != stage else ""
                self._show_graph(graph, before)
                self._drawn_stage = stage
            self.steps, self.outline, self.stores = steps, outline, stores

    def _show_graph(self, graph: ViewMessage, before: str = "") -> None:
        """Show a graph; the page compares it with the previous one, described by `before`, unless that is ""."""
        with self.hold_sync():
            self.graph, self.against = graph, before

    def _inspect(self, asked: Inspect) -> None:
        drawing = self._drawing
        known = known_ids(drawing, asked.ids)
        if known:
            self._inspected = asked
            self.inspector = drawing.inspector(asked, known)
            self._show_values()

    def _show_values(self) -> None:
        """Show the values of the selected tensors while the run of the shown program is paused."""
        running, asked, ids = self._run_controller.running, self._inspected, tuple(self.selected)
        is_own = running is not None and self._run_controller.program is self.program
        if not is_own or not ids or running.state != "paused":
            self._shown_values = None
            if self.values:
                self.values = NOTHING
            return
        narrowed = asked is not None and set(asked.ids) == set(ids)
        tensors = asked.tensors if asked is not None and narrowed else ()
        drawing, instant = self._drawing, self.instant
        position = running, running.turn, ids, tensors, instant
        if position == self._shown_values:  # frames of a paused run arrive every second
            return
        view = NOTHING
        with suppress(ExecutionError):  # the run has ended meanwhile, or the wait is cancelled
            view = self._waits.run(
                "reading values of the paused run …",
                lambda: drawing.values(running, ids, tensors, instant),
            )
        self.values, self._shown_values = view, position

    def _show_detail(self, drawing: Drawing, name: str) -> None:
        """Create a detail of the shown program, or report the error."""
        problem = ""
        try:
            view = self._waits.run(
                f"creating {name} of the program …", lambda: detail(drawing.program, name)
            )
        except Exception as error:
            view, problem = OutlineView(name, ()), f"{type(error).__name__}: {error}"
        if drawing is self._drawing:
            # numbered, since the page must receive an equal answer to a repeated request
            number = self.detail_view.get("json", {}).get("number", 0) + 1
            self.detail_view = pack_view(view, problem=problem, number=number)

    def _fold(self, key: str, folded: bool) -> None:
        drawing = self._drawing
        try:
            view = drawing.fold(key, folded)
            what = f"laying out the graph of {format_count(len(view.nodes), 'node')} …"
            self._waits.run(what, lambda: drawing.layout_of(view))
            self._show_graph(drawing.draw(view))
        except TimeRLError:
            self.send({"kind": "refused", "request": "fold"})
            raise

    def _search(self, asked: Search) -> None:
        drawing = self._drawing
        found = self._waits.run("searching all stages …", lambda: drawing.search(asked))
        self.search, self._sought = found, asked

    def _look_beside(self) -> None:
        self.comparison = self._compare_programs(self._drawing)

    def _compare_programs(self, drawing: Drawing) -> ViewMessage:
        return self._waits.run("comparing the programs …", lambda: self._comparison(drawing))

    def _compare_graphs(self, asked: CompareGraphs) -> None:
        """Draw the graphs of both programs at a stage; a missing stage is replaced by the nearest one."""
        if self._beside is None:
            return
        if self._graphs is None or [one.program for one in self._graphs] != [
            self._beside,
            self.program,
        ]:
            self._graphs = Drawing(self._beside), Drawing(self.program)
        stages = [one.nearest_stage(asked.stage) for one in self._graphs]

        def draw(drawing: Drawing, stage: str) -> ViewMessage:
            if asked.cluster and drawing.view is not None:
                with suppress(DrawingError):  # only the other graph has this cluster
                    return drawing.draw(drawing.fold(asked.cluster, asked.folded))
            return drawing.graph(stage, drawing.view)

        both = self._graphs
        views = self._waits.run(
            "laying out the graphs of both programs …", lambda: list(map(draw, both, stages))
        )
        self.graphs = {"stages": stages, "views": views}

    def _comparison(self, drawing: Drawing) -> ViewMessage:
        if self._beside is None:
            return NOTHING
        return pack_view(
            ComparisonView.from_programs(
                self._beside, drawing.program, self._titles, first=drawing.first
            )
        )

    def _show_run(self, view: RunView) -> None:
        if self._run_controller.program is not self.program:
            view = replace(
                view, over=NO_TURN, amounts=()
            )  # the measurement belongs to another program
        self.run = pack_view(view)
        if self.values or view.frame.state == "paused":
            self._submit("values", self._show_values)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, TimeRLError):
            text = "\n".join((error.what, *error.evidence))
            self.status = {"state": "failed", "text": text, "hint": error.hint}
        else:
            self.status = {
                "state": "failed",
                "text": f"{type(error).__name__}: {error}",
                "hint": "",
            }


@dataclass(frozen=True)
class Changed:
    """A changed program with its views, before it is shown.

    Attributes:
        drawing: the program.
        is_known: whether it was cached.
        before: the previous state in words.
        seconds: the time of the compilation.
        comparison: the comparison with another program.
    """

    drawing: Drawing
    is_known: bool
    before: str
    seconds: float
    comparison: ViewMessage


def was(program: Program, bounds: Mapping[str, int], options: Mapping[str, Any]) -> str:
    """Describe the state of a program that a change alters: `contract on`, `T = 12`."""
    given = {name: getattr(program.options, name, value) for name, value in options.items()}
    found = [f"{name} {says(is_)}" for name, is_ in given.items() if is_ != options[name]]
    sizes = {str(name): program.bounds.get(str(name)) for name in bounds}
    found += [
        f"{n} = {size}"
        for (n, size), to in zip(sizes.items(), bounds.values(), strict=True)
        if size != to
    ]
    return ", ".join(found) if 0 < len(found) <= 3 else "before this change"


def changed_text(bounds: Mapping[str, int], options: Mapping[str, Any]) -> str:
    """Describe a change: `contract off, T = 12`."""
    named = [f"{name} {says(value)}" for name, value in options.items()]
    return ", ".join([*named, *(f"{name} = {size:,}" for name, size in bounds.items())])


def layout_text(drawing: Drawing, stage: str) -> str:
    count = len(drawing.graph_of(stage))
    return f"laying out the stage {stage} of {format_count(count, 'operation')} …"


def says(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"= {value}"
