"""Which primitive runs where, and where experience is kept (003_bc3f8b946743a61e, §5.2, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

from timerl_nb.compose.table import Links, Manager, Table
from timerl_nb.errors import OptionError, one_of
from timerl_nb.frontend.foreign import asked, taken

FORMS = ("prose", "published")


@dataclass(frozen=True)
class Iteration:
    """An assignment, and what an iteration takes by it (Eq. 6).

    Attributes:
        manager, learner: the devices of the two.
        terms: seconds by name: `sample`, `learn`, `insert`, `update`, `comm`.
        seconds: of the iteration; without an end where the devices cannot reach each other.
        is_modelled: whether any of it was not measured.
        why_not: why it cannot be.
    """

    manager: str
    learner: str
    terms: Mapping[str, float]
    seconds: float
    is_modelled: bool
    why_not: str = ""

    def experiences(self, batch: int) -> float:
        """Rows that are learnt from in a second."""
        return batch / self.seconds if self.seconds > 0 else float("inf")

    def __str__(self) -> str:
        where = f"replay on {self.manager}, learner on {self.learner}"
        if self.why_not:
            return f"{where}: {self.why_not}"
        said = ", ".join(f"{name} {value * 1e3:.4g}" for name, value in self.terms.items())
        return f"{where}: {self.seconds * 1e3:.4g} ms ({said}){', modelled' * self.is_modelled}"


@dataclass(frozen=True)
class Choice:
    """The best assignment, and all that it was chosen from.

    Attributes:
        best: the fastest; of equal ones that which moves data the least long.
        all: every assignment, the fastest first, those that cannot be last.
        memory: where experience is kept.
        traffic: seconds that its exchange takes in each place.
    """

    best: Iteration
    all: tuple[Iteration, ...]
    memory: str
    traffic: Mapping[str, float]
    batch: int

    def __str__(self) -> str:
        lines = [str(one) for one in self.all]
        lines[0] += f"; {self.best.experiences(self.batch):,.0f} rows a second  *"
        places = ", ".join(f"{name} {value * 1e3:.4g} ms" for name, value in self.traffic.items())
        return "\n".join([*lines, f"experience on {self.memory}: {places}"])

    __repr__ = __str__


@asked
def choose(table: Table, links: Links, form: Literal["prose", "published"] = "prose") -> Choice:
    """The assignment by which an iteration is shortest, and the place of the experience memory.

    Args:
        form: "prose" is Eq. 6 as the paper's text has it, `sample + max(learn, insert) + update + comm`;
            "published" as its code has it, `sample + max(update + insert, learn)`.

    Raises:
        OptionError: no assignment can be, or there is no such form.
    """
    table = taken(table, Table, "a table of latencies", "trl.compose.measure(…)[0].")
    links = taken(links, Links, "what connects devices", "trl.compose.measure(…)[1].")
    if form not in FORMS:
        raise OptionError(f"form={form!r} is none.", hint=one_of(str(form), FORMS))
    found = [_iteration(table, links, i, j, form) for i, j in product(table.devices, repeat=2)]
    found.sort(key=lambda one: (bool(one.why_not), one.seconds, one.terms.get("comm", 0.0)))
    best = found[0] if found else None
    if best is None or best.why_not:
        raise OptionError(
            "no device can have both primitives, and no two can share them.",
            evidence=[str(one) for one in found[:20]],
        )
    traffic = {d: _traffic(table, links, d, best.manager, best.learner) for d in table.devices}
    memory = min(traffic, key=lambda d: traffic[d])
    return Choice(best, tuple(found), memory, traffic, table.batch)


def _iteration(table: Table, links: Links, i: str, j: str, form: str) -> Iteration:
    one, other = table.devices[i], table.devices[j]
    manager, learner = (one.both or (None, None)) if i == j else (one.manager, other.learner)
    if manager is None or learner is None:
        lacks = one if manager is None else other
        why_not = lacks.why_not or "it cannot run there"
        return Iteration(i, j, {}, float("inf"), False, why_not)
    comm = 0.0
    if form == "prose":
        comm = links.seconds(i, j, table.indices) + links.seconds(j, i, table.indices)
    terms = {
        "sample": manager.sample.seconds,
        "learn": learner.seconds,
        "insert": manager.insert.seconds,
        "update": manager.update.seconds,
        "comm": comm,
    }
    seconds = _length(terms, form)
    why_not = "" if seconds < float("inf") else "they cannot reach each other"
    return Iteration(i, j, terms, seconds, _is_modelled(manager) or learner.is_modelled, why_not)


def _length(terms: Mapping[str, float], form: str) -> float:
    """Eq. 6: what does not depend on the learner's step runs beside it."""
    s, l, i, u = (terms[name] for name in ("sample", "learn", "insert", "update"))
    return s + max(u + i, l) if form == "published" else s + max(l, i) + u + terms["comm"]


def _is_modelled(manager: Manager) -> bool:
    return any(x.is_modelled for x in (manager.sample, manager.insert, manager.update))


def _traffic(table: Table, links: Links, place: str, manager: str, learner: str) -> float:
    """Seconds that the exchange of experience takes if it is kept in a place (Algorithm 2, line 10)."""
    where = {"learner": learner, "actors": table.host, "manager": manager}
    return sum(links.seconds(place, where[x], amount) for x, amount in table.traffic.items())


def portability(speeds: Mapping[str, float]) -> float:
    """φ: the harmonic mean of how fast a program is on each platform; 0 where it does not run on one.

    Raises:
        OptionError: there are no platforms.
    """
    if not speeds:
        raise OptionError("there are no platforms.")
    if min(speeds.values()) <= 0:
        return 0.0
    return len(speeds) / sum(1 / one for one in speeds.values())
