"""Checkpoints: safetensors files, written whole or not at all."""

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

# Seconds after which nobody writes a draft any more: several runs may write checkpoints in one folder.
_IDLE: Final = 600.0


def checkpoint_file(folder: str, point: Mapping[str, int]) -> Path:
    """`folder/i=9.safetensors`; `folder/final.safetensors` for a program without iterations."""
    name = ",".join(f"{d}={v}" for d, v in point.items()) or "final"
    return user_path(folder) / f"{name}.safetensors"


def write_checkpoint(
    folder: str, point: Mapping[str, int], arrays: Mapping[str, Any], origin: Origin | None = None
) -> Path:
    """Write named arrays for one point; returns the file. `origin` is the line that asks for it.

    Raises:
        ExecutionError: the folder cannot be written to.
    """
    path = checkpoint_file(folder, point)
    payload = safetensors_of(arrays, {d: str(v) for d, v in point.items()})
    with explain_os_errors(
        f"the checkpoint {path} cannot be written",
        origin=origin,
        hint="choose a folder that exists or can be made, with space left.",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, payload)
        clear_drafts(path.parent, _IDLE)
    return path


def safetensors_of(arrays: Mapping[str, Any], about: Mapping[str, str]) -> bytes:
    """A safetensors file of named arrays, with a checksum of each and what is said of them."""
    values = {n: np.asarray(x, order="C") for n, x in arrays.items()}
    sums = json.dumps({n: checksum(x) for n, x in values.items()})
    return to_bytes(values, metadata={**about, CHECKSUMS: sums})


def arrays_of(content: bytes) -> dict[str, Array]:
    """The named arrays of a safetensors file's content."""
    found: dict[str, Array] = {}
    for name, entry in deserialize(content):
        flat = np.frombuffer(entry["data"], TYPES[entry["dtype"]])
        found[name] = flat.reshape(entry["shape"])
    return found


CHECKSUMS: Final = "checksums of values"  # no dimension can be called so


def checksum(array: Array) -> str:
    """What tells whether an array is what was written: of its type, shape and bytes."""
    head = f"{array.dtype.name} {list(array.shape)} "
    return hashlib.sha256(head.encode() + array.tobytes()).hexdigest()


# by their names in files; safetensors' own reader for NumPy knows no bfloat16
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
