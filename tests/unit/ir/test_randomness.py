"""Random bits: the published generator, a function of seed, stream and point."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

import timerl_nb as trl
from tests.draws import BOUNDS, DRAWS, EXACT, NEAR, SEEDS, summary, written
from tests.unit.checks import assert_equal
from timerl_nb.compiler.ir import random_bits as randomness
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_digest import digest
from timerl_nb.compiler.ir.operation_attributes import RngAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.reference.evaluation_rules import RULES
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.symbolic.dimensions import Dims
from timerl_nb.compiler.symbolic.index_expressions import sym
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend.random_rules import draw, generate, threefry
from timerl_nb.runtime.jax_backend.trace_context_and_masks import Scope


def words(*values: int) -> tuple[np.ndarray, ...]:
    return tuple(np.array([v], np.uint32) for v in values)


# Known answers published by Salmon et al.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "want"), KNOWN)
@pytest.mark.parametrize("encrypt", [randomness.threefry, partial(threefry, once=True)])
def test_known_answers(
    encrypt: Any, key: tuple[int, int], counter: tuple[int, int], want: tuple[int, int]
) -> None:
    found = encrypt(words(*key), words(*counter))
    assert tuple(int(x[0]) for x in found) == want


# The key and the counter as in `KNOWN`; threefry with 13 rounds as published by Salmon et al.
BY_GENERATOR = {
    "threefry": (0x6B200159 ^ 0x99BA4EFE, 0x1CB996FC ^ 0xBB002BE7, 0xC4923A9C ^ 0x483DF7A0),
    "threefry13": (0x9D1C5EC6 ^ 0x8BD50731, 0xFD36D048 ^ 0x2D17272C, 0xBA3E4725 ^ 0xF27D669E),
    "hash32": (0, 0, 0xEF35F8FF),
}


def test_known_answers_of_all_generators() -> None:
    """These never change: results of a seed are stable across versions."""
    assert BY_GENERATOR.keys() == randomness.GENERATORS.keys()
    for name, answers in BY_GENERATOR.items():
        for (key, counter, _), want in zip(KNOWN, answers, strict=True):
            found = randomness.GENERATORS[name](words(*key), words(*counter))
            assert int(found[0]) == want, name


@pytest.mark.parametrize(
    ("count", "once", "looped"),
    [(1, True, True), (1, False, False), (512, False, False), (1 << 20, True, False)],
)
def test_keys_are_computed_in_a_loop_outside_of_loops(count: int, once: bool, looped: bool) -> None:
    x = jnp.arange(count, dtype=jnp.uint32)
    text = str(jax.make_jaxpr(partial(threefry, once=once))(words(1, 2), (x, x)))
    assert ("while" in text or "scan" in text) == looped
    want = randomness.threefry(words(1, 2), (x, x))
    np.testing.assert_array_equal(threefry(words(1, 2), (x, x), once=once), want)
    with jax.disable_jit():
        np.testing.assert_array_equal(threefry(words(1, 2), (x, x), once=once), want)


@pytest.mark.parametrize("generator", randomness.GENERATORS)
@pytest.mark.parametrize(("rows", "once"), [(1, False), (40, False), (40, True), (3000, False)])
def test_compiled_draws_have_the_bits_of_the_definition(
    generator: str, rows: int, once: bool
) -> None:
    key, element = words(1, 2), np.arange(7, dtype=np.uint32)
    for coord in (None, np.arange(rows, dtype=np.uint32)[:, None]):
        want = randomness.generate(generator, key, coord, 7, element)
        made = partial(generate, generator, once=once)
        assert (np.asarray(made(key, coord, 7, element)) == want).all()
        compiled = jax.jit(lambda x, made=made, coord=coord: made(x, coord, 7, element))
        assert (np.asarray(compiled(key)) == want).all()
        with jax.disable_jit():
            assert (np.asarray(made(key, coord, 7, element)) == want).all()


@pytest.mark.skipif(backend.is_accelerated(), reason="only XLA's CPU compiler calls functions")
@pytest.mark.parametrize(
    ("rows", "is_recomputed", "calls"),
    [(2, True, 0), (64, False, 1), (4096, False, 0), (4096, True, 1)],
)
def test_a_draw_is_one_call_on_a_cpu(rows: int, is_recomputed: bool, calls: int) -> None:
    """Otherwise `argmax` would compute each number many times."""
    coord, element = np.arange(rows, dtype=np.uint32)[:, None], np.arange(8, dtype=np.uint32)

    def position(key: Any) -> Any:
        drawn = generate(
            "threefry", key, coord, 8, element, once=False, is_recomputed=is_recomputed
        )
        return jnp.argmax(drawn.astype(jnp.float32), 1)

    text = jax.jit(position).lower(words(1, 2)).compile().as_text()
    assert text.count("to_apply=%generate") == calls
    assert "while(" not in text


def test_the_same_as_jax() -> None:
    rng = np.random.default_rng(0)
    key = rng.integers(0, 2**32, 2, dtype=np.uint32)
    counter = rng.integers(0, 2**32, (2, 50), dtype=np.uint32)
    high, low = randomness.threefry(tuple(key[:, None]), tuple(counter))
    want = threefry_2x32(key, counter.ravel())
    np.testing.assert_array_equal(np.concatenate([high, low]), want)
    # jax.random's operations fold in a coordinate and draw a row
    folded = jax.random.fold_in(jax.random.fold_in(jax.random.key(7), 3), 5)
    mine = randomness.bits(
        words(0, 7), words(0, 3), list(words(2, 5)), np.arange(4, dtype=np.uint32), 4
    )
    np.testing.assert_array_equal(mine, jax.random.bits(folded, (12,))[8:12])


FROZEN: dict[str, list[Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "draws.json").read_text()
)
WAYS = {
    "xla": trl.Options(),
    "xla, point by point": trl.Options(vectorize=False),
    "interpreted, b alone vectorised": trl.Options(executor="interpret", vectorize=("b",)),
}


def check_frozen(seed: int, found: Any) -> None:
    for k, (kind, *_) in enumerate(DRAWS):
        have, want = summary(kind, found[f"{k} {kind}"]), FROZEN[str(seed)][k]
        if kind in EXACT:
            assert have == want, DRAWS[k]
        else:
            np.testing.assert_allclose(have, want, atol=2e-4, err_msg=str(DRAWS[k]))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_draws_what_it_always_drew(seed: int) -> None:
    check_frozen(seed, Reference(written()[0].pdg(), BOUNDS, seed=seed).outputs())


@pytest.mark.parametrize("way", WAYS)
def test_every_way_draws_what_it_always_drew(way: str) -> None:
    program = written()[0].compile(BOUNDS, WAYS[way])
    for seed in SEEDS:
        check_frozen(seed, program.execute(seed=seed, progress=False))


def test_draws_with_counters_of_32_bits_keep_their_bits() -> None:
    found = [
        int(
            randomness.bits(
                words(1, 7), words(*randomness.stream_words(s)), words(*c), *words(e), n
            )[0]
        )
        for s in ("s", 4)
        for c, e, n in NEAR
    ]
    assert found == FROZEN["near"]


OTHERS = [name for name in randomness.GENERATORS if name != randomness.DEFAULT]


def small() -> trl.Context:
    """A program with a large, a small and a constant draw."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        ctx.output("large", trl.random.bits((600,), domain=(b, i, t)))
        ctx.output("small", trl.random.uniform((2,), domain=(i, t)))
        ctx.output("constant", trl.random.bits((3,), stream="s"))
    return ctx


