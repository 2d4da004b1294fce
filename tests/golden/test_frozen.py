"""Forty programs have the results of the golden file, under both executors."""

from __future__ import annotations

import json
import re
from math import isfinite, isnan
from typing import Any, Final

import pytest

from tests.conftest import GOLDEN
from tests.frozen import PROGRAMS, observed

FILE: Final = GOLDEN / "frozen.json"
# Float results pass through at most some thousand float32 operations; 16-bit types are rounded at
# each.
RTOL: Final = {"float32": 2e-4, "float16": 2e-3, "bfloat16": 2e-2}


@pytest.mark.filterwarnings("ignore::timerl_nb.base.errors.TimeRLWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_did(name: str, request: pytest.FixtureRequest) -> None:
    """Intended changes are written by `--update-golden`, with a reason in the commit."""
    have = observed(name)
    if request.config.getoption("--update-golden"):
        # one process at a time: the file holds all programs
        everything = json.loads(FILE.read_text()) if FILE.exists() else {}
        everything = {k: v for k, v in {**everything, name: have}.items() if k in PROGRAMS}
        text = json.dumps(everything, indent=1, ensure_ascii=False)
        for innermost in (r"\[[^][{}]*\]", r"\{[^{}]*\}"):  # one array per line
            text = re.sub(innermost, lambda found: re.sub(r"\s*\n\s*", " ", found[0]), text)
        FILE.write_text(text + "\n")
    differing = list(differences(json.loads(FILE.read_text())[name], json.loads(json.dumps(have))))
    assert not differing, "\n".join(differing)


def differences(want: Any, have: Any, at: str = "", rtol: float = 0.0) -> list[str]:
    """Describe the differences of two trees of results."""
    if isinstance(want, dict) and isinstance(have, dict):
        rtol = RTOL.get(want.get("dtype"), rtol)
        scale = max((abs(x) for x in want.get("some", ()) if isfinite(x)), default=0.0)
        if set(want) != set(have):
            return [f"{at}: {sorted(want)} became {sorted(have)}"]
        if want.get("shape") != have.get("shape"):
            return [f"{at}/shape: {want['shape']} became {have['shape']}"]
        return [
            line
            for key, value in want.items()
            for line in (
                _apart(value, have[key], f"{at}/{key}", rtol, scale)
                if key in ("some", "weighted")
                else differences(value, have[key], f"{at}/{key}", rtol)
            )
        ]
    return [] if want == have else [f"{at}: {want!r} became {have!r}"]


def _apart(want: Any, have: Any, at: str, rtol: float, scale: float) -> list[str]:
    """Describe floats that differ by more than their tolerance, with the largest difference."""
    if isinstance(want, list):
        pairs = zip(want, have, strict=True)
        return [
            x for k, (a, b) in enumerate(pairs) for x in _apart(a, b, f"{at}[{k}]", rtol, scale)
        ]
    if want == have or (isnan(want) and isnan(have)):
        return []
    if isfinite(want) and abs(want - have) <= rtol * max(abs(want), scale, 1e-3):
        return []
    return [f"{at}: {want!r} became {have!r}"]


def test_a_change_is_found() -> None:
    want = {"peak": 8, "outputs": {"x": {"dtype": "float32", "some": [1.0, 2.0], "weighted": 0.5}}}
    for change, found in (
        ({"peak": 9}, "/peak: 8 became 9"),
        ({"outputs": {}}, "/outputs: ['x'] became []"),
        (
            {"outputs": {"x": {"dtype": "float32", "some": [1.0, 2.001], "weighted": 0.5}}},
            "/outputs/x/some[1]: 2.0 became 2.001",
        ),
    ):
        assert differences(want, {**want, **change}) == [found]
    endless = {"dtype": "float32", "some": [float("inf"), 2.0], "weighted": float("nan")}
    other = {**endless, "some": [1.0, 2.0], "weighted": 3.0}
    assert differences(endless, endless) == []
    assert differences(endless, other) == ["/some[0]: inf became 1.0", "/weighted: nan became 3.0"]
    assert differences({"shape": [2]}, {"shape": [3]}) == ["/shape: [2] became [3]"]
    near = {"x": {"dtype": "float32", "some": [1.0, 2.0001], "weighted": 0.5001}}
    assert not differences(want, {**want, "outputs": near})


def test_all_are_held() -> None:
    assert set(json.loads(FILE.read_text())) == set(PROGRAMS)
    assert len(PROGRAMS) >= 40
