"""Loading buffers: tickets of rows that a load has undone, options that must agree, files that cannot be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.replay import Proportional, Replay

ONE = {"x": ((), "f64")}


def plain(capacity: int = 100, **options: Any) -> Replay:
    return Replay(capacity, ONE, priority=Proportional(alpha=1.0, eps=0.0), fanout=2, **options)


def numbers(first: int, count: int) -> dict[str, Any]:
    return {"x": np.arange(first, first + count, dtype=np.float64)}


# --- tickets ---------------------------------------------------------------------------------------


def test_tickets_of_rows_that_a_load_has_undone_change_nothing(tmp_path: Path) -> None:
    buffer = plain(seed=0)
    buffer.insert(numbers(0, 10))
    buffer.save(tmp_path / "ten")
    buffer.insert(numbers(10, 10))
    drawn = buffer.sample(64)
    undone = int((drawn.ticket.serial >= 10).sum())
    assert 0 < undone < 64
    buffer.load(tmp_path / "ten")
    assert buffer.update(drawn.ticket, np.full(64, 5.0)) == undone == buffer.dropped
    assert buffer.tree.total == buffer.tree.priorities[:10].sum()
    assert buffer.sample(1000).index.max() < 10
    buffer.insert(numbers(30, 10))  # other rows under the same serial numbers
    before = buffer.tree.priorities[10:].copy()
    assert buffer.update(drawn.ticket, np.full(64, 7.0)) == undone
    assert buffer.tree.priorities[10:].tolist() == before.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_a_ticket_finds_the_rows_that_it_was_drawn_from(seed: int, tmp_path: Path) -> None:
    """Three buffers of one history load each other's files; every row has a number of its own."""
    random = np.random.default_rng(seed)
    buffers = [plain(8, seed=1)]
    buffers[0].insert(numbers(0, 3))
    buffers[0].save(tmp_path / "0")
    for _ in "ab":
        buffers.append(plain(8, seed=2))
        buffers[-1].load(tmp_path / "0")
    files, known, next_row, updates = 1, [], 3, 0
    for _ in range(150):
        one = buffers[random.integers(3)]
        match random.integers(5):
            case 0:
                count = int(random.integers(0, 5))
                one.insert(numbers(next_row, count))
                next_row += count
            case 1:
                one.save(tmp_path / str(files))
                files += 1
            case 2:
                one.load(tmp_path / str(random.integers(max(0, files - 3), files)))
            case 3:
                drawn = one.sample(4)
                known.append((drawn.ticket, drawn["x"]))
            case _ if known:
                ticket, values = known[random.integers(len(known))]
                there = one._rows.first(8)["x"][ticket.serial % 8]
                here = (there == values) & (ticket.serial % 8 < len(one))
                before = one.tree.priorities.copy()
                before[ticket.serial[here] % 8] = 2.5
                assert one.update(ticket, np.full(4, -2.5)) == 4 - here.sum()
                assert one.tree.priorities.tolist() == before.tolist()
                updates += 1
            case _:
                pass
        assert len(one._epochs) <= 9
    assert updates > 10


@pytest.mark.parametrize("serial", [[-1, 0], [0, 3], [2**40, 1]])
def test_tickets_of_rows_that_were_never_inserted_are_refused(serial: list[int]) -> None:
    buffer = plain()
    buffer.insert(numbers(0, 3))
    before = buffer.tree.priorities.copy()
    wrong = replace(buffer.sample(2).ticket, serial=np.array(serial))
    with pytest.raises(trl.errors.OptionError, match="3 rows were ever inserted"):
        buffer.update(wrong, [5.0, 5.0])
    assert buffer.tree.priorities.tolist() == before.tolist() and not buffer.dropped
