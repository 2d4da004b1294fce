"""Coverage of wrappers: share of PyTorch operations inside wrapped calls, by PyTorch's profiler."""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import timerl_nb as trl
from benchmarks.scope.agents import learning
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind, Library

WORKS: Final = {
    "PPO CartPole-v1": ("PPO", "CartPole-v1", 1500),
    "DQN CartPole-v1": ("DQN", "CartPole-v1", 1500),
    "SAC Pendulum-v1": ("SAC", "Pendulum-v1", 250),
}


def main() -> None:
    """Print a row for each workload."""
    print(
        "| work | operations | share of their time inside of taps | not inside |\n|---|--:|--:|---|"
    )
    for name, (algorithm, env, steps) in WORKS.items():
        count, share, missed = inside(learning(algorithm, env, steps))
        listed = ", ".join(f"`{called}` {part:.1%}" for called, part in missed[:4])
        print(f"| {name} | {count:,} | {share:.1%} | {listed} |", flush=True)


def inside(work: Callable[[], None]) -> tuple[int, float, list[tuple[str, float]]]:
    """Return the number of outermost operations, the share of their time inside wrappers, and the names of uncovered ones."""
    work()
    profiler = importlib.import_module("torch.profiler")
    anchors = list[tuple[int, int]]()

    def anchored() -> None:  # our timestamps around marker events of PyTorch's profiler
        for _ in range(100):
            begun = time.monotonic_ns()
            with profiler.record_function("anchor"):
                pass
            anchors.append((begun, time.monotonic_ns()))

    with (
        trl.scope.record() as rec,
        profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as p,
    ):
        anchored()
        work()
        anchored()
    events = list(p.profiler.kineto_results.events())
    (lane,) = (one for one in rec.read().lanes if len(one.edges) > 1000)
    begin, end, names = _outermost(events)
    ours = _clock(anchors, [one for one in events if one.name() == "anchor"])
    begin, end = ours(begin), ours(end)
    within = _within(lane, end) - _within(lane, begin)
    spent = end - begin
    missed = Counter[str]()
    for name, ns in zip(names, (spent - within).tolist(), strict=True):
        missed[name] += ns
    total = int(spent.sum())
    return (
        len(names),
        int(within.sum()) / total,
        [(n, ns / total) for n, ns in missed.most_common()],
    )


def _clock(
    anchors: Sequence[tuple[int, int]], events: Sequence[Any]
) -> Callable[[np.ndarray], np.ndarray]:
    """Map our clock to PyTorch's, by the tightest anchors at both ends."""
    events = sorted(events, key=lambda one: one.start_ns())
    pairs = list[tuple[int, int]]()
    for part in (slice(0, 100), slice(100, 200)):
        (begun, ended), event = min(
            zip(anchors[part], events[part], strict=True), key=lambda pair: pair[0][1] - pair[0][0]
        )
        pairs.append((event.start_ns() + event.duration_ns() // 2, (begun + ended) // 2))
    (first, ours), (last, ours_last) = pairs
    rate = (ours_last - ours) / (last - first)
    return lambda moments: ours + np.round((moments - first) * rate).astype(np.int64)


def _outermost(events: Sequence[Any]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the outermost operations of the busiest thread, without annotations."""
    by_thread: dict[int, list[tuple[int, int, str]]] = {}
    for event in events:
        if "#" not in event.name() and event.name() != "anchor":
            begin = event.start_ns()
            one = begin, begin + event.duration_ns(), event.name()
            by_thread.setdefault(event.start_thread_id(), []).append(one)
    found = list[tuple[int, int, str]]()
    for one in sorted(max(by_thread.values(), key=len), key=lambda one: (one[0], -one[1])):
        if not found or one[0] >= found[-1][1]:
            found.append(one)
    begin, end, names = zip(*found, strict=True)
    return np.array(begin), np.array(end), list(names)


def _within(lane: Any, moments: np.ndarray) -> np.ndarray:
    """Return the nanoseconds with a backend on top of the stack before each moment."""
    edges = lane.edges[lane.edges["kind"] <= Kind.CALL_EXIT]
    ts = edges["ts"].astype(np.int64)
    on = edges["top"] >> NAME_BITS == Library.BACKEND
    done = np.concatenate([[0], np.cumsum(np.where(on[:-1], np.diff(ts), 0))])
    k = np.clip(np.searchsorted(ts, moments, side="right") - 1, 0, None)
    return done[k] + np.where(on[k], moments - ts[k], 0)
