"""Who must wait for whom: finders of a new kernel's upstream kernels (Algorithm 1, repaired, and two that are faster).

A finder knows the kernels of a window's slots, and speaks of them in masks: bit k is slot k. Two kernels keep their order
where one writes what the other reads or writes. The masks of two finders may differ where a kernel is waited for
by way of another; who waits in the end does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from timerl_nb.errors import OptionError, one_of
from timerl_nb.streams.kernels import Kernel
from timerl_nb.streams.segments import ANY, Segment

KEPT: Final = 4_096  # buffers, before those are thrown out of which no kernel knows

_Touched: TypeAlias = tuple[int, int, list[int]]  # from where, to where, and by whom


class Finder(Protocol):
    def add(self, slot: int, kernel: Kernel) -> int:
        """Take a kernel in, and say for which slots it waits."""
        ...

    def remove(self, slot: int) -> None:
        """Forget the kernel of a slot: it has run."""
        ...


def slots(mask: int) -> list[int]:
    """The slots of a mask, the lowest first."""
    found: list[int] = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


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
        self._cells = defaultdict[int, list[int]](lambda: [0, 0])  # writer, and readers since
        self._all = self._cells[ANY.buffer]
        self._most = KEPT

    def add(self, slot: int, kernel: Kernel) -> int:
        bit, cells, upstream = 1 << slot, self._cells, 0
        for s in kernel.reads:
            cell = cells[s.buffer]
            upstream |= cell[0]
            cell[1] |= bit
        for s in kernel.writes:
            cell = cells[s.buffer]
            upstream |= cell[1] or cell[0]  # who has read has waited for who wrote
            cell[0] = bit
            cell[1] = 0
        self._held[slot] = kernel
        writer, readers = self._all
        if writer or readers:
            upstream |= _barriers(kernel, bit, writer, readers, self._held)
        return upstream & ~bit  # its own reads and writes may meet

    def remove(self, slot: int) -> None:
        keep, cells, kernel = ~(1 << slot), self._cells, self._held.pop(slot)
        for s in kernel.reads:
            cells[s.buffer][1] &= keep
        for s in kernel.writes:
            cells[s.buffer][0] &= keep
        if len(cells) > self._most:
            for buffer in [b for b, cell in cells.items() if b >= 0 and not (cell[0] or cell[1])]:
                del cells[buffer]
            self._most = max(KEPT, 2 * len(cells))


def _barriers(
    kernel: Kernel, bit: int, writers: int, readers: int, held: Mapping[int, Kernel]
) -> int:
    """For whom a kernel waits as they have read, or written, everything, or as it does so itself."""
    upstream = writers if kernel.reads or kernel.writes else 0
    if kernel.writes:
        upstream |= readers
    if (writers | readers) & bit:
        for slot, other in held.items():
            if other.writes or (other.reads and writers & bit):
                upstream |= 1 << slot
    return upstream


class _Few:
    """Segments of a buffer that were read, and written: few enough to compare each with a new one. Each has a list of its
    kernel's bit, which is 0 when that has run.
    """

    __slots__ = "read", "wrote"

    def __init__(self) -> None:
        self.read: list[_Touched] = []
        self.wrote: list[_Touched] = []

    def reads(self, lo: int, hi: int, bit: list[int]) -> int:
        upstream = 0
        for first, last, by in self.wrote:
            if first < hi and lo < last:
                upstream |= by[0]
        self.read.append((lo, hi, bit))
        return upstream

    def writes(self, lo: int, hi: int, bit: list[int]) -> int:
        upstream = 0
        for part in self.read, self.wrote:
            if part:
                kept: list[_Touched] = []
                for one in part:
                    first, last, by = one
                    if by[0]:
                        if first < hi and lo < last:
                            upstream |= by[0]
                            if lo <= first and last <= hi:
                                continue  # who must wait for it waits for this
                        kept.append(one)
                part[:] = kept
        self.wrote.append((lo, hi, bit))
        return upstream

    def tidied(self, few: int) -> _Few | _Many | None:
        """Without what has run; None where nothing is left. More than a `few` are kept as cells."""
        for one in self.wrote or self.read:
            if one[2][0]:
                break
        else:
            if not (self.wrote and self.read):
                return None  # most: a buffer that was used once
        self.read = [one for one in self.read if one[2][0]]
        self.wrote = [one for one in self.wrote if one[2][0]]
        count = len(self.read) + len(self.wrote)
        return _Many(self) if count > few else self if count else None


class _Many:
    """The same as disjoint cells in order, which are found by bisection: [from, to, who wrote it, who has read it since]."""

    def __init__(self, few: _Few) -> None:
        self._starts: list[int] = []
        self._cells: list[list[Any]] = []
        for one in few.wrote:
            self.writes(*one)
        for one in few.read:
            self.reads(*one)

    def reads(self, lo: int, hi: int, bit: list[int]) -> int:
        upstream, first, end = 0, *self._cut(lo, hi)
        for cell in self._cells[first:end]:
            upstream |= cell[2][0]
            cell[3].append(bit)
        return upstream

    def writes(self, lo: int, hi: int, bit: list[int]) -> int:
        upstream, first, end = 0, *self._cut(lo, hi)
        for _, _, writer, readers in self._cells[first:end]:
            for by in writer, *readers:
                upstream |= by[0]
        self._starts[first:end], self._cells[first:end] = [lo], [[lo, hi, bit, []]]
        return upstream

    def _cut(self, lo: int, hi: int) -> tuple[int, int]:
        """From which cell to which a segment is, cut where it begins and ends, and made where there are none."""
        starts, cells = self._starts, self._cells
        for at in lo, hi:
            before = bisect_left(starts, at) - 1
            if before >= 0 and (cell := cells[before])[1] > at:
                starts.insert(before + 1, at)
                cells.insert(before + 1, [at, cell[1], cell[2], [*cell[3]]])
                cell[1] = at
        first = k = bisect_left(starts, lo)
        while lo < hi:
            after = starts[k] if k < len(starts) else hi
            if after > lo or k == len(starts):
                starts.insert(k, lo)
                cells.insert(k, [lo, min(after, hi), [0], []])
            lo = cells[k][1]
            k += 1
        return first, k

    def tidied(self, _: int) -> _Many | None:
        for cell in self._cells:
            cell[3] = [by for by in cell[3] if by[0]]
        self._cells = [cell for cell in self._cells if cell[2][0] or cell[3]]
        self._starts = [cell[0] for cell in self._cells]
        return self if self._cells else None


class Ranges:
    """By buffer, who has read and written which range of it: any segments.

    Args:
        every: after so many kernels what has run is thrown out.
        few: segments of a buffer are compared one by one with a new one; where more are left then, it is cut into cells.
    """

    def __init__(self, every: int = 512, few: int = 16) -> None:
        self._held: dict[int, Kernel] = {}
        self._bits: dict[int, list[int]] = {}  # by slot
        self._buffers: defaultdict[int, _Few | _Many] = defaultdict(_Few)
        self._all = self._buffers[ANY.buffer] = _Few()
        self._every = self._due = every
        self._few = few

    def add(self, slot: int, kernel: Kernel) -> int:
        bit, buffers, everything, upstream = [1 << slot], self._buffers, self._all, 0
        for s in kernel.reads:
            upstream |= buffers[s.buffer].reads(s.start, s.stop, bit)
        for s in kernel.writes:
            upstream |= buffers[s.buffer].writes(s.start, s.stop, bit)
        self._held[slot], self._bits[slot] = kernel, bit
        if everything.read or everything.wrote:
            wrote, read = (
                sum({by[0] for *_, by in part}) for part in (everything.wrote, everything.read)
            )
            upstream |= _barriers(kernel, bit[0], wrote, read, self._held)
        self._due -= 1
        if not self._due:
            self._due = self._every
            self._tidy({*buffers})
        elif len(kernel.reads) + len(kernel.writes) > 64:
            self._tidy({s.buffer for s in (*kernel.reads, *kernel.writes)})
        return upstream & ~bit[0]

    def remove(self, slot: int) -> None:
        del self._held[slot]
        self._bits.pop(slot)[0] = 0

    def _tidy(self, which: set[int]) -> None:
        self._all.tidied(self._few)
        for buffer in which - {ANY.buffer}:
            left = self._buffers[buffer].tidied(self._few)
            if left is None:
                del self._buffers[buffer]
            else:
                self._buffers[buffer] = left


FINDERS: Final[Mapping[str, Callable[[], Finder]]] = {
    "auto": Ranges,
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