@pytest.mark.parametrize("generator", OTHERS)
def test_every_way_draws_the_same_by_each_generator(generator: str) -> None:
    bounds = {"B": 3, "I": 2, "T": 2}
    for options in WAYS.values():
        program = small().compile(bounds, options.with_(random=generator))
        want = Reference(program.stages["pdg"].artifact, bounds, seed=5).outputs()
        assert_equal(want, program.execute(seed=5, progress=False))
    several = small().compile(bounds, trl.Options(random=generator), seeds=2)
    found = several.execute(seed=4, progress=False)
    assert_equal(want, {name: x[1] for name, x in found.items()})


@pytest.mark.parametrize("generator", OTHERS)
def test_a_generator_makes_other_bits_under_the_same_key(generator: str) -> None:
    key = words(0, 7), words(*randomness.stream_words("s"))
    coords, element = [words(2)[0][:, None], words(5)[0]], np.arange(3, dtype=np.uint32)
    found = randomness.bits(*key, coords, element, 3, generator=generator)
    folded = randomness.threefry(randomness.threefry(*key), words(0, 5))
    want = randomness.GENERATORS[generator](folded, (words(0)[0], 6 + element))
    np.testing.assert_array_equal(found[0], want)
    assert not np.isin(found, randomness.bits(*key, coords, element, 3)).any()


