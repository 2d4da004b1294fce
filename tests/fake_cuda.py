"""Fake of `torch.cuda` streams, events and graphs.

The device runs launched work as late, and in as random an order, as streams and events allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from threading import RLock
from typing import Any

LOCK = RLock()


class Stream:
    def __init__(self) -> None:
        self.queue: deque[tuple[str, Any]] = deque()
        Cuda.device.streams.append(self)

    def wait_event(self, event: Event) -> None:
        with LOCK:
            self.queue.append(("wait", event))

    def synchronize(self) -> None:
        Cuda.device.run(lambda: not self.queue)


class Event:
    def __init__(self) -> None:
        self.happened = False

    def record(self, stream: Stream) -> None:
        with LOCK:
            stream.queue.append(("record", self))

    def query(self) -> bool:
        Cuda.device.run(lambda: True)
        return self.happened

    def synchronize(self) -> None:
        Cuda.device.run(lambda: self.happened)


class CUDAGraph:
    """Captured launches, with the order imposed by streams and events."""

    def __init__(self) -> None:
        self.captured: list[tuple[Stream, list[tuple[str, Any]]]] = []

    def replay(self) -> None:
        for stream, queue in self.captured:
            stream.queue.extend(queue)
        Cuda.device.run(lambda: False)


class Cuda:
    """`torch.cuda` of a machine with one GPU."""

    device: Cuda
    Stream, Event, CUDAGraph = Stream, Event, CUDAGraph

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.streams: list[Stream] = []
        self.current: dict[int, Stream] = {}
        self.is_capturing = False
        self.launched = self.ran = 0
        Cuda.device = self

    def is_available(self) -> bool:
        return True

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        from threading import get_ident

        self.current[get_ident()] = stream
        yield
        del self.current[get_ident()]

    def launch(self, work: Callable[[], object]) -> None:
        """Launch a kernel's work, as its `run` does."""
        from threading import get_ident

        with LOCK:
            self.launched += 1
            self.current[get_ident()].queue.append(("run", work))

    def synchronize(self) -> None:
        self.run(lambda: False)

    @contextmanager
    def graph(self, graph: CUDAGraph, stream: Stream) -> Iterator[None]:
        self.run(lambda: False)
        self.is_capturing = True
        try:
            yield
        finally:
            self.is_capturing = False
        graph.captured = [(one, [*one.queue]) for one in self.streams]
        for one in self.streams:
            one.queue.clear()

    def run(self, enough: Callable[[], bool]) -> None:
        """Run work in random order until `enough` holds or nothing is runnable."""
        assert not self.is_capturing
        with LOCK:
            while not enough():
                able = [s for s in self.streams if s.queue and self._can(*s.queue[0])]
                if not able:
                    return
                what, of = self.random.choice(able).queue.popleft()
                if what == "run":
                    self.ran += 1
                    of()
                elif what == "record":
                    of.happened = True

    @staticmethod
    def _can(what: str, of: Any) -> bool:
        return what != "wait" or of.happened
