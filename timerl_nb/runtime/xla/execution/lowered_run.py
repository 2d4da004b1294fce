"""Run of a lowered program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from time import perf_counter
from typing import Any

import jax
import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.runtime_events import Event, Recorder
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates
from timerl_nb.compiler.ir.host.host_functions import Host, resources_of
from timerl_nb.compiler.ir.operations import Op, Tensor
from timerl_nb.compiler.loops.iteration_cuts import Cut
from timerl_nb.compiler.loops.loop_nodes import Execute, Guard, If, Loop, subtree_nodes
from timerl_nb.runtime.call_timing import Stopwatch
from timerl_nb.runtime.interpreter.swap_transfers import Copy
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.memory_ledger import Ledger
from timerl_nb.runtime.output_assembly import Outputs, OwnPart, Returned, no_lengths
from timerl_nb.runtime.run_protocol import changed_already, find_cut, run_ended_error
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint
from timerl_nb.runtime.state.resumable_state import RunState, StoredValues
from timerl_nb.runtime.state.run_progress import SoFar
from timerl_nb.runtime.xla.execution.buffer_values import BufferValues
from timerl_nb.runtime.xla.execution.host_control_flow import (
    At,
    find_length,
    guard_lengths,
    is_true,
    iterate_loop,
)
from timerl_nb.runtime.xla.execution.host_operations import HostOps
from timerl_nb.runtime.xla.execution.host_swapping import HostSwapping
from timerl_nb.runtime.xla.execution.output_reading import OutputReader
from timerl_nb.runtime.xla.lowering.host_regions import (
    Call,
    HostControlFlow,
    HostOperation,
    HostTransfer,
    Part,
)
from timerl_nb.runtime.xla.lowering.loop_carried_buffers import length_buffer
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered

_NAMED = 4  # kernels in the name of a call
_FIRST = 2  # number of iterations with reads of values from before the loop


class LoweredRun:
    """Run of XLA programs; between two calls, it owns the buffers.

    Args:
        lowered: The lowered program.
        seed: Seed of all random streams, 64 bits.
        progress: Called with the number of iterations after every call that completes some.
        recorder: Called before and after every call and every operation on the host.
        waits: Whether the run waits for recorded calls, and for iterations.
        host: Resources and inputs; None for a program without inputs.
    """

    held_by = "XLA's buffers"

    def __init__(
        self,
        lowered: Lowered,
        seed: int,
        progress: Callable[[int], object] | None = None,
        recorder: Recorder | None = None,
        *,
        waits: bool = True,
        host: Host | None = None,
    ) -> None:
        self.lowered = lowered
        self.ledger = Ledger()
        swaps = bool(lowered.plan.swaps.all)
        self._trace = self.ledger.record_both if swaps else self.ledger.trace.append
        self.instructions = 0
        self.finished = self._begun = False
        self._given, self._of_seed = seed, lowered.seed_words(seed)
        self._seed = lowered.words(self._of_seed, 0)
        self._progress, self._recorder, self._is_waiting = progress, recorder, waits
        self._resumed: RunState | None = None
        self._needed = frozenset[str]()  # live buffers at the start of an iteration
        self._state: dict[str, Any] = {}
        self._since: dict[
            int, Call
        ] = {}  # calls since the last iteration, which have changed buffers
        self._arrays = lowered.arrays()
        self._known_lengths = no_lengths(lowered.plan.pdg)
        self._returned = Returned(lowered.plan.pdg, lowered.plan, self._known_lengths)
        self._plain = self._functions = lowered.callables
        plan = lowered.plan
        host = Host(plan.pdg.dims, plan.bounds, seed) if host is None else host
        self._host = HostOps(plan, host, self._state)
        self._moving = HostSwapping(
            lowered.plan, lowered.layout, self._state, self.ledger, recorded=recorder is not None
        )
        self._host_operands: Sequence[Any] = ()  # operands of the next operation on the host
        self._host_results: Sequence[Any] = ()  # results of the last operation on the host
        self.began = perf_counter()
        self._waits: float | None = None  # start of the current wait for XLA to compile
        self._compiled_call: Call | None = None  # the call that it compiles; None for all
        self._report: Callable[[str, tuple[int, ...], Callable[[], Any]], Any] | None = None
        if recorder is not None:
            self._record(recorder)

    def complete(self) -> None:
        """Run the program to its end."""
        for _ in self.turns():
            pass

    def turns(self) -> Iterator[int]:
        """Run the program; yield the loop's counter after every iteration of an outermost loop."""
        if self._begun:
            raise run_ended_error()
        self._begun = True
        self.lowered.check_processes(
            self._given, 0 if self._resumed is None else self._resumed.turn
        )
        self._waits = perf_counter()  # all calls are traced now, unless they were before
        self._state |= self.lowered.start()
        self._waits = None
        if self._resumed is None:
            yield from self._outermost(self.lowered.regions.parts)
        else:
            yield from self._go_on(self._resumed)
        self._moving.wait()
        self._wait()
        self.finished = True

    def _wait(self) -> None:
        """Wait for all launched work; report the wait to an asynchronous recorder."""
        begun = perf_counter()
        jax.block_until_ready(self._state)
        if self._recorder is not None and not self._is_waiting:
            now = perf_counter()
            time, seconds = now - self.began, now - begun
            self._recorder(Event(self.instructions, "wait", "", (), 0, time, seconds))

    def _outermost(self, parts: Sequence[Part]) -> Iterator[int]:
        """Run parts outside of all loops."""
        for part in parts:
            if isinstance(part, HostControlFlow) and isinstance(part.node, Loop):
                yield from self._loop(part, part.node)
            elif isinstance(part, Call) and part.loop is not None:
                yield from self._repeat(part, part.loop)
            else:
                self._run_parts([part], ())

    def _run_parts(self, parts: Sequence[Part], at: tuple[int, ...]) -> None:
        """Run consecutive parts. `at` has the counters of the loops around them."""
        for part in parts:
            if isinstance(part, HostOperation):
                self._host_results = self._run_on_host(part, at)
                self._host_operands = ()  # the next one may have no operands, and no call before it
                self.instructions += 1
            elif isinstance(part, HostControlFlow):
                self._run_control_flow(part, at)
            elif isinstance(part, HostTransfer):
                self._move(part, at)
            else:
                lowered = self.lowered
                given = {
                    k: lowered.to_call_argument(self._host_results[k])
                    for k in lowered.host_outputs[part.number - 1]
                }
                counter = lowered.counter
                seen = at if counter is None or not at else (counter.to_31_bits(at[0]), *at[1:])
                self._host_operands = self._call(part, seen, given)

    def _repeat(self, call: Call, loop: Loop, begin: int | None = None) -> Iterator[int]:
        """Run an outermost loop by calls of one or `fuse` iterations, from the counter `begin`."""
        fuse, begin = self.lowered.fuse, loop.first.const if begin is None else begin
        for first in range(begin, loop.last.const + 1, loop.step * fuse):
            count = min(fuse, (loop.last.const - first) // loop.step + 1)
            self._call(call, first, count)
            self._finish_iterations(count)
            yield first + (count - 1) * loop.step

    def _call(self, call: Call, *args: Any) -> Any:
        """Make a call, and return its operands for the host."""
        changed = {name: self._read_buffer(name) for name in call.changed}
        constant = {name: self._read_buffer(name) for name in call.constant} | self._arrays
        if call.number not in self.lowered.met:
            self._compiled_call, self._waits = call, perf_counter()
        try:
            found = self._functions[call.number - 1](changed, constant, self._seed, *args)
        except BaseException:  # the traceback keeps these dictionaries alive
            changed.clear()
            constant.clear()
            raise
        made, asked = (found, None) if call.loop is not None else found
        self._since[call.number] = call  # first, as an interrupt may come before the next line
        self._state |= made
        self.lowered.met.add(call.number)
        self._waits = None
        self.instructions += 1
        self.ledger.live = self.lowered.nbytes
        self._trace(self.ledger.live)
        return asked

    @property
    def compiling(self) -> float | None:
        """Seconds of the current wait for XLA to compile; None without a wait."""
        since = self._waits
        return None if since is None else perf_counter() - since

    @property
    def compiling_part(self) -> str:
        """Name of the part that XLA compiles; "" if all parts are traced, or without a wait."""
        call = self._compiled_call
        if call is None or self._waits is None:
            return ""
        ran = [n.op_id for n in subtree_nodes(call.node) if isinstance(n, Execute)]
        names = [self.lowered.ast.names[op_id] for op_id in dict.fromkeys(ran)]
        shown = names[:_NAMED] + ["…"] * (len(names) > _NAMED)
        return f"call {call.number} of {len(self.lowered.calls)} ({', '.join(shown)})"

    def _read_buffer(self, name: str) -> Any:
        """Return a buffer, or its initial state if nothing was written to it in this iteration."""
        if name not in self._state:
            self._state[name] = self.lowered.fresh_buffer(name)
        return self._state[name]

    def _finish_iterations(self, count: int) -> None:
        if self._progress is not None and self._is_waiting:
            jax.block_until_ready(self._state)
        self._since.clear()
        if self._progress is not None:
            try:
                self._progress(count)
            except BaseException:  # the run ends
                if not self._is_waiting:
                    self._wait()
                raise

    # --- host work -------------------------------------------------------------------------------

    def _run_control_flow(self, part: HostControlFlow, at: tuple[int, ...]) -> None:
        """Run a loop or condition on the host."""
        node = part.node
        if isinstance(node, Guard):
            if is_true(node, dict(zip(part.counters, at, strict=True)), self._length):
                self._run_parts(part.parts, at)
        elif isinstance(node, If):
            self._run_parts(part.parts if part.condition_function(*at) else part.other, at)
        else:
            for k in iterate_loop(part, node, at, self._length):
                self._run_parts(part.parts, (*at, k))

    def _loop(self, part: HostControlFlow, loop: Loop, begin: int | None = None) -> Iterator[int]:
        """Run an outermost loop on the host, from the counter `begin`."""
        counter = self.lowered.counter
        for k in iterate_loop(part, loop, (), self._length, begin):
            if counter is not None:
                self._seed = self.lowered.words(self._of_seed, k)
            self._run_parts(part.parts, (k,))
            for name in self.lowered.flow.local:
                self._state.pop(name, None)
            self._finish_iterations(1)
            yield k

    def _move(self, part: HostTransfer, at: tuple[int, ...]) -> None:
        """Copy values between buffers and the host."""
        node = part.node
        if node.guard is not None:
            env = {**self.lowered.plan.bounds, **dict(zip(part.counters, at, strict=True))}
            if not is_true(node.guard, env, self._length):
                return
            at = (*at, *guard_lengths(node.guard, env, self._length).values())
        for name in self.lowered.flow.accessed(node):
            self._read_buffer(name)
        self._moving.run(node, part.points(*at))
        self.instructions += 1

    def _length(self, name: str, at: At, env: Mapping[str, int]) -> int:
        """Return a dynamic bound at a point, or its maximum; its ceiling while it is unknown."""
        return find_length(backend.to_numpy(self._read_buffer(length_buffer(name))), at, env)

    # --- saving and resuming -------------------------------------------------------------------------

    def live_values(self, turn: int) -> dict[Tensor, StoredValues]:
        """Return copies of the live values between two iterations, with their points."""
        cut = find_cut(self.lowered.cuts, turn)
        return self._values_in(cut, self.lowered.cuts.live(cut), self._buffer_reader())[0]

    def state(self, turn: int, cut: Cut | None, live: Mapping[Tensor, Array]) -> RunState:
        """Return the state between two iterations, restricted to the points `live` of each tensor."""
        return self._state_of(turn, cut, live, self._buffer_reader())

    def _buffer_reader(self) -> Callable[[str], Array]:
        """Return a function that reads a buffer, each once."""
        return cache(lambda name: backend.to_numpy(self._read_buffer(name)))

    def _state_of(
        self,
        turn: int,
        cut: Cut | None,
        live: Mapping[Tensor, Array],
        buffer: Callable[[str], Array],
    ) -> RunState:
        """Return the state in the given buffers."""
        found, lengths = self._values_in(cut, live, buffer)
        saved = self.host.save(resources_of(self.lowered.plan.pdg))
        return RunState(self._given, turn, cut, found, lengths, saved)

    def _values_in(
        self, cut: Cut | None, live: Mapping[Tensor, Array], buffer: Callable[[str], Array]
    ) -> tuple[dict[Tensor, StoredValues], Mapping[str, Array]]:
        """Return the values in the given buffers, and each dynamic bound at every point."""
        lowered = self.lowered
        placed, copied = BufferValues(lowered, cut), self._moving.host_value
        found: dict[Tensor, StoredValues] = {}
        lengths = {name: buffer(length_buffer(name)) for name in self._known_lengths}
        for tensor, expected in live.items():
            points = lowered.cuts.existing_points(tensor, expected, lengths)
            away = lowered.cuts.swapped_out(cut, tensor, points)
            _, values = found[tensor] = placed.read_values(tensor, points, buffer)
            for k in np.flatnonzero(away):
                copy = copied(tensor, tuple(points[k].tolist()))
                if copy is not None:  # under a dynamic bound, the point may not have run
                    values[k] = copy
        return found, lengths

    def snapshot_stores(self, turn: int) -> Callable[[], RunState]:
        """Copy the live buffers at the start of the next iteration."""
        cuts = self.lowered.cuts
        if turn <= _FIRST or not self._needed:  # later iterations all start with the same buffers
            needed = set[str]()

            def buffer(name: str) -> Array:
                needed.add(name)
                return np.array(self._read_buffer(name))

            cut = cuts.cut_after(turn)
            self._state_of(turn, cut, cuts.live(cut), buffer)
            self._needed = frozenset(needed)
        live = {n: self._state[n] for n in self._needed}
        if backend.is_accelerated():
            held = backend.all_copied(live)
        else:  # a copy by NumPy costs less than a call of XLA
            held = {n: np.array(x) for n, x in live.items()}

        def state() -> RunState:
            read = cache(lambda name: backend.to_numpy(held[name]))
            cut = cuts.cut_after(turn)
            return self._state_of(turn, cut, cuts.live(cut), read)

        return state

    def resume(self, state: RunState) -> None:
        """Start from a saved state instead of the beginning."""
        self._given, self._of_seed = state.seed, self.lowered.seed_words(state.seed)
        self._seed = self.lowered.words(self._of_seed, 0)
        self._resumed = state
        self.host.load(resources_of(self.lowered.plan.pdg), state.resources)

    def _go_on(self, state: RunState) -> Iterator[int]:
        """Run the parts after a cut."""
        lowered, held = self.lowered, dict[Tensor, StoredValues]()
        for tensor, (points, values) in state.values.items():
            away = lowered.cuts.swapped_out(state.cut, tensor, points)
            held[tensor] = points[~away], values[~away]
            if away.any():
                self._moving.put_away(tensor, points[away], values[away])
        for name, array in BufferValues(lowered, state.cut).write_values(held).items():
            if name not in lowered.flow.local:
                self._state[name] = lowered.place_on_device(name, array)
        for bound, lengths in state.lengths.items():
            name = length_buffer(bound)
            self._state[name] = lowered.place_on_device(name, lengths.astype(np.int32))
        if state.cut is None:
            return
        loop, parts = lowered.cuts.loop(state.cut), lowered.regions.parts
        first = state.cut.turn + loop.step
        for k, part in enumerate(parts):
            if isinstance(part, Call) and part.loop is loop:
                yield from self._repeat(part, loop, first)
            elif isinstance(part, HostControlFlow) and part.node is loop:
                yield from self._loop(part, loop, first)
            else:
                continue
            yield from self._outermost(parts[k + 1 :])

    @property
    def host(self) -> Host:
        """Resources of the run."""
        return self._host.host

    # --- looking -----------------------------------------------------------------------------

    def outputs(self, names: Sequence[str] | None = None, *, gather: bool = True) -> Outputs:
        """Return the values of the program's outputs by (role, name), stacked over their domains.

        Args:
            names: Names of the outputs to return; all by default.
            gather: False to return only this process's part of outputs that are divided among processes. They have the
                role "local".
        """
        if not self.finished:
            raise ExecutionError("the run has not ended.", hint="call complete() first.")
        self._find_lengths()
        whole, own = self._reading(self._state), None if gather else self.own_part
        if own is None:
            return self._returned.outputs(whole.output, names)
        part = self._reading(self._state, own=own)

        def output(op: Op) -> Callable[..., Array]:
            return (whole if own.axis(op) is None else part).output(op)

        return self._returned.outputs(output, names, own=own)

    @property
    def own_part(self) -> OwnPart | None:
        """Part of this process; None for a program of one process."""
        return self.lowered.own_part

    def so_far(
        self,
        reached: SoFar,
        names: Sequence[str] | None = None,
        lost: dict[str, str] | None = None,
    ) -> Outputs:
        """Return the known outputs between two iterations, in the form of `outputs`.

        Args:
            reached: Known points.
            names: Names of the outputs to return; all by default.
            lost: After a failure inside an iteration: dictionary to fill with lost outputs and reasons.
        """
        self._find_lengths()
        whole = self._reading(self._state)
        since = {name for call in self._since.values() for name in call.made}

        def output(op: Op) -> Callable[..., Array]:
            if op.attrs.role != "output" and since & self.lowered.flow.reads(op):
                raise changed_already()
            bounds = reached.last_bound(op)
            return (self._reading(self._state, bounds) if bounds else whole).output(op)

        return self._returned.outputs(output, names, reached.bounds, lost)

    def peek(self, wanted: Sequence[tuple[Op, Sequence[int]]]) -> Callable[[], list[list[Any]]]:
        """Copy the buffers of outputs at points of their only dimension, between two iterations.

        The copies are needed because the next call overwrites the buffers. The returned function brings the values
        to the host, on any thread.
        """
        names = {name for op, _ in wanted for name in self.lowered.flow.reads(op)}
        held = {n: self._copy_of(n) for n in sorted(names) if n in self._state}
        reading = self._reading(held)
        return lambda: [[reading.output(op)(k) for k in points] for op, points in wanted]

    def _copy_of(self, name: str) -> Any:
        """Return a copy of a buffer, made by this process alone.

        Raises:
            ExecutionError: Parts of the buffer are in other processes.
        """
        array = self._state[name]
        if array.is_fully_addressable:
            return backend.copied(array)
        if array.is_fully_replicated:
            return backend.copied(array.addressable_data(0))
        raise ExecutionError(
            f"{name} is divided among processes, and cannot be read during the run.",
            hint="log outputs that are reduced over the divided dimension, such as means over environments.",
        )

    def _reading(
        self,
        state: Mapping[str, Any],
        bounds: Mapping[str, int] | None = None,
        own: OwnPart | None = None,
    ) -> OutputReader:
        moved, length = self._moving.host_value, self._returned.length
        return OutputReader(self.lowered, state, moved, length, bounds, own)

    def measure(self, watch: Stopwatch | None) -> None:
        """Measure all calls from now on, running them synchronously; None ends the measurement."""
        plain = self._plain
        self._functions = (
            plain if watch is None else tuple(watch.wrap(one, backend.wait) for one in plain)
        )

    def _record(self, recorder: Recorder) -> None:
        """Report calls and operations on the host to a recorder."""

        def report_call(
            name: str, at: tuple[int, ...], run: Callable[[], Any], *, wait: bool = True
        ) -> Any:
            begun, step = perf_counter(), self.instructions
            recorder(Event(step, "execute", name, at, 0, begun - self.began))
            made = jax.block_until_ready(run()) if wait else run()
            now, how = perf_counter(), "done" if wait else "launch"
            recorder(Event(step, how, name, at, 0, now - self.began, now - begun))
            return made

        def wrap_call(call: Call, function: Callable[..., Any]) -> Callable[..., Any]:
            def run(changed: Any, constant: Any, seed: Any, at: Any, *more: Any) -> Any:
                point = at if isinstance(at, tuple) else (at,)
                args = (changed, constant, seed, at, *more)
                name = f"call {call.number}"
                return report_call(name, point, lambda: function(*args), wait=self._is_waiting)

            return run

        pairs = zip(self.lowered.calls, self._functions, strict=True)
        self._plain = self._functions = tuple(wrap_call(*pair) for pair in pairs)
        self._report = report_call

    def _run_on_host(self, part: HostOperation, at: tuple[int, ...]) -> Sequence[Any]:
        """Run an operation on the host, report it, and return its results."""

        def run() -> Sequence[Any]:
            return self._host.run(part, at, self._host_operands, self._length)

        if self._report is None:
            return run()
        return self._report(self.lowered.ast.names[part.node.op_id], part.point(*at), run)

    @property
    def written_checkpoints(self) -> Sequence[WrittenCheckpoint]:
        """Checkpoints written so far."""
        return self._host.checkpoints

    @property
    def copies(self) -> Sequence[Copy]:
        """Copies between device and host so far, if the run is recorded."""
        return self._moving.copies

    @property
    def coordinates(self) -> dict[str, Coordinates]:
        """Positions of the values of conditional outputs."""
        return self._returned.coordinates

    def lengths(self) -> dict[str, Array]:
        """Return the values of dynamic bounds by name, each stacked over the dimensions it varies over."""
        return self._returned.lengths()

    def _find_lengths(self) -> None:
        for bound, known in self._known_lengths.items():
            if length_buffer(bound) in self._state:
                lengths = backend.to_numpy(self._state[length_buffer(bound)])
                known |= {p: int(lengths[p]) for p in product(*map(range, lengths.shape))}

    def release(self, error: BaseException | None = None) -> int:
        """Free all buffers, and return their bytes."""
        if self._recorder is not None and not self._is_waiting:
            now = perf_counter() - self.began
            self._recorder(Event(self.instructions, "end", "", (), 0, now))
        self._moving.close()
        self._state.clear()
        self._host_operands = self._host_results = ()
        self._waits = None
        kept, self.ledger.live = self.ledger.live, 0
        self._host.close(error)
        return kept
