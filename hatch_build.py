"""Lets hatch build, before it packs or installs the project, the widgets' bundles and the C extensions.

A wheel also contains a copy of `datasets`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
sys.path.append(str(ROOT / "widgets"))  # hatch loads this file by its path

import bundle  # noqa: E402

PACKAGE = ROOT / "timerl_nb"
SOURCES = (
    PACKAGE / "scope" / "wrappers" / "_tap.c",
    PACKAGE / "replay" / "prioritization" / "_replay.c",
    PACKAGE / "streams" / "_segments.c",
)


class BuildHook(BuildHookInterface[Any]):
    """Builds what is not fresh; asks for a Node from PyPI where the machine has none."""

    def dependencies(self) -> list[str]:
        return [] if bundle.is_fresh() or bundle.has_npm() else [bundle.NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not bundle.is_fresh():
            bundle.build()
        if version != "editable" and self.target_name == "wheel":
            build_data["force_include"][str(ROOT / "datasets")] = "timerl_nb/datasets/files"
        for source in SOURCES:
            if version == "editable":
                built_extension(source, source.parent)
            elif self.target_name == "wheel":
                made = built_extension(source, Path(tempfile.mkdtemp()))
                if made is not None:  # a wheel of this platform alone
                    where = source.with_name(made.name).relative_to(ROOT)
                    build_data["force_include"][str(made)] = where.as_posix()
                    build_data["pure_python"] = False
                    build_data["infer_tag"] = True


def built_extension(source: Path, folder: Path) -> Path | None:
    """Build a C extension; return None if it cannot be built: Python code does the same.

    With TIMERL_REQUIRE_C set it must be built.
    """
    made = folder / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    made.unlink(missing_ok=True)
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    linking = (
        ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    )
    include = f"-I{sysconfig.get_path('include')}"
    of = f"-DSOURCE={zlib.crc32(source.read_bytes())}L"  # `load_extension` compares it
    # one rounding per operation, as NumPy
    words = [*shlex.split(compiler), "-O3", "-ffp-contract=off", "-fPIC", *linking, include, of]
    words += [str(source), "-o", str(made)]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
        failed = done.returncode and (done.stderr or f"{words[0]}: status {done.returncode}")
    except OSError as error:
        failed = f"{words[0]}: {error.strerror}"
    if not failed:
        return made
    made.unlink(missing_ok=True)
    if os.environ.get("TIMERL_REQUIRE_C"):
        raise RuntimeError(
            f"{source.name} cannot be built:\n{failed}\n"
            "What to do: install a C compiler and Python's headers (Debian: gcc python3-dev)."
        )
    return None
