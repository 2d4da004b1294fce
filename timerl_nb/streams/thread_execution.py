"""Window on threads: one worker per stream, without polling. Source: ACS §IV-B."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from time import perf_counter
from types import FrameType
from typing import Any, Final, Literal

from timerl_nb.base.errors import ExecutionError, user_origin
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.streams.access_checker import CheckError, run_checked
from timerl_nb.streams.dependence_analysis import finder
from timerl_nb.streams.kernel_declaration import (
    Kernel,
    Taker,
    failure,
    is_taken,
    refuse_kernels,
    run_inside,
)
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.run_report import Launch, Launches, Report
from timerl_nb.streams.scheduling_window import SchedulingWindow

_MOST_QUEUED: Final = 1_024  # kernels in front of the window; a full queue blocks the submitter until half of them have entered

_RECORDED: Final = 10  # number of values per kernel in the report

Lane = Callable[[Callable[[], object]], object]


class _Exit:
    """`__exit__` of a window, as a new object for every block.

    A `with` statement holds this object until control has left the block, also after an error. An interrupt
    can occur before the first line of `__exit__`; then the window ends when the object is released.
    """

    def __get__(self, window: Threads | None, owner: type) -> Callable[..., None]:
        if window is None:
            return Threads.exit
        leave = functools.partial(Threads.exit, window)
        window.watch(leave)
        return leave


class Threads:
    """Window that is open inside a `with` block; see `window`.

    A worker that completes a kernel refills the window, takes the next ready kernel, and wakes another worker
    only if another kernel is ready and a worker is idle. Workers make all changes under `_lock`. The
    submitter takes no lock, so an interrupt at any of its lines leaves the window consistent: it appends to
    the queue, then checks for idle workers. A worker that becomes idle checks the queue afterwards, so no
    kernel is missed.
    """

    def __init__(
        self,
        window: SchedulingWindow,
        streams: int,
        how: str = "window",
        *,
        alone: Callable[[Kernel], object] | None = None,
        record: int = 10_000,
        lanes: Sequence[Lane] = (),
        ahead: Sequence[tuple[int, ...]] = (),
    ) -> None:
        """Create a closed window.

        Args:
            window: the slots and dependences.
            streams: the number of workers.
            how: the name of the strategy in the report.
            alone: runs each kernel on the submitter's thread at its submission; then there are no workers.
            record: the maximal number of kernels in the report.
            lanes: by stream, a function that runs a kernel's function there.
            ahead: the upstream kernels of each kernel that is already in the window.
        """
        self.streams = integer("streams", streams, least=1)
        self._window = window
        self._alone, self._how = alone, how
        self._queue: deque[Kernel] = deque()  # kernels in front of the window
        self._tokens: SimpleQueue[None] = SimpleQueue()  # each token wakes an idle worker
        self._news: SimpleQueue[None] = SimpleQueue()  # wakes the submitter
        self._lock = Lock()
        self._idle = self._busy = 0  # numbers of workers
        self._entered = window.count  # number of entered kernels
        self._completed = 0
        self._wants: Literal["", "room", "end"] = ""  # the condition that the submitter waits for
        self._closing = self._stopped = False  # the threads end; no further kernel starts
        self._failed: ExecutionError | None = None
        # by slot, the first values of its kernel in `_ran`: number, name, line, operations, slot, upstream
        # kernels, time of entry
        self._kernel_values: list[tuple[Any, ...]] = [
            (k, *one.description, k, waits, perf_counter())
            for k, (one, waits) in enumerate(zip(window.kernels, ahead, strict=False))
            if one is not None
        ] or [()] * window.size
        self._record = integer("record", record, least=0, most=sys.maxsize // _RECORDED)
        # for each kernel the values of `_kernel_values`, its stream, start and end, one after the other: numbers and
        # texts cost the garbage collector nothing
        self._ran: deque[Any] = deque(maxlen=self._record * _RECORDED)
        self._lanes = lanes  # by stream, a function that runs a kernel's function there
        self._workers: list[Thread] = []
        self._state: Literal["new", "open", "closed"] = "new"
        self._taker: Taker | None = None
        self._exit: weakref.ref[Any] | None = None
        self._origin = user_origin()
        self._begun = self._last = 0.0

    # --- the submitter's thread ------------------------------------------------------------------

    def __enter__(self) -> Threads:
        if self._state != "new":
            raise ExecutionError(
                "the window has been opened before.",
                hint="create a window by trl.streams.window(...) for every block.",
            )
        if is_taken():
            raise ExecutionError(
                "a window or recording starts inside another one, or inside a kernel.",
                hint="end the outer block first: one window finds all independent kernels.",
            )
        try:
            self._open(generator_around(sys._getframe(1)))
            return self
        except BaseException:
            self._end()
            raise

    __exit__ = _Exit()

    def _open(self, generator: FrameType | None) -> None:
        self._state, self._thread, self._process = "open", get_ident(), os.getpid()
        self._begun = self._last = perf_counter()
        for lane in range(0 if self._alone else self.streams):
            name = f"timerl-stream-{lane}"
            self._workers.append(
                Thread(target=self._run_lane, args=(lane,), name=name, daemon=True)
            )
            self._workers[-1].start()
        self._taker = Taker(self._take, generator)
        self._taker.open()

    def watch(self, leave: Any) -> None:
        """End the window when `leave` is released, unless it has ended before."""
        self._exit = weakref.ref(leave, lambda _: self._stop())

    def exit(self, kind: object, error: BaseException | None, at: object) -> None:
        """End the window at the end of its block."""
        if self._state == "open":
            if self._process == os.getpid():
                self._close(drop=error is not None)
            self._state = "closed"
        if error is None:
            self._say_failure()
        self._exit = None

    def close(self) -> None:
        """Wait for all kernels and end the threads; later calls in the block run directly."""
        self._check_usable()
        self._close(drop=False)
        self._say_failure()

    def submit(self, *kernels: Kernel) -> None:
        """Submit kernels; each runs after its upstream kernels. Returns immediately unless the queue is full.

        Args:
            kernels: values of `KernelFunction.kernel(...)`.

        Raises:
            ExecutionError: another kernel has failed; or the window is closed, or belongs to another thread
                or process.
        """
        taker = self._taker
        if taker is None or taker.take is None or get_ident() != self._thread:
            self._check_usable()
        for first in range(0, len(kernels), _MOST_QUEUED // 2):
            some = kernels[first : first + _MOST_QUEUED // 2]
            self._say_failure()
            for kernel in some:
                runnable(kernel)
            if self._alone is not None:
                for kernel in some:
                    self._run_alone(kernel, self._alone)
                continue
            self._queue.extend(some)
            if self._idle and self._window.free and self._tokens.empty():
                self._tokens.put(None)
            if len(self._queue) >= _MOST_QUEUED:
                self._wait("room")

    def _take(self, kernel: Kernel) -> None:
        """Submit the kernel of a call."""
        if self._failed is not None or self._alone is not None or get_ident() != self._thread:
            self.submit(kernel)
            return
        queue = self._queue
        queue.append(kernel)
        if self._idle and self._window.free and self._tokens.empty():
            self._tokens.put(None)
        if len(queue) >= _MOST_QUEUED:
            self._wait("room")

    def wait(self) -> None:
        """Wait for all submitted kernels, for example before reading their results.

        Raises:
            ExecutionError: a kernel has failed.
        """
        self._check_usable()
        self._wait("end")
        self._say_failure()

    @property
    def report(self) -> Report:
        """The report of the kernels that have run so far."""
        ran, count = list(self._ran.copy()), self._completed
        last = ran[-1] if ran else self._last

        def make_launches() -> list[Launch]:
            found: list[Launch] = []
            for first in range(0, len(ran), _RECORDED):
                kernel, name, line, op_ids, slot, waits, *times = ran[first : first + _RECORDED]
                entered, lane, started, ended = times
                place = lane, slot, waits
                came, begun, over = ((t - self._begun) * 1e6 for t in (entered, started, ended))
                found.append(Launch(kernel, name, line, op_ids, *place, came, begun, over))
            return found

        us = (last - self._begun) * 1e6
        launches = Launches(len(ran) // _RECORDED, make_launches)
        return Report(self._how, self._window.size, self.streams, us, launches, count)

    def _check_usable(self) -> None:
        if self._state == "open" and self._process != os.getpid():
            raise ExecutionError(
                "the window belongs to another process.",
                hint="open a window in the forked process: threads do not survive a fork.",
            )
        if self._state != "open" or self._taker is None or self._taker.take is None:
            is_new = self._state == "new"
            raise ExecutionError(
                "the window has not been opened." if is_new else "the window is closed.",
                hint="launch kernels inside the block `with trl.streams.window(...) as w:`.",
            )
        if get_ident() != self._thread:
            raise ExecutionError(
                "the window belongs to another thread.",
                hint="launch kernels on the thread that opened the window: their order there defines the dependences.",
            )

    def _say_failure(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _wait(self, wants: Literal["room", "end"]) -> None:
        if self._alone is not None:
            return
        while not self._is_there(wants):
            self._wants = wants
            if self._idle and self._tokens.empty():
                self._tokens.put(None)
            self._news.get()

    def _is_there(self, wants: str) -> bool:
        if wants == "room":
            return self._stopped or len(self._queue) <= _MOST_QUEUED // 2
        if self._stopped:
            return not self._busy
        # a worker counts a kernel before it removes it from the queue
        return not self._queue and self._entered == self._completed

    def _close(self, drop: bool) -> None:
        """End the threads after all kernels, or with `drop` after the running ones."""
        try:
            if self._taker is not None:
                self._taker.close()
            if not drop:
                self._wait("end")
        finally:
            self._end()

    def _end(self) -> None:
        """End the threads after the running kernels."""
        self._stop()
        try:
            self._join()
        except BaseException:
            self._join()
            raise

    def _stop(self) -> None:
        """Start no further kernel, and let the threads end; repeated calls have no effect."""
        self._state = "closed"
        if self._taker is not None:
            self._taker.close()
        self._closing = self._stopped = True
        for _ in self._workers:
            self._tokens.put(None)

    def _join(self) -> None:
        for worker in self._workers:
            if worker.ident is not None:  # the thread has started
                worker.join()
        self._queue.clear()

    def _run_alone(self, kernel: Kernel, run: Callable[[Kernel], object]) -> None:
        begun = perf_counter()
        try:
            run_inside(run, kernel)
        except Exception as error:
            self._failed = self._failed or self._failure(kernel, error)
            raise self._failed from error
        finally:
            self._last = perf_counter()
            about = self._completed, *kernel.description
            self._ran.extend((*about, 0, (), begun, 0, begun, self._last))
            self._completed += 1

    # --- the workers' threads --------------------------------------------------------------------

    def _run_lane(self, lane: int) -> None:
        """Run kernels on this thread until the window closes.

        Each turn completes a kernel, moves queued kernels into free slots, and takes the kernel that has been ready for longest.
        """
        window, queue, ran = self._window, self._queue, self._ran
        # two calls take half of the time of a `with` statement; interrupts do not reach this thread
        acquire, release = self._lock.acquire, self._lock.release
        ready, free, held, kernels = window.ready, window.free, self._kernel_values, window.kernels
        on = self._lanes[lane] if self._lanes else None
        insert, complete, upstream_slots = window.insert, window.complete, window.upstream_slots
        tokens, recorded = self._tokens, self._record > 0
        slot, kernel, begun, ended = -1, None, 0.0, 0.0
        was_idle = is_busy = False
        refuse_kernels()
        while True:
            acquire()
            try:
                if was_idle:
                    self._idle -= 1
                    was_idle = False
                elif kernel is not None:
                    if recorded:
                        ran.extend(held[slot] + (lane, begun, ended))
                    complete(slot)
                    self._completed += 1
                    kernel = None
                while queue and free:  # move kernels into free slots, in order
                    number = self._entered
                    # first the count, then the queue: `_is_there` reads both without the lock
                    self._entered = number + 1
                    one = queue.popleft()
                    new = insert(one)
                    if recorded:
                        upstream = upstream_slots[new]
                        waits = tuple([held[s][0] for s in upstream]) if upstream else ()
                        now = perf_counter()
                        held[new] = number, one.name, one.line, one.op_ids, new, waits, now
                    del one  # its buffers live until it has run
                wakes = ends = False
                if ready and not self._stopped:
                    slot = ready.popleft()
                    kernel = kernels[slot]
                    if not is_busy:
                        self._busy += 1
                        is_busy = True
                    wakes = self._idle > 0 and bool(ready) and tokens.empty()
                else:
                    if is_busy:
                        self._busy -= 1
                        is_busy = False
                    if slot >= 0:
                        self._last, slot = perf_counter(), -1
                    ends = self._closing
                    if not ends:
                        self._idle += 1
                        was_idle = True
                        if queue and free:
                            continue
                if self._wants and self._is_there(self._wants):
                    self._wants = ""
                    self._news.put(None)
            finally:
                release()
            if wakes:
                tokens.put(None)
            if ends:
                return
            if kernel is None or kernel.run is None:  # kernels in a window always have a function
                tokens.get()
                continue
            if recorded:
                begun = perf_counter()
            try:
                if on is None:
                    kernel.run()
                else:
                    on(kernel.run)
            except BaseException as error:
                with self._lock:
                    self._failed = self._failed or self._failure(kernel, error)
                    self._stopped = True
            if recorded:
                ended = perf_counter()

    def _failure(self, kernel: Kernel, error: BaseException) -> ExecutionError:
        if isinstance(error, CheckError):
            return error
        return failure(kernel, error, self._origin)


def generator_around(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the generator that contains a block: a generator can be suspended inside it.

    For `contextlib.contextmanager` the block is the one that uses the context manager.
    """
    suspendable = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
    while frame is not None:
        behind = frame.f_back
        if frame.f_code.co_filename != contextlib.__file__:
            if not frame.f_code.co_flags & suspendable:
                return None
            if behind is None or behind.f_code.co_filename != contextlib.__file__:
                return frame
        frame = behind
    return None


