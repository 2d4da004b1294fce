"""Writing of checkpoints: safetensors files, each replaced in one step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import deserialize
from safetensors.numpy import save as to_bytes

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import clear_drafts, user_path, write_whole
from timerl_nb.base.errors import Origin, explain_os_errors
from timerl_nb.compiler.ir.shapes import NUMPY

# Age in seconds at which a temporary file is considered abandoned. Younger ones may belong to
# another run that writes to the same folder.
_IDLE: Final = 600.0


def checkpoint_file(folder: str, point: Mapping[str, int]) -> Path:
    """Return `folder/i=9.safetensors`, or `folder/final.safetensors` for a program without iterations."""
    name = ",".join(f"{d}={v}" for d, v in point.items()) or "final"
    return user_path(folder) / f"{name}.safetensors"


def write_checkpoint(
    folder: str, point: Mapping[str, int], arrays: Mapping[str, Any], origin: Origin | None = None
) -> Path:
    """Write the named arrays of one point, and return the file.

    Args:
        folder: Folder of the checkpoints.
        point: Point in the program.
        arrays: Arrays by name.
        origin: Line of the request in the user's program.

    Raises:
        ExecutionError: The folder cannot be written.
    """
    path = checkpoint_file(folder, point)
    payload = safetensors_of(arrays, {d: str(v) for d, v in point.items()})
    with explain_os_errors(
        f"the checkpoint {path} cannot be written",
        origin=origin,
        hint="choose a writable folder, on a disk with free space.",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, payload)
        clear_drafts(path.parent, _IDLE)
    return path


def safetensors_of(arrays: Mapping[str, Any], about: Mapping[str, str]) -> bytes:
    """Return the content of a safetensors file with named arrays, their checksums and metadata."""
    values = {n: np.asarray(x, order="C") for n, x in arrays.items()}
    sums = json.dumps({n: checksum(x) for n, x in values.items()})
    return to_bytes(values, metadata={**about, CHECKSUMS: sums})


def arrays_of(content: bytes) -> dict[str, Array]:
    """Return the named arrays in the content of a safetensors file."""
    found: dict[str, Array] = {}
    for name, entry in deserialize(content):
        flat = np.frombuffer(entry["data"], TYPES[entry["dtype"]])
        found[name] = flat.reshape(entry["shape"])
    return found


CHECKSUMS: Final = "checksums of values"  # not a valid name of a dimension, so it cannot clash


def checksum(array: Array) -> str:
    """Return a checksum of an array's type, shape and bytes."""
    head = f"{array.dtype.name} {list(array.shape)} "
    return hashlib.sha256(head.encode() + array.tobytes()).hexdigest()


# names of types in files; the NumPy reader of safetensors lacks bfloat16
TYPES: Final = {
    "BOOL": NUMPY["bool"],
    "I8": NUMPY["i8"],
    "U8": NUMPY["u8"],
    "I16": NUMPY["i16"],
    "I32": NUMPY["i32"],
    "U16": np.dtype(np.uint16),
    "U32": NUMPY["u32"],
    "U64": np.dtype(np.uint64),
    "I64": NUMPY["i64"],
    "BF16": NUMPY["bf16"],
    "F16": NUMPY["f16"],
    "F32": NUMPY["f32"],
    "F64": NUMPY["f64"],
}
