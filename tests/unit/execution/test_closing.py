"""Errors while closing resources are added to a run's result or error, and never replace it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ExecutionError, TimeRLWarning

EXECUTORS = ("xla", "interpret")


class Book:
    """A resource that counts, logs its calls, and may fail to close."""

    log: list[str] = []

    def __init__(self, name: str, breaks: BaseException | None) -> None:
        self.name, self.breaks = name, breaks

    def add(self, at: Any, x: Any) -> Any:
        if x > 2.5:
            raise ValueError("too much")
        return np.float32(x + 1)

    def close(self) -> None:
        Book.log.append(self.name)
        if self.breaks is not None:
            raise self.breaks


def books(executor: Any, steps: int, **breaks: BaseException | None) -> trl.Program:
    """Count to `steps` in two resources; the fourth step fails."""
    Book.log.clear()
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        for name, error in breaks.items():
            resource = trl.Resource(lambda sizes, seed, n=name, e=error: Book(n, e), name=name)
            x = trl.tensor((), domain=(i,)).named(name)
            x[0] = 0.0
            x[i + 1] = trl.udf(Book.add, x, out="f32", resource=resource)
            ctx.output(name, x)
    return ctx.compile({"I": steps}, trl.Options(executor=executor))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_run_that_succeeded_warns_at_the_line_that_uses_the_resource(executor: str) -> None:
    program = books(executor, 3, first=OSError("disk gone"), second=None)
    with pytest.warns(TimeRLWarning, match="first.close raised OSError: disk gone") as told:
        result = program.execute()
    np.testing.assert_array_equal(result["first"], [0, 1, 2])
    assert sorted(Book.log) == ["first", "second"]
    assert [w.filename for w in told] == [__file__]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_run_that_failed_has_a_note_and_its_own_error(executor: str) -> None:
    program = books(executor, 6, first=OSError("disk gone"), second=ValueError("torn"), third=None)
    with pytest.raises(ExecutionError, match="raised ValueError.*too much") as failed:
        program.execute()
    first, second = sorted(failed.value.__notes__)
    assert "first.close raised OSError: disk gone" in first and "test_closing.py" in first
    assert "second.close raised ValueError: torn" in second
    assert failed.value._render_traceback_()[1:] == failed.value.__notes__
    assert sorted(Book.log) == ["first", "second", "third"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_run_on_a_thread_says_the_same(executor: str) -> None:
    run = books(executor, 6, first=OSError("disk gone")).start()
    with pytest.raises(ExecutionError, match="too much") as failed:
        run.result()
    assert "disk gone" in failed.value.__notes__[0]
    with pytest.warns(TimeRLWarning, match="with complete results, but first.close"):
        result = books(executor, 3, first=OSError("disk gone")).start().result()
    np.testing.assert_array_equal(result["first"], [0, 1, 2])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_interrupt_while_closing_still_closes_the_rest(executor: str) -> None:
    program = books(executor, 3, first=None, second=KeyboardInterrupt(), third=None)
    with pytest.raises(KeyboardInterrupt):
        program.execute()
    assert sorted(Book.log) == ["first", "second", "third"]


def test_a_step_wise_run_warns_at_its_end() -> None:
    program = books("interpret", 2, first=OSError("disk gone"))
    with pytest.warns(TimeRLWarning, match="disk gone"):
        while program.step() is not None:
            pass


def test_profiling_notes_it_too() -> None:
    program = books("interpret", 6, first=OSError("disk gone"))
    with pytest.raises(ExecutionError, match="too much") as failed:
        trl.profile(program)
    assert "disk gone" in failed.value.__notes__[0]
