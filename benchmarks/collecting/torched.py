"""CartPole in PyTorch: one tensor for all environments, operation by operation."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.collecting.cell import ANGLE_LIMIT, MOST_STEPS, TICK, X_LIMIT, Cell
from benchmarks.collecting.implementation import Batch, Implementation
from benchmarks.collecting.policy import Act, weights

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Operations(TorchDispatchMode):
    """Counter of PyTorch operations."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def acting(width: int, device: str):
    """Return a function from observation tensors to actions and log-probabilities."""
    layers = [
        (torch.tensor(w, device=device), torch.tensor(b, device=device)) for w, b in weights(width)
    ]

    def act(obs):
        if not layers:
            return torch.randint(2, (len(obs),), device=device), None
        x = obs
        for w, b in layers[:-1]:
            x = torch.tanh(torch.addmm(b, x, w))
        w, b = layers[-1]
        logp = torch.log_softmax(torch.addmm(b, x, w), -1)
        action = torch.multinomial(logp.exp(), 1)
        return action[:, 0], logp.gather(1, action)[:, 0]

    return act


def policy(width: int) -> Act:
    """Return the same function on NumPy arrays."""
    act = acting(width, "cpu")

    @torch.inference_mode()
    def of_arrays(obs: np.ndarray):
        action, logp = act(torch.from_numpy(obs))
        return action.numpy(), None if logp is None else logp.numpy()

    return of_arrays


class TorchBatched(Implementation):
    """Python loop over steps; all data stays on the device."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        if cell.envs < 4096:  # here several threads cost more than they save
            torch.set_num_threads(1)
        self._act = acting(cell.width, DEVICE)
        shape = cell.steps, cell.envs
        flag, real = {"dtype": torch.bool, "device": DEVICE}, {"device": DEVICE}
        self._kept = {
            "obs": torch.empty(*shape, 4, **real),
            "action": torch.empty(shape, dtype=torch.int64, device=DEVICE),
            "reward": torch.empty(shape, **real),
            "terminated": torch.empty(shape, **flag),
            "truncated": torch.empty(shape, **flag),
            "log_prob": torch.zeros(shape, **real),
        }
        self._state = self._first()
        self._length = torch.zeros(cell.envs, dtype=torch.int32, device=DEVICE)

    def _first(self):
        return torch.rand(self.cell.envs, 4, device=DEVICE) * 0.1 - 0.05

    @torch.inference_mode()
    def advance(self) -> int:
        state, length, kept = self._state, self._length, self._kept
        for k in range(self.cell.steps):
            kept["obs"][k] = state
            action, logp = self._act(state)
            kept["action"][k] = action
            if logp is not None:
                kept["log_prob"][k] = logp
            x, v, angle, spin = state.unbind(1)
            force = torch.where(action == 1, 10.0, -10.0)
            cos, sin = angle.cos(), angle.sin()
            push = (force + 0.05 * spin * spin * sin) / 1.1
            twist = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
            pull = push - 0.05 * twist * cos / 1.1
            after = torch.stack(
                [x + TICK * v, v + TICK * pull, angle + TICK * spin, spin + TICK * twist], 1
            )
            length = length + 1
            ended = (after[:, 0].abs() > X_LIMIT) | (after[:, 2].abs() > ANGLE_LIMIT)
            cut = length >= MOST_STEPS
            over = ended | cut
            state = torch.where(over[:, None], self._first(), after)
            length = torch.where(over, 0, length)
            kept["reward"][k] = 1.0
            kept["terminated"][k], kept["truncated"][k] = ended, cut
        self._state, self._length = state, length
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return self.cell.points

    def counts(self):
        with Operations() as operations:
            self.advance()
        self.calls = operations.count
        return super().counts()

    def batch(self) -> Batch:
        kept = {name: x.cpu().numpy() for name, x in self._kept.items()}
        valid = np.ones((self.cell.steps, self.cell.envs), bool)
        return {**kept, "valid": valid, "last_obs": self._state.cpu().numpy()}
