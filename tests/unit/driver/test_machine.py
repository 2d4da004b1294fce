"""Machine constants of the cost model: nominal, or measured and cached."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.recorded_pass_decisions import Forecast
from timerl_nb.compiler.passes.tiling.incrementalize_reductions import IncrementalizeForSpeed
from timerl_nb.driver.compiling.pass_selection import pipeline
from timerl_nb.driver.search import machine_constants as machines
from timerl_nb.driver.search.machine_constants import machine_here
from timerl_nb.runtime.state.disk_cache import DiskCache

BOUNDS = {"B": 8, "I": 2, "T": 6}


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another_process(monkeypatch, tmp_path)


def another_process(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Clear the process's cache, but not the folder's."""
    monkeypatch.setattr(machines, "_known", {})
    monkeypatch.setattr(machines, "disk_cache", lambda: DiskCache(folder))


def test_what_is_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_here() == Machine()
    made = trl.tune_machine()
    assert all(value > 0 for value in asdict(made).values())
    assert made.near < made.far and made.worth == Machine().worth
    assert machine_here() == made
    another_process(monkeypatch, tmp_path)
    assert machine_here() == made
    another_process(monkeypatch, tmp_path / "another")
    assert machine_here() == Machine()


def test_programs_choose_by_it() -> None:
    ctx = reinforce()

    def forecast() -> Forecast:
        choice = next(
            one
            for one in ctx.compile(BOUNDS).stages["vectorize"].choices
            if one.what == "vectorize over t"
        )
        found = choice.taken.forecast
        assert isinstance(found, Forecast)
        return found

    before = forecast()
    machines.keep(replace(Machine(), launch=2 * Machine().launch))
    after = forecast()
    assert after.seconds - before.seconds == pytest.approx(before.launches * Machine().launch)
    assert replace(after, seconds=0.0) == replace(before, seconds=0.0)
    passes = pipeline(trl.Options(executor="xla"), BOUNDS)
    (blocks,) = (one for one in passes if isinstance(one, IncrementalizeForSpeed))
    assert blocks.machine == machine_here()
