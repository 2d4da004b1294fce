"""Training runs: same bits for every thread timing, order within an iteration, and clean ends."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from tests import counting
from tests.torture import kills
from tests.torture.trainings import left, processes
from timerl_nb.replay import (
    Allocation,
    BySpeed,
    Dqn,
    Latencies,
    Move,
    Proportional,
    Replay,
    Training,
)
from timerl_nb.replay.training import training_folder as kept_training
from timerl_nb.replay.training.algorithm import parts, whole
from timerl_nb.replay.training.bounded_channel import Channel, Closed
from timerl_nb.replay.training.learner_thread import Learner
from timerl_nb.replay.training.primitive_rates import seconds_of_a_row
from timerl_nb.replay.training.training_protocol import TrainingThread
from timerl_nb.replay.training.weight_slots import WeightSlots
from timerl_nb.runtime.jax_backend.arrays_and_devices import capture_jax_settings

DQN = Dqn("gym.CartPole-v1", hidden=(8,), target_every=5, epsilon=(1.0, 0.1, 20))


def trained(algorithm: Any = DQN, **given: Any) -> Training:
    small = {"batch": 16, "envs": 2, "steps": 4, "learning_starts": 16, "turns": 30, "seed": 3}
    return trl.replay.train(algorithm, **{**small, **given})


def counted(**options: Any) -> Dqn:
    return Dqn(trl.env.make(f"gym.{counting.NAME}", **options), hidden=(4,))


@pytest.fixture(autouse=True)
def everything_ends() -> Iterator[None]:
    before = {t for t in threading.enumerate() if t.name.startswith("timerl")}
    yield
    for _ in range(3000):
        left = [t for t in threading.enumerate() if t.name.startswith("timerl")]
        if not set(left) - before:
            return
        time.sleep(0.01)
    raise AssertionError(f"left behind: {left}")


def bits(run: Training) -> dict[str, bytes]:
    result = run.result()
    found = {f"curve {n}": x.tobytes() for n, x in result.items()}
    found |= {f"at {n}": c["turn"].tobytes() for n, c in result.coordinates.items()}
    return found | {f"weights {n}": x.tobytes() for n, x in result.parameters.items()}


# --- the same bits ---------------------------------------------------------------------------------


def test_exact_is_exact_with_however_many_threads() -> None:
    buffers = [
        Replay(200, DQN.fields, priority=Proportional(), n_step=3, gamma=0.99) for _ in range(3)
    ]
    found = [
        bits(trained(mode="exact", actors=n, blocks=3, buffer=buffer))
        for n, buffer in zip((1, 2, 8), buffers, strict=True)
    ]
    assert found[0] == found[1] == found[2]
    first, *others = [buffer.state() for buffer in buffers]
    for other in others:
        assert all(x.tobytes() == other[n].tobytes() for n, x in first.items() if n != "about")
    # the seed matters, and so do weights for acting
    assert bits(trained(mode="exact", blocks=3, seed=4)) != found[0]
    assert np.frombuffer(found[0]["curve staleness"]).tolist() == [0.0] * 30


def test_gradients_of_parts_add_up_to_that_of_the_batch() -> None:
    random = np.random.default_rng(0)
    rows: dict[str, Any] = {
        "obs": random.normal(size=(37, 4)).astype("f4"),
        "action": random.integers(2, size=37).astype("i4"),
        "reward": random.normal(size=37).astype("f4"),
        "next_obs": random.normal(size=(37, 4)).astype("f4"),
        "terminated": random.random(37) < 0.3,
    }
    weight = random.random(37).astype("f4")
    state = DQN.begin(0)
    want = DQN.gradient(state, rows, weight)
    for counts in ([37], [20, 17], [17, 3, 17]):
        made = [DQN.gradient(state, *part) for part in parts(rows, weight, counts)]
        gradient, errors, loss = whole(made, counts)
        for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(want[0]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(errors, want[1], rtol=1e-5, atol=1e-6)
        assert loss == pytest.approx(float(want[2]), rel=1e-6)


@pytest.mark.parametrize("division", [Allocation(1, 0, 0, 37), Allocation(1, 2, 20, 37)], ids=str)
def test_a_learner_begins_with_the_first_rows(division: Allocation) -> None:
    """Each part of it equals that part of the batch."""
    begun = threading.Event()

    @dataclass(frozen=True)
    class Heard:
        of: Dqn = DQN

        def __getattr__(self, name: str) -> Any:
            return getattr(self.of, name)

        def gradient(self, *given: Any) -> Any:
            begun.set()
            return self.of.gradient(*given)

    random = np.random.default_rng(0)
    buffer = Replay(100, DQN.fields, priority=Proportional(), seed=1)
    buffer.insert(
        {
            n: random.integers(2, size=(100, *f.shape)).astype(f.dtype)
            for n, f in buffer.fields.items()
        },
        random.random(100),
    )
    other = Replay(100, DQN.fields, priority=Proportional(), seed=1)
    other.restore(buffer.state())
    state, whole_batch = DQN.begin(0), other.sample(37)
    with closing(Learner(Heard(), None, 2, capture_jax_settings())) as learner:
        step = learner.start(state, division)
        coming = buffer.sample_in_parts(37, chunks=3)
        first = next(coming)
        assert not begun.is_set()
        step.add_rows(first.rows, first.weight)
        assert begun.wait(60)  # no other rows exist yet
        others = list(coming)
        for one in others:
            step.add_rows(one.rows, one.weight)
        found = step.result()
        at_once = learner.start(state, Allocation(1, 0, 0, 37))
        at_once.add_rows(whole_batch.rows, whole_batch.weight)
        want = at_once.result()
    assert [len(one) for one in (first, *others)] == [12, 12, 13]
    drawn = np.concatenate([one.index for one in (first, *others)])
    np.testing.assert_array_equal(drawn, whole_batch.index)
    np.testing.assert_allclose(found.errors, want.errors, rtol=1e-5, atol=1e-6)
    assert found.loss == pytest.approx(want.loss, rel=1e-6)
    # of gradients that Adam's first step almost ignores: its mean is a tenth of them
    for a, b in zip(
        jax.tree.leaves(found.state["mean"]), jax.tree.leaves(want.state["mean"]), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_a_run_of_parts_is_a_run() -> None:
    whole_run, in_parts = trained(mode="exact"), trained(mode="exact", chunks=5)
    np.testing.assert_allclose(
        in_parts.result()["loss"][:3], whole_run.result()["loss"][:3], rtol=1e-4
    )
    with pytest.raises(trl.errors.ShapeError, match="chunks"):
        trained(chunks=0)


def test_a_step_is_that_of_the_mean_gradient() -> None:
    state, rows = DQN.begin(1), DQN.begin(2)["weights"]
    again = DQN.step(state, rows, 4)
    third = DQN.step(state, jax.tree.map(lambda x: x * 8, rows), 32)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(third), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(again["count"]) == 1
    assert not np.array_equal(again["weights"][0]["weight"], again["target"][0]["weight"])
    due = DQN.step({**state, "count": np.int32(4)}, rows, 4)
    np.testing.assert_array_equal(due["weights"][0]["weight"], due["target"][0]["weight"])


# --- one iteration
# -----------------------------------------------------------------------------------


def test_a_run_is_paused_stepped_and_watched() -> None:
    with trained(mode="exact", turns=None, paused=True) as run:
        assert run.wait(10) and (run.state, run.turn) == ("paused", 0)
        run.step(4)
        assert run.wait(60) and (run.state, run.turn) == ("paused", 4)
        frames = run.frames()
        assert next(frames).turn == 4
        run.step(3)
        run.wait(60)
        run.stop()
        *_, last = frames
    assert (last.state, last.turn, last.turns) == ("stopped", 7, None)
    result = run.result()
    assert last.curves["loss"].values.tolist() == result["loss"].tolist()
    assert last.curves["loss"].at.tolist() == result.coordinates["loss"]["turn"].tolist()


def test_actors_are_as_many_as_keep_up(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[Training.__module__]  # the package exports a function of this name
    monkeypatch.setattr(module, "cores", lambda: 5)
    measured: list[tuple[float, float]] = []

    def rates(*given: Any) -> tuple[float, float]:
        measured.append(seconds_of_a_row(*given))
        return 3.0, 2.0

    monkeypatch.setattr(module, "seconds_of_a_row", rates)
    with trained(actors=None, turns=None, paused=True) as run:
        assert run.allocation.actors == 3
    assert min(measured[0]) > 0


def test_rows_are_staged_and_inserted_after_a_batch_was_drawn() -> None:
    buffer = Replay(1000, DQN.fields, priority=Proportional())
    there, learnt = [], []
    with trained(mode="exact", turns=None, buffer=buffer, stage=24, paused=True) as run:
        for _ in range(9):
            run.step()
            run.wait(60)
            there.append(buffer.inserted)
            learnt.append(int(run.learnt["count"]))
    # eight rows per iteration: 24 exist at the end of the third. The fourth inserts them, after its
    # batch was drawn, or not
    assert there == [0, 0, 0, 24, 24, 24, 48, 48, 48]
    assert learnt == [0, 0, 0, 0, 1, 2, 3, 4, 5]


def test_an_entry_that_is_overwritten_while_it_is_learnt_from_keeps_its_new_priority() -> None:
    buffer = Replay(16, DQN.fields, priority=Proportional())
    trained(mode="exact", buffer=buffer, turns=12).result()
    assert buffer.inserted == 11 * 8
    assert buffer.dropped > 0


def test_free_says_how_stale_rows_are() -> None:
    result = trained(mode="free", actors=2, groups=3, turns=60).result()
    assert result["staleness"].min() >= 0 and len(result["loss"]) > 0
    assert (result.coordinates["loss"]["turn"] < 60).all()


def test_two_buffers_of_weights_are_read_by_turn() -> None:
    slots = WeightSlots("a")
    assert slots.read() == (0, "a")
    for k, params in enumerate("bcd", 1):
        before = slots.read()
        slots.write(params)
        assert slots.read() == (k, params) and before == (k - 1, "abcd"[k - 1])


@pytest.mark.parametrize("device", ["cpu:0", "cpu:1"])
def test_the_learner_runs_where_it_is_asked_to(device: str) -> None:
    if device == "cpu:1" and len(jax.devices()) < 2:
        pytest.skip("JAX was given one device")
    run = trained(mode="exact", mapping=device)
    assert bits(run) == bits(trained(mode="exact"))
    number = int(device[-1])
    assert run.learnt["weights"][0]["weight"].devices() == {jax.devices()[number]}
    divided = trained(mode="exact", mapping=device, allocation=Allocation(1, 2, 6, 16))
    near = divided.result()["loss"], run.result()["loss"]
    np.testing.assert_allclose(*near, rtol=1e-3)


@dataclass(frozen=True)
class Chosen:
    """An assignment as returned by `trl.compose.choose`."""

    manager: str
    learner: str


def test_the_learner_has_threads_as_it_was_chosen() -> None:
    run = trained(mode="exact", mapping=Chosen("CPU", "CPU x2"), turns=4)
    assert run.allocation == Allocation(1, 1, 8, 16) and run.result()
    with refused(trl.errors.OptionError, "places the buffer on Agilex"):
        trained(mapping=Chosen("Agilex", "CPU"))


# --- threads move ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scripted:
    """Returns a fixed sequence of allocations."""

    then: list[tuple[int, int, int]]
    told: list[Latencies]

    def move(self, now: Allocation, measured: Latencies) -> Move:
        self.told.append(measured)
        after = now
        if self.then:
            actors, trainers, rows = self.then.pop(0)
            after = Allocation(actors, trainers, rows, now.batch)
        return Move(now, after, measured, "it was scripted")


def test_threads_move_from_acting_to_training_and_back() -> None:
    policy = Scripted([(1, 2, 6), (3, 0, 0)], [])
    run = trained(actors=3, policy=policy, consult=10, turns=400)
    result = run.result()
    moves = [(m.after.actors, m.after.trainers, m.after.rows) for m in run.moves]
    assert moves == [(1, 2, 6), (3, 0, 0)] and run.allocation == Allocation(3, 0, 0, 16)
    seen = np.stack([result[n] for n in ("actors", "trainers", "rows")], 1).astype(int).tolist()
    assert [one for k, one in enumerate(seen) if k == 0 or one != seen[k - 1]] == [
        [3, 0, 0],
        [1, 2, 6],
        [3, 0, 0],
    ]
    alone, beside, *_ = policy.told
    assert alone.trainers == alone.sync == 0.0
    assert min(beside.trainers, beside.sync, beside.learner, beside.actors) > 0
    assert np.isfinite(result["loss"]).all()


# --- failures
# --------------------------------------------------------------------------------------


def test_others_go_on_when_actors_fail() -> None:
    with pytest.warns(trl.errors.TimeRLWarning, match="restarts; its last rollout is lost"):
        run = trained(counted(raises=9), actors=2, groups=4, envs=1, turns=150)
        run.result()
    assert run.turn == 150 and run.deaths
    assert all("a wheel came off" in str(death.error) for death in run.deaths)


def test_an_actor_goes_on_when_the_other_is_killed() -> None:
    """Environments are in spawned processes with shared memory; nothing of them remains."""

    def until(met: Any) -> None:
        for _ in range(12_000):
            if met() or run.error:
                break
            time.sleep(0.01)
        assert met(), run.error

    run = trained(actors=2, envs=1, how="processes", turns=None)
    until(lambda: run.turn > 20 and len(processes()) == 2)
    victim, *others = processes()
    with pytest.warns(trl.errors.TimeRLWarning, match="restarts; its last rollout is lost"):
        victim.kill()
        until(lambda: run.deaths)
    at = run.turn
    until(lambda: run.turn > at + 20 and len(processes()) == 2)
    assert "exit code -9" in str(run.deaths[0].error) and len(run.deaths) == 1
    assert set(others) < set(processes()) and victim not in processes()
    run.stop()
    assert np.isfinite(run.result()["loss"]).all() and left() == []


@pytest.mark.filterwarnings("ignore:group . has failed:timerl_nb.base.errors.TimeRLWarning")
def test_a_run_without_actors_fails() -> None:
    run = trained(counted(raises=1), actors=2, envs=8, turns=100)
    with pytest.warns(trl.errors.TimeRLWarning, match="is removed"):
        run.wait(60)
    with pytest.raises(trl.errors.ExecutionError, match="all actors have failed.*a wheel came off"):
        run.result()
    assert run.state == "failed"


def test_exact_does_not_go_on_without_one() -> None:
    run = trained(counted(raises=5), mode="exact", actors=2, envs=8)
    with pytest.raises(trl.errors.ExecutionError, match="group . has failed.*a wheel came off"):
        run.result()
    assert len(run.so_far().parameters) == 5


@dataclass(frozen=True)
class Failing:
    """An algorithm with a failing learner."""

    of: Dqn

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)

    def step(self, state: Any, gradient: Any, count: int) -> Any:
        raise ZeroDivisionError("the loss is nothing")


def test_a_learner_that_raises_ends_the_run() -> None:
    run = trained(Failing(DQN), actors=3)
    with pytest.raises(ZeroDivisionError, match="the loss is nothing"):
        run.result(60)
    assert run.state == "failed" and "loss" not in run.so_far()


def test_runs_begin_and_end_without_leaving_anything() -> None:
    before = threading.active_count()
    for k in range(20):
        run = trained(
            mode=("free", "exact")[k % 2], actors=1 + k % 3, turns=None, learning_starts=8
        )
        if k % 4 < 2:
            while not run.turn:
                time.sleep(0.001)
        run.stop()
        assert run.wait(60) and run.state == "stopped"
    assert threading.active_count() == before


@contextmanager
def refused(error: type[Exception], what: str) -> Iterator[None]:
    with pytest.raises(error, match=what):
        yield


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"mode": "quick"}, "mode='quick' is not supported"),
        ({"mode": "exact", "policy": BySpeed()}, "excludes a policy"),
        ({"allocation": Allocation(1, 1, 4, 8)}, "batch of 8 rows, but batch=16"),
        ({"mode": "exact", "blocks": 9}, "exceeds the number of groups, 8"),
        ({"mapping": "tpu:0"}, "no device 'tpu:0'"),
        ({"mapping": "cpu:99"}, "no device 'cpu:99'"),
        ({"mapping": 3}, "mapping=3 is not a device name"),
        ({"how": "scan"}, "scan"),
        (
            {"buffer": trl.Replay(2000, {"obs": ((1,), "i32")})},
            r"(?s)lacks fields of the algorithm.*action is missing",
        ),
        (
            {"buffer": trl.Replay(2000, DQN.fields, n_step=3, gamma=0.5)},
            "discounts n-step returns by 0.5, but the algorithm by 0.99",
        ),
        ({"learning_starts": 100_001}, "capacity of 100,000 rows is below learning_starts=100,001"),
        ({"seed": 2**64}, "the seed must fit into 64 bits"),
    ],
)
def test_what_is_no_run_is_refused(given: dict[str, Any], what: str) -> None:
    with refused(trl.errors.OptionError, what):
        trained(**given)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"policy": "half"}, "'half' is not a policy"),
        ({"allocation": (1, 1)}, r"\(1, 1\) is not an allocation"),
        ({"buffer": []}, "is not a replay buffer"),
    ],
)
def test_what_is_of_another_kind_is_refused(given: dict[str, Any], what: str) -> None:
    with refused(trl.errors.CallError, what):
        trained(**given)
    with refused(trl.errors.CallError, "3 is not an algorithm"):
        trl.replay.train(3)  # type: ignore[arg-type]


def test_a_network_chooses_among_actions() -> None:
    with refused(trl.errors.EnvError, "DQN needs discrete actions"):
        counted(act="float")


# --- saved runs
# ------------------------------------------------------------------------------------


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    given: dict[str, Any] = {"mode": "exact", "turns": 24, "every": 8}
    want = bits(trained(**given, folder=tmp_path / "whole"))
    half = trained(**given, folder=tmp_path / "half", paused=True)
    half.step(19)
    half.wait(60)
    half.stop()
    half.wait(60)
    on = trained(**given, folder=tmp_path / "half", actors=3)
    assert bits(on) == want and on.turn == 24
    assert bits(trained(**given, folder=tmp_path / "half")) == want  # nothing is left to do
    with refused(trl.errors.ExecutionError, "a training run with other arguments"):
        trained(**{**given, "seed": 9}, folder=tmp_path / "half")
    with (
        trained(**given, folder=tmp_path / "new", paused=True),
        refused(trl.errors.ExecutionError, "another run saves its state in"),
    ):
        trained(**given, folder=tmp_path / "new")


def test_stop_saves_the_last_turn(tmp_path: Path) -> None:
    given: dict[str, Any] = {"turns": None, "every": 10_000, "folder": tmp_path / "run"}
    run = trained(**given)
    while run.turn < 12:
        time.sleep(0.001)
    run.stop()
    losses, turn = run.result()["loss"], run.turn
    on = trained(**given, paused=True)
    assert on.turn == turn
    on.stop()
    np.testing.assert_array_equal(on.result()["loss"], losses)
    whole = trained(**{**given, "turns": turn})
    np.testing.assert_array_equal(whole.result()["loss"], losses)


def test_stop_reports_a_save_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    run = trained(turns=None, folder=tmp_path / "run")
    while run.turn < 2:
        time.sleep(0.001)
    monkeypatch.setattr(kept_training, "write_whole", full)
    run.stop()
    with refused(trl.errors.ExecutionError, "No space left"):
        run.result()


@pytest.mark.parametrize("mode", ["free", "exact"])
def test_a_run_without_a_handle_stops(mode: str) -> None:
    before = set(threading.enumerate())
    run = trained(mode=mode, turns=None)
    while run.turn < 2:
        time.sleep(0.001)
    control, run = run._control, trained(mode=mode, turns=3)  # like the second run of a cell
    assert control.ended.wait(60) and control.state == "stopped"
    assert len(run.result()["staleness"]) == run.turn == 3
    del run
    ended = time.monotonic() + 30
    while set(threading.enumerate()) - before and time.monotonic() < ended:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def test_frames_keep_their_run() -> None:
    frames = trained(turns=20).frames()
    gc.collect()
    assert [frame.turn for frame in frames][-1] == 20


def test_an_interrupted_result_stops_the_run() -> None:
    run = trained(turns=None)
    while run.turn < 2:
        time.sleep(0.001)
    with patch_wait(run._control.ended), pytest.raises(KeyboardInterrupt):
        run.result()
    assert run._control.ended.is_set() and run.state == "stopped"
    assert len(run.result()["staleness"])


@contextmanager
def patch_wait(ended: threading.Event) -> Iterator[None]:
    """Interrupt the first wait for the end of a run, as Ctrl-C does."""
    wait = ended.wait

    def interrupted(timeout: float | None = None) -> bool:
        ended.wait = wait
        raise KeyboardInterrupt

    ended.wait = interrupted
    yield


def test_a_run_that_is_killed_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    given = [str(tmp_path), "5", "1", "160"]
    with kills.process("tests.torture.trained", given, reads=True) as child:
        out, said = child.communicate()
    assert not child.returncode, said.decode()
    found = json.loads(out)
    assert found["wrong"] == ""
    assert len([what for what in found["fell"] if what != "ended"]) >= 3


# --- channels --------------------------------------------------------------------------------------


def test_who_waits_at_a_channel_that_is_closed_is_let_go() -> None:
    channel, ended = Channel[int](1), list[str]()
    channel.put(1)

    def waits(name: str, what: Any) -> None:
        with pytest.raises(Closed):
            what()
        ended.append(name)

    putting = threading.Thread(target=waits, args=("put", lambda: channel.put(2)))
    putting.start()
    time.sleep(0.01)
    assert len(channel) == 1 and not ended
    channel.close()
    putting.join(10)
    waits("take", channel.take)
    waits("put again", lambda: channel.put(3))
    assert ended == ["put", "take", "put again"] and channel.available(3) == []


def test_an_actor_stages_rows() -> None:
    rows = {"obs": np.zeros((2, 1), "f4"), "next_obs": np.ones((2, 1), "f4"), "reward": [1.0, 2.0]}
    fields = {n: ((1,) if "obs" in n else (), "f32") for n in rows} | {"terminated": ((), "bool")}
    buffer = Replay(50, fields, n_step=2, gamma=0.5)
    with buffer.actor(5) as put, buffer.actor() as other:
        for k in range(4):
            put({**rows, "terminated": [False, k == 3]})
            assert len(buffer) == [0, 0, 0, 7][k] and put.staged_count == [0, 2, 4, 0][k]
        other({**rows, "terminated": [False, False]})  # it computes its returns itself
        assert len(buffer) == 7
    assert buffer.sample(20)["discount"].min() == 0.25
    with pytest.raises(trl.errors.ShapeError, match="terminated is missing"):
        put(rows)
    assert replace(DQN, double=False) != DQN


def test_mode_free_resumes_with_another_number_of_groups(tmp_path: Path) -> None:
    buffer = lambda: Replay(200, DQN.fields)  # noqa: E731
    trained(mode="free", actors=1, folder=tmp_path, buffer=buffer(), turns=5).result()
    run = trained(mode="free", actors=3, folder=tmp_path, buffer=buffer(), turns=9)
    # a further group does not repeat the environments of an earlier run
    assert [group.life for group in run._training._groups] == [1, 1, 1]
    run.result()
    run = trained(mode="free", actors=2, folder=tmp_path, buffer=buffer(), turns=13)
    assert [group.life for group in run._training._groups] == [2, 2]
    assert run.result()["loss"].size and run.turn == 13


@pytest.mark.parametrize("turns", [3, 1])
def test_losses_after_the_last_turn_belong_to_it(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = iter([1.0] + [0.0] * (turns - 1) + [5.0])
    monkeypatch.setattr(
        TrainingThread, "_losses_of_turn", lambda self: {"lost": next(new, 0.0)}, raising=True
    )
    result = trained(mode="exact", turns=turns).result()
    want = [1.0] + [0.0] * (turns - 1)
    want[-1] += 5.0
    assert result["lost"].tolist() == want
    assert result.coordinates.get("lost", {"turn": np.arange(turns)})["turn"].tolist() == [
        *range(turns)
    ]
