"""Out-of-order execution of random kernel streams: same bytes as in order, for every dependence finder.

A kernel computes each written byte from all its reads. It reads at its start and writes at its end;
random choices decide the next start or end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest

from timerl_nb.streams import ANY, Kernel, Report, Segment, Stream
from timerl_nb.streams.dependence_analysis import FINDERS, Pairwise, Ranges, finder, slots
from timerl_nb.streams.memory_segments import HOST
from timerl_nb.streams.scheduling_window import SchedulingWindow

FUZZ = "TIMERL_FUZZ" in os.environ
RUNS = 5 * int(os.environ["TIMERL_FUZZ"]) if FUZZ else 320
FIRST = int(os.environ.get("TIMERL_SEED", "0")) * 10**6
BYTES = 8  # bytes of a buffer
FIRST_ADDRESS = 4096
RIGHT = {name: made for name, made in FINDERS.items() if name != "printed"}
RIGHT["cells"] = partial(Ranges, every=1, few=0)


@dataclass(frozen=True)
class Memory:
    """Memory of a stream's kernels."""

    buffers: tuple[bytearray, ...]

    def read(self, kernel: Kernel) -> int:
        """Return a hash of all bytes read by a kernel."""
        found = sum(map(ord, kernel.name))
        for s in kernel.reads:
            parts = (
                self.buffers if s == ANY else [self.buffers[b][k : k + 1] for b, k in bytes_of(s)]
            )
            for part in parts:
                for byte in part:
                    found = (found * 31 + byte + 1) % 1_000_003
        return found

    def write(self, kernel: Kernel, made: int) -> None:
        for s in kernel.writes:
            if s == ANY:
                for buffer in self.buffers:
                    buffer[made % BYTES] = made % 251
            else:
                for b, k in bytes_of(s):
                    self.buffers[b][k] = (made + k) % 251


def bytes_of(s: Segment) -> list[tuple[int, int]]:
    """Return the buffer and offset of each byte; as addresses, buffers are contiguous."""
    if s.buffer == HOST:
        return [divmod(at - FIRST_ADDRESS, BYTES) for at in range(s.start, s.stop)]
    return [(s.buffer, k) for k in range(s.start, s.stop)]


def drawn(seed: int) -> tuple[list[Kernel], int]:
    """A stream and its number of buffers: whole ones or ranges, sometimes all memory; by number or address."""
    r = Random(seed)
    buffers, whole, barriers = r.randint(1, 8), r.random() < 0.4, r.random() < 0.4

    def segment() -> Segment:
        if barriers and r.random() < 0.04:
            return ANY
        lo = 0 if whole else r.randrange(BYTES)
        buffer, hi = r.randrange(buffers), BYTES if whole else r.randint(lo + 1, BYTES)
        if seed % 2:
            return Segment(buffer, lo, hi)
        first = FIRST_ADDRESS + buffer * BYTES
        reach = (
            0 if whole else r.choice((0, 0, BYTES * (buffers - buffer - 1)))
        )  # over other buffers
        return Segment(HOST, first + lo, first + hi + reach)

    def kernel(k: int) -> Kernel:
        reads = tuple(segment() for _ in range(r.randint(0, 3)))
        writes = tuple(segment() for _ in range(r.choice((0, 1, 1, 1, 2))))
        if reads and writes and r.random() < 0.3:  # in place
            writes = (reads[0], *writes[1:])
        return Kernel(str(k), reads, writes)

    return [kernel(k) for k in range(r.randint(1, 90))], buffers


def in_order(kernels: list[Kernel], buffers: int) -> Memory:
    memory = Memory(tuple(bytearray(BYTES) for _ in range(buffers)))
    for kernel in kernels:
        memory.write(kernel, memory.read(kernel))
    return memory


