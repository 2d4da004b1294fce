"""Programs for several seeds: one more dimension, with one run per row."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from tests.eager import eagerly
from tests.unit.checks import assert_equal, assert_same
from timerl_nb.base.errors import ExecutionError, OptionError, ReadError
from timerl_nb.compiler.ir import random_bits as randomness
from timerl_nb.compiler.ir.graph_digest import digest_by_names
from timerl_nb.compiler.ir.reference.evaluator import Reference

EAGER: dict[str, Any] = {"executor": "interpret"}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    EAGER,
    {**EAGER, "vectorize": False, "fuse": False},
)
SMALL = {"B": 2, "I": 4, "T": 5}
XLA = trl.Options(executor="xla")
FIRST = (0, 2**31 - 1, 2**32 - 2, 2**63 - 2, 2**64 - 3, -2, -(2**63))


def run(program: trl.Program, seed: int) -> trl.Result:
    """Run without compiling kernels if every operation is one."""
    with nullcontext() if program.options.fuse else eagerly():
        return program.execute(seed=seed)


def assert_rows(
    program: trl.Program, alone: trl.Program, first: int, exact: tuple[str, ...] = ()
) -> trl.Result:
    """Check that each row is the run with that seed, bitwise for `exact` outputs."""
    result = run(program, first)
    assert result.seeds == tuple(range(first, first + (program.seeds or 0)))
    for s, seed in enumerate(result.seeds):
        row, want = result.row(s), run(alone, seed)
        assert_same(want, row, f"row {s}")
        assert_same(want.parameters, row.parameters, f"parameters of row {s}")
        assert_same(want.lengths, row.lengths, f"lengths of row {s}")
        assert_equal({name: want[name] for name in exact}, row)
        for name, at in want.coordinates.items():
            assert_equal(at, row.coordinates[name])
    return result


def learning(hidden: int = 4, env: str = "CartPole-v1", folder: Path | None = None) -> trl.Context:
    """REINFORCE."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        sim = trl.env.make(env)
        dnn = trl.DNNBuilder(domain=(i,)).from_env(sim, hidden=[hidden]).build()
        o = trl.like(sim.obs_space, domain=(b, i, t))
        o[b, i, 0] = sim.reset(domain=(b, i))
        a = dnn.sample(o)
        step = sim.step(a)
        o[b, i, t + 1] = step.obs
        loss = -dnn.log_prob(a) * step.reward[b, i, t:T].discounted_sum(0.9)
        loss.sum(over=t).mean(over=b).backward()
        trl.optim.Adam(dnn.params, lr=1e-2).step()
        ctx.output("actions", a)
        ctx.output("first", o[b, i, 0])
        ctx.output("return", step.reward.sum(over=t).mean(over=b))
        if folder is not None:
            dnn[(i + 1) % 2 == 0].checkpoint(str(folder))
    return ctx


# --- the seed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", FIRST)
def test_a_seed_moves_as_an_integer_of_64_bits(seed: int) -> None:
    def words(n: int) -> tuple[Any, Any]:
        return np.array([n >> 32 & 0xFFFFFFFF], np.uint32), np.array([n & 0xFFFFFFFF], np.uint32)

    for by in (0, 1, 2, 2**31, 2**32 - 1):
        assert randomness.advance_seed(words(seed), np.array([by], np.uint32)) == words(seed + by)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rows_are_runs_alone(options: dict[str, Any]) -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        w = trl.parameter(np.float32([0.5, -0.5]), domain=(i,), name="w")
        x = trl.random.normal((2,), domain=(b, i, t))
        loss = ((x * w - 1.0) ** 2).mean(axis=0)[b, i, 0:T].sum(axis=0).mean(over=b)
        loss.backward()
        trl.optim.SGD([w], lr=1e-1).step()
        ctx.output("loss", loss)
        ctx.output("uniform", trl.random.uniform((3,), domain=(b, t)))
        ctx.output("once", trl.random.randint(0, 2**20, (2,)))
        ctx.output("when", trl.random.uniform((), domain=(b, i))[(i + 1) % 2 == 0])
        ctx.output("given", trl.constant(np.float32([1, 2])))
    bounds = {B: 2, I: 2, T: 3}
    program = ctx.compile(bounds, trl.Options(**options), seeds=3)
    alone = ctx.compile(bounds, trl.Options(**options))
    for first in FIRST[::2] if not options else FIRST[2:3]:
        result = assert_rows(program, alone, first, ("uniform", "once", "when", "given"))
        assert result["uniform"].shape == (3, 2, 3, 3)
        assert result.coordinates["when"]["seed"].tolist() == [0, 0, 1, 1, 2, 2]
        reference = Reference(program.pdg, program.bounds, first)
        assert_equal({"uniform": reference.outputs()["uniform"]}, result)


