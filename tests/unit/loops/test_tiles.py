"""Tiled loops: same results, and reasons against tiling."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_equal
from tests.unit.ir.test_turns import collecting, endless, weights, written
from timerl_nb.base.errors import OptionError
from timerl_nb.base.machine_model import Machine
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.loops.cache_tile_size_model import TileModel

XLA: dict[str, Any] = {"executor": "xla"}
BOUNDS = {"B": 7, "T": 6}


def compiled(write: Callable[..., Any], tile: Any, **options: Any) -> trl.Program:
    """Return a program over (b, t) with the written output."""
    with trl.Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims
        ctx.output("y", write(b, t, T))
    return ctx.compile(BOUNDS, trl.Options(**{**XLA, **options}, tile=tile))


def why(program: trl.Program, name: str) -> str | None:
    """Return the reason of a named operation against tiling."""
    found = [op.id for op in program.stages["contract"].artifact if op.name.startswith(name)]  # type: ignore[attr-defined]
    reasons = [program.stages["tile"].why(op_id) for op_id in found]
    return next((reason for reason in reasons if reason), None)


# --- the same numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 9])
def test_collecting_in_blocks_is_collecting(size: int) -> None:
    ctx, bounds = written(collecting)
    bounds[ctx.dims[0][1]] = 7
    program = endless(ctx, bounds, "xla")
    tiled = program.with_options(tile={"b": size})
    assert len(tiled.executable.tiles) == (size < 7)
    made: list[Any] = []
    for one in (program, tiled):
        with one.turns(seed=3, given=weights(3)) as turns:
            made.append(list(turns))
        assert one.executable.xla_program is not None and len(one.executable.xla_program.calls) == 2
    for want, have in zip(*made, strict=True):
        np.testing.assert_allclose(
            have.pop("o"), want.pop("o"), rtol=1e-5, atol=1e-6
        )  # of products
        assert_equal(want, have)


def noisy(b: Any, t: Any, T: Any) -> Any:
    """A recurrence with draws, given arrays and a count of environments."""
    x = trl.tensor((3,), domain=(b, t))
    x[b, 0] = trl.zeros((3,))
    given = trl.data(np.linspace(0, 1, 14, dtype=np.float32), domain=(b,))
    noise = trl.random.normal((3,), domain=(b, t))
    x[b, t + 1] = trl.where(noise > 0.5, x.sin() + noise, x * given + trl.value(b))
    return x


def plain(b: Any, t: Any, T: Any) -> Any:
    x = trl.tensor((3,), domain=(b, t))
    x[b, 0] = trl.zeros((3,))
    x[b, t + 1] = x.sin() + trl.random.normal((3,), domain=(b, t))
    return x


def summed(b: Any, t: Any, T: Any) -> Any:
    return noisy(b, t, T).sum(over=t)


def last(b: Any, t: Any, T: Any) -> Any:
    return noisy(b, t, T)[b, T - 1]


def two_back(b: Any, t: Any, T: Any) -> Any:
    """Reads a value other than the last written one."""
    x = noisy(b, t, T)
    y = trl.tensor((3,), domain=(b, t))
    y[b, 0], y[b, 1] = trl.zeros((3,)), trl.full((3,), 0.5)
    y[b, t + 2] = (y + 0.5 * y[b, t + 1]).tanh() + x
    return y


@pytest.mark.parametrize(
    ("write", "size", "options"),
    [
        (noisy, 1, {}),
        (noisy, 5, {"fuse": False}),
        (summed, 2, {}),
        (last, 2, {}),
        (two_back, 5, {}),
    ],
)
def test_blocks_give_the_same_numbers(
    write: Callable[..., Any], size: int, options: dict[str, Any]
) -> None:
    whole = compiled(write, False, **options)
    blocks = whole.with_options(tile={"b": size})
    (tile,) = blocks.executable.tiles
    assert (tile.size, tile.blocks, tile.count) == (size, -(-7 // size), 7)
    lowered, before = blocks.executable.xla_program, whole.executable.xla_program
    assert lowered is not None and before is not None
    assert len(lowered.calls) == len(before.calls)
    assert lowered.nbytes == before.nbytes
    assert_equal(dict(whole.execute(seed=5)), dict(blocks.execute(seed=5)))
    want = Reference(blocks.pdg, BOUNDS, 5).outputs()["y"]
    np.testing.assert_allclose(blocks.execute(seed=5)["y"], want, rtol=1e-4, atol=1e-5)


def test_memory_grows_by_the_parts_at_most() -> None:
    """The plan is equal; XLA's figure grows by the tile's parts."""
    bounds = {"B": 20_000, "T": 6}

    def stated(program: trl.Program) -> int:
        assert program.executable.xla_program is not None
        return program.executable.xla_program.temporaries

    whole = compiled(lambda b, t, T: plain(b, t, T).sum(over=t), False).with_bounds(bounds)
    blocks = whole.with_options(tile={"b": 15_000})
    (tile,) = blocks.executable.tiles
    assert tile.live_bytes == 2 * 15_000 * 3 * 4  # a state, and the sum
    assert f"{tile.live_bytes:,} bytes" in str(blocks.stages["tile"].artifact)
    assert blocks.memory.peak == whole.memory.peak
    assert stated(blocks) <= stated(whole) + tile.live_bytes


def iterations(count: int) -> trl.Program:
    """Acting, which is tiled, and learning, which takes a mean over environments and is not."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        w = trl.tensor((), domain=(i,))
        x = trl.tensor((), domain=(b, i, t))
        x[b, i, 0] = trl.random.normal(domain=(b, i))
        x[b, i, t + 1] = (x * w).tanh() + trl.random.normal(domain=(b, i, t))
        w[0] = trl.full((), 0.5)
        w[i + 1] = w + 0.1 * x[b, i, T - 1].mean(over=b)
        ctx.output("w", w)
        ctx.output("x", x)
    return ctx.compile({B: count, I: 4, T: 6}, trl.Options(**XLA, vectorize=("b",)))


