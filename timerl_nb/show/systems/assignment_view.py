"""View-model of device assignments: one cell per assignment of replay manager and learner, with its iteration
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from timerl_nb.base.errors import CallError
from timerl_nb.base.text_formatting import format_milliseconds
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compose.assignment_search import Choice, Iteration, choose
from timerl_nb.compose.setting_sweep import Sweep
from timerl_nb.show.view_model import View, shown

Form = Literal["prose", "published"]
FORMULAS = {
    "prose": "T = sample + max(learn, insert) + update + comm + actors + memory",
    "published": "T = sample + max(update + insert, learn)",
}


@dataclass(frozen=True)
class MappingTerm:
    """Part of the iteration time, or of the cost of storing experience on a device, in seconds.

    Attributes:
        counts: whether it adds to the sum; False if it overlaps with a longer part.
    """

    name: str
    seconds: float
    counts: bool


@dataclass(frozen=True)
class MappingCell:
    """One assignment of replay manager and learner to devices.

    Attributes:
        seconds, speed: the iteration time, and the rows learned per second; None if impossible.
        terms: the parts of the iteration time.
        is_chosen: whether it is the fastest assignment.
        is_modelled: whether a part comes from a model instead of a measurement.
        why_not: the reason if impossible, else "".
    """

    manager: str
    learner: str
    seconds: float | None
    speed: float | None
    terms: tuple[MappingTerm, ...]
    is_chosen: bool
    is_modelled: bool
    why_not: str


@dataclass(frozen=True)
class MappingSetting:
    """Parameter of a sweep, and the position of its current value."""

    name: str
    values: tuple[str, ...]
    at: int


@dataclass(frozen=True, repr=False)
class MappingView(View):
    """All assignments for one setting of the parameters.

    Attributes:
        formula: the iteration time as a function of its parts (Eq. 6 of PEARL).
        cells: by the learner's device, then the manager's, in the order of `devices`.
        memory: the device that stores experience.
        traffic: the cost of storing experience on each device.
        summary: the chosen assignment in words.
    """

    view = "mapping"

    formula: str
    devices: tuple[str, ...]
    settings: tuple[MappingSetting, ...]
    cells: tuple[MappingCell, ...]
    memory: str
    traffic: tuple[MappingTerm, ...]
    summary: str

    @classmethod
    def from_sweep(
        cls, sweep: Sweep, at: tuple[int, ...] = (), form: Form = "prose"
    ) -> MappingView:
        """Return the view of a sweep at positions of its parameters' values, by default the first ones.

        Raises:
            CallError: the argument is not a sweep, or a position is out of range.
        """
        expect_type(
            sweep,
            Sweep,
            "a sweep of tables",
            "trl.compose.sweep(…), or Sweep.from_table(table, links).",
        )
        at = at or (0,) * len(sweep.values)
        if len(at) != len(sweep.values) or not all(
            0 <= k < len(some) for k, some in zip(at, sweep.values.values(), strict=True)
        ):
            raise CallError(
                f"the positions {at} are out of range for a sweep over {dict(sweep.values)}.",
                hint="pass one position per parameter, counted from 0.",
            )
        key = tuple(some[k] for k, some in zip(at, sweep.values.values(), strict=True))
        table, links = sweep.tables[key]
        choice = choose(table, links, form)
        known = {(one.manager, one.learner): one for one in choice.all}
        settings = tuple(
            MappingSetting(name, tuple(_format_setting(name, one) for one in some), k)
            for k, (name, some) in zip(at, sweep.values.items(), strict=True)
        )
        devices = tuple(table.devices)
        return cls(
            FORMULAS[form],
            devices,
            settings,
            tuple(
                _cell(known[manager, learner], choice, form)
                for learner in devices
                for manager in devices
            ),
            choice.memory,
            tuple(
                MappingTerm(name, seconds, name == choice.memory)
                for name, seconds in choice.traffic.items()
            ),
            f"replay on {choice.best.manager}, learner on {choice.best.learner}: "
            f"{format_milliseconds(choice.best.seconds, '.4g')}; experience on {choice.memory}",
        )

    @shown
    def text(self) -> str:
        """The view as lines of text."""
        return str(self)

    def __str__(self) -> str:
        lines = [f"{one.name}: {one.values[one.at]}" for one in self.settings]
        lines += [self.formula]
        for cell in self.cells:
            mark = "*" if cell.is_chosen else " "
            where = f"{mark} replay on {cell.manager}, learner on {cell.learner}"
            if cell.seconds is None:
                lines.append(f"{where}: {cell.why_not}")
                continue
            said = ", ".join(f"{one.name} {one.seconds * 1e3:.4g}" for one in cell.terms)
            modelled = ", modelled" * cell.is_modelled
            lines.append(f"{where}: {format_milliseconds(cell.seconds, '.4g')} ({said}){modelled}")
        return "\n".join([*lines, self.summary])


def _format_setting(name: str, value: object) -> str:
    if name == "bandwidth" and isinstance(value, float):
        return f"{value / 1e9:g} GB/s"
    return str(value)


def _cell(one: Iteration, choice: Choice, form: Form) -> MappingCell:
    if one.why_not:
        return MappingCell(one.manager, one.learner, None, None, (), False, False, one.why_not)
    t = one.terms
    if form == "published":
        learns = t["learn"] >= t["update"] + t["insert"]
        beside = {"learn": learns, "insert": not learns, "update": not learns, "comm": False}
    else:
        learns = t["learn"] >= t["insert"]
        beside = {"learn": learns, "insert": not learns}
    return MappingCell(
        one.manager,
        one.learner,
        one.seconds,
        one.experiences(choice.batch),
        tuple(MappingTerm(name, value, beside.get(name, True)) for name, value in t.items()),
        one is choice.best,
        one.is_modelled,
        "",
    )
