"""Cost model of collecting: recovers constants of synthetic machines, and chooses well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import pytest

import timerl_nb as trl
from benchmarks.collecting.fitting import Cell, Run, fit, measured
from timerl_nb.base.errors import OptionError
from timerl_nb.base.machine_model import Machine
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.collector import STRATEGIES
from timerl_nb.collecting.cost_model import Device, Load, StepCosts, device_here, device_of, likely
from timerl_nb.collecting.policies.ready_policies import Random
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Work

TRUE = Machine(launch=3e-5, call=2e-6, flops=8e10, elements=3e9, bandwidth=1.2e10)
GPU = Device("made up", Machine(2e-5, 4e-6, 1e13, 5e12, 9e11, near=1 << 22, far=1 << 24), True)
CPU = Device("made up", TRUE)
SMALL = StepCosts(kernels=20, products=0, elements=200, state=16, row=26)
LARGE = replace(SMALL, elements=20, state=1 << 14)  # memory-bound from 256 environments on
HEAVY = replace(LARGE, elements=1e6)  # compute-bound


def batches(step: StepCosts, envs: int, steps: int, device: Device) -> Mapping[str, float]:
    return {name: load.seconds(device) for name, load in step.loads(envs, steps).items()}


def runs(device: Device) -> list[Run]:
    policy = replace(SMALL, products=2e5)
    wide = replace(LARGE, row=0)
    loads = [
        SMALL.loads(4, 32)["step"],
        replace(SMALL, arrays=9).loads(4, 256)["scan"],
        SMALL.loads(65_536, 16)["scan"],
        policy.loads(65_536, 16)["scan"],
        wide.loads(65_536, 8)["scan"],
    ]
    return [Run(load, load.seconds(device)) for load in loads]


@pytest.mark.parametrize("overlaps", [False, True])
def test_constants_are_found_again(overlaps: bool) -> None:
    found = fit(runs(Device("", TRUE, overlaps)), Machine(), overlaps=overlaps)
    assert asdict(found) == pytest.approx(asdict(TRUE), rel=0.02)


def test_constants_are_not_negative_and_stay_where_nothing_is_known() -> None:
    load = Load(calls=1, launches=1000, products=0, elements=1e6, moved=())
    fewer = [
        Run(replace(load, launches=n), 1e-3) for n in (1000, 2000, 4000)
    ]  # launches cost nothing
    found = fit(fewer, Machine())
    assert found.call >= 0 and found.launch >= 0 and found.elements > 0
    assert found.flops == Machine().flops and found.bandwidth == Machine().bandwidth
    seconds = [run.load.seconds(Device("", found)) for run in fewer]
    assert seconds == pytest.approx([1e-3] * 3, rel=0.05)


def test_f1_many_environments_cost_as_much_as_one_until_work_decides() -> None:
    one, many = (batches(SMALL, n, 1, GPU)["scan"] for n in (1, 1024))
    assert many == pytest.approx(one)  # 1,024 times as many steps per second
    assert batches(SMALL, 1 << 28, 1, GPU)["scan"] > 10 * one


def test_f2_one_call_for_all_steps_saves_calls() -> None:
    for device in (CPU, GPU):
        step, scan = (batches(SMALL, 16, 1000, device)[name] for name in ("step", "scan"))
        assert step - scan == pytest.approx((2 * 1000 - 1) * device.machine.launch)


def test_f3_one_kernel_for_all_steps_saves_launches() -> None:
    loads = SMALL.loads(16, 1000)
    assert (loads["scan"].launches, loads["kernel"].launches) == (20_000, 1)
    seconds = batches(SMALL, 16, 1000, GPU)
    assert seconds["scan"] > 11 * seconds["kernel"]
    assert batches(SMALL, 16, 1, GPU)["step"] > batches(SMALL, 16, 1, GPU)["kernel"]


def test_f4_fusing_gains_where_memory_decides_and_not_where_arithmetic_does() -> None:
    ratios = {}
    for name, step in (("large", LARGE), ("heavy", HEAVY)):
        for envs in (1 << 14, 1 << 16):
            seconds = batches(step, envs, 100, GPU)
            ratios[name, envs] = seconds["scan"] / seconds["kernel"]
    assert ratios["large", 1 << 14] > 10
    # for any number of environments
    assert ratios["large", 1 << 14] == pytest.approx(ratios["large", 1 << 16], rel=0.05)
    assert ratios["heavy", 1 << 14] == pytest.approx(1, rel=0.05)


def test_the_choice_of_made_up_machines() -> None:
    def best(step: StepCosts, envs: int, device: Device, *names: str) -> str:
        seconds = batches(step, envs, 100, device)
        return min(names, key=lambda name: seconds[name])

    own = ("step", "scan", "blocks")
    assert best(SMALL, 64, CPU, *own) == "scan"
    assert best(LARGE, 1 << 14, CPU, *own) == "blocks"  # 256 MiB exceed the cache
    assert (
        best(LARGE, 1 << 14, replace(CPU, machine=replace(TRUE, near=1 << 40, far=1 << 41)), *own)
        == "scan"
    )
    assert best(SMALL, 1 << 10, GPU, *own, "kernel") == "kernel"


def test_steps_are_counted_or_estimated_from_sizes() -> None:
    env = trl.env.make("CartPole-v1")
    task = Task("CartPole-v1", env, None, Random({}, env.act_space), 64, 16, 0)
    about = StepCosts.from_task(task)
    assert (about.products, about.state, about.row) == (0, 16, 16 + 4 + 4 + 2)
    with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=2, how="scan") as c:
        c.next()
        assert about.arrays == len(next(c._source.program.turns(0)))
    counted = StepCosts.from_task(task, Work(320, 1024 * 50, 1024 * 70, 1))
    assert counted == StepCosts(20, 50, 70, about.state, about.row, about.arrays)
    order = [strategy.name for strategy in likely(task, STRATEGIES[::-1])]
    assert order.index("scan") < order.index("step") < order.index("loop")


def test_data_sheets_are_predictions_with_sources() -> None:
    for name in ("V100", "A100", "H100"):
        device = device_of(name)
        assert device.is_predicted and str(device) == f"{name} (predicted)" and device.overlaps
        assert {"flops", "bandwidth", "cache", "launch"} == set(device.sources)
        assert 2e-6 <= device.machine.call <= 5e-6
        assert device.machine.launch == device_here().machine.launch
    assert not device_here().is_predicted
    with pytest.raises(OptionError, match="no data sheet of 'A10'"):
        device_of("A10")


def test_batches_are_measured_with_what_they_are_made_by() -> None:
    (run,) = measured([Cell(trl.env.make("synthetic"), 0, 8, 4)])
    with trl.collect(
        trl.env.make("synthetic"), trl.policies.random, envs=8, steps=4, how="scan"
    ) as c:
        c.next()
        counts = c._source.counts
    assert (run.load.calls, run.load.launches) == (1, counts.launches) and run.load.elements > 0
    assert 0 < run.seconds < float("inf")
