"""Search for the best assignment of primitives and experience memory to devices.

Source: PEARL, section 5.2, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any, Literal

from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.text_formatting import format_milliseconds
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import (
    expect_type,
    explain_call_errors,
    explain_constructor,
)
from timerl_nb.compose.primitive_latency_table import Links, Table
from timerl_nb.compose.units import Bytes

FORMS = ("prose", "published")
_LEAST = Bytes(1)  # size of a test transfer to find unreachable devices
# digits for a comparison of times: sums of equal terms in another order differ beyond them
_TIE = 12


@explain_constructor
@dataclass(frozen=True)
class Iteration:
    """An assignment of the primitives to devices, with the time of an iteration (Eq. 6).

    Attributes:
        manager, learner: devices of the replay manager and the learner.
        terms: seconds by name: `sample`, `learn`, `insert`, `update`; `comm` between manager and
            learner; `actors` from the actors to the manager; `memory` between the experience memory
            and the other primitives.
        seconds: time of the iteration; infinite for an impossible assignment.
        is_modelled: whether any part of it is modelled, not measured.
        why_not: reason of an impossible assignment, or "".
        memory: device of the experience memory with the shortest iteration.
        traffic: seconds of all communication; ties are decided by it.

    Example:
        >>> one = trl.compose.Iteration("CPU", "CPU", {"learn": 0.02}, seconds=0.02, is_modelled=False)
        >>> one.experiences(batch=32)
        1600.0
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
        """Return the number of learned rows per second.

        Args:
            batch: rows per iteration.
        """
        return batch / self.seconds if self.seconds > 0 else float("inf")

    def __str__(self) -> str:
        where = f"replay on {self.manager}, learner on {self.learner}"
        if self.why_not:
            return f"{where}: {self.why_not}"
        said = ", ".join(f"{name} {value * 1e3:.4g}" for name, value in self.terms.items())
        modelled = ", modelled" * self.is_modelled
        return f"{where}, experience on {self.memory}: {format_milliseconds(self.seconds, '.4g')} ({said}){modelled}"


