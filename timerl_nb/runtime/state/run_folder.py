"""Folder with the saved state of a run, and a manifest that describes it.

A new manifest replaces the old one only when the new state is on the disk, and the old state is deleted
after that. A run that is killed at any moment leaves a complete state. A lock keeps other runs out; it
ends with the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Set
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
from timerl_nb.compiler.ir.random_bits import DEFAULT
from timerl_nb.compiler.loops.iteration_cuts import Cut
from timerl_nb.runtime.state.checkpoint_writer import TYPES, arrays_of

MANIFEST: Final = "manifest.json"
FORMAT: Final = "timerl run"
VERSION: Final = 1
LOCK: Final = "lock"
_STATE: Final = "state-{}.safetensors"
_IS_STATE: Final = re.compile(r"state-[\w-]+\.safetensors", re.ASCII)  # no path separators
# fields of a manifest that differ from one state of a run to the next
_OF_STATE: Final = frozenset({"turn", "cut", "lines", "state", "nbytes", "sha256"})
_DTYPES: Final = {dtype: name for name, dtype in TYPES.items()}


@dataclass(frozen=True)
class Manifest:
    """Description of the run in a folder.

    Attributes:
        run: Identifier of the run; it stays the same when the run is resumed.
        program: Digest of the user's program.
        graph: Digest of the executed graph.
        bounds: Bounds by name.
        how: Executor and options, in words.
        seed: Seed of all random streams.
        every: Saving interval.
        turn: Number of completed iterations.
        cut: Position in the loop nest; None at its end.
        lines: Source line of each saved tensor, by name.
        resources: Names of the resources on the host, in order.
        state: Name of the file with the values.
        nbytes: Size of the file.
        sha256: Checksum of the file.
        random: Generator of random numbers; early manifests do not state the only one of their time.
        extendable: Fields of an earlier state, from which a run of more iterations can continue; None
            if this is such a state, or if there is none.
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
    random: str = DEFAULT
    extendable: Mapping[str, Any] | None = None

    @property
    def extendable_part(self) -> dict[str, Any]:
        """The fields that differ from one state of a run to the next."""
        fields_of_state = asdict(self)
        return {name: fields_of_state[name] for name in _OF_STATE}

    @property
    def earlier(self) -> Manifest | None:
        """The manifest of the `extendable` state."""
        if self.extendable is None:
            return None
        cut = Cut(**self.extendable["cut"])
        return replace(self, **{**self.extendable, "cut": cut, "extendable": None})

    @property
    def states(self) -> set[str]:
        """Names of the files with values."""
        more = () if self.extendable is None else (self.extendable["state"],)
        return {self.state, *more}

    @property
    def is_finished(self) -> bool:
        return self.cut is None

    def to_json(self) -> dict[str, Any]:
        body = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return {**body, "checksum": checksum_of(body)}


