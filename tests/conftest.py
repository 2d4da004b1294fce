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

from tests.engines import use_engine
from tests.workers import GIVEN, dealt, devices_of, keep_calls, keep_contexts, settings, tried

SHARED = "TIMERL_TESTS_CACHE"  # the folder of all processes of a session, created by the first one
OWNER = SHARED not in os.environ
if OWNER:
    os.environ[SHARED] = tempfile.mkdtemp(prefix="timerl-tests-")

# XLA and MLIR allocate thousands of small blocks. glibc caches seven blocks per size; the other
# requests take a tenth of a session. The setting is read at process start, so workers and child
# processes inherit it.
os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.tcache_count=4096")

# Shells start background jobs with interrupts ignored, but some tests send interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# before the first import of JAX, which reads these variables once
XLA_FLAGS = settings(devices_of(os.environ.get("PYTEST_XDIST_WORKER", "")))
os.environ["XLA_FLAGS"] = XLA_FLAGS
os.environ["TIMERL_PROGRESS"] = "0"
os.environ["TIMERL_CACHE"] = os.environ[SHARED]
os.environ["TIMERL_EXECUTOR"] = "interpret"  # for compilations at the import of a module

GOLDEN = Path(__file__).parent / "golden"
# Folders of long tests, the longest first. Browser tests stay together: they share a server and a
# kernel.
LONG = ("browser", "property", "notebooks")


def pytest_configure(config: pytest.Config) -> None:
    use_engine(config.getoption("--engine"))


def pytest_report_header() -> str:
    return f"XLA: {XLA_FLAGS}"


def pytest_unconfigure() -> None:
    if OWNER:
        shutil.rmtree(os.environ[SHARED], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark generated programs as exempt from lint warnings, select cases, and put long tests first."""
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
    """Return all tests except cases beyond the limits of `some_of` marks."""
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
    """Configure the default executor and the cache of a test.

    Tests of values, memory and order use the interpreter, which can report them; other tests name
    XLA. Programs compiled by a test with monkeypatches are not shared with other tests, nor those
    of tests marked as `cold`. Notebooks are in another folder, and run as for a user.
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
    # millions of objects stay alive for later tests; without `freeze`, each collection scans them
    # for seconds
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
    parser.addoption(
        "--engine", default="jax", help="of interpreted programs: jax, torch, poisoned or numpy"
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
    """Run as a process that has not configured a cache yet; earlier compilations may have done so."""
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
