"""Functions of the layers above a program, found through one table."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base import entry_points
from timerl_nb.base.errors import MissingPartError


@pytest.fixture
def program() -> trl.Program:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("y", trl.data(np.arange(4.0), domain=(t,)) * 2)
    return ctx.compile({"T": 4})


@pytest.mark.parametrize("name", entry_points._FUNCTIONS)
def test_every_name_has_a_function(name: str) -> None:
    assert entry_points.entry_point(name) is not None


def test_an_entry_point_passes_the_program_and_the_arguments(
    program: trl.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    part: Any = ModuleType("timerl_widgets")
    part.Explorer = lambda program, other, **options: (program, other, options)
    monkeypatch.setitem(sys.modules, "timerl_widgets", part)
    assert program.explore(height=300) == (program, None, {"height": 300})


def test_a_missing_part_says_what_to_install(
    program: trl.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "timerl_widgets", None)
    with pytest.raises(MissingPartError, match="needs timerl_widgets") as caught:
        program.explore()
    assert "install" in caught.value.hint
    monkeypatch.setitem(sys.modules, "timerl_widgets", ModuleType("timerl_widgets"))
    with pytest.raises(MissingPartError, match=r"has no program\.explore"):
        program.explore()


def test_the_part_is_imported_when_it_is_asked_for(
    program: trl.Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "timerl_widgets.py").write_text(
        "def Explorer(program, other):\n    return 'opened'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "timerl_widgets", None)  # so that it is restored
    monkeypatch.delitem(sys.modules, "timerl_widgets")
    assert program.explore() == "opened"