class RunFolder:
    """Folder of one run.

    Args:
        path: Path of the folder.
        is_written: False for a process that runs the program together with another one, which writes.

    Attributes:
        path: Path of the folder, with `~` expanded.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_written: bool = True) -> None:
        self.path, self._is_written = user_path(path), is_written
        self._lock: IO[bytes] | None = None

    # --- lock ------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Lock the folder, and remove temporary files of killed runs.

        Raises:
            ExecutionError: Another run uses the folder, or it cannot be written.
        """
        if not self._is_written:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = hold(self.path / LOCK)
            clear_drafts(self.path)
            with suppress(ExecutionError):  # a damaged folder stays as it is
                self._clear(set() if self.is_empty else self.manifest().states)
        except BlockingIOError:
            self.release()
            raise ExecutionError(
                f"another run saves its state in {self.path}.",
                hint="wait for its end, or pass another folder.",
            ) from None
        except OSError as error:
            self.release()
            raise self._make_write_error(self.path, error) from None

    def release(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def is_empty(self) -> bool:
        """Whether no run has saved its state here."""
        return not (self.path / MANIFEST).exists()

    # --- writing ---------------------------------------------------------------------------------

    def write(self, manifest: Manifest, arrays: Mapping[str, Array]) -> Manifest:
        """Replace the saved state, and return its manifest.

        Raises:
            ExecutionError: The state cannot be written. The previous state is still valid.
        """
        if not self._is_written:
            return manifest
        # a new name, as the previous state stays until the manifest is replaced
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
        self._clear(made.states)
        return made

    def _clear(self, keep: Set[str]) -> None:
        """Delete all states except some."""
        with suppress(OSError):  # leftover states do no harm
            for other in self.path.glob(_STATE.format("*")):
                if other.name not in keep:
                    other.unlink()

    def _make_write_error(self, path: Path, error: OSError) -> ExecutionError:
        return ExecutionError(
            f"the run cannot save its state in {path}: {error.strerror}.",
            hint="choose a writable folder, on a disk with free space. The previously saved state is "
            "complete.",
        )

    # --- reading ---------------------------------------------------------------------------------

    def read(self, manifest: Manifest | None = None) -> tuple[Manifest, dict[str, Array]]:
        """Return the saved state and its manifest.

        Args:
            manifest: The manifest of the state; by default the folder's.

        Raises:
            ExecutionError: No state is saved, or it is damaged. The message names the file and the field.
        """
        manifest = self.manifest() if manifest is None else manifest
        path = self.path / manifest.state
        content = self._content(path, manifest.nbytes)
        if len(content) != manifest.nbytes:
            raise damaged_run_file_error(
                path, f"has {len(content):,} bytes, but {MANIFEST} states {manifest.nbytes:,}"
            )
        if hashlib.sha256(content).hexdigest() != manifest.sha256:
            raise damaged_run_file_error(
                path, f"is damaged: its checksum differs from `sha256` in {MANIFEST}"
            )
        try:
            return manifest, arrays_of(content)
        except Exception as error:
            raise damaged_run_file_error(path, f"is not a safetensors file: {error}") from error

    def manifest(self) -> Manifest:
        """Return the manifest of the saved state.

        Raises:
            ExecutionError: As for `read`.
        """
        path = self.path / MANIFEST
        if not path.exists():
            raise ExecutionError(
                f"no run has saved its state in {self.path}.",
                hint="execute(checkpoint=folder, every=10) saves it. Checkpoints of ctx.checkpoint contain "
                "values only, and no run can resume from them.",
            )
        try:
            given: Any = parse_json(self._content(path, LONGEST_TEXT))
        except ValueError as error:
            raise damaged_run_file_error(path, f"is not JSON: {error}") from None
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise damaged_run_file_error(
                path, f"is not the manifest of a run: its `format` is not {FORMAT!r}"
            )
        version = given.pop("version", None)
        if version != VERSION:
            newer = isinstance(version, int) and version > VERSION
            raise ExecutionError(
                f"{path} has `version` {version!r} of the format; this version of TimeRL-nb reads {VERSION}.",
                hint="update TimeRL-nb." if newer else "restore the folder from a backup.",
            )
        checksum = given.pop("checksum", None)
        if checksum != checksum_of({"version": version, **given}):
            raise damaged_run_file_error(path, "is damaged: its `checksum` does not match")
        del given["format"]
        return _manifest(path, given)

    def _content(self, path: Path, most: int) -> bytes:
        try:
            return read_regular(path, most, links=False)
        except OSError as error:
            raise damaged_run_file_error(path, f"cannot be read: {error.strerror}") from None


def _manifest(path: Path, given: dict[str, Any]) -> Manifest:
    """Build a manifest from the fields of its file, after checks of their types."""
    kinds: dict[str, Any] = {
        **dict.fromkeys(("bounds", "lines"), dict),
        **dict.fromkeys(("seed", "turn", "nbytes"), int),
        "cut": dict | None,
        "extendable": dict | None,
        "resources": list,
    }
    given = {"random": DEFAULT, "extendable": None, **given}
    for name in (field.name for field in fields(Manifest)):
        if not isinstance(given.get(name, ...), kinds.get(name, str)):
            raise damaged_run_file_error(path, f"has no `{name}` of the right type")
    kinds_within: dict[str, Any] = {"bounds": int, "lines": str, "cut": int}
    for name, kind in kinds_within.items():
        if not all(isinstance(value, kind) for value in (given[name] or {}).values()):
            raise damaged_run_file_error(path, f"has values of a wrong type in `{name}`")
    if not all(isinstance(name, str) for name in given["resources"]):
        raise damaged_run_file_error(path, "has `resources` that are not names")
    if given["turn"] < 0 or given["nbytes"] < 0:
        raise damaged_run_file_error(path, "has a `turn` or `nbytes` below 0")
    if not _IS_STATE.fullmatch(given["state"]):
        raise damaged_run_file_error(path, f"has the `state` {given['state']!r}, an unknown name")
    if (earlier := given["extendable"]) is not None:
        if earlier.keys() != _OF_STATE or earlier["cut"] is None:
            raise damaged_run_file_error(path, "has an `extendable` state of other fields")
        _manifest(path, {**given, **earlier, "extendable": None})
    cut = given["cut"]
    with suppress(TypeError):
        at = None if cut is None else Cut(**cut)
        return Manifest(**{**given, "cut": at, "resources": tuple(given["resources"])})  # pyrefly: ignore[bad-argument-type]
    raise damaged_run_file_error(path, f"has fields that are unknown in version {VERSION}")


def damaged_run_file_error(path: Path, what: str) -> ExecutionError:
    """Return the error for a damaged file of a run."""
    return ExecutionError(
        f"{path} {what}.",
        hint="restore the folder from a backup, or start the run from the beginning.",
    )


def checksum_of(body: Mapping[str, Any]) -> str:
    """Return a checksum of a JSON object."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _safetensors(arrays: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield a safetensors file in parts, so that at most one array is copied at a time."""
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
