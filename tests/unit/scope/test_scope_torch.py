"""Recordings of PyTorch, simulators and Stable-Baselines3."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import timerl_nb as trl
from tests.recorders import recorder_in as recorder_in
from tests.unit.scope.test_scope_taps import calls
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.recording.process_joining import environment
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: make torch-env, and run .venv-torch/bin/pytest"
)
gym = pytest.importorskip("gymnasium")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def entered(recording: Recording, process: int | None = None) -> list[str]:
    """Return the operations of all threads, or of one process."""
    return [
        recording.names[top & ((1 << NAME_BITS) - 1)]
        for lane in recording.lanes
        if process in (None, lane.process)
        for _, top, kind, _ in lane.edges.tolist()
        if kind == Kind.OPERATION_ENTER
    ]


def test_functions_methods_and_operators_are_calls() -> None:
    x = torch.ones(3)
    with trl.scope.record() as rec:
        torch.add(x, x)
        (x + x)[0] = 1
        x.sum().item()
        torch.nn.functional.linear(x, torch._VF.cos(x).expand(3, 3))
        float(x[1]), x.shape, x.dim(), len(x)
    assert calls(rec.read()) == [
        ("backend", "torch.add"),
        ("backend", "torch.Tensor.__add__"),
        ("backend", "torch.Tensor.__setitem__"),
        ("backend", "torch.Tensor.sum"),
        ("backend", "torch.Tensor.item"),
        ("backend", "torch.cos"),
        ("backend", "torch.Tensor.expand"),
        ("backend", "torch._C._nn.linear"),
        ("backend", "torch.Tensor.__getitem__"),
        ("backend", "torch.Tensor.__float__"),
        ("backend", "torch.Tensor.__len__"),
    ]


def test_to_synchronize_is_to_wait() -> None:
    failed = contextlib.suppress(AssertionError, RuntimeError)  # without a GPU
    with trl.scope.record() as rec, failed:
        torch.cuda.synchronize()
    assert calls(rec.read()) == [("waiting", "torch.cuda.synchronize")]


def test_modules_the_engine_and_optimizers_are_operations() -> None:
    made = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    with trl.scope.record() as rec:
        with torch.no_grad():
            made(torch.ones(1, 2))
        made(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        with trl.scope.operation("mine"):
            made(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        torch.autograd.grad(made(torch.ones(1, 2)).sum(), list(made.parameters()))
    recording = rec.read()
    guessed = [f"{name} (guessed)" for name in ("inference", "learn", "backward", "update")]
    assert entered(recording) == [*guessed, "mine", *guessed[1:3]]
    by = rec.table().by("operation", "library")
    for name in guessed:
        assert by[name, "backend"] > 0
    engine = [name for _, name in calls(recording) if "run_backward" in name]
    assert engine == ["torch.autograd.run_backward"] * 3


def test_a_step_that_raises_an_error_is_left() -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            super().step()  # nested in one of the same name
            raise ValueError("by itself")

    made = torch.nn.Linear(1, 1)
    with trl.scope.record() as rec:
        for _ in range(3):
            with pytest.raises(ValueError, match="by itself"):
                Failing(made.parameters(), lr=0.1).step()
    assert entered(rec.read()) == ["update (guessed)"] * 3
    depths = {depth for *_, kind, depth in rec.read().lanes[0].edges.tolist() if kind == 2}
    assert depths == {1}


@pytest.mark.parametrize(
    ("env", "library", "called"),
    [
        ("Walker2d-v5", "mujoco", "mujoco._functions.mj_step"),
        ("ALE/Pong-v5", "ale_py", "ALEInterface.act"),
        ("LunarLander-v3", "Box2D", "b2World.Step"),
    ],
)
def test_simulators_are_told_apart(env: str, library: str, called: str) -> None:
    pytest.importorskip(library)
    if library == "ale_py":
        gym.register_envs(sys.modules["ale_py"])
    made = gym.make(env)
    made.reset(seed=0)
    with trl.scope.record() as rec:
        for _ in range(3):
            made.step(made.action_space.sample())
    recording = rec.read()
    assert calls(recording).count(("simulation", called)) >= 3
    assert entered(recording) == ["simulation (guessed)"] * 3
    made.close()


def test_an_agent_needs_no_annotations() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    agent = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    with trl.scope.record(calibrated=False) as rec:  # otherwise some steps are not observed
        agent.learn(32)
    found = set(entered(rec.read()))
    names = ("simulation", "inference", "learn", "backward", "update")
    assert found == {f"{name} (guessed)" for name in names}
    steps = entered(rec.read()).count("simulation (guessed)")
    assert steps == 1 + 32  # and none of the environments inside a vector environment


def test_torch_is_tapped_where_it_is_imported_later(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "import torch\n"
        "layer = torch.nn.Linear(2, 2)\n"
        "layer(torch.ones(2)).sum().backward()\n"
        "print(torch.add(1, torch.ones(1)).item())\n"
    )
    command = [sys.executable, "-m", "timerl_nb.cli", "scope", "run", "--folder", "r", "s.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    recording = trl.scope.read(tmp_path / "r")
    (lane,) = recording.lanes
    found = [name for _, name in calls(recording, lane)]
    assert "torch._C._nn.linear" in found and found[-2:] == ["torch.add", "torch.Tensor.item"]
    assert entered(recording) == ["learn (guessed)", "backward (guessed)"]


def test_workers_of_vector_environments_are_recorded(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    (tmp_path / "s.py").write_text(
        "import stable_baselines3 as sb3\n"
        "from stable_baselines3.common.env_util import make_vec_env\n"
        "if __name__ == '__main__':\n"
        "    env = make_vec_env('CartPole-v1', 2, vec_env_cls=sb3.common.vec_env.SubprocVecEnv)\n"
        "    sb3.A2C('MlpPolicy', env, device='cpu').learn(20)\n"
        "    env.close()\n"
    )
    (tmp_path / "r").mkdir()
    joined = environment(
        tmp_path / "r", os.environ, calibrated=False
    )  # its few updates may be in disabled blocks
    command = [sys.executable, "s.py"]
    done = subprocess.run(command, cwd=tmp_path, env=joined, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    recording = trl.scope.read(tmp_path / "r")
    first, *others = [entered(recording, process.number) for process in recording.processes]
    steps = [names.count("simulation (guessed)") for names in others]
    assert len([count for count in steps if count >= 11]) == 2  # 10 steps, and at least one reset
    assert {"inference (guessed)", "learn (guessed)", "update (guessed)"} <= set(first)
    waited = trl.scope.overlap_of(recording).by("operation", "library")
    assert waited["simulation (guessed)", "waiting"] > 0
