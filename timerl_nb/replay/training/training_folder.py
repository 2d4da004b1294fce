"""Folder of a training run: its last saved state, and a lock against simultaneous runs."""

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
_FIRST = "timerl-nb training 1"  # earlier format; identifies the algorithm by its repr
_FILE = "training.safetensors"
# arguments by their names in older folders
_RENAMED = {"least": "learning_starts", "algorithm.share": "algorithm.tau"}


def _named(algorithm: Any) -> dict[str, str]:
    """Return the parts of an algorithm's identity, by attribute name."""
    given = getattr(algorithm, "identity", None)
    if isinstance(given, str):
        return {"algorithm": given}
    return {f"algorithm.{n}".removesuffix("."): text for n, text in parts_of(algorithm).items()}


class SavedTraining(RunFolder):
    """Folder of one training run.

    Args:
        folder: the folder.
        asked: the arguments of the run by name; a saved run with other arguments is not resumed.
        algorithm: the algorithm; its identity is one of the compared arguments.

    Raises:
        OptionError: the algorithm has no identity across processes.
    """

    def __init__(
        self, folder: str | os.PathLike[str], asked: Mapping[str, Any], algorithm: Any
    ) -> None:
        super().__init__(folder)
        self._arguments = {**asked, **_named(algorithm)}
        self._arguments_of_format_1 = {**asked, "algorithm": repr(algorithm)}

    def begin(self) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Lock the folder, and return the saved arrays and their description; None for an empty folder.

        Raises:
            ExecutionError: another run uses the folder, or the saved run differs or is damaged.
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
                f"{self.path} contains the saved run of a program, not of a training.",
                hint="choose another folder for the training.",
            )
        file = self.path / _FILE
        if not file.exists():
            return None
        arrays, said = load_with_metadata(file, links=False)
        if said.get("format") not in (_FORMAT, _FIRST):
            raise ExecutionError(
                f"{file} is not a saved training run.",
                hint="choose another folder for the training.",
            )
        about = json.loads(said["about"])
        known = self._arguments if said["format"] == _FORMAT else self._arguments_of_format_1
        asked = json.loads(json.dumps(known))
        saved = {_RENAMED.get(n, n): x for n, x in about["asked"].items()}
        if isinstance(text := saved.get("algorithm"), str):  # a repr in the first format
            saved["algorithm"] = text.replace(", share=", ", tau=")
        others = [n for n in asked | saved if asked.get(n) != saved.get(n)]
        if others:
            raise ExecutionError(
                f"{self.path} contains a training run with other arguments.",
                evidence=[
                    f"{n}: {saved.get(n)!r} in the folder, {asked.get(n)!r} here" for n in others
                ],
                hint="choose another folder for this run, or pass the saved arguments.",
            )
        return arrays, about

    @property
    def has_save(self) -> bool:
        """Whether the folder has a saved state."""
        return (self.path / _FILE).exists()

    def save(self, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
        """Replace the saved state atomically.

        Raises:
            ExecutionError: the state cannot be written; the previous one remains.
        """
        said = json.dumps({**about, "asked": self._arguments})
        content = safetensors_of(arrays, {"format": _FORMAT, "about": said})
        try:
            write_whole(self.path / _FILE, content)
        except OSError as error:
            raise self._make_write_error(self.path, error) from None
