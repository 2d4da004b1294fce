"""`Explorer`: a program's stages, graph, loops, time, memory and run in one widget."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from timerl_nb.errors import TimeRLError
from timerl_nb.program import Program
from timerl_nb.running import Running
from timerl_nb.show import ComparisonView
from timerl_nb.show.progress import Progress, following
from timerl_widgets.ahead import Ahead, Change, guesses, rest
from timerl_widgets.bundles import module
from timerl_widgets.conductor import Conductor
from timerl_widgets.drawing import FIRST_SHOWN, Drawing, drawn, known_ids
from timerl_widgets.known import Known, See
from timerl_widgets.live import NO_TURN
from timerl_widgets.packed import NOTHING, Packed, packed
from timerl_widgets.panes import with_picture
from timerl_widgets.requests import (
    Command,
    Compare,
    Fold,
    Inspect,
    Request,
    Search,
    SetBounds,
    SetOptions,
    Shown,
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
    loops = traitlets.Dict().tag(sync=True)
    space = traitlets.Dict().tag(sync=True)
    memory = traitlets.Dict().tag(sync=True)
    inspector = traitlets.Dict().tag(sync=True)
    search = traitlets.Dict().tag(sync=True)
    comparison = traitlets.Dict().tag(sync=True)
    run = traitlets.Dict().tag(sync=True)
    acknowledged = traitlets.Int(0).tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    foreseen = traitlets.Dict().tag(sync=True)
    stage = traitlets.Unicode("pdg").tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    instant = traitlets.Int(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        program: Program,
        other: Program | None = None,
        *,
        stage: str = FIRST_SHOWN,
        ahead: bool = True,
    ) -> None:
        """Show a program, and the graph of one of its stages; beside another program, if it is given.

        Raises:
            OptionError: there is no such stage.
        """
        self._conductor = Conductor(self._show_run)
        self._known = Known()
        self._drawing = self._known.of(program)
        self.ahead, self._is_shown = ahead, False
        self._beside, self._titles = other, ("other", "this")
        self._worker = Worker("timerl explorer", self._fail)
        self._sought = Search("", None, None, changed=False)
        self._changes: deque[tuple[Mapping[str, int], Mapping[str, Any]]] = deque()  # that wait
        shown = self._drawing.nearest(stage) if stage == FIRST_SHOWN else stage
        views = self._drawing.traits(self._drawing.check_stage(shown))
        views["comparison"] = self._compared(self._drawing)
        views["search"] = self._drawing.search(self._sought)
        super().__init__(**views, status={"state": "ready"})
        self.on_msg(self._receive)
        self.observe(self._show_stage, "stage")

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
        self._beside, self._titles = other, ("before", "now")
        self._later("compare", self._compare)

    def change(self, bounds: Mapping[str, int] | None = None, **options: Any) -> None:
        """Compile again with other options and bounds, in the background; see `wait`.

        Changes that come while another one is compiled are made together, and to what that one gives.
        """
        self._change(bounds or {}, options)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until everything that was asked for is shown; False if it is not in time."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Leave the page; a run goes on without it."""
        self._conductor.leave()
        self._worker.meanwhile(None)
        super().close()

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        text = f"Explorer of {self.program!r}"
        picture = self._drawing.picture(self.stage)
        return with_picture(super()._repr_mimebundle_(**options), text, picture)

    # --- what comes from the page ----------------------------------------------------------------

    @traitlets.validate("selected")
    def _are_known(self, proposal: dict[str, Any]) -> list[int]:
        return known_ids(self._drawing, proposal["value"])

    @traitlets.validate("stage")
    def _is_stage(self, proposal: dict[str, Any]) -> str:
        """A stage that there is; what a page sends otherwise leaves what is shown."""
        name = proposal["value"]
        return name if name in self.program.stages else self._drawing.nearest(self.stage)

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
            case SetOptions(changes):
                self._change({}, changes)
            case SetBounds(changes):
                self._change(changes, {})
            case Command():
                # at once: of two commands none may be left out
                self.acknowledged = max(self.acknowledged, request.number)
                self._conductor.act(request, self.program)
            case Compare(close):
                self.compare(None if close else self.program)
            case Inspect(ids, stage):
                self._later("inspect", lambda: self._inspect(list(ids), stage))
            case Fold(key, folded):
                self._later("fold", lambda: self._fold(key, folded))
            case Search():
                self._later("search", lambda: self._search(request))

    # --- in the background -----------------------------------------------------------------------

    def _later(self, kind: str, act: Callable[[], None]) -> None:
        """Do something on the worker; its errors are shown."""
        self._worker.ask(kind, act)

    def _change(self, bounds: Mapping[str, int], options: Mapping[str, Any]) -> None:
        self.status = {"state": "compiling"}
        self._changes.append((bounds, options))
        self._later("compile", self._recompile)

    def _changed(self) -> tuple[Drawing, bool]:
        """The program with all changes that wait, or, where one is impossible, with none of them.

        Also says whether it was known.
        """
        bounds: dict[str, int] = {}
        options: dict[str, Any] = {}
        while self._changes:
            of_bounds, of_options = self._changes.popleft()
            bounds.update(of_bounds)
            options.update(of_options)
        see = following(self.program, bounds, options, self._sketching(complete=not bounds))
        if not bounds:
            known = self._known.changed(self.program, options)
            return known or self._known.compiled(self.program, options, see), known is not None
        program = self.program.again(bounds=bounds, options=options, see=see, tell=False)
        return self._known.of(program), False

    def _look_ahead(self) -> None:
        """Compile what a click would change while nothing else is to be done."""
        drawing, stage = self._drawing, self.stage
        seconds = drawing.program.stages.seconds
        changes = guesses(drawing.pipeline.switches, seconds)
        if not self.ahead or not self._is_shown or not changes:
            self._worker.meanwhile(None)
            self.foreseen = {}
            return

        def make(change: Change, see: See) -> None:
            made = self._known.compiled(drawing.program, change, see)
            made.prepare(stage, drawing.view, see)

        def runs() -> bool:
            return self.running is not None and self.running.state == "running"

        def told(left: int) -> None:
            self.foreseen = {"left": left, "of": len(changes)}

        told(len(changes))
        ahead = Ahead(make, changes, lambda: self._worker.waits, runs, told)
        self._worker.meanwhile(ahead, rest(seconds))

    def _sketching(self, complete: bool) -> Callable[[Progress], None]:
        """Says what comes next, and shows the passes once they have run, if nothing else changes."""
        shown, before = self.stage, self._drawing.view
        waits = complete and self.program.stages[shown].previous is not None  # for a pass's graph

        def show(progress: Progress) -> None:
            nonlocal waits
            with self.hold_sync():
                is_it = progress.stage.name == shown or progress.is_planning
                view = progress.graph if waits and is_it and self.stage == shown else None
                if view is not None:
                    _, self.graph = drawn(view if before is None else view.as_in(before))
                    self.steps, waits = packed(progress.steps), False
                if complete and progress.is_planning:
                    self.pipeline = packed(progress.pipeline)
                self.status = {"state": "compiling", "text": progress.text}

        return show

    def _recompile(self) -> None:
        start, stage = time.perf_counter(), self.stage
        shown = self.pipeline, self.graph, self.steps
        try:
            drawing, known = self._changed()
        except Exception:
            with self.hold_sync():
                self.pipeline, self.graph, self.steps = shown
            raise
        seconds = time.perf_counter() - start
        views = drawing.traits(drawing.nearest(stage), self._drawing.view)
        views["comparison"] = self._compared(drawing)
        self._drawing = drawing
        with self.hold_sync():
            if self.stage != stage:  # another one was asked for meanwhile, and is drawn next
                for name in ("stage", "graph", "steps"):
                    del views[name]
            for name, value in views.items():
                setattr(self, name, value)
            self.selected = known_ids(drawing, self.selected)
            self.instant = self.instant  # as far as the new turn goes
            told = list(drawing.program.warnings)
            self.status = {"state": "ready", "seconds": seconds, "known": known, "warnings": told}
        self._search(drawing.widened(self._sought))
        self._look_ahead()

    def _show_stage(self, _: Any) -> None:
        self._later("stage", self._draw_stage)

    def _draw_stage(self) -> None:
        drawing, stage = self._drawing, self.stage
        if stage not in drawing.program.stages:  # it was switched off since it was asked for
            self.stage = drawing.nearest(stage)
            return
        graph, steps = drawing.graph(stage, drawing.view), drawing.steps(stage)
        with self.hold_sync():
            self.graph, self.steps = graph, steps

    def _inspect(self, ids: list[int], stage: str) -> None:
        drawing = self._drawing
        known = known_ids(drawing, ids)
        if known:
            view = drawing.inspector(known, stage)
            view["json"]["asked"] = ids
            self.inspector = view

    def _fold(self, key: str, folded: bool) -> None:
        try:
            self.graph = self._drawing.fold(key, folded)
        except TimeRLError:
            self.send({"kind": "refused", "request": "fold"})
            raise

    def _search(self, asked: Search) -> None:
        self.search, self._sought = self._drawing.search(asked), asked

    def _compare(self) -> None:
        self.comparison = self._compared(self._drawing)

    def _compared(self, drawing: Drawing) -> Packed:
        if self._beside is None:
            return NOTHING
        return packed(ComparisonView.of(self._beside, drawing.program, self._titles))

    def _show_run(self, view: Packed) -> None:
        if self._conductor.program is not self.program:
            view["json"]["over"] = NO_TURN  # no measure of the memory that is shown
        self.run = view

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
