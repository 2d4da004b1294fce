"""The sum tree by fan-out: draw and update a batch, on the host and in a program; all fan-outs interleaved."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

import timerl_nb as trl
from timerl_nb.replay import SumTree
from timerl_nb.replay.prioritization.sum_tree import FANOUTS

ENTRIES = (10_000, 1_000_000)
BATCHES = (32, 256, 4096)
ROUNDS, WARM = 60, 5
# in a program: leaves, fan-outs, number of leaves drawn and updated per step besides a new one, and
# steps
LEAVES = (10_000, 100_000, 1_000_000)
FEW = (4, 8, 16)
DRAWN, STEPS, RUNS = 256, 3000, 9


def main() -> None:
    on_the_host()
    print()
    in_a_program()


def on_the_host() -> None:
    print("| entries, batch | fan-out | draw, µs | update, µs | ratio to 8 |")
    print("|---|---|---|---|---|")
    random = np.random.default_rng(0)
    for entries in ENTRIES:
        trees = {f: SumTree(entries, f) for f in FANOUTS}
        for tree in trees.values():
            tree.insert(0, random.random(entries))
        for batch in BATCHES:
            found: dict[int, list[tuple[float, float]]] = {f: [] for f in FANOUTS}
            for k in range(WARM + ROUNDS):
                values = random.random(batch)
                for fanout, tree in trees.items():
                    begun = perf_counter()
                    index = tree.draw(batch, random)
                    drawn = perf_counter()
                    tree.update(index, values)
                    if k >= WARM:
                        found[fanout].append((drawn - begun, perf_counter() - drawn))
            for fanout, times in found.items():
                each = " | ".join(f"{1e6 * median(x):,.0f}" for x in zip(*times, strict=True))
                pairs = zip(times, found[8], strict=True)
                ratio = median(sum(a) / sum(b) for a, b in pairs)
                print(f"| {entries:,}, {batch:,} | {fanout} | {each} | {ratio:.2f} |", flush=True)


def in_a_program() -> None:
    print(f"| leaves | fan-out | {DRAWN} drawn and put back, µs a step (least, greatest) |")
    print("|---|---|---|")
    for leaves in LEAVES:
        programs = {f: _program(leaves, f) for f in FEW}
        times: dict[int, list[float]] = {f: [] for f in FEW}
        for k in range(RUNS + 1):
            for fanout, program in programs.items():
                begun = perf_counter()
                program.execute(seed=k)
                if k:  # warm-up: XLA compiles here
                    times[fanout].append(1e6 * (perf_counter() - begun) / STEPS)
        for fanout, each in times.items():
            print(
                f"| {leaves:,} | {fanout} | {median(each):.0f} ({min(each):.0f} to {max(each):.0f}) |",
                flush=True,
            )


def _program(leaves: int, fanout: int) -> trl.Program:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        tree = trl.replay.device_tree(leaves, fanout, domain=(t,))
        first = trl.random.uniform((leaves,), domain=())
        tree[0] = trl.replay.device_tree(leaves, fanout).with_leaves(trl.arange(leaves), first)
        full = tree.with_leaves(trl.value(t).reshape(1) % leaves, 1.0)
        drawn = full.draw(DRAWN)
        error = trl.random.uniform((DRAWN,), domain=(t,))
        tree[t + 1] = full.with_leaves(drawn.index, (error + 1e-6) ** 0.6)
        ctx.output("weight", drawn.weight(beta=0.4).mean(axis=0))
    return ctx.compile({"T": STEPS})
