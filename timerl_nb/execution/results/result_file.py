"""Result files: arrays and JSON metadata in one safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import user_path, write_whole
from timerl_nb.base.errors import CallError, ExecutionError, explain_os_errors
from timerl_nb.runtime.state.checkpoint_reader import load_with_metadata
from timerl_nb.runtime.state.checkpoint_writer import safetensors_of

VERSION: Final = 1
_ABOUT: Final = "timerl result"
Groups = Mapping[str, Mapping[str, Array]]


def write_result(path: str | os.PathLike[str], groups: Groups, about: Mapping[str, Any]) -> Path:
    """Write named groups of arrays, and JSON values, to one file.

    Raises:
        CallError: `path` is empty or not a path.
        ExecutionError: The file cannot be written.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise CallError(
            f"{path!r} is not a file name.", hint='call result.save("runs/first.safetensors").'
        )
    file = user_path(path)
    named = {
        f"{group}: {n}": (group, n, x) for group, found in groups.items() for n, x in found.items()
    }
    text = {
        "version": VERSION,
        "arrays": {key: [group, name] for key, (group, name, _) in named.items()},
        **about,
    }
    content = safetensors_of({key: x for key, (*_, x) in named.items()}, {_ABOUT: json.dumps(text)})
    with explain_os_errors(
        f"the result cannot be written to {file}",
        hint="choose a file in a writable folder, on a disk with free space.",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
    return file


def read_result(path: str | os.PathLike[str]) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
    """Read the groups of arrays and the JSON values of a result file.

    Raises:
        CallError: `path` is empty or not a path.
        ExecutionError: The file does not exist, is not a result, or is damaged.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise CallError(
            f"{path!r} is not a file name.", hint='call trl.Result.load("runs/first.safetensors").'
        )
    file = user_path(path)
    arrays, said = load_with_metadata(file)
    try:
        about: Any = json.loads(said[_ABOUT])
    except (KeyError, TypeError, ValueError):
        raise ExecutionError(
            f"{file} is not a result file.",
            hint="trl.load(path) reads the arrays of any safetensors file.",
        ) from None
    version = about.get("version") if isinstance(about, dict) else None
    if version != VERSION:
        raise ExecutionError(
            f"{file} has `version` {version!r} of the format; this version of TimeRL-nb reads {VERSION}.",
            hint="update TimeRL-nb." if isinstance(version, int) and version > VERSION else "",
        )
    found: dict[str, dict[str, Array]] = {}
    try:
        for key, (group, name) in about["arrays"].items():
            found.setdefault(group, {})[name] = arrays[key]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged_result_error(file, error) from None
    return found, about


def damaged_result_error(file: str | os.PathLike[str], error: Exception) -> ExecutionError:
    """Return the error for a result file whose list of arrays is inconsistent."""
    return ExecutionError(
        f"{os.fspath(file)} is damaged: its list of arrays is inconsistent ({error!r}).",
        hint="restore the file from a backup, or run the program again.",
    )
