"""The simulated GPU against closed forms; work and order are preserved, upstream lists are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

import timerl_nb as trl
from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.streams.kernel_declaration import THREADS, Kernel
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import Segment
from timerl_nb.streams.run_report import Launch
from timerl_nb.streams.simulator.gpu_constants import ACCEL_SIM, RTX3070, WARPS
from timerl_nb.streams.simulator.simulated_run import Simulated
from timerl_nb.streams.strategies import SIMULATED

G = RTX3070
LONG = 400 * THREADS  # operations of a block, which take a hundred µs


def kernel(
    name: int, reads: list[int], writes: list[int], blocks: int = 1, operations: float = LONG
) -> Kernel:
    return Kernel(
        str(name),
        tuple(Segment(b, 0, 8) for b in reads),
        tuple(Segment(b, 0, 8) for b in writes),
        blocks=blocks,
        operations=operations * blocks,
    )


def ran_of(found: Simulated) -> list[Launch]:
    return sorted(found.launches, key=lambda one: one.kernel)


def chain(length: int) -> Stream:
    return Stream("chain", tuple(kernel(k, [k], [k + 1]) for k in range(length)))


def independent(count: int, blocks: int) -> Stream:
    return Stream("independent", tuple(kernel(k, [], [k], blocks) for k in range(count)))


ONE = G.floor + G.operation * 400
# Cost of a first kernel before its blocks, and of each dependent one after its predecessor's end.
FIRST = {
    "serial": G.issue + G.launch,
    "acs-sw": G.check + G.issue + G.launch,
    "events": G.check + G.issue + G.event + G.launch,
    "acs-hw": G.check + G.issue + G.launch + 32 / G.clock + G.dispatch,
    "graph": G.graph,
    "persistent": G.issue + G.launch,
}
NEXT = {
    "serial": G.queued,
    "acs-sw": G.sync + G.update + G.issue + G.launch,
    "events": G.queued,
    "acs-hw": 31 / G.clock + G.dispatch,
    "graph": G.dispatch,
    "persistent": G.task,
}


@pytest.mark.parametrize("how", SIMULATED)
def test_one_kernel_takes_what_is_ahead_of_it_and_its_block(how: str) -> None:
    found = chain(1).simulate(how)
    assert found.us == pytest.approx(FIRST[how] + ONE)
    assert found.occupancy == pytest.approx(WARPS * ONE / (found.total * G.processors * G.warps))


@pytest.mark.parametrize("how", SIMULATED)
def test_a_chain_pays_once_for_each_link(how: str) -> None:
    found = chain(50).simulate(how)
    assert found.us == pytest.approx(FIRST[how] + 50 * ONE + 49 * NEXT[how])
    assert found.construction == (50 * G.node if how == "graph" else 0.0)
    assert found.total == found.us + found.construction


def test_accel_sim_starts_each_kernel_anew() -> None:
    us = chain(50).simulate("serial", gpu=ACCEL_SIM).us
    assert us == pytest.approx(G.issue + G.launch + 50 * ONE + 49 * G.launch)


@pytest.mark.parametrize("count", [1, 7, 46, 92])
def test_independent_kernels_share_what_there_is(count: int) -> None:
    """Two concurrent blocks of each: up to 138 blocks at full speed, then as many as fit, more slowly."""
    found = independent(count, 2).simulate("graph")
    slower = max(1.0, count * 2 * WARPS / G.capacity)
    assert count * 2 <= G.resident(32)
    assert found.us == pytest.approx(G.graph + ONE * slower)


def test_independent_kernels_of_one_queue_follow_each_other() -> None:
    found = independent(20, 3).simulate("serial")
    assert found.us == pytest.approx(FIRST["serial"] + 20 * ONE + 19 * G.queued)


def test_blocks_beyond_the_room_come_in_waves() -> None:
    room = G.resident(32)
    assert room == 46 * 4  # by registers: Table V has 32,768
    slowed = ONE * room * WARPS / G.capacity
    for waves in (1, 2, 5):
        found = independent(1, room * waves).simulate("graph")
        assert found.us == pytest.approx(G.graph + waves * slowed)
        assert max(warps for _, warps in found.history) == room * WARPS


def test_eight_streams_run_eight_at_once() -> None:
    """The number of rounds is minimal, each with the launches that one driver serialises."""
    found = independent(16, 1).simulate("acs-sw", streams=8)
    lanes = {ran.lane for ran in ran_of(found)}
    assert lanes == set(range(8))
    at_once = max(
        sum(other.started <= ran.started < other.ended for other in ran_of(found))
        for ran in ran_of(found)
    )
    assert at_once == 8
    first_round = ran_of(found)[:8]
    gaps = [b.started - a.started for a, b in zip(first_round, first_round[1:], strict=False)]
    assert gaps == pytest.approx([G.issue] * 7)


def test_a_window_of_one_keeps_the_order() -> None:
    for how in ("acs-sw", "acs-hw", "events"):
        ran = ran_of(independent(10, 1).simulate(how, size=1))
        assert all(a.ended <= b.started for a, b in zip(ran, ran[1:], strict=False))


def test_identities_that_would_wrap_are_refused() -> None:
    assert chain(600).simulate("acs-hw", size=32, scheduled=224).us > 0
    with pytest.raises(OptionError, match="8-bit") as raised:
        chain(1).simulate("acs-hw", size=32, scheduled=225)
    assert "32 + 225 > 256" in str(raised.value)


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(OptionError, match="'acs-hw'"):
        chain(1).simulate("acs-hv")
    with pytest.raises(OptionError, match="RTX4090"):
        chain(1).simulate("serial", gpu="RTX4080")
    for name in ("size", "streams", "scheduled"):
        with pytest.raises(ShapeError, match=name):
            chain(1).simulate("acs-hw", **cast(Any, {name: 0}))
    heavy = Stream("heavy", (replace(kernel(0, [], [0]), registers=255),))
    with pytest.raises(OptionError, match="65,280 registers"):
        heavy.simulate("serial")


@pytest.mark.parametrize("how", SIMULATED)
def test_an_empty_stream_takes_no_time(how: str) -> None:
    found: Simulated = Stream("empty", ()).simulate(how)
    assert (found.us, found.occupancy, found.count) == (0.0, 0.0, 0)


@pytest.mark.parametrize("registers, fit", [(32, 4), (64, 2), (65, 1), (96, 1), (128, 1)])
def test_a_block_has_the_registers_of_one_processor(registers: int, fit: int) -> None:
    """Free registers of several processors together do not make room for a block."""
    gpu = replace(G, saturation=G.warps)
    for blocks in (fit * 46, fit * 46 + 1, fit * 92):
        wide = replace(kernel(0, [], [0], blocks), registers=registers)
        found = Stream("wide", (wide,)).simulate("graph", gpu=gpu)
        waves = -(-blocks // (fit * 46))
        assert found.us == pytest.approx(G.graph + waves * ONE)
        assert max(warps for _, warps in found.history) == min(blocks, fit * 46) * WARPS


def test_kernels_of_several_shapes_never_overfill_a_processor() -> None:
    """Blocks of 20,000 registers leave room for one of 12,000, but not for two on half of the processors."""
    big = replace(kernel(0, [], [0], 46), registers=78)
    small = replace(kernel(1, [], [1], 92), registers=47)
    found = Stream("both", (big, small)).simulate("graph", gpu=replace(G, saturation=G.warps))
    assert max(warps for _, warps in found.history) == 92 * WARPS
    assert found.us == pytest.approx(G.graph + 2 * ONE)


def test_a_block_takes_as_many_cycles_on_every_clock() -> None:
    one = kernel(0, [], [0])
    for clock in (700.0, 1400.0, 2800.0):
        assert replace(G, clock=clock).microseconds(one) * clock == pytest.approx(ONE * 1400)
    assert G.microseconds(one) == ONE


def test_occupancy_is_over_the_microseconds_beside_it() -> None:
    stream = independent(60, 3)
    rows = {row.how: row for row in trl.streams.compare(stream).rows}
    for row in rows.values():
        warps = row.occupancy * row.us * G.processors * G.warps
        assert warps == pytest.approx(60 * 3 * WARPS * ONE, rel=0.5) or row.how == "persistent"
    graph = stream.simulate("graph")
    assert rows["graph"].occupancy == pytest.approx(graph.occupancy)
    before = rows["graph, built before"]
    assert before.occupancy * before.us == pytest.approx(graph.occupancy * graph.total)
