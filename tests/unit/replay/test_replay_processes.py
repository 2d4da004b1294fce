"""Writers in other processes: rows arrive whole, and writers end with their processes or the buffer."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.replay import writing
from timerl_nb.replay import Replay, Sequences
from timerl_nb.replay.storage.process_writers import connect

SPAWN = multiprocessing.get_context("spawn")
FIELDS: dict[str, Any] = {
    "x": ((), "i32"),
    "next_obs": ((), "i32"),
    "reward": ((), "f32"),
    "terminated": ((), "bool"),
}


def values(buffer: Replay) -> list[int]:
    return sorted(buffer._rows.first_rows(len(buffer))["x"].tolist())


def until(met: Any) -> None:
    ends = time.monotonic() + 120
    while not met() and time.monotonic() < ends:
        time.sleep(0.01)
    assert met()


def test_a_spawned_process_writes_and_waits() -> None:
    """While another thread uses the buffer, the writer is one block ahead at most."""
    buffer, begun = Replay(100, FIELDS), SPAWN.Value("i", 0)
    with buffer._lock:
        process = SPAWN.Process(target=writing.write, args=(buffer.actor(4), 6, begun))
        process.start()
        until(lambda: begun.value == 2)
        time.sleep(0.1)
        assert begun.value == 2 and not len(buffer)
    process.join(120)
    assert process.exitcode == 0 and values(buffer) == list(range(12))


def test_a_killed_writer_loses_its_staged_rows_only() -> None:
    """Another writer continues, and refuses wrong rows in its own process."""
    buffer, messages = Replay(100, FIELDS), SPAWN.Queue()
    dies = SPAWN.Process(target=writing.write_and_die, args=(buffer.actor(4),))
    wrong = SPAWN.Process(target=writing.write_wrong_rows, args=(buffer.actor(), messages))
    dies.start()
    wrong.start()
    first, second = messages.get(timeout=120), messages.get(timeout=120)
    assert first.startswith("ShapeError") and "next_obs is missing" in first
    assert second.startswith("ExecutionError") and "has refused the rows" in second
    dies.join(120)
    wrong.join(120)
    assert dies.exitcode == -9 and values(buffer) == list(range(8))
    until(lambda: not buffer._server._open)


@pytest.mark.parametrize("options", [{}, {"n_step": 3}, {"sequence": Sequences(4)}], ids=str)
def test_writers_assemble_entries_in_their_process(options: Any) -> None:
    """Two copies by pickling, in threads instead of processes."""
    import pickle

    buffer, plain = Replay(100, FIELDS, **options), Replay(100, FIELDS, **options)
    for k in range(8):
        plain.insert(writing.step(k))
    copies = [pickle.loads(pickle.dumps(buffer.actor(3))) for _ in range(2)]
    threads = [threading.Thread(target=writing.write, args=(one, 8)) for one in copies]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert buffer.inserted == 2 * plain.inserted
    twice = np.repeat(plain._rows.first_rows(len(plain))["x"], 2, 0)
    found = buffer._rows.first_rows(len(buffer))["x"]
    assert sorted(found.tolist()) == sorted(twice.tolist())
    again = pickle.loads(pickle.dumps(copies[0]))  # a writer of a writer
    assert again.flush() == 0


def test_a_writer_ends_with_its_buffer() -> None:
    import pickle

    buffer = Replay(10, FIELDS)
    put = pickle.loads(pickle.dumps(buffer.actor()))
    put(writing.step(0))
    address = buffer._server.address
    del buffer
    gc.collect()
    with pytest.raises(trl.errors.ExecutionError, match="the buffer of this writer has ended"):
        put(writing.step(1))
    with pytest.raises(trl.errors.ExecutionError, match="the buffer of this writer has ended"):
        connect(address)
    until(lambda: not [t for t in threading.enumerate() if t.name == "timerl replay writers"])


def test_a_forked_writer_is_refused() -> None:
    buffer = Replay(10, FIELDS)
    put = buffer.actor(100)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fork in a process with threads
        child = os.fork()
    if not child:
        text = "nothing"
        try:
            put(writing.step(0))
        except trl.errors.ExecutionError as error:
            text = str(error)
        finally:
            os.write(write, text.encode())
            os._exit(0)
    os.waitpid(child, 0)
    assert b"rows of a forked process would be lost" in os.read(read, 1000)
    os.close(read)
    os.close(write)