def test_the_generator_is_an_option() -> None:
    hint = get_type_hints(trl.Options)["random"]
    assert get_args(hint) == tuple(randomness.GENERATORS)
    assert trl.Options().random == randomness.DEFAULT
    assert "random='hash32'" in repr(trl.Options(random="hash32"))
    for wrong in ("philox", None, 32):
        with pytest.raises(trl.errors.OptionError, match="random=.* is not possible") as raised:
            trl.Options(random=wrong)  # type: ignore[arg-type]
        for name in randomness.GENERATORS:
            assert f'"{name}"' in str(raised.value)


def test_the_generator_is_part_of_graphs_and_of_cache_keys() -> None:
    program = written()[0].compile(BOUNDS)
    other = program.with_options(random="hash32")
    assert "by hash32" in str(other.stages["pdg"].artifact)
    assert " by " not in str(program.stages["pdg"].artifact)
    digests = {digest(p.stages["pdg"].artifact) for p in (program, other)}
    assert len(digests) == 2
    again = other.with_options(random="threefry")
    assert again.stages["pdg"].artifact is program.stages["pdg"].artifact


def draws(options: trl.Options, bounds: dict[str, int], seed: int = 3) -> np.ndarray:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        ctx.output("x", trl.random.normal((2,), domain=(b, i, t)))
    return ctx.compile(bounds, options).execute(seed=seed)["x"]


def test_a_draw_does_not_depend_on_how_it_is_made() -> None:
    whole = draws(trl.Options(), {"B": 4, "I": 3, "T": 5})
    assert whole.shape == (4, 3, 5, 2)
    for options in (
        trl.Options(vectorize=False),
        trl.Options(vectorize=("b",)),
        trl.Options(vectorize=("t",)),
        trl.Options(vectorize=("i", "t")),
        trl.Options(fuse=False),
    ):
        np.testing.assert_array_equal(draws(options, {"B": 4, "I": 3, "T": 5}), whole)
    np.testing.assert_array_equal(draws(trl.Options(), {"B": 2, "I": 1, "T": 3}), whole[:2, :1, :3])
    assert not np.isin(draws(trl.Options(), {"B": 4, "I": 3, "T": 5}, seed=4), whole).any()


def test_large_seeds_differ() -> None:
    bounds = {"B": 1, "I": 1, "T": 1}
    found = [draws(trl.Options(), bounds, seed).tobytes() for seed in (0, 1, 2**32, 2**40 + 1, -1)]
    assert len(set(found)) == 5


def test_streams() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        for name, stream in {
            "a": None,
            "b": None,
            "c": "noise",
            "d": "noise",
            "e": "other",
        }.items():
            x = trl.random.bits(domain=(t,), stream=stream, shared=stream == "noise")
            ctx.output(name, x)
    result = ctx.compile({T: 8}).execute()
    same = {(x, y) for x in "abcde" for y in "abcde" if x < y and (result[x] == result[y]).all()}
    assert same == {("c", "d")}


