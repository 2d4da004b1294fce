"""Trajectories and learning curves: their content, and the programs that make them again."""

from __future__ import annotations

import copy
import pickle
import shutil
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import timerl_nb as trl
from benchmarks import __main__ as face
from benchmarks.datasets import curve_pictures, curves, remaking, trajectories
from timerl_nb.base.errors import CallError, OptionError, ShapeError
from timerl_nb.datasets.table import Table
from timerl_nb.datasets.trajectories import (
    FIELDS,
    Trajectories,
    read_trajectories,
    save_trajectories,
)

FOLDER = Path(__file__).parents[3] / "datasets"
# Return of a good policy, and of the last tenth of each run
GOALS = {"cartpole": 500, "mountain_car": -125, "pendulum": -300}
LEARNT = {
    "reinforce": 190,
    "ppo": 475,
    "clipped_ppo": 450,
    "dqn": 475,
    "ddpg": -250,
    "a2c": 250,
    "r2d2": 0.9,
    "td3": -400,
    "sac": -250,
    "impala": 460,
    "recurrent_ppo": 0.95,
    "evolution_strategies": 475,
}
EXACT_STEPS = 50  # trajectories are chaotic: differences of rounding grow with time


def loaded(name: str) -> Trajectories:
    found = trl.datasets.load(f"trajectories/{name}")
    assert isinstance(found, Trajectories)
    return found


def curve(name: str) -> Table:
    found = trl.datasets.load(f"curves/{name}")
    assert isinstance(found, Table)
    return found


# --- trajectories --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", trajectories.TASKS)
def test_trajectories_are_recorded_again(name: str) -> None:
    stored, made = loaded(name), trajectories.record(name)
    assert made.policies == stored.policies and made.env == stored.env
    for one, other in zip(made.episodes(), stored.episodes(), strict=True):
        for field in FIELDS:
            np.testing.assert_allclose(
                one[field][:EXACT_STEPS], other[field][:EXACT_STEPS], rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("name", trajectories.TASKS)
def test_every_stored_step_is_one_of_gymnasium(name: str) -> None:
    stored = loaded(name)
    env = gymnasium.make(stored.env).unwrapped
    env.reset(seed=0)
    for episode in stored.episodes():
        obs, after = episode["observations"], episode["next_observations"]
        assert np.array_equal(obs[1:], after[:-1])
        for k in range(len(obs)):
            state = obs[k] if name != "pendulum" else [np.arctan2(obs[k][1], obs[k][0]), obs[k][2]]
            env.state = np.array(state, np.float64)  # type: ignore[attr-defined]
            if name == "cartpole":
                env.steps_beyond_terminated = None  # type: ignore[attr-defined]
            seen, reward, terminated, _, _ = env.step(episode["actions"][k])
            np.testing.assert_allclose(seen, after[k], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(reward, episode["rewards"][k], rtol=1e-4, atol=1e-5)
            assert terminated == episode["terminated"][k]


@pytest.mark.parametrize("name", trajectories.TASKS)
def test_one_policy_is_better(name: str) -> None:
    stored, task = loaded(name), trajectories.TASKS[name]
    assert stored.policies == ("random",) * task.episodes[0] + (task.policy,) * task.episodes[1]
    good, by_chance = (
        [episode["rewards"].sum() for episode in stored.episodes(policy)]
        for policy in (task.policy, "random")
    )
    assert min(good) >= GOALS[name] and max(by_chance) < min(good)
    assert (FOLDER / "trajectories" / f"{name}.npz").stat().st_size <= 50_000


def test_trajectories_are_immutable() -> None:
    stored = loaded("mountain_car")
    with pytest.raises(AttributeError):
        stored.seed = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        stored.arrays["rewards"] = np.zeros(3)  # type: ignore[index]
    copies = (stored, *stored.episodes(), pickle.loads(pickle.dumps(stored)), copy.deepcopy(stored))
    for one in copies:
        for field in FIELDS:
            with pytest.raises(ValueError, match="read-only"):
                one[field][0] = 0
            with pytest.raises(ValueError, match="cannot set WRITEABLE"):
                one[field].setflags(write=True)
    for one in copies[-2:]:
        assert one == stored and hash(one) == hash(stored)
    assert stored != loaded("cartpole") and stored != 3


def two_steps(**fields: object) -> Trajectories:
    """Return one episode of two steps, with these fields instead of zeros."""
    zeros = dict.fromkeys(FIELDS, np.zeros(2))
    ends = {"terminated": np.array([False, True]), "truncated": np.zeros(2, bool)}
    return Trajectories("E", 0, ("p",), {**zeros, **ends, **fields})  # type: ignore[dict-item]


def test_given_arrays_are_copied() -> None:
    ends, rewards = np.array([False, True]), np.zeros(2)
    view = rewards[:]
    view.setflags(write=False)
    one = two_steps(terminated=ends, rewards=view)
    ends[0], rewards[0] = True, 1
    assert list(one["terminated"]) == [False, True] and list(one["rewards"]) == [0, 0]


def test_equal_trajectories_have_equal_hashes() -> None:
    one = two_steps()
    for rewards in (np.zeros(2, np.float32), np.array([0.0, -0.0]), [0, 0]):
        other = two_steps(rewards=rewards)
        assert one == other and hash(one) == hash(other)
    assert one != two_steps(rewards=[0, 1])
    listed = Trajectories("E", 0, ["p"], one)  # type: ignore[arg-type]
    assert listed == one and hash(listed) == hash(one)


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("rewards", 0.0, r"the shape \(\)"),
        ("rewards", ["a", "b"], "an array of numbers"),
        ("observations", [[1], [1, 2]], "an array of numbers"),
        ("terminated", np.array([0.0, 1.0]), "float64 does not fit into bool"),
        ("truncated", np.zeros((2, 1), bool), r"the shape \(2, 1\)"),
    ],
)
def test_wrong_fields_are_errors(field: str, values: object, message: str) -> None:
    with pytest.raises(ShapeError, match=f"the field '{field}'.*{message}"):
        two_steps(**{field: values})