@explain_constructor
@dataclass(frozen=True)
class Choice:
    """Best assignment, and all other ones; `str` returns a table.

    Attributes:
        best: assignment with the shortest iteration; ties are decided by traffic.
        all: all assignments, fastest first, impossible ones last.
        memory: device of the experience memory.
        traffic: seconds of the memory's communication, by its device.
        batch: rows per iteration.
        not_executed: differences between this assignment and a run of `trl.replay.train`.

    Example:
        >>> latency = trl.compose.Latency(0.001)
        >>> manager = trl.compose.Manager(latency, latency, latency)
        >>> cpu = trl.compose.Device(manager, latency, (manager, latency))
        >>> table = trl.compose.Table({"CPU": cpu}, batch=32, experience=10, inserted=8, host="CPU")
        >>> choice = trl.compose.choose(table, trl.compose.Links({}, host="CPU"))
        >>> choice.best.manager, choice.best.learner, choice.memory
        ('CPU', 'CPU', 'CPU')
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
    """Choose devices for replay manager, learner and experience memory.

    The result is the assignment with the shortest iteration.

    Devices without a link to the host are excluded. Ties are decided by the least traffic.

    Args:
        table: latencies of the primitives on each device.
        links: links between devices.
        form: formula for the time of an iteration. "prose" follows the paper's text (Eq. 6) and
            searches all three devices together: `sample + max(learn, insert) + update + comm +
            actors + memory`. "published" follows the paper's code: `sample + max(update + insert,
            learn)`; the memory is placed afterwards.

    Raises:
        OptionError: no assignment is possible, or the form is unknown.

    Example:
        >>> fast, slow = trl.compose.Latency(0.001), trl.compose.Latency(0.01)
        >>> manager = trl.compose.Manager(fast, fast, fast)
        >>> cpu = trl.compose.Device(manager, slow, (manager, slow))
        >>> gpu = trl.compose.Device(None, fast, None, "the buffer is on the host")
        >>> devices = {"CPU": cpu, "GPU": gpu}
        >>> table = trl.compose.Table(devices, batch=32, experience=10, inserted=8, host="CPU")
        >>> link = trl.compose.Link(latency=1e-6, bandwidth=16e9)
        >>> choice = trl.compose.choose(table, trl.compose.Links({("CPU", "GPU"): link}, host="CPU"))
        >>> choice.best.manager, choice.best.learner
        ('CPU', 'GPU')
    """
    table = expect_type(table, Table, "a table of latencies", "trl.compose.measure(…)[0].")
    links = expect_type(links, Links, "the links of devices", "trl.compose.measure(…)[1].")
    if form not in FORMS:
        raise OptionError(f"the form {form!r} does not exist.", hint=one_of(str(form), FORMS))
    found = [_iteration(table, links, i, j, form) for i, j in product(table.devices, repeat=2)]
    found.sort(key=lambda one: _order(one, table.host))
    best = found[0]
    if best.why_not:
        raise OptionError(
            "no assignment of replay manager and learner to the devices is possible.",
            evidence=[str(one) for one in found[:20]],
            hint="add a device with both primitives, or a link between devices.",
        )
    traffic = {d: _traffic(table, links, d, best.manager, best.learner) for d in table.devices}
    not_executed = _not_executed(best, table.host)
    return Choice(best, tuple(found), best.memory, traffic, table.batch, not_executed)


def _order(one: Iteration, host: str) -> tuple[Any, ...]:
    """Return the sort key: seconds, traffic, number of devices other than the host."""
    away = (one.manager != host) + (one.learner != host) + (one.memory != host)
    return bool(one.why_not), *(_round_seconds(x) for x in (one.seconds, one.traffic)), away


def _round_seconds(seconds: float) -> float:
    return float(f"{seconds:.{_TIE}g}")


def _iteration(table: Table, links: Links, i: str, j: str, form: str) -> Iteration:
    """Return the predicted iteration with the replay manager on device `i` and the learner on device `j`.

    The experience memory is placed on the device with the fastest transfers. `form` is "published" for the equation of
    the paper's code, which omits transfers.
    """
    one, other = table.devices[i], table.devices[j]
    manager, learner = (one.both or (None, None)) if i == j else (one.manager, other.learner)
    if manager is None or learner is None:
        lacks = one if manager is None else other
        return _infeasible_iteration(i, j, lacks.why_not or "the primitive cannot run there")
    comm = links.seconds(i, j, table.indices) + links.seconds(j, i, table.indices)
    actors = links.seconds(table.host, i, table.insertions)
    places = {d: _traffic(table, links, d, i, j) for d in table.devices}
    memory = min(places, key=lambda d: (_round_seconds(places[d]), d != table.host))
    traffic = comm + actors + places[memory]
    for a, b in ((table.host, i), (table.host, j), (i, j)):
        if links.seconds(a, b, _LEAST) == inf:
            return _infeasible_iteration(i, j, f"no link connects {a} and {b}")
    if traffic == inf:
        return _infeasible_iteration(i, j, "no reachable device can hold the experience memory")
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
    """Return seconds of the memory's communication for a device (Algorithm 2, line 10)."""
    where = {"learner": learner, "actors": table.host, "manager": manager}
    if any(links.seconds(place, one, _LEAST) == inf for one in where.values()):
        return inf
    return sum(links.seconds(place, where[x], amount) for x, amount in table.traffic.items())


def _not_executed(best: Iteration, host: str) -> tuple[str, ...]:
    """Return differences to a run of `trl.replay.train`: its buffer and rows are in host memory."""
    places = {"the replay manager": best.manager, "experience": best.memory}
    return tuple(
        f"trl.replay.train cannot execute this: it stores {what} on {host}, not on {device}."
        for what, device in places.items()
        if device.partition(" x")[0] != host
    )


@explain_call_errors
def portability(speeds: Mapping[str, float]) -> float:
    """Return the performance portability φ of a program.

    It is the harmonic mean of the program's speed on each platform. The result is 0 if the program
    does not run on some platform.

    Args:
        speeds: speed by platform, finite and not negative; 0 if the program does not run there.

    Raises:
        OptionError: there are no platforms.
        ShapeError: a speed is negative, NaN or infinite.

    Example:
        >>> trl.compose.portability({"CPU": 1.0, "GPU": 3.0})
        1.5
    """
    expect_type(
        speeds, Mapping, "a mapping", 'portability({"cpu": 1.0, "gpu": 2.5}): a speed by platform.'
    )
    if not speeds:
        raise OptionError("speeds is empty.", hint="pass the speed of at least one platform.")
    found = [number(f"the speed on {name}", one, least=0) for name, one in speeds.items()]
    if min(found) == 0:
        return 0.0
    return len(found) / sum(1 / one for one in found)
