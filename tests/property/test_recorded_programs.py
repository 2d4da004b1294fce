"""Random recorded programs, run in windows: bitwise the interpreter's outputs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from hypothesis import given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.eager import eagerly
from tests.property.drawn import Drawn
from tests.property.programs import STEPS, ending_programs, hosted, programs
from tests.property.test_programs import RUNS, VARIANTS, chosen, ending, sampled
from tests.property.test_streams import check_order
from timerl_nb.runtime.interpreter.interpreter import Run

COUNT = RUNS if "TIMERL_FUZZ" in os.environ else 6


@contextmanager
def eagerly_on_all_threads() -> Iterator[None]:
    """Apply `eagerly` to all threads; it is thread-local."""
    with eagerly():
        jax.config.update("jax_disable_jit", True)
        try:
            yield
        finally:
            jax.config.update("jax_disable_jit", False)


def assert_same_in_windows(program: trl.Program, calls: list[Any], draw: Any) -> None:
    with eagerly_on_all_threads():
        run = Run(program.executable, 5)
        calls.clear()
        run.complete()
        called, expected = [*calls], run.outputs()
        calls.clear()
        stream = trl.streams.record(program, seed=5)
        assert calls == called
        for how in ("window", "window", "graph"):
            calls.clear()
            size = {"size": draw(st.integers(1, 40))} if how == "window" else {}
            report = stream.run(how, streams=draw(st.integers(1, 4)), **size)
            check_order(report, list(stream.kernels))
            assert calls == called  # host effects stay in order
            for (_, name), value in expected.items():
                assert report.result[name].tobytes() == value.tobytes(), (how, name)


@sampled(COUNT)
@given(programs(steps=(*STEPS, hosted, hosted)), st.sampled_from(VARIANTS), st.data())
def test_recorded_programs(drawn: Drawn, options: dict[str, Any], data: Any) -> None:
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, {"executor": "interpret", **options}))
    assert_same_in_windows(program, drawn.calls, data.draw)


@sampled(COUNT // 3)
@given(ending_programs(), st.sampled_from(VARIANTS), st.data())
def test_recorded_programs_that_end_early(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any], data: Any
) -> None:
    program = ending(drawn, {"executor": "interpret", **options})
    if program is not None:
        assert_same_in_windows(program, drawn[0].calls, data.draw)
