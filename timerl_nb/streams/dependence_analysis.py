"""Dependence analysis between kernels (RAW, WAR and WAW hazards) of a scheduling window.

A finder stores the kernels of the window's slots, and returns sets of slots as bit masks. Finders may differ
in dependences implied by others; the resulting order is the same. Source: ACS Algorithm 1, corrected, with
two faster alternatives.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.memory_segments import ANY, Segment

KEPT: Final = 4_096  # number of stored segments above which those of finished kernels are dropped

MOST_KEYS: Final = 64  # maximal number of address ranges that refer to one group

_Key: TypeAlias = tuple[int, int, int]
_NUMBERED: Final[Any] = ()  # keys of a numbered buffer
_Touched: TypeAlias = tuple[int, int, list[int]]  # first byte, end, and the kernel's bit


class Finder(Protocol):
    def add(self, slot: int, kernel: Kernel) -> int:
        """Add a kernel, and return the mask of the slots that it depends on."""
        ...

    def remove(self, slot: int) -> None:
        """Remove the kernel of a slot after it has run."""
        ...


def slots(mask: int) -> list[int]:
    """Return the slots in a mask, in ascending order."""
    found: list[int] = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


class Printed:
    """Algorithm 1 as printed in the paper. It is wrong: it checks only the new kernel's writes, and misses RAW
    hazards.

    It serves as a counterexample in tutorials and tests.
    """

    def __init__(self) -> None:
        self._by_slot: dict[int, Kernel] = {}

    def add(self, slot: int, kernel: Kernel) -> int:
        waits = self._waits
        upstream = sum(1 << s for s, held in self._by_slot.items() if waits(kernel, held))
        self._by_slot[slot] = kernel
        return upstream

    def remove(self, slot: int) -> None:
        del self._by_slot[slot]

    def _waits(self, new: Kernel, held: Kernel) -> bool:
        return _meet(held.reads, new.writes) or _meet(held.writes, new.writes)


class Pairwise(Printed):
    """Algorithm 1 with the missing check of the new kernel's reads against the writes in the window."""

    def _waits(self, new: Kernel, held: Kernel) -> bool:
        return super()._waits(new, held) or _meet(held.writes, new.reads)


def _meet(some: tuple[Segment, ...], others: tuple[Segment, ...]) -> bool:
    return any(a.overlaps(b) for a in some for b in others)


