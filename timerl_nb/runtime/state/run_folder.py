"""A folder that a run saves its state in: one state, whole, and a manifest that says what it is.

The manifest takes its place when the state is on the disk, and the state before it goes only then. So a
run that is cut off, while it saves or not, leaves its last state that is whole. A lock that ends with the
process keeps a second run out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import (
    LONGEST_TEXT,
    clear_drafts,
    hold,
    parse_json,
    read_regular,
    user_path,
    write_whole,
)
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.loops.iteration_cuts import Cut
from timerl_nb.runtime.state.checkpoint_writer import TYPES, arrays_of

MANIFEST: Final = "manifest.json"
FORMAT: Final = "timerl run"
VERSION: Final = 1
LOCK: Final = "lock"
_STATE: Final = "state-{}.safetensors"
_IS_STATE: Final = re.compile(r"state-[\w-]+\.safetensors", re.ASCII)  # in no other folder
_DTYPES: Final = {dtype: name for name, dtype in TYPES.items()}


@dataclass(frozen=True)
class Manifest:
    """What a folder says of the run in it.

    Attributes:
        run: tells it from all others, and stays when it is resumed.
        program: digest of what the user wrote.
        graph: digest of what ran.
        bounds: by name.
        how: the executor and its options, in words.
        seed: of all random streams.
        every: how often it saves.
        turn: how many turns are done; `cut` is where in the loop nest that is, None at its end.
        lines: by tensor of the state, the line that wrote it.
        resources: the names of those on the host, in order.
        state: the file with the values; its `nbytes` and `sha256`.
    """

    run: str
    program: str
    graph: str
    bounds: Mapping[str, int]
    how: str
    seed: int
    every: str
    turn: int
    cut: Cut | None
    lines: Mapping[str, str]
    resources: tuple[str, ...]
    state: str = ""
    nbytes: int = 0
    sha256: str = ""

    @property
    def is_finished(self) -> bool:
        return self.cut is None

    def to_json(self) -> dict[str, Any]:
        body = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return {**body, "checksum": checksum_of(body)}


class RunFolder:
    """The folder of one run.

    Attributes:
        path: of the folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = user_path(path)
        self._lock: IO[bytes] | None = None

    # --- who may ---------------------------------------------------------------------------------

    def enter(self) -> None:
        """Keep other runs out, and take away what one that was cut off has left.

        Raises:
            ExecutionError: another run is in it, or it cannot be written to.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = hold(self.path / LOCK)
            clear_drafts(self.path)
            with suppress(ExecutionError):  # what is damaged is left as it is
                self._clear("" if self.is_empty else self.manifest().state)
        except BlockingIOError:
            self.release()
            raise ExecutionError(
                f"another run saves in {self.path}.",
                hint="wait for its end, or give this one a folder of its own.",
            ) from None
        except OSError as error:
            self.release()
            raise self._make_write_error(self.path, error) from None

    def release(self) -> None:
        """Let other runs in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def is_empty(self) -> bool:
        """Whether no run has saved in it."""
        return not (self.path / MANIFEST).exists()

    # --- writing ---------------------------------------------------------------------------------

    def write(self, manifest: Manifest, arrays: Mapping[str, Array]) -> Manifest:
        """Save a state in the place of the last one; returns what is said of it.

        Raises:
            ExecutionError: it cannot be written; the last one is there still.
        """
        # a name of its own, as the last one is there until the manifest names this
        name = _STATE.format(f"{manifest.turn}-{secrets.token_hex(4)}")
        path, found, count = self.path / name, hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal count
            for part in _safetensors(arrays):
                found.update(part)
                count += len(part)
                yield part

        try:
            write_whole(path, counted())
            made = replace(manifest, state=name, nbytes=count, sha256=found.hexdigest())
            text = json.dumps(made.to_json(), indent=1, sort_keys=True)
            write_whole(path := self.path / MANIFEST, text.encode())
        except OSError as error:
            raise self._make_write_error(path, error) from None
        self._clear(name)
        return made

    def _clear(self, keep: str) -> None:
        """Take away all states but one."""
        with suppress(OSError):  # they are only in the way
            for other in self.path.glob(_STATE.format("*")):
                if other.name != keep:
                    other.unlink()

    def _make_write_error(self, path: Path, error: OSError) -> ExecutionError:
        return ExecutionError(
            f"the run cannot save its state in {path}: {error.strerror}.",
            hint="choose a folder that exists or can be made, with space left. What was saved last is "
            "whole.",
        )

    # --- reading ---------------------------------------------------------------------------------

    def read(self) -> tuple[Manifest, dict[str, Array]]:
        """What was saved last.

        Raises:
            ExecutionError: there is nothing, or not what was written: the file and the field are named.
        """
        manifest = self.manifest()
        path = self.path / manifest.state
        content = self._content(path, manifest.nbytes)
        if len(content) != manifest.nbytes:
            raise damaged_run_file_error(
                path, f"has {len(content):,} bytes where {MANIFEST} says {manifest.nbytes:,}"
            )
        if hashlib.sha256(content).hexdigest() != manifest.sha256:
            raise damaged_run_file_error(
                path, f"is not what was written: its checksum is not `sha256` of {MANIFEST}"
            )
        try:
            return manifest, arrays_of(content)
        except Exception as error:
            raise damaged_run_file_error(path, f"is no safetensors file: {error}") from error

    def manifest(self) -> Manifest:
        """What is said of the state that was saved last.

        Raises:
            ExecutionError: as for `read`.
        """
        path = self.path / MANIFEST
        if not path.exists():
            raise ExecutionError(
                f"no run has saved its state in {self.path}.",
                hint="execute(checkpoint=folder, every=10) does so; what ctx.checkpoint writes are "
                "values, with which no run can go on.",
            )
        try:
            given: Any = parse_json(self._content(path, LONGEST_TEXT))
        except ValueError as error:
            raise damaged_run_file_error(path, f"is no JSON: {error}") from None
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise damaged_run_file_error(
                path, f"is no manifest of a run: its `format` is not {FORMAT!r}"
            )
        version = given.pop("version", None)
        if version != VERSION:
            newer = isinstance(version, int) and version > VERSION
            raise ExecutionError(
                f"{path} is of `version` {version!r}; this version of TimeRL-nb reads {VERSION}.",
                hint="update TimeRL-nb." if newer else "it is damaged, or was never whole.",
            )
        checksum = given.pop("checksum", None)
        if checksum != checksum_of({"version": version, **given}):
            raise damaged_run_file_error(path, "is not what was written: its `checksum` is another")
        del given["format"]
        return _manifest(path, given)

    def _content(self, path: Path, most: int) -> bytes:
        try:
            return read_regular(path, most, links=False)
        except OSError as error:
            raise damaged_run_file_error(path, f"cannot be read: {error.strerror}") from None


