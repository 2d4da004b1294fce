"""Validation of JSON in recording files."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import read_regular
from timerl_nb.base.errors import ExecutionError

NUMBER: Final = (int, float)


def of_version(
    about: Any, versions: Sequence[int], shape: Mapping[str, Any], path: object
) -> dict[str, Any]:
    """Return the fields of a JSON object after a check of its version and shape.

    Args:
        about: parsed JSON value.
        versions: supported versions.
        shape: expected fields; see `fits`.
        path: file name for messages.

    Raises:
        ValueError: a field is missing or has another shape.
        ExecutionError: the version is not supported.
    """
    if not isinstance(about, dict) or "version" not in about:
        raise ValueError("it has no version")
    if about["version"] not in versions:
        raise ExecutionError(
            f"{path} has version {about['version']!r}; supported: {', '.join(map(str, versions))}.",
            hint="read it with the TimeRL-nb version of the recording.",
        )
    for name, one in shape.items():
        if not fits(about.get(name), one):
            said = "has an invalid value" if name in about else "is missing"
            raise ValueError(f"{name!r} {said}")
    return {name: about[name] for name in shape}


def fits(value: Any, shape: Any) -> bool:
    """Return whether a value has a shape.

    Args:
        value: parsed JSON value.
        shape: a type; None; `[shape]` for a list; `{type: shape}` for an object with any keys;
            `{"key": shape, ...}` for an object with these keys; or a tuple of alternative shapes.
    """
    match shape:
        case type():
            return isinstance(value, shape) and not isinstance(value, bool)
        case tuple():
            return any(fits(value, one) for one in shape)
        case [each]:
            return isinstance(value, list) and all(fits(one, each) for one in value)
        case {**keys}:
            if not isinstance(value, dict):
                return False
            of_all = next((one for key, one in keys.items() if isinstance(key, type)), None)
            if of_all is not None:
                return all(fits(one, of_all) for one in value.values())
            return all(key in value and fits(value[key], one) for key, one in keys.items())
        case _:
            return value is shape


def content_of(path: Traversable, most: int) -> bytes:
    """Return the content of a recording file, in a folder or a zip file.

    Args:
        path: the file.
        most: maximum size in bytes.

    Raises:
        OSError: the file is not a regular file, is larger than `most`, or cannot be read.
    """
    if isinstance(path, Path):
        return read_regular(path, most)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return content


def cause(error: Exception) -> str:
    """Return the reason of an error as part of a sentence."""
    match error:
        case OSError() if error.strerror:
            return error.strerror
        case KeyError():
            return f"{error} is missing"
        case json.JSONDecodeError() | UnicodeDecodeError():
            return "it is not valid JSON, or it is truncated"
    return str(error) or type(error).__name__
