"""Options and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers import GIVEN, dealt, devices_of, keep_calls, keep_contexts, settings, tried

SHARED = "TIMERL_TESTS_CACHE"  # the folder of all processes of a session, which the first one makes
OWNER = SHARED not in os.environ
if OWNER:
    os.environ[SHARED] = tempfile.mkdtemp(prefix="timerl-tests-")

# What XLA and MLIR allocate is small, and freed by thousands: glibc keeps seven of a size at hand, and to look for
# others takes a tenth of a session. It is asked as a process begins: by workers, and by what tests begin.
os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.tcache_count=4096")

# Where a shell runs tests in the background it has them ignore interrupts, of which some tests are.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# ahead of the first import of JAX, which asks for them once
XLA_FLAGS = settings(devices_of(os.environ.get("PYTEST_XDIST_WORKER", "")))
os.environ["XLA_FLAGS"] = XLA_FLAGS
os.environ["TIMERL_PROGRESS"] = "0"
os.environ["TIMERL_CACHE"] = os.environ[SHARED]
os.environ["TIMERL_EXECUTOR"] = "interpret"  # for what modules compile as they are imported

GOLDEN = Path(__file__).parent / "golden"
# Folders of long tests, the longest first; those for a browser together, which share a server and a kernel.
LONG = ("browser", "property", "notebooks")


def pytest_report_header() -> str:
    return f"XLA: {XLA_FLAGS}"


def pytest_unconfigure() -> None:
    if OWNER:
        shutil.rmtree(os.environ[SHARED], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Random programs read as nobody would; of many cases some are enough; and what takes long is begun with."""
    if config.getoption("--some"):
        kept = some(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    for item in items:
        if {"property", "independent"} & set(item.path.parts):
            item.add_marker(
                pytest.mark.filterwarnings("ignore::timerl_nb.base.errors.TimeRLWarning")
            )
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        within = [item.path.relative_to(config.rootpath).parts for item in items]
        long = [[one for one, at in zip(items, within, strict=True) if name in at] for name in LONG]
        others = [one for one, at in zip(items, within, strict=True) if not set(LONG) & set(at)]
        items[:] = dealt(long, others, workers)


def some(items: list[Any]) -> set[Any]:
    """All tests, but of those marked `some_of` a few of the cases that differ in that parameter alone."""
    kept, alike = set[Any](), dict[Any, dict[Any, list[Any]]]()
    for item in items:
        mark = item.get_closest_marker("some_of")
        if mark is None:
            kept.add(item)
            continue
        parameter, count = mark.args
        others = (at for at in item.callspec.params.items() if at[0] != parameter)
        of_test = alike.setdefault((item.path, item.originalname, count), {})
        of_test.setdefault(tuple((name, id(value)) for name, value in others), []).append(item)
    for (_, _, count), cases in alike.items():
        for turn, ways in enumerate(cases.values()):
            kept.update(tried(ways, count, turn))
    return kept


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of values, memory and order ask the interpreter, which shows them; others name XLA.

    What a test that patches something compiles is neither kept for others nor taken from them, and so
    it is where a test is marked as `cold`: it looks at what compiling does.

    Notebooks, which lie elsewhere, run as they do for a user.
    """
    os.environ["XLA_FLAGS"] = XLA_FLAGS
    os.environ["TIMERL_EXECUTOR"] = "interpret"
    cold = item.get_closest_marker("cold") or "monkeypatch" in getattr(item, "fixturenames", ())
    os.environ["TIMERL_CACHE"] = "0" if cold else os.environ[SHARED]


def pytest_collection_finish() -> None:
    os.environ["XLA_FLAGS"] = GIVEN
    os.environ.pop("TIMERL_EXECUTOR", None)
    gc.set_threshold(20_000, 20, 20)
    keep_contexts()
    keep_calls()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    # millions of objects stay for the tests that follow: to look through them takes seconds each time
    if nextitem is None or nextitem.path != item.path:
        gc.collect(1)
        gc.freeze()
    os.environ["XLA_FLAGS"] = GIVEN
    os.environ.pop("TIMERL_EXECUTOR", None)
    os.environ["TIMERL_CACHE"] = os.environ[SHARED]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--some", action="store_true", help="of tests marked some_of, so many cases of each"
    )
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


@pytest.fixture
def no_cache_yet() -> Iterator[None]:
    """A process that has not asked for a cache yet: what is compiled before may have asked for one."""
    import jax

    from timerl_nb.runtime.jax_backend import xla_compilation_cache as jax_cache

    names = ("compilation_cache_dir", "persistent_cache_min_compile_time_secs")
    names = (*(f"jax_{name}" for name in names), "jax_persistent_cache_min_entry_size_bytes")
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, (None, 1.0, 0), strict=True):
        jax.config.update(name, value)
    jax_cache._use.cache_clear()
    yield
    jax_cache._use.cache_clear()
    for name, value in before.items():
        jax.config.update(name, value)