def runnable(kernel: Kernel) -> Callable[[], object]:
    """Return the function that runs a kernel.

    Raises:
        ExecutionError: the kernel has no function.
    """
    if kernel.run is None:
        raise ExecutionError(
            f"the kernel {kernel} cannot run: it has no code.",
            hint='simulate the stream by stream.simulate("acs-sw").',
        )
    return kernel.run


@explain_call_errors
def window(
    size: int = 32,
    streams: int = 2,
    *,
    deps: str = "auto",
    check: bool = False,
    record: int = 10_000,
) -> Threads:
    """Open a window: a block in which calls of kernels (`trl.kernel`) return immediately, and run concurrently
    in the order of their dependences.

    The end of the block waits for all kernels. `w.wait()` waits inside the block, `w.submit(kernel)` launches
    a kernel given as a value, `w.report` has the times.

    Args:
        size: the number of slots: kernels that are compared for dependences; 1 runs them in order.
        streams: the number of worker threads, hence of concurrent kernels.
        deps: the dependence analysis: "auto", "buffers", "ranges", "pairwise"; or "printed", the paper's
            Algorithm 1 as printed, which gives wrong results.
        check: run the kernels one by one in order, and reject accesses outside their declarations: undeclared
            arguments and variables, and changes outside `writes`. `docs/explanation/concurrent-kernels.md` lists the limits. For kernels
            in main memory.
        record: the maximal number of kernels in the report; the last ones count.

    Returns:
        The window, a context manager.

    Raises:
        ShapeError: `size` or `streams` is below 1.
        OptionError: `deps` is unknown.
        ExecutionError: a kernel has failed; raised by the block.

    Example:
        >>> @trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out)
        ... def double(a, out):
        ...     np.multiply(a, 2.0, out=out)
        >>> a, b, c = np.ones(4), np.zeros(4), np.zeros(4)
        >>> with trl.streams.window(size=32, streams=2) as w:
        ...     double(a, b)
        ...     double(b, c)
        >>> c.tolist()
        [4.0, 4.0, 4.0, 4.0]
    """
    alone, how = (run_checked, "window, checked") if check else (None, "window")
    return Threads(SchedulingWindow(size, finder(deps)), streams, how, alone=alone, record=record)


def one_by_one(how: str, run: Callable[[Kernel], object], record: int) -> Threads:
    """Return a window of one slot, which calls `run` with each kernel on the submitting thread."""
    return Threads(SchedulingWindow(1, finder("buffers")), 1, how, alone=run, record=record)


def run_window(stream: Stream, **options: Any) -> Report:
    """Run a stream in a window on threads, with the options of `window`."""
    return run_in(window(**options), stream)


def run_in(window: Threads, stream: Stream) -> Report:
    with window:
        window.submit(*stream.kernels)
    return window.report
