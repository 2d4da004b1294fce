"""Threaded windows: execution, refusals, and the state after a failure."""

from __future__ import annotations

import signal
import threading
import weakref
from functools import partial
from threading import Barrier, Event, Thread

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError
from timerl_nb.streams import ANY, Kernel, Segment, Stream
from timerl_nb.streams.thread_execution import Threads

ONE = np.ones(1)


@trl.kernel(reads=lambda a, b, out: [a, b], writes=lambda a, b, out: out)
def add(a, b, out):
    np.add(a, b, out=out)


@trl.kernel(writes=lambda out: out)
def fail(out):
    out[...] = 7
    raise ValueError("too hot")


def threads() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("timerl-stream")}


def test_calls_are_submitted_and_the_blocks_end_waits() -> None:
    gate, at_once = Event(), Barrier(3)

    @trl.kernel(reads=lambda x: x, writes=lambda x: x)
    def slow(x):
        gate.wait(10)
        at_once.wait(10)  # both run at the same time
        x += 1

    a, b, total = np.ones(3), np.ones(3), np.zeros(3)
    with trl.streams.window(size=8, streams=2) as w:
        slow(a)
        slow(b)
        add(a, b, total)
        assert threads() == {"timerl-stream-0", "timerl-stream-1"}
        assert (a == 1).all() and w.report.count == 0
        gate.set()
        at_once.wait(10)
    assert (total == 4).all() and not threads()
    report = w.report
    assert {one.lane for one in report.launches[:2]} == {0, 1}
    last = report.launches[2]
    assert (last.name, last.upstream, last.line[:23]) == ("add", (0, 1), "test_streams_window.py:")
    assert [(k, u) for k, u, _ in report.waits] in ([(2, 0)], [(2, 1)])
    assert report.edges == 2 and 0 < report.utilization <= 1
    assert str(report).startswith("window: 3 kernels on 2 streams, window 8 in ")
    assert "2 add at test_streams_window.py:" in str(report) and "after 0, 1" in str(report)
    assert "0 -> 2" in report.to_dot() and len(report.to_json()["launches"]) == 3


def test_control_flow_can_wait_for_what_was_written() -> None:
    x = np.zeros(1)
    with trl.streams.window() as w:
        while x[0] < 5:
            add(x, np.ones(1), x)
            w.wait()
    assert x[0] == 5 and w.report.count == 5


def test_a_kernel_that_raises_ends_the_stream() -> None:
    a, b, untouched = np.zeros(3), np.zeros(3), np.zeros(3)
    with (
        pytest.raises(
            ExecutionError, match="the kernel 'fail' has raised ValueError: too hot"
        ) as raised,
        trl.streams.window(streams=2) as w,
    ):
        fail(a)
        add(a, ONE, b)
        add(b, ONE, untouched)
    assert isinstance(raised.value.__cause__, ValueError)
    assert "at test_streams_window.py:" in str(raised.value) and "What to do" in str(raised.value)
    assert (a == 7).all() and not b.any() and not untouched.any()  # nothing started after it
    assert [one.name for one in w.report.launches] == ["fail"] and not threads()
    with trl.streams.window():  # another one works
        add(a, a, b)
    assert (b == 14).all()


def test_running_kernels_end_after_a_failure() -> None:
    running, failed = Event(), Event()

    @trl.kernel(writes=lambda x: x)
    def long(x):
        running.set()
        failed.wait(10)
        x += 1

    @trl.kernel(writes=lambda x: x)
    def breaks(x):
        running.wait(10)
        failed.set()
        raise RuntimeError("no")

    x, y = np.zeros(2), np.zeros(2)
    with (
        pytest.raises(ExecutionError, match="'breaks' has raised RuntimeError"),
        trl.streams.window(streams=2),
    ):
        long(x)
        breaks(y)
    assert (x == 1).all()


def test_submitting_after_a_failure_says_so() -> None:
    x = np.zeros(2)
    with pytest.raises(ExecutionError, match="'fail' has raised"), trl.streams.window() as w:
        fail(x)
        with pytest.raises(ExecutionError, match="'fail' has raised"):
            w.wait()
        add(x, x, x)
        pytest.fail("was submitted")


def test_an_error_in_the_block_ends_the_threads() -> None:
    with pytest.raises(ZeroDivisionError), trl.streams.window():
        add(np.ones(2), ONE, np.ones(2))
        raise ZeroDivisionError
    assert not threads()


