"""Tables of several settings, so that one sees where the choice moves as they change."""

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
    """A table, and links, of each setting.

    Attributes:
        values: of each setting, by its name.
        tables: by the values of all settings, in their order.
    """

    values: Mapping[str, tuple[Any, ...]]
    tables: Mapping[Setting, tuple[Table, Links]]

    def __repr__(self) -> str:
        settings = ", ".join(f"{name} {list(values)}" for name, values in self.values.items())
        return f"Sweep({settings or 'one table'})"

    @staticmethod
    def from_table(table: Table, links: Links) -> Sweep:
        """That of one table, without settings."""
        return Sweep({}, {(): (table, links)})

    def at(self, **settings: Any) -> tuple[Table, Links]:
        """The table and the links of a setting: `at(network="64", batch=32)`; the first value of what is not given.

        Raises:
            OptionError: there is no such setting, or it has no such value.
        """
        for name, value in settings.items():
            if name not in self.values:
                raise OptionError(
                    f"there is no setting {name!r}.", hint=one_of(name, list(self.values))
                )
            if value not in self.values[name]:
                known = ", ".join(map(str, self.values[name]))
                raise OptionError(f"{name}={value!r} was not asked for.", hint=f"{known}.")
        key = tuple(settings.get(name, values[0]) for name, values in self.values.items())
        return self.tables[key]

    def choose(self, form: Literal["prose", "published"] = "prose", **settings: Any) -> Choice:
        """What `trl.compose.choose` chooses of a setting."""
        return choose(*self.at(**settings), form)

    def explore(self, form: Literal["prose", "published"] = "prose") -> Any:
        """A grid of all assignments with a slider for each setting; a click on a cell says its iteration term by term."""
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
    """Measure tables for several networks and batches, and have them with links of several bandwidths.

    Args:
        algorithms: as `trl.compose.measure` takes each, by the name of its network.
        devices, given: of `trl.compose.measure`.
        batch: rows that are drawn and learnt from.
        bandwidth: bytes a second of every link to a device with memory of its own.

    Raises:
        OptionError: a setting has no values, or a device is none.
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
            raise OptionError(f"{name} has no values.", hint="give one at least.")
    if not all(one >= 0 for one in values["bandwidth"]):
        raise OptionError(f"bandwidth={list(values['bandwidth'])} has one below 0.")
    found: dict[Setting, tuple[Table, Links]] = {}
    for name, size in product(values["network"], values["batch"]):
        table, links = measure(algorithms[name], devices, batch=size, **given)
        for each in values["bandwidth"]:
            found[name, size, each] = table, links.of_bandwidth(each)
    return Sweep(values, found)
