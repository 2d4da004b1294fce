"""Who must wait for whom: finders of a new kernel's upstream kernels (Algorithm 1, repaired, and two that are faster).

A finder knows the kernels of a window's slots, and speaks of them in masks: bit k is slot k. Two kernels keep their order
where one writes what the other reads or writes. The masks of two finders may differ where a kernel is waited for
by way of another; who waits in the end does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
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
        self._cells = defaultdict[int, list[Any]](self._cell)
        self._all: list[Any] = [0, 0, None, ANY.start, ANY.stop]
        self._cells[ANY.buffer] = self._all
        self._most = KEPT

    def _cell(self) -> list[Any]:
        """Of a buffer: who has written it, and who has read it since."""
        return [0, 0]

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
        if self._all[0] or self._all[1]:
            upstream |= self._barriers(kernel, bit)
        return upstream & ~bit  # its own reads and writes may meet

    def remove(self, slot: int) -> None:
        keep, cells, kernel = ~(1 << slot), self._cells, self._held.pop(slot)
        for s in kernel.reads:
            cells[s.buffer][1] &= keep
        for s in kernel.writes:
            cells[s.buffer][0] &= keep
        if len(cells) > self._most:
            self._forget()
            self._most = max(KEPT, 2 * len(cells))

    def _forget(self) -> None:
        """Throw out buffers of which no kernel knows."""
        for buffer in [b for b, cell in self._cells.items() if b >= 0 and not any(cell[:3])]:
            del self._cells[buffer]

    def _barriers(self, kernel: Kernel, bit: int) -> int:
        """For whom a kernel waits as they have read, or written, everything, or as it does so itself."""
        writers, readers = self._all[:2]
        upstream = writers if kernel.reads or kernel.writes else 0
        if kernel.writes:
            upstream |= readers
        if (writers | readers) & bit:
            for slot, other in self._held.items():
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


class Ranges(Buffers):
    """By buffer, who has read and written which range of it: any segments.

    Args:
        whole: a buffer is as in `Buffers` until a kernel names another range of it than those there do: then it is cut.
        few: segments of a cut buffer are compared one by one with a new one; of more it is disjoint cells.
        every: after so many segments of cut buffers what has run is thrown out.
    """

    def __init__(self, whole: bool = False, few: int = 16, every: int = 4_096) -> None:
        self._whole, self._few, self._every = whole, few, every
        self._due = every
        self._bits: dict[int, list[int]] = {}  # by slot, of the kernels that cut buffers know of
        super().__init__()

    def _cell(self) -> list[Any]:
        """And its segments once it is cut, and till then from where to where it has been named."""
        return [0, 0, None if self._whole else _Few(), 0, 0]

    def add(self, slot: int, kernel: Kernel) -> int:
        bit, cells, upstream = 1 << slot, self._cells, 0
        own: list[int] = []
        for s in kernel.reads:
            cell = cells[s.buffer]
            if cell[3] == s.start and cell[4] == s.stop:
                upstream |= cell[0]
                cell[1] |= bit
            elif cell[2] or cell[0] or cell[1]:
                own = own or self._bit(slot)
                upstream |= (cell[2] or self._cut(cell)).reads(s.start, s.stop, own)
            else:
                cell[1], cell[3], cell[4] = bit, s.start, s.stop
        for s in kernel.writes:
            cell = cells[s.buffer]
            if cell[3] == s.start and cell[4] == s.stop:
                upstream |= cell[1] or cell[0]
                cell[0] = bit
                cell[1] = 0
            elif cell[2] or cell[0] or cell[1]:
                own = own or self._bit(slot)
                upstream |= (cell[2] or self._cut(cell)).writes(s.start, s.stop, own)
            else:
                cell[0], cell[3], cell[4] = bit, s.start, s.stop
        self._held[slot] = kernel
        if self._all[0] or self._all[1]:
            upstream |= self._barriers(kernel, bit)
        if own:
            self._due -= len(kernel.reads) + len(kernel.writes)
            if self._due <= 0:
                self._due = self._every
                for cell in cells.values():
                    if cell[2]:
                        cell[2] = cell[2].tidied(self._few) or _Few()
        return upstream & ~bit

    def remove(self, slot: int) -> None:
        super().remove(slot)
        self._bits.pop(slot, [0])[0] = 0

    def _bit(self, slot: int) -> list[int]:
        return self._bits.setdefault(slot, [1 << slot])

    def _cut(self, cell: list[Any]) -> _Few:
        """Remember by segments what is known of a buffer as a whole."""
        wrote, read, _, lo, hi = cell
        parts = _Few()
        parts.wrote = [(lo, hi, self._bit(by)) for by in slots(wrote)]
        parts.read = [(lo, hi, self._bit(by)) for by in slots(read)]
        cell[:] = 0, 0, parts, 0, 0
        return parts

    def _forget(self) -> None:
        for cell in self._cells.values():
            if cell[2]:
                cell[2] = cell[2].tidied(self._few)
        super()._forget()


FINDERS: Final[Mapping[str, Callable[[], Finder]]] = {
    "auto": partial(Ranges, whole=True),
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
