"""Who must wait for whom: finders of a new kernel's upstream kernels (Algorithm 1, repaired, and two that are faster).

A finder knows the kernels of a window's slots, and speaks of them in masks: bit k is slot k. Two kernels keep their order
where one writes what the other reads or writes. The masks of two finders may differ where a kernel is waited for
by way of another; who waits in the end does not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from timerl_nb.errors import OptionError, one_of
from timerl_nb.streams.kernels import Kernel
from timerl_nb.streams.segments import Segment


class Finder(Protocol):
    def add(self, slot: int, kernel: Kernel) -> int:
        """Take a kernel in, and say for which slots it waits."""
        ...

    def remove(self, slot: int) -> None:
        """Forget the kernel of a slot: it has run."""
        ...


class Printed:
    """Algorithm 1 as the paper prints it: *wrong*, it compares the new kernel's writes alone, and misses what the new
    kernel reads of the others' writes. For a lesson, and for a test that must fail.
    """

    def __init__(self) -> None:
        self._held: dict[int, Kernel] = {}

    def add(self, slot: int, kernel: Kernel) -> int:
        waits = self._waits
        upstream = sum(1 << s for s, held in self._held.items() if waits(kernel, held))
        self._held[slot] = kernel
        return upstream

    def remove(self, slot: int) -> None:
        del self._held[slot]

    def _waits(self, new: Kernel, held: Kernel) -> bool:
        return _meet(held.reads, new.writes) or _meet(held.writes, new.writes)


class Pairwise(Printed):
    """Algorithm 1 with the half that it lacks: the new kernel's reads against the writes in the window."""

    def _waits(self, new: Kernel, held: Kernel) -> bool:
        return super()._waits(new, held) or _meet(held.writes, new.reads)


def _meet(some: tuple[Segment, ...], others: tuple[Segment, ...]) -> bool:
    return any(a.overlaps(b) for a in some for b in others)


class Buffers:
    """By buffer, the last writer and the readers since: whole buffers, whatever part of them a segment is."""

    def __init__(self) -> None:
        self._held: dict[int, Kernel] = {}
        self._cells: dict[int, list[int]] = {}  # by buffer: its writer, and the readers since
        self._touched: dict[int, list[list[int]]] = {}  # by slot, the cells that know of its kernel
        self._most = 256  # cells, before those are thrown out that know of no kernel
        # of `ANY`: the kernel that wrote everything, and those that have read everything since
        self._writer = self._readers = 0

    def add(self, slot: int, kernel: Kernel) -> int:
        bit, cells, touched = 1 << slot, self._cells, list[list[int]]()
        upstream = self._barriers(kernel) if self._writer or self._readers else 0
        for s in kernel.reads:
            buffer = s.buffer
            if buffer in cells:
                cell = cells[buffer]
            elif buffer < 0:
                upstream |= self._read_all(bit)
                continue
            else:
                cells[buffer] = cell = [0, 0]
            upstream |= cell[0]
            cell[1] |= bit
            touched.append(cell)
        for s in kernel.writes:
            buffer = s.buffer
            if buffer in cells:
                cell = cells[buffer]
            elif buffer < 0:
                upstream |= self._write_all(bit)
                continue
            else:
                cells[buffer] = cell = [0, 0]
            upstream |= cell[0] | cell[1]
            cell[0] = bit
            cell[1] = 0
            touched.append(cell)
        self._held[slot], self._touched[slot] = kernel, touched
        return upstream & ~bit  # its own reads and writes may meet

    def remove(self, slot: int) -> None:
        keep = ~(1 << slot)
        del self._held[slot]
        for cell in self._touched.pop(slot):
            cell[0] &= keep
            cell[1] &= keep
        if self._writer or self._readers:
            self._writer &= keep
            self._readers &= keep
        if len(self._cells) > self._most:
            self._cells = {b: cell for b, cell in self._cells.items() if cell[0] or cell[1]}
            self._most = max(256, 2 * len(self._cells))

    def _barriers(self, kernel: Kernel) -> int:
        """Which kernels that touch everything a kernel waits for."""
        upstream = self._writer if kernel.reads or kernel.writes else 0
        return upstream | (self._readers if kernel.writes else 0)

    def _read_all(self, bit: int) -> int:
        self._readers |= bit
        return sum(1 << slot for slot, held in self._held.items() if held.writes)

    def _write_all(self, bit: int) -> int:
        self._cells.clear()  # whoever comes waits for this kernel, which waits for all these
        self._writer, self._readers = bit, 0
        return sum(1 << slot for slot, held in self._held.items() if held.reads or held.writes)