def test_trajectories_are_a_mapping_that_shows_its_episodes() -> None:
    stored = loaded("cartpole")
    assert tuple(stored) == FIELDS and len(stored) == len(FIELDS)
    assert stored.get("x") is None and "rewards" in stored
    assert sum(len(one["rewards"]) for one in stored.episodes()) == len(stored["rewards"])
    lines = str(stored).splitlines()
    assert lines[0] == "CartPole-v1, seed 0" and len(lines) == 2 + len(stored.policies)
    assert repr(stored) == str(stored)
    html = stored._repr_html_()
    assert html.startswith(f"<p>{lines[0]}</p>")
    assert html.count("<tr>") == 1 + len(stored.policies) and "linear feedback" in html


def test_wrong_trajectories_are_errors() -> None:
    stored = loaded("cartpole")
    with pytest.raises(OptionError, match="did you mean 'rewards'"):
        stored["reward"]
    with pytest.raises(OptionError, match="'linear feedback'"):
        stored.episodes("good")
    arrays = dict(stored.arrays)
    with pytest.raises(CallError, match="must be a tuple of texts"):
        Trajectories("E", 0, "p", arrays)  # type: ignore[arg-type]
    wrong = [
        ("fields of these", arrays.keys() - {"rewards"}, stored.policies),
        ("episodes end", arrays.keys(), stored.policies[1:]),
    ]
    for message, fields, policies in wrong:
        with pytest.raises(ShapeError, match=message):
            Trajectories("E", 0, policies, {field: arrays[field] for field in fields})
    for field, message in (("rewards", "different numbers"), ("all", "episodes end")):
        short = {k: v[:-1] if field in (k, "all") else v for k, v in arrays.items()}
        with pytest.raises(ShapeError, match=message):
            Trajectories("E", 0, stored.policies, short)


# --- learning curves -----------------------------------------------------------------------------


def test_every_algorithm_has_a_curve() -> None:
    assert set(curves.TASKS) == set(trl.algorithms.__all__) == set(LEARNT)


@pytest.mark.parametrize("name", curves.TASKS)
def test_every_run_has_learnt(name: str) -> None:
    table, task = curve(name), curves.TASKS[name]
    assert table.columns == curves.COLUMNS
    assert set(table.column("seed")) == {*curves.SEEDS}
    for seed in curves.SEEDS:
        run = table.where(seed=seed)
        assert 40 <= len(run) <= curves.ROWS
        iterations = np.array(run.column("iteration"), int)
        assert (np.diff(iterations) > 0).all() and 0.9 * task.iterations < iterations[
            -1
        ] <= task.iterations
        assert np.array_equal(iterations * task.steps, np.array(run.column("steps")))
        returns = np.array(run.column("return"), float)
        tenth = len(run) // 10
        first, last = returns[:tenth].mean(), returns[-tenth:].mean()
        assert last >= LEARNT[name] and last - first > 0.5 * abs(last), (seed, first, last)