def test_an_interrupt_ends_after_what_runs() -> None:
    submitter, gate, x = threading.get_ident(), Event(), np.zeros(1)

    @trl.kernel(writes=lambda x: x)
    def interrupts(x):
        signal.pthread_kill(submitter, signal.SIGINT)
        gate.wait(0.05)  # the submitter sees it meanwhile
        x += 1

    with pytest.raises(KeyboardInterrupt), trl.streams.window(streams=2) as w:
        for _ in range(1000):
            interrupts(x)
        w.wait()
    assert x[0] == w.report.count < 1000 and not threads()


def test_windows_that_are_used_wrongly() -> None:
    x = np.zeros(1)
    one = Kernel("one", (), (Segment(1, 0, 8),), lambda: None)
    with pytest.raises(
        ShapeError, match="the size of a window must be an integer of at least 1, not 0"
    ):
        trl.streams.window(size=0)
    with pytest.raises(ShapeError, match="streams must be an integer of at least 1, not 0"):
        trl.streams.window(streams=0)
    with pytest.raises(OptionError, match="the dependence analysis 'all' is unknown"):
        trl.streams.window(deps="all")
    w = trl.streams.window()
    with pytest.raises(ExecutionError, match="the window has not been opened"):
        w.submit(one)
    with w:
        with (
            pytest.raises(ExecutionError, match="a window or recording starts inside another"),
            trl.streams.window(),
        ):
            pass
        w.close()
        with pytest.raises(ExecutionError, match="the window is closed"):
            w.close()
        add(x, ONE, x)  # runs immediately
        assert x[0] == 1
    with pytest.raises(ExecutionError, match="the window is closed"):
        w.submit(one)
    with pytest.raises(ExecutionError, match="the window has been opened before"), w:
        pass


def test_windows_are_of_the_thread_that_opened_them() -> None:
    said: list[str] = []

    def other(w: Threads) -> None:
        for call in (
            lambda: w.submit(Kernel("k", (), (), print)),
            lambda: add(ONE, ONE, np.ones(1)),
            w.wait,
        ):
            with pytest.raises(ExecutionError) as raised:
                call()
            said.append(str(raised.value))

    with trl.streams.window() as w:
        thread = Thread(target=other, args=(w,))
        thread.start()
        thread.join()
    assert (
        "the window belongs to another thread" in said[0]
        and "the window belongs to another thread" in said[2]
    )
    assert "'add' is called on another thread than that of the open window" in said[1]


def test_a_kernel_does_not_call_kernels() -> None:
    x = np.zeros(1)

    @trl.kernel(writes=ANY)
    def outer():
        add(x, ONE, x)

    @trl.kernel(writes=ANY)
    def plain():
        add.function(x, ONE, x)

    with (
        pytest.raises(
            ExecutionError, match="'outer' has raised ExecutionError: the kernel 'add' is called by"
        ),
        trl.streams.window(),
    ):
        outer()
    with trl.streams.window():
        plain()
    assert x[0] == 1


def test_checking_finds_what_a_kernel_does_not_say() -> None:
    a, b, c = np.ones(4), np.ones(4), np.zeros(4)

    @trl.kernel(reads=lambda a, b, out: a, writes=lambda a, b, out: out)
    def forgets_a_read(a, b, out):
        np.add(a, b, out=out)

    @trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out[:2])
    def forgets_a_write(a, out):
        out[:] = a

    @trl.kernel(writes=lambda out: out)
    def sideways(out):
        a[1] = 9

    with (
        pytest.raises(
            ExecutionError, match="'forgets_a_read' does not declare its argument 'b'"
        ) as raised,
        trl.streams.window(check=True),
    ):
        forgets_a_read(a, b, c)
    assert "add b to its reads or writes" in str(raised.value)
    with (
        pytest.raises(
            ExecutionError, match="'forgets_a_write' has changed its argument 'out'"
        ) as raised,
        trl.streams.window(check=True),
    ):
        forgets_a_write(a, c)
    assert "out[2] was 0.0 and is 1.0" in str(raised.value)
    with (
        pytest.raises(
            ExecutionError, match="'sideways' does not declare the captured variable 'a'"
        ),
        trl.streams.window(check=True),
    ):
        add(a, b, c)
        sideways(b)
    with trl.streams.window(check=True) as w:
        add(a, b, c)
        add(c, b, c)
    assert c[2] == 3 and w.report.count == 2 and w.report.how == "window, checked"


