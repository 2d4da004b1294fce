"""GPU execution modes on a fake GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import timerl_nb as trl
from tests.fake_cuda import Cuda
from tests.property.test_streams import BYTES, Memory, drawn, in_order
from timerl_nb.base.errors import ExecutionError, MissingPartError
from timerl_nb.streams import Kernel, Stream

WAYS = {
    "stream-sync": {"size": 9, "streams": 3},
    "events": {"size": 9, "streams": 3},
    "cuda-graph": {"streams": 3},
}


@pytest.mark.parametrize("how", WAYS)
def test_without_a_gpu_there_is_the_simulator(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    stream = Stream("one", (Kernel("k", (), (), print),))
    with pytest.raises(MissingPartError, match=f"'{how}' needs PyTorch with a GPU") as raised:
        stream.run(how)
    assert "simulate a GPU by stream.simulate(" in str(raised.value)


@pytest.mark.parametrize("how", WAYS)
def test_a_device_that_runs_late_gives_what_order_gives(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(25):
        cuda = Cuda(seed)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        kernels, buffers = drawn(seed)
        memory = Memory(tuple(bytearray(BYTES) for _ in range(buffers)))

        def work(kernel: Kernel, memory: Memory = memory) -> None:
            memory.write(kernel, memory.read(kernel))

        def launch(kernel: Kernel, cuda: Cuda = cuda, work: Any = work) -> None:
            cuda.launch(partial(work, kernel))

        stream = Stream("drawn", tuple(replace(k, run=partial(launch, k)) for k in kernels))
        report = stream.run(how, **WAYS[how])
        assert memory == in_order(kernels, buffers), seed
        assert cuda.ran == cuda.launched == report.count == len(kernels)
        assert report.how == how and {one.lane for one in report.launches} <= {0, 1, 2}
    assert trl.streams.Report is type(report)


def test_what_no_graph_captures_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(0)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    def copied() -> None:
        raise RuntimeError("Cannot copy while it is captured")

    kernels = Kernel("k", (), (), partial(cuda.launch, print)), Kernel("copy", (), (), copied)
    why = "kernel 1, copy, cannot be captured in a CUDA graph: Cannot copy while it is captured"
    with pytest.raises(ExecutionError, match=why) as raised:
        Stream("two", kernels).run("cuda-graph")
    assert 'run it by "events"' in str(raised.value)
