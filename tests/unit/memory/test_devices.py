"""Data parallelism: results of one device, and half of every sharded buffer on each of two."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import pytest

import timerl_nb as trl
from tests.conftest import SHARED
from tests.reinforce import reinforce
from tests.workers import CALLS, COUNT, LOWERINGS, dealt, devices_of, settings, tried
from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.memory.placement.per_device_memory import Share

ROOT = Path(__file__).parents[3]
PROGRAMS = ("Monte Carlo", "5-step", "actor and critic", "episodes", "convolutions", "replay")


def test_one_worker_in_three_sees_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    given = re.search(rf"{COUNT}=(\d+)", os.environ["XLA_FLAGS"])
    assert given is not None and len(jax.devices()) == int(given[1])
    assert [devices_of(name) for name in ("gw0", "gw1", "gw2", "gw3", "")] == [1, 2, 1, 1, 1]
    monkeypatch.setenv("TIMERL_TEST_SEED", "1")
    assert [devices_of(name) for name in ("gw0", "gw1", "gw2", "gw3", "")] == [2, 1, 2, 2, 2]


def test_of_many_ways_each_program_is_tried_in_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way is tried with some programs, and each program in all ways over several seeds."""
    ways, one = range(6), list[int]()
    assert [tried(ways, 2, turn) for turn in range(4)] == [[0, 3], [1, 4], [2, 5], [0, 3]]
    assert tried(ways, 4, 1) == [1, 2, 4, 5] and tried(ways, 9, 0) == list(ways)
    for seed in range(3):
        monkeypatch.setenv("TIMERL_TEST_SEED", str(seed))
        one += tried(ways, 2, 0)
    assert sorted(one) == list(ways)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_each_worker_begins_with_what_takes_long(count: int) -> None:
    groups = ["browser"] * 5, ["property"] * 7, ["notebook"] * 3
    others = [f"{k}" for k in range(50)]
    order, shares = dealt(groups, others, count), list[list[str]]()
    assert sorted(order) == sorted([*others, *(one for group in groups for one in group)])
    for left in range(count, 0, -1):  # as pytest-xdist distributes them
        size = len(order) // left
        shares, order = [*shares, order[:size]], order[size:]
    firsts = [share[0] for share in shares]
    assert firsts[:3] == ["browser", "property", "notebook"][:count]
    assert all(share.count("browser") in (0, 5) for share in shares)
    rest = [one for share in shares for one in share if one.isdigit()]
    assert rest == others and all(share[-1].isdigit() for share in shares)


def test_jax_remembers_how_very_many_functions_are_called() -> None:
    from jax._src import pjit

    assert {pjit._get_cpp_global_cache(explicit).capacity() for explicit in (True, False)} == {
        CALLS
    }


