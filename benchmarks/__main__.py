"""Command line of the benchmarks:

`python -m benchmarks [NAME …]` prints tables in Markdown. See `README.md`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

README: Final = Path(__file__).with_name("README.md")
COMMANDS: Final[Mapping[str, str]] = {
    "acs": "acs.page:main",
    "budgets": "memory.budgets:main",
    "collect": "collecting:main",
    "compose": "replay.composing:main",
    "datasets": "datasets:main",
    "engines": "compiler.engines:main",
    "full": "training.report:full",
    "grain": "compiler.grain:main",
    "learning": "training.learning:main",
    "off-policy": "training.off_policy:main",
    "overlap": "scope.overlap:main",
    "race": "training.report:raced",
    "replay": "replay:main",
    "scope": "scope:main",
    "seeds": "training.seeds:main",
    "short": "training.report:short",
    "stock": "training.stock_ppo:main",
    "taps": "scope.taps:main",
    "temporaries": "memory.temporaries:main",
    "tiles": "memory.tiles:main",
    "explorer": "compiler.explorer_waits:main",
}
# No machine header: callers parse the output of these benchmarks, or fork before JAX starts
# threads.
QUIET: Final[Mapping[str, str]] = {
    "accuracy": "scope.accuracy:main",
    "held": "memory.budgets:measure",
    "lines": "lines:main",
    "overlapping": "scope.overlap:measure",
    "paper": "paper:main",
    "recorded": "scope.overhead:measure",
    "resident": "training.race:measure_resident",
    "streams": "acs.streams:main",
    "targets": "targets:main",
}


def main(*words: str) -> None:
    """Run the command named by the first argument, with the remaining arguments.

    Raises:
        SystemExit: No such command exists.
    """
    os.environ.setdefault("TIMERL_CACHE", "0")  # the first caller pays for compilation
    name, *rest = words or ("short",)
    if name in QUIET:
        resolve_name(f"benchmarks.{QUIET[name]}")(*rest)
        return
    if name not in COMMANDS:
        sys.exit(README.read_text(encoding="utf-8"))
    run = resolve_name(f"benchmarks.{COMMANDS[name]}")
    machine = resolve_name("benchmarks.training.report:machine")()
    print(", ".join(f"{what} {value}" for what, value in machine.items()) + "\n")
    run(*rest)


if __name__ == "__main__":
    main(*sys.argv[1:])
