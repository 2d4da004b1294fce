"""What JSON in the files of a recording must hold, before anything is made of it."""

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
    """The fields of what a file says, of one of some versions and a shape.

    Raises:
        ValueError: it is of another shape.
        ExecutionError: it is of another version.
    """
    if not isinstance(about, dict) or "version" not in about:
        raise ValueError("it does not say of which version it is")
    if about["version"] not in versions:
        raise ExecutionError(
            f"{path} is of version {about['version']!r}; this is read here: {', '.join(map(str, versions))}.",
            hint="read it with the TimeRL-nb that wrote it.",
        )
    for name, one in shape.items():
        if not fits(about.get(name), one):
            said = "is not what it should be" if name in about else "is missing"
            raise ValueError(f"{name!r} {said}")
    return {name: about[name] for name in shape}


def fits(value: Any, shape: Any) -> bool:
    """Whether a value is of a shape.

    Args:
        shape: a type; None; `[shape]` of a list, `{type: shape}` of an object of any keys, `{"key": shape, ...}` of one
            that has these; or a tuple of shapes, one of which it is.
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
    """Return the content of a file of a recording, in a folder or a zip.

    Raises:
        OSError: the file is no regular one, has more than `most` bytes, or cannot be read.
    """
    if isinstance(path, Path):
        return read_regular(path, most)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return content


def cause(error: Exception) -> str:
    """What an error says of a file, as a part of a sentence."""
    match error:
        case OSError() if error.strerror:
            return error.strerror
        case KeyError():
            return f"{error} is missing"
        case json.JSONDecodeError() | UnicodeDecodeError():
            return "it is no JSON, or was cut off"
    return str(error) or type(error).__name__
