"""Random reads of tensors: positions, slices, conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.independent.programs import Node, Shape, Where


@dataclass(frozen=True)
class Signature:
    """Restriction of an expression's reads: `open` maps unfinished dimensions to a direction.

    Direction 0 allows only the own point, 1 also the past, -1 also the future.
    """

    name: str
    dims: tuple[str, ...]
    shape: Shape
    dtype: str
    where: frozenset[Where]
    open: Mapping[str, int]


@dataclass
class Entry:
    code: str
    plain: str
    dims: frozenset[str] = field(default_factory=frozenset)
    own: bool = False
    hard: bool = False  # a clamp, quotient or remainder; at most one per read


class Reads:
    """The available tensors, and random reads of them."""

    def __init__(
        self,
        rng: Random,
        dims: tuple[str, ...],
        bounds: Mapping[str, int],
        faulty: float,
        depth: int,
    ) -> None:
        self.rng, self.dims, self.bounds, self.faulty = rng, dims, bounds, faulty
        self.depth = depth  # maximal depth of expressions
        self.pool: dict[str, Signature] = {}
        self.hidden = False  # forbids open tensors
        self.whole = False  # forbids conditional tensors
        self.sites = 0

    def enter(self, one: Signature) -> None:
        self.pool[one.name] = one

    def forget(self, name: str) -> None:
        del self.pool[name]

    def restrict(self, name: str, opened: Mapping[str, int]) -> None:
        self.pool[name] = replace(self.pool[name], open=dict(opened))

    def close(self) -> None:
        """Mark the tensors that were open because of a tensor as complete."""
        for one in list(self.pool.values()):
            if one.open:
                self.pool[one.name] = replace(one, open={})

    def opened(self, reads: frozenset[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in reads:
            for d, sign in (self.pool[name].open if name in self.pool else {}).items():
                found[d] = sign if found.get(d, sign) == sign else 0
        return found

    def closed(self, make: Callable[[], Node]) -> Node:
        """Return `make`'s result without open tensors."""
        before, self.hidden = self.hidden, True
        try:
            return make()
        finally:
            self.hidden = before

    # --- positions -----------------------------------------------------------------------------

    def choose(self, weighted: Sequence[tuple[float, Any]]) -> Any:
        return self.rng.choices([x for _, x in weighted], [w for w, _ in weighted])[0]

    def condition(self, dims: Sequence[str]) -> Where:
        d = self.rng.choice(tuple(dims))
        n, size = self.bounds[d], d.upper()
        k = self.rng.randrange(n)
        text = self.rng.choice(
            (
                f"({d} >= {k})",
                f"({d} <= {k})",
                f"({d} == {k})",
                f"({d} % 2 == 0)",
                f"({d} < {size} - {n - 1 - k})",
                f"({d} % 3 != 1)",
            )
        )
        return Where(text, frozenset({d}))

    def point(self, d: str, symbols: Sequence[str], sign: int | None) -> Entry:
        """Return a position along a dimension, as a function of the available symbols."""
        rng, size, n = self.rng, d.upper(), self.bounds[d]
        own = frozenset({d})
        k = rng.randint(1, 3)
        found: list[tuple[float, Entry]] = []
        if d in symbols:
            found.append((6, Entry(d, d, own, own=True)))
            past = Entry(f"trl.max({d} - {k}, 0)", f"max({d} - {k}, 0)", own, hard=True)
            future = Entry(
                f"trl.min({d} + {k}, {size} - 1)", f"min({d} + {k}, {size} - 1)", own, hard=True
            )
            if sign in (None, 1):
                found.append((1, past))
                found.append((0.5, Entry(f"{d} // 2", f"{d} // 2", own, hard=True)))
                m = rng.randint(2, max(n, 2))
                if sign is None and n > 1:
                    found.append(
                        (0.7, Entry(f"({d} + {k}) % {m}", f"({d} + {k}) % {m}", own, hard=True))
                    )
                if n > 1:
                    found.append((0.4, Entry(f"{d} % {m}", f"{d} % {m}", own, hard=True)))
            if sign in (None, -1):
                found.append((1, future))
            if sign is None:
                found.append((1, Entry(f"{size} - 1 - {d}", f"{size} - 1 - {d}", own)))
                found.append((0.3, Entry(f"{d} // 2 * 2", f"{d} // 2 * 2", own, hard=True)))
                if rng.random() < self.faulty:
                    wrong = rng.choice((f"{d} + 1", f"{d} - 1", f"2 * {d}"))
                    found.append((30, Entry(wrong, wrong, own)))
        if sign is None:
            k = rng.randrange(n)
            last = f"{size} - 1"
            found += [
                (0.5, Entry(str(k), str(k))),
                (0.4, Entry(last, last)),
                (0.2, Entry(f"{size} // 2", f"{size} // 2")),
            ]
            for e in symbols:
                if e != d:
                    of = frozenset({e})
                    clamped = f"({e}, {size} - 1)"
                    found.append((0.25, Entry(f"trl.min{clamped}", f"min{clamped}", of, hard=True)))
                    if n > 1:
                        m = rng.randint(2, n)
                        found.append((0.2, Entry(f"{e} % {m}", f"{e} % {m}", of, hard=True)))
        if not found:
            raise LookupError(d)
        return self.choose(found)

    def span(self, d: str, symbols: Sequence[str], sign: int | None) -> tuple[Entry, bool] | None:
        """Return a slice along a dimension, and whether it may be empty."""
        rng, size, n = self.rng, d.upper(), self.bounds[d]
        k = rng.randint(1, 4)
        own = frozenset({d})
        found: list[tuple[float, tuple[str, str, frozenset[str], bool]]] = []
        if d in symbols:
            if sign in (None, 1):
                found += [
                    (2, ("0", f"{d} + 1", own, False)),
                    (2, (f"trl.max({d} - {k}, 0)", f"{d} + 1", own, False)),
                    (0.7, ("0", d, own, True)),
                    (0.5, (f"{d} // 2", f"{d} + 1", own, False)),
                    (0.5, (f"{d} // 3 * 3", f"{d} + 1", own, False)),
                ]
            if sign in (None, -1):
                found += [
                    (2, (d, size, own, False)),
                    (2, (d, f"trl.min({d} + {k}, {size})", own, False)),
                    (0.7, (f"{d} + 1", size, own, True)),
                ]
            if sign is None:
                block = f"{d} // 2 * 2"
                found += [
                    (0.6, (block, f"trl.min({block} + 2, {size})", own, False)),
                    (0.4, (f"{size} - 1 - {d}", size, own, False)),
                ]
        if sign is None:
            k = rng.randint(1, n)
            found += [
                (1, ("0", size, frozenset(), False)),
                (0.6, ("0", str(k), frozenset(), False)),
                (0.6, (f"{size} - {k}", size, frozenset(), False)),
            ]
        if not found:
            return None
        lo, hi, dims, empty = self.choose(found)
        plain = f"range({lo}, {hi})".replace("trl.", "")
        hard = "trl." in lo + hi or "//" in lo + hi
        return Entry(f"{lo}:{hi}", plain, dims, hard=hard), empty

    # --- reads ---------------------------------------------------------------------------------

    def read(self, name: str, at: Mapping[str, tuple[str, str]]) -> Node:
        """Read a tensor at its own point, except for the given entries."""
        one = self.pool[name]
        entries = [
            Entry(*at[d]) if d in at else Entry(d, d, frozenset({d}), True) for d in one.dims
        ]
        return self._read(one, entries, 0)

    def _read(self, one: Signature, entries: Sequence[Entry], slices: int) -> Node:
        own = {d for d, e in zip(one.dims, entries, strict=True) if e.own}
        where = frozenset(w for w in one.where if w.dims <= own)
        plain = ", ".join(e.plain for e in entries)
        code = one.name
        if not all(e.own for e in entries):
            code = f"{one.name}[{', '.join(e.code for e in entries)}]"
        text = f"{one.name}.cut({plain})" if slices else f"{one.name}[{plain or '()'}]"
        lead = tuple(e.code for e in entries if ":" in e.code)
        dims = frozenset().union(*(e.dims for e in entries)) if entries else frozenset()
        name = frozenset({one.name})
        smooth = name if one.dtype == "f" else frozenset()
        return Node(code, text, dims, one.shape, one.dtype, (), lead, name, smooth, where)

    def candidates(
        self, symbols: Sequence[str], shape: Shape, dtype: str, about: Sequence[str]
    ) -> list[Signature]:
        found = []
        for one in self.pool.values():
            if one.shape != shape or one.dtype != dtype:
                continue
            if one.open and (self.hidden or any(d not in symbols for d in one.open)):
                continue
            if one.where and (self.whole or not set(one.dims) <= set(symbols)):
                continue
            found.append(one)
        near = [one for one in found if one.name in about]
        return near if near and self.rng.random() < 0.7 else found

    def leaf(
        self, symbols: Sequence[str], shape: Shape, dtype: str, about: Sequence[str]
    ) -> Node | None:
        found = self.candidates(symbols, shape, dtype, about)
        if not found:
            return None
        return self.pick(self.rng.choice(found), symbols)

    def pick(self, one: Signature, symbols: Sequence[str]) -> Node:
        entries: list[Entry] = []
        for d in one.dims:
            entry = self.point(d, symbols, one.open.get(d))
            if one.where or (entry.hard and any(e.hard for e in entries)):
                own = d in symbols
                entry = Entry(d, d, frozenset({d}), True) if own else Entry("0", "0")
            entries.append(entry)
        return self._read(one, entries, 0)

    def sliced(
        self, symbols: Sequence[str], shape: Shape, dtype: str, about: Sequence[str]
    ) -> tuple[Node, bool] | None:
        """Read one or two slices of a tensor as leading axes; also return whether a slice may be empty."""
        found = [x for x in self.candidates(symbols, shape, dtype, about) if x.dims and not x.where]
        if not found:
            return None
        one = self.rng.choice(found)
        count = 2 if len(one.dims) > 1 and self.rng.random() < 0.2 else 1
        chosen = self.rng.sample(one.dims, count)
        entries: list[Entry] = []
        empty = False
        for d in one.dims:
            cut = self.span(d, symbols, one.open.get(d)) if d in chosen else None
            if cut is None and d in chosen:
                return None
            entry = self.point(d, symbols, one.open.get(d)) if cut is None else cut[0]
            if entry.hard and (cut is None or any(e.hard for e in entries)):
                if cut is not None:
                    return None
                entry = Entry(d, d, frozenset({d}), True) if d in symbols else Entry("0", "0")
            entries.append(entry)
            empty = empty or (cut is not None and cut[1])
        return self._read(one, entries, count), empty

    def same_slice(
        self, symbols: tuple[str, ...], like: Node, about: tuple[str, ...]
    ) -> Node | None:
        """Read another tensor in the same slice."""
        text = like.lead[0]
        found: list[tuple[Signature, str]] = []
        for one in self.candidates(symbols, like.shape, "f", about):
            if one.open or one.where:
                continue
            found += [(one, d) for d in one.dims if f"{d.upper()}" in text or d in text]
        if not found:
            return None
        one, d = self.rng.choice(found)
        if set(text) & {e for e in self.dims if e != d} - set(symbols):
            return None
        lo, hi = text.split(":")
        used = frozenset(
            e
            for e in self.dims
            if e
            in lo.replace("trl", "").replace("min", "") + hi.replace("trl", "").replace("min", "")
        )
        if any(
            self.bounds[e] > self.bounds[d] for e in self.dims if e in text or e.upper() in text
        ):
            return None  # the read would be outside
        cut = Entry(text, f"range({lo}, {hi})".replace("trl.", ""), used)
        entries = [
            cut
            if e == d
            else Entry(e, e, frozenset({e}), True)
            if e in symbols
            else Entry("0", "0")
            for e in one.dims
        ]
        return self._read(one, entries, 1)
