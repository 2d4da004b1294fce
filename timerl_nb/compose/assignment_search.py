"""Assignment of primitives and experience memory to devices (003_bc3f8b946743a61e, §5.2, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any, Literal

from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.text_formatting import format_milliseconds
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors
from timerl_nb.compose.primitive_latency_table import Links, Table
from timerl_nb.compose.units import Bytes

FORMS = ("prose", "published")
_LEAST = Bytes(1)  # of a trial message, to find unreachable devices
_TIE = 12  # digits: sums of the same terms in another order differ beyond


@dataclass(frozen=True)
class Iteration:
    """An assignment of the primitives to devices, and the time of an iteration (Eq. 6).

    Attributes:
        manager, learner: the devices of the two.
        memory: the device of the experience memory, by which the iteration is shortest.
        terms: seconds by name: `sample`, `learn`, `insert`, `update`; `comm` between manager and learner; `actors`, from the
            actors to the manager; `memory`, between the experience memory and learner, actors and manager.
        seconds: of the iteration; infinite for an assignment that cannot be.
        is_modelled: whether any of it was not measured.
        why_not: the reason why the assignment cannot be.
        traffic: seconds of all communication, which decides between equal iterations.
    """

    manager: str
    learner: str
    terms: Mapping[str, float]
    seconds: float
    is_modelled: bool
    why_not: str = ""
    memory: str = ""
    traffic: float = 0.0

    def experiences(self, batch: int) -> float:
        """Rows that are learnt from in a second."""
        return batch / self.seconds if self.seconds > 0 else float("inf")

    def __str__(self) -> str:
        where = f"replay on {self.manager}, learner on {self.learner}"
        if self.why_not:
            return f"{where}: {self.why_not}"
        said = ", ".join(f"{name} {value * 1e3:.4g}" for name, value in self.terms.items())
        modelled = ", modelled" * self.is_modelled
        return f"{where}, experience on {self.memory}: {format_milliseconds(self.seconds, '.4g')} ({said}){modelled}"


@dataclass(frozen=True)
class Choice:
    """The best assignment, and all others.

    Attributes:
        best: the fastest; of equal ones that with the least traffic.
        all: every assignment, the fastest first; those that cannot be are last.
        memory: the device of the experience memory.
        traffic: seconds of the memory's communication, by its device.
        not_executed: sentences on devices that `trl.replay.train` replaces by the host.
    """

    best: Iteration
    all: tuple[Iteration, ...]
    memory: str
    traffic: Mapping[str, float]
    batch: int
    not_executed: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [str(one) for one in self.all]
        lines[0] += f"; {self.best.experiences(self.batch):,.0f} rows a second  *"
        places = ", ".join(
            f"{name} {format_milliseconds(value, '.4g')}" for name, value in self.traffic.items()
        )
        return "\n".join([*lines, f"experience on {self.memory}: {places}", *self.not_executed])

    __repr__ = __str__


@explain_call_errors
def choose(table: Table, links: Links, form: Literal["prose", "published"] = "prose") -> Choice:
    """Choose the devices of replay manager, learner and experience memory for the shortest iteration.

    Devices without a link from the actors' device are refused. Of equal assignments the one with the least traffic is chosen.

    Args:
        form: "prose" is Eq. 6 as the paper's text has it, with all three searched together:
            `sample + max(learn, insert) + update + comm + actors + memory`. "published" is that of the paper's code,
            `sample + max(update + insert, learn)`, which places the memory afterwards.

    Raises:
        OptionError: no assignment can be, or there is no such form.
    """
    table = expect_type(table, Table, "a table of latencies", "trl.compose.measure(…)[0].")
    links = expect_type(links, Links, "what connects devices", "trl.compose.measure(…)[1].")
    if form not in FORMS:
        raise OptionError(f"form={form!r} is none.", hint=one_of(str(form), FORMS))
    found = [_iteration(table, links, i, j, form) for i, j in product(table.devices, repeat=2)]
    found.sort(key=lambda one: _order(one, table.host))
    best = found[0]
    if best.why_not:
        raise OptionError(
            "no device can have both primitives, and no two can share them.",
            evidence=[str(one) for one in found[:20]],
        )
    traffic = {d: _traffic(table, links, d, best.manager, best.learner) for d in table.devices}
    not_executed = _not_executed(best, table.host)
    return Choice(best, tuple(found), best.memory, traffic, table.batch, not_executed)


def _order(one: Iteration, host: str) -> tuple[Any, ...]:
    """Sort by seconds, then by traffic, then by the number of devices other than the host."""
    away = (one.manager != host) + (one.learner != host) + (one.memory != host)
    return bool(one.why_not), *(_round_seconds(x) for x in (one.seconds, one.traffic)), away


def _round_seconds(seconds: float) -> float:
    return float(f"{seconds:.{_TIE}g}")


def _iteration(table: Table, links: Links, i: str, j: str, form: str) -> Iteration:
    one, other = table.devices[i], table.devices[j]
    manager, learner = (one.both or (None, None)) if i == j else (one.manager, other.learner)
    if manager is None or learner is None:
        lacks = one if manager is None else other
        return _infeasible_iteration(i, j, lacks.why_not or "it cannot run there")
    comm = links.seconds(i, j, table.indices) + links.seconds(j, i, table.indices)
    actors = links.seconds(table.host, i, table.insertions)
    places = {d: _traffic(table, links, d, i, j) for d in table.devices}
    memory = min(places, key=lambda d: (_round_seconds(places[d]), d != table.host))
    traffic = comm + actors + places[memory]
    for a, b in ((table.host, i), (table.host, j), (i, j)):
        if links.seconds(a, b, _LEAST) == inf:
            return _infeasible_iteration(i, j, f"nothing gets from {a} to {b}")
    if traffic == inf:
        return _infeasible_iteration(
            i, j, "no device that actors reach connects both with the experience"
        )
    terms = {
        "sample": manager.sample.seconds,
        "learn": learner.seconds,
        "insert": manager.insert.seconds,
        "update": manager.update.seconds,
    }
    s, l, n, u = terms.values()
    if form == "published":
        terms["comm"] = 0.0
        seconds = s + max(u + n, l)
    else:
        terms |= {"comm": comm, "actors": actors, "memory": places[memory]}
        seconds = s + max(l, n) + u + traffic
    parts = manager.sample, manager.insert, manager.update, learner
    is_modelled = any(part.is_modelled for part in parts)
    return Iteration(i, j, terms, seconds, is_modelled, "", memory, traffic)


def _infeasible_iteration(i: str, j: str, why_not: str) -> Iteration:
    return Iteration(i, j, {}, inf, False, why_not)


def _traffic(table: Table, links: Links, place: str, manager: str, learner: str) -> float:
    """Seconds of the memory's communication if it is in a place (Algorithm 2, line 10)."""
    where = {"learner": learner, "actors": table.host, "manager": manager}
    if any(links.seconds(place, one, _LEAST) == inf for one in where.values()):
        return inf
    return sum(links.seconds(place, where[x], amount) for x, amount in table.traffic.items())


def _not_executed(best: Iteration, host: str) -> tuple[str, ...]:
    """Return the differences of a run by `trl.replay.train`, whose buffer and rows are in the host's memory."""
    places = {"the replay manager": best.manager, "experience": best.memory}
    return tuple(
        f"trl.replay.train cannot execute this: it keeps {what} on {host}, not on {device}."
        for what, device in places.items()
        if device.partition(" x")[0] != host
    )


def portability(speeds: Mapping[str, float]) -> float:
    """φ: the harmonic mean of how fast a program is on each platform; 0 where it does not run on one.

    Args:
        speeds: by platform, finite and not negative.

    Raises:
        OptionError: there are no platforms.
        ShapeError: a speed is none.
    """
    expect_type(
        speeds, Mapping, "a mapping", 'portability({"cpu": 1.0, "gpu": 2.5}): a speed by platform.'
    )
    if not speeds:
        raise OptionError("there are no platforms.", hint="give a speed for one at least.")
    found = [number(f"the speed on {name}", one, least=0) for name, one in speeds.items()]
    if min(found) == 0:
        return 0.0
    return len(found) / sum(1 / one for one in found)
