"""Recording of streams: of our programs, and of functions made of kernels."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.errors import CallError, ExecutionError, OptionError
from timerl_nb.runtime.interpreter.interpreter import Run


def test_a_recorded_program_is_the_interpreters_to_the_bit() -> None:
    program = reinforce(2, hidden=(4,)).compile({"B": 2, "I": 2, "T": 4})
    run = Run(program.executable, 3)
    run.complete()
    expected = {name: value for (_, name), value in run.outputs().items()}
    stream = trl.streams.record(program, seed=3)
    acting = [k for k in stream.kernels if k.name == "acting"]
    assert len(acting) == 2 * 4 and 1 < stream.width < 2  # fusion has left little to overlap
    assert acting[0].line.startswith("reinforce.py:") and acting[0].op_ids and acting[0].nbytes
    ids = {op.id for op in program.fused}
    assert {i for k in stream.kernels for i in k.op_ids} <= ids
    for options in {"size": 16, "streams": 3}, {"size": 1}:
        found = stream.run("window", **options).result
        assert found.keys() == expected.keys()
        assert all(found[name].tobytes() == value.tobytes() for name, value in expected.items())


def test_programs_that_are_no_streams() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0], x[t + 1] = trl.constant(0.0), x + 1
        ctx.output("x", x[t : t + 1].sum())
    program = ctx.compile({T: trl.endless})
    with pytest.raises(OptionError, match="the program cannot be recorded: it is unbounded"):
        trl.streams.record(program)
    with pytest.raises(CallError, match="int launches no kernels"):
        trl.streams.record(3)


def test_a_function_of_kernels_is_recorded_as_its_control_flow_goes() -> None:
    @trl.kernel(reads=lambda x: x, writes=lambda x: x)
    def halve(x):
        x /= 2

    def until_small(x, y):
        while x[0] > 1:
            halve(x)
        halve(y)
        return x

    x, y = np.array([8.0]), np.array([8.0])
    stream = trl.streams.record(until_small, x, y=y)
    assert (stream.name, len(stream), stream.edges) == ("until_small", 4, ((), (0,), (1,), ()))
    assert x[0] == 1 and y[0] == 4
    stream.run("window", streams=2)
    assert x[0] == 1 / 8 and y[0] == 2
    with (
        pytest.raises(ExecutionError, match="a window or recording starts inside another"),
        trl.streams.window(),
    ):
        trl.streams.record(until_small, x, y)

    @trl.kernel(writes=lambda x: x)
    def breaks(x):
        raise ValueError("no")

    with pytest.raises(ExecutionError, match="the kernel 'breaks' has raised ValueError: no"):
        trl.streams.record(breaks, x)