def test_one_loop_of_an_iteration_runs_in_blocks_beside_others() -> None:
    whole = iterations(5)
    blocks = whole.with_options(tile={"b": 2})
    assert [tile.loop.counter for tile in blocks.executable.tiles]
    assert_equal(dict(whole.execute(seed=2)), dict(blocks.execute(seed=2)))
    several = blocks.with_options(fuse_iterations=3)
    assert_equal(dict(whole.execute(seed=2)), dict(several.execute(seed=2)))


# --- reasons against tiling -----------------------------------------------------------------------


def centred(b: Any, t: Any, T: Any) -> Any:
    x = trl.tensor((), domain=(b, t))
    x[b, 0] = trl.random.normal(domain=(b,))
    x[b, t + 1] = x - x.mean(over=b)
    return x


def shifted(b: Any, t: Any, T: Any) -> Any:
    x = trl.tensor((), domain=(b, t))
    x[b, 0] = trl.random.normal(domain=(b,))
    x[b, t + 1] = x[6 - b, t] * 0.5
    return x


def hosted(b: Any, t: Any, T: Any) -> Any:
    x = trl.tensor((), domain=(b, t))
    x[b, 0] = trl.random.normal(domain=(b,))
    x[b, t + 1] = trl.udf(np.sin, x, out="f32", name="sine") + 0.5
    return x


def shared(b: Any, t: Any, T: Any) -> Any:
    x, k = trl.tensor((), domain=(b, t)), trl.tensor((), domain=(t,))
    k[0], k[t + 1] = trl.full((), 0.1), (k * 3.0).sin()
    x[b, 0] = trl.random.normal(domain=(b,))
    x[b, t + 1] = x.sin() + k
    return x


@pytest.mark.parametrize(
    ("write", "name", "text"),
    [
        (centred, "sum", "it needs all points of b together"),
        (hosted, "sine", "the host runs it"),
        (shared, "sin", "all points of b share it"),
    ],
)
def test_operations_say_why_they_forbid_blocks(
    write: Callable[..., Any], name: str, text: str
) -> None:
    program = compiled(write, {"b": 2}, vectorize=("b",))
    assert not program.executable.tiles
    reason = why(program, name)
    assert reason is not None and text in reason
    assert text in str(program.stages["tile"].artifact)
    assert_equal(
        dict(program.with_options(tile=False).execute(seed=1)), dict(program.execute(seed=1))
    )


