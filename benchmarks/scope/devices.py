"""RL-Scope's GPU findings (F.7 to F.9, F.11, C.4) on a simulated GPU with known truth; `on_gpu` uses a real one.

The durations are invented: kernels 2 to 4 µs, launches 9 (workers: 4 and 6), and 12 to 20 µs of a
backend around each. The benchmark therefore checks that recorded figures equal the truth; agreement
with the paper is by construction. The functions for findings accept breakdowns of any recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from benchmarks.finding import Finding, table
from benchmarks.scope.simulated import Process, recording
from timerl_nb.scope.analysis.time_breakdown import Breakdown, Used

SOURCE = "simulated device"
ON_GPU = (Used.BOTH, Used.GPU)
LEARNING = ("inference", "backpropagation")


def main() -> None:
    """Print a row for each finding."""
    made = algorithms()
    trained = {name: _table(one) for name, one in made.items()}
    print(table([f7(trained, made), f8(trained, made), f9(trained, made), f11(workers()), c4()]))


def algorithms(traced: int = 0, steps: int = 128) -> dict[str, Process]:
    """Return two algorithms that learn often, and two that learn every few hundred steps, after RL-Scope's Figure 5.

    Args:
        traced: Extra nanoseconds of each CUDA call under observation.
    """
    made: dict[str, Process] = {}
    for number, (name, every, kernels) in enumerate(
        (("DDPG", 1, 90), ("SAC", 1, 120), ("A2C", 5, 60), ("PPO2", 64, 600)), 1
    ):
        draw, one = (
            Random(number),
            Process(number, launch=9_000, traced={"cudaLaunchKernel": traced}, drift=1_700),
        )
        for step in range(steps):
            with one.within("inference"):
                one.runs("python", 60_000)
                one.runs("backend", 150_000, [draw.randint(2_000, 4_000) for _ in range(8)])
                one.waits()
            with one.within("simulation"):
                one.runs("python", 30_000)
                one.runs("simulation", draw.randint(60_000, 90_000))
            if step % every == every - 1:
                with one.within("backpropagation"):
                    for _ in range(kernels // 10):
                        one.runs("python", 50_000)
                        one.runs(
                            "backend", 120_000, [draw.randint(2_000, 4_000) for _ in range(10)]
                        )
                    one.waits()
        made[name] = one
    return made


def workers(count: int = 16, moves: int = 60) -> list[Process]:
    """Return self-play workers: a tree search in Python, then an evaluation of a few kernels."""
    made: list[Process] = []
    for number in range(1, count + 1):
        draw, one = Random(number), Process(number, launch=6_000, drift=-900)
        for _ in range(moves):
            with one.within("tree search"):
                one.runs("python", draw.randint(30_000_000, 70_000_000))
            with one.within("expand leaf"):
                one.runs("backend", 800_000, [4_000] * 30)
                one.waits()
        made.append(one)
    return made


def f7(
    trained: Mapping[str, Breakdown], made: Mapping[str, Process], source: str = SOURCE
) -> Finding:
    """Finding: the GPU is busy in at most 14.1 % of training, for all algorithms.

    Args:
        made: The simulated truth; None for a real device.
    """
    found = {name: _share(one) for name, one in trained.items()}
    truth = {name: one.busy() / one.took() for name, one in made.items()}
    return Finding.of(
        "F.7",
        "GPU time of training",
        _range(found),
        _range(truth),
        "at most 14.1 %",
        max(found.values()) <= 0.141,
        source,
    )


def f8(
    trained: Mapping[str, Breakdown], made: Mapping[str, Process], source: str = SOURCE
) -> Finding:
    """Finding: CUDA calls take longer than kernels, 3.6 times on average."""
    found = {name: _api_over_kernels(one) for name, one in trained.items()}
    truth = {name: one.took(library="api") / one.busy() for name, one in made.items()}
    mean = sum(found.values()) / len(found)
    return Finding.of(
        "F.8",
        "time of CUDA's calls over that of kernels",
        f"{mean:.2f} x",
        f"{sum(truth.values()) / len(truth):.2f} x" if truth else "",
        "3.6 x",
        mean > 1,
        source,
    )


def f9(
    trained: Mapping[str, Breakdown],
    made: Mapping[str, Process],
    source: str = SOURCE,
    learning: Sequence[str] = LEARNING,
) -> Finding:
    """Finding: even inference and backpropagation run kernels in at most 12.9 % of their time.

    Args:
        learning: Names of these operations.
    """
    found, truth = dict[str, float](), dict[str, float]()
    for name, breakdown in trained.items():
        for operation in learning:
            if (operation,) in breakdown.by("operation"):
                found[f"{name} {operation}"] = _share(breakdown, operation)
    for name, one in made.items():
        for operation in learning:
            truth[f"{name} {operation}"] = one.busy(operation) / one.took(operation)
    most = max(found.values())
    return Finding.of(
        "F.9",
        "kernels in inference and backpropagation",
        _range(found),
        _range(truth),
        "at most 12.9 %",
        most <= 0.129,
        source,
    )


def f11(playing: list[Process]) -> Finding:
    """Finding: `nvidia-smi` reports 100 % for a worker that runs kernels in 20 of 5,080 seconds."""
    said = recording(playing).utilization()[0]
    span = max(one.now for one in playing) - min(one.lane().edges["ts"][0] for one in playing)
    intervals = sorted((begin, end) for one in playing for begin, end, _ in one.kernels)
    busy = reach = 0
    for begin, end in intervals:
        busy += max(0, end - max(begin, reach))
        reach = max(reach, end)
    each = max(one.busy() / one.took() for one in playing)
    return Finding.of(
        "F.11",
        "`nvidia-smi` against the union of all workers' kernels, and those of one",
        f"{said.reported:.0%} against {said.busy:.1%}, {each:.2%}",
        f"{busy / int(span):.1%}, {each:.2%}",
        "100 % against 0.4 % of one",
        said.reported > 0.99 and said.busy < 0.5,
        SOURCE,
    )


def c4() -> Finding:
    """Finding: without correction, tracing inflates CUDA calls from 3.6 to 5.7 times the kernels' time."""
    left, without = (
        [_api_over_kernels(_table(one)) for one in algorithms(traced).values()]
        for traced in (5_000, 0)
    )
    inflated, mean = sum(left) / len(left), sum(without) / len(without)
    truth = [one.took(library="api") / one.busy() for one in algorithms().values()]
    return Finding.of(
        "C.4",
        "the same of F.8 with what tracing adds, 5 µs a call, left in",
        f"{inflated:.2f} x, {mean:.2f} without",
        f"{sum(truth) / len(truth):.2f} x without",
        "5.7 x, 3.6 corrected",
        inflated > 1.3 * mean,
        SOURCE,
    )


def _table(one: Process) -> Breakdown:
    return recording([one]).table()


def _share(breakdown: Breakdown, operation: str | None = None) -> float:
    """Return the fraction of an operation's time with a busy device."""
    cells = [
        (c, ns)
        for c, ns in breakdown.cells.items()
        if operation in (None, c.operation) and c.used is not Used.UNTRACED
    ]
    return sum(ns for c, ns in cells if c.used in ON_GPU) / sum(ns for _, ns in cells)


def _api_over_kernels(breakdown: Breakdown) -> float:
    kernels = sum(ns for (used,), ns in breakdown.by("used").items() if used in ON_GPU)
    return breakdown.by("library")[("api",)] / kernels


def _range(shares: Mapping[str, float]) -> str:
    if not shares:
        return ""
    least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    return f"{shares[least]:.1%} ({least}) to {shares[most]:.1%} ({most})"
