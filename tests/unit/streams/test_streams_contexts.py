"""Windows in tasks, generators, forked processes and copied contexts."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ExecutionError
from timerl_nb.streams.kernel_declaration import _TAKERS


@trl.kernel(reads=lambda a: a, writes=lambda a: a)
def count(a):
    a += 1
    return float(a[0])


def test_a_task_that_opens_a_window_is_alone_in_it() -> None:
    async def within(a: np.ndarray) -> object:
        with trl.streams.window(4) as w:
            found = count(a)
            await asyncio.sleep(0.01)
            count(a)
        assert w.report.count == 2
        return found

    async def outside(a: np.ndarray) -> object:
        await asyncio.sleep(0.002)
        return count(a)

    async def all_of(arrays: list[np.ndarray]) -> list[object]:
        a, b, c = arrays
        return await asyncio.gather(within(a), outside(b), within(c))

    arrays = [np.zeros(1) for _ in range(3)]
    assert asyncio.run(all_of(arrays)) == [None, 1.0, None]
    assert [a[0] for a in arrays] == [2, 1, 2]


def test_tasks_that_begin_in_a_block_are_in_it_until_it_ends() -> None:
    a = np.zeros(1)

    async def later(gate: asyncio.Event) -> object:
        await gate.wait()
        return count(a)

    async def main() -> tuple[object, object]:
        first, second = asyncio.Event(), asyncio.Event()
        with trl.streams.window(4) as w:
            tasks = [asyncio.create_task(later(gate)) for gate in (first, second)]
            first.set()
            inside = await tasks[0]
        assert w.report.count == 1
        second.set()
        return inside, await tasks[1]

    assert asyncio.run(main()) == (None, 2.0)


def test_other_threads_with_a_copied_context_are_refused_until_the_block_ends() -> None:
    a = np.zeros(1)

    async def main() -> object:
        with trl.streams.window(4):
            with pytest.raises(ExecutionError, match="the window belongs to another thread"):
                await asyncio.to_thread(count, a)
            copied = contextvars.copy_context()
            assert copied.run(count, a) is None
        assert copied.run(count, a) == 2.0
        return await asyncio.to_thread(copied.run, count, a)

    assert asyncio.run(main()) == 3.0

    def own() -> None:
        with trl.streams.window(4):
            count(a)

    async def nested() -> None:
        with trl.streams.window(4):
            await asyncio.to_thread(own)

    asyncio.run(nested())
    assert a[0] == 4


def test_the_caller_of_a_suspended_generator_is_outside_its_block() -> None:
    def batches(a: np.ndarray) -> Iterator[int]:
        with trl.streams.window(4) as w:
            for k in range(3):
                assert count(a) is None
                yield k
            w.wait()
            assert w.report.count == 3

    def through(a: np.ndarray) -> Iterator[int]:
        yield from batches(a)

    for make in batches, through:
        a, b = np.zeros(1), np.zeros(1)
        assert [count(b) for _ in make(a)] == [1.0, 2.0, 3.0]
        assert a[0] == 3
        with trl.streams.window() as w:  # around a generator's
            for _ in range(2):
                count(a)
        assert a[0] == 5 and w.report.count == 2


def test_a_generator_that_is_dropped_closes_its_window() -> None:
    def forever(a: np.ndarray) -> Iterator[None]:
        with trl.streams.window(4):
            while True:
                count(a)
                yield

    a = np.zeros(1)
    suspended = forever(a)
    next(suspended)
    assert len(_TAKERS) == 1
    del suspended
    gc.collect()
    assert not _TAKERS and count(np.zeros(1)) == 1.0
    assert not any(t.name.startswith("timerl-stream") for t in threading.enumerate())


def test_asynchronous_generators_and_managers_of_contexts() -> None:
    async def batches(a: np.ndarray) -> AsyncIterator[None]:
        with trl.streams.window(4):
            for _ in range(2):
                assert count(a) is None
                yield

    @contextmanager
    def opened() -> Iterator[trl.streams.Report | object]:
        with trl.streams.window(4) as w:
            yield w

    @asynccontextmanager
    async def opened_later() -> AsyncIterator[object]:
        with trl.streams.window(4) as w:
            yield w

    async def main() -> list[object]:
        a, b = np.zeros(1), np.zeros(1)
        found: list[object] = [count(b) async for _ in batches(a)]
        async with opened_later():
            found.append(count(b))
        return found

    assert asyncio.run(main()) == [1.0, 2.0, None]
    a = np.zeros(1)
    with opened():
        assert count(a) is None
    with ExitStack() as stack:
        stack.enter_context(trl.streams.window(4))
        assert count(a) is None
    assert a[0] == 2 and count(a) == 3.0


def test_a_forked_process_is_outside_the_block() -> None:
    a = np.zeros(1)
    with trl.streams.window(4) as w:
        count(a)
        w.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX has threads, too; the child uses none of them
            pid = os.fork()
        if not pid:
            status = 1
            try:
                assert count(a) == 2.0
                with pytest.raises(ExecutionError, match="belongs to another process"):
                    w.wait()
                with trl.streams.window(2):
                    count(a)
                assert a[0] == 3
                w.exit(None, None, None)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        count(a)
    assert a[0] == 2
