"""Element types: promotion, small integers in all stores, and 64-bit types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.ir.shapes import NUMPY, WIDE, promote
from timerl_nb.runtime.state.checkpoint_reader import load

RNG = np.random.default_rng(0)
FEW = ("i8", "u8", "i16")
BOUNDS = {"B": 2, "T": 4}


@pytest.mark.parametrize("left", NUMPY)
def test_types_meet_as_in_jax(left: str) -> None:
    with jax.enable_x64(True):
        for right in NUMPY:
            want = str(jnp.promote_types(NUMPY[left], NUMPY[right]))
            if "u32" in (left, right) and {left, right} & {"i8", "i16", "i32"}:
                want = "int32"  # as JAX without 64-bit types
            assert NUMPY[promote((left, right))].name == want, (left, right)
            assert promote((right, left)) == promote((left, right))
            for third in NUMPY:
                several = promote((left, right, third))
                assert several == promote((left, promote((right, third))))


def test_the_table_of_types_is_that_of_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "element-types.md").read_text()
    rows = re.findall(r"^\| \*\*(\w+)\*\* \| (.+) \|$", page, re.M)
    found = {name: cells.split(" | ") for name, cells in rows}
    assert found == {a: [promote((a, b)) for b in NUMPY] for a in NUMPY}
    assert f"| | {' | '.join(NUMPY)} |" in page


def test_operands_of_all_pairs_meet() -> None:
    names = [name for name in NUMPY if name not in WIDE]
    met: dict[str, list[Any]] = {}
    with trl.Context("t") as ctx:
        given = {name: trl.data(np.arange(2) + 1, domain="t", dtype=name) for name in names}
        for left, x in given.items():
            for right, y in given.items():
                made = trl.where(x == y, trl.max(x, y) * x if left != "bool" else y, x)
                met.setdefault(promote((left, right)), []).append(made)
                assert made.dtype == promote((left, right))
                assert trl.concat([x.unsqueeze(0), y.unsqueeze(0)]).dtype == made.dtype
        for name, values in met.items():
            ctx.output(name, trl.stack(values))
    want = Reference(ctx.pdg(), {"T": 2}).outputs()
    assert sum(x.size for x in want.values()) == 2 * len(names) ** 2
    have = ctx.compile({"T": 2}, trl.Options(executor="xla")).execute()
    for name in met:
        assert have[name].dtype == NUMPY[name]
        np.testing.assert_array_equal(np.sort(have[name].ravel()), np.sort(want[name].ravel()))


def _everywhere(ctx: trl.Context, dtype: str, given: np.ndarray, more: np.ndarray) -> None:
    """Values of an integer type through operations, stores, recurrences and sums of all sorts."""
    (b, _), (t, T) = ctx.dims
    x = trl.data(given.astype(NUMPY[dtype]), domain=(b, t), dtype=dtype)
    y = trl.data(more.astype(NUMPY[dtype]), domain=(b, t), dtype=dtype)
    running, alternating, most = (trl.tensor((5,), dtype, domain=(b, t)) for _ in range(3))
    for recurrence in (running, alternating, most):
        recurrence[b, 0] = x[b, 0]
    running[b, t + 1] = running * 100 * 3 + x
    alternating[b, t + 1] = x - alternating * 100 * 3
    most[b, t + 1] = trl.max(most, x)
    for name, value in {
        "running": running,
        "alternating": alternating,
        "most": most,
        "sum": x.sum(over=t),
        "sum of axes": x.sum(),
        "product of axes": x.prod(),
        "prefix": x[b, 0 : t + 1].sum(axis=0),
        "window": x[b, t : trl.min(t + 2, T)].sum(axis=0),
        "greatest of a suffix": x[b, t:T].max(axis=0),
        "mean": x.mean(over=(b, t)),
        "running sum": x.cumsum(),
        "running product": x.cumprod(),
        "sorted": x.sort(descending=True),
        "taken": x.take(y & 3),
        "put": x.put_add(y & 3, x),
        "set": x.put(y & 3, x),
        "matrix": x.unsqueeze(0) @ y.unsqueeze(1),
        "bits": (x & y, x | 3, x ^ y, ~x)[0] + (x << 1) - (x >> 1),
        "arithmetic": (-x * y + abs(x)) // 3 % 5,
        "share": x / 7,
        "below": x < 70_000,
        "least": x.argmin(),
    }.items():
        ctx.output(name, value)


@pytest.mark.parametrize(("dtype", "how"), [("u8", {}), ("i8", {"vectorize": False})], ids=str)
def test_integers_of_few_bits_run(dtype: str, how: dict[str, Any]) -> None:
    given, more = np.random.default_rng(1).integers(0, 2**20, (2, 2, 4, 5))
    with trl.Context("b", "t") as ctx:
        _everywhere(ctx, dtype, given, more)
    want = Reference(ctx.pdg(), BOUNDS).outputs()
    x = given.astype(NUMPY[dtype])
    numpys = {
        "sum": x.sum(1, dtype=np.int32),
        "prefix": x.cumsum(1, dtype=np.int32),
        "running product": x.cumprod(-1, dtype=np.int32),
        "arithmetic": (-x * more.astype(x.dtype) + abs(x)) // 3 % 5,
        "below": x < 70_000,
    }
    assert_same(numpys, want, "NumPy")
    assert_same(want, ctx.compile(BOUNDS, trl.Options(executor="xla", **how)).execute(), "run")


def test_numbers_beside_integers_of_few_bits() -> None:
    with trl.Context("t") as ctx:
        x = trl.constant(np.array([0, 200], np.uint8))
        ctx.output("signed", x > -1)
        ctx.output("beyond", x == 300)
        assert (x + 1).dtype == "u8" and (x * 0.5).dtype == (x / 2).dtype == "f32"
        for wrong in (lambda: x + 300, lambda: x - -1, lambda: -1 * x):
            with pytest.raises(ShapeError, match="does not fit into uint8"):
                wrong()
        for value in (300, -1, [1, 256], 1e9, float("nan")):
            with pytest.raises(ShapeError, match="do not fit into uint8"):
                trl.constant(value, "uint8")
        with pytest.raises(ShapeError, match="is not an element type"):
            trl.constant(1, "u16")
    result = ctx.compile({"T": 1}).execute()
    assert result["signed"].all() and not result["beyond"].any()


def test_casts_keep_to_the_ends_of_an_integer_type() -> None:
    given = [np.nan, np.inf, -np.inf, 300.7, -1.5, -0.9, 255.9, 3e9, -3e9, 2**31, 127.5, -129]
    with trl.Context("t") as ctx:
        x = trl.data(np.array(given, np.float32), domain="t")
        for dtype in (*FEW, "i32", "u32"):
            ctx.output(dtype, x.cast(dtype))
            ctx.output(f"{dtype} wraps", x.cast("i32").cast(dtype))
    want = Reference(ctx.pdg(), {"T": len(given)}).outputs()
    assert want["u8"].tolist() == [0, 255, 0, 255, 0, 0, 255, 255, 0, 255, 127, 0]
    assert want["u8 wraps"].tolist()[3:5] == [300 % 256, 255]
    assert_same(want, ctx.compile({"T": len(given)}, trl.Options(executor="xla")).execute(), "run")


# --- frames ---------------------------------------------------------------------------------------


@pytest.fixture
def frames() -> Iterator[str]:
    gymnasium.register("Frames-v0", Frames)
    yield "gym.Frames-v0"
    del gymnasium.registry["Frames-v0"]


class Frames(gymnasium.Env):
    """Environment that counts in every pixel, from the seed on, modulo 256."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.frame = np.full((2, 3), 250, np.uint8)
        return self.frame, {}

    def step(self, action: int) -> Any:
        self.frame = self.frame + np.uint8(1 + action)
        return self.frame, 1.0, False, False, {}


