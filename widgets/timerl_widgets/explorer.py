"""`Explorer`: a program's stages, graph, loops, time, memory and run in one widget."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from threading import Event
from typing import Any

import traitlets

from timerl_nb.show import ComparisonView, OutlineView, RunView, SweepView, detail, source_view
from timerl_nb.show.comparison.argument_sweep import MEASURED, Sweeper, problem_of, swept_argument
from timerl_nb.show.stages.compile_progress import Progress, following, tried_text
from timerl_nb.show.widget_api import (
    At,
    Candidate,
    CompileObserver,
    ExecutionError,
    Family,
    Program,
    Running,
    TimeRLError,
    a_program,
    check_mapping,
    explain_call_errors,
)
from timerl_widgets.ahead import Ahead, Change, Check, Interrupted, guesses, rest
from timerl_widgets.bundles import module
from timerl_widgets.conductor import Conductor
from timerl_widgets.drawing import FIRST_SHOWN, Drawing, drawn, known_ids
from timerl_widgets.known import DrawingCache
from timerl_widgets.live import NO_TURN
from timerl_widgets.packed import NOTHING, Packed, packed
from timerl_widgets.place import FamilyPosition, key
from timerl_widgets.requests import (
    Cancel,
    Command,
    Compare,
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
    parse,
)
from timerl_widgets.widget import Widget
from timerl_widgets.worker import Worker


class Explorer(Widget):
    """A program to look into: what is selected in one view is marked in all.

    A change of an option or bound, here or in the page, compiles on a thread of its own; an error is
    shown, and the program stays as it was.

    Attributes:
        selected: the ids of the selected operations, of any stages; set it to select from Python.
        stage: the stage whose graph is shown.
        instant: the position in the turn that is shown; None for no one.
        status: what the last change came to: `state`, and `seconds`, whether it was `known` before
            and the program's `warnings`, or `text` and `hint`.
        program: the program that is shown, with what was changed in the page.
        arguments: the sliders of a family's arguments: `labels` of the values, the position `at`, the
            positions that are `known`, and why others `failed`.
        sweeping: the last sweep, with `left`, how many pieces of its work are.
        running: the run that was started last, here or in the page; None where there is none.
        ahead: compile what a click would change while a page shows the explorer and nothing else is
            to be done.
        foreseen: how many such changes are `left` to compile, `of` how many.
    """

    _esm = module("explorer")
    written = frozenset({"selected", "stage", "instant"})

    pipeline = traitlets.Dict().tag(sync=True)
    lineage = traitlets.Dict().tag(sync=True)
    graph = traitlets.Dict().tag(sync=True)
    steps = traitlets.Dict().tag(sync=True)
    outline = traitlets.Dict().tag(sync=True)
    stores = traitlets.Dict().tag(sync=True)
    source = traitlets.Dict().tag(sync=True)
    told = traitlets.Dict().tag(sync=True)
    loops = traitlets.Dict().tag(sync=True)
    space = traitlets.Dict().tag(sync=True)
    memory = traitlets.Dict().tag(sync=True)
    inspector = traitlets.Dict().tag(sync=True)
    search = traitlets.Dict().tag(sync=True)
    comparison = traitlets.Dict().tag(sync=True)
    run = traitlets.Dict().tag(sync=True)
    acknowledged = traitlets.Int(0).tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    arguments = traitlets.Dict().tag(sync=True)
    sweeping = traitlets.Dict().tag(sync=True)
    foreseen = traitlets.Dict().tag(sync=True)
    stage = traitlets.Unicode("pdg").tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    instant = traitlets.Int(None, allow_none=True).tag(sync=True)

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
        """Show a program, and the graph of one of its stages; beside another program, if it is given.

        Args:
            family: that the program is the first of; its arguments have sliders.

        Raises:
            CallError: one of the two is no program.
            OptionError: there is no such stage.
        """
        for one in (program, other):
            if one is not None:
                a_program(one)
        self._conductor = Conductor(self._show_run)
        self._place = FamilyPosition(family)
        self._known, self._first = DrawingCache(self._place, program), program
        self._sweeper: Sweeper | None = None
        self._drawing = self._known.get_drawing(Drawing(program))
        self.ahead, self._is_shown = ahead, False
        self._beside, self._titles = other, ("other", "this")
        self._worker = Worker("timerl explorer", self._fail)
        self._compiler = Worker(
            "timerl details", self._fail
        )  # what takes long keeps nobody waiting
        self._sought = Search("", None, None, changed=False)
        self._cancelled = Event()
        # bounds, options and positions that wait
        self._changes: deque[tuple[Mapping[str, int], Mapping[str, Any], At]] = deque()
        shown = self._drawing.nearest_stage(stage) if stage == FIRST_SHOWN else stage
        views = self._drawing.traits(self._drawing.check_stage(shown))
        self._drawn_stage = views["stage"]
        views["comparison"] = self._comparison(self._drawing)
        views["search"] = self._drawing.search(self._sought)
        super().__init__(**views, status={"state": "ready"})
        self.on_msg(self._receive)
        self.observe(self._show_stage, "stage")
        self._tell_arguments()

    # --- from Python -----------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        return self._drawing.program

    @property
    def running(self) -> Running | None:
        return self._conductor.running

    def start(self, **options: Any) -> Running:
        """Run the program that is shown; the options are those of `Program.start`."""
        return self._conductor.start(self.program, **options)

    def compare(self, other: Program | None) -> None:
        """Show the program beside another one, or alone."""
        self._beside = None if other is None else a_program(other)
        self._titles = "before", "now"
        self._submit("compare", self._look_beside)

    def change(self, bounds: Mapping[str, int] | None = None, **options: Any) -> None:
        """Compile again with other options and bounds, in the background; see `wait`.

        Changes that come while another one is compiled are made together, and to what that one gives.
        """
        check_mapping(bounds := bounds or {})
        self._change(bounds, options)

    def measured(self, seconds: Mapping[int, float]) -> None:
        """Show beside the user's lines how long what they are in took, by operation (`Profile.by_op`)."""
        self.source = packed(source_view(self.program, seconds))

    def vary(self, **values: Any) -> None:
        """Show the program of other values of its arguments, compiled in the background; see `wait`.

        Raises:
            OptionError: there is no such argument, or no such value in its list.
        """
        self._change({}, {}, self._place.positions(values))

    def sweep(self, argument: str | None = None, measure: int = MEASURED) -> None:
        """Predict the programs of all values of an argument in the background, and measure some.

        Bounds, options and other arguments are those that are shown. See `wait`, `swept` and
        `stop_sweep`.

        Raises:
            ExecutionError: a run goes on, which would be measured, too.
            OptionError: there is no such argument, or several and none is named.
        """
        place = self._place
        name = swept_argument(place.family, argument)
        if self._runs():
            raise ExecutionError("a run goes on, which would be measured, too.", hint="stop it.")
        self._sweeper = Sweeper(place.family, name, place.at, measure, place.bounds, place.options)
        self._submit("sweep", self._sweep_on)

    def stop_sweep(self) -> None:
        """End a sweep; what is known of it stays."""
        if self._sweeper is not None:
            self._sweeper.stop()
            self._submit("sweep", self._sweep_on)

    @property
    def swept(self) -> SweepView | None:
        """The sweep that was asked for last, as far as it has come."""
        return None if self._sweeper is None else self._sweeper.view

    def cancel(self) -> None:
        """Give up the change that is being compiled, at its next step, and those that wait."""
        self._changes.clear()
        self._cancelled.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until everything that was asked for is shown; False if it is not in time."""
        return self._worker.wait(timeout) and self._compiler.wait(timeout)

    def close(self) -> None:
        """Leave the page; a run goes on without it."""
        if "_worker" in vars(self):  # it was made
            self._conductor.detach()
            self._worker.run_in_background(None)
        super().close()

    def _shown_as(self) -> tuple[str, Callable[[], str]]:
        return f"Explorer of {self.program!r}", lambda: self._drawing.picture(self.stage)

    # --- what comes from the page ----------------------------------------------------------------

    @traitlets.validate("selected")
    def _are_known(self, proposal: dict[str, Any]) -> list[int]:
        return known_ids(self._drawing, proposal["value"])

    @traitlets.validate("stage")
    def _is_stage(self, proposal: dict[str, Any]) -> str:
        """A stage that there is; what a page sends otherwise leaves what is shown."""
        name = proposal["value"]
        return name if name in self.program.stages else self._drawing.nearest_stage(self.stage)

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
                self._place.with_arguments({name: at})  # or refused
                self._change({}, {}, {name: at})
            case Sweep(argument, stop):
                self.stop_sweep() if stop else self.sweep(argument)
            case Command():
                # at once: of two commands none may be left out
                self.acknowledged = max(self.acknowledged, request.number)
                self._conductor.act(request, self.program)
            case Compare(close):
                self.compare(None if close else self.program)
            case Inspect():
                self._submit("inspect", lambda: self._inspect(request))
            case Fold(key, folded):
                self._submit("fold", lambda: self._fold(key, folded))
            case Detail(name):
                self._compiler.ask(name, lambda: self._show_detail(self._drawing, name))
            case Search():
                self._submit("search", lambda: self._search(request))

    # --- in the background -----------------------------------------------------------------------

    def _submit(self, kind: str, act: Callable[[], None]) -> None:
        """Do something on the worker; its errors are shown."""
        self._worker.ask(kind, act)

    def _change(
        self, bounds: Mapping[str, int], options: Mapping[str, Any], at: At | None = None
    ) -> None:
        self.status = {"state": "compiling"}
        self._cancelled.clear()
        self._changes.append((bounds, options, at or {}))
        self._submit("compile", self._recompile)

    def _changed(self) -> tuple[Drawing, bool, str]:
        """The program with all changes that wait, or, where one is impossible, with none of them.

        Also says whether it was known, and what was so before.
        """
        bounds: dict[str, int] = {}
        options: dict[str, Any] = {}
        at = dict(self._place.at)
        while self._changes:
            of_bounds, of_options, of_at = self._changes.popleft()
            bounds.update(of_bounds)
            options.update(of_options)
            at.update(of_at)
        self._go_on()
        place, moves = self._place, at != self._place.at
        before = place.describe_difference(at) or was(self.program, bounds, options)
        show = self._progress_observer(complete=not bounds and not moves, before=before)
        sketch = following(self.program, bounds, options, show)
        tried: list[Candidate] = []
        budget = self.program.options.with_(**options).budget

        def watch(stage: Any) -> None:
            if any(of_at for _, _, of_at in self._changes):  # the hand has gone on
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
                known = self._known.changed(self.program, options, at)
                drawing = known or self._known.get_or_compile(self.program, options, at, observer)
            elif not moves:
                program = self.program.again(
                    bounds=bounds, options=options, observer=observer, tell=False
                )
                drawing = Drawing(program, self._first)
            else:
                under, given = {**place.bounds, **bounds}, {**place.options, **options}
                shown = place.family.program(at, under, given, observer)
                drawing = Drawing(shown, self._first)
        except Exception as error:
            if moves and not self._cancelled.is_set():
                place.failed[key(at)] = problem_of(error)
            raise
        place.at = at
        place.bounds.update(bounds)
        place.options.update(options)
        return self._known.get_drawing(drawing), known is not None, before

    def _go_on(self) -> None:
        """Raise an error where the change that is being compiled has been given up."""
        if self._cancelled.is_set():
            raise ExecutionError("cancelled: the program stays as it was.")

    def _look_ahead(self) -> None:
        """Compile what a click would change while nothing else is to be done."""
        drawing, stage = self._drawing, self.stage
        seconds = drawing.program.stages.seconds
        clicks = guesses(drawing.pipeline.switches, seconds)
        near = self._place.nearest_positions() if clicks else []
        here = self._place.at
        changes = [*(({}, at) for at in near), *((change, here) for change in clicks)]
        if not self.ahead or not self._is_shown or not changes:
            self._worker.run_in_background(None)
            self.foreseen = {}
            return

        def make(change: tuple[Change, At], check: Check) -> None:
            options, at = change
            if key(at) in self._place.failed:
                return
            try:
                made = self._known.get_or_compile(
                    drawing.program, options, at, CompileObserver(check)
                )
            except Exception as error:
                if at is here:
                    raise
                self._place.failed[key(at)] = problem_of(error)
            else:
                made.prepare(stage, drawing.view, check)

        def on_remaining(left: int) -> None:
            self.foreseen = {"left": left, "of": len(changes)}
            self._tell_arguments()

        on_remaining(len(changes))
        ahead = Ahead(make, changes, lambda: self._worker.waits, self._runs, on_remaining)
        self._worker.run_in_background(ahead, rest(seconds))

    def _runs(self) -> bool:
        return self.running is not None and self.running.state == "running"

    def _tell_arguments(self) -> None:
        """Say where the sliders are, and which of their positions are known."""
        program, place = self.program, self._place
        told = place.to_json(lambda at: self._known.has_program(program, at))
        self.arguments = {"arguments": told} if told else {}

    def _sweep_on(self) -> None:
        """Go a step on with the sweep, and go on after what was asked for meanwhile."""
        sweeper = self._sweeper
        assert sweeper is not None

        def check(_: object) -> None:
            if self._worker.waits:
                raise Interrupted

        with suppress(Interrupted):
            sweeper.step(CompileObserver(check))
        view = sweeper.view
        self.sweeping = packed(view, left=sweeper.remaining)
        if sweeper.remaining:
            self._submit("sweep", self._sweep_on)

    def _progress_observer(self, complete: bool, before: str) -> Callable[[Progress], None]:
        """Says what comes next, and shows the passes once they have run, if nothing else changes."""
        shown, drawing = self.stage, self._drawing.view
        waits = complete and self.program.stages[shown].previous is not None  # for a pass's graph

        def show(progress: Progress) -> None:
            nonlocal waits
            self._go_on()
            with self.hold_sync():
                is_it = progress.stage.name == shown or progress.is_planning
                view = progress.graph if waits and is_it and self.stage == shown else None
                if view is not None:
                    _, graph = drawn(view if drawing is None else view.as_in(drawing))
                    self.graph = against(graph, before)
                    self.steps, waits = packed(progress.steps), False
                if complete and progress.is_planning:
                    self.pipeline = packed(progress.pipeline)
                self.status = {"state": "compiling", "text": progress.text}

        return show

    def _recompile(self) -> None:
        start, stage = time.perf_counter(), self.stage
        shown = self.pipeline, self.graph, self.steps
        try:
            drawing, known, before = self._changed()
        except Interrupted:  # what is asked for now is made together with this
            return
        except Exception:
            with self.hold_sync():
                if self.graph is not shown[1]:
                    self.pipeline, self.graph, self.steps = shown[0], against(shown[1]), shown[2]
            self._tell_arguments()
            raise
        seconds = time.perf_counter() - start
        views = drawing.traits(drawing.nearest_stage(stage), self._drawing.view)
        views["graph"] = against(views["graph"], before)
        views["comparison"] = self._comparison(drawing)
        self._drawing = drawing
        with self.hold_sync():
            if self.stage != stage:  # another one was asked for meanwhile, and is drawn next
                for name in ("stage", "graph", "steps", "outline", "stores"):
                    del views[name]
            self._drawn_stage = views.get("stage", self._drawn_stage)
            for name, value in views.items():
                setattr(self, name, value)
            self.selected = known_ids(drawing, self.selected)
            self.instant = self.instant  # as far as the new turn goes
            told = list(drawing.program.warnings)
            self._tell_arguments()
            self.status = {"state": "ready", "seconds": seconds, "known": known, "warnings": told}
        self._search(drawing.drop_missing_filters(self._sought))
        if self._conductor.view is not None:  # which may be of the program before
            self._show_run(self._conductor.view)
        self._look_ahead()

    def _show_stage(self, _: Any) -> None:
        self._submit("stage", self._draw_stage)

    def _draw_stage(self) -> None:
        drawing, stage = self._drawing, self.stage
        if stage not in drawing.program.stages:  # it was switched off since it was asked for
            self.stage = drawing.nearest_stage(stage)
            return
        steps, outline, graph = drawing.steps(stage), drawing.outline(stage), self.graph
        stores = drawing.stores(stage)
        if not outline:
            before = f"stage {self._drawn_stage}" if self._drawn_stage != stage else ""
            graph, self._drawn_stage = against(drawing.graph(stage, drawing.view), before), stage
        with self.hold_sync():
            self.graph, self.steps, self.outline, self.stores = graph, steps, outline, stores

    def _inspect(self, asked: Inspect) -> None:
        drawing = self._drawing
        known = known_ids(drawing, asked.ids)
        if known:
            self.inspector = drawing.inspector(asked, known)

    def _show_detail(self, drawing: Drawing, name: str) -> None:
        """Make a detail of the program that is shown, or say why there is none."""
        problem = ""
        try:
            view = detail(drawing.program, name)
        except Exception as error:
            view, problem = OutlineView(name, ()), f"{type(error).__name__}: {error}"
        if drawing is self._drawing:
            self.told = packed(view, problem=problem)

    def _fold(self, key: str, folded: bool) -> None:
        try:
            self.graph = self._drawing.fold(key, folded)
        except TimeRLError:
            self.send({"kind": "refused", "request": "fold"})
            raise

    def _search(self, asked: Search) -> None:
        self.search, self._sought = self._drawing.search(asked), asked

    def _look_beside(self) -> None:
        self.comparison = self._comparison(self._drawing)

    def _comparison(self, drawing: Drawing) -> Packed:
        if self._beside is None:
            return NOTHING
        return packed(
            ComparisonView.from_programs(
                self._beside, drawing.program, self._titles, first=drawing.first
            )
        )

    def _show_run(self, view: RunView) -> None:
        if self._conductor.program is not self.program:
            view = replace(view, over=NO_TURN, amounts=())  # no measure of the memory that is shown
        self.run = packed(view)

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


def against(graph: Packed, what: str = "") -> Packed:
    """A graph with what it is compared with, which the page had before; with nothing by default."""
    return {**graph, "json": {**graph["json"], "against": what}}


def was(program: Program, bounds: Mapping[str, int], options: Mapping[str, Any]) -> str:
    """What is so of a program that a change makes otherwise: `contract on`, `T = 12`."""
    given = {name: getattr(program.options, name, value) for name, value in options.items()}
    found = [f"{name} {says(is_)}" for name, is_ in given.items() if is_ != options[name]]
    sizes = {str(name): program.bounds.get(str(name)) for name in bounds}
    found += [
        f"{n} = {size}"
        for (n, size), to in zip(sizes.items(), bounds.values(), strict=True)
        if size != to
    ]
    return ", ".join(found) if 0 < len(found) <= 3 else "before this change"


def says(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"= {value}"
