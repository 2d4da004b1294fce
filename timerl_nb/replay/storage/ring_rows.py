"""Ring of rows, in memory or, above a size, in memory-mapped files: one array per field.

Small fields in memory are views of one array of records, so a row occupies one or two cache lines.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array, misfit, narrow_array, numbers_of
from timerl_nb.base.atomic_files import hold, user_path
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.argument_checks import element_type, integer


@dataclass(frozen=True)
class Field:
    """Shape and element type of one field of a row."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.dtype}{[*self.shape] if self.shape else ''}"

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def fields_of(given: Any) -> dict[str, Field]:
    """Parse fields as users write them: `{"obs": ((4,), "f32"), "action": ((), "i32")}`.

    Raises:
        OptionError, ShapeError: a field is not a shape with an element type.
    """
    if not isinstance(given, Mapping) or not given:
        raise OptionError(
            "the fields are not a mapping from names to shapes and element types.",
            hint='write {"obs": ((4,), "f32"), "action": ((), "i32"), "reward": ((), "f32")}.',
        )
    found: dict[str, Field] = {}
    for name, one in given.items():
        if not (isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], tuple | list)):
            raise OptionError(
                f"the field {name!r} is {one!r}, not a pair of shape and element type.",
                hint=f'write "{name}": ((), "f32").',
            )
        shape = tuple(integer(f"a size of {name!r}", n, least=0) for n in one[0])
        found[str(name)] = Field(shape, NUMPY[element_type(one[1])])
    return found


