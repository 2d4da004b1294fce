"""Latencies of each primitive on each device: the Primitive Device Assignment Matrix.

Source: PEARL, section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.base.text_formatting import align_columns, format_count, format_milliseconds
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import expect_type, explain_constructor
from timerl_nb.compose.units import Bytes, Link, Words

WORD = 4  # bytes of an index, a priority, or a number in a row


@explain_constructor
@dataclass(frozen=True)
class Latency:
    """Time of an operation per iteration.

    Attributes:
        seconds: median if measured.
        spread: interquartile range.
        is_modelled: whether the time comes from equations or a data sheet, not from a measurement.

    Raises:
        ShapeError: a figure is negative, NaN or infinite.

    Example:
        >>> str(trl.compose.Latency(0.002, is_modelled=True))
        '2 ms (modelled)'
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
    """Latencies of a replay manager for a batch.

    Attributes:
        sample: drawing a batch.
        insert: insertion of new rows.
        update: update of priorities.

    Example:
        >>> latency = trl.compose.Latency(0.001)
        >>> trl.compose.Manager(sample=latency, insert=latency, update=latency).sample.seconds
        0.001
    """

    sample: Latency
    insert: Latency
    update: Latency

    def __post_init__(self) -> None:
        for name in ("sample", "insert", "update"):
            _latency(name, getattr(self, name))


@explain_constructor
@dataclass(frozen=True)
class Device:
    """Latencies of the primitives on a device; None if the device does not support a primitive.

    Attributes:
        manager: replay manager alone.
        learner: step of the learner alone.
        both: replay manager and learner together on the device.
        why_not: reason for entries of None.

    Example:
        >>> gpu = trl.compose.Device(None, trl.compose.Latency(0.001), None, "the buffer is on the host")
        >>> gpu.learner.seconds
        0.001
    """

    manager: Manager | None
    learner: Latency | None
    both: tuple[Manager, Latency] | None
    why_not: str = ""

    def __post_init__(self) -> None:
        both = (None, None) if self.both is None else self.both
        expect_type(both, tuple, "a pair", "Device(manager, learner, (manager, learner)).")
        if len(both) != 2:
            raise ShapeError(
                f"both has {len(both)} values.", hint="pass a pair: (manager, learner)."
            )
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
    """Latencies by device, and the sizes of an iteration; `str` returns a table.

    Attributes:
        devices: devices by name.
        batch: rows per step of the learner.
        experience: numbers per row.
        inserted: new rows from actors per iteration.
        host: device of the actors; all other devices communicate through it.

    Raises:
        ShapeError: a figure is negative or not an integer.
        OptionError: the host is not in `devices`.

    Example:
        >>> latency = trl.compose.Latency(0.001)
        >>> manager = trl.compose.Manager(latency, latency, latency)
        >>> cpu = trl.compose.Device(manager, latency, (manager, latency))
        >>> table = trl.compose.Table({"CPU": cpu}, batch=32, experience=10, inserted=8, host="CPU")
        >>> table.indices.count
        128
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
                f"the host {self.host!r} is not a device of the table.",
                hint=f"use one of {', '.join(self.devices)}.",
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
        """Size of the indices of a drawn batch; their priorities have the same size."""
        return Words(self.batch).to_bytes(WORD)

    @property
    def insertions(self) -> Bytes:
        """Size of the new rows' priorities, sent by actors to the replay manager."""
        return Words(self.inserted).to_bytes(WORD)

    @property
    def traffic(self) -> Mapping[str, Bytes]:
        """Sizes of the transfers between experience memory and primitives (Algorithm 2, line 8)."""
        return {
            "learner": Words(self.batch * (self.experience + 1)).to_bytes(WORD),
            "actors": Words(self.inserted * self.experience).to_bytes(WORD),
            "manager": Words(self.batch).to_bytes(WORD),
        }


def _latency(what: str, value: Any) -> None:
    expect_type(value, Latency, f"the latency of {what}", "Latency(seconds).")


@explain_constructor
@dataclass(frozen=True)
class Links:
    """Links between devices.

    Attributes:
        known: link by the names of two devices in any order, or of one device with itself.
        host: intermediate device for pairs without a link.

    Example:
        >>> link = trl.compose.Link(latency=0.0, bandwidth=1000.0)
        >>> links = trl.compose.Links({("CPU", "GPU"): link}, host="CPU")
        >>> links.seconds("GPU", "CPU", trl.compose.Bytes(500))
        0.5
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
                raise ShapeError(f"{pair!r} is not a pair of devices.", hint=how)

    def of_bandwidth(self, bandwidth: float) -> Links:
        """Return links with another bandwidth; links of infinite bandwidth stay the same.

        Args:
            bandwidth: bytes per second.
        """
        known = {
            pair: link if link.bandwidth == float("inf") else replace(link, bandwidth=bandwidth)
            for pair, link in self.known.items()
        }
        return Links(known, self.host)

    def seconds(self, a: str, b: str, amount: Bytes) -> float:
        """Return seconds of a transfer between two devices; infinite without a connection.

        Args:
            a, b: names of the devices.
            amount: size of the transfer.
        """
        direct = self.known.get((a, b)) or self.known.get((b, a))
        if direct is not None:
            return direct.seconds(amount)
        if a == b:  # no transfer
            return 0.0
        if self.host in (a, b):
            return float("inf")
        return self.seconds(a, self.host, amount) + self.seconds(self.host, b, amount)
