"""PyTorch's operations as a stream, and its memory as segments."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import CallError
from timerl_nb.streams import segment, segment_of

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="PyTorch is in .venv-torch (make torch-env)")


def test_views_of_a_tensor_are_of_one_buffer() -> None:
    x = torch.zeros(4, 6)
    whole = segment_of(x)
    assert whole.stop - whole.start == 96
    assert segment_of(x[1]) == segment(x, 24, 48)
    assert segment_of(x.T[2:4]) == segment(x, 8, 88)  # with its gaps
    array = np.zeros(5)
    assert segment_of(torch.from_numpy(array)) == segment_of(array)


def test_a_module_is_recorded_with_what_it_reads_and_writes() -> None:
    torch.manual_seed(0)
    left, right = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    class Fork(torch.nn.Module):
        def forward(self, x):
            a, b = left(x), right(x)
            a.relu_()
            return (a.view(2, 4, 8) + b.view(2, 4, 8)).tanh()

    x = torch.randn(8, 8)
    stream = trl.streams.record(Fork(), x)
    assert [k.name for k in stream.kernels] == [
        "addmm",
        "addmm",
        "relu_",
        "add",
        "tanh",
    ]  # no views
    assert stream.edges == ((), (), (0,), (1, 2), (3,)) and stream.width == 5 / 4
    assert stream.kernels[0].operations == 2 * 8 * 8 * 8
    expected = Fork()(x).detach()
    with torch.no_grad():
        x += 1  # the stream works on the same memory
    for how in ("serial", "window", "graph"):
        found = stream.run(how).result
        assert not torch.equal(found, expected)
        assert torch.equal(found, Fork()(x).detach())


def test_functions_of_tensors_are_recorded_and_those_without_memory_refused() -> None:
    x = torch.ones(3)
    stream = trl.streams.record(lambda x: torch.cat([x * 2, x[:1]]).sum(), x)
    assert [k.name for k in stream.kernels] == ["mul", "cat", "sum"]
    assert stream.run("window").result == 7
    with pytest.raises(CallError, match="tensors on the device 'meta' have no memory"):
        trl.streams.record(torch.nn.Linear(2, 2, device="meta"), torch.ones(1, 2, device="meta"))


def test_kernels_take_tensors() -> None:
    @trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out)
    def double(a, out):
        torch.mul(a, 2, out=out)

    a, b, c = torch.ones(3), torch.zeros(3), torch.zeros(3)
    with trl.streams.window(check=True):
        double(a, b)
    with trl.streams.window():
        double(a, b)
        double(b, c)
    assert c.tolist() == [4.0] * 3
