"""The documentation site builds without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_site_builds() -> None:
    command = [sys.executable, "-m", "docs.build_site", "--without-outputs", "--plain"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-3000:]
    assert (ROOT / "build" / "site-plain" / "api" / "trl.html").stat().st_size > 100_000
