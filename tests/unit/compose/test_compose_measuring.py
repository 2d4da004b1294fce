"""Latency tables: measured for this machine, derived from data sheets for others."""

from __future__ import annotations

import threading
from typing import Any

import jax
import pytest

import timerl_nb as trl
from tests import counting
from timerl_nb.collecting.cost_model import device_of
from timerl_nb.compose.data_sheet_devices import IterationWork, gpu_device, streams_of
from timerl_nb.replay import Dqn, Replay
from timerl_nb.replay.prioritization.tree_levels import Levels
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Work

DQN = Dqn("gym.CartPole-v1", hidden=(8,))


def test_a_table_is_measured_and_chosen_from() -> None:
    beside = [f"CPU:{k}" for k in range(1, len(jax.devices()))]
    devices = ["CPU", "CPU x2", *beside, "A100", "Agilex"]
    table, links = trl.compose.measure(DQN, devices, batch=16, inserted=8, capacity=500, rounds=4)
    assert list(table.devices) == devices
    assert (table.batch, table.inserted, table.host) == (16, 8, "CPU")
    # obs and next_obs of 4 numbers, an action, a reward, and a flag smaller than a number
    assert table.experience == 10
    for name, device in table.devices.items():
        assert device.learner is not None and device.learner.seconds > 0
        assert device.learner.is_modelled == (name in ("A100", "Agilex"))
        assert (device.manager is None) == (name in beside)
    assert table.devices["CPU"].learner.spread >= 0  # type: ignore[union-attr]
    head, titles, *lines = repr(table).splitlines()
    assert head.startswith("batches of 16, 8 new rows") and titles.split()[-1] == "learner"
    assert [line.split(" (")[0].split("  ")[0] for line in lines] == devices
    choice = trl.compose.choose(table, links)
    assert len(choice.all) == len(devices) ** 2
    text = str(choice)
    assert "the buffer is on the host" in text or not beside
    assert text.count("modelled") > 4


def test_what_is_described_follows_from_its_sheet() -> None:
    """A GPU's roofline, computed by hand."""
    work = Work(launches=7, products=2_000_000, elements=30_000, nbytes=400_000)
    gpu = device_of("A100")
    asked = IterationWork(1000, 8, [(4, 8), (8, 2)], 32, 8, work, 50_000)
    found = gpu_device(gpu, asked)
    assert found.manager is not None and found.learner is not None and found.both is not None
    of = gpu.machine
    computing = 2_000_000 / of.flops + 30_000 / of.elements
    assert found.learner.seconds == pytest.approx(of.launch + max(7 * of.call, computing))
    depth = len(Levels(1000, 8).widths) - 1
    assert depth == 4
    looking = depth * 32 * 8 / of.elements
    assert found.manager.sample.seconds == pytest.approx(of.launch + max(depth * of.call, looking))
    assert found.manager.insert.seconds <= found.manager.update.seconds
    large = gpu_device(gpu, IterationWork(1000, 8, [], 32, 8, Work(products=10**13), 0))
    assert large.learner is not None
    assert large.learner.seconds == pytest.approx(10**13 / of.flops, rel=1e-2)


def test_streams_are_searched_from_one_to_the_batch() -> None:
    asked: list[int] = []

    def seconds(streams: int) -> float:
        asked.append(streams)
        return {1: 5.0, 2: 3.0, 3: 2.0, 4: 2.0, 5: 4.0}[streams]

    assert streams_of(5, seconds) == (3, 2.0) and asked == [1, 2, 3, 4, 5]
    assert streams_of(1, lambda n: 7.0 / n) == (1, 7.0)
    assert streams_of(9, lambda n: 7.0 / n) == (9, 7.0 / 9)


def test_devices_that_nobody_knows_are_refused() -> None:
    with pytest.raises(trl.errors.OptionError, match="'Zilog' is neither present nor described"):
        trl.compose.measure(DQN, ["CPU", "Zilog"], capacity=100, batch=8, rounds=2, actors=0)
    with pytest.raises(trl.errors.OptionError, match="actors run on it"):
        trl.compose.measure(DQN, "A100")


def test_actors_act_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows are inserted; if they fail, measuring fails, and no thread remains."""
    before = {t for t in threading.enumerate() if t.name.startswith("timerl")}
    blocks: list[int] = []
    insert = Replay.insert_entries

    def inserted(self: Replay, entries: Any) -> int:
        blocks.append(len(entries["reward"]))
        return insert(self, entries)

    monkeypatch.setattr(Replay, "insert_entries", inserted)
    small = {"batch": 8, "inserted": 8, "envs": 2, "capacity": 100}
    trl.compose.measure(DQN, ["CPU"], **small, rounds=20, actors=2)
    assert blocks and set(blocks) == {8}
    failing = Dqn(trl.env.make(f"gym.{counting.NAME}", raises=3), hidden=(8,))
    with pytest.raises(trl.errors.EnvError, match="an actor failed: .*a wheel came off"):
        trl.compose.measure(failing, ["CPU"], **small, rounds=200)
    assert {t for t in threading.enumerate() if t.name.startswith("timerl")} <= before
