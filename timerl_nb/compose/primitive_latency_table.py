"""What each primitive takes on each device: the Primitive Device Assignment Matrix (003_bc3f8b946743a61e, §5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.base.text_formatting import align_columns, format_count, format_milliseconds
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compose.units import Bytes, Link, Words

WORD = 4  # bytes of an index, a priority, a number of an experience


@dataclass(frozen=True)
class Latency:
    """Seconds that something takes once an iteration.

    Attributes:
        seconds: the median, where it was measured.
        spread: between the first and the third quartile.
        is_modelled: whether nobody has measured it: equations or a data sheet say so.

    Raises:
        ShapeError: a figure is negative, NaN or infinite.
    """

    seconds: float
    spread: float = 0.0
    is_modelled: bool = False

    def __post_init__(self) -> None:
        number("a latency", self.seconds, least=0)
        number("the spread of a latency", self.spread, least=0)

    def __str__(self) -> str:
        return (
            f"{format_milliseconds(self.seconds, '.4g')}{' (modelled)' if self.is_modelled else ''}"
        )


@dataclass(frozen=True)
class Manager:
    """A replay manager's latencies for a batch."""

    sample: Latency
    insert: Latency
    update: Latency

    def __post_init__(self) -> None:
        for name in ("sample", "insert", "update"):
            _latency(name, getattr(self, name))


@dataclass(frozen=True)
class Device:
    """What the primitives take on a device; None what it cannot do.

    Attributes:
        manager: the replay manager, alone there.
        learner: a step of the learner, alone there.
        both: the two together.
        why_not: for what is None.
    """

    manager: Manager | None
    learner: Latency | None
    both: tuple[Manager, Latency] | None
    why_not: str = ""

    def __post_init__(self) -> None:
        both = (None, None) if self.both is None else self.both
        expect_type(both, tuple, "a pair", "Device(manager, learner, (manager, learner)).")
        if len(both) != 2:
            raise ShapeError(f"both are a manager and a learner, not {len(both)} values.")
        for manager in (self.manager, both[0]):
            if manager is not None:
                expect_type(
                    manager, Manager, "a manager's latencies", "Manager(sample, insert, update)."
                )
        for learner in (self.learner, both[1]):
            if learner is not None:
                _latency("learner", learner)


@dataclass(frozen=True)
class Table:
    """Latencies by device, and how much data an iteration moves.

    Attributes:
        devices: by name.
        batch: rows that a learner's step takes.
        experience: numbers in a row.
        inserted: rows that actors bring in an iteration.
        host: the device that actors run on, through which all others reach each other.

    Raises:
        ShapeError: a figure is negative, or no integer.
        OptionError: the host is no device.
    """

    devices: Mapping[str, Device]
    batch: int
    experience: int
    inserted: int
    host: str

    def __post_init__(self) -> None:
        expect_type(self.devices, Mapping, "a mapping of devices", 'Table({"CPU": Device(…)}, …).')
        object.__setattr__(self, "devices", dict(self.devices))
        for name, one in self.devices.items():
            expect_type(one, Device, f"the device {name!r}", "Device(manager, learner, both).")
        integer("batch", self.batch, least=1)
        integer("experience", self.experience, least=0)
        integer("inserted", self.inserted, least=0)
        if self.host not in self.devices:
            raise OptionError(
                f"the host {self.host!r} is no device of the table.",
                hint=f"there are {', '.join(self.devices)}.",
            )

    def __str__(self) -> str:
        parts = "sample", "insert", "update"
        rows = [["", *parts, "learner"]]
        for name, one in self.devices.items():
            cells = [*(getattr(one.manager, part, None) for part in parts), one.learner]
            why_not = f" ({one.why_not})" if one.why_not else ""
            rows.append([name + why_not, *("-" if x is None else str(x) for x in cells)])
        head = f"batches of {self.batch}, {format_count(self.inserted, 'new row')} in an iteration; actors on {self.host}"
        return "\n".join([head, *align_columns(rows, left=(0,))])

    __repr__ = __str__

    @property
    def indices(self) -> Bytes:
        """What says which rows were drawn; as much as their priorities."""
        return Words(self.batch).to_bytes(WORD)

    @property
    def insertions(self) -> Bytes:
        """The priorities of new rows, sent by actors to the replay manager."""
        return Words(self.inserted).to_bytes(WORD)

    @property
    def traffic(self) -> Mapping[str, Bytes]:
        """The amounts between the experience memory and each primitive in an iteration (Algorithm 2, line 8)."""
        return {
            "learner": Words(self.batch * (self.experience + 1)).to_bytes(WORD),
            "actors": Words(self.inserted * self.experience).to_bytes(WORD),
            "manager": Words(self.batch).to_bytes(WORD),
        }


def _latency(what: str, value: Any) -> None:
    expect_type(value, Latency, f"the latency of {what}", "Latency(seconds).")


@dataclass(frozen=True)
class Links:
    """The connections of devices.

    Attributes:
        known: by the names of two devices, in any order, or of one with itself.
        host: through which devices reach each other that have no link of their own.
    """

    known: Mapping[tuple[str, str], Link]
    host: str

    def __post_init__(self) -> None:
        how = 'Links({("CPU", "FPGA"): Link(latency=1e-6, bandwidth=16e9)}, host="CPU").'
        expect_type(self.known, Mapping, "a mapping of links", how)
        object.__setattr__(self, "known", dict(self.known))
        for pair, link in self.known.items():
            expect_type(link, Link, "a link", how)
            if len(expect_type(pair, tuple, "a pair of devices", how)) != 2:
                raise ShapeError(f"a link is between two devices, not {pair!r}.", hint=how)

    def of_bandwidth(self, bandwidth: float) -> Links:
        """The same with so many bytes a second over every link; what costs nothing still does not."""
        known = {
            pair: link if link.bandwidth == float("inf") else replace(link, bandwidth=bandwidth)
            for pair, link in self.known.items()
        }
        return Links(known, self.host)

    def seconds(self, a: str, b: str, amount: Bytes) -> float:
        """How long an amount takes from one device to another; without an end where they cannot be reached."""
        direct = self.known.get((a, b)) or self.known.get((b, a))
        if direct is not None:
            return direct.seconds(amount)
        if a == b:  # whoever has it, has it
            return 0.0
        if self.host in (a, b):
            return float("inf")
        return self.seconds(a, self.host, amount) + self.seconds(self.host, b, amount)