class _Few:
    """Segments of a buffer, read or written, compared one by one with a new segment.

    Each has a list with its kernel's bit, which becomes 0 when the kernel has run.
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
                                continue  # later kernels that depend on it also depend on the new kernel
                        kept.append(one)
                part[:] = kept
        self.wrote.append((lo, hi, bit))
        return upstream

    def without_finished(self, few: int) -> _Few | _Many | None:
        """Drop finished kernels. Return None if none is left, and cells if there are more than `few` segments."""
        self.read = [one for one in self.read if one[2][0]]
        self.wrote = [one for one in self.wrote if one[2][0]]
        count = len(self.read) + len(self.wrote)
        return _Many(self) if count > few else self if count else None


class _Whole(_Few):
    """Like `_Few`, but every segment counts as the whole group."""

    def reads(self, lo: int, hi: int, bit: list[int]) -> int:
        return super().reads(0, ANY.stop, bit)

    def writes(self, lo: int, hi: int, bit: list[int]) -> int:
        return super().writes(0, ANY.stop, bit)

    def without_finished(self, few: int) -> _Few | _Many | None:
        return super().without_finished(len(self.read) + len(self.wrote))


class _Many:
    """Sorted disjoint cells, found by bisection: [start, end, bit of the writer, bits of the readers since]."""

    def __init__(self, few: _Few) -> None:
        self._starts: list[int] = []
        self._cells: list[list[Any]] = []
        for one in few.wrote:
            self.writes(*one)
        for one in few.read:
            self.reads(*one)

    def reads(self, lo: int, hi: int, bit: list[int]) -> int:
        upstream, first, end = 0, *self._split_cells(lo, hi)
        for cell in self._cells[first:end]:
            upstream |= cell[2][0]
            cell[3].append(bit)
        return upstream

    def writes(self, lo: int, hi: int, bit: list[int]) -> int:
        upstream, first, end = 0, *self._split_cells(lo, hi)
        for _, _, writer, readers in self._cells[first:end]:
            for by in writer, *readers:
                upstream |= by[0]
        self._starts[first:end], self._cells[first:end] = [lo], [[lo, hi, bit, []]]
        return upstream

    def _split_cells(self, lo: int, hi: int) -> tuple[int, int]:
        """Split the cells at both ends of a segment, fill gaps, and return the range of cell numbers."""
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

    def extend(self, other: _Many) -> None:
        """Append cells at higher addresses."""
        self._starts += other._starts
        self._cells += other._cells

    def without_finished(self, _: int) -> _Many | None:
        for cell in self._cells:
            cell[3] = [by for by in cell[3] if by[0]]
        self._cells = [cell for cell in self._cells if cell[2][0] or cell[3]]
        self._starts = [cell[0] for cell in self._cells]
        return self if self._cells else None


@dataclass(slots=True, eq=False)
class _Group:
    """Accesses to a numbered buffer, or to address ranges that overlap directly or indirectly.

    Attributes:
        wrote, read: masks of the last writer and of the readers since, as long as there is a single range.
        parts: accesses by range, if there are several ranges.
        lo, hi: the single range.
        last: a segment with this range; equal segments are often one object. None if there are several ranges.
        first, end: the address range of the whole group.
        keys: the address ranges that refer to the group.
    """

    wrote: int
    read: int
    parts: _Few | _Many | None
    lo: int
    hi: int
    last: _Key | None = None
    first: int = 0
    end: int = 0
    keys: list[_Key] = _NUMBERED

    @property
    def is_idle(self) -> bool:
        return not (self.wrote or self.read or self.parts)


class _Groups(dict["int | _Key", _Group]):
    """Groups by buffer number or address range; `enter` creates missing groups."""

    def __init__(self, enter: Callable[[Any], _Group]) -> None:
        self._enter = enter

    def __missing__(self, key: int | _Key) -> _Group:
        return self._enter(key)


class Buffers:
    """Finder by group of overlapping ranges: stores the last writer and the readers since.

    A dictionary finds address ranges that are already known. The groups of an address space are disjoint and
    sorted, so bisection finds the overlaps of a new range.
    """

    def __init__(self) -> None:
        # by slot, the kernel and the groups whose masks of readers and of writers may have its bit. Other groups
        # may replace these in `_groups`; a merged group has empty masks.
        self._by_slot: dict[int, tuple[Kernel, list[_Group], list[_Group]]] = {}
        self._bits: dict[int, list[int]] = {}  # by slot, for kernels in groups with several ranges
        self._spaces: dict[int, tuple[list[int], list[_Group]]] = {}  # start addresses and groups
        self._all = self._group(ANY.start, ANY.stop)
        self._all.parts = None
        self._groups = _Groups(self._enter)
        self._groups[ANY.buffer, ANY.start, ANY.stop] = self._all
        self._few, self._most = 0, KEPT

    def _group(self, lo: int, hi: int) -> _Group:
        return _Group(0, 0, None, lo, hi)

    def _make_ranges(self) -> _Few:
        return _Whole()

    def add(self, slot: int, kernel: Kernel) -> int:
        bit, groups, upstream = 1 << slot, self._groups, 0
        read: list[_Group] = []
        wrote: list[_Group] = []
        for s in kernel.reads:
            group = groups[s.buffer if s.buffer >= 0 else s]
            if group.parts is None:
                upstream |= group.wrote
                group.read |= bit
                read.append(group)
            else:
                upstream |= group.parts.reads(s.start, s.stop, self._bit(slot))
        for s in kernel.writes:
            group = groups[s.buffer if s.buffer >= 0 else s]
            if group.parts is None:
                upstream |= group.read or group.wrote  # the readers already depend on the writer
                group.wrote = bit
                group.read = 0
                wrote.append(group)
            else:
                upstream |= group.parts.writes(s.start, s.stop, self._bit(slot))
        self._by_slot[slot] = kernel, read, wrote
        if self._all.wrote or self._all.read:
            upstream |= self._barriers(kernel, bit)
        return upstream & ~bit  # reads and writes of one kernel may overlap

    def remove(self, slot: int) -> None:
        keep = ~(1 << slot)
        _, read, wrote = self._by_slot.pop(slot)
        for group in read:
            group.read &= keep
        for group in wrote:
            group.wrote &= keep
        if self._bits:
            self._bits.pop(slot, [0])[0] = 0
        if len(self._groups) > self._most:
            self._drop_finished()

    def _enter(self, key: int | _Key) -> _Group:
        """Create the group of a buffer, or of a range merged with all groups that it overlaps."""
        if isinstance(key, int):
            found = self._groups[key] = self._group(0, 0)
            return found
        space, lo, hi = key
        starts, groups = self._spaces.setdefault(space, ([], []))
        first = bisect_right(starts, lo) - 1
        if first < 0 or groups[first].end <= lo:
            first += 1
        end = bisect_left(starts, hi, first)
        live = groups[first:end]
        if len(live) == 1 and live[0].parts and live[0].first <= lo and hi <= live[0].end:
            made = live[0]
        else:
            for one in live:
                if one.is_idle:
                    self._drop(one)
            live = [one for one in live if not one.is_idle]
            if live:
                made = self._merge_groups(live)
            else:
                made = self._group(lo, hi)
                made.last = None if made.parts else key
            made.keys = [*made.keys]
            made.first = min([lo, *(one.first for one in live)])
            made.end = max([hi, *(one.end for one in live)])
            starts[first:end], groups[first:end] = [made.first], [made]
        made.keys.append(key)
        self._groups[key] = made
        return made

    def _merge_groups(self, groups: list[_Group]) -> _Group:
        """Merge groups in ascending order of addresses into one group with several ranges."""
        made = groups[0]
        parts = [one.parts or self._split_into_ranges(one) for one in groups]
        if any(isinstance(one, _Many) for one in parts):
            cells = _Many(_Few())
            for one in parts:
                cells.extend(one if isinstance(one, _Many) else _Many(one))
            made.parts = cells
        else:
            made.parts = self._make_ranges()
            for one in parts:
                assert isinstance(one, _Few)
                made.parts.wrote += one.wrote
                made.parts.read += one.read
        for one in groups[1:]:
            made.keys = [*made.keys, *one.keys]
            for key in one.keys:
                self._groups[key] = made
        return made

    def _split_into_ranges(self, group: _Group) -> _Few:
        """Convert a group with a single range to one with several ranges."""
        parts = group.parts = self._make_ranges()
        parts.wrote = [(group.lo, group.hi, self._bit(by)) for by in slots(group.wrote)]
        parts.read = [(group.lo, group.hi, self._bit(by)) for by in slots(group.read)]
        group.wrote = group.read = group.lo = group.hi = 0
        group.last = None
        return parts

    def _bit(self, slot: int) -> list[int]:
        return self._bits.setdefault(slot, [1 << slot])

    def _drop(self, group: _Group) -> None:
        for key in group.keys:
            del self._groups[key]
        group.keys = []

    def _drop_finished(self) -> None:
        """Drop finished kernels and empty groups. Groups with many ranges lose their keys; later accesses
        restore them.
        """
        for buffer, one in list(self._groups.items()):
            if one.parts is not None:
                one.parts = one.parts.without_finished(self._few)
            if isinstance(buffer, int) and one.is_idle:
                del self._groups[buffer]
        for space, (starts, groups) in list(self._spaces.items()):
            for one in groups:
                if one.is_idle or len(one.keys) > MOST_KEYS:
                    self._drop(one)
            groups[:] = [one for one in groups if not one.is_idle]
            starts[:] = [one.first for one in groups]
            if not groups:
                del self._spaces[space]
        self._most = max(KEPT, 2 * len(self._groups))

    def _barriers(self, kernel: Kernel, bit: int) -> int:
        """Return the dependences that come from accesses to all memory (`ANY`), by this kernel or by others."""
        writers, readers = self._all.wrote, self._all.read
        upstream = writers if kernel.reads or kernel.writes else 0
        if kernel.writes:
            upstream |= readers
        if (writers | readers) & bit:
            for slot, (other, _, _) in self._by_slot.items():
                if other.writes or (other.reads and writers & bit):
                    upstream |= 1 << slot
        return upstream


class Ranges(Buffers):
    """Finder by byte range: compares ranges inside a group.

    Args:
        whole: represent a group by two masks until it has two different ranges.
        few: the number of ranges above which bisection replaces comparison one by one.
        every: the number of accesses after which finished kernels are dropped.
    """

    def __init__(self, whole: bool = False, few: int = 16, every: int = 4_096) -> None:
        self._is_whole = whole
        super().__init__()
        self._few, self._due, self._every = few, every, every

    def _group(self, lo: int, hi: int) -> _Group:
        return _Group(0, 0, None if self._is_whole else _Few(), lo, hi)

    def _make_ranges(self) -> _Few:
        return _Few()

    def add(self, slot: int, kernel: Kernel) -> int:
        bit, groups, upstream = 1 << slot, self._groups, 0
        own: list[int] = []
        read: list[_Group] = []
        wrote: list[_Group] = []
        for s in kernel.reads:
            group = groups[s.buffer if s.buffer >= 0 else s]
            if group.last is s or (
                group.parts is None and group.lo == s.start and group.hi == s.stop
            ):
                upstream |= group.wrote
                group.read |= bit
                read.append(group)
            elif group.parts or group.wrote or group.read:
                own = own or self._bit(slot)
                upstream |= (group.parts or self._split_into_ranges(group)).reads(
                    s.start, s.stop, own
                )
            else:
                group.read, group.lo, group.hi, group.last = bit, s.start, s.stop, s
                read.append(group)
        for s in kernel.writes:
            group = groups[s.buffer if s.buffer >= 0 else s]
            if group.last is s or (
                group.parts is None and group.lo == s.start and group.hi == s.stop
            ):
                upstream |= group.read or group.wrote
                group.wrote = bit
                group.read = 0
                wrote.append(group)
            elif group.parts or group.wrote or group.read:
                own = own or self._bit(slot)
                upstream |= (group.parts or self._split_into_ranges(group)).writes(
                    s.start, s.stop, own
                )
            else:
                group.wrote, group.lo, group.hi, group.last = bit, s.start, s.stop, s
                wrote.append(group)
        self._by_slot[slot] = kernel, read, wrote
        if self._all.wrote or self._all.read:
            upstream |= self._barriers(kernel, bit)
        if own:
            self._due -= len(kernel.reads) + len(kernel.writes)
            if self._due <= 0:
                self._drop_finished()
        return upstream & ~bit

    def _drop_finished(self) -> None:
        super()._drop_finished()
        self._due = max(self._every, len(self._groups))


FINDERS: Final[Mapping[str, Callable[[], Finder]]] = {
    "auto": partial(Ranges, whole=True),
    "buffers": Buffers,
    "ranges": Ranges,
    "pairwise": Pairwise,
    "printed": Printed,
}


def finder(name: str) -> Finder:
    """Return a new finder.

    Raises:
        OptionError: the name is unknown.
    """
    if not isinstance(name, str) or name not in FINDERS:
        raise OptionError(
            f"the dependence analysis {name!r} is unknown.", hint=one_of(str(name), tuple(FINDERS))
        )
    return FINDERS[name]()
