"""Gradients and updates of the algorithms, run by PyTorch, against hand-written twins with `torch.autograd`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.recorded_updates import recorded_updates

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: make torch-env, and run .venv-torch/bin/pytest"
)
pytestmark = pytest.mark.torch

Values = Mapping[str, Any]  # tensors of one update, by name
Loss = Callable[[Values, Values], Any]  # of the parameters and the data


def run_recorded(
    module: str, monkeypatch: pytest.MonkeyPatch, bounds: Any, names: Sequence[str], **settings: Any
) -> trl.Result:
    return recorded_updates(
        module, monkeypatch, bounds, names, trl.Options(backend="torch"), **settings
    )


def mlp(p: Values, prefix: str, x: Any, layers: int) -> Any:
    """Apply a network of tanh layers; the last one is linear."""
    for k in range(layers):
        x = x @ p[f"{prefix}.{k}.weight"] + p[f"{prefix}.{k}.bias"]
        x = x.tanh() if k < layers - 1 else x
    return x


def head(p: Values, name: str, x: Any, trunk: str = "trunk") -> Any:
    for k in range(2):
        x = (x @ p[f"{trunk}.{k}.weight"] + p[f"{trunk}.{k}.bias"]).tanh()
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def check(found: trl.Result, names: Sequence[str], loss: Loss, count: int, at: Any = None) -> None:
    """Compare the gradient of each update, given the recorded parameters and data."""
    params = [name.removeprefix("grad ") for name in found if name.startswith("grad ")]
    for k in range(count):
        where = k if at is None else at(k)
        own = {n: torch.tensor(np.array(found[n][where]), requires_grad=True) for n in params}
        data = {n: torch.tensor(np.array(found[n])) for n in names if n in found}
        loss(own, {"k": k, **data}).backward()
        for name in params:
            want = own[name].grad
            if want is None:  # the parameter does not occur in this loss
                continue
            scale = float(want.abs().max())
            np.testing.assert_allclose(
                found[f"grad {name}"][where], want, rtol=2e-4, atol=2e-5 * max(scale, 1e-3)
            )


def test_reinforce(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("o", "a", "r")
    found = run_recorded("reinforce", monkeypatch, {"B": 4, "I": 3, "T": 12}, names, gamma=0.9)

    def loss(p: Values, data: Values) -> Any:
        o, a, r = (data[n][:, data["k"]] for n in names)
        returns = torch.stack(
            [sum(0.9 ** (j - t) * r[:, j] for j in range(t, 12)) for t in range(12)], 1
        )
        chosen = head(p, "actor", o).log_softmax(-1).gather(-1, a[..., None].long())[..., 0]
        return -(chosen * returns).mean()

    check(found, names, loss, 3)


def test_ppo(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("o", "a", "r")
    found = run_recorded("ppo_single_epoch", monkeypatch, {"B": 4, "I": 3, "T": 7}, names)

    def loss(p: Values, data: Values) -> Any:
        o, a, r = (data[n][:, data["k"]] for n in names)
        assert data["r"].all()  # no episode of CartPole ends in 7 steps
        v = head(p, "critic", o)[..., 0]
        known, advantage = v.detach(), torch.zeros(4, 7)
        later = torch.zeros(4)
        for t in reversed(range(7)):
            after = 0.99 * known[:, t + 1] if t < 6 else 0.0
            later = r[:, t] + after - known[:, t] + 0.99 * 0.96 * later
            advantage[:, t] = later
        scaled = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        dist = torch.distributions.Categorical(logits=head(p, "actor", o))
        regret = 0.5 * (v - (advantage + known)).square()
        return (0.5 * regret - dist.log_prob(a) * scaled - 0.01 * dist.entropy()).mean()

    check(found, names, loss, 3)


def test_clipped_ppo(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("obs", "action", "old_log_prob", "old_value", "normalized", "target")
    bounds = {"B": 4, "I": 2, "T": 8}
    found = run_recorded("clipped_ppo", monkeypatch, bounds, names, epochs=2, minibatches=2, lr=0.2)
    changes: list[float] = []

    def at(k: int) -> tuple[int, int, int]:
        return k // 4, k // 2 % 2, k % 2

    def loss(p: Values, data: Values) -> Any:
        here = {n: data[n][at(data["k"])] for n in names}
        dist = torch.distributions.Categorical(logits=head(p, "actor", here["obs"]))
        new = head(p, "critic", here["obs"], "critic.trunk")[..., 0]
        ratio = (dist.log_prob(here["action"]) - here["old_log_prob"]).exp()
        changes.append(float((ratio.detach() - 1).abs().max()))
        surrogate = torch.minimum(
            ratio * here["normalized"], ratio.clamp(0.8, 1.2) * here["normalized"]
        )
        clipped = here["old_value"] + (new - here["old_value"]).clamp(-0.2, 0.2)
        value_loss = torch.maximum(
            (new - here["target"]).square(), (clipped - here["target"]).square()
        )
        return (0.25 * value_loss - surrogate - 0.01 * dist.entropy()).mean()

    check(found, names, loss, 8, at)
    assert max(changes) > 0.2  # some ratios are clipped


def test_dqn(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("obs", "action", "target")
    settings = {"buffer_size": 10, "batch": 6, "learning_starts": 0, "steps": 2, "alpha": None}
    found = run_recorded("dqn", monkeypatch, {"B": 2, "T": 8}, names, **settings)

    def loss(p: Values, data: Values) -> Any:
        obs, action, target = (data[n][:, data["k"]] for n in names)
        chosen = mlp(p, "q", obs, 3).gather(-1, action[..., None].long())[..., 0]
        return torch.nn.functional.huber_loss(chosen, target)

    check(found, names, loss, 8)


def test_ddpg(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("obs", "action", "target")
    settings = {"buffer_size": 10, "batch": 6, "learning_starts": 0}
    found = run_recorded("ddpg", monkeypatch, {"B": 2, "T": 8}, names, **settings)

    def loss(p: Values, data: Values) -> Any:
        obs, action, target = (data[n][:, data["k"]] for n in names)
        value = mlp(p, "critic", torch.cat([obs, action], -1), 3)[..., 0]
        acted = mlp(p, "actor", obs, 3).tanh()
        still = {name: x.detach() for name, x in p.items()}
        actor_value = mlp(still, "critic", torch.cat([obs, acted], -1), 3)[..., 0]
        return (target - value).square().mean() - actor_value.mean()

    check(found, names, loss, 8)


def test_adam_makes_the_updates_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_recorded("reinforce", monkeypatch, {"B": 4, "I": 6, "T": 12}, (), lr=0.01)
    names = [name.removeprefix("grad ") for name in found if name.startswith("grad ")]
    own = [torch.tensor(np.array(found[name][0]), requires_grad=True) for name in names]
    adam = torch.optim.Adam(own, lr=0.01)
    for i in range(6):
        for p, name in zip(own, names, strict=True):
            np.testing.assert_allclose(found[name][i], p.detach(), rtol=1e-4, atol=1e-6)
            p.grad = torch.tensor(np.array(found[f"grad {name}"][i]))
        adam.step()


def test_a_recurrent_network_by_backpropagation_through_time() -> None:
    given = np.random.default_rng(3).normal(size=(7, 3)).astype(np.float32)
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        cell = trl.nn.GRUCell(3, 4, domain=(i,))
        x = trl.constant(given)
        h = trl.tensor((4,), domain=(i, t))
        h[i, 0] = trl.zeros((4,))
        h[i, t + 1] = cell(h, x.take(trl.value(t)))
        h[i, T - 1].square().sum().backward()
        for p in cell.params:
            ctx.output(p.name, p)
            ctx.output(f"grad {p.name}", p.grad)
        trl.optim.SGD(cell.params, lr=0.1).step()
    found = ctx.compile({I: 2, T: 7}, trl.Options(backend="torch")).execute(progress=False)
    parts = {"weight_ih": "input.weight", "weight_hh": "state.weight"}
    parts |= {"bias_ih": "input.bias", "bias_hh": "state.bias"}
    for k in range(2):
        twin = torch.nn.GRUCell(3, 4)
        given_to = {name: trl.to_torch(found[f"gru.{own}"][k]) for name, own in parts.items()}
        twin.load_state_dict({name: x.t() for name, x in given_to.items()})
        state = torch.zeros(4)
        for row in given[:-1]:
            state = twin(torch.tensor(row), state)
        state.square().sum().backward()
        for name, own in parts.items():
            want = getattr(twin, name).grad.t()
            np.testing.assert_allclose(found[f"grad gru.{own}"][k], want, rtol=1e-4, atol=1e-6)
