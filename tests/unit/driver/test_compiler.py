"""Sharing between compilations: a changed option recomputes only its dependents."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import jax
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.errors import OptionError
from timerl_nb.base.lru_cache import Lru
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.isl import isl_scheduler as scheduling
from timerl_nb.compiler.isl.operation_limit import at_most, remaining_operations
from timerl_nb.compiler.passes.pass_pipeline import Pass
from timerl_nb.compiler.scheduling.vectorization_trials import Trials
from timerl_nb.driver.stages import CompileObserver

BOUNDS = {"B": 8, "I": 3, "T": 20}
CHANGES: tuple[dict[str, Any], ...] = (
    {"fuse": False},
    {"lift": False},
    {"vectorize": False},
    {"accumulate": False, "contract": False},
    {"trial": False},
    {"donate": False, "stores": "point"},
    {"incrementalize": 4},
    {"device_memory": "1MiB"},
    {"executor": "interpret"},
)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how often each pass ran, and isl was called for a schedule."""
    found: Counter[str] = Counter()
    known, once = Trials.run, scheduling._scheduled

    def run(trials: Trials, one: Pass, pdg: Pdg) -> Any:
        whole = type(one).run

        def counted(self: Pass, graph: Pdg) -> Any:
            found[one.name] += 1
            return whole(self, graph)

        with monkeypatch.context() as patch:
            patch.setattr(type(one), "run", counted)
            return known(trials, one, pdg)

    def scheduled(*args: Any) -> Any:
        found["isl"] += 1
        return once(*args)

    monkeypatch.setattr(Trials, "run", run)
    monkeypatch.setattr(scheduling, "_scheduled", scheduled)
    return found


def texts(program: trl.Program) -> dict[str, str]:
    """Return every stage except the source, which has the line of the compiling call."""
    return {name: str(stage.artifact) for name, stage in list(program.stages.items())[1:]}


@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: ", ".join(c))
def test_what_is_shared_changes_nothing(changes: dict[str, Any]) -> None:
    ctx = reinforce(5, hidden=(8,))
    program = ctx.compile(BOUNDS)
    other = program.with_options(**changes)
    again = other.with_options(**{name: getattr(trl.Options(), name) for name in changes})
    assert texts(other) == texts(ctx.compile(BOUNDS, trl.Options(**changes)))
    assert texts(again) == texts(program)


def test_an_option_switched_back_costs_nothing(ran: Counter[str]) -> None:
    program = reinforce(5, hidden=(8,)).compile(BOUNDS)
    others = [program.with_options(**changes) for changes in CHANGES]
    ran.clear()
    again = others[2].with_options(vectorize=True)
    for changes in CHANGES:
        again.with_options(**changes)
    assert not ran
    for name, stage in again.stages.items():
        assert name in ("source", "schedule") or stage.artifact is program.stages[name].artifact
    assert again.executable is program.executable  # including JAX's compiled functions


def test_an_option_runs_the_passes_behind_it_alone(ran: Counter[str]) -> None:
    program = reinforce(5, hidden=(8,)).compile(BOUNDS)
    assert ran["simplify"] == ran["lift"] == ran["isl"] == 1
    ran.clear()
    other = program.with_options(donate=False)
    assert not ran  # no pass depends on it
    assert other.stages["fuse"].artifact is program.stages["fuse"].artifact
    separate = program.with_options(fuse=False)
    assert set(ran) == {"separate", "isl"} and ran["separate"] == ran["isl"] == 1
    assert separate.stages["lift"].artifact is program.stages["lift"].artifact
    ran.clear()
    program.with_bounds({"T": 30})
    assert not ran


@pytest.mark.cold
def test_compiling_traces_nothing() -> None:
    """XLA's part waits for the first run."""
    seen: Counter[str] = Counter()

    def listen(name: str, *_: Any, **__: Any) -> None:
        seen[name] += "trace" in name or "compile" in name

    jax.monitoring.register_event_duration_secs_listener(listen)
    program = reinforce(5, hidden=(8,)).compile(BOUNDS, trl.Options(executor="xla"))
    program.with_options(fuse=False)
    assert not seen.total()
    program.execute()
    assert seen.total()


def test_recent_results_by_weight() -> None:
    recent: Lru[str, int] = Lru(5, lambda value: value)
    made: list[str] = []

    def get(key: str, value: int) -> int:
        return recent.get(key, lambda: made.append(key) or value)

    assert [get("a", 2), get("b", 2), get("a", 9)] == [2, 2, 2]
    get("c", 3)  # b was the least recently used
    assert recent.lookup("a") == 2 and recent.lookup("b") is None
    get("d", 7)  # larger than the limit, and cached while it is the latest
    assert len(recent) == 1 and recent.lookup("d") == 7
    get("a", 2)
    assert len(recent) == 1 and made == ["a", "b", "c", "d", "a"]
    with pytest.raises(ZeroDivisionError):
        recent.get("e", lambda: 1 // 0)
    assert recent.lookup("e") is None


def test_threads_share_what_was_found_first() -> None:
    recent: Lru[str, object] = Lru(5)
    both, got = threading.Barrier(2), list[object]()

    def make() -> object:
        both.wait(10)  # so that each misses the other's entry
        return object()

    threads = [threading.Thread(target=lambda: got.append(recent.get("a", make))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(got) == 2 and got[0] is got[1] is recent.lookup("a")


def test_a_result_may_ask_for_others() -> None:
    recent: Lru[int, int] = Lru(50)

    def factorial(n: int) -> int:
        return recent.get(n, lambda: n * factorial(n - 1) if n else 1)

    assert factorial(20) == 2432902008176640000


def test_stages_are_shown_as_they_are_made_to_who_asks() -> None:
    program = reinforce(5, hidden=(8,)).compile(BOUNDS)
    seen: list[str] = []
    other = program.again(
        bounds={"T": 20},
        options={"fuse": False},
        observer=CompileObserver(lambda stage: seen.append(stage.name)),
    )
    assert seen == [*other.stages][2:] and "separate" in seen  # source and pdg are the user's
    assert other.bounds["T"] == 20 and other.options.fuse is False
    other.with_bounds({"T": 10})
    assert len(seen) == len(other.stages) - 2
    with pytest.raises(OptionError, match="fusee"):
        program.again(options={"fusee": False})


def test_budgets_of_isl_are_of_one_thread_each() -> None:
    before = remaining_operations()
    first = list[int]()

    def second() -> None:
        with at_most(2_000_000):
            first.append(remaining_operations())

    with at_most(1_000_000):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(10)
        assert first == [2_000_000] and remaining_operations() == 1_000_000
    assert remaining_operations() == before
