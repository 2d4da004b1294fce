"""What every view-model is: a frozen value that becomes JSON, a message with buffers, or a picture.

A view-model, and whatever is in it, is a dataclass: its JSON is its public fields, and what is marked
`shown`. So are the types that the page has of it (`widgets/models.py`). Items that can be selected carry
`op_ids`, the ids of operations of any stage; what belongs together follows from the `Lineage`.
`docs/reference/view-models.md` has a table for each.
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
    """A property of a view-model that its JSON has, beside the fields."""


@dataclass(frozen=True)
class Key:
    """What a field or `shown` property is called in JSON, by `Annotated`; None leaves it out."""

    name: str | None


HIDDEN: Final = Key(None)


class View(Displayed):
    """A view-model: what a page draws, as plain values."""

    view: ClassVar[str]  # which view-model it is

    def to_svg(self) -> str:
        """The view as a picture on a background, for pages where nothing runs.

        It is drawn by what draws it in a page; a view that has no drawing is its text.
        """
        return offline_rendering.call("draw", self.to_json(), str(self))

    def to_json(self) -> dict[str, Any]:
        """The view as JSON values alone."""
        return jsonable(self, np.ndarray.tolist)

    def to_message(self) -> tuple[dict[str, Any], list[memoryview]]:
        """The view as JSON and binary buffers.

        In place of an array stands `{"buffer": k, "dtype": "int32", "shape": [n]}`: it is the k-th
        buffer, little-endian, row by row.
        """
        buffers: list[memoryview] = []

        def place(array: Array) -> dict[str, Any]:
            buffers.append(memoryview(array.tobytes()))
            shape = list(array.shape)
            return {"buffer": len(buffers) - 1, "dtype": str(array.dtype), "shape": shape}

        return jsonable(self, place), buffers

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, which must be called `.svg`.

        Raises:
            OptionError: the name ends otherwise.
            ExecutionError: the file cannot be written.
        """
        file = user_path(path)
        if file.suffix.lower() != ".svg":
            raise OptionError(
                f"a picture is saved as SVG, not as {file.name!r}.",
                hint=f"save it as {file.with_suffix('.svg').name!r}; the explorer exports PNG.",
            )
        with explain_os_errors(
            f"the picture {file} cannot be written",
            hint="choose a folder that exists, with space left.",
        ):
            write_text(file, self.to_svg())


def jsonable(value: Any, array: Callable[[Array], Any]) -> Any:
    """A value as JSON: dataclasses by their parts, sets in order, and arrays as `array` has them."""
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
    """What the JSON of a dataclass has: by key, the attribute and its type."""
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
    """An array as buffers carry it."""
    return np.ascontiguousarray(values, dtype=np.int32)


def amounts(values: Any) -> Array:
    """Numbers of bytes, which may be beyond 32 bits, as buffers carry them: exact up to 2**53."""
    return np.ascontiguousarray(values, dtype=np.float64)


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all, and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())
