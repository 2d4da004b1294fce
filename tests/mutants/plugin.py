"""Pytest plugin of the tool in a copy of the tree: `-p tests.mutants.plugin`.

It records the first failing test, or coverage and duration per test. It injects the mutant of
`behaviours` named by an environment variable.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.sources import FILES, OTHERS, places

WRITTEN = "TIMERL_MUTANTS_WRITTEN"  # output file
MEASURED = "TIMERL_MUTANTS_MEASURED"  # measure coverage
LIMIT = "TIMERL_MUTANTS_LIMIT"  # CPU seconds, unaffected by waiting
BEHAVIOUR = "TIMERL_MUTANTS_BEHAVIOUR"  # the name of a mutant of `behaviours`
MEMORY = 8 << 30  # memory limit: endless growth fails before it harms the machine

_passed: dict[str, float] = {}
_failed: list[str] = []
_unimportable: list[str] = []
_status: list[int] = []
_measuring: Any = None

if MEASURED in os.environ:  # before the first import of measured modules
    from coverage import Coverage

    _measuring = Coverage(data_file=None, include=[*FILES, *OTHERS], config_file=False)
    _measuring.start()


def pytest_configure() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    limit = int(os.environ[LIMIT])
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 60))
    import timerl_nb

    assert Path(timerl_nb.__file__).is_relative_to(Path.cwd()), "the package of another tree"
    if name := os.environ.get(BEHAVIOUR):
        from tests.mutants.behaviours import BEHAVIOURS

        BEHAVIOURS[name].apply()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if _measuring:
        _measuring.switch_context(item.nodeid)
    return (yield)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _unimportable.append(report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.append(report.nodeid)
        _passed.pop(report.nodeid, None)
    elif not report.skipped and report.nodeid not in _failed:
        _passed[report.nodeid] = _passed.get(report.nodeid, 0) + report.duration


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Exit immediately: a hang at interpreter exit is unrelated to the mutant."""
    if _status:
        sys.stdout.flush()
        os._exit(_status[0])


def pytest_sessionfinish(exitstatus: int) -> None:
    _status.append(int(exitstatus))
    lines: dict[str, dict[str, list[int]]] = {}
    number = {test: k for k, test in enumerate(_passed)}
    if _measuring:
        _measuring.stop()
        data = _measuring.get_data()
        for path in data.measured_files():
            file = Path(path).relative_to(Path.cwd()).as_posix()
            named, found = places(Path(path).read_text()), lines.setdefault(file, {})
            for line, tests in data.contexts_by_lineno(path).items():
                mine = {number[test] for test in tests if test in number}
                found[named[line]] = sorted(mine.union(found.get(named[line], ())))
    written = {"passed": _passed, "failed": _failed, "unimportable": _unimportable, "lines": lines}
    Path(os.environ[WRITTEN]).write_text(json.dumps(written))