def test_a_thread_keeps_a_context_for_many_lowerings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering in the shared context equals lowering in a fresh one."""
    from jax._src.interpreters import mlir

    def contexts(count: int) -> list[object]:
        return [mlir.make_ir_context() for _ in range(count)]

    with ThreadPoolExecutor(1) as other:
        mine, theirs = contexts(2 * LOWERINGS), other.submit(contexts, 2 * LOWERINGS).result()
    assert len(set(mine)) in (2, 3) and len(set(theirs)) == 2 and not set(mine) & set(theirs)

    def lowered() -> str:  # a new function, unknown to JAX
        function = lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jax.numpy.sin(y) * x, x)  # noqa: E731
        return jax.jit(function).lower(1.0).as_text()

    texts = {lowered() for _ in range(2)}
    assert mlir.make_ir_context.__closure__ is not None
    (make,) = (
        x.cell_contents for x in mlir.make_ir_context.__closure__ if callable(x.cell_contents)
    )
    monkeypatch.setattr(mlir, "make_ir_context", make)
    assert texts == {lowered()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of a process with two devices; one worker computes all for the session."""
    folder = Path(os.environ[SHARED])  # none if the session shares nothing
    folder = folder if folder.is_dir() else tmp_path_factory.mktemp("devices")
    with (folder / "two_devices.json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        said = file.read()
        if not said:
            done = subprocess.run(
                [sys.executable, "-m", "tests.two_devices"],
                cwd=ROOT,
                env={**os.environ, "XLA_FLAGS": settings(2), "JAX_PLATFORMS": "cpu"},
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            said = done.stdout
            file.write(said)
    return json.loads(said)


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_devices_find_what_one_does(found: dict[str, Any], name: str) -> None:
    one = found["programs"][name]
    assert max(one["distances"]) <= 1
    assert one["repeated"]
    assert re.fullmatch(r"\d+ XLA programs? on 2 devices, divided along b", one["how"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_device_holds_half_of_what_has_an_axis_for_instances(
    found: dict[str, Any], name: str
) -> None:
    one = found["programs"][name]
    before, whole, each = one["bytes"]
    for k, held in one["held"].items():
        if k in one["buffers"]:
            assert held == [_part(*one["buffers"][k])] * 2, k
    divided = [(shape, axis) for shape, axis in one["buffers"].values() if axis is not None]
    everywhere = [shape for shape, axis in one["buffers"].values() if axis is None]
    parts = [_part(shape, axis) for shape, axis in divided]
    for shape, _ in divided:
        assert len(shape) == 1 or shape in parts + everywhere or shape not in one["carried"]
    assert any(len(part) > 2 and part in one["carried"] for part in parts)
    assert before == whole and before / 2 <= each < before


def _part(shape: list[int], axis: int | None) -> list[int]:
    return [n // 2 if k == axis else n for k, n in enumerate(shape)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_devices_tell_each_other_sums_alone(found: dict[str, Any], name: str) -> None:
    """No sharded array is gathered, including weights' gradients."""
    assert found["programs"][name]["said"] == ["all-reduce"]


@pytest.mark.parametrize("odd", ["1", "6"])
def test_what_is_no_number_on_one_device_is_the_greatest_of_all(
    found: dict[str, Any], odd: str
) -> None:
    want = {"greatest": ["nan", "44.0", "46.0"], "least": ["nan", "2.0", "4.0"]}
    assert found["nan"][odd] == want


def test_communication_that_depends_on_the_lengths_of_episodes_is_approximate(
    found: dict[str, Any],
) -> None:
    texts = {name: found["programs"][name]["communication"] for name in PROGRAMS}
    approximate = [name for name, text in texts.items() if "XLA's program: about " in text]
    assert approximate == ["episodes", "replay"], texts  # the latter updates from some step on


def test_the_text_says_what_lies_where(found: dict[str, Any]) -> None:
    text = found["programs"]["Monte Carlo"]["text"]
    assert "on each of 2 devices (the plan holds at most" in text
    assert "30] slots of f32[8, 2], 1,920 bytes, 960 on each device" in text
    assert "f32[32, 2], 256 bytes, on every device" in text


@pytest.mark.parametrize("turns", ["one by one", "two at once"])
def test_a_run_that_fails_leaves_its_last_turn_or_says_what_it_cost(
    found: dict[str, Any], turns: str
) -> None:
    ahead, within = found["failures"][turns]["ahead"], found["failures"][turns]["within"]
    for one in ahead, within:
        assert one["failed"] == "ValueError('no')" and one["again"]
    assert ahead["refused"] == "nothing" and ahead["left"]
    assert "ExecutionError: no results are left after" in within["refused"]
    assert "reused their memory: return, " in within["refused"]


def test_what_a_refusal_names_runs(found: dict[str, Any]) -> None:
    least = found["least"]
    assert least["named"] == [least["needed"]] * 2 and least["distance"] <= 1
    assert "on 2 devices" in least["how"]


def test_a_budget_bounds_the_share_of_each_device(found: dict[str, Any]) -> None:
    """The sum of all shares is larger; a single device fits by looping."""
    least = found["least"]
    assert least["shares"] == least["named"] and sum(least["parts"]) == least["needed"]
    assert least["alone"] == "nothing"
    assert f"{least['needed']:,} bytes on each of 2 devices, but the budget is 1" in least["said"]
    for text in (least["said"], least["text"]):
        assert "each of 2 devices, divided along b: " in text
        assert "x: 3,072 bytes, 1/2 of 6,144" in text and "288 bytes, on every device" in text


@pytest.mark.parametrize(("name", "said"), [("noisy", []), ("iterations", ["all-reduce"])])
def test_each_device_goes_round_blocks_of_its_points(
    found: dict[str, Any], name: str, said: list[str]
) -> None:
    """Seven points in tiles of three, with draws and given arrays; devices exchange only a mean."""
    one = found["tiled"][name]
    assert one["tiles"] == ["3 blocks of 3 points of b, the last of 1, on each of 2 devices"]
    assert one["tiles"][0] in one["how"]
    assert one["distance"] <= 1
    assert one["said"] == said


def test_turns_on_devices_are_given_weights_and_hand_out_batches(found: dict[str, Any]) -> None:
    how, distances = found["tiled"]["turns"]
    assert "on 2 devices" in how and "last of 1, on each of 2 devices" in how and "hand out" in how
    assert len(distances) == 3 and max(distances) <= 1


def test_the_host_is_given_what_lies_in_parts(found: dict[str, Any]) -> None:
    how, distance = found["tiled"]["hosted"]
    assert "on 2 devices, divided along b around least (a Python function)" in how
    assert distance <= 1


def test_environments_are_shared_among_devices(found: dict[str, Any]) -> None:
    """The batch is assembled on one device, which copies each array, three of them private copies."""
    one = found["tiled"]["collected"]
    assert one["apart"] <= 1 and one["devices"] == 1
    assert (one["counts"]["calls"], one["counts"]["copies"]) == (1, 13)
    assert "7 environments cannot be divided equally among 2 devices" in one["odd"]


def test_blocks_of_a_device_are_a_kernel_too(found: dict[str, Any]) -> None:
    how, distance = found["tiled"]["kernel"]
    assert "on each of 2 devices (one kernel, interpreted)" in how and distance <= 1


def test_loops_stay_whole_on_devices_for_the_same_reasons(found: dict[str, Any]) -> None:
    tiled = found["tiled"]
    assert tiled["whole"].endswith("all 7 points of b are one block, on each of 2 devices")
    assert "it needs all points of b together" in tiled["forbidden"]


def test_blocks_take_of_a_device_what_they_take_of_one_alone(found: dict[str, Any]) -> None:
    alone, buffers, each, share = found["held"]
    assert share == buffers
    assert 0 <= each - alone < 1000 < alone


REFUSALS = {
    "too many": ("OptionError: devices=3", "JAX finds 2 (cpu)", "host_platform_device_count=3"),
    "uneven": ("BoundsError: B = 7 points of b", "divided equally among 2", "let B be 6 or 8"),
    "fewer": ("BoundsError: B = 1 point of b", "divided equally among 2", "let B be 2, or"),
    "looped": ("OptionError: devices=2", "runs point by point over b", "vectorise the dimension"),
    "interpreted": ("OptionError: devices=2", "the interpreter uses one device", "remove devices="),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_divided_says_why(found: dict[str, Any], name: str) -> None:
    said = found["refusals"][name]
    for part in REFUSALS[name]:
        assert part in said
    assert "two_devices.py" in said


def test_more_devices_than_there_are() -> None:
    many = len(jax.devices()) + 1
    with pytest.raises(OptionError, match="JAX finds") as raised:
        reinforce().compile({"B": many, "I": 2, "T": 4}, trl.Options(executor="xla", devices=many))
    assert raised.value.origin.file == __file__
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(OptionError, match="devices"):
            trl.Options(devices=wrong)


def beginning(count: int, folder: Path) -> subprocess.Popen[str]:
    """Start a process with some devices."""
    environment = {"XLA_FLAGS": settings(count), "TIMERL_CACHE": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.visible_devices"],
        cwd=ROOT,
        env={**os.environ, **environment, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_cache_serves_any_number_of_devices(tmp_path: Path) -> None:
    """Concurrently, one after the other, and with any default device."""
    tmp_path.chmod(0o700)
    found: list[dict[str, Any]] = []
    for counts in ((2, 1), (1, 2)):
        for process in [beginning(count, tmp_path) for count in counts]:
            output, complaints = process.communicate()
            assert process.returncode == 0 and not complaints, complaints
            found += json.loads(output)
    assert len(found) == 6
    want = found[0]["values"]
    assert len(want["xla"]) == 2
    for one in found:
        assert one["values"].keys() == want.keys()
        for way, values in one["values"].items():
            assert values == want["swapped again" if "swapped" in way else "xla"], way
    # the first two processes share a cache, so the later one may load programs of the earlier one
    cold, warm = ([one["traced"] for one in some] for some in (found[:3], found[3:]))
    assert max(warm) < max(cold) // 2


def test_a_dimension_that_nothing_has_is_not_divided() -> None:
    with trl.Context("z", "b") as ctx:
        (b, _) = ctx.dims[1]
        ctx.output("x", trl.random.normal((3,), domain=(b,)))
    program = ctx.compile({"Z": 4, "B": 2}, trl.Options(executor="xla"))
    lowered = program.executable.xla_program
    assert lowered is not None
    buffers = lowered.layout.buffers.values()
    plan = program.memory
    share = Share.from_buffers(
        plan.pdg, plan.bounds, buffers, plan.statements.ops.values(), plan.kernel_temporaries, 1
    )
    assert share.dim.name == "b" and share.buffers == lowered.nbytes


def test_a_run_goes_on_on_as_many_devices_or_on_others(found: dict[str, Any]) -> None:
    resumed = found["resumed"]
    assert resumed["2 to 2"] == 0
    assert max(resumed.values()) <= 1
