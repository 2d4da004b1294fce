"""Tiled loops as one Pallas kernel (interpreted): XLA's results, or the reason against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_equal
from tests.unit.loops.test_tiles import compiled, noisy, summed
from timerl_nb.base.errors import OptionError
from timerl_nb.collecting.strategies.single_gpu_kernel import OneKernel

ON_CPU = jax.default_backend() == "cpu"


def traced(program: trl.Program) -> str:
    assert program.executable.xla_program is not None
    return program.executable.xla_program.jaxpr()


@pytest.mark.parametrize(("write", "size"), [(noisy, 4), (summed, 2)])
def test_a_kernel_makes_what_blocks_make(write: Callable[..., Any], size: int) -> None:
    """Trajectories, draws, given arrays and sums; the last tile is shorter."""
    blocks = compiled(write, {"b": size})
    kernel = blocks.with_options(tile_kernel="interpret")
    assert "(one kernel, interpreted)" in kernel.executable.how
    assert traced(kernel).count("pallas_call") == 1
    assert "pallas_call" not in traced(blocks)
    assert_equal(dict(blocks.execute(seed=5)), dict(kernel.execute(seed=5)))


def strided(b: Any, t: Any, T: Any) -> Any:
    """A statement that reads values of several iterations ago."""
    x = trl.tensor((), domain=(b, t))
    x[b, 0] = trl.random.normal(domain=(b,))
    x[b, t + 1] = x.tanh() + x[b, 0 : t + 1].sum(axis=0)
    return x


def test_what_a_kernel_cannot_stays_a_loop_and_says_why() -> None:
    blocks = compiled(strided, {"b": 2}, vectorize=("b",), lift=False, accumulate=False)
    assert blocks.executable.tiles
    kernel = blocks.with_options(tile_kernel="interpret")
    assert "(no kernel: it reads many slots of a buffer in one operation)" in kernel.executable.how
    assert "pallas_call" not in traced(kernel)
    assert_equal(dict(blocks.execute(seed=5)), dict(kernel.execute(seed=5)))


@pytest.mark.skipif(not ON_CPU, reason="there is a GPU")
def test_without_a_gpu_there_is_none() -> None:
    why = "Pallas compiles such kernels for GPUs, but JAX runs on cpu"
    program = compiled(noisy, {"b": 4}, tile_kernel=True)
    assert f"(no kernel: {why})" in program.executable.how
    odd = program.with_options(tile={"b": 3}).executable.how
    assert "the size of a tile is a power of two, and this one has 3 points" in odd
    with pytest.raises(OptionError, match=f"'kernel' does not apply: {why}"):
        trl.collect("CartPole-v1", trl.policies.random, envs=20, steps=8, how="kernel")


@pytest.mark.parametrize("value", [1, "yes", None])
def test_wrong_values_are_refused(value: Any) -> None:
    with pytest.raises(OptionError, match="tile_kernel="):
        trl.Options(tile_kernel=value)


def test_collecting_in_a_kernel_is_collecting_in_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneKernel, "runs", "interpret")
    options: dict[str, Any] = {"policy": trl.policies.random, "envs": 20, "steps": 8, "seed": 2}
    with (
        trl.collect("CartPole-v1", how="kernel", **options) as c,
        trl.collect("CartPole-v1", how="scan", **options) as d,
    ):
        for _ in range(3):
            made, want = c.next(), d.next()
            for name in ("obs", "action", "reward", "terminated", "truncated", "last_obs"):
                np.testing.assert_array_equal(
                    getattr(made, name), getattr(want, name), err_msg=name
                )
        source: Any = c._source
        assert (
            "2 blocks of 16 points of b, the last of 4 (one kernel" in source.program.executable.how
        )
    with pytest.raises(OptionError, match="needs several environments, but there is one"):
        trl.collect("CartPole-v1", how="kernel", **{**options, "envs": 1})
