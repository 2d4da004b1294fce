"""The example diffs of CONTRIBUTING.md apply to the sources, and their tests pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
# By name, each diff after those that it builds on.
DIFFS = dict(re.findall(r"^<!-- diff: (\w+) -->\n```diff\n(.*?)^```$", PAGE, re.M | re.S))
BASES = {"option": ("pass",), "drawing": ("view",)}
FOLDERS = ("benchmarks", "datasets", "docs", "tests", "timerl_command", "timerl_nb", "widgets")


def run(folder: Path, *command: str, given: str | None = None) -> None:
    """Run a command in a folder; its modules take precedence over installed ones."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        input=given,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_hooks_are_local() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"repo: (\S+)", hooks) == ["local"]
    assert re.findall(r"language: (\S+)", hooks) == ["system"] * 3


def test_the_table_names_existing_tests_for_each_package() -> None:
    packages = {path.parent.name for path in (ROOT / "timerl_nb").glob("*/__init__.py")}
    rows = re.findall(r"^\| (`[a-z/_`, ]+`) \| (.+) \|$", PAGE, re.M)
    named = {name.split("/")[0] for left, _ in rows for name in re.findall(r"`([\w/]+)`", left)}
    assert packages <= named
    tests = [one for _, right in rows for one in re.findall(r"tests/[\w/.]+", right)]
    assert all((ROOT / one).exists() for one in tests)


def test_each_part_has_a_diff_of_at_most_65_lines() -> None:
    names = ["operation", "pass", "option", "environment", "strategy", "view", "drawing"]
    assert list(DIFFS) == [*names, "statistic"]
    assert all(diff.count("\n") <= 65 for diff in DIFFS.values())


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diffs")
@pytest.mark.parametrize("name", DIFFS)
def test_a_diff_applies(name: str) -> None:
    run(ROOT, "git", "apply", "--check", "-", given=DIFFS[name])


@pytest.mark.skipif("TIMERL_FUZZ" not in os.environ, reason="takes minutes: make fuzz")
@pytest.mark.parametrize("name", DIFFS)
def test_a_checkout_with_a_diff_passes_the_checks_and_its_tests(name: str, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for path in ROOT.iterdir():
        if path.is_dir() and path.name in FOLDERS:
            shutil.copytree(path, tmp_path / path.name, ignore=ignored)
        elif path.suffix in (".md", ".toml"):
            shutil.copy(path, tmp_path)
    for shared in (".venv", "widgets/node_modules"):
        (tmp_path / shared).symlink_to(ROOT / shared)
    diffs = [DIFFS[one] for one in (*BASES.get(name, ()), name)]
    for diff in diffs:
        run(tmp_path, "git", "apply", "-", given=diff)
    python, ruff = (str(Path(sys.executable).with_name(one)) for one in ("python", "ruff"))
    run(tmp_path, python, "widgets/models.py")
    run(tmp_path, python, "-m", "docs.generate_map")
    if name == "drawing":
        run(tmp_path, python, "widgets/bundle.py")
        run(tmp_path, python, "widgets/bundle.py", "check")
    run(tmp_path, ruff, "format", "--check", ".")
    run(tmp_path, ruff, "check", ".")
    changed = re.findall(r"^\+\+\+ b/(tests/\S+\.py)$", "".join(diffs), re.M)
    checks = ("test_layers", "test_prose", "test_tables", "unit/project/test_examples")
    tests = [*(f"tests/{one}.py" for one in checks), *changed]
    run(tmp_path, python, "-m", "pytest", "-o", "addopts=-q", "-x", *tests)
