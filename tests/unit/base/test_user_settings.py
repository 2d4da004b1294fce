"""User settings: home folder in paths, and JAX's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import ExecutionError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    there = tmp_path / "home"
    there.mkdir()
    monkeypatch.setenv("HOME", str(there))
    monkeypatch.setenv("USERPROFILE", str(there))
    monkeypatch.chdir(tmp_path)
    return there


def program(**options: Any) -> trl.Program:
    with trl.Context("i", "b") as ctx:
        (i, I), (b, B) = ctx.dims
        s = trl.tensor((3,), domain=(i, b))
        s[0, b] = trl.random.normal((3,), domain=(b,))
        s[i + 1, b] = s * 0.5 + (trl.random.uniform((3,), domain=(i, b)) @ trl.ones((3, 3)))
        ctx.output("s", s.sum(over=b))
    return ctx.compile({I: 4, B: 2}, trl.Options(**options))


def test_a_tilde_is_the_home_folder(home: Path) -> None:
    one = program(executor="interpret", lift=False, vectorize=False)
    result = one.execute(checkpoint="~/run", every=1, progress=False)
    np.testing.assert_array_equal(one.execute(resume="~/run", progress=False)["s"], result["s"])
    result.save("~/result.npz")
    buffer = trl.Replay(8, {"x": ((2,), "f32")}, folder="~/rows", above=0)
    buffer.insert({"x": np.ones((3, 2), "f")})
    buffer.save("~/kept/buffer")
    trl.Replay(8, {"x": ((2,), "f32")}).load("~/kept/buffer")
    with trl.scope.record("~/recording"):
        pass
    found = {path.name for path in home.iterdir()}
    assert {"run", "result.npz", "rows", "kept", "recording"} <= found
    assert {path.name for path in home.parent.iterdir()} == {"home"}


def test_a_path_without_a_tilde_stays() -> None:
    assert user_path("a/~b") == Path("a/~b")
    assert user_path(Path("x")) == Path("x")


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_promotion_rules_of_the_user_do_not_reach_programs(executor: str) -> None:
    want = program(executor=executor).execute(progress=False)["s"]
    jax.clear_caches()  # otherwise nothing is traced again
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        found = program(executor=executor, fuse=False).execute(progress=False)["s"]
    np.testing.assert_allclose(found, want, rtol=1e-5)


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_forbidden_transfers_are_named(executor: str) -> None:
    one = program(executor=executor)
    with jax.transfer_guard("disallow"):
        with pytest.raises(ExecutionError, match="jax_transfer_guard.*forbids") as caught:
            one.execute(progress=False)
        assert 'jax.transfer_guard("allow")' in caught.value.hint
        with jax.transfer_guard("allow"):
            one.execute(progress=False)
