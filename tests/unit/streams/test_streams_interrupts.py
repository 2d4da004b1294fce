"""Interrupts at every line of a window's submitter: no kernel is lost silently, no block hangs."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import timerl_nb as trl
from tests.interrupts import interrupted, lines
from timerl_nb.streams.kernel_declaration import _TAKERS, current_taker

PART = "streams"
COUNT = 6


@trl.kernel(writes=lambda a, k: a[k : k + 1])
def add(a, k):
    a[k] += 1


class Block:
    """A window with some kernels; `stays` catches interrupts inside it."""

    def __init__(self, stays: bool, check: bool) -> None:
        self.a, self.returned = np.zeros(COUNT), list[int]()
        self._stays, self._check = stays, check

    def __call__(self) -> None:
        with trl.streams.window(4, 2, check=self._check) as w:
            for k in range(COUNT):
                try:
                    add(self.a, k)
                    self.returned.append(k)
                except KeyboardInterrupt:
                    if not self._stays:
                        raise
            try:
                w.wait()
            except KeyboardInterrupt:
                if not self._stays:
                    raise
                w.wait()


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("timerl-stream")]


def check_after(where: object) -> None:
    """Check that kernels run, a window opens, and no thread remains."""
    assert current_taker() is None and not _TAKERS, where
    a = np.zeros(1)
    add(a, 0)
    assert a[0] == 1, where
    with trl.streams.window(2, 1):
        add(a, 0)
    assert a[0] == 2, where
    for _ in range(200):
        if not workers():
            break
        time.sleep(0.01)
    assert not workers(), where


@pytest.mark.parametrize("check", [False, True], ids=["threads", "checked"])
@pytest.mark.parametrize("stays", [False, True], ids=["leaves", "stays"])
def test_interrupts_at_every_line_of_a_window(stays: bool, check: bool) -> None:
    made = lines(Block(stays, check), PART)
    assert len(made) > 100
    raised = 0
    for line in made:
        block = Block(stays, check)
        was_raised = interrupted(block, line, PART) is not None
        raised += was_raised
        if not was_raised:  # accepted kernels have run exactly once
            assert (block.a[block.returned] == 1).all() and block.a.max() <= 1, line
        check_after(line)
    assert raised > (50 if not stays else 10)


def test_interrupts_at_every_line_of_a_recording_of_calls() -> None:
    def calls(a: np.ndarray) -> None:
        for k in range(2):
            add(a, k)

    def record() -> object:
        return trl.streams.record(calls, np.zeros(2))

    made = lines(record, PART)
    for line in made:
        assert interrupted(record, line, PART), line
        check_after(line)
