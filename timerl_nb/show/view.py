"""What every view-model is: a frozen value that becomes JSON, a message with buffers, or a picture.

Items that can be selected carry `op_ids`, the ids of operations of any stage; what belongs together
follows from the `Lineage`. `docs/view-models.md` has a table for each.
"""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from timerl_nb.errors import OptionError

Array = np.ndarray[Any, np.dtype[Any]]


class View(ABC):
    """A view-model: what a page draws, as plain values."""

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """JSON values, with NumPy arrays (int32 or float64, of one or two axes) where they are long."""

    @abstractmethod
    def to_svg(self) -> str:
        """The view as a picture on a background, for pages where nothing runs."""

    @abstractmethod
    def __str__(self) -> str: ...

    def to_json(self) -> dict[str, Any]:
        """The view as JSON values alone."""
        return _plain(self.values())

    def to_message(self) -> tuple[dict[str, Any], list[memoryview]]:
        """The view as JSON and binary buffers.

        In place of an array stands `{"buffer": k, "dtype": "int32", "shape": [n]}`: it is the k-th
        buffer, little-endian, row by row.
        """
        return message(self.values())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, which must be called `.svg`.

        Raises:
            OptionError: the name ends otherwise.
        """
        file = Path(path)
        if file.suffix.lower() != ".svg":
            raise OptionError(
                f"a picture is saved as SVG, not as {file.name!r}.",
                hint=f"save it as {file.with_suffix('.svg').name!r}; the explorer exports PNG.",
            )
        write_whole(file, self.to_svg())

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> Mapping[str, object]:
        bundle: dict[str, object] = {"text/plain": str(self)}
        try:
            bundle["image/svg+xml"] = self.to_svg()
        except Exception as error:  # a failure to draw must leave the text
            warnings.warn(f"{type(self).__name__} could not be drawn: {error!r}", stacklevel=2)
        return bundle


def message(values: Any) -> tuple[Any, list[memoryview]]:
    """Values with arrays as JSON and binary buffers; see `View.to_message`."""
    buffers: list[memoryview] = []
    return _split(values, buffers), buffers


def ints(values: Any) -> Array:
    """An array as buffers carry it."""
    return np.ascontiguousarray(values, dtype=np.int32)


def amounts(values: Any) -> Array:
    """Numbers of bytes, which may be beyond 32 bits, as buffers carry them: exact up to 2**53."""
    return np.ascontiguousarray(values, dtype=np.float64)


def write_whole(path: Path, text: str) -> None:
    """Write a file at once: whoever reads it finds the old text or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o666 & ~_umask())
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def one_line(text: str, limit: int) -> str:
    """A text in a line of at most `limit` characters."""
    flat = re.sub(r"\s+", " ", text).strip()
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def _split(value: Any, buffers: list[memoryview]) -> Any:
    if isinstance(value, np.ndarray):
        buffers.append(memoryview(value.tobytes()))
        return {"buffer": len(buffers) - 1, "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {str(key): _split(one, buffers) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_split(one, buffers) for one in value]
    return value.item() if isinstance(value, np.generic) else value
