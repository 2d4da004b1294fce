"""Line coverage by test, measured per test file, and selection of the tests for a mutant."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Final

from tests.mutants.sources import ROOT

STATE: Final = ROOT / "runs" / "mutants"

# Tests with browsers, processes, long times or views are left out, so a survivor may still be
# detected by the full suite.
_LEFT_OUT: Final = re.compile(
    r"ahead|benchmark|cache|cartpole|compar|compiler|devices|disk_cache|docs|entry_points|errors|explorer|graph_view|gym|interrupts"
    r"|layers_of|layout|learning|library|main_memory|mutants|outline|packaging|page|peers|profiler|running|stages"
    r"|sweeping|view_models|widgets|words|wrong_calls"
)
ASKED: Final = (
    "tests/golden/test_golden.py",
    *(
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests/unit").rglob("test_*.py"))
        if not _LEFT_OUT.search(path.name)
    ),
    "tests/property/test_folds.py",
    "tests/property/test_layouts.py",
    "tests/property/test_xla.py",
    "tests/golden/test_frozen.py",
)

TESTS, SECONDS = 30, 90.0  # limit of seconds per mutant


def hashed(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


class Covering:
    """Coverage data; `runs/mutants/covering` has a file per test file."""

    def known(self, tests: str) -> Path:
        """Return the path of a test file's measurement."""
        stem = tests.removeprefix("tests/").removesuffix(".py").replace("/", ".")
        return STATE / "covering" / f"{stem}.{hashed((ROOT / tests).read_text())}.json"

    def missing(self) -> list[str]:
        return [tests for tests in ASKED if not self.known(tests).exists()]

    @cached_property
    def _measured(self) -> list[dict[str, dict[str, dict[str, list[int]]]]]:
        known = (self.known(tests) for tests in ASKED)
        return [json.loads(path.read_text()) for path in known if path.exists()]

    @cached_property
    def _seconds(self) -> dict[str, float]:
        return {test: s for one in self._measured for test, s in one["passed"].items()}

    @cached_property
    def _by_file(self) -> dict[str, dict[str, list[str]]]:
        """Return the tests by file and line."""
        found: dict[str, dict[str, list[str]]] = {}
        for one in self._measured:
            names = list(one["passed"])
            for file, places in one["lines"].items():
                into = found.setdefault(file, {})
                for place, numbers in places.items():
                    into.setdefault(place, []).extend(names[k] for k in numbers)
        return found

    def knows(self, test: str) -> bool:
        """Return whether a test was measured."""
        return test in self._seconds

    def of(self, file: str, *places: str) -> list[str]:
        """Return tests of the first executed place; none if no place is executed.

        Import-time lines are covered by all tests of a file; these are ordered by coverage of the
        mutated file.
        """
        lines = self._by_file.get(file, {})
        place = next((place for place in places if place in lines), None)
        if place is None:
            return []
        if lines[place]:
            return self._chosen(lines[place])
        often = Counter(test for tests in lines.values() for test in tests)
        return self._chosen(test for test, _ in often.most_common(TESTS))

    def of_function(self, file: str, function: str) -> list[str]:
        """Return tests by covered lines of a function: some leave it early."""
        lines = self._by_file.get(file, {}).items()
        inside = (tests for at, tests in lines if at.startswith((f"{function}:", f"{function}.")))
        often = Counter(test for tests in inside for test in tests)
        most = max(often.values(), default=0)
        return self._chosen(test for test, times in often.items() if times >= 0.9 * most)

    def _chosen(self, tests: Iterable[str]) -> list[str]:
        """Select fast tests from as many files and functions as possible within the time limit, fastest first."""
        by_speed = sorted(tests, key=self._speed)
        turn: dict[str, int] = {}
        for heads in ("[", "::"):  # one per function, and one per file, before second ones
            by_turn = sorted(by_speed, key=lambda test: (turn.get(test, 0), self._speed(test)))
            so_far: Counter[str] = Counter()
            for test in by_turn:
                head = test.partition(heads)[0]
                turn[test] = so_far[head]
                so_far[head] += 1
        found: list[str] = []
        left = SECONDS
        for test in sorted(by_speed, key=lambda test: (turn[test], self._speed(test))):
            if len(found) < TESTS and self._seconds[test] <= left:
                found.append(test)
                left -= self._seconds[test]
        return sorted(found, key=self._speed)

    def _speed(self, test: str) -> tuple[float, str]:
        return self._seconds[test], test

    def seconds(self, tests: Iterable[str]) -> float:
        return sum(self._seconds[test] for test in tests)
