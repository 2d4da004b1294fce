"""Installed packages are pinned by hash, build tools included; distributions contain licences."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = ("requirements.lock", "requirements.uv.lock", "requirements.build.lock")
UV = Path(sys.executable).parent / "uv"


def pinned(lock: str) -> dict[str, tuple[str, list[str]]]:
    """Return version and hashes by name."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line and not line.lstrip().startswith("#"):
            name, version = re.match(r"([\w.-]+)==(\S+)", line).groups()  # type: ignore[union-attr]
            found[name] = version, re.findall(r"--hash=sha256:([0-9a-f]{64})", line)
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_has_hashes(lock: str) -> None:
    packages = pinned(lock)
    assert packages and all(hashes for _, hashes in packages.values())


def test_what_builds_the_project_is_locked() -> None:
    sys.path.append(str(ROOT / "widgets"))
    import bundle

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], bundle.NODE_WHEEL, "editables"]
    names = {re.split(r"[<>=]", one)[0] for one in wanted}
    assert names <= pinned("requirements.build.lock").keys()


def test_the_lock_has_what_tests_need_and_no_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["lab"], *extras["check"], *extras["test"]]
    names = {re.split(r"[<>=]", one)[0] for one in needed}
    packages = pinned("requirements.lock")
    assert names <= packages.keys()
    assert "nvidia-ml-py" not in packages
    head = (ROOT / "requirements.lock").read_text().splitlines()[1]
    assert (
        "--extra lab --extra check --extra docs --extra test" in head and "--all-extras" not in head
    )


def build(into: Path, constraints: Path) -> subprocess.CompletedProcess[str]:
    """Build a wheel in an empty environment, from uv's cache."""
    command = [str(UV), "build", "--wheel", "--offline", "--no-config", "--out-dir", str(into)]
    return subprocess.run(
        [*command, "--build-constraints", str(constraints), "--require-hashes", str(ROOT)],
        env={**os.environ, "PYTHONPATH": "", "VIRTUAL_ENV": ""},
        capture_output=True,
        text=True,
    )


def test_a_wheel_is_built_with_pinned_tools_and_carries_its_licences(tmp_path: Path) -> None:
    done = build(tmp_path, ROOT / "requirements.build.lock")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = next(name for name in names if name.endswith("METADATA"))
        assert "License-Expression: Apache-2.0" in archive.read(about).decode()
        entry = next(name for name in names if name.endswith("entry_points.txt"))
        assert "timerl = timerl_command:main" in archive.read(entry).decode()
    for part in ("licenses/LICENSE", "licenses/widgets/NOTICES.md", "static/explorer.js"):
        assert any(name.endswith(part) for name in names), part
    assert {
        "timerl_command/__init__.py",
        "timerl_nb/py.typed",
        "timerl_nb/show/static/offline_rendering.js",
        "timerl_nb/datasets/files/README.md",
        "timerl_nb/datasets/files/published/timerl.csv",
        "timerl_nb/datasets/files/streams/ant.stream.gz",
        "timerl_nb/datasets/files/trajectories/cartpole.npz",
    } <= {*names}


def test_a_tool_of_another_hash_builds_nothing(tmp_path: Path) -> None:
    lock = (ROOT / "requirements.build.lock").read_text()
    name, (_, hashes) = "hatchling", pinned("requirements.build.lock")["hatchling"]
    for one in hashes:
        lock = lock.replace(one, "0" * 64)
    (tmp_path / "other.lock").write_text(lock)
    done = build(tmp_path, tmp_path / "other.lock")
    assert done.returncode != 0 and not [*tmp_path.glob("*.whl")]
    assert re.search(f"(?i)hash.*{name}", done.stderr), done.stderr


def test_notices_name_what_is_bundled() -> None:
    notices = re.sub(" +", " ", (ROOT / "widgets/NOTICES.md").read_text())
    packages = json.loads((ROOT / "widgets/package.json").read_text())["dependencies"]
    for name, version in packages.items():
        assert re.search(rf"\| {name} \| {re.escape(version)} \|", notices, re.IGNORECASE), name
    program = (ROOT / "timerl_nb/show/static/offline_rendering.js").read_text(errors="replace")
    (version,) = re.findall(r"\| Graphviz \| ([\d.]+) \|", notices)
    assert f"{version}\\0" in program  # as reported by the compiled program
    assert "Apache License" in (ROOT / "LICENSE").read_text()
