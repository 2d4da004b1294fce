"""Collecting with PyTorch: with a fake if it is not installed, else with PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests import fake_torch
from tests.counting import NAME
from timerl_nb.base.errors import ShapeError, TimeRLWarning
from timerl_nb.runtime.jax_backend import graph_function as jax_graph


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    monkeypatch.setattr(jax_graph, "_TOLD", set())
    fake_torch.copies.clear()
    yield fake_torch


def test_a_module_acts(torch: Any) -> None:
    module = torch.Module()
    with trl.collect(f"gym.{NAME}", module, envs=4, steps=9, how="loop") as c:
        b = c.next()
        assert len(module.seen) == 9 and not b.action.any()
        address = module.seen[3].data_ptr()
        assert address != b.obs[3].ctypes.data  # the module may write into its argument
        np.testing.assert_array_equal(module.seen[3].array, b.obs[3])
        weight = np.array([[0], [2], [1]], np.float32)
        b = c.next(params={"weight": torch.Tensor(weight)})
        want = (b.obs @ weight)[..., 0] % 7
        np.testing.assert_array_equal(b.action, want)
        np.testing.assert_array_equal(b.value, want / 2)
        with pytest.raises(ShapeError, match="do not fit the module: size mismatch for weight"):
            c.load({"weight": torch.Tensor(np.zeros((4, 1)))})
        np.testing.assert_array_equal(c.next().action.shape, (9, 4))
    assert not torch.copies


@pytest.mark.parametrize("how", ["scan", "native"])
def test_batches_become_tensors_of_the_same_memory(torch: Any, how: str) -> None:
    with trl.collect("CartPole-v1", trl.policies.random, envs=4, steps=5, how=how) as c:
        b = c.next()
    made, plain = b.torch(), b.numpy()
    for name in ("obs", "action", "reward", "last_obs", "valid"):
        x = getattr(made, name)
        assert isinstance(x, torch.Tensor)
        assert x.data_ptr() == getattr(plain, name).ctypes.data
    assert not torch.copies


def test_a_module_on_a_gpu_has_observations_copied_and_says_so_once(torch: Any) -> None:
    with pytest.warns(TimeRLWarning, match="copied to cuda:0 at every step") as told:
        for _ in range(2):
            module = torch.Module("cuda:0")
            with trl.collect(f"gym.{NAME}", module, envs=2, steps=3, how="loop") as c:
                assert c.next().action.shape == (3, 2)
    assert len(told) == 1 and torch.copies.count("cuda:0") == 6


def test_a_batch_goes_to_a_gpu_and_says_so_once(torch: Any) -> None:
    with trl.collect(f"gym.{NAME}", trl.policies.random, envs=2, steps=3, how="loop") as c:
        b = c.next()
        with pytest.warns(TimeRLWarning, match="in main memory is copied to cuda:0") as told:
            made = b.torch("cuda:0")
            c.next().torch("cuda:0")
    assert len(told) == 1 and str(made.obs.device) == "cuda:0"
    np.testing.assert_array_equal(made.obs.array, b.obs)


@pytest.mark.torch
def test_pytorch_itself() -> None:
    torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make torch-env")
    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(4, 2)

        def forward(self, obs: Any) -> Any:
            drawn = torch.distributions.Categorical(logits=self.body(obs))
            action = drawn.sample()
            return action, {"log_prob": drawn.log_prob(action)}

    net = Net()
    with trl.collect("gym.CartPole-v1", net, envs=8, steps=16, how="native") as c:
        b = c.next().torch()
        logits = net.body(b.obs)
        want = torch.distributions.Categorical(logits=logits).log_prob(b.action)
        torch.testing.assert_close(b.log_prob, want.detach())
        state = {n: torch.zeros_like(x) for n, x in net.state_dict().items()}
        state["body.bias"][1] = 100.0
        assert c.next(params=state).action.all()
        with pytest.raises(ShapeError, match="size mismatch"):
            c.load({n: torch.zeros(3) for n in state})
