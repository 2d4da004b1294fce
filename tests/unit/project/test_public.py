"""`import timerl_nb as trl` exports the user's names, and no others."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import timerl_nb as trl

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
PUBLIC = (
    *(
        "algorithms",
        "compose",
        "datasets",
        "exchange",
        "distributions",
        "env",
        "logs",
        "nn",
        "optim",
        "policies",
        "random",
        "replay",
        "scope",
        "show",
        "streams",
        "tune",
    ),
)


@pytest.mark.parametrize("module", [trl, *(getattr(trl, name) for name in PUBLIC)])
def test_a_module_lists_what_it_is_for(module: ModuleType) -> None:
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_modules_of_the_compiler_are_not_listed() -> None:
    modules = {name for name in dir(trl) if isinstance(getattr(trl, name), ModuleType)}
    assert modules == {*PUBLIC, "errors"}


def test_what_pages_and_lessons_write_is_listed() -> None:
    texts = [page.read_text().replace("\\_", "_") for page in PAGES]  # Markdown escapes
    written = {name for text in texts for name in re.findall(r"\btrl\.(\w+)", text)}
    assert written - {*dir(trl)} == set()


def test_objects_list_their_public_interface() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("s", trl.data([1.0, 2.0], domain=t).sum(over=t))
    program = ctx.compile({T: 2})
    for value in (ctx, program, program.memory):
        names = [name for name in dir(value) if not name.startswith("_")]
        assert 10 < len(names) < 40, type(value)
        for name in names:
            inspect.getattr_static(value, name)