def _program(name: str, tmp_path: Path, dtype: str) -> Any:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        env = trl.env.make(name)
        assert env.obs_space.dtype == "u8"
        o = trl.tensor((2, 3), dtype, domain=(b, i, t)).named("o")
        o[b, i, 0] = env.reset(domain=(b, i)).cast(dtype)
        a = trl.random.bits(domain=(b, i, t)).cast("i32") & 1
        o[b, i, t + 1] = env.step(a).obs.cast(dtype)
        ctx.output("o", o)
        ctx.output("mean", o[b, i, 0:T].mean(axis=0))
        o.checkpoint(tmp_path / dtype)
    return ctx.compile({B: 2, I: 2, T: 9}, trl.Options(executor="xla"))


def test_frames_take_one_byte_each_wherever_they_are_kept(frames: str, tmp_path: Path) -> None:
    small, large = (_program(frames, tmp_path, dtype) for dtype in ("u8", "f32"))
    bytes_of = [int(max(x.memory.timeline().by_tensor["o"])) for x in (small, large)]
    assert bytes_of[0] * 4 == bytes_of[1] > 0
    result = small.execute(seed=3)
    assert result["o"].dtype == np.uint8 and result["o"].shape == (2, 2, 9, 2, 3)
    np.testing.assert_array_equal(result["o"], large.execute(seed=3)["o"])
    assert (np.diff(result["o"], axis=2) - 1 <= 1).all()  # 255 is followed by 0
    np.testing.assert_allclose(result["mean"], result["o"].mean(2), rtol=1e-6)
    files = sorted((tmp_path / "u8").rglob("*.safetensors"))
    assert len(files) == 36
    assert all(x.dtype == np.uint8 for file in files for x in load(file).values())