def _manifest(path: Path, given: dict[str, Any]) -> Manifest:
    """A manifest of the fields of its file."""
    kinds: dict[str, Any] = {
        **dict.fromkeys(("bounds", "lines"), dict),
        **dict.fromkeys(("seed", "turn", "nbytes"), int),
        "cut": dict | None,
        "resources": list,
    }
    for name in (field.name for field in fields(Manifest)):
        if not isinstance(given.get(name, ...), kinds.get(name, str)):
            raise damaged_run_file_error(path, f"has no `{name}`, or one of another kind")
    kinds_within: dict[str, Any] = {"bounds": int, "lines": str, "cut": int}
    for name, kind in kinds_within.items():
        if not all(isinstance(value, kind) for value in (given[name] or {}).values()):
            raise damaged_run_file_error(path, f"has another kind of values in `{name}`")
    if not all(isinstance(name, str) for name in given["resources"]):
        raise damaged_run_file_error(path, "has `resources` that are no names")
    if given["turn"] < 0 or given["nbytes"] < 0:
        raise damaged_run_file_error(path, "has a `turn` or `nbytes` below 0")
    if not _IS_STATE.fullmatch(given["state"]):
        raise damaged_run_file_error(
            path, f"names {given['state']!r} as its `state`, which no run writes"
        )
    cut = given["cut"]
    with suppress(TypeError):
        at = None if cut is None else Cut(**cut)
        return Manifest(**{**given, "cut": at, "resources": tuple(given["resources"])})  # pyrefly: ignore[bad-argument-type]
    raise damaged_run_file_error(path, f"has fields beside those of version {VERSION}")


def damaged_run_file_error(path: Path, what: str) -> ExecutionError:
    """The error of a file of a run that is not what was written."""
    return ExecutionError(
        f"{path} {what}.", hint="take a copy of the folder from before, or begin the run anew."
    )


def checksum_of(body: Mapping[str, Any]) -> str:
    """What tells a body of JSON from all others."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _safetensors(arrays: Mapping[str, Array]) -> Iterator[bytes]:
    """A file of arrays part by part, so that no more than one array is there twice."""
    header: dict[str, Any] = {}
    at = 0
    for name, array in arrays.items():
        end = at + array.nbytes
        kind = _DTYPES[array.dtype]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for array in arrays.values():
        yield np.ascontiguousarray(array).tobytes()
