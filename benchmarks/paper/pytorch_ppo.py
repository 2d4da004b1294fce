"""PPO as a single PyTorch script in the style of CleanRL, eager, on the CPU or a GPU.

`cached` keeps the graph of each acting step, so that learning needs no second forward pass (paper, §2.3 and §8.2).
"""

from __future__ import annotations

import importlib
from itertools import pairwise
from math import prod
from typing import Any, Final

from benchmarks.training.systems import Runner
from benchmarks.works import CRITIC, ENTROPY, GAMMA, LAM, RATE, Work

STRIDE: Final = 0.05


class PytorchPpo(Runner):
    """Eager PyTorch program of a PPO work.

    Args:
        work: The work; its algorithm is PPO.
        cached: Whether learning uses the activations of acting.
        device: `cpu` or `cuda`.
    """

    def __init__(self, work: Work, *, cached: bool, device: str = "cpu") -> None:
        self._torch = torch = importlib.import_module("torch")
        torch.manual_seed(0)
        self._work, self._cached, self._device = work, cached, torch.device(device)
        self._layers = [self._linear(a, b, 2**0.5) for a, b in pairwise(self._sizes())]
        self._mean = self._linear(work.width, 1, 0.01)
        self._value = self._linear(work.width, 1, 1.0)
        self._log_std = torch.zeros(1, device=self._device, requires_grad=True)
        modules = [*self._layers, self._mean, self._value]
        params = [p for module in modules for p in module.parameters()]
        self._adam = torch.optim.Adam([*params, self._log_std], RATE)

    def _sizes(self) -> list[int]:
        return [prod(self._work.obs_shape), *self._work.hidden]

    def _linear(self, inputs: int, outputs: int, gain: float) -> Any:
        layer = self._torch.nn.Linear(inputs, outputs)
        self._torch.nn.init.orthogonal_(layer.weight, gain)
        self._torch.nn.init.zeros_(layer.bias)
        return layer.to(self._device)

    def advance(self) -> None:
        """Act for one episode, and learn from it once."""
        with self._torch.set_grad_enabled(self._cached):
            observations, actions, rewards, log_probs, values = self._act()
        if not self._cached:
            x = self._torch.cat(observations)
            log_probs_all, value = self._evaluate(x, self._torch.cat(actions))
        else:
            log_probs_all, value = self._torch.cat(log_probs), self._torch.cat(values)
        advantage = self._advantages(rewards, values).reshape(-1)
        target = advantage + value.detach()
        scaled = (advantage - advantage.mean()) / (advantage.std(unbiased=False) + 1e-8)
        entropy = self._log_std.sum() + 1.4189385332
        loss = (-log_probs_all * scaled).mean() - ENTROPY * entropy
        loss = loss + CRITIC * (0.5 * (value - target) ** 2).mean()
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()
        self.loss = float(loss.detach())  # waits for the device

    def _act(self) -> tuple[list[Any], ...]:
        torch, work = self._torch, self._work
        state = torch.rand(work.envs, device=self._device) * 2 - 1
        columns: tuple[list[Any], ...] = ([], [], [], [], [])
        for _ in range(work.steps):
            seen = state.reshape(-1, *(1,) * len(work.obs_shape))
            obs = seen.expand(-1, *work.obs_shape).contiguous()
            mean, value = self._forward(obs)
            noise = torch.randn(work.envs, 1, device=self._device)
            action = (mean + self._log_std.exp() * noise).detach()
            state = (state + STRIDE * action[:, 0].clamp(-1, 1)).clamp(-1, 1)
            row = obs, action, -state.abs(), self._log_prob(mean, action), value
            for column, cell in zip(columns, row, strict=True):
                column.append(cell)
        return columns

    def _forward(self, obs: Any) -> tuple[Any, Any]:
        x = obs.flatten(1)
        for layer in self._layers:
            x = self._torch.tanh(layer(x))
        return self._mean(x), self._value(x)[:, 0]

    def _evaluate(self, obs: Any, actions: Any) -> tuple[Any, Any]:
        mean, value = self._forward(obs)
        return self._log_prob(mean, actions), value

    def _log_prob(self, mean: Any, action: Any) -> Any:
        scaled = (action - mean) / self._log_std.exp()
        return (-0.5 * scaled**2 - self._log_std - 0.9189385332).sum(-1)

    def _advantages(self, rewards: list[Any], values: list[Any]) -> Any:
        """Return generalised advantages [T, N]; the value after the end is 0."""
        torch = self._torch
        after = last = torch.zeros_like(rewards[0])
        found = []
        for reward, value in zip(reversed(rewards), reversed(values), strict=True):
            known = value.detach()
            last = reward + GAMMA * after - known + GAMMA * LAM * last
            found.append(last)
            after = known
        return torch.stack(found[::-1])

    def close(self) -> None:
        del self._adam, self._layers