# --- 64 bits --------------------------------------------------------------------------------------


def _wide(dtype: str) -> tuple[trl.Context, np.ndarray]:
    given = np.random.default_rng(2).integers(2**55, 2**60, (3, 4)).astype(NUMPY[dtype])
    given = given / 2.0**60 if dtype == "f64" else given
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(given, domain="t", dtype=dtype)  # here
        s = trl.tensor((4,), dtype, domain="t")
        s[0] = x[0]
        s[t + 1] = s * 3 * (2**53 + 1 if dtype == "i64" else 0.1) + x
        ctx.output("s", s)
        back = trl.tensor((4,), dtype, domain="t")
        back[0] = x[0]
        back[t + 1] = x - back * 3
        ctx.output("back", back)
        ctx.output("sum", x[0 : t + 1].sum(axis=0))
        ctx.output("sorted", x.sort(descending=True))
        ctx.output("least", x[t:T].min(axis=0))
        if dtype == "f64":
            ctx.output("g", trl.grad((x.sin() * s.exp()).sum(), x))
        else:
            ctx.output("bits", (x >> 40) ^ (x << 3))
            ctx.output("taken", x.take(x & 3))
    return ctx, given


@pytest.mark.parametrize("dtype", WIDE)
def test_64_bits_where_jax_is_told_to_have_them(dtype: str) -> None:
    ctx, given = _wide(dtype)
    want = Reference(ctx.pdg(), {"T": 3}).outputs()
    np.testing.assert_array_equal(want["sorted"], -np.sort(-given))
    with jax.enable_x64(True):
        for executor in ("xla", "interpret"):
            program = ctx.compile({"T": 3}, trl.Options(executor=executor))
            result = program.execute()
            assert_same(want, result, executor)
            for name in want:
                np.testing.assert_allclose(result[name], want[name], rtol=1e-12, atol=1e-14)
    for run in (program.execute, program.step, program.start, lambda: ctx.compile({"T": 3})):
        with pytest.raises(ShapeError, match=f"has the type {NUMPY[dtype].name}, and JAX") as found:
            run()
        assert "# here" in str(found.value) and "jax_enable_x64" in str(found.value)


def test_numbers_that_nobody_gave_a_type_are_of_32_bits() -> None:
    with jax.enable_x64(True), trl.Context("t"):
        assert trl.data(np.arange(3), domain="t").dtype == trl.constant([1, 2]).dtype == "i32"
        assert trl.constant(np.float64(0.5)).dtype == trl.constant([0.5]).dtype == "f32"
        x = trl.constant(0.1, "f64")
        assert (x + 1).dtype == (x * 0.5).dtype == x.sin().dtype == "f64"
        with pytest.raises(ShapeError, match="do not fit into int32"):
            trl.constant(2**40)
        assert trl.constant(2**40, "i64").dtype == "i64"
