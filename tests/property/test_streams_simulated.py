"""Random streams on a simulated GPU: order and work are preserved, upstream lists are right."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from timerl_nb.streams.dependence_analysis import Pairwise, slots
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import ANY, Segment
from timerl_nb.streams.simulator.acs_hardware import IDENTITIES, HardwareWindow, ScheduledList
from timerl_nb.streams.simulator.gpu_constants import RTX3060, RTX3070, WARPS
from timerl_nb.streams.strategies import SIMULATED

FUZZ = "TIMERL_FUZZ" in os.environ
RUNS = 5 * int(os.environ["TIMERL_FUZZ"]) if FUZZ else 300
FIRST = int(os.environ.get("TIMERL_SEED", "0")) * 10**6
SEEDS = range(FIRST, FIRST + RUNS)


def mixed(seed: int) -> Stream:
    """Whole buffers, ranges, in-place updates, and sometimes all memory."""
    r = random.Random(seed)

    def touched(most: int) -> tuple[Segment, ...]:
        found: list[Segment] = []
        for _ in range(r.randint(0, most)):
            lo = r.randrange(8) if seed % 2 else 0
            found.append(Segment(r.randrange(6), lo, r.randint(lo + 1, 8) if seed % 2 else 8))
        return (ANY,) if r.random() < 0.03 else tuple(found)

    return Stream(
        "mixed",
        tuple(
            Kernel(
                str(k),
                touched(3),
                touched(2),
                blocks=r.randint(1, 300),
                operations=r.randint(0, 10**6),
                registers=r.choice((16, 32, 64, 128)),
            )
            for k in range(r.randint(0, 60))
        ),
    )


def conflicts(stream: Stream) -> list[tuple[int, int]]:
    finder = Pairwise()
    return [(u, k) for k, one in enumerate(stream.kernels) for u in slots(finder.add(k, one))]


@pytest.mark.parametrize("how", SIMULATED)
def test_order_is_kept_and_work_conserved(how: str) -> None:
    for seed in SEEDS[: RUNS // 6]:
        stream, r = mixed(seed), random.Random(seed)
        gpu = replace(r.choice((RTX3070, RTX3060)), operation=r.choice((0.001, 0.05)))
        found = stream.simulate(
            how,
            gpu=gpu,
            size=r.randint(1, 64),
            streams=r.randint(1, 16),
            scheduled=r.randint(1, 64),
        )
        work = sum(k.blocks * WARPS * gpu.microseconds(k) for k in stream.kernels)
        assert found.work == pytest.approx(work)
        ran = sorted(found.launches, key=lambda one: one.kernel)
        assert all(one.ended > one.started for one in ran)
        for before, after in conflicts(stream):
            assert ran[before].ended <= ran[after].started, (
                seed,
                before,
                after,
            )
        assert found.us >= work / (gpu.capacity * 1.0)
        assert found.occupancy <= 1.0


def wrong_lists(
    seed: int, window: Callable[[int, int], HardwareWindow] = HardwareWindow
) -> tuple[int, int]:
    """Count kernels inserted without a required dependence, direct or transitive."""
    r = random.Random(seed)
    stream = mixed(seed)
    size, scheduled = r.randint(1, 12), r.randint(1, 12)
    conflict: dict[int, set[int]] = {k: set() for k in range(len(stream.kernels))}
    for before, after in conflicts(stream):
        conflict[after].add(before)
    host, device = ScheduledList(scheduled), window(size, scheduled)
    sent = [host.send(one) for one in stream.kernels]  # complete, long before the device reads it
    waits: dict[int, set[int]] = {}  # dependences within the window, transitively closed
    ready: list[int] = []
    held: dict[int, int] = {}
    inserted = wrong = entered = 0
    while entered < len(sent) or waits:
        if entered < len(sent) and device.admits(entered % IDENTITIES) and r.random() < 0.7:
            _, upstream = device.insert(entered % IDENTITIES, sent[entered])
            held[entered % IDENTITIES] = entered
            direct = {held[one] for one in upstream}
            assert direct <= set(waits)  # completed kernels are removed
            waits[entered] = direct.union(*(waits[one] for one in direct)) & set(waits)
            wrong += not conflict[entered] & set(waits) <= waits[entered] | {entered}
            inserted += 1
            if not direct:
                ready.append(entered)
            entered += 1
        elif ready:
            done = ready.pop(r.randrange(len(ready)))
            del waits[done]
            ready += [held[one] for one in device.complete(done % IDENTITIES)]
    return inserted, wrong


def test_the_hardware_window_never_has_a_wrong_upstream_list() -> None:
    found = [wrong_lists(seed) for seed in SEEDS]
    assert sum(inserted for inserted, _ in found) > 15 * RUNS
    assert sum(wrong for _, wrong in found) == 0


def test_without_its_entrance_the_hardware_window_has_wrong_lists() -> None:
    class Open(HardwareWindow):
        def admits(self, identity: int) -> bool:
            return len(self._upstream) < self._size

    assert (
        sum(wrong for _, wrong in (wrong_lists(seed, Open) for seed in SEEDS[: RUNS // 3]))
        > RUNS // 30
    )