def test_aliased_views_are_one_buffer() -> None:
    x = np.arange(8.0)
    shifted = x.copy()
    for _ in range(20):
        np.add(shifted[:-1].copy(), shifted[1:].copy(), out=shifted[1:])
    with trl.streams.window(size=8, streams=3):
        for _ in range(20):
            add(x[:-1], x[1:], x[1:])
    assert x[0] == 0 and (x == shifted).all()


def test_a_buffer_lives_while_a_kernel_names_it() -> None:
    gate, out = Event(), np.zeros(1 << 16)
    blocked, freed = np.zeros(1), np.ones(1 << 16)
    seen = weakref.ref(freed)

    @trl.kernel(writes=lambda x: x)
    def hold(x):
        gate.wait(10)

    with trl.streams.window(streams=1) as w:
        hold(blocked)
        add(freed, ONE, out)
        del freed
        assert seen() is not None
        gate.set()
        w.wait()
        assert seen() is None
    assert (out == 2).all()


def test_streams_that_are_empty_wide_or_cannot_run() -> None:
    assert [Stream("none", ()).run(how).count for how in ("window", "graph", "serial")] == [0, 0, 0]
    with trl.streams.window() as w:
        pass
    assert str(w.report).startswith("window: 0 kernels") and w.report.utilization == 0
    many = tuple(Segment(1, 16 * k, 16 * k + 8) for k in range(1000))
    order: list[int] = []
    wide = [
        Kernel(str(k), many if k % 2 else (), () if k % 2 else many, lambda k=k: order.append(k))
        for k in range(6)
    ]
    Stream("wide", tuple(wide)).run("window", streams=3)
    assert order == list(range(6))
    with pytest.raises(ExecutionError, match="the kernel ghost cannot run") as raised:
        Stream("ghost", (Kernel("ghost", (), ()),)).run("window")
    assert "simulate the stream" in str(raised.value)


class Token:
    """Token held by running kernels; records the maximal concurrency."""

    alive = most = 0

    def __init__(self) -> None:
        Token.alive += 1
        Token.most = max(Token.most, Token.alive)

    def __del__(self) -> None:
        Token.alive -= 1


def test_a_hundred_thousand_kernels_take_constant_memory() -> None:
    ran, places = [0] * 4, [(Segment(1, k, k + 1),) for k in range(4)]

    def count(k: int) -> None:
        ran[k] += 1

    with trl.streams.window(size=16, streams=2, record=100) as w:
        for k in range(100_000):
            w.submit(Kernel("count", (), places[k % 4], partial(count, k % 4), keep=(Token(),)))
    assert ran == [25_000] * 4
    assert w.report.count == 100_000 and len(w.report.launches) == 100
    assert 100 < Token.most <= 1_024 + 16 + 4 and Token.alive <= 4
    assert str(w.report).splitlines()[-1] == "… 99,940 more"


def test_a_graph_is_constructed_once_and_run_twice() -> None:
    x = np.zeros(2)
    kernels = [add.kernel(x, ONE, x) for _ in range(3)]
    stream = Stream("count", tuple(kernels), result=lambda: x.copy())
    graph = trl.streams.graph(stream)
    assert graph.upstream == ((), (0,), (1,)) and graph.construction > 0
    for times in (1, 2):
        report = stream.run("graph", streams=3, built=graph)
        assert (report.result == 3 * times).all() and report.construction == 0
        assert [(one.kernel, one.upstream) for one in report.launches] == [
            (0, ()),
            (1, (0,)),
            (2, (1,)),
        ]
    assert stream.run("graph").construction > 0
    serial = stream.run("serial")
    assert (serial.result == 12).all() and serial.how == "serial" and serial.utilization > 0
    with pytest.raises(OptionError, match="the graph belongs to another stream"):
        Stream("other", (kernels[0],)).run("graph", built=graph)
    broken = Stream("broken", (kernels[0], fail.kernel(x), kernels[1]))
    for how in ("serial", "graph"):
        with pytest.raises(ExecutionError, match="'fail' has raised ValueError: too hot"):
            broken.run(how)
