"""The window benchmark runs, and its model is right in known cases."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.acs import streams
from timerl_nb.streams import Kernel, Segment


def test_the_model_is_right_for_chains_and_independent_kernels() -> None:
    chain = [Kernel(f"k{k}", (), (Segment(1, 0, 8),)) for k in range(6)]
    alone = [Kernel(f"k{k}", (), (Segment(k, 0, 8),)) for k in range(6)]
    assert streams.makespan(chain, [2.0] * 6, streams=3, size=4) == 12
    assert streams.makespan(alone, [2.0] * 6, streams=3, size=4) == 4
    assert streams.makespan(alone, [2.0] * 6, streams=3, size=1) == 12


def test_tables_have_all_finders_and_ways() -> None:
    rows = list(streams.costs(count=40, repeats=1))
    assert len(rows) == 2 + 2 * (4 + 3)  # two numbers of segments; whole buffers, and ranges
    assert all(row.count("|") == 8 for row in rows)
    assert [row.split("|")[1].strip() for row in streams.empty(count=40, repeats=1)][2:] == [
        "window, no report",
        "window",
        "graph, built before",
        "graph, construction",
    ]


def test_called_kernels_and_their_peers_compute_the_same() -> None:
    def add(a: np.ndarray, b: np.ndarray) -> None:
        b += a

    results: list[np.ndarray] = []
    for run in (streams._in_window, streams._by_hand, streams._plainly):
        buffers = [np.full(2, float(k)) for k in range(24)]
        run(add, buffers, 100)
        results.append(np.array(buffers))
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()
    rows = list(streams.called(count=20, rounds=2))
    assert len(rows) == 5 and all(row.count("|") == 5 for row in rows)


def test_kernels_are_as_many_segments_as_asked_for() -> None:
    made = streams.kernels(20, 6, cut=True)
    assert all(len(k.reads) == 5 and len(k.writes) == 1 for k in made)
    assert any(s.stop - s.start < streams.PAGE for k in made for s in k.reads)
    with pytest.raises(KeyError):
        streams.main("nothing")
