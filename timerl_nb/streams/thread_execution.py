"""A window on real threads (§IV-B): as many workers as streams, of which none polls."""

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
from timerl_nb.streams.dependence_analysis import finder, slots
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

_MOST_QUEUED: Final = (
    1_024  # kernels before the window; who submits more waits until half of them have entered
)

Lane = Callable[[Callable[[], object]], object]


class _Exit:
    """`__exit__` of a window, as a new object for every block.

    A `with` statement holds that object until control has left the block, also by an error. An interrupt may come before the
    first line of `__exit__`; the window then ends as the object is released.
    """

    def __get__(self, window: Threads | None, owner: type) -> Callable[..., None]:
        if window is None:
            return Threads.exit
        leave = functools.partial(Threads.exit, window)
        window.watch(leave)
        return leave


class Threads:
    """A window that is open within a `with` block; see `window`.

    A worker that completes a kernel refills the window, takes the next one that is ready, and wakes another worker only
    if one more is ready and a worker is idle. Workers make all changes, under `_lock`. The submitter takes no lock,
    so that an interrupt at any of its lines leaves the window whole: it appends to the queue, and then looks
    whether a worker is idle, as a worker that becomes idle then looks into the queue.
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
        """
        Args:
            alone: runs a kernel as it is submitted, on the submitter's thread; there are no workers then.
            ahead: upstream kernels of each kernel that is in the window already.
        """
        self.streams = integer("streams", streams, least=1)
        self._window = window
        self._alone, self._how = alone, how
        self._queue: deque[Kernel] = deque()  # before the window
        self._tokens: SimpleQueue[None] = SimpleQueue()  # each wakes an idle worker
        self._news: SimpleQueue[None] = SimpleQueue()  # wakes the submitter
        self._lock = Lock()
        self._idle = self._busy = 0  # workers
        self._entered = window.count  # kernels so far
        self._completed = 0
        self._wants: Literal["", "room", "end"] = ""  # condition that the submitter waits for
        self._closing = self._stopped = False  # threads end; no kernel starts any more
        self._failed: ExecutionError | None = None
        # by slot: the kernel's number, its upstream kernels, the time at which it entered
        self._held = [(k, waits, perf_counter()) for k, waits in enumerate(ahead)]
        self._held = self._held or [(0, (), 0.0)] * window.size
        self._record = integer("record", record, least=0, most=sys.maxsize)
        self._ran: deque[tuple[Any, ...]] = deque(maxlen=self._record)
        self._lanes = lanes  # by stream, what runs a kernel's function there
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
                "a window is opened once.", hint="call trl.streams.window(...) for every block."
            )
        if is_taken():
            raise ExecutionError(
                "a window is opened, or a recording made, within another or within a kernel.",
                hint="end the outer block first; one window finds what may run at once among all kernels.",
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
        self._taker = Taker(self.submit, generator)
        self._taker.open()

    def watch(self, leave: Any) -> None:
        """End the window when `leave` is released, if it has not ended before."""
        self._exit = weakref.ref(leave, lambda _: self._stop())

    def exit(self, kind: object, error: BaseException | None, at: object) -> None:
        """Leave the block."""
        if self._state == "open":
            if self._process == os.getpid():
                self._close(drop=error is not None)
            self._state = "closed"
        if error is None:
            self._say_failure()
        self._exit = None

    def close(self) -> None:
        """Wait for all kernels, and end the threads; what the block calls from then on just runs."""
        self._check_usable()
        self._close(drop=False)
        self._say_failure()

    def submit(self, *kernels: Kernel) -> None:
        """Launch kernels, each after its upstream kernels. Return at once, unless very many are waiting.

        Raises:
            ExecutionError: another kernel has failed; or the window is not open, or belongs to another thread or process.
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

    def wait(self) -> None:
        """Wait for all kernels that have been submitted, as before a look at what they wrote.

        Raises:
            ExecutionError: one of them has failed.
        """
        self._check_usable()
        self._wait("end")
        self._say_failure()

    @property
    def report(self) -> Report:
        """What has run so far."""
        ran, count = list(self._ran.copy()), self._completed
        last = ran[-1][-1] if ran else self._last

        def make_launches() -> list[Launch]:
            found: list[Launch] = []
            for slot, (kernel, waits, entered), lane, said, *times in ran:
                came, started, over = ((t - self._begun) * 1e6 for t in (entered, *times))
                name, line, op_ids = said
                place = lane, slot, waits
                found.append(Launch(kernel, name, line, op_ids, *place, came, started, over))
            return found

        us = (last - self._begun) * 1e6
        launches = Launches(len(ran), make_launches)
        return Report(self._how, self._window.size, self.streams, us, launches, count)

    def _check_usable(self) -> None:
        if self._state == "open" and self._process != os.getpid():
            raise ExecutionError(
                "the window is another process's.",
                hint="open a window in the forked process: it has none of the threads.",
            )
        if self._state != "open" or self._taker is None or self._taker.take is None:
            is_new = self._state == "new"
            raise ExecutionError(
                "the window is not open yet." if is_new else "the window is closed already.",
                hint="with trl.streams.window(...) as w: its kernels are launched within the block.",
            )
        if get_ident() != self._thread:
            raise ExecutionError(
                "the window is another thread's.",
                hint="launch kernels from the thread that opened it: their order there is what is kept.",
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
        # a worker counts a kernel before it takes it out of the queue
        return not self._queue and self._entered == self._completed

    def _close(self, drop: bool) -> None:
        """End the threads after all kernels; with `drop`, after the running ones."""
        try:
            if self._taker is not None:
                self._taker.close()
            if not drop:
                self._wait("end")
        finally:
            self._end()

    def _end(self) -> None:
        """End the threads, after the running kernels."""
        self._stop()
        try:
            self._join()
        except BaseException:
            self._join()
            raise

    def _stop(self) -> None:
        """Start no kernel any more, and let the threads end; may be called again."""
        self._state = "closed"
        if self._taker is not None:
            self._taker.close()
        self._closing = self._stopped = True
        for _ in self._workers:
            self._tokens.put(None)

    def _join(self) -> None:
        for worker in self._workers:
            if worker.ident is not None:  # it has started
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
            self._ran.append(
                (0, (self._completed, (), begun), 0, kernel.description, begun, self._last)
            )
            self._completed += 1

    # --- the workers' threads --------------------------------------------------------------------

    def _run_lane(self, lane: int) -> None:
        lock, window, queue, ran = self._lock, self._window, self._queue, self._ran
        ready, free, held, kernels = window.ready, window.free, self._held, window.kernels
        complete, on = window.complete, self._lanes[lane] if self._lanes else None
        tokens, recorded = self._tokens, self._record > 0
        slot, kernel, begun, ended = -1, None, 0.0, 0.0
        was_idle = False
        refuse_kernels()
        while True:
            with lock:
                if was_idle:
                    self._idle -= 1
                    was_idle = False
                elif kernel is not None:
                    if recorded:
                        ran.append((slot, held[slot], lane, kernel.description, begun, ended))
                    complete(slot)
                    self._completed += 1
                    self._busy -= 1
                    kernel = None
                if queue and free:
                    self._refill()
                wakes = ends = False
                if ready and not self._stopped:
                    slot = ready.popleft()
                    kernel = kernels[slot]
                    self._busy += 1
                    wakes = bool(ready and self._idle) and tokens.empty()
                else:
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
            if wakes:
                tokens.put(None)
            if ends:
                return
            if kernel is None or kernel.run is None:  # all in a window can run
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
                with lock:
                    self._failed = self._failed or self._failure(kernel, error)
                    self._stopped = True
            if recorded:
                ended = perf_counter()

    def _refill(self) -> None:
        """Let kernels enter the window, in order, while there is room."""
        queue, free, held, insert = self._queue, self._window.free, self._held, self._window.insert
        while queue and free:
            self._entered += 1
            slot = insert(queue.popleft())
            if self._record:
                mask = self._window.upstream[slot]
                upstream = tuple([held[s][0] for s in slots(mask)]) if mask else ()
                held[slot] = self._entered - 1, upstream, perf_counter()

    def _failure(self, kernel: Kernel, error: BaseException) -> ExecutionError:
        if isinstance(error, CheckError):
            return error
        return failure(kernel, error, self._origin)


def generator_around(frame: FrameType | None) -> FrameType | None:
    """Return the frame of a block in a generator, as a generator can be suspended inside it.

    A generator of `contextlib.contextmanager` stands for the block in which it is used.
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
    """What runs a kernel.

    Raises:
        ExecutionError: nothing does.
    """
    if kernel.run is None:
        raise ExecutionError(
            f"the kernel {kernel} cannot run: it is known only by what it reads and writes.",
            hint='simulate it: stream.simulate("acs-sw").',
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
    """A block within which calls of kernels (`trl.kernel`) return at once, and run as soon as those have that they must wait for.

    ```python
    with trl.streams.window(size=32, streams=2) as w:
        for x in batch:
            route(x)
    print(w.report)
    ```

    Its end waits for all; `w.wait()` does so within it, `w.submit(kernel)` launches a kernel that is a value.

    Args:
        size: kernels that are looked at at once; 1 runs them in order.
        streams: kernels that run at once, each on a thread of its own.
        deps: who finds out which wait for which: "auto", "buffers", "ranges", "pairwise"; or "printed", the
            paper's Algorithm 1 to the letter, which gives wrong results.
        check: run kernels one by one and in order, and refuse one that accesses memory that it does not declare: an
            array that it is given or names, or a change outside of its `writes`. `docs/explanation/concurrent-kernels.md` lists the limits. For
            kernels in main memory.
        record: how many kernels the report remembers, the last ones.

    Raises:
        ShapeError: `size` or `streams` is below 1.
        OptionError: there is no such `deps`.
        ExecutionError: from the block: a kernel has failed.
    """
    alone, how = (run_checked, "window, checked") if check else (None, "window")
    return Threads(SchedulingWindow(size, finder(deps)), streams, how, alone=alone, record=record)


def one_by_one(how: str, run: Callable[[Kernel], object], record: int) -> Threads:
    """As a window of one kernel, each of which `run` runs on the thread that submits it."""
    return Threads(SchedulingWindow(1, finder("buffers")), 1, how, alone=run, record=record)


def run_window(stream: Stream, **options: Any) -> Report:
    """In a window on threads; options are those of `window`."""
    return run_in(window(**options), stream)


def run_in(window: Threads, stream: Stream) -> Report:
    with window:
        window.submit(*stream.kernels)
    return window.report
