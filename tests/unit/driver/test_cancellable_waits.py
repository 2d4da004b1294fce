"""CancellableWaits of the explorer: when they are shown, and how they end."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from timerl_widgets.cancellable_waits import CancellableWaits

from timerl_nb.base.errors import ExecutionError


class Shown:
    """A status with its history, and waits that write it."""

    def __init__(self, state: str) -> None:
        self.status: dict[str, Any] = {"state": state}
        self.history = [self.status]
        self.written = threading.Event()
        self.waits = CancellableWaits(lambda: self.status, self.write)

    def write(self, status: dict[str, Any]) -> None:
        self.status = status
        self.history.append(status)
        self.written.set()


def test_a_short_wait_is_not_shown() -> None:
    shown = Shown("ready")
    assert shown.waits.run("adding", lambda: 2 + 3) == 5
    assert shown.history == [{"state": "ready"}]
    shown.waits.cancel()  # nothing waits
    assert shown.waits.run("adding", lambda: 3 + 4) == 7


def test_a_long_wait_is_named_until_it_ends() -> None:
    shown = Shown("ready")
    assert shown.waits.run("working …", lambda: shown.written.wait(60))
    ready, waiting = {"state": "ready"}, {"state": "compiling", "text": "working …"}
    assert shown.history == [ready, waiting, ready]


def test_a_wait_within_a_change_leaves_the_status_to_the_change() -> None:
    shown = Shown("compiling")
    assert shown.waits.run("working …", lambda: shown.written.wait(60))
    assert shown.status == {"state": "compiling", "text": "working …"}


@pytest.mark.parametrize("first_ends", [True, False])
def test_of_several_waits_the_last_one_restores_the_status(first_ends: bool) -> None:
    shown, ends = Shown("ready"), (threading.Event(), threading.Event())
    threads = [
        threading.Thread(target=shown.waits.run, args=(f"wait {k}", ends[k].wait)) for k in range(2)
    ]
    for thread in threads:
        shown.written.clear()
        thread.start()
        assert shown.written.wait(60)
    order = (0, 1) if first_ends else (1, 0)
    for k in order:
        assert shown.status["state"] == "compiling"
        ends[k].set()
        threads[k].join(60)
    assert shown.status == {"state": "ready"}
    assert [one.get("text") for one in shown.history] == [
        None,
        "wait 0",
        "wait 1",
        *([] if first_ends else ["wait 0"]),
        None,
    ]


@pytest.mark.parametrize("state", ["ready", "failed"])
def test_a_cancelled_wait_ends_before_its_work(state: str) -> None:
    shown, go, done = Shown(state), threading.Event(), threading.Event()

    def work() -> None:
        assert go.wait(60)
        done.set()

    def cancel() -> None:
        assert shown.written.wait(60)
        shown.waits.cancel()

    other = threading.Thread(target=cancel)
    other.start()
    with pytest.raises(ExecutionError, match="the wait has been cancelled"):
        shown.waits.run("working …", work)
    other.join()
    assert shown.status == {"state": state} and not done.is_set()
    go.set()
    assert done.wait(60)  # the work goes on, and its result is dropped
    assert shown.waits.run("adding", lambda: 1) == 1


def test_an_error_of_the_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        Shown("ready").waits.run("dividing", lambda: 1 // 0)
