"""What a program's compilations share: an option that is switched costs what depends on it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.ir.pdg import Pdg
from timerl_nb.passes.core import Pass
from timerl_nb.recent import Recent
from timerl_nb.schedule.trial import Trials
from timerl_nb.symbolic import scheduling

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
    """How often each pass ran, and isl was asked for a schedule."""
    found: Counter[str] = Counter()
    known, once = Trials.run, scheduling._attempt

    def run(trials: Trials, one: Pass, pdg: Pdg) -> Any:
        whole = type(one).run

        def counted(self: Pass, graph: Pdg) -> Any:
            found[one.name] += 1
            return whole(self, graph)

        with monkeypatch.context() as patch:
            patch.setattr(type(one), "run", counted)
            return known(trials, one, pdg)

    def attempt(*args: Any) -> Any:
        found["isl"] += 1
        return once(*args)

    monkeypatch.setattr(Trials, "run", run)
    monkeypatch.setattr(scheduling, "_attempt", attempt)
    return found


def texts(program: trl.Program) -> dict[str, str]:
    """Every stage but the source, where the call that compiles has a line."""
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
    assert again.executable is program.executable  # with what JAX has compiled


def test_an_option_runs_the_passes_behind_it_alone(ran: Counter[str]) -> None:
    program = reinforce(5, hidden=(8,)).compile(BOUNDS)
    assert ran["simplify"] == ran["lift"] == ran["isl"] == 1
    ran.clear()
    other = program.with_options(donate=False)
    assert set(ran) == {"vectorize"}  # for its forecasts are others; what it makes is the same
    assert other.stages["fuse"].artifact is program.stages["fuse"].artifact
    separate = program.with_options(fuse=False)
    assert set(ran) == {"vectorize", "separate", "isl"} and ran["separate"] == ran["isl"] == 1
    assert separate.stages["lift"].artifact is program.stages["lift"].artifact
    ran.clear()
    program.with_bounds({"T": 30})
    assert not ran


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
    recent: Recent[str, int] = Recent(5, lambda value: value)
    made: list[str] = []

    def get(key: str, value: int) -> int:
        return recent.get(key, lambda: made.append(key) or value)

    assert [get("a", 2), get("b", 2), get("a", 9)] == [2, 2, 2]
    get("c", 3)  # b was asked for longest ago
    assert recent.known("a") == 2 and recent.known("b") is None
    get("d", 7)  # heavier than all, and there for as long as it is the latest
    assert len(recent) == 1 and recent.known("d") == 7
    get("a", 2)
    assert len(recent) == 1 and made == ["a", "b", "c", "d", "a"]
    with pytest.raises(ZeroDivisionError):
        recent.get("e", lambda: 1 // 0)
    assert recent.known("e") is None
