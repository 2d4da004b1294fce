"""Performance targets, each with its last measured value: `python -m benchmarks targets [--fresh] [GROUP …]`.

`targets.json` stores the last measurement of each target, with its machine, date and commit. `--fresh`
measures the named groups again, or all of them. Races are interleaved; compile times come from single
processes. A group whose peers are not installed keeps its stored values.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Final

import numpy as np

import timerl_nb as trl
from benchmarks.collecting import targets as collecting
from benchmarks.finding import Spread
from benchmarks.memory import budgets
from benchmarks.replay import buffers
from benchmarks.scope import taps
from benchmarks.training import race
from benchmarks.training.report import machine

ROOT: Final = Path(__file__).parents[1]
STORED: Final = Path(__file__).with_name("targets.json")


@dataclass(frozen=True)
class Target:
    """A limit of a measured value.

    Attributes:
        group: the run that measures it, a key of `GROUPS`.
        name: the name of the value among the figures of the group.
        what: the quantity and its unit.
        most, least: the limit; one of them is None.
    """

    group: str
    name: str
    what: str
    most: float | None = None
    least: float | None = None

    @property
    def asked(self) -> str:
        return f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}"

    def is_met(self, value: float) -> bool:
        return value <= self.most if self.most is not None else value >= (self.least or 0.0)


OF_JITTED: Final = "time of jitted JAX"
# Limits by work: of one call per iteration, and of five iterations in one call.
RACED: Final[Mapping[str, tuple[float, float | None]]] = {
    "S": (0.65, 0.85), "s": (0.85, 0.75), "L16": (0.8, None), "R-mc": (0.7, None),
    "R-8": (0.55, None), "V-8": (0.72, None), "C": (0.9, 0.9),
}  # fmt: skip
FIRST: Final = ("S", "C")  # works of which the first step is limited
REPLAYED: Final[Mapping[str, float]] = {
    "32 of 1e5": 0.65, "256 of 1e6": 0.45, "4,096 of 1e6": 0.15,
}  # fmt: skip
BUDGETED: Final = ("s", "R-8", "R-mc", "C")
SHARES: Final = (0.5, 0.25)

TARGETS: Final = (
    *(Target("race", f"{w}, a call", OF_JITTED, most=call) for w, (call, _) in RACED.items()),
    *(Target("race", f"{w}, whole", OF_JITTED, most=x) for w, (_, x) in RACED.items() if x),
    *(Target("first step", f"{w}, whole, empty cache", OF_JITTED, most=1.2) for w in FIRST),
    Target("first step", "s, filled cache", "seconds", most=0.4),
    *(
        Target("collect", f"over {peer}, N = {n}", "ratio of speeds", least=least)
        for n in collecting.ENVS
        for peer, least in (collecting.PEERS | (collecting.ONCE if n == 256 else {})).items()
    ),
    Target("collect", "blocks, 16 MiB of state", "ratio of speeds", least=1.4),
    *(
        Target("collect", f"JAX function, N = {n}", "time of a network", most=1.05)
        for n in collecting.FUNCTION
    ),
    Target("collect", collecting.NEXT, "time of its program", most=1.1),
    *(
        Target("collect", f"{how}, N = {n}", "time of a bare loop", most=1.05)
        for how, n in collecting.HOST
    ),
    Target("collect", "error of the cost model", "relative", most=0.2),
    *(
        Target("collect", f"first batch, {what}", "seconds", most=most)
        for what, most in collecting.FIRST_BATCH.items()
    ),
    *(Target("replay", name, "time of cpprb", most=most) for name, most in REPLAYED.items()),
    Target("streams", "kernel called in a window", "µs of CPU", most=12.0),
    *(
        Target("budgets", f"{work}, {share:g} of its memory", "time without a budget", most=3.0)
        for work in BUDGETED
        for share in SHARES
    ),
    Target("scope", "Python wrapper, recording in a tight loop", "ns", most=450.0),
    Target("scope", "Python wrapper, recording after other work", "ns", most=1000.0),
)


# --- measurements --------------------------------------------------------------------------------

Figures = Iterator[tuple[str, Spread]]


def race_works() -> Figures:
    """Race ours against jitted JAX, by call and by five iterations in one call."""
    for work in RACED:
        systems = ("jitted", "ours", "jitted, whole", "ours, whole")
        jitted, ours, jitted_whole, ours_whole = race.race(work, systems, resident=False)
        for what, mine, other in (("a call", ours, jitted), ("whole", ours_whole, jitted_whole)):
            pairs = zip(mine.seconds, other.seconds, strict=True)
            yield f"{work}, {what}", Spread.from_values([a / b for a, b in pairs])


FIRST_STEP: Final = """
import sys
import jax; jax.devices()
from benchmarks.training.systems import first
from benchmarks.works import WORKS
system, work = sys.argv[1:]
print(first(system, WORKS[work], 4)[1])
"""


def first_step(system: str, work: str, cache: str) -> float:
    """Return the seconds from compilation to the end of the first step in a new process, without imports.

    Args:
        system: the system.
        work: the program.
        cache: the folder of our disk cache.
    """
    env = os.environ | {"TIMERL_CACHE": cache}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # JAX imports modules in its first compilation
    command = [sys.executable, "-c", FIRST_STEP, system, work]
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, cwd=ROOT)
    return float(done.stdout)


def time_first_steps(rounds: int = 3) -> Figures:
    """Time first steps in new processes: beside jitted JAX in turn, and from a filled cache."""

    def cold(system: str, work: str) -> float:
        with TemporaryDirectory() as empty:
            return first_step(system, work, empty)

    for work in FIRST:
        ratios = [cold("ours, whole", work) / cold("jitted, whole", work) for _ in range(rounds)]
        yield f"{work}, whole, empty cache", Spread.from_values(ratios)
    with TemporaryDirectory() as folder:
        times = [first_step("ours", "s", folder) for _ in range(6)]
    yield "s, filled cache", Spread.from_values(times[1:])


def replay() -> Figures:
    """Race insertion, sampling and updates against cpprb.

    Raises:
        ImportError: cpprb is not installed.
    """
    for name, number in zip(REPLAYED, (1, 3, 4), strict=True):
        size = buffers.SIZES[number]
        systems = {one: buffers.SYSTEMS[one](*size) for one in ("ours", "cpprb")}
        found = buffers.race(systems, *size)
        pairs = zip(found["ours"], found["cpprb"], strict=True)
        yield name, Spread.from_values([sum(a) / sum(b) for a, b in pairs])


def call_kernels(count: int = 4_000) -> Figures:
    """Time empty kernels that are called in a window of two streams."""
    kernel = trl.kernel(reads=lambda a, b: (a, b), writes=lambda a, b: b)(lambda a, b: None)
    buffers = [np.zeros(8) for _ in range(24)]
    times = list[float]()
    for _ in range(7):
        begun = process_time()
        with trl.streams.window(streams=2):
            for k in range(count):
                kernel(buffers[k % 24], buffers[(k + 1) % 24])
        times.append((process_time() - begun) / count * 1e6)
    yield "kernel called in a window", Spread.from_values(times[1:])


def compile_under_budgets() -> Figures:
    """Compare compile times with and without a budget, each in a process."""
    for work in BUDGETED:
        whole = budgets.measured_under(work, None)
        for share in SHARES:
            under = budgets.measured_under(work, int(whole["needed"] * share))
            yield (
                f"{work}, {share:g} of its memory",
                Spread.from_values([under["seconds"] / whole["seconds"]]),
            )


def wrap_calls() -> Figures:
    """Time recorded calls of a function wrapped by the Python recorder."""
    tight, cold = taps.measured(taps.CALLS, 11)["Python, recorded"]
    yield "Python wrapper, recording in a tight loop", Spread.from_values(tight)
    yield "Python wrapper, recording after other work", Spread.from_values(cold)


GROUPS: Final[Mapping[str, Callable[[], Figures]]] = {
    "race": race_works,
    "first step": time_first_steps,
    "collect": partial(collecting.figures, ROOT),
    "replay": replay,
    "streams": call_kernels,
    "budgets": compile_under_budgets,
    "scope": wrap_calls,
}


# --- stored results ------------------------------------------------------------------------------


def stored() -> dict[str, Any]:
    """Return the stored measurements by target."""
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}


def measure(group: str) -> None:
    """Measure a group, and store each value as soon as it is known."""
    about = machine()
    commit = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(commit, capture_output=True, text=True, cwd=ROOT)
    where = {
        "machine": f"{about['cores']} cores, {about['device']}, JAX {about['jax']}",
        "date": date.today().isoformat(),
        "commit": done.stdout.strip() or "unknown",
    }
    asked = {target.name for target in TARGETS if target.group == group}
    for name, figure in GROUPS[group]():
        if name not in asked:
            continue
        known = stored()
        known[f"{group}: {name}"] = asdict(figure) | where
        STORED.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def table(known: Mapping[str, Any]) -> Iterator[str]:
    """Return the rows of a Markdown table: missed targets first, then unmeasured and met ones."""
    yield "| target | unit | asked | measured [range] | met | measured on |"
    yield "|---|---|---|---|---|---|"
    rows = list[tuple[int, str]]()
    for target in TARGETS:
        row = known.get(f"{target.group}: {target.name}")
        begin = f"| {target.group}: {target.name} | {target.what} | {target.asked} |"
        if row is None:
            rows.append((1, f"{begin} – | not measured | |"))
            continue
        figure = Spread(row["median"], row["least"], row["greatest"])
        met = target.is_met(figure.median)
        where = f"{row['date']}, {row['commit']}, {row['machine']}"
        rows.append((2 * met, f"{begin} {figure} | {'yes' if met else '**no**'} | {where} |"))
    yield from (row for _, row in sorted(rows, key=lambda one: one[0]))
    count = sum(rank == 2 for rank, _ in rows)
    yield f"\n{count} of {len(rows)} targets are met, {sum(rank == 0 for rank, _ in rows)} are missed."


def main(*words: str) -> None:
    """Print the table, after new measurements with `--fresh`.

    Raises:
        SystemExit: no such group exists.
    """
    names = [word for word in words if word != "--fresh"]
    if unknown := [name for name in names if name not in GROUPS]:
        sys.exit(f"unknown: {', '.join(unknown)}; the groups are {', '.join(GROUPS)}")
    if "--fresh" in words:
        for group in names or GROUPS:
            try:
                measure(group)
            except ImportError as error:
                print(f"{group} keeps its stored values: {error}", file=sys.stderr)
    print("\n".join(table(stored())))
