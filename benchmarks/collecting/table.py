"""Registry of the implementations: factory, required package, and interpreter of each."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.collecting.cell import Cell
from benchmarks.collecting.implementation import Implementation
from benchmarks.collecting.ours import ENVIRONMENTS, NAMES

OWN: Final = ".venv"
MADE_BY: Final = {
    OWN: "make setup",
    ".venv-torch": "make torch-env",
    ".venv-peers": "make peers-env",
}


@dataclass(frozen=True)
class Row:
    """One implementation.

    Attributes:
        module, factory: Location of its factory; the running process imports it.
        needed: Required package outside the lock file.
        venv: Virtual environment with this package.
        own_policy: Whether it uses the peers' policy, with known log-probabilities.
        simulates: Whether it is a pure simulation (Fig. 9).
        is_cartpole: Whether its steps obey CartPole's equations; others only have to move.
    """

    module: str
    factory: str
    needed: str = ""
    venv: str = OWN
    own_policy: bool = True
    simulates: bool = False
    is_cartpole: bool = True

    def make(self, cell: Cell) -> Implementation:
        return getattr(self.imported(), self.factory)(cell)

    def imported(self) -> Any:
        """Import its module and the required package.

        Raises:
            ImportError: A required package is not installed.
        """
        if self.needed:
            importlib.import_module(self.needed)
        return importlib.import_module(f"benchmarks.collecting.{self.module}")


@dataclass(frozen=True)
class Collecting(Row):
    """Row of one of our implementations."""

    env: str = ""
    how: str = ""

    def make(self, cell: Cell) -> Implementation:
        return self.imported().Collected(cell, self.env, self.how)


TORCH: Final = {"needed": "torch", "venv": ".venv-torch"}
PEERS: Final[Mapping[str, Row]] = {
    "Gymnasium, a loop": Row("hosted", "loop"),
    "Gymnasium, a loop + PyTorch": Row("hosted", "loop_torch", **TORCH),
    "Gymnasium, vector": Row("hosted", "vector"),
    "Gymnasium, native": Row("hosted", "native"),
    "Gymnasium, processes": Row("hosted", "processes"),
    "EnvPool": Row("hosted", "threads", "envpool", ".venv-peers"),
    "NumPy, batched": Row("batched", "numpy_batched"),
    "PyTorch, batched": Row("torched", "TorchBatched", **TORCH),
    "JAX, a call a step": Row("jitted", "a_call_a_step"),
    "JAX, scan": Row("jitted", "scan"),
    "gymnax, scan": Row("gymnaxed", "Gymnax", "gymnax", ".venv-peers"),
}
BRAX: Final[Mapping[str, Row]] = {
    f"Brax, {factory}": Row("braxed", factory, "brax", ".venv-peers", is_cartpole=False)
    for factory in ("pendulum", "ant")
}
SIMULATIONS: Final[Mapping[str, Row]] = {
    "JAX, a call a step": Row("simulated", "a_call_a_step", simulates=True),
    "JAX, one call": Row("simulated", "one_call", simulates=True),
    "JAX, blocks": Row("simulated", "blocks", simulates=True),
    "ours": Row("simulated", "ours", simulates=True),
    "ours, blocks": Row("simulated", "ours_in_blocks", simulates=True),
}


def ours() -> dict[str, Row]:
    """Return rows of `trl.collect` for every strategy and environment library; inapplicable ones report the reason."""
    return {
        f"ours, {how}" + (f" of {package}" if package else ""): Collecting(
            "ours",
            "Collected",
            package if venv != OWN else "",
            venv,
            own_policy=False,
            env=env,
            how=how,
        )
        for env, package in ENVIRONMENTS.items()
        for venv in [".venv-peers" if package in ("gymnax", "envpool") else OWN]
        for how in NAMES
    }


TABLE: Final[Mapping[str, Row]] = {**PEERS, **BRAX, **ours()}
