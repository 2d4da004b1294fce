"""Loading and copying of buffers: discarded rows, conflicting options, damaged files, refusals."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
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
    """Three buffers of one history load each other's files; every row has a unique number."""
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
                there = one._rows.first_rows(8)["x"][ticket.serial % 8]
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
    with pytest.raises(trl.errors.OptionError, match="only 3 rows have been inserted"):
        buffer.update(wrong, [5.0, 5.0])
    assert buffer.tree.priorities.tolist() == before.tolist() and not buffer.dropped


def test_a_ticket_has_serial_numbers_of_its_own() -> None:
    buffer = plain()
    buffer.insert(numbers(0, 3))
    serial = np.array([0, 2])
    ticket = buffer.ticket(serial)
    serial[:] = 1
    assert ticket.serial.tolist() == [0, 2]


# --- options ---------------------------------------------------------------------------------------

STEPS = {
    "obs": ((), "f32"),
    "reward": ((), "f32"),
    "next_obs": ((), "f32"),
    "terminated": ((), "bool"),
}
OPTIONS: dict[str, Any] = {
    "priority": Proportional(alpha=0.6, eps=1e-3),
    "weights": "buffer",
    "n_step": 3,
    "gamma": 0.9,
}


def stepped(count: int = 5, **options: Any) -> Replay:
    made = Replay(10, STEPS, seed=1, **{**OPTIONS, **options})
    for k in range(count):
        row = {"obs": [float(k)], "reward": [1.0], "next_obs": [k + 1.0], "terminated": [False]}
        made.insert(row)
    return made


def everything(one: Replay) -> dict[str, bytes]:
    return {n: x.tobytes() for n, x in one.state().items() if n != "about"} | {
        "about": json.dumps(json.loads(one.state()["about"].tobytes()), sort_keys=True).encode()
    }


@pytest.mark.parametrize("saves", [0, 5], ids=["empty", "rows"])
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"priority": Proportional(alpha=1.0, eps=1e-3)}, "alpha differs"),
        ({"priority": Proportional(alpha=0.6, eps=1.0)}, "eps differs"),
        ({"priority": None}, "alpha, eps differ"),
        ({"weights": "batch"}, "weights differs"),
        ({"gamma": 0.5}, "gamma differs"),
        ({"n_step": 2}, "n_step differs"),
        ({"n_step": 1}, "field discount, n_step, gamma differ"),
    ],
)
def test_a_buffer_with_other_options_is_refused(
    options: dict[str, Any], what: str, saves: int, tmp_path: Path
) -> None:
    stepped(saves).save(tmp_path / "saved")
    other, state = stepped(4, **options), stepped(saves).state()
    before = everything(other)
    for load in (lambda: other.load(tmp_path / "saved"), lambda: other.restore(state)):
        with pytest.raises(trl.errors.ExecutionError, match=f"does not match this buffer: {what}"):
            load()
        assert everything(other) == before


def test_options_that_rows_do_not_depend_on_may_differ(tmp_path: Path) -> None:
    one = stepped(4, n_step=1, fanout=2)
    one.save(tmp_path / "saved")
    other = stepped(0, n_step=1, gamma=0.5, fanout=16)  # a discount without returns
    other.load(tmp_path / "saved")
    assert other.sample(8)["obs"].tolist() == one.sample(8)["obs"].tolist()


def described(one: Replay, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return the state of a buffer with another description."""
    state = one.state()
    about = json.loads(state["about"].tobytes())
    change(about)
    return {**state, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}


def test_files_without_options_are_told_by_their_arrays(tmp_path: Path) -> None:
    state = described(stepped(), lambda about: (about.pop("options"), about.pop("epochs")))
    other = stepped(0)
    other.restore(state)
    assert len(other) == len(stepped())
    for options in ({"n_step": 2}, {"priority": None}):
        with pytest.raises(
            trl.errors.ExecutionError, match="does not match this buffer: (n_step|alpha)"
        ):
            stepped(0, **options).restore(state)


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.pop("about"),
        lambda state: state.pop("priority"),
        lambda state: state.pop("held head"),
        lambda state: state.update({"priority": -state["priority"]}),
        lambda state: state.update({"priority": state["priority"][:-1]}),
        lambda state: state.update({"row obs": state["row obs"][:-1]}),
        lambda state: state.update({"about": np.frombuffer(b"[1, 2]", np.uint8)}),
        lambda state: state.update({"about": np.frombuffer(b"{", np.uint8)}),
    ],
)
def test_a_damaged_state_changes_nothing(damage: Callable[[dict[str, Any]], Any]) -> None:
    other, state = stepped(4), stepped().state()
    before = everything(other)
    damage(state)
    with pytest.raises(trl.errors.ExecutionError, match="the state is damaged"):
        other.restore(state)
    assert everything(other) == before


# --- refused insertions ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 6])
@pytest.mark.parametrize("errors", [1e200, np.nan, np.inf], ids=str)
def test_a_refused_insertion_changes_nothing(count: int, errors: float) -> None:
    buffer = Replay(4, ONE, priority=Proportional(alpha=2.0))
    buffer.insert(numbers(0, 2))
    before = everything(buffer)
    with pytest.raises(trl.errors.ShapeError):
        buffer.insert(numbers(2, count), errors=np.full(count, errors))
    assert everything(buffer) == before
    assert buffer.insert(numbers(2, count)) == count
    rest = np.arange(2 + count)[-4:]
    assert sorted(set(buffer.sample(200)["x"])) == rest.tolist()


@pytest.mark.parametrize("name", ["valid", "discount"])
@pytest.mark.parametrize("n_step", [1, 2])
def test_reserved_names_of_fields_are_refused(name: str, n_step: int) -> None:
    fields = {**STEPS, name: ((), "f32")}
    with pytest.raises(trl.errors.OptionError, match=f"the field name '{name}' is reserved"):
        Replay(10, fields, n_step=n_step)
    with pytest.raises(trl.errors.OptionError, match=f"the field name '{name}' is reserved"):
        trl.replay.InProgram(10, fields, n_step=n_step)


# --- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))]
)
@pytest.mark.parametrize(
    "options", [{}, {"priority": None}, {"n_step": 1, "fanout": 2, "engine": "numpy"}, {"above": 0}]
)
def test_a_copy_is_a_buffer_of_its_own(copied: Callable[[Replay], Replay], options: Any) -> None:
    one = stepped(**options)
    ticket = one.sample(3).ticket
    other = copied(one)
    assert repr(other) == repr(one)
    again, drawn = other.sample(6), one.sample(6)
    assert again.index.tolist() == drawn.index.tolist()
    assert again.weight.tolist() == drawn.weight.tolist()
    assert again["obs"].tolist() == drawn["obs"].tolist()
    before = everything(one)
    other.insert({"obs": [9.0], "reward": [9.0], "next_obs": [9.0], "terminated": [True]})
    assert len(other) > len(one)
    if one.priority is not None:
        assert other.update(ticket, [9.0] * 3) == 0
    assert everything(one) == before
