"""Requests of pages: validates messages before anything acts on them.

Pages are not trusted: everyone with access to the comm can send any message. Each valid message becomes a
frozen value of plain types; others raise an `OptionError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from timerl_nb.show.widget_api import OptionError, one_of

COMMANDS: Final = ("start", "pause", "resume", "step", "stop", "speed", "pause_when")


@dataclass(frozen=True)
class SetOptions:
    """Compile again with changed options."""

    changes: Mapping[str, Any]


@dataclass(frozen=True)
class SetBounds:
    """Compile again with changed bounds."""

    changes: Mapping[str, int]


@dataclass(frozen=True)
class SetArgument:
    """Show the program at another position of an argument."""

    name: str
    at: int


@dataclass(frozen=True)
class Sweep:
    """Predict the programs of all values of an argument and measure some; or stop the sweep."""

    argument: str
    stop: bool


@dataclass(frozen=True)
class Inspect:
    """Describe operations as of a stage; for the `tensors`, only these outputs."""

    ids: tuple[int, ...]
    tensors: tuple[tuple[int, int], ...]
    stage: str


@dataclass(frozen=True)
class Search:
    """Search operations in all stages."""

    query: str
    kind: str | None
    region: str | None
    changed: bool


@dataclass(frozen=True)
class Fold:
    """Fold or open a cluster of the graph."""

    key: str
    folded: bool


@dataclass(frozen=True)
class Detail:
    """Create the detail of a line in a stage's text."""

    name: str


@dataclass(frozen=True)
class Command:
    """Command for the run; `speed` is in turns per second, None for no limit; `condition` is that of a breakpoint.

    The page numbers its commands, and shows a command as pending until its `number` is acknowledged.
    """

    name: str
    number: int = 0
    speed: float | None = None
    condition: str | None = None


@dataclass(frozen=True)
class Compare:
    """Keep the shown program for comparison with later changes, or end the comparison."""

    close: bool


@dataclass(frozen=True)
class CompareGraphs:
    """Draw the graphs of both compared programs at a stage, after folding or opening a cluster of them."""

    stage: str
    cluster: str
    folded: bool


@dataclass(frozen=True)
class Zoom:
    """Draw a time window of a recording, for all tracks or those of one process."""

    begin: int
    end: int
    width: int
    process: int | None


@dataclass(frozen=True)
class Collect:
    """Measure the collection strategies for a number of environments and of steps per batch."""

    envs: int
    steps: int


@dataclass(frozen=True)
class Cancel:
    """Cancel the compiling change and all pending changes."""


@dataclass(frozen=True)
class Shown:
    """A page shows the widget."""


Request = (
    Shown
    | Cancel
    | SetOptions
    | SetBounds
    | SetArgument
    | Sweep
    | Inspect
    | Search
    | Fold
    | Detail
    | Command
    | Compare
    | CompareGraphs
    | Zoom
    | Collect
)


def parse(message: object) -> Request:
    """Return the request in a message.

    Raises:
        OptionError: the message is unknown, or its values have the wrong types.
    """
    if not isinstance(message, Mapping):
        raise OptionError("the message is not an object with a kind.")
    match message.get("kind"):
        case "shown":
            return Shown()
        case "cancel":
            return Cancel()
        case "options":
            return SetOptions(_names(message.get("changes")))
        case "bounds":
            changes = _names(message.get("changes"))
            for name, value in changes.items():
                if isinstance(value, bool) or not isinstance(value, int):
                    raise OptionError(
                        f"{name} = {value!r} is not a bound.", hint="pass an integer."
                    )
            return SetBounds(changes)
        case "argument":
            at = message.get("at")
            if not isinstance(at, int) or isinstance(at, bool):
                raise OptionError(f"{at!r} is not a position.", hint="pass an integer.")
            return SetArgument(_text(message, "name") or "", at)
        case "sweep":
            return Sweep(_text(message, "argument") or "", message.get("stop") is True)
        case "inspect":
            ids = message.get("ids")
            if not isinstance(ids, list) or not all(_is_id(k) for k in ids):
                raise OptionError("the operations are not a list of ids.")
            pairs = message.get("tensors", [])
            if not isinstance(pairs, list) or not all(_is_tensor(pair) for pair in pairs):
                raise OptionError("a tensor is not a pair of operation id and output number.")
            tensors = tuple((op_id, out) for op_id, out in pairs)
            return Inspect(tuple(dict.fromkeys(ids)), tensors, _text(message, "stage") or "")
        case "search":
            kind, region = _text(message, "of_kind"), _text(message, "region")
            return Search(
                _text(message, "query") or "", kind, region, message.get("changed") is True
            )
        case "fold":
            return Fold(_text(message, "id") or "", message.get("folded") is True)
        case "detail":
            return Detail(_text(message, "name") or "")
        case "run":
            return _command(message)
        case "zoom":
            given = [message.get(field) for field in ("begin", "end", "width")]
            whole = [k for k in given if isinstance(k, int) and not isinstance(k, bool)]
            process = message.get("process")
            if len(whole) < len(given) or not (process is None or _is_id(process)):
                raise OptionError("the time window lacks an integer begin, end or width.")
            begin, end, width = whole
            return Zoom(begin, end, width, process)
        case "collect":
            sizes = [message.get(field) for field in ("envs", "steps")]
            counts = [k for k in sizes if isinstance(k, int) and not isinstance(k, bool) and k > 0]
            if len(counts) < len(sizes):
                raise OptionError(
                    "the numbers of environments and steps are not positive integers."
                )
            return Collect(*counts)
        case "compare graphs":
            cluster = _text(message, "id") or ""
            stage = _text(message, "stage") or ""
            return CompareGraphs(stage, cluster, message.get("folded") is True)
        case "compare":
            return Compare(message.get("close") is True)
        case other:
            raise OptionError(f"the request {other!r} is unknown.")


def is_bookmark(value: Mapping[str, Any]) -> bool:
    """Whether a value from a page is a bookmark of the explorer."""
    if set(value) != {"name", "stage", "ids", "instant"}:
        return False
    ids, instant = value["ids"], value["instant"]
    texts = isinstance(value["name"], str) and isinstance(value["stage"], str)
    return (
        texts
        and isinstance(ids, list)
        and all(map(_is_id, ids))
        and (instant is None or _is_id(instant))
    )


def _command(message: Mapping[Any, Any]) -> Command:
    name, value, number = (message.get(field) for field in ("command", "value", "number"))
    if name not in COMMANDS:
        raise OptionError(f"the command {name!r} is unknown.", hint=one_of(str(name), COMMANDS))
    count = number if isinstance(number, int) else 0
    if name == "pause_when":
        return Command(name, count, condition=_text(message, "value") or None)
    if name != "speed" or value is None:
        return Command(name, count)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise OptionError(f"{value!r} is not a speed.", hint="pass turns per second, or None.")
    return Command(name, count, float(value))


def _names(changes: object) -> dict[str, Any]:
    if not isinstance(changes, Mapping) or not all(isinstance(k, str) for k in changes):
        raise OptionError("the changes are not values by name.")
    return dict(changes)


def _text(message: Mapping[Any, Any], field: str) -> str | None:
    value = message.get(field)
    if value is None or isinstance(value, str):
        return value
    raise OptionError(f"{field} is {value!r}, not a text.")


def _is_tensor(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_id, value))


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
