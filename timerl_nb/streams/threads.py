"""A window on real threads (§IV-B): as many workers as streams, of which none polls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from time import perf_counter
from typing import Any, Final, Literal

from timerl_nb.errors import ExecutionError, user_origin
from timerl_nb.frontend.arguments import integer
from timerl_nb.frontend.foreign import asked
from timerl_nb.streams.checking import Check, CheckError
from timerl_nb.streams.dependences import finder, slots
from timerl_nb.streams.kernels import Kernel, failure, is_taken, refuse, taken_by
from timerl_nb.streams.report import Launch, Launches, Report
from timerl_nb.streams.scheduling_window import Window
from timerl_nb.streams.stream import Stream

_MOST_QUEUED: Final = (
    1_024  # kernels before the window; who submits more waits until half of them have entered
)

Lane = Callable[[Callable[[], object]], object]


class Threads:
    """A window that is open within a `with` block; see `window`.

    A worker that completes a kernel refills the window, takes the next one that is ready, and wakes another worker only
    where there is one more and that one is idle. All changes under `_lock`, but that the submitter appends to the
    queue without it: it looks afterwards whether a worker is idle, as a worker that becomes idle looks afterwards into the queue.
    """

    def __init__(
        self,
        window: Window,
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
            alone: runs a kernel as it is submitted, on the thread that does so; there are no others then.
            ahead: of each kernel that is in the window already, those that it waits for.
        """
        self.streams = integer("streams", streams, least=1)
        self._window = window
        self._alone, self._how = alone, how
        self._queue: deque[Kernel] = deque()  # of what is not in the window yet
        self._tokens: SimpleQueue[None] = SimpleQueue()  # each lets an idle worker go on
        self._news: SimpleQueue[None] = SimpleQueue()  # what the submitter waits for has come
        self._lock = Lock()
        self._idle = 0
        self._entered = window.count  # kernels so far
        self._wants: Literal["", "room", "end"] = ""  # what the submitter waits for
        self._closing = self._stopped = False  # threads end; no kernel starts any more
        self._failed: ExecutionError | None = None
        # by slot: which kernel it is, those that it waits for, when it entered
        self._held = [(k, waits, perf_counter()) for k, waits in enumerate(ahead)]
        self._held = self._held or [(0, (), 0.0)] * window.size
        self._record = integer("record", record, least=0)
        self._ran: deque[tuple[Any, ...]] = deque(maxlen=record)
        self._lanes = lanes  # by stream, what runs a kernel's function there
        self._workers: list[Thread] = []
        self._state: Literal["new", "open", "closed"] = "new"
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
        self._state, self._thread = "open", get_ident()
        self._takes = taken_by(self.submit)
        self._takes.__enter__()
        self._begun = self._last = perf_counter()
        for lane in range(0 if self._alone else self.streams):
            name = f"timerl-stream-{lane}"
            self._workers.append(Thread(target=self._work, args=(lane,), name=name, daemon=True))
            self._workers[-1].start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if self._state == "open":
            self._close(drop=error is not None)
        if error is None:
            self._say_failure()

    def close(self) -> None:
        """Wait for all kernels, and end the threads; what the block calls from then on just runs."""
        self._check_usable()
        self._close(drop=False)
        self._say_failure()

    def submit(self, *kernels: Kernel) -> None:
        """Launch kernels, each when those have run that it must wait for; returns at once, unless very many wait.

        Raises:
            ExecutionError: another kernel has failed; or the window is not open, or is another thread's.
        """
        if self._state != "open" or get_ident() != self._thread:
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
            if self._idle:
                self._wake()
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
        with self._lock:
            ran, count = list(self._ran), self._entered - self._window.count
            last = ran[-1][-1] if ran else self._last

        def made() -> list[Launch]:
            found: list[Launch] = []
            for slot, (kernel, waits, entered), lane, said, *times in ran:
                came, started, over = ((t - self._begun) * 1e6 for t in (entered, *times))
                name, line, op_ids = said
                place = lane, slot, waits
                found.append(Launch(kernel, name, line, op_ids, *place, came, started, over))
            return found

        us = (last - self._begun) * 1e6
        launches = Launches(len(ran), made)
        return Report(self._how, self._window.size, self.streams, us, launches, count)

    def _check_usable(self) -> None:
        if self._state != "open":
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

    def _wake(self) -> None:
        """Let an idle worker go on, if there is something for it."""
        with self._lock:
            self._refill()
            wakes = bool(self._idle and self._window.ready)
            self._idle -= wakes
        if wakes:
            self._tokens.put(None)

    def _wait(self, wants: Literal["room", "end"]) -> None:
        self._wake()
        with self._lock:
            if self._is_there(wants):
                return
            self._wants = wants
        try:
            self._news.get()
        except BaseException:  # an interrupt
            with self._lock:
                self._wants, self._news = "", SimpleQueue()
            raise

    def _is_there(self, wants: str) -> bool:
        if wants == "room":
            return self._failed is not None or len(self._queue) <= _MOST_QUEUED // 2
        if self._failed is not None:
            return self._idle == self.streams
        return not self._queue and not self._window.count

    def _close(self, drop: bool) -> None:
        """End the threads, with all kernels or, to `drop` those that have not begun, with these that run."""
        self._state = "closed"
        self._takes.__exit__()
        try:
            if not drop:
                self._wait("end")
        finally:
            with self._lock:
                self._closing = self._stopped = True
            for _ in self._workers:
                self._tokens.put(None)
            for worker in self._workers:
                worker.join()
            self._queue.clear()
            self._alone = None  # a check keeps arrays

    def _run_alone(self, kernel: Kernel, run: Callable[[Kernel], object]) -> None:
        begun = perf_counter()
        try:
            with taken_by(refuse):
                run(kernel)
        except Exception as error:
            self._fail(kernel, error)
            raise (self._failed or error) from error
        finally:
            self._last = perf_counter()
            self._ran.append((0, (self._entered, (), begun), 0, kernel.said, begun, self._last))
            self._entered += 1

    # --- the workers' threads --------------------------------------------------------------------

    def _work(self, lane: int) -> None:
        lock, window, queue, ran = self._lock, self._window, self._queue, self._ran
        ready, free, held, kernels = window.ready, window.free, self._held, window.kernels
        complete, on = window.complete, self._lanes[lane] if self._lanes else None
        recorded = self._record > 0
        slot, kernel, begun, ended = -1, None, 0.0, 0.0
        with taken_by(refuse):
            while True:
                with lock:
                    if kernel is not None:
                        if recorded:
                            ran.append((slot, held[slot], lane, kernel.said, begun, ended))
                        complete(slot)
                        kernel = None
                    if queue and free:
                        self._refill()
                    wakes = False
                    if ready and not self._stopped:
                        slot = ready.popleft()
                        kernel = kernels[slot]
                        if ready and self._idle:
                            self._idle -= 1
                            wakes = True
                    elif self._closing:
                        return
                    else:
                        self._idle += 1
                        if queue and free:
                            self._idle -= 1
                            continue
                        if slot >= 0:
                            self._last, slot = perf_counter(), -1
                    if self._wants and self._is_there(self._wants):
                        self._wants = ""
                        self._news.put(None)
                if wakes:
                    self._tokens.put(None)
                if kernel is None or kernel.run is None:
                    self._tokens.get()
                    continue
                if recorded:
                    begun = perf_counter()
                try:
                    if on is None:
                        kernel.run()
                    else:
                        on(kernel.run)
                except BaseException as error:
                    self._fail(kernel, error)
                if recorded:
                    ended = perf_counter()

    def _refill(self) -> None:
        """Let kernels enter the window, in order, while there is room."""
        queue, free, held, insert = self._queue, self._window.free, self._held, self._window.insert
        while queue and free:
            slot = insert(queue.popleft())
            if self._record:
                mask = self._window.upstream[slot]
                upstream = tuple([held[s][0] for s in slots(mask)]) if mask else ()
                held[slot] = self._entered, upstream, perf_counter()
            self._entered += 1

    def _fail(self, kernel: Kernel, error: BaseException) -> None:
        """No further kernel starts."""
        if isinstance(error, CheckError):
            failed: ExecutionError = error
        else:
            failed = failure(kernel, error, self._origin)
        with self._lock:
            self._failed, self._stopped = self._failed or failed, True


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


@asked
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
        check: run kernels one by one and in order, and refuse one that changes what its `writes` do not say, or has an
            argument that it says nothing of. For kernels in main memory.
        record: how many kernels the report remembers, the last ones.

    Raises:
        ShapeError: `size` or `streams` is below 1.
        OptionError: there is no such `deps`.
        ExecutionError: from the block: a kernel has failed.
    """
    alone, how = (Check().run, "window, checked") if check else (None, "window")
    return Threads(Window(size, finder(deps)), streams, how, alone=alone, record=record)


def one_by_one(how: str, run: Callable[[Kernel], object], record: int) -> Threads:
    """As a window of one kernel, each of which `run` runs on the thread that submits it."""
    return Threads(Window(1, finder("buffers")), 1, how, alone=run, record=record)


def run_window(stream: Stream, **options: Any) -> Report:
    """In a window on threads; options are those of `window`."""
    return run_in(window(**options), stream)


def run_in(window: Threads, stream: Stream) -> Report:
    with window:
        window.submit(*stream.kernels)
    return window.report
