"""Cross-process identity: equal for equal objects, different otherwise, without addresses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.stable_identity import identity, parts_of
from timerl_nb.replay import Dqn
from timerl_nb.replay.training import training_folder as kept_training

ADDRESS = re.compile(r"0x[0-9a-f]{6,}")

SCRIPT = """
from functools import partial
import jax, numpy as np
from timerl_nb.base.stable_identity import parts_of

LR = 0.1

def slower(x):
    return x * LR

class Mine:
    words = {"a", "b", "c", "d"}
    def __init__(self, k, w):
        self.k, self.w = k, w
        self.f, self.j = lambda x: x + k, jax.jit(lambda v: slower(v))
    @partial(jax.jit, static_argnums=0)
    def step(self, state):
        return slower(state) if self.k in {"p", "q", "r", "s"} else state

print(parts_of(Mine(3, np.arange(5.0))))
LR = 0.2
print(parts_of(Mine(3, np.arange(5.0))))
"""


def test_it_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    made = [
        subprocess.Popen(
            [sys.executable, tmp_path / "mine.py"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed in "12"
    ]
    (one, other), again = (process.communicate()[0].splitlines() for process in made)
    assert [one, other] == again and one != other
    assert "mine.Mine#" in one and not ADDRESS.search(one)


class Named(Enum):
    A = 1
    B = 2


class Own:
    scale: ClassVar[float] = 1.0

    def __init__(self, x: Any = 1) -> None:
        self.x = x

    def twice(self) -> Any:
        return self.x * 2


class Scaled(Own):
    scale: ClassVar[float] = 2.0


class Thrice(Own):
    def twice(self) -> Any:
        return self.x * 3


class Tuned(Dqn):
    """A subclass of a dataclass, with an extra attribute."""

    def __init__(self, k: int) -> None:
        super().__init__()
        object.__setattr__(self, "k", k)


def closed_over(k: Any) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        return x + k

    return f


def circle() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


VALUES: list[Callable[[], Any]] = [
    lambda: 1,
    lambda: True,
    lambda: 1.0,
    lambda: "1",
    lambda: b"1",
    lambda: None,
    lambda: (1,),
    lambda: [1],
    lambda: {1: 2},
    lambda: {1},
    lambda: "a" * 1000,
    lambda: "a" * 1001,
    lambda: np.float32(1),
    lambda: np.ones(2),
    lambda: np.ones(2, np.float32),
    lambda: np.ones((2, 1)),
    lambda: np.zeros(2),
    lambda: jax.numpy.ones(3),
    lambda: np.dtype("f4"),
    lambda: Named.A,
    lambda: Named.B,
    lambda: Own,
    Own,
    lambda: Own(2),
    lambda: Own(Own(2)),
    Scaled,
    Thrice,
    lambda: Own().twice,
    lambda: Own(2).twice,
    lambda: closed_over(1),
    lambda: closed_over(2),
    lambda: closed_over(closed_over(2)),
    lambda: jax.jit(closed_over(3)),
    lambda: partial(closed_over, 1),
    lambda: partial(closed_over, k=1),
    lambda: lambda x: x + 1,
    lambda: lambda x: x + 2,
    lambda: lambda x, y=2: x + 2,
    lambda: jax.nn.relu,
    lambda: jax.nn.tanh,
    lambda: np,
    lambda: len,
    circle,
    lambda: np.random.default_rng(0),
    lambda: np.random.default_rng(1),
    lambda: trl.env.make("CartPole-v1"),
    lambda: trl.env.make("CartPole-v1", max_steps=7),
    lambda: trl.env.make("Pendulum-v1"),
    lambda: trl.env.make("gym.CartPole-v1"),
    lambda: trl.env.make("gym.CartPole-v1", sutton_barto_reward=True),
    Dqn,
    lambda: Dqn(lr=1e-4),
    lambda: Tuned(1),
    lambda: Tuned(2),
    lambda: Dqn(trl.env.make("CartPole-v1", max_steps=7)),
]


def test_different_objects_have_different_texts() -> None:
    texts = [identity(make()) for make in VALUES]
    assert texts == [identity(make()) for make in VALUES]  # of other objects
    assert len({*texts}) == len(texts)
    assert not [text for text in texts if ADDRESS.search(text) or len(text) > 2000]


def test_objects_without_an_identity_are_refused() -> None:
    for value in (threading.Lock(), Own([threading.Lock()]), closed_over(threading.Lock())):
        with pytest.raises(trl.errors.OptionError, match="class lock cannot be distinguished"):
            identity(value)


def test_values_that_a_property_has_cached_do_not_count() -> None:
    one, other = Dqn(), Dqn()
    assert one.fields  # computes the spaces
    assert parts_of(one) == parts_of(other)


# --- trainings -------------------------------------------------------------------------------------


class Mine:
    """An algorithm without a __repr__."""

    def __init__(self, lr: float) -> None:
        self.lr, self._inner = lr, Dqn("gym.CartPole-v1", hidden=(4,), lr=lr)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "identity":
            raise AttributeError(name)
        return getattr(self._inner, name)


class Told(Mine):
    identity = "mine, as of May"


def trained(algorithm: Any, folder: Path, turns: int = 2) -> Any:
    given = {"batch": 4, "envs": 2, "steps": 4, "learning_starts": 4, "every": 1, "mode": "exact"}
    return trl.replay.train(algorithm, folder=folder, turns=turns, **given).result()


def test_a_training_of_an_own_class_goes_on(tmp_path: Path) -> None:
    trained(Mine(0.1), tmp_path)
    assert len(trained(Mine(0.1), tmp_path, 4)["staleness"]) == 4
    with pytest.raises(
        trl.errors.ExecutionError, match=r"(?s)algorithm\.lr: '0.1' in the folder, '0.2' here"
    ):
        trained(Mine(0.2), tmp_path)
    with pytest.raises(
        trl.errors.ExecutionError, match=r"(?s)algorithm: .*Mine#.* in the folder, .*Dqn"
    ):
        trained(Dqn("gym.CartPole-v1", hidden=(4,)), tmp_path)
    trained(Told(0.1), tmp_path / "told")
    trained(Told(0.1), tmp_path / "told", 3)


def test_folders_of_the_first_format_are_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Dqn("gym.CartPole-v1", hidden=(4,))
    with monkeypatch.context() as patch:
        patch.setattr(kept_training, "_FORMAT", kept_training._FIRST)
        patch.setattr(kept_training, "_named", lambda algorithm: {"algorithm": repr(algorithm)})
        trained(one, tmp_path)
    with pytest.raises(trl.errors.ExecutionError, match="algorithm: "):
        trained(Dqn("gym.CartPole-v1", hidden=(5,)), tmp_path)
    trained(one, tmp_path, 3)
    trained(one, tmp_path, 4)


@pytest.mark.parametrize("format_name", ["_FIRST", "_FORMAT"])
def test_folders_with_older_names_of_arguments_are_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    one = trl.replay.Ddpg("Pendulum-v1", hidden=(4,), tau=0.01)
    older = {"learning_starts": "least", "algorithm.tau": "algorithm.share"}
    save = kept_training.SavedTraining.save

    def save_with_older_names(kept: Any, arrays: Any, about: Any) -> None:
        asked = kept._arguments if format_name == "_FORMAT" else kept._arguments_of_format_1
        with monkeypatch.context() as patch:
            renamed = {older.get(name, name): x for name, x in asked.items()}
            if format_name == "_FIRST":
                renamed["algorithm"] = renamed["algorithm"].replace(", tau=", ", share=")
            patch.setattr(kept, "_arguments", renamed)
            patch.setattr(kept_training, "_FORMAT", getattr(kept_training, format_name))
            save(kept, arrays, about)

    with monkeypatch.context() as patch:
        patch.setattr(kept_training.SavedTraining, "save", save_with_older_names)
        trained(one, tmp_path)
    text = (tmp_path / "training.safetensors").read_bytes()
    assert b"least" in text and b"share" in text and b"tau" not in text
    with pytest.raises(trl.errors.ExecutionError, match="with other arguments"):
        trained(trl.replay.Ddpg("Pendulum-v1", hidden=(4,), tau=0.02), tmp_path)
    assert len(trained(one, tmp_path, 4)["staleness"]) == 4
