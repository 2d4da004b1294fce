"""Processes forked after JAX has started get an immediate error instead of a hang."""

from __future__ import annotations

import multiprocessing
import os
import select
from collections.abc import Callable

import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ExecutionError

pytestmark = pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
LIMIT = 60  # seconds until a child counts as hung


def program() -> trl.Program:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        x = trl.tensor((), domain=(i,))
        x[0] = 0.0
        x[i + 1] = x + 1.0
        ctx.output("x", x)
    return ctx.compile({"I": 5}, trl.Options(executor="xla"))


def in_a_child(function: Callable[[], object]) -> str:
    """Return a function's result or error in a forked process."""
    into, outof = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = str(function())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(outof, said.encode())
        os._exit(0)
    os.close(outof)
    try:
        assert select.select([into], [], [], LIMIT)[0], "the child hangs"
        with open(into, closefd=False) as found:
            return found.read()
    finally:
        os.close(into)
        os.kill(child, 9)
        os.waitpid(child, 0)


REFUSED = (
    f"ExecutionError: this process was forked from process {os.getpid()} after JAX had started"
)


@pytest.mark.parametrize(
    "way", ["execute", "start", "begin", "step", "turn_seconds", "profile"], ids=str
)
def test_no_run_begins_there(way: str) -> None:
    one = program()
    begin = (lambda: trl.profile(one)) if way == "profile" else getattr(one, way)
    said = in_a_child(begin)
    assert said.startswith(REFUSED) and "test_forks.py" in said
    assert 'get_context("spawn")' in said and "multiprocessing_context" in said
    assert one.execute()["x"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("way", ["result", "wait", "stop", "frames", "resume", "__enter__"])
def test_a_run_of_the_parent_is_not_waited_for(way: str) -> None:
    with program().start(paused=True) as run:

        def ask() -> object:
            if way != "__enter__":
                return getattr(run, way)()
            with run:
                return "left"

        assert in_a_child(ask).startswith(REFUSED)
        assert in_a_child(lambda: run).startswith("Running(turn 0")
    assert run.result() is not None


def test_what_has_ended_is_there() -> None:
    run = program().start()
    run.wait()
    assert in_a_child(lambda: run.result()["x"].tolist()) == "[0.0, 1.0, 2.0, 3.0, 4.0]"


def test_a_pool_of_forked_workers_hands_the_error_on() -> None:
    """Data loaders prepare batches in such workers."""
    one = program()
    one.execute()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        asked = pool.apply_async(_executed)
        with pytest.raises(ExecutionError, match="after JAX had started there"):
            asked.get(LIMIT)


def _executed() -> object:
    return program().execute()
