"""Reading of checkpoints and other safetensors files, with checks for damage."""

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
from timerl_nb.runtime.host_memory import available_main_memory
from timerl_nb.runtime.state.checkpoint_writer import CHECKSUMS, TYPES, arrays_of, checksum

_LONGEST: Final = 100_000_000  # maximum bytes of a header, by the safetensors format


@dataclass(frozen=True)
class WrittenCheckpoint:
    """Checkpoint of a run: path, point, and names of its arrays."""

    path: Path
    point: Mapping[str, int]
    names: tuple[str, ...]


@explain_call_errors
def load(path: str | PathLike[str]) -> dict[str, Array]:
    """Read the named arrays of a checkpoint file, or of any safetensors file.

    `dnn.checkpoint(folder)` writes such files into its folder. The arrays are writable copies.

    Args:
        path: Path of the file.

    Returns:
        The arrays by name.

    Raises:
        CallError: `path` is empty or not a path.
        ExecutionError: The file does not exist, is not a safetensors file, or is damaged. The message
            names the file and the field.

    Example:
        >>> ctx.output("root", trl.sqrt(trl.data(np.arange(3.0), domain=i)))
        >>> path = ctx.compile({B: 1, I: 3, T: 1}).execute().save("first.safetensors")
        >>> trl.load(path)["output: root"].shape
        (3,)
    """
    if not isinstance(path, str | PathLike) or not str(path):
        raise CallError(
            f"{path!r} is not a file name.",
            hint='call trl.load("runs/first/i=9.safetensors").',
        )
    return load_with_metadata(user_path(path))[0]


def load_with_metadata(
    file: Path, *, links: bool = True
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read the named arrays and the metadata of a file.

    Args:
        file: Path of the file.
        links: Whether the file may be a symbolic link.

    Raises:
        ExecutionError: As for `load`.
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
            f"{file} is a folder.", hint=f"it contains {_list_checkpoints(file)}"
        ) from None
    except FileNotFoundError:
        there = (
            f"its folder contains {_list_checkpoints(file.parent)}" if file.parent.is_dir() else ""
        )
        raise ExecutionError(f"the file {file} does not exist.", hint=there) from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _damaged_checkpoint_error(file, str(error.strerror)) from None
        raise ExecutionError(
            f"the checkpoint {file} cannot be read: {error.strerror}.",
            hint="check the permissions of the file and its folders.",
        ) from None
    _check_fields(file, header, len(content) - 8 - int.from_bytes(content[:8], "little"))
    try:
        found = arrays_of(content)
    except SafetensorError as error:
        raise _damaged_checkpoint_error(file, f"its header is inconsistent: {error}") from None
    _check_values(file, found, about)
    said = about if isinstance(about, dict) else {}
    return {name: array.copy() for name, array in found.items()}, said


def _end_of(file: Path, header: Mapping[str, Any]) -> int:
    """Return the bytes of a file's arrays, after a check that two copies of them fit into main memory."""
    ends = [entry.get("data_offsets") for entry in header.values() if isinstance(entry, dict)]
    end = max((max(one) for one in ends if _are_sizes(one) and one), default=0)
    left = available_main_memory()
    if left is not None and 2 * min(end, file.stat().st_size) > left.nbytes:
        raise ExecutionError(
            f"the checkpoint {file} has {end:,} bytes of arrays, and reading needs twice as many; "
            f"{left.nbytes:,} bytes of memory are available: {left.why}.",
            hint="end other programs, or read it on a machine with more memory.",
        )
    return end


def _header(file: Path, content: bytes) -> dict[str, Any]:
    """Parse the header of a file."""
    size = int.from_bytes(content[:8], "little")
    if not content:
        raise _damaged_checkpoint_error(file, "it is empty")
    if size > _LONGEST or content[8:9] not in (b"{", b""):
        raise ExecutionError(
            f"{file} is not a checkpoint: it does not begin like a safetensors file.",
            hint="pass a file that x.checkpoint(folder) has written, or another safetensors file: "
            "safetensors.torch.save_file writes PyTorch's arrays, safetensors.numpy.save_file NumPy's.",
        )
    if len(content) < 8 + size:
        raise _damaged_checkpoint_error(
            file, f"it is truncated inside its header, after {len(content):,} bytes"
        )
    try:
        found: Any = parse_json(content[8 : 8 + size])
    except ValueError as error:
        raise _damaged_checkpoint_error(file, f"its header is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _damaged_checkpoint_error(file, "its header lists no arrays")
    return found


def _check_fields(file: Path, header: Mapping[str, Any], size: int) -> None:
    """Check types, shapes and byte ranges of all arrays against each other and the file's length."""
    for name, entry in header.items():
        fields: Any = entry if isinstance(entry, dict) else {}
        kind, shape, ends = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
        if kind not in TYPES:
            raise _damaged_checkpoint_error(
                file, f"{name!r} has the element type {kind!r}, which TimeRL-nb does not have"
            )
        if not _are_sizes(shape) or not _are_sizes(ends) or len(ends) != 2:
            raise _damaged_checkpoint_error(
                file, f"{name!r} has the shape {shape!r} and the byte range {ends!r}"
            )
        first, end = ends
        if end - first != prod(shape) * TYPES[kind].itemsize:
            raise _damaged_checkpoint_error(
                file, f"{name!r}, {kind} {shape}, does not fit its {end - first:,} bytes"
            )
        if end > size:
            raise _damaged_checkpoint_error(
                file, f"it is truncated: {name!r} ends at byte {end:,} of {size:,}"
            )


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check_values(file: Path, found: Mapping[str, Array], about: Any) -> None:
    """Compare the arrays with their checksums. Files of other programs have none."""
    text = about.get(CHECKSUMS) if isinstance(about, dict) else None
    if text is None:
        return
    try:
        written: Any = parse_json(text)
    except ValueError as error:
        raise _damaged_checkpoint_error(file, f"its checksums are not JSON: {error}") from None
    if not isinstance(written, dict) or written.keys() != found.keys():
        raise _damaged_checkpoint_error(file, "its checksums belong to other arrays")
    for name, array in found.items():
        if written[name] != checksum(array):
            raise _damaged_checkpoint_error(file, f"{name!r} does not match its checksum")


def _damaged_checkpoint_error(file: Path, what: str) -> ExecutionError:
    return ExecutionError(
        f"the checkpoint {file} is damaged: {what}.",
        hint="read another checkpoint, or write this one again; none of its arrays are used.",
    )


def _list_checkpoints(folder: Path) -> str:
    """List the checkpoints in a folder, in words."""
    found = sorted((p.name for p in folder.glob("*.safetensors")), key=lambda n: (len(n), n))
    shown = [*found[:6], f"… ({len(found)} in all)"] if len(found) > 7 else found
    return f"the checkpoints {', '.join(shown)}." if found else "no checkpoints."
