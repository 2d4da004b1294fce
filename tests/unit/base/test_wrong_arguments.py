"""Wrong arguments of every public function and class: they work, or raise an error with a remedy.

Python's errors about the call itself (wrong signature, abstract class) are accepted: no function of
ours has run. NumPy reports arrays used as flags.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import TimeRLError

# `explore` and `tune_machine` are slow or open a page; only the library creates the other objects
_LEFT_OUT = {"explore", "tune_machine", "Parameter", "Program", "Training"}
_LIBRARY = str(Path(trl.__file__).parent)
_MANY = bool(int(os.environ.get("TIMERL_FUZZ", "0")))


def _targets() -> Mapping[str, Callable[..., Any]]:
    found = {}
    for name in dir(trl):
        part = getattr(trl, name)
        if part is trl.errors:  # the library makes errors, and users do not
            continue
        if not isinstance(part, ModuleType):
            found[name] = part
            continue
        for inner in getattr(part, "__all__", ()):
            found[f"{name}.{inner}"] = getattr(part, inner, None)
    return {
        n: x for n, x in found.items() if _is_called(x) and n.rpartition(".")[2] not in _LEFT_OUT
    }


def _is_called(thing: Any) -> bool:
    """Return whether users call it: neither an abstract class nor an enumeration."""
    is_enum = isinstance(thing, type) and issubclass(thing, Enum)
    return callable(thing) and not inspect.isabstract(thing) and not is_enum


TARGETS = _targets()


def _is_raised_within(error: BaseException) -> bool:
    """Return whether a function of the library, or one that it calls, raised an error."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is this test
    return any(frame.filename.startswith(_LIBRARY) for frame in frames)


def _wrong(folder: Path) -> list[Any]:
    shut = folder / "shut"
    shut.write_bytes(b"junk")
    shut.chmod(0)
    values = [None, "x", -1, float("nan"), 2**70, [], object(), (1, 2)]
    more = ["", 0, 1e300, {}, True, b"x", int, [None], {"a": None}, np.zeros(3), str(shut)]
    return [*values, str(folder), folder / "none" / "none", *(more if _MANY else ())]


def _calls(function: Callable[..., Any], value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield calls with one wrong value: for all required arguments, and for each optional one."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        parameters = ()
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in places and p.default is p.empty]
    yield (value,) * max(1, len(required)), {}
    for p in parameters:
        if p.default is not p.empty and p.kind is not p.POSITIONAL_ONLY:
            yield (1,) * len(required), {p.name: value}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", sorted({name.rpartition(".")[0] for name in TARGETS}))
def test_wrong_arguments_are_told(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = list[str]()
    for name, function in TARGETS.items():
        if name.rpartition(".")[0] != part:
            continue
        values = _wrong(tmp_path)
        if part == "algorithms" and not _MANY:  # each call writes a program
            values = [None, "x", 2**70]
        for value in values:
            for args, named in _calls(function, value):
                try:
                    function(*args, **named)
                except TimeRLError as error:
                    if not error.what:
                        failed.append(f"{name}{args}{named}: nothing is said")
                except Exception as error:
                    if _is_raised_within(error) and "truth value of an array" not in str(error):
                        failed.append(f"{name}{args}{named}: {error!r}")
    assert not failed, "\n".join(failed)


def test_a_path_is_a_string_or_a_path() -> None:
    for wrong in (None, 3, b"runs", ["runs"], float("nan")):
        with pytest.raises(trl.errors.CallError, match="not a path"):
            user_path(wrong)  # type: ignore[arg-type]