class Ranges(Buffers):
    """By buffer, disjoint cells in order of their start, each with its last writer and the readers since: any segments."""

    def __init__(self) -> None:
        super().__init__()
        # by buffer: starts, and cells [writer, readers, start, stop]
        self._cut: dict[int, tuple[list[int], list[list[int]]]] = {}

    def add(self, slot: int, kernel: Kernel) -> int:
        bit = 1 << slot
        upstream = self._barriers(kernel) if self._writer or self._readers else 0
        for s in kernel.reads:
            if s.buffer < 0:
                upstream |= self._read_all(bit)
                continue
            for cell in self._between(s):
                upstream |= cell[0]
                cell[1] |= bit
        for s in kernel.writes:
            if s.buffer < 0:
                upstream |= self._write_all(bit)
                continue
            for cell in self._between(s):
                upstream |= cell[0] | cell[1]
                cell[0], cell[1] = bit, 0
        self._held[slot] = kernel
        return upstream & ~bit

    def remove(self, slot: int) -> None:
        keep = ~(1 << slot)
        kernel = self._held.pop(slot)
        for s in kernel.reads:
            self._clear(s, keep)
        for s in kernel.writes:
            self._clear(s, keep)
        if self._writer or self._readers:
            self._writer &= keep
            self._readers &= keep
        if len(self._cut) > self._most:
            self._cut = {b: known for b, known in self._cut.items() if known[0]}
            self._most = max(256, 2 * len(self._cut))

    def _between(self, s: Segment) -> Sequence[list[int]]:
        """The cells of a segment, made where there are none; those that reach beyond it are cut."""
        lo, hi = s.start, s.stop
        known = self._cut.get(s.buffer)
        if known is None:
            self._cut[s.buffer] = known = [], []
        starts, cells = known
        first = bisect_right(starts, lo) - 1
        if first >= 0 and cells[first][3] > lo:
            cell = cells[first]
            if cell[2] == lo and cell[3] == hi:
                return (cell,)
            if cell[2] < lo:
                first += 1
                starts.insert(first, lo)
                cells.insert(first, [cell[0], cell[1], lo, cell[3]])
                cell[3] = lo
        else:
            first += 1
        at, last = lo, first
        while at < hi:
            if last < len(cells) and starts[last] == at:
                cell = cells[last]
                if cell[3] > hi:
                    starts.insert(last + 1, hi)
                    cells.insert(last + 1, [cell[0], cell[1], hi, cell[3]])
                    cell[3] = hi
            else:
                stop = min(hi, starts[last]) if last < len(cells) else hi
                cell = [0, 0, at, stop]
                starts.insert(last, at)
                cells.insert(last, cell)
            at = cell[3]
            last += 1
        return cells[first:last]

    def _clear(self, s: Segment, keep: int) -> None:
        """Take a kernel out of the cells of its segment, and those out that are of no kernel any more."""
        known = self._cut.get(s.buffer)
        if known is None:
            return
        starts, cells = known
        at = max(bisect_right(starts, s.start) - 1, 0)
        while at < len(cells) and starts[at] < s.stop:
            cell = cells[at]
            cell[0] &= keep
            cell[1] &= keep
            if cell[0] or cell[1]:
                at += 1
            else:
                del starts[at], cells[at]

    def _write_all(self, bit: int) -> int:
        self._cut.clear()
        return super()._write_all(bit)


class Auto(Ranges):
    """One cell for a buffer, until a segment cuts it; from then on `Ranges`."""

    def _between(self, s: Segment) -> Sequence[list[int]]:
        cell = self._cells.get(s.buffer)
        if cell is not None:
            if cell[2] == s.start and cell[3] == s.stop:
                return (cell,)
            del self._cells[s.buffer]
            self._cut[s.buffer] = [cell[2]], [cell]
        elif s.buffer not in self._cut:
            self._cells[s.buffer] = cell = [0, 0, s.start, s.stop]
            return (cell,)
        return super()._between(s)

    def _clear(self, s: Segment, keep: int) -> None:
        cell = self._cells.get(s.buffer)
        if cell is None:
            super()._clear(s, keep)
            return
        cell[0] &= keep
        cell[1] &= keep
        if not cell[0] and not cell[1]:
            del self._cells[s.buffer]


FINDERS: Final[Mapping[str, Callable[[], Finder]]] = {
    "auto": Auto,
    "buffers": Buffers,
    "ranges": Ranges,
    "pairwise": Pairwise,
    "printed": Printed,
}


def finder(name: str) -> Finder:
    """A new finder.

    Raises:
        OptionError: there is none of that name.
    """
    if name not in FINDERS:
        raise OptionError(f"{name!r} finds no dependences.", hint=one_of(name, tuple(FINDERS)))
    return FINDERS[name]()