class Agreed:
    """Several finders as one; their masks must agree after transitive closure."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.finders = names, [RIGHT[name]() for name in names]
        self.waits = [dict[int, int]() for _ in names]  # by slot, all predecessors

    def add(self, slot: int, kernel: Kernel) -> int:
        masks = [one.add(slot, kernel) for one in self.finders]
        for mask, waits in zip(masks, self.waits, strict=True):
            waits[slot] = mask
            for s in slots(mask):
                waits[slot] |= waits[s]
        assert len({waits[slot] for waits in self.waits}) == 1, kernel
        by = dict(zip(self.names, masks, strict=True))
        assert by.get("buffers", by["auto"]) == by["auto"]  # for whole buffers it is the same
        return masks[0]

    def remove(self, slot: int) -> None:
        for one, waits in zip(self.finders, self.waits, strict=True):
            one.remove(slot)
            del waits[slot]
            for s in waits:
                waits[s] &= ~(1 << slot)


def out_of_order(
    kernels: list[Kernel], buffers: int, window: SchedulingWindow, streams: int, seed: int
) -> Memory:
    """Start and end kernels in a random order allowed by the window."""
    r, memory = Random(seed), Memory(tuple(bytearray(BYTES) for _ in range(buffers)))
    running: list[tuple[int, Kernel, int]] = []
    entered = 0
    while entered < len(kernels) or window.count:
        can = ["end"] * bool(running)
        can += ["enter", "enter"] * (entered < len(kernels) and not window.is_full)
        can += ["start", "start"] * (len(running) < streams and bool(window.ready))
        match r.choice(can):
            case "enter":
                window.insert(kernels[entered])
                entered += 1
            case "start":
                window.ready.rotate(r.randrange(len(window.ready)))
                slot = window.take()
                kernel = window.kernels[slot]
                assert kernel is not None and window.state(slot) == "executing"
                running.append((slot, kernel, memory.read(kernel)))
            case _:
                slot, kernel, made = running.pop(r.randrange(len(running)))
                memory.write(kernel, made)
                window.complete(slot)
    return memory


def test_random_streams_are_as_in_order() -> None:
    for seed in range(FIRST, FIRST + RUNS):
        kernels, buffers = drawn(seed)
        expected = in_order(kernels, buffers)
        r = Random(-seed)
        for name in RIGHT:
            window, streams = SchedulingWindow(r.randint(1, 64), RIGHT[name]()), r.randint(1, 16)
            found = out_of_order(kernels, buffers, window, streams, seed)
            assert found == expected, (
                f"seed {seed}, {name}, window {window.size}, streams {streams}"
            )


def test_finders_agree_on_who_must_wait() -> None:
    for seed in range(FIRST, FIRST + RUNS):
        kernels, buffers = drawn(seed)
        whole = all(
            s == ANY or (s.stop - s.start == BYTES and s.start % BYTES == 0)
            for k in kernels
            for s in (*k.reads, *k.writes)
        )
        names = [name for name in RIGHT if whole or name != "buffers"]
        out_of_order(
            kernels, buffers, SchedulingWindow(1 + seed % 64, Agreed(names)), 1 + seed % 16, seed
        )


def test_the_printed_algorithm_is_wrong() -> None:
    wrong = 0
    for seed in range(200):
        kernels, buffers = drawn(seed)
        window = SchedulingWindow(16, finder("printed"))
        wrong += out_of_order(kernels, buffers, window, 8, seed) != in_order(kernels, buffers)
    assert wrong > 50


def must_wait(kernels: list[Kernel]) -> list[list[int]]:
    """Return all required predecessors of each kernel."""
    pair = Pairwise()
    return [slots(pair.add(k, one)) for k, one in enumerate(kernels)]


def check_order(report: Report, kernels: list[Kernel]) -> None:
    """Check that each kernel starts after the end of its predecessors."""
    by = {one.kernel: one for one in report.launches}
    assert len(by) == report.count == len(kernels)
    for k, upstream in enumerate(must_wait(kernels)):
        assert all(by[u].ended <= by[k].started for u in upstream), k


@pytest.mark.parametrize("how", ["auto", "ranges", "buffers", "graph"])
def test_random_streams_on_threads_are_as_in_order(how: str) -> None:
    for seed in range(FIRST, FIRST + RUNS // 16):
        r = Random(seed)
        kernels, buffers = drawn(seed)
        memory = Memory(tuple(bytearray(BYTES) for _ in range(buffers)))

        def run(kernel: Kernel, memory: Memory = memory) -> None:
            memory.write(kernel, memory.read(kernel))

        stream = Stream("drawn", tuple(replace(k, run=partial(run, k)) for k in kernels))
        if how == "graph":
            report = stream.run("graph", streams=r.randint(1, 5))
        else:
            report = stream.run("window", size=r.randint(1, 40), streams=r.randint(1, 5), deps=how)
        assert memory == in_order(kernels, buffers), seed
        check_order(report, kernels)
