"""The folder of a training run: its last state, whole, and a lock that keeps others out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import write_whole
from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.stable_identity import parts_of
from timerl_nb.runtime.state.checkpoint_reader import load_with_metadata
from timerl_nb.runtime.state.checkpoint_writer import safetensors_of
from timerl_nb.runtime.state.run_folder import RunFolder

_FORMAT = "timerl-nb training 2"
_FIRST = "timerl-nb training 1"  # named the algorithm by its repr
_FILE = "training.safetensors"


def _named(algorithm: Any) -> dict[str, str]:
    """Return the identity of an algorithm, by names of its attributes."""
    given = getattr(algorithm, "identity", None)
    if isinstance(given, str):
        return {"algorithm": given}
    return {f"algorithm.{n}".removesuffix("."): text for n, text in parts_of(algorithm).items()}


class KeptTraining(RunFolder):
    """The folder of one training run.

    Args:
        asked: the arguments of the run, by name. A run with others does not go on with what was saved.
        algorithm: the algorithm, whose identity is one of them.

    Raises:
        OptionError: the algorithm has no identity across processes.
    """

    def __init__(
        self, folder: str | os.PathLike[str], asked: Mapping[str, Any], algorithm: Any
    ) -> None:
        super().__init__(folder)
        self._asked = {**asked, **_named(algorithm)}
        self._asked_first = {**asked, "algorithm": repr(algorithm)}

    def begin(self) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Keep others out; what was saved last, and what was said of it; None where nothing was.

        Raises:
            ExecutionError: another run is in the folder, or what is there is of another kind, or damaged.
        """
        self.enter()
        try:
            return self._read_saved()
        except BaseException:
            self.release()
            raise

    def _read_saved(self) -> tuple[dict[str, Array], dict[str, Any]] | None:
        if not self.is_empty:
            raise ExecutionError(
                f"a program has saved its run in {self.path}.",
                hint="give the training a folder of its own.",
            )
        file = self.path / _FILE
        if not file.exists():
            return None
        arrays, said = load_with_metadata(file, links=False)
        if said.get("format") not in (_FORMAT, _FIRST):
            raise ExecutionError(f"{file} is not a saved training run.")
        about = json.loads(said["about"])
        known = self._asked if said["format"] == _FORMAT else self._asked_first
        asked = json.loads(json.dumps(known))
        others = [n for n in asked | about["asked"] if asked.get(n) != about["asked"].get(n)]
        if others:
            raise ExecutionError(
                f"{self.path} is of another training run.",
                evidence=[
                    f"{n}: {about['asked'].get(n)!r} there, {asked.get(n)!r} here" for n in others
                ],
                hint="give this one a folder of its own.",
            )
        return arrays, about

    def save(self, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
        """Write a state in the place of the last, whole or not at all.

        Raises:
            ExecutionError: it cannot be written; the last one is there still.
        """
        said = json.dumps({**about, "asked": self._asked})
        content = safetensors_of(arrays, {"format": _FORMAT, "about": said})
        try:
            write_whole(self.path / _FILE, content)
        except OSError as error:
            raise self._make_write_error(self.path, error) from None