def test_other_points_are_not_those_of_a_block() -> None:
    program = compiled(shifted, {"b": 2})
    assert not program.executable.tiles and "other points of b" in str(
        program.stages["tile"].artifact
    )


def test_a_loop_that_ends_as_it_runs_stays_whole() -> None:
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        x = noisy(b, t, T)
        ctx.output("x", x.sum(over=b))
    far = trl.until(x.sum(axis=0).max(over=b) > 3.0, at_most=6)
    program = ctx.compile({B: 7, T: far}, trl.Options(**XLA, tile={"b": 2}))
    assert not program.executable.tiles
    assert any("ends loops" in text for text in program.stages["tile"].artifact.refused.values())  # type: ignore[attr-defined]


def test_interpreters_leave_loops_whole() -> None:
    tiled = compiled(noisy, {"b": 2})
    with_nans = tiled.with_options(check_nan=True)
    assert "so no loop is tiled" in with_nans.executable.how
    assert_equal(dict(tiled.execute(seed=1)), dict(with_nans.execute(seed=1)))


@pytest.mark.parametrize(
    "tile", [True, 8, {}, {"b": 0}, {"b": 2, "t": 3}, {"b": True}, "all", (("b", "2"),)], ids=str
)
def test_wrong_sizes_are_refused(tile: Any) -> None:
    with pytest.raises(OptionError, match="tile="):
        trl.Options(tile=tile)


def test_dimensions_are_the_program_s() -> None:
    with pytest.raises(OptionError, match="tile contains 'k', which is not a dimension"):
        compiled(noisy, {"k": 2})


def test_the_stage_shows_itself() -> None:
    program = compiled(noisy, {"b": 3})
    assert list(program.stages)[-3:] == ["ast", "tile", "executable"]
    assert "tile" not in program.with_options(tile=False).stages
    artifact = program.stages["tile"].artifact
    assert "3 blocks of 3 points of b, the last of 1" in str(artifact)
    assert artifact.to_dot().startswith("digraph")
    assert json.loads(json.dumps(artifact.to_json()))["tiles"][0]["size"] == 3
    assert "3 blocks of 3 points of b" in program.executable.how


# --- tile size -----------------------------------------------------------------------------------

CACHED = Machine(near=1 << 20, far=1 << 22, bandwidth=1e9, call=1e-6)


def test_blocks_fit_the_cache() -> None:
    wide = TileModel(
        1 << 14, read=1024, made=1024, left=0, inner=0, shared=1 << 10, seconds=0, kernels=1
    )
    size, _ = wide.size(CACHED)
    assert size == 256  # two of 256 KiB, and shared data: the largest within a MiB
    assert wide.turn(size, CACHED) < wide.turn(1 << 14, CACHED)
    each = wide.of_each(2)  # devices, each with its tiles
    assert each.size(CACHED)[0] == 256 and 2 * each.turn(256, CACHED) == wide.turn(256, CACHED)
    # a state of 0.25 MiB stays in cache anyway, and compute-bound loops gain nothing
    for other in (
        TileModel(1 << 8, read=1024, made=0, left=0, inner=0, shared=0, seconds=0, kernels=1),
        TileModel(1 << 14, read=1024, made=1024, left=0, inner=0, shared=0, seconds=1.0, kernels=1),
        TileModel(1 << 14, read=0, made=0, left=1024, inner=0, shared=0, seconds=0, kernels=1),
    ):
        size, text = other.size(CACHED)
        assert size is None and "gain nothing" in text


def test_auto_takes_what_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(plain, "auto").with_bounds({"B": 4000, "T": 50})
    assert not program.executable.tiles
    assert "gain nothing" in program.stages["tile"].summary
    small = Machine(near=1 << 10, far=1 << 14, bandwidth=1e6, call=1e-7)
    for module in ("planned_program", "machine_dependent_options"):
        monkeypatch.setattr(f"timerl_nb.driver.compiling.{module}.machine_here", lambda: small)
    blocks = program.with_options(tile="auto")
    assert [tile.dim.name for tile in blocks.executable.tiles] == ["b"]
    assert_equal(dict(program.execute(seed=4)), dict(blocks.execute(seed=4)))
