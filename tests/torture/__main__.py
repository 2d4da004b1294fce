"""`make torture`: stress tests of long runs.

`python -m tests.torture [PART …] [--seed SEED] [--minutes MINUTES] [--folder FOLDER]` runs each
part in a separate process with a time limit, and resumes interrupted calls. It prints failures and
a table. `table.json` in the folder (build/torture by default) has the same data.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.torture import (
    batches,
    clock,
    costs,
    cycles,
    faults,
    kills,
    recordings,
    toggles,
    training,
    trainings,
    turns,
    writers,
)
from tests.torture.progress import Progress

WHOLE = (
    kills,
    faults,
    writers,
    clock,
    turns,
    toggles,
    cycles,
    recordings,
    costs,
    batches,
    training,
    trainings,
)
PARTS = {part.__name__.rpartition(".")[2]: part for part in WHOLE}
FOLDER = Path("build/torture")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.torture", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=None, help="in all; each part has its own")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--here", type=float, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = sorted(set(given.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}: there are {', '.join(PARTS)}.")
    folder, asked = given.folder.resolve(), given.parts or list(PARTS)
    if given.here is not None:
        (name,) = asked
        PARTS[name].run(_progress(folder, name, given.seed, given.here))
        return 0
    end = float("inf") if given.minutes is None else time.monotonic() + 60 * given.minutes
    failed = [name for name in asked if not _apart(folder, name, given.seed, end)]
    rows = [_progress(folder, name, given.seed).to_json() for name in asked]
    (folder / "table.json").write_text(json.dumps(rows, indent=1))
    print(table(rows))
    for name in failed:
        print(f"{name} did not come to its end: what it said is above.")
    return int(bool(failed) or any(row["wrong"] for row in rows))


def _progress(folder: Path, name: str, seed: int, seconds: float = 0.0) -> Progress:
    def said(text: str) -> None:
        print(text, flush=True)

    return Progress(folder, name, seed=seed, count=PARTS[name].COUNT, seconds=seconds, said=said)


def _apart(folder: Path, name: str, seed: int, end: float) -> bool:
    """Run a part in a separate process; return whether it finished."""
    seconds = min(60 * PARTS[name].MINUTES, end - time.monotonic())
    if seconds <= 0:
        return True
    print(f"{name}: {PARTS[name].ABOUT}", flush=True)
    command = [sys.executable, "-m", "tests.torture", name, "--seed", str(seed)]
    env = {
        # a shared cache avoids a hundred equal compilations; `cycles` must compile
        "TIMERL_CACHE": "0" if name == "cycles" else str(folder / "cache"),
        "TIMERL_PROGRESS": "0",
        "JAX_PLATFORMS": "cpu",
    }
    more = ["--folder", str(folder), "--here", str(seconds)]
    return not subprocess.run([*command, *more], env={**os.environ, **env}, check=False).returncode


def table(rows: list[dict[str, object]]) -> str:
    """Format the parts as Markdown."""
    lines = [
        "| part | tried | of | found wrong | seconds | measured |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = row["figures"]
        assert isinstance(figures, dict)
        wrong = row["wrong"]
        assert isinstance(wrong, list)
        said = "; ".join(f"{name}: {value}" for name, value in sorted(figures.items()))
        cells = (row["part"], row["done"], row["count"], len(wrong), row["seconds"], said)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
