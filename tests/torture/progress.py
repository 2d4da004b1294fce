"""Stored progress of a part, updated after every try, so that interrupted calls can resume."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timerl_nb.base.atomic_files import write_whole


class Progress:
    """Tries of one part.

    Args:
        folder: Common folder; a part has a file and a folder in it.
        name: Name of the part.
        seed: Random seed.
        count: Number of tries; 0 if the part decides.
        seconds: Time limit for new tries.
        said: Callback for every try.

    Attributes:
        done: Tries over all calls.
        wrong: Failures.
        figures: Measurements by name.
        kept: State of the part for resumption.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        seed: int = 0,
        count: int,
        seconds: float = float("inf"),
        said: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.folder, self.name, self.seed = folder / f"{name}-{seed}", name, seed
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file, self._said = self.folder.with_suffix(".json"), said
        known: dict[str, Any] = {}
        if self._file.exists():
            known = json.loads(self._file.read_text())
        self.count = count or known.get("count", 0)
        self.done: int = known.get("done", 0)
        self.wrong: list[str] = known.get("wrong", [])
        self.figures: dict[str, Any] = known.get("figures", {})
        self.kept: dict[str, Any] = known.get("kept", {})
        self._before: float = known.get("seconds", 0.0)
        self._begun = time.monotonic()
        self._end = self._begun + seconds

    @property
    def goes_on(self) -> bool:
        """Return whether a try and time are left."""
        return self.done < self.count and self.has_time

    @property
    def has_time(self) -> bool:
        return time.monotonic() < self._end

    @property
    def seconds(self) -> float:
        """Return the total seconds over all calls."""
        return self._before + time.monotonic() - self._begun

    def add(self, name: str, count: int = 1) -> None:
        """Add to a counter."""
        self.figures[name] = self.figures.get(name, 0) + count

    def most(self, name: str, value: float) -> None:
        """Store the maximum of a figure."""
        self.figures[name] = max(self.figures.get(name, value), value)

    def tried(self, *wrong: str, tries: int = 1) -> None:
        """Record tries and their failures."""
        self.done += tries
        self.wrong += wrong
        for text in wrong:
            self._said(f"{self.name}: {text}")
        self.save()

    def save(self) -> None:
        """Write the progress."""
        write_whole(self._file, json.dumps(self.to_json(), indent=1).encode(), synced=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "part": self.name,
            "seed": self.seed,
            "done": self.done,
            "count": self.count,
            "wrong": self.wrong,
            "seconds": round(self.seconds, 1),
            "figures": self.figures,
            "kept": self.kept,
        }
