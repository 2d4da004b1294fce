"""Options and fixtures of all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["TIMERL_PROGRESS"] = "0"
os.environ["TIMERL_CACHE"] = "0"
os.environ["TIMERL_EXECUTOR"] = "interpret"  # for what modules compile as they are imported

GOLDEN = Path(__file__).parent / "golden"


def pytest_runtest_setup() -> None:
    """Tests of values, memory and order ask the interpreter, which shows them; others name XLA.

    Notebooks, which lie elsewhere, run as they do for a user.
    """
    os.environ["TIMERL_EXECUTOR"] = "interpret"


def pytest_collection_finish() -> None:
    os.environ.pop("TIMERL_EXECUTOR", None)


def pytest_runtest_teardown() -> None:
    os.environ.pop("TIMERL_EXECUTOR", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a golden file; `pytest --update-golden` rewrites the file."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.write_text(text + "\n")
        assert path.exists(), f"{path.name} is missing: run pytest --update-golden, and look at it"
        assert text + "\n" == path.read_text(), f"{path.name} differs: see --update-golden"

    return compare
