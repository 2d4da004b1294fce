"""`python -m benchmarks collect`: all implementations obey CartPole's equations, and counts are right."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks import collecting
from benchmarks.collecting import choices, equations, findings, on_ray, overlap, simulated
from benchmarks.collecting.cell import Cell
from benchmarks.collecting.sweep import Measured, Sweep, Workers, over
from benchmarks.collecting.table import BRAX, PEERS, SIMULATIONS, TABLE, Row
from benchmarks.finding import table
from benchmarks.training.report import machine


def advanced(row: Row, cell: Cell) -> tuple[Any, int]:
    row.imported()
    made = row.make(cell)
    return made, made.advance()


def test_the_equations_are_those_of_gymnasium() -> None:
    env: Any = gymnasium.make("CartPole-v1").unwrapped
    state = np.random.default_rng(0).uniform(-1, 1, (40, 4)) * (2.5, 1, 0.22, 1)
    after = equations.after(state, np.arange(40) % 2)
    for k, want in enumerate(state):
        env.reset()
        env.state = want
        obs, _, ended, _, _ = env.step(k % 2)
        np.testing.assert_allclose(after[k], obs, atol=1e-6)
        assert ended == (equations.left(after[k]) > 0)


@pytest.mark.filterwarnings("ignore::UserWarning")  # EnvPool's spaces are float64
@pytest.mark.parametrize("name", [n for n, row in PEERS.items() if n != "Gymnasium, processes"])
def test_peers_take_steps_of_the_equations(name: str) -> None:
    row = PEERS[name]
    if row.needed and importlib.util.find_spec(row.needed) is None:
        pytest.skip(f"{row.needed} is not installed")
    made, steps = advanced(row, Cell(4, 60, 8))
    try:
        assert 200 <= steps <= 240 and equations.check(made.batch(), 8) > 200
    finally:
        made.close()


@pytest.fixture(scope="module")
def batch() -> dict[str, np.ndarray]:
    made, _ = advanced(PEERS["NumPy, batched"], Cell(4, 60, 8))
    return {name: np.array(x) for name, x in made.batch().items()}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("obs", 0.5, "a step led elsewhere, at step 29 of environment 2"),
        ("terminated", True, "an episode ended elsewhere, at step 30 of environment 2"),
        ("truncated", True, "an episode did not begin at rest, at step 31 of environment 2"),
        ("log_prob", -9.0, "a log-probability is another, at step 30 of environment 2"),
    ],
)
def test_wrong_steps_are_found(
    batch: dict[str, np.ndarray], name: str, value: float, text: str
) -> None:
    over = batch["terminated"] | batch["truncated"]
    assert not over[28:31, 2].any()
    wrong = dict(batch)
    wrong[name] = np.array(batch[name])
    wrong[name][30, 2] = value
    with pytest.raises(AssertionError, match=text):
        equations.check(wrong, 8)


@pytest.mark.parametrize("steps", [1, 10])
def test_calls_are_counted(steps: int) -> None:
    for name, calls in {"JAX, scan": 1, "JAX, a call a step": steps, "ours, scan": 1}.items():
        made, _ = advanced(TABLE[name], Cell(2, steps, 4))
        assert made.counts()["calls"] == calls, name
        made.close()
    made, _ = advanced(PEERS["Gymnasium, a loop"], Cell(2, steps, 4))
    assert made.calls == 3 * steps  # two environments and a policy


def test_kernels_grow_with_steps_where_a_call_has_more_of_them() -> None:
    for name in ("JAX, scan", "ours, scan"):
        counts = []
        for steps in (40, 80, 120):
            made, _ = advanced(TABLE[name], Cell(2, steps, 0))
            counts.append(made.counts()["launches"])
            made.close()
        assert counts[0] > 0 and counts[2] - counts[1] == counts[1] - counts[0] > 0, name


def test_simulations_agree() -> None:
    cell = Cell(8, 3, 0, state=2, compute=2)
    states = []
    for name in ("JAX, a call a step", "JAX, one call", "JAX, blocks"):
        made, steps = advanced(SIMULATIONS[name], cell)
        assert steps == 24
        states.append(made.batch()["state"])
    for state in states[1:]:
        np.testing.assert_allclose(state, states[0], atol=1e-6)
    made, _ = advanced(SIMULATIONS["ours"], cell)
    before = made.batch()["state"]
    made.advance()
    np.testing.assert_allclose(made.batch()["state"], simulated.steps(cell, before), atol=1e-6)
    assert made.counts()["calls"] == 1
    made.close()


def test_a_sweep_is_measured_by_turns_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("NumPy, batched", "Gymnasium, native", "PyTorch, batched")
    sweep = Sweep("few", [Cell(1, 10, 4), Cell(2, 10, 4)], names, split=names[:1])
    monkeypatch.setattr(collecting, "sweeps", lambda full: {"few": sweep})
    monkeypatch.setattr(collecting, "ROOT", _root(tmp_path))
    monkeypatch.chdir(tmp_path)
    collecting.main(rounds=3)
    text = capsys.readouterr().out
    assert "| NumPy, batched | " in text and "N 2, K 10" in text
    assert "- PyTorch, batched, from N 1, K 10 on: torch is not installed (make torch-env)" in text
    with (tmp_path / "runs/collect.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [*names, *names[:2]]
    assert all(float(r["least"]) <= float(r["median"]) <= float(r["greatest"]) for r in rows[:2])
    assert {r["rounds"] for r in rows} == {"3", "0"} and float(rows[0]["python_ns"]) > 0
    assert {r["cores"] for r in rows} == {str(machine()["cores"])}


def _root(tmp_path: Path) -> Path:
    """Create a folder with only the environment that runs the tests."""
    (tmp_path / ".venv").symlink_to(collecting.ROOT / ".venv")
    return tmp_path


def test_what_no_longer_gains_or_takes_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, list[str]]] = []
    speed = {
        "flat": lambda n: 1e4,
        "slow": lambda n: min(210.0 * n, 1000.0),
        "none": None,
        "good": lambda n: 1e3 * n,
    }

    def measured(_: Any, cell: Cell, names: list[str], rounds: int, split: Any) -> list[Measured]:
        asked.append((cell.envs, list(names)))
        made = []
        for name in names:
            of = speed[name]
            if of is None:
                made.append(Measured(name, cell, why_not="it is not there"))
            else:
                made.append(Measured(name, cell, (of(cell.envs),)))
        return made

    monkeypatch.setattr("benchmarks.collecting.sweep.measured", measured)
    cells = [Cell(n, 100) for n in (1, 4, 16, 64)]
    rows = list(over(Workers(Path()), Sweep("", cells, tuple(speed), to_plateau=True), 1))
    assert asked == [
        (1, ["flat", "slow", "none", "good"]),
        (4, ["flat", "slow", "good"]),
        (16, ["flat", "slow", "good"]),
        (64, ["good"]),
    ]
    why = {(m.name, m.cell.envs): m.why_not for m in rows if m.why_not}
    slow = "a batch would take some 6 s"
    assert why == {
        ("none", 1): "it is not there",
        ("flat", 64): "beyond its plateau",
        ("slow", 64): slow,
    }
    asked.clear()
    cells = [Cell(1, 400), Cell(1, 410), Cell(1, 430)]
    list(over(Workers(Path()), Sweep("", cells, ("slow",)), 1))
    assert asked == [(1, ["slow"]), (1, ["slow"]), (1, [])]  # it would take more than 2 s


def verdicts(rows: list[Measured]) -> dict[str, str]:
    return {f.what.split(" (")[0]: f.verdict for f in findings.found(rows)}


def test_findings_are_said_of_the_spread() -> None:
    one, many = Cell(256, 1), Cell(256, 1000)
    rows = [
        Measured("Gymnasium, a loop", many, (10.0, 11.0, 12.0), calls=257_000),
        Measured("PyTorch, batched", one, (100.0, 110.0, 120.0), calls=72),
        Measured("PyTorch, batched", many, (100.0, 110.0, 120.0), calls=72_000),
        Measured("JAX, scan", one, (900.0, 1000.0, 1100.0), calls=1),
        Measured("JAX, scan", many, (1900.0, 2100.0, 2600.0), calls=1),
    ]
    said = verdicts(rows)
    assert said["JAX, scan over Gymnasium, a loop"] == "holds"
    assert said["PyTorch, batched over Gymnasium, a loop"] == "does not hold"
    assert said["more steps in a batch, JAX, scan"] == "undecided"
    assert said["more steps in a batch, PyTorch, batched"] == "does not hold"
    assert said["JAX, scan over PyTorch, batched"] == "holds"
    assert (
        said["calls of a batch, JAX, scan"] == said["calls of a batch, PyTorch, batched"] == "holds"
    )
    grown = [dataclasses.replace(rows[4], calls=7) if m is rows[4] else m for m in rows]
    assert verdicts(grown)["calls of a batch, JAX, scan"] == "does not hold"
    text = table(findings.found(rows))
    assert "does not hold, because batches run on the few cores of a CPU" in text


def test_findings_on_state_and_work() -> None:
    def row(name: str, n: int, s: int, c: int, speed: float) -> Measured:
        return Measured(name, Cell(n, 100, 0, s, c), (speed, speed, speed))

    gains = {(16, 1, 1): 1.0, (16, 64, 1): 3.0, (16, 64, 16): 1.0, (32, 64, 1): 3.1}
    rows = [row("JAX, a call a step", *key, 1.0) for key in gains]
    rows += [row("JAX, blocks", *key, gain) for key, gain in gains.items()]
    said = verdicts(rows)
    of = "gain of JAX, blocks over JAX, a call a step"
    assert {
        said[f"{what}, {of}"] for what in ("more state", "less work", "the same for every N")
    } == {"holds"}
    rows[-1] = row("JAX, blocks", 32, 64, 1, 30.0)
    assert verdicts(rows)[f"the same for every N, {of}"] == "does not hold"


def test_choices_count_where_the_fastest_leads_beyond_the_spread() -> None:
    case = choices.Case("CartPole-v1", 4, 4, 0)
    fast, slow = [10.0, 10.1, 10.2, 10.3], [8.0, 8.1, 8.2, 8.3]
    one = choices.Chosen(case, "scan", {"scan": fast, "step": slow})
    assert one.order == ["scan", "step"] and one.counts and one.is_right
    assert not choices.Chosen(case, "step", {"scan": fast, "step": slow}).is_right
    assert choices.Chosen(case, "step", {"scan": fast, "step": [9.9] * 4}).is_right
    assert not choices.Chosen(case, "scan", {"scan": fast, "step": [9.0, 9.5, 10.5, 11.0]}).counts
    assert len(choices.CASES) >= 10 and len(set(choices.CASES)) == len(choices.CASES)


def test_fig_2_is_said_of_plateaus() -> None:
    def at(name: str, *speeds: float) -> Measured:
        return Measured(name, Cell(16, 20, 0), speeds)

    near = findings.found([at("JAX, scan", 50.0, 60.0), at("Brax, ant", 10.0, 12.0)])
    far = findings.found([at("JAX, scan", 500.0, 600.0), at("Brax, ant", 10.0, 12.0)])
    assert [f.verdict for f in near] == ["holds"] and [f.verdict for f in far] == ["does not hold"]
    assert "a step of bodies" in far[0].because and far[0].number == "Fig. 2"


def test_other_simulators_have_to_move() -> None:
    obs = np.arange(12.0).reshape(3, 2, 2)
    equations.moves({"obs": obs, "reward": np.zeros((3, 2))})
    obs[2, 1] = obs[1, 1]
    with pytest.raises(AssertionError, match="nothing moved, at step 1 of environment 1"):
        equations.moves({"obs": obs, "reward": np.zeros((3, 2))})


@pytest.mark.filterwarnings("ignore")  # Brax and JAXopt warn that they are unmaintained
def test_brax_takes_steps() -> None:
    pytest.importorskip("brax", reason="Brax is not installed (make peers-env)")
    made, steps = advanced(BRAX["Brax, pendulum"], Cell(4, 20, 0))
    equations.moves(made.batch())
    assert steps == 80 and made.counts()["calls"] == 1


def test_the_overlap_is_a_ratio_of_an_iteration_to_its_parts() -> None:
    case = choices.Case(f"gym.{overlap.WAITING}", 1, 4, 0)
    *_, row = overlap.table([(case, "loop")], rounds=1)
    collecting_ms, learning_ms, both_ms, ratio = map(float, row.split("|")[3:-1])
    assert collecting_ms >= 4.0 and both_ms > 0
    assert ratio == pytest.approx(both_ms / (collecting_ms + learning_ms), abs=0.01)


def test_ray_is_compared_with_processes() -> None:
    pytest.importorskip("ray", reason="Ray is not installed (make peers-env)")
    *_, row = on_ray.table(1, [on_ray.Case("short", f"gym.{on_ray.BUSY}", 2, 2)], rounds=1)
    figures, to_processes, to_loop = row.split("|")[3:-1]
    loop, processes, ray = (float(x.replace(",", "")) for x in figures.split(", "))
    assert float(to_processes) == pytest.approx(ray / processes, rel=0.1, abs=0.01)
    assert float(to_loop) == pytest.approx(ray / loop, rel=0.1, abs=0.01)
