"""Base class of view-models: frozen dataclasses that convert to JSON, messages with buffers, and pictures.

The JSON of a view-model consists of its public fields and its `shown` properties; `widgets/models.py`
generates the TypeScript types from them. Selectable items carry `op_ids`, ids of operations of any stage;
`Lineage` relates the ids of different stages. `docs/reference/view-models.md` lists all view-models.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import user_path, write_whole
from timerl_nb.base.display_registry import Displayed
from timerl_nb.base.errors import OptionError, explain_os_errors
from timerl_nb.show import offline_rendering

T = TypeVar("T")


class shown(cached_property[T]):
    """Property of a view-model that is part of its JSON."""


@dataclass(frozen=True)
class Key:
    """Name of a field or `shown` property in JSON, as an annotation; None omits it."""

    name: str | None


HIDDEN: Final = Key(None)
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


class View(Displayed):
    """View-model: the data of one view, as plain values.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> view = trl.show.LoopView.from_program(program)
        >>> view.to_json()["view"]
        'loop'
    """

    view: ClassVar[str]  # the name of the view-model

    def to_svg(self) -> str:
        """Return the view as an SVG picture with a background, for static pages.

        The widgets' drawing code produces it. A view without a drawing becomes a picture of its text.
        """
        return offline_rendering.call("draw", self.to_json(), str(self))

    def to_json(self) -> dict[str, Any]:
        """Return the view as JSON values."""
        return jsonable(self, np.ndarray.tolist)

    def to_message(self) -> tuple[dict[str, Any], list[memoryview]]:
        """Return the view as JSON and a list of binary buffers.

        The JSON contains `{"buffer": k, "dtype": "int32", "shape": [n]}` in place of an array: the k-th
        buffer, little-endian, in row-major order.
        """
        buffers: list[memoryview] = []

        def place(array: Array) -> dict[str, Any]:
            buffers.append(memoryview(array.tobytes()))
            shape = list(array.shape)
            return {"buffer": len(buffers) - 1, "dtype": str(array.dtype), "shape": shape}

        return jsonable(self, place), buffers

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to an SVG file.

        Args:
            path: the file; its ending is `.svg`.

        Raises:
            OptionError: the file has another ending.
            ExecutionError: the file cannot be written.
        """
        file = user_path(path)
        if file.suffix.lower() != ".svg":
            raise OptionError(
                f"pictures are saved as SVG, but {file.name!r} has another ending.",
                hint=f"save it as {file.with_suffix('.svg').name!r}, or export a PNG from the explorer.",
            )
        with explain_os_errors(
            f"the picture {file} cannot be written",
            hint="choose a writable folder with free space.",
        ):
            write_text(file, self.to_svg())


def jsonable(value: Any, array: Callable[[Array], Any]) -> Any:
    """Convert a value to JSON: dataclasses by their parts, sets in sorted order, arrays by `array`."""
    if type(value) in _PLAIN:  # most values of a view
        return value
    if type(value) is tuple:
        return [jsonable(one, array) for one in value]
    if isinstance(value, np.ndarray):
        return array(value)
    if is_dataclass(value):
        of = {"view": value.view} if isinstance(value, View) else {}
        named = parts(type(value)).items()
        return of | {key: jsonable(getattr(value, name), array) for key, (name, _) in named}
    if isinstance(value, Mapping):
        return {str(key): jsonable(one, array) for key, one in value.items()}
    if isinstance(value, frozenset):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return [jsonable(one, array) for one in value]
    return value.item() if isinstance(value, np.generic) else value


@cache
def parts(kind: type) -> Mapping[str, tuple[str, Any]]:
    """Return the parts of a dataclass's JSON: the attribute and its type, by key."""
    hints = get_type_hints(kind, include_extras=True)
    named = {field.name: hints[field.name] for field in fields(kind)}
    for base in reversed(kind.__mro__):
        for name, one in vars(base).items():
            if isinstance(one, shown):
                named[name] = get_type_hints(one.func, include_extras=True)["return"]
    found: dict[str, tuple[str, Any]] = {}
    for name, hint in named.items():
        key: str | None = None if name.startswith("_") else name
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
            key = next((mark.name for mark in marks if isinstance(mark, Key)), key)
        if key is not None:
            found[key] = name, hint
    return found


def ints(values: Any) -> Array:
    """Convert values to an array for buffers."""
    return np.ascontiguousarray(values, dtype=np.int32)


def amounts(values: Any) -> Array:
    """Convert numbers of bytes to an array for buffers. They may exceed 32 bits; float64 is exact up to 2**53."""
    return np.ascontiguousarray(values, dtype=np.float64)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, and create missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())