PICTURES = sorted(curve_pictures.PICTURES.glob("learning-*.svg"))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_pictures_show_the_stored_curves(path: Path) -> None:
    name = path.stem.removeprefix("learning-")
    assert path.read_text() == curve_pictures.picture([name])


def test_a_curve_begins_again() -> None:
    """In the first iterations, rounding of the processor does not change an action."""
    program = curves.compile_task("reinforce", iterations=2)
    made = [row[-1] for row in curves.curve(program, "reinforce", seed=1)]
    stored = curve("reinforce").where(seed=1).column("return")[:2]
    np.testing.assert_allclose(made, np.array(stored, float), rtol=1e-4)


def test_groups_of_iterations_without_an_episode_are_absent() -> None:
    returns, episodes = np.array([4.0, 1.0, 0.0, 0.0, 3.0]), np.array([1, 3, 0, 0, 2])
    assert list(curves.thin(returns, episodes, 2)) == [(2, 1.75), (5, 3.0)]


def test_a_run_is_written_seed_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(seed: int, progress: bool) -> dict[str, list[float]]:
        return {"return": [float(seed), 0.0, 0.125], "episodes": [1, 0, 2]}

    monkeypatch.setattr(curves, "TASKS", {"dqn": curves.Task("E", {"B": 2, "T": 3})})
    monkeypatch.setattr(curves, "compile_task", lambda *_, **__: SimpleNamespace(execute=execute))
    curves.write("dqn", tmp_path / "dqn.csv", seeds=[3, 4])
    lines = (tmp_path / "dqn.csv").read_text().splitlines()
    assert lines == [",".join(curves.COLUMNS), "3,1,2,3.0", "3,3,6,0.12", "4,1,2,4.0", "4,3,6,0.12"]


# --- command -------------------------------------------------------------------------------------


def test_the_command_makes_files_again_and_updates_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(FOLDER / "README.md", tmp_path)
    monkeypatch.setattr(
        remaking, "MAKERS", {"curves/dqn.csv": lambda path: path.write_bytes(b"new")}
    )
    remaking.main("curves/dqn", folder=tmp_path)
    assert "| curves/dqn.csv | 3 | 0 | changed |" in capsys.readouterr().out
    before, after = (
        remaking.rows((folder / "README.md").read_text()) for folder in (FOLDER, tmp_path)
    )
    changed = {file for file, row in after.items() if row != before[file]}
    assert before.keys() == after.keys() and changed == {"curves/dqn.csv"}
    assert after["curves/dqn.csv"]["checksum"] == sha256(b"new").hexdigest()
    remaking.main(folder=tmp_path)
    assert "as before" in capsys.readouterr().out


def test_other_files_have_their_command() -> None:
    with pytest.raises(SystemExit, match="ours.scope.zip: `python tests/traces.py ours"):
        remaking.main("ours")
    with pytest.raises(SystemExit, match=r"(?s)acs\.csv: by hand.*timerl\.csv: by hand"):
        remaking.main("published")
    with pytest.raises(SystemExit, match="no row of 'other'"):
        remaking.main("other")
    assert face.COMMANDS["datasets"] == "datasets:main"


def test_each_name_that_is_made_again_is_a_row() -> None:
    rows = remaking.rows((FOLDER / "README.md").read_text())
    made = {file for file, row in rows.items() if "-m benchmarks datasets" in row["command"]}
    assert made == {*remaking.MAKERS}
    for file in made:
        assert rows[file]["command"].endswith(f"datasets {file.partition('.')[0]}`")


def test_two_rows_of_one_file_are_an_error() -> None:
    text = (FOLDER / "README.md").read_text()
    with pytest.raises(ValueError, match="two rows"):
        remaking.rows(text + text)


def test_a_saved_archive_is_read(tmp_path: Path) -> None:
    stored = loaded("pendulum")
    save_trajectories(stored, tmp_path / "a.npz")
    assert read_trajectories(tmp_path / "a.npz") == stored