class Rows:
    """Rows as arrays [capacity, …], by field.

    Args:
        folder: the folder of the files, locked while the rows exist. By default a temporary folder.
        above: size in bytes above which the rows are in files.
        extension: the C extension of the buffer, or None.
        expected: the expected size in bytes of data beside the rows.

    Raises:
        ExecutionError: other rows are in the folder, or the folder is not writable.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field],
        folder: str | os.PathLike[str] | None,
        above: int,
        extension: Any = None,
        expected: int = 0,
    ) -> None:
        self._extension = extension
        self.capacity, self.fields = capacity, dict(fields)
        self.stored_fields = self.fields  # a subclass may store rows in another form
        self._files: list[str] = []
        place = None
        self._lock: IO[bytes] | None = None  # lock of the folder; closed in a forked process
        if self._row_bytes + expected > above:
            place = user_path(tempfile.mkdtemp(prefix="replay-") if folder is None else folder)
            if folder is None:
                weakref.finalize(self, _remove, place, os.getpid())
            self._lock = _lock_folder(place)
            weakref.finalize(self, self._lock.close)
        self._place = place
        small = [n for n, f in fields.items() if place is None and 0 < f.nbytes <= _SMALL]
        small.sort(key=lambda n: -fields[n].dtype.itemsize)  # padding at the end only
        # a field's name need not be a valid name in a record
        layout = [(str(k), fields[n].dtype, fields[n].shape) for k, n in enumerate(small)]
        self._records = np.zeros(capacity if small else 0, np.dtype(layout, align=True))
        self._names = {n: str(k) for k, n in enumerate(small)}
        self._arrays = {
            n: self._records[self._names[n]]
            if n in small
            else self._allocate(n, (capacity, *f.shape), f.dtype)
            for n, f in self.fields.items()
        }

    @property
    def nbytes(self) -> int:
        """The size of a full buffer's rows in bytes."""
        return self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return self.capacity * sum(f.nbytes for f in self.stored_fields.values())

    def _allocate(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array of zeros, in a file if the rows are in files."""
        if self._place is None:
            return np.zeros(shape, dtype)
        try:
            # a field's name need not be a valid file name
            path = self._place / f"{len(self._files)}.rows"
            self._files.append(name)
            return np.asarray(np.memmap(path, dtype, "w+", shape=shape))
        except OSError as error:
            raise _unwritable(self._place, error) from None

    def _check_process(self) -> None:
        """Check that this process created the files: writes of a forked process would change the parent's rows.

        Raises:
            ExecutionError: another process created the files.
        """
        if self._lock is not None and self._lock.closed:
            raise ExecutionError(
                "the rows of this buffer are in files of the parent process.",
                hint="create a new buffer with another folder in the forked process, or send rows to the parent.",
            )

    def plain(self, rows: Mapping[str, Any]) -> bool:
        """Return whether rows are NumPy arrays [count, …] of exactly the fields and their types, the usual case."""
        if rows.keys() != self.fields.keys():
            return False
        counts = set()
        for name, field in self.fields.items():
            x = rows[name]
            if not isinstance(x, np.ndarray) or x.dtype != field.dtype or not x.ndim:
                return False
            count, *shape = x.shape
            if tuple(shape) != field.shape:
                return False
            counts.add(count)
        return len(counts) == 1

    def convert_rows(
        self, rows: Mapping[str, Any], names: Any, fields: Mapping[str, Field] | None = None
    ) -> dict[str, Array]:
        """Convert rows to arrays [steps, count, …] of the fields' types.

        Args:
            names: the names of the required fields.
            fields: the fields; by default those of an entry.

        Raises:
            ShapeError: a field is missing, or its shape, type or count differs.
        """
        fields = self.fields if fields is None else fields
        wrong = [f"{n} is missing" for n in names if n not in rows]
        found: dict[str, Array] = {}
        ahead: dict[str, tuple[int, ...]] = {}
        for name in (n for n in names if n in rows):
            field = fields.get(name, FLAG)
            x = numbers_of(name, rows[name])
            lead = x.ndim - len(field.shape)
            if lead not in (1, 2) or x.shape[lead:] != field.shape:
                wrong.append(
                    f"{name} has the shape {list(x.shape)}, the field has {list(field.shape)} per row"
                )
            elif said := misfit(x, field.dtype):
                known = f" ({said})" if said.startswith("integers") else ""
                wrong.append(f"{name} is {x.dtype.name}, the field is {field.dtype.name}{known}")
            else:
                x = narrow_array(name, x, field.dtype)
                ahead[name] = x.shape[:lead]
                found[name] = x if lead == 2 else x[None]
        if len(set(ahead.values())) > 1:
            wrong.append("counts differ: " + ", ".join(f"{n} {list(s)}" for n, s in ahead.items()))
        if wrong:
            raise ShapeError(
                f"the rows do not match the buffer in {len(wrong)} of their fields.",
                evidence=wrong[:20],
                hint="pass each field as an array [count, …] or [steps, environments, …].",
            )
        return found

    def insert_plain(
        self, start: int, rows: Mapping[str, Any], priority: float, tree: tuple[Any, ...] | None
    ) -> int:
        """Write rows and their priority in one call of the C extension.

        Args:
            start: the slot of the first row.
            priority: the priority of all rows.
            tree: the arguments of the sum tree, or None.

        Returns:
            The number of rows; -1, with nothing changed, if the rows are not `plain` or more than all slots, or
            without the C extension.
        """
        if self._extension is None:
            return -1
        self._check_process()
        of = tree or (None, None, None, None, self.capacity, None)
        return self._extension.insert(*of, start, priority, self._arrays, rows, np.ndarray)

    def write(self, start: int, rows: Mapping[str, Array]) -> None:
        """Write rows into consecutive slots from `start` on; slot 0 follows the last slot."""
        self._check_process()
        count = len(next(iter(rows.values())))
        split = min(count, self.capacity - start)
        for name, x in rows.items():
            kept = self._arrays[name]
            kept[start : start + split] = x[:split]
            if split < count:
                kept[: count - split] = x[split:]

    def gather(self, index: Array) -> dict[str, Array]:
        """Return copies of the rows in some slots, [count, …] by field."""
        self._check_process()
        if self._extension is not None:
            count = len(index)
            found = {n: np.empty((count, *f.shape), f.dtype) for n, f in self.stored_fields.items()}
            self._extension.gather(self._arrays, index, found)
            return found
        records = self._records.take(index) if self._names else self._records
        return {
            n: records[self._names[n]].copy() if n in self._names else x.take(index, axis=0)
            for n, x in self._arrays.items()
        }

    def first_rows(self, count: int) -> dict[str, Array]:
        """Return views of the first rows."""
        self._check_process()
        return {name: x[:count] for name, x in self._arrays.items()}

    def saved(self, count: int) -> dict[str, Array]:
        """Return the first rows as arrays for `load`; they may be views."""
        return {f"row {n}": x for n, x in self.first_rows(count).items()}

    def check_saved(self, arrays: Mapping[str, Array]) -> None:
        """Check the arrays of `saved`, except for the shapes and types of rows.

        Raises:
            KeyError, ValueError: they are damaged.
        """

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Write the rows returned by `saved`, from slot 0 on."""
        Rows.write(self, 0, {n: arrays[f"row {n}"] for n in self.fields})


def _lock_folder(place: Path) -> IO[bytes]:
    """Create a folder and lock it.

    Raises:
        ExecutionError: other rows are in it, or it is not writable.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        return hold(place / _LOCK)
    except BlockingIOError:
        raise ExecutionError(
            f"another buffer stores its rows in {place}.",
            hint="choose another folder, or delete the other buffer first.",
        ) from None
    except OSError as error:
        raise _unwritable(place, error) from None


def _unwritable(place: Path, error: OSError) -> ExecutionError:
    return ExecutionError(
        f"rows cannot be written to {place}: {error.strerror}.",
        hint="choose a writable folder with free space.",
    )


def _remove(place: Path, process: int) -> None:
    """Remove a temporary folder, except in a forked process."""
    if os.getpid() == process:
        shutil.rmtree(place, ignore_errors=True)


_SMALL: Final = 256  # bytes
_LOCK: Final = "rows.lock"
FLAG: Final = Field((), np.dtype(np.bool_))