@pytest.mark.parametrize(("first", "second"), [("x", "x"), (3, 3), (3, "3"), ("", "")])
def test_a_stream_is_one_draws_unless_all_share_it(first: int | str, second: int | str) -> None:
    for shared in ((False, False), (True, False), (False, True)):
        with trl.Context("t") as ctx:
            t = ctx.dims[0][0]
            trl.random.normal(domain=(t,), stream=first, shared=shared[0])
            with pytest.raises(trl.errors.DomainError, match="same bits at the same") as raised:
                trl.random.uniform((2,), domain=(t,), stream=second, shared=shared[1])
            lines = [raised.value.origin, *raised.value.others.values()]
            assert ["normal(" in o.text for o in lines] == [False, True]
            assert "uniform(" in lines[0].text
            # the failed statement has not taken a name
            trl.random.gumbel(domain=(t,), stream="another")
    with pytest.raises(trl.errors.DomainError, match="needs a name"), ctx:
        trl.random.bits(shared=True)


def test_streams_whose_names_have_one_number_are_refused() -> None:
    one, other = "plumless", "buckeroo"  # the same CRC-32
    assert randomness.stream_words(one) == randomness.stream_words(other)
    for shared in (False, True):
        with trl.Context("t") as ctx:
            t = ctx.dims[0][0]
            trl.random.bits(domain=(t,), stream=one, shared=shared)
            with pytest.raises(trl.errors.DomainError, match="'plumless' and 'buckeroo'") as raised:
                trl.random.bits(domain=(t,), stream=other, shared=shared)
            (origin,) = raised.value.others.values()
            assert "stream=one" in origin.text and "stream=other" in raised.value.origin.text


# --- the counter ---------------------------------------------------------------------------------


