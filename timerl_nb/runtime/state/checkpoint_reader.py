"""Reading checkpoints: the arrays that were written, or an error that names the file and the field."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import parse_json, read_regular, user_path
from timerl_nb.base.errors import CallError, ExecutionError
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.runtime.host_memory import main_memory_left
from timerl_nb.runtime.state.checkpoint_writer import CHECKSUMS, TYPES, arrays_of, checksum

_LONGEST: Final = 100_000_000  # bytes of a header, as safetensors has it


@dataclass(frozen=True)
class WrittenCheckpoint:
    """A checkpoint that a run has written: where, at which point, and of what."""

    path: Path
    point: Mapping[str, int]
    names: tuple[str, ...]


@explain_call_errors
def load(path: str | PathLike[str]) -> dict[str, Array]:
    """The named arrays of a checkpoint file: those of `dnn.checkpoint(folder)` are in its folder.

    Other safetensors files are read as well. The arrays are one's own, to be changed at will.

    Raises:
        ExecutionError: there is no such file, it is none of safetensors, cut off, or damaged: the
            file and the field are named.
    """
    if not isinstance(path, str | PathLike) or not str(path):
        raise CallError(
            f"a checkpoint is named by its file, not by {path!r}.",
            hint='trl.load("runs/first/i=9.safetensors").',
        )
    return load_with_metadata(user_path(path))[0]


def load_with_metadata(
    file: Path, *, links: bool = True
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The named arrays of a file, and what is said of them.

    Args:
        links: whether the file's name may be a symbolic link.

    Raises:
        ExecutionError: as for `load`.
    """
    try:
        begin = read_regular(file, first=8, links=links)
        size = int.from_bytes(begin, "little")
        header_text = read_regular(file, first=8 + min(size, _LONGEST), links=links)
        header = _header(file, header_text)
        about = header.pop("__metadata__", {})
        content = read_regular(file, 8 + size + _end_of(file, header), links=links)
    except IsADirectoryError:
        raise ExecutionError(
            f"{file} is a folder.", hint=f"in it are {_list_checkpoints(file)}"
        ) from None
    except FileNotFoundError:
        there = (
            f"in its folder are {_list_checkpoints(file.parent)}" if file.parent.is_dir() else ""
        )
        raise ExecutionError(f"there is no file {file}.", hint=there) from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _damaged_checkpoint_error(file, str(error.strerror)) from None
        raise ExecutionError(f"the checkpoint {file} cannot be read: {error.strerror}.") from None
    _check_fields(file, header, len(content) - 8 - int.from_bytes(content[:8], "little"))
    try:
        found = arrays_of(content)
    except SafetensorError as error:
        raise _damaged_checkpoint_error(file, f"its header says what cannot be: {error}") from None
    _check_values(file, found, about)
    said = about if isinstance(about, dict) else {}
    return {name: array.copy() for name, array in found.items()}, said


def _end_of(file: Path, header: Mapping[str, Any]) -> int:
    """Return the bytes of a file's arrays, of which the main memory must have room for two copies."""
    ends = [entry.get("data_offsets") for entry in header.values() if isinstance(entry, dict)]
    end = max((max(one) for one in ends if _are_sizes(one) and one), default=0)
    left = main_memory_left()
    if left is not None and 2 * min(end, file.stat().st_size) > left.nbytes:
        raise ExecutionError(
            f"the checkpoint {file} has {end:,} bytes of arrays, and reading takes twice as many; "
            f"{left.nbytes:,} bytes of memory are left: {left.why}.",
            hint="end other programs, or read it on a machine with more memory.",
        )
    return end


def _header(file: Path, content: bytes) -> dict[str, Any]:
    """What a file says of itself."""
    size = int.from_bytes(content[:8], "little")
    if not content:
        raise _damaged_checkpoint_error(file, "it is empty")
    if size > _LONGEST or content[8:9] not in (b"{", b""):
        raise ExecutionError(
            f"{file} is no checkpoint: it does not begin as safetensors files do.",
            hint="load what x.checkpoint(folder) has written, or another safetensors file: "
            "safetensors.torch.save_file writes PyTorch's arrays, safetensors.numpy.save_file NumPy's.",
        )
    if len(content) < 8 + size:
        raise _damaged_checkpoint_error(
            file, f"it is cut off inside its header, after {len(content):,} bytes"
        )
    try:
        found: Any = parse_json(content[8 : 8 + size])
    except ValueError as error:
        raise _damaged_checkpoint_error(file, f"its header is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise _damaged_checkpoint_error(file, "its header names no arrays")
    return found


def _check_fields(file: Path, header: Mapping[str, Any], size: int) -> None:
    """Refuse what no array can be, and what lies beyond the file's end."""
    for name, entry in header.items():
        fields: Any = entry if isinstance(entry, dict) else {}
        kind, shape, ends = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
        if kind not in TYPES:
            raise _damaged_checkpoint_error(
                file, f"{name!r} has the element type {kind!r}, which is none of ours"
            )
        if not _are_sizes(shape) or not _are_sizes(ends) or len(ends) != 2:
            raise _damaged_checkpoint_error(
                file, f"{name!r} has the shape {shape!r}, from byte to byte {ends!r}"
            )
        first, end = ends
        if end - first != prod(shape) * TYPES[kind].itemsize:
            raise _damaged_checkpoint_error(
                file, f"{name!r}, {kind} {shape}, does not take {end - first:,} bytes"
            )
        if end > size:
            raise _damaged_checkpoint_error(
                file, f"it is cut off: {name!r} goes to byte {end:,} of {size:,} that there are"
            )


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check_values(file: Path, found: Mapping[str, Array], about: Any) -> None:
    """Compare values with the checksums that were written with them; other writers have none."""
    text = about.get(CHECKSUMS) if isinstance(about, dict) else None
    if text is None:
        return
    try:
        written: Any = parse_json(text)
    except ValueError as error:
        raise _damaged_checkpoint_error(file, f"its checksums are no JSON: {error}") from None
    if not isinstance(written, dict) or written.keys() != found.keys():
        raise _damaged_checkpoint_error(file, "its checksums are of other arrays than there are")
    for name, array in found.items():
        if written[name] != checksum(array):
            raise _damaged_checkpoint_error(
                file, f"{name!r} is not what was written, by its checksum"
            )


def _damaged_checkpoint_error(file: Path, what: str) -> ExecutionError:
    return ExecutionError(
        f"the checkpoint {file} is damaged: {what}.",
        hint="take another one, or write it again; nothing of it is used.",
    )


def _list_checkpoints(folder: Path) -> str:
    """The checkpoints in a folder."""
    found = sorted((p.name for p in folder.glob("*.safetensors")), key=lambda n: (len(n), n))
    shown = [*found[:6], f"… ({len(found)} in all)"] if len(found) > 7 else found
    return f"the checkpoints {', '.join(shown)}." if found else "no checkpoints."
