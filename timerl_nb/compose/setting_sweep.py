"""Latency tables for several settings (network, batch, bandwidth), to compare the best assignments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors
from timerl_nb.compose.assignment_search import Choice, choose
from timerl_nb.compose.primitive_latency_table import Links, Table
from timerl_nb.compose.primitive_measurement import HOST, measure
from timerl_nb.replay.training.algorithm import Algorithm

Setting = tuple[Any, ...]


@dataclass(frozen=True)
class Sweep:
    """Latency table and links for each combination of settings.

    Attributes:
        values: values of each setting, by its name.
        tables: table and links by the values of all settings, in their order.

    Example:
        >>> latency = trl.compose.Latency(0.001)
        >>> manager = trl.compose.Manager(latency, latency, latency)
        >>> cpu = trl.compose.Device(manager, latency, (manager, latency))
        >>> table = trl.compose.Table({"CPU": cpu}, batch=32, experience=10, inserted=8, host="CPU")
        >>> sweep = trl.compose.Sweep.from_table(table, trl.compose.Links({}, host="CPU"))
        >>> sweep.choose().best.learner
        'CPU'
    """

    values: Mapping[str, tuple[Any, ...]]
    tables: Mapping[Setting, tuple[Table, Links]]

    def __repr__(self) -> str:
        settings = ", ".join(f"{name} {list(values)}" for name, values in self.values.items())
        return f"Sweep({settings or 'one table'})"

    @staticmethod
    def from_table(table: Table, links: Links) -> Sweep:
        """Return a sweep of a single table, without settings.

        Args:
            table: the latencies.
            links: the links.
        """
        return Sweep({}, {(): (table, links)})

    def at(self, **settings: Any) -> tuple[Table, Links]:
        """Return the table and the links of a combination of settings.

        Args:
            settings: values by name: `at(network="64", batch=32)`. Default of each setting: its
                first value.

        Raises:
            OptionError: a setting or its value does not exist.
        """
        for name, value in settings.items():
            if name not in self.values:
                raise OptionError(
                    f"the setting {name!r} does not exist.", hint=one_of(name, list(self.values))
                )
            if value not in self.values[name]:
                known = ", ".join(map(str, self.values[name]))
                raise OptionError(
                    f"{name}={value!r} is not part of the sweep.", hint=f"use one of {known}."
                )
        key = tuple(settings.get(name, values[0]) for name, values in self.values.items())
        return self.tables[key]

    def choose(self, form: Literal["prose", "published"] = "prose", **settings: Any) -> Choice:
        """Return the best assignment for a combination of settings; see `trl.compose.choose`.

        Args:
            form: formula for the time of an iteration.
            settings: values by name; see `at`.
        """
        return choose(*self.at(**settings), form)

    def explore(self, form: Literal["prose", "published"] = "prose") -> Any:
        """Show all assignments as a grid in a notebook widget, with a slider per setting.

        A click on a cell shows the terms of its iteration.

        Args:
            form: formula for the time of an iteration.
        """
        return entry_point("compose.explore")(self, form)


@explain_call_errors
def sweep(
    algorithms: Mapping[str, Algorithm],
    devices: Sequence[str] = (HOST,),
    *,
    batch: Sequence[int] = (32, 512),
    bandwidth: Sequence[float] = (16e9,),
    **given: Any,
) -> Sweep:
    """Measure latency tables for several networks and batch sizes, with several bandwidths.

    Args:
        algorithms: algorithms by the name of their network; see `trl.compose.measure`.
        devices: names of devices; see `trl.compose.measure`.
        batch: batch sizes.
        bandwidth: bandwidths in bytes per second, for all links to devices with dedicated memory.
        given: other arguments of `trl.compose.measure`.

    Raises:
        OptionError: a setting has no values or a negative one, or a device does not exist.

    Example:
        >>> algorithms = {"8": trl.replay.Dqn("CartPole-v1", hidden=(8,))}
        >>> small = dict(inserted=4, actors=0, capacity=100, rounds=2)
        >>> found = trl.compose.sweep(algorithms, ["CPU"], batch=[4], **small)
        >>> found.values["batch"]
        (4,)
    """
    expect_type(
        algorithms, Mapping, "a mapping", '{"small": trl.replay.Dqn(…)}: an algorithm by name.'
    )
    for name, some in (("devices", devices), ("batch", batch), ("bandwidth", bandwidth)):
        if isinstance(some, str | bytes):
            some = None
        expect_type(some, Sequence, f"a list of {name}", f"{name}=[…] has all values to try.")
    values = {
        "network": tuple(algorithms),
        "batch": tuple(batch),
        "bandwidth": tuple(number("a bandwidth", one) for one in bandwidth),
    }
    for name, some in values.items():
        if not some:
            raise OptionError(f"{name} has no values.", hint="pass at least one value.")
    if not all(one >= 0 for one in values["bandwidth"]):
        raise OptionError(
            f"bandwidth={list(values['bandwidth'])} has a negative value.",
            hint="pass bytes per second, 0 or more.",
        )
    found: dict[Setting, tuple[Table, Links]] = {}
    for name, size in product(values["network"], values["batch"]):
        table, links = measure(algorithms[name], devices, batch=size, **given)
        for each in values["bandwidth"]:
            found[name, size, each] = table, links.of_bandwidth(each)
    return Sweep(values, found)