def edges(limit: int) -> list[int]:
    """Numbers below `limit` at which products of 32 or 16 bits overflow or nearly do."""
    near = [0, 1, 2**16, 2**20, 2**31, 2**32, limit, limit // 2, limit // 3]
    return sorted({n + d for n in near for d in (-2, -1, 0, 1) if 0 <= n + d < limit})


COUNTS = [1, 3, 4096, 65535, 65537, 2**20, 2**24 - 1, 2**31, 2**32 - 1]


@pytest.mark.parametrize("numpy", [np, jnp])
def test_the_counter_is_a_number_of_64_bits(numpy: Any) -> None:
    """Pairs of coordinate and element are distinct: n * m + e is one-to-one for e < m."""
    for count in COUNTS:
        coords = edges(2**31) + [
            2**32 // count + d for d in (-1, 0, 1) if 2**32 // count + d < 2**31
        ]
        elements = edges(count)
        grid = (
            numpy.asarray(np.array(coords, np.uint32))[:, None],
            numpy.asarray(np.array(elements, np.uint32)),
        )
        high, low = (np.asarray(w) for w in randomness.counter(grid[0], count, grid[1]))
        assert high.dtype == low.dtype == np.uint32
        found = [[(int(h) << 32) + int(w) for h, w in zip(*row)] for row in zip(high, low)]  # noqa: B905
        assert found == [[n * count + e for e in elements] for n in coords]


def expected(counters: np.ndarray[Any, Any], *coords: int) -> np.ndarray[Any, Any]:
    """Return the bits of stream "s" under seed 7, computed with Python integers."""
    key = randomness.threefry(words(0, 7), words(*randomness.stream_words("s")))
    for coord in coords:
        key = randomness.threefry(key, words(0, coord))
    pair = (counters >> np.uint64(32), counters & np.uint64(0xFFFFFFFF))
    high, low = randomness.threefry(key, tuple(w.astype(np.uint32) for w in pair))
    return high ^ low


@pytest.mark.parametrize(("first", "count"), [(2**16, 2**16 + 1), (2**31 - 2, 5)])
def test_draws_at_high_coordinates(first: int, count: int) -> None:
    """Alone, and along an axis that starts there with a two-word counter; also as tiles."""
    counters = np.arange(count, dtype=np.uint64) + np.uint64(first) * np.uint64(count)
    want = [expected(counters + np.uint64(k * count), 3) for k in range(2)]
    assert counters[-1] >= 2**32
    alone = RngAttrs("s", ("t", "i"), (count,))
    along = RngAttrs("s", ("t", "i"), (count,), ("t",), (2,), (sym("k") * 2 + first % 2,))
    for attrs, env, of in (
        (alone, {"t": first, "i": 3}, want[0]),
        (along, {"k": first // 2, "i": 3}, np.stack(want)),
    ):
        op = Op(0, "rng", (), (), (), attrs)
        reference = RULES["rng"](Reference(Pdg(Dims(()), {}), {}, seed=7), op, [], env)
        point = {name: jnp.int32(value) for name, value in env.items()}
        scope = Scope(
            {}, point, backend.seed_words(7), lambda size: int(str(size)), lambda _: False
        )
        found = np.asarray(draw(scope, op, [], ()))
        np.testing.assert_array_equal(reference, of)
        np.testing.assert_array_equal(found, of)


def test_draws_of_large_values_do_not_repeat() -> None:
    """At the first coordinate beyond 32 bits, read from a whole program."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.bits((2**20,), domain=(t,))
        ctx.output("first", x[0])
        ctx.output("last", x[T - 1])
    found = Reference(ctx.pdg(), {"T": 4097}, seed=1).outputs()
    assert (found["first"] == found["last"]).mean() < 1e-5


def test_a_draw_has_less_than_2_to_the_32_elements() -> None:
    with trl.Context(), pytest.raises(trl.errors.ShapeError, match="or more elements"):
        trl.random.bits((2**16, 2**16))


def test_seeds_have_64_bits() -> None:
    with trl.Context("t") as ctx:
        ctx.output("x", trl.random.bits(domain=(ctx.dims[0][0],)))
    program = ctx.compile({"T": 1})
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(trl.errors.OptionError, match="64 bits"):
            program.execute(seed=seed)


def test_distributions_of_the_draws() -> None:
    with trl.Context("b") as ctx:
        ((b, B),) = ctx.dims
        ctx.output("u", trl.random.uniform(low=-2.0, high=3.0, domain=(b,)))
        ctx.output("n", trl.random.normal(mean=1.0, std=2.0, domain=(b,)))
        ctx.output("g", trl.random.gumbel(domain=(b,)))
        dist = trl.distributions.Categorical(trl.constant(np.log([0.1, 0.2, 0.7])))
        ctx.output("c", dist.sample(domain=(b,)))
    n = 40_000
    result = ctx.compile({B: n}).execute(seed=11)
    u, x, g, c = (result[name] for name in "ungc")
    assert u.min() > -2 and u.max() < 3
    np.testing.assert_allclose([u.mean(), u.var()], [0.5, 25 / 12], atol=0.05)
    np.testing.assert_allclose([x.mean(), x.std()], [1, 2], atol=0.04)
    np.testing.assert_allclose(np.mean(((x - 1) / 2) ** 4), 3, atol=0.2)
    np.testing.assert_allclose([g.mean(), g.var()], [0.5772, np.pi**2 / 6], atol=0.05)
    np.testing.assert_allclose(np.bincount(c) / n, [0.1, 0.2, 0.7], atol=0.01)
    assert np.isfinite(g).all() and np.isfinite(x).all()


def test_uniform_numbers_lie_strictly_between_the_ends() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        drawn = trl.random.uniform((1000,), 1000.0, 1001.0, domain=t)
        ctx.output("least", drawn.min(over=t).min())
        ctx.output("most", drawn.max(over=t).max())
    result = ctx.compile({"T": 300}).execute()
    ends = np.float32(1000), np.float32(1001)
    assert (result["least"], result["most"]) == tuple(np.nextafter(ends, ends[::-1]))
