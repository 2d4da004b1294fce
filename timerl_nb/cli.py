"""The command `timerl`: its name is taken, what it will do is said, and what does so meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

MEANWHILE: Final[Mapping[str, str]] = {
    "lab": "in a checkout: make lab",
    "train": "program.execute() in a script, with .checkpoint(folder) in the program",
    "explain": 'print(program.stages["ast"].artifact), or program.export_html("program.html")',
    "bench": "in a checkout: make bench",
    "profile": "trl.profile(program)",
}


def main(words: Sequence[str] | None = None) -> int:
    """Say what stands for a command; 2, as for a command that is not known."""
    given = list(sys.argv[1:] if words is None else words)
    asked = [name for name in MEANWHILE if name in given[:1]] or list(MEANWHILE)
    print("timerl has no commands yet. Meanwhile:", file=sys.stderr)
    for name in asked:
        print(f"  timerl {name:8}  {MEANWHILE[name]}", file=sys.stderr)
    return 2
