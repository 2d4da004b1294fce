"""CPU time of interpreted programs by engine, alternately in one process.

`python -m benchmarks engines [--compiled]`, with PyTorch installed. `--compiled` adds kernels by inductor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

import timerl_nb as trl
from tests.reinforce import reinforce

BOUNDS: Mapping[str, int] = {"B": 16, "I": 3, "T": 100}
WAYS: Mapping[str, Mapping[str, object]] = {
    "JAX, interpreted": {"executor": "interpret"},
    "PyTorch, traced": {"backend": "torch"},
    "PyTorch, inductor": {"backend": "torch", "torch_compile": True},
}


def main(*options: str, rounds: int = 7) -> None:
    """Print the CPU time per executed kernel, and the first run, of 5-step REINFORCE on CartPole."""
    names = [name for name in WAYS if "inductor" not in name or "--compiled" in options]
    programs: dict[str, trl.Program] = {}
    first: dict[str, float] = {}
    for name in names:
        start = time.perf_counter()
        programs[name] = reinforce(5).compile(BOUNDS, trl.Options(**WAYS[name]))
        programs[name].execute(seed=0, progress=False)
        first[name] = time.perf_counter() - start
    spent: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, program in programs.items():
            start = time.process_time()
            program.execute(seed=0, progress=False)
            spent[name].append(time.process_time() - start)
    launches: list[object] = []
    programs[names[0]].execute(seed=0, progress=False, on_event=launches.append)
    count = sum(getattr(event, "kind", "") == "execute" for event in launches)
    print(f"| engine | µs of CPU time per kernel ({count} kernels) | ratio | first run, s |")
    print("|---|---|---|---|")
    for name in names:
        here = median(spent[name])
        ratio = median(a / b for a, b in zip(spent[name], spent[names[0]], strict=True))
        print(f"| {name} | {here / count * 1e6:.0f} | {ratio:.2f} | {first[name]:.1f} |")
    text = str(programs["PyTorch, traced"].executable)
    print(f"\nATen calls in the kernels' text: {text.count(' = aten')}.")
