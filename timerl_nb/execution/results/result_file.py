"""A result as one file: arrays, and text that says what they are."""

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
    """Write groups of named arrays, and plain values.

    Raises:
        ExecutionError: the file cannot be written.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise CallError(f"{path!r} names no file.", hint='result.save("runs/first.safetensors").')
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
        hint="choose a file in a folder that exists or can be made, with space left.",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
    return file


def read_result(path: str | os.PathLike[str]) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
    """The groups of arrays, and what is said of them.

    Raises:
        ExecutionError: there is no such file, or not one of a result, or it is damaged.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise CallError(
            f"{path!r} names no file.", hint='trl.Result.load("runs/first.safetensors").'
        )
    file = user_path(path)
    arrays, said = load_with_metadata(file)
    try:
        about: Any = json.loads(said[_ABOUT])
    except (KeyError, TypeError, ValueError):
        raise ExecutionError(
            f"{file} holds no result.",
            hint="trl.load(path) reads the arrays of any safetensors file.",
        ) from None
    version = about.get("version") if isinstance(about, dict) else None
    if version != VERSION:
        raise ExecutionError(
            f"{file} is of `version` {version!r}; this version of TimeRL-nb reads {VERSION}.",
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
    """What a file says of its arrays is not what was written."""
    return ExecutionError(
        f"{os.fspath(file)} is damaged: what it says of its arrays is not whole ({error!r}).",
        hint="take a copy from before.",
    )
