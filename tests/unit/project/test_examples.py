"""Examples in docstrings run, and every public function and class has one.

An example is a doctest. These names exist in it: `trl`, `np`, and `ctx`, an entered context with the dimensions
(b, B), (i, I) and (t, T).
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from docs.api_pages import public_modules, public_names
from timerl_nb.execution.control.background_run import Running

# Classes with methods that users call; the methods of other classes need no example.
WITH_METHODS = [trl.Context, trl.Program, Running, trl.Result, trl.Replay, trl.DNNBuilder]


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield the public functions and classes, and the methods of the classes used most, by name."""
    for module_name, module in public_modules().items():
        for name in public_names(module):
            value = getattr(module, name)
            if callable(value) and (inspect.getdoc(value) or inspect.isfunction(value)):
                yield f"{module_name}.{name}", value
    for cls in WITH_METHODS:
        for name, value in vars(cls).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                yield f"trl.{cls.__name__}.{name}", value
    with trl.Context():
        tensor = trl.zeros(3)
    for name in dir(tensor):  # the names of tab completion
        value = getattr(type(tensor), name)
        if inspect.isfunction(value) and not name.startswith("_"):
            yield f"x.{name}", value


OBJECTS = dict(public_objects())


def examples(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(OBJECTS[name]) or "", name)


def test_every_public_name_has_an_example() -> None:
    missing = [name for name in OBJECTS if not examples(name)]
    assert not missing, f"{len(missing)} docstrings without an example: {', '.join(missing)}"


@pytest.mark.parametrize("name", [name for name in OBJECTS if examples(name)])
def test_example_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TIMERL_EXECUTOR", raising=False)  # as users run it
    monkeypatch.chdir(tmp_path)
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        names = {"trl": trl, "np": np, "ctx": ctx, "b": b, "B": B, "i": i, "I": I, "t": t, "T": T}
        test = doctest.DocTestParser().get_doctest(
            inspect.getdoc(OBJECTS[name]) or "", names, name, None, 0
        )
        report: list[str] = []
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        doctest.DocTestRunner(optionflags=flags).run(test, out=report.append)
    assert not report, "".join(report)
