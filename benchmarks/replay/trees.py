"""The sum tree alone, by fan-out: a batch drawn and updated, all fan-outs in turn."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from timerl_nb.replay import SumTree
from timerl_nb.replay.sum_tree import FANOUTS

ENTRIES = (10_000, 1_000_000)
BATCHES = (32, 256, 4096)
ROUNDS, WARM = 60, 5


def main() -> None:
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
