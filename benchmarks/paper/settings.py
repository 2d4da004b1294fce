"""Settings of one run of the command."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Final

from benchmarks.training.report import machine
from benchmarks.works import Work

# Steps of measured programs on a CPU, relative to the paper's.
ON_A_CPU: Final = {"fig9": 1 / 4, "fig10": 1 / 256, "fig11": 1 / 256, "tables": 1 / 16}


@dataclass(frozen=True)
class Settings:
    """How to run the figures.

    Attributes:
        device: `cpu` or `gpu`.
        scale: Environment steps of measured programs, relative to the paper's; None for a default by figure.
        predict: Whether to predict only.
        rounds: Measured iterations per system, after one warm-up iteration.
    """

    device: str = "cpu"
    scale: float | None = None
    predict: bool = False
    rounds: int = 3

    def scale_of(self, figure: str) -> float:
        if self.scale is not None:
            return self.scale
        return 1.0 if self.device == "gpu" else ON_A_CPU[figure]

    @property
    def machine(self) -> str:
        """A description of the machine for the rows."""
        about = machine()
        return (
            f"{about['processor']}, {about['cores']} cores, {about['device']}, jax {about['jax']}"
        )


def fewer_envs(work: Work, scale: float) -> Work:
    """Return a work with fewer environments."""
    return replace(work, envs=max(1, round(work.envs * scale)))


def smaller(work: Work, scale: float) -> Work:
    """Return a work with fewer environments and steps, both by the square root of the scale."""
    side = sqrt(scale)
    return replace(
        work, envs=max(1, round(work.envs * side)), steps=max(2, round(work.steps * side))
    )


def free_memory() -> int:
    """Return the bytes of main memory that are available, as far as the system tells."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    (line,) = (x for x in meminfo.read_text().splitlines() if x.startswith("MemAvailable"))
    return int(line.split()[1]) * 1024


def sizes(work: Work) -> str:
    """Return the sizes of a work for the column `condition`."""
    return f"envs={work.envs}; steps={work.steps}"