def test_one_seed_has_a_row_too() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("x", trl.random.uniform((), domain=(t,)))
    program = ctx.compile({T: 3}, seeds=1)
    assert program.seeds == 1
    result = assert_rows(program, ctx.compile({T: 3}), 5, ("x",))
    assert result["x"].shape == (1, 3)


def by_point(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the rows of a log; late values are reported again."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["i"], {}).update(row)
    return [found[i] for i in range(7)]


@pytest.mark.parametrize("way", ["xla", "interpret"])
def test_logs_and_files_tell_seeds_apart(way: str, tmp_path: Path) -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        w = trl.parameter(np.zeros(3, np.float32), domain=(i,), name="w")
        loss = ((w - trl.random.normal((3,), domain=(i,))) ** 2).mean()
        loss.backward()
        trl.optim.SGD([w], lr=0.1).step()
        ctx.output("loss", loss)
        ctx.output("some", loss[i % 3 == 1])
        ctx.output("total", loss.sum(over=i))
    bounds, options = {"I": 7}, trl.Options(executor=way)
    rows: list[dict[str, Any]] = []
    result = ctx.compile(bounds, options, seeds=2).execute(
        seed=40, log=[tmp_path / "log", rows.append]
    )
    known = by_point(rows)
    logged = [
        json.loads(line) for line in (tmp_path / "log" / "log.jsonl").read_text().splitlines()
    ]
    assert logged[0]["columns"] == ["loss/40", "loss/41", "some/40", "some/41"]
    result.save(tmp_path / "result.safetensors")
    read = trl.Result.load(tmp_path / "result.safetensors")
    assert read.seeds == result.seeds == (40, 41)
    for s, seed in enumerate(result.seeds):
        alone: list[dict[str, Any]] = []
        want = ctx.compile(bounds, options).execute(seed=seed, log=alone.append)
        losses = [row["loss"] for row in by_point(alone)]
        np.testing.assert_allclose([row[f"loss/{seed}"] for row in known], losses, rtol=1e-5)
        assert_equal(dict(result.row(s)), dict(read.row(s)))
        assert_same(want, read.row(s), f"row {s}")
        assert_equal({"i": np.array([1, 4])}, read.row(s).coordinates["some"])
        np.testing.assert_array_equal(
            result["loss"][s], np.array([row[f"loss/{seed}"] for row in known], np.float32)
        )
        found = {row["i"]: row[f"some/{seed}"] for row in known if f"some/{seed}" in row}
        assert list(found) == [1, 4]
        np.testing.assert_array_equal(
            result.row(s)["some"], np.array([*found.values()], np.float32)
        )
        total = logged[-1]["outputs"][f"total/{seed}"]
        assert np.float32(total) == result["total"][s]


def test_what_does_not_depend_on_chance_is_there_once() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        given = trl.data(np.ones((5, 2), np.float32), domain=(t,)).named("given")
        table = (given * 2.0).named("table")
        fixed = trl.parameter(np.float32(1.0), domain=(i,), name="fixed")
        learnt = trl.parameter(np.float32(1.0), domain=(i,), name="learnt")
        (fixed * table.sum(axis=0) - 3.0).abs().mean(over=t).backward()
        (learnt * trl.random.normal((), domain=(i, t)) - 1.0).abs().mean(over=t).backward()
        trl.optim.SGD([fixed, learnt], lr=0.1).step()
        ctx.output("y", fixed + learnt)
    program = ctx.compile({I: 3, T: 5}, seeds=4)
    varied = {op.label: "seed" in op.domain for op in program.pdg if op.label}
    assert (varied["given"], varied["table"], varied["fixed"], varied["learnt"]) == (
        False,
        False,
        False,
        True,
    )
    assert_rows(program, ctx.compile({I: 3, T: 5}), 7)


# --- cost ----------------------------------------------------------------------------------------

ALGORITHMS: dict[str, Callable[..., trl.Context]] = {
    "reinforce": trl.algorithms.reinforce,
    "ppo": trl.algorithms.ppo,
    "clipped_ppo": trl.algorithms.clipped_ppo,
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_take_several_seeds_as_an_axis(name: str) -> None:
    options = {"epochs": 1, "minibatches": 2} if name == "clipped_ppo" else {}
    ctx = ALGORITHMS[name]("CartPole-v1", hidden=[8], **options)
    bounds = {"B": 4, "I": 2, "T": 6}
    program, alone = ctx.compile(bounds, seeds=3), ctx.compile(bounds)
    assert not [op.name for op in program.fused if "seed" in op.domain]
    # acting's arrays are transposed to seed-major order: PPO holds both at its peak
    most = 3.6 if name == "ppo" else 3.0
    assert 2.9 * alone.memory.peak < program.memory.peak <= most * alone.memory.peak


# --- programs stay what they are -------------------------------------------------------------------


def test_a_program_says_its_seeds() -> None:
    ctx = learning()
    program, alone = ctx.compile(SMALL, XLA, seeds=2), ctx.compile(SMALL, XLA)
    assert (program.seeds, alone.seeds) == (2, None)
    assert repr(program).startswith("Program(SEEDS = 2, B = 2, I = 4, T = 5)")
    assert str(program.pdg).startswith("pdg over seed < SEEDS, b < B, i < I, t < T")
    assert digest_by_names(program.pdg) != digest_by_names(alone.pdg)
    one = program.with_options(vectorize=("b", "t"))
    assert any("seed" in op.domain for op in one.fused)
    fewer = program.with_bounds({"SEEDS": 1, "I": 2})
    assert_rows(fewer, alone.with_bounds({"I": 2}), 3)


def test_names_of_dimensions_do_not_clash() -> None:
    with trl.Context("seed", "t") as ctx:
        (s, S), (t, T) = ctx.dims
        ctx.output("x", trl.random.uniform((), domain=(s, t)))
    program = ctx.compile({S: 2, T: 3}, seeds=4)
    assert program.bounds == {"SEEDS_": 4, "SEED": 2, "T": 3}
    assert assert_rows(program, ctx.compile({S: 2, T: 3}), 1, ("x",))["x"].shape == (4, 2, 3)


def test_runs_are_started_stopped_and_stepped() -> None:
    ctx = learning()
    program = ctx.compile(SMALL, XLA, seeds=2)
    whole = program.execute(seed=3)
    with program.start(3, paused=True) as running:
        running.wait()
        running.step(2)
        running.wait()
        running.stop()
        part = running.result()
    assert part.seeds == (3, 4)
    assert_equal({"return": whole["return"][:, :2]}, part)
    again = program.start(3)
    frames = list(again.frames())
    assert_equal(whole, again.result())
    curve = frames[-1].curves["return"]
    np.testing.assert_allclose(curve.values, whole["return"].mean(axis=0), rtol=1e-6)
    instructions = 0
    while program.step(seed=3) is not None:
        instructions += 1
    assert instructions > 10


def test_its_runs_are_saved_and_resumed(tmp_path: Path) -> None:
    ctx = learning(env="gym.CartPole-v1")
    bounds = {"B": 2, "I": 3, "T": 3}
    program = ctx.compile(bounds, XLA, seeds=2)
    whole = program.execute(seed=3)
    for name in ("xla", "interpret"):
        one, folder = program.with_options(executor=name), tmp_path / name
        with one.start(3, checkpoint=folder, every=1, paused=True) as running:
            running.wait()
            running.step(2)
            running.wait()
        again = one.resume(folder)
        assert again.seeds == (3, 4)
        assert_same(whole, again, name)
    with pytest.raises(ExecutionError, match="of another program"):
        ctx.compile(bounds, XLA).resume(tmp_path / "interpret")
    with pytest.raises(ExecutionError, match="SEEDS = 2, and this program has SEEDS = 3"):
        program.with_bounds({"SEEDS": 3}).resume(tmp_path / "interpret")


# --- on the host -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {**EAGER, "vectorize": False}], ids=str)
def test_each_seed_has_environments_of_its_own(options: dict[str, Any]) -> None:
    ctx = learning(env="gym.CartPole-v1")
    bounds = {"B": 2, "I": 3, "T": 3}
    program = ctx.compile(bounds, trl.Options(**options), seeds=2)
    assert_rows(program, ctx.compile(bounds, trl.Options(**EAGER)), 2**32 - 1, ("first", "actions"))


def test_resources_are_made_saved_and_closed_for_each_seed(tmp_path: Path) -> None:
    made: list[tuple[dict[str, int], int]] = []
    closed: list[int] = []

    class Counter:
        def __init__(self, seed: int) -> None:
            self.seed, self.count = seed, 0

        def save(self) -> dict[str, Any]:
            return {"count": self.count}

        def load(self, saved: dict[str, Any]) -> None:
            self.count = int(saved["count"])

        def close(self) -> None:
            closed.append(self.seed)

    def make(sizes: Any, seed: int) -> Counter:
        made.append((dict(sizes), seed))
        return Counter(seed)

    def counted(state: Counter, at: tuple[Any, ...]) -> np.ndarray:
        state.count += 1
        return np.int32(state.seed % 1000 * 100 + state.count)

    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        counter = trl.Resource(make, name="counter")
        ctx.output("n", trl.udf(counted, out="i32", domain=(i,), resource=counter))
    program = ctx.compile({I: 4}, trl.Options(executor="interpret"), seeds=2)
    want = np.array([[701, 702, 703, 704], [801, 802, 803, 804]])
    assert_equal({"n": want}, program.execute(seed=7))
    assert made == [({}, 7), ({}, 8)]
    assert sorted(closed) == [7, 8]
    with program.start(7, checkpoint=tmp_path / "run", every=1, paused=True) as running:
        running.wait()
        running.step(2)
        running.wait()
    assert_equal({"n": want}, program.resume(tmp_path / "run"))


def test_files_and_calls_say_of_which_seed_they_are(tmp_path: Path) -> None:
    called: list[dict[str, int]] = []
    ctx = learning(folder=tmp_path / "net")
    with ctx:
        i = ctx.dims[1][0]
        trl.udf(lambda at, x: called.append(at), trl.value(i), out=[])
    program = ctx.compile({"B": 2, "I": 4, "T": 5}, trl.Options(**EAGER), seeds=2)
    result = run(program, 3)
    assert sorted(p.name for p in (tmp_path / "net").glob("*.safetensors")) == [
        f"seed={s},i={i}.safetensors" for s in (0, 1) for i in (1, 3)
    ]
    points = sorted((at["seed"], at["i"]) for at in called)
    assert points == [(s, i) for s in (0, 1) for i in range(4)]
    row = result.row(1)
    assert [dict(one.point) for one in row.checkpoints] == [{"i": 1}, {"i": 3}]
    last = trl.load(tmp_path / "net" / "seed=1,i=3.safetensors")
    assert_equal(last, row.policy(step=3).weights)
    assert row.policy()(np.zeros((5, 4), np.float32)).shape == (5,)
    with pytest.raises(OptionError, match="the result has 2 policies") as error:
        result.policy()
    assert error.value.hint == "call result.row(0).policy() for the seed 3."


# --- dynamic bounds
# ---------------------------------------------------------------------------------


def ending(at_most: int | None) -> tuple[trl.Context, dict[Any, Any]]:
    """A program with a random end of its last dimension."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        w = trl.parameter(np.float32(0.0), domain=(i,), name="w")
        x = trl.random.uniform((), domain=(i, t))
        loss = ((x - w) ** 2)[i, 0:T].sum(axis=0)
        loss.backward()
        trl.optim.SGD([w], lr=0.05).step()
        ctx.output("x", x)
        ctx.output("loss", loss)
    return ctx, {I: 3, T: trl.until(x > 0.9, at_most=at_most)}


@pytest.mark.parametrize("options", [{}, EAGER], ids=str)
def test_each_seed_ends_by_itself(options: dict[str, Any]) -> None:
    ctx, bounds = ending(40)
    program = ctx.compile(bounds, trl.Options(**options), seeds=3)
    result = assert_rows(program, ctx.compile(bounds, trl.Options(**options)), 4, ("x",))
    assert result.lengths["T"].shape == (3, 3)
    assert len(set(result.lengths["T"].ravel().tolist())) > 3


def test_the_longest_seed_raises_the_ceiling_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timerl_nb.compiler.language.inputs.dynamic_bound_inputs._FIRST", 6)
    ctx, bounds = ending(None)
    result = run(ctx.compile(bounds, trl.Options(**EAGER), seeds=3), 4)
    alone = ctx.compile(bounds, trl.Options(**EAGER))
    assert result.lengths["T"].max() > 6
    for s, seed in enumerate(result.seeds):
        row, want = result.row(s), run(alone, seed)
        assert_equal(want.lengths, row.lengths)
        assert_same({"loss": want["loss"]}, row, f"row {s}")
        shorter = want["x"].shape[1]
        assert_equal({"x": want["x"]}, {"x": row["x"][:, :shorter]})
        assert not row["x"][:, shorter:].any()


def test_an_end_that_is_given_is_there_for_each_seed() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        count = trl.value(t + i).cast("f32")
        ctx.output("x", trl.random.uniform((), domain=(i, t)))
        ctx.output("count", count)
    bounds = {I: 2, T: trl.until(count > 2.0, at_most=6)}
    how = trl.Options(**EAGER)
    program = ctx.compile(bounds, how, seeds=2)
    result = assert_rows(program, ctx.compile(bounds, how), 1, ("x", "count"))
    assert result.lengths["T"].tolist() == [[4, 3]] * 2


# --- other features
# --------------------------------------------------------------------------------


def test_orders_hold_within_each_seed() -> None:
    seen: list[tuple[str, int, int]] = []

    def note(name: str) -> Callable[..., Any]:
        def noted(x: np.ndarray) -> np.ndarray:
            seen.append((name, int(x[0]), int(x[1])))
            return x[1]

        return noted

    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        s = trl.random.randint(0, 1000, ())  # differs between seeds
        at = trl.stack([s, trl.value(t)])
        first = trl.udf(note("first"), at, out="i32").named("first")
        second = trl.udf(note("second"), at, out="i32").named("second")
        ctx.before(second, first)
        ctx.output("sum", first + second)
    ctx.compile({T: 3}, seeds=2).execute()
    for which in {s for _, s, _ in seen}:
        for point in range(3):
            mine = [name for name, s, k in seen if (s, k) == (which, point)]
            assert mine == ["second", "first"]
    assert len(seen) == 12


def test_the_first_nan_says_of_which_seed_it_is() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.random.uniform((), domain=(i,))
        ctx.output("y", trl.where(x > 0.9, (x - x) / (x - x), x))
        ctx.debug(nan=True)
    with pytest.raises(ExecutionError, match=r"NaN .* at seed = \d, i = \d+"):
        ctx.compile({I: 30}, seeds=2).execute()


@pytest.mark.skipif(len(jax.devices()) < 2, reason="one device alone is visible")
def test_seeds_are_divided_among_devices() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        w = trl.parameter(np.float32(0.0), domain=(i,), name="w")
        x = trl.random.uniform((), domain=(i, t))
        ((x - w) ** 2).mean(over=t).backward()
        trl.optim.SGD([w], lr=0.05).step()
        ctx.output("x", x)
    bounds = {I: 3, T: 5}
    program = ctx.compile(bounds, trl.Options(devices=2, executor="xla"), seeds=2)
    assert program.executable.how.endswith("on 2 devices, divided along seed")
    assert_rows(program, ctx.compile(bounds, trl.Options(**EAGER)), 3, ("x",))


def test_a_page_shows_the_dimension(tmp_path: Path) -> None:
    page = learning().compile(SMALL, XLA, seeds=2).export_html(tmp_path / "x.html")
    assert "SEEDS" in page.read_text()


# --- refusals --------------------------------------------------------------------------------------


def drawing() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("x", trl.random.uniform((), domain=(t,)))
    return ctx


@pytest.mark.parametrize("seeds", [0, -1, True, 2.0, "3", [1]])
def test_seeds_are_a_positive_integer(seeds: Any) -> None:
    with pytest.raises(OptionError) as error:
        drawing().compile({"T": 3}, seeds=seeds)
    assert error.value.what == f"seeds={seeds!r} is not possible."
    assert "seeds=8" in error.value.hint
    assert error.value.origin.file == __file__


def test_all_seeds_have_64_bits() -> None:
    program = drawing().compile({"T": 3}, seeds=3)
    assert program.execute(seed=2**64 - 3).seeds[-1] == 2**64 - 1
    with pytest.raises(OptionError, match="the last seed, 18446744073709551616, has more") as error:
        program.execute(seed=2**64 - 2)
    assert error.value.hint == "with seeds=3, choose a first seed of at most 18446744073709551613."


def test_there_are_as_many_rows_as_seeds() -> None:
    result = drawing().compile({"T": 3}, seeds=3).execute(seed=5)
    for bad in (3, -1, True, "x"):
        with pytest.raises(OptionError, match="the result has no row") as error:
            result.row(bad)
        assert error.value.hint == "row 0 has the seed 5, row 2 the seed 7."
    alone = drawing().compile({"T": 3}).execute()
    assert alone.seeds == ()
    with pytest.raises(OptionError, match="has one seed"):
        alone.row(0)


def test_what_is_wrong_with_one_run_is_said_without_seeds() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.uniform((), domain=(t,)).named("x")
        ctx.output("y", x[t + 1])
    said: list[str] = []
    for seeds in (None, 2):
        with pytest.raises(ReadError) as error:
            ctx.compile({T: 3}, seeds=seeds)
        said.append(str(error.value))
    assert said[0].replace("seeds=None", "") == said[1]
    assert "seed" not in said[1].split("\n")[0]
