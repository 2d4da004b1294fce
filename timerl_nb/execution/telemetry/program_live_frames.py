"""Live frames of a program's run.

A background thread builds the frames. The run's thread only helps on request, at the end of an
iteration: it takes references to new output values, and about once a second it measures an iteration.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError, OptionError, one_of
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Lin, sym
from timerl_nb.execution.control.breakpoints import Breakpoint
from timerl_nb.execution.control.pause_and_stop import ENDS, RunControl
from timerl_nb.execution.results.live_values import LiveValues, name_values
from timerl_nb.execution.results.result_dataframe import OutputDimensions, Rows
from timerl_nb.execution.telemetry.live_frame_delivery import Watching
from timerl_nb.execution.telemetry.live_view_frames import Frame, MeasuredBytes, output_text
from timerl_nb.execution.telemetry.process_metrics import ProcessMetrics
from timerl_nb.execution.telemetry.streaming_curve import StreamingCurve
from timerl_nb.runtime.call_timing import Stopwatch
from timerl_nb.runtime.output_assembly import Outputs
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.run_progress import RunProgress, SoFar
from timerl_nb.runtime.xla.execution.lowered_run import LoweredRun

T = TypeVar("T")
_MEASURE: Final = 1.0  # seconds between two measured iterations
_LOOK: Final = 0.01  # seconds between two looks for values from the run's thread
_MOST: Final = (
    64  # maximum new points of a curve per frame; also maximum parts of `MeasuredBytes.bytes`
)


@dataclass(frozen=True)
class Watched:
    """Program of a run, as seen by telemetry.

    Attributes:
        pdg: Dependence graph before all passes.
        plan: Memory plan.
        progress: Known points after each iteration.
        rows: Batched runs with several seeds; None for a single run.
    """

    pdg: Pdg
    plan: MemoryPlan
    progress: RunProgress
    rows: Rows | None = None

    def outputs(self, names: Sequence[str] | None) -> dict[str, Op]:
        """Return the outputs of the run, restricted to `names`."""
        return {
            op.attrs.name: op
            for op in self.plan.pdg.sinks
            if isinstance(op.attrs, OutputAttrs)
            and op.attrs.role == "output"
            and (names is None or op.attrs.name in names)
        }

    @cached_property
    def outer(self) -> str | None:
        """Dimension of the outermost loop, or else the first dimension that some output has alone.

        Dimensions that the user did not write (tiles, seeds) are excluded.
        """
        outer = self.progress.outer
        if outer in self.pdg.dims.names and self._single((outer,)):
            return outer
        numbers = (op for op in self.outputs(None).values() if self._is_number(op, 1))
        alone = {self._single(op.attrs.dims)[0] for op in numbers}
        return next((d for d in self.pdg.dims.names if d in alone), None)

    def curves(self, names: Sequence[str] | None) -> dict[str, Op]:
        """Return the outputs with one number per iteration, in all or in some iterations.

        With several seeds, they are one number per iteration and seed.
        """
        return {
            name: op
            for name, op in self.outputs(names).items()
            if self._is_number(op, 1) and self._single(op.attrs.dims) == (self.outer,)
        }

    @property
    def stacked_over(self) -> OutputDimensions:
        """Dimensions that outputs are stacked over."""
        bound = None if self.outer is None else self.pdg.dims[self.outer].bound
        dims = {name: op.attrs.dims for name, op in self.outputs(None).items()}
        return OutputDimensions(self.outer, bound, dims, self.rows)

    def numbers(self, names: Sequence[str] | None) -> list[str]:
        """Return the names of outputs with one number for the whole run."""
        return [name for name, op in self.outputs(names).items() if self._is_number(op, 0)]

    def _is_number(self, output: Op, dims: int) -> bool:
        """Whether an output is a scalar that varies over exactly `dims` dimensions."""
        attrs, kind = output.attrs, self.plan.pdg.read_type(output.inputs[0])
        return len(self._single(attrs.dims)) == dims and len(kind.shape) == len(attrs.axes)

    def points(self, output: Op, points: Iterable[int]) -> Sequence[int]:
        """Keep only the points of the outermost dimension at which an output is defined.

        A value for the point after the last one can exist: the last iteration also computes `x[i + 1]`.
        """
        if self.outer is None:
            return list(points)
        bounds = self.plan.bounds
        bound = bounds[self.pdg.dims[self.outer].bound]
        points = [k for k in points if k < bound]
        if output.where is TRUE:
            return points
        return [k for k in points if evaluate(output.where, {**bounds, self.outer: k})]

    def mean(self, x: Array, at: Array | None) -> tuple[Array, Array | None]:
        """Return the values and points of a curve, averaged over seeds."""
        if self.rows is None:
            return x, at
        if at is None:
            return x.mean(axis=0, dtype=np.float64), None
        points, which = np.unique(at, return_inverse=True)
        return np.bincount(which, x.astype(np.float64)) / np.bincount(which), points

    def _single(self, dims: Sequence[str]) -> tuple[str, ...]:
        """Return dimensions without the batch dimension of several seeds."""
        return tuple(d for d in dims if self.rows is None or d != self.rows.dim)

    def is_late(self, output: Op) -> bool:
        """Whether an output is known only at the end, for example because all iterations are one batch."""
        turns, outer = self.progress.turns, self.progress.outer
        if self._single(output.attrs.axes) or turns is None or outer != self.outer:
            return True
        if self._single(output.domain) != output.domain:  # computed for one seed after the other
            return True
        return not self.progress.points(output, turns)

    @cached_property
    def steps(self) -> int | None:
        """Environment steps per iteration, summed over all instances; None if there are none or a bound is dynamic.

        The number is the maximum over loop-carried operations inside an iteration, and over operations
        that use a host resource.
        """
        outer, dims = self.progress.outer, self.pdg.dims
        if outer is None or dims.dynamic:
            return None
        counts: list[int] = []
        for op in self.pdg:
            inner = [d for d in op.domain if d != outer]
            uses = isinstance(op.attrs, UdfAttrs) and op.attrs.resource is not None
            if inner and (uses or any(self._is_carried_forward(op, d) for d in inner)):
                counts.append(prod(dims[d].count(self.plan.bounds) for d in inner))
        return max(counts, default=None)

    def _is_carried_forward(self, op: Op, dim: str) -> bool:
        """Whether a tensor at a point depends on an earlier point along `dim`."""
        if op.kind != "merge":
            return False
        entries = [
            read.index[self.pdg.output(read).domain.index(dim)]
            for read in op.inputs
            if dim in self.pdg.output(read).domain
        ]
        steps = [e - sym(dim) for e in entries if isinstance(e, Lin)]
        return any(step.is_const and step.const < 0 for step in steps)

    @cached_property
    def ends(self) -> Array:
        """Planned number of executed points after each number of iterations."""
        time, turns = self.plan.timeline(), self.progress.turns
        if time.outer is None or turns is None:
            return np.zeros(1, np.int64)
        return time.ends(turns)


def throw(error: Exception) -> NoReturn:
    """Raise an error."""
    raise error


class Telemetry(Watching):
    """Creates the frames of a program's run.

    Args:
        control: Commands to the run.
        run: The run.
        watched: The program.
        names: Names of the returned outputs; all by default.
    """

    def __init__(
        self,
        control: RunControl,
        run: RunProtocol,
        watched: Watched,
        names: Sequence[str] | None,
    ) -> None:
        super().__init__(control)
        self._run, self._watched = run, watched
        curves = watched.curves(names) if watched.progress.outer is not None else {}
        self._curves = {n: _StreamingCurve(op, watched.is_late(op)) for n, op in curves.items()}
        self._asked, self._looked = False, 0
        self._taken: _Taken | None = None
        self._final: Outputs = {}
        self._others = [name for name in watched.outputs(names) if name not in curves]
        self._busy: float | None = None
        self._measured = 0.0
        self._place = self._turn = self._peak = 0

    # --- on a background thread ----------------------------------------------------------------------

    def _ask(self) -> None:
        if not self._asked and self._control.turn != self._looked:
            self._asked, self._looked = True, self._control.turn
            self._control.ask(self._take)
        now = time.perf_counter()
        if self._control.state == "running" and now - self._measured > _MEASURE:
            self._measured = now
            self._control.ask(self._measure)

    def _has_more(self) -> bool:
        return self._taken is not None

    def _frame(self, metrics: ProcessMetrics) -> Frame:
        """Return a frame of the present state, after adding new output values to the curves."""
        state, turn = self._control.state, self._control.turn
        elapsed = time.perf_counter() - self._began
        if (taken := self._taken) is not None:
            self._taken = None  # cleared here only: the run's thread sets it when it is None
        if state in ENDS:
            for name, growing in self._curves.items():
                if ("output", name) in self._final:
                    at = self._run.coordinates.get(name, {}).get(str(self._watched.outer))
                    growing.replace(*self._watched.mean(self._final["output", name], at))
        elif taken is not None:
            for (name, points), values in zip(taken.points, taken.bring(), strict=True):
                self._curves[name].extend(points, values)
        rate, steps = self._rate(elapsed, turn, state), self._watched.steps
        return Frame(
            number=self._number,
            state=state,
            reason=self._control.reason,
            turn=turn,
            turns=self._watched.progress.turns,
            elapsed=elapsed,
            turns_per_second=rate,
            steps_per_second=None if steps is None else rate * steps,
            busy=self._busy,
            curves={name: growing.curve() for name, growing in self._curves.items()},
            outputs=self._outputs() if state in ENDS else {},
            held=self._live_bytes(),
            buffers=self._run.lowered.nbytes if isinstance(self._run, LoweredRun) else None,
            compiling=self._run.compiling,
            compiling_part=self._run.compiling_part,
            process=metrics.process(),
            devices=metrics.devices(),
            error=self.error,
        )

    def _outputs(self) -> dict[str, str]:
        """Return all outputs except curves as text; with several seeds, their mean."""
        found = {}
        for name in self._others:
            if ("output", name) in self._final:
                x = np.asarray(self._final["output", name])
                x = x if self._watched.rows is None else x.mean(axis=0)
                found[name] = output_text(x)
        return found

    def _live_bytes(self) -> MeasuredBytes | None:
        """Return the live bytes of the executed points since the previous frame."""
        if isinstance(self._run, LoweredRun):
            return None
        ledger, first = self._run.ledger, self._place
        # a copy, as the run could not extend the array while a view of it exists
        new = np.asarray(ledger.trace[first:])
        self._place = last = first + len(new)
        self._peak = max(self._peak, int(new.max(initial=0)))
        parts = np.linspace(0, len(new), min(_MOST, len(new)), endpoint=False).astype(np.int64)
        most = np.maximum.reduceat(new, parts) if len(new) else new
        return MeasuredBytes(ledger.live, self._peak, first, last, most)

    def breakpoint(self, text: str) -> Callable[[int, int], str]:
        """Return a function for `RunControl.break_when` from a condition such as `return > 400`.

        Raises:
            OptionError: The text is not a condition, or the program has no such output by iteration.
        """
        found, watched = Breakpoint.from_text(text), self._watched
        outer = watched.progress.outer
        if outer is None:
            raise OptionError(
                "this run has no loop over iterations, so it cannot pause.",
                hint="remove the condition, or compile with executor='interpret': XLA may run the whole program as one call.",
            )
        if found.name in (outer, "turn"):
            turns = watched.progress.turns if found.name == outer else None

            def find_iteration(before: int, now: int) -> str:
                is_next = now != turns and found.is_reached(before, now)  # none follows the last
                return f"{outer} = {now}" if is_next else ""

            return find_iteration
        curves = watched.curves(None)
        known = [name for name, op in curves.items() if not watched.is_late(op)]
        if found.name not in known:
            late = " It is computed after the last iteration." if found.name in curves else ""
            raise OptionError(
                f"{found.name!r} has no value after each iteration.{late}",
                hint=one_of(found.name, [outer, *known]),
            )
        op = curves[found.name]

        def find_value(before: int, now: int) -> str:
            """Examine the values since the last call; copying the output's buffer costs time."""
            if before == now:  # no iteration has run
                return ""
            first, last = (SoFar(watched.progress, turn).points(op) for turn in (before, now))
            first = first if before else 0  # point 0 may be computed before the loop
            points = watched.points(op, range(first, last))
            (values,) = self._run.peek([(op, points)])() if len(points) else ([],)
            for k, value in zip(points, values, strict=True):
                mean = float(np.mean(value))
                if found.holds(mean):
                    return f"{found.name} = {mean:.6g} at {outer} = {k}"
            return ""

        return find_value

    def live_values(self) -> dict[str, LiveValues]:
        """Return the values that the run holds at the end of its current iteration.

        Raises:
            ExecutionError: The run has ended, or its values between two iterations are unknown.
        """
        turn, held = self.call_on_run(lambda run, turn: (turn, run.live_values(turn)))
        return name_values(self._watched.plan, held if turn else {})  # first, nothing has run yet

    def call_on_run(self, function: Callable[[RunProtocol, int], T]) -> T:
        """Call a function of the run and its completed iterations on the run's thread, between two iterations.

        Raises:
            ExecutionError: The run has ended, or the caller is the run's thread, which would wait for itself.
            Exception: The function has raised it.
        """
        if self._control.thread == threading.get_ident():
            raise ExecutionError(
                "an iteration cannot wait for its own end.",
                hint="call this function on another thread, for example in on_frame().",
            )
        found: list[Callable[[], T]] = []

        def take() -> None:
            try:
                result = function(self._run, self._control.turn)
                found.append(lambda: result)
            except Exception as error:  # raised in the caller; the run continues
                raised = error
                found.append(lambda: throw(raised))

        self._control.ask(take)
        while not found and not self._control.ended.wait(_LOOK):
            pass
        if not found:
            raise ExecutionError(
                "the run has ended, so its live values are no longer available.",
                hint="call live_values() while the run is paused; result() returns outputs and parameters.",
            )
        return found[0]()

    # --- on the run's thread ---------------------------------------------------------------------

    def _take(self) -> None:
        """Take references to the new values of outputs."""
        self._asked = False
        if not self._curves:
            return
        if self._taken is not None:
            self._looked = -1  # ask again after these values are drawn
            return
        so_far = SoFar(self._watched.progress, self._control.turn)
        live = {name: grown for name, grown in self._curves.items() if not grown.is_late}
        new = {
            name: grown.choose_points(
                self._watched.points(grown.op, grown.unread_points(so_far.points(grown.op)))
            )
            for name, grown in live.items()
        }
        new = {name: points for name, points in new.items() if len(points)}
        if new:
            bring = self._run.peek([(self._curves[name].op, at) for name, at in new.items()])
            self._taken = _Taken(tuple(new.items()), bring)

    def _measure(self) -> None:
        """Measure the next iteration."""
        watch, turn = Stopwatch(), self._control.turn
        self._run.measure(watch)

        def on_turn() -> None:
            if self._control.turn == turn:
                self._control.ask(on_turn)  # the run is paused
                return
            spent = time.perf_counter() - self._control.passed
            self._busy = min(1.0, watch.seconds / spent)
            self._run.measure(None)

        self._control.ask(on_turn)

    def finish(self, values: Outputs) -> None:
        """Set the final outputs."""
        self._final = values


@dataclass(frozen=True)
class _Taken:
    """New output values, still on the device."""

    points: tuple[tuple[str, Sequence[int]], ...]
    bring: Callable[[], list[list[Any]]]


class _StreamingCurve(StreamingCurve):
    """Curve of one output."""

    def __init__(self, op: Op, is_late: bool) -> None:
        super().__init__(is_late=is_late)
        self.op = op

    def unread_points(self, there: int) -> range:
        """Return the known points not read yet."""
        return range(self.last_point + 1, there)

    def choose_points(self, points: Sequence[int]) -> Sequence[int]:
        """Return all points, or evenly spaced ones if there are too many."""
        if len(points) <= _MOST:
            return points
        spread = np.unique(np.linspace(0, len(points) - 1, _MOST).astype(int))
        return [points[k] for k in spread]
