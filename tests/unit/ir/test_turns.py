"""Unbounded programs, and inputs per iteration."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_equal, assert_same
from timerl_nb.base.errors import BoundsError, DomainError, ExecutionError, OptionError
from timerl_nb.compiler.ir.graph_digest import digest
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.runtime.state.resumable_state import RunState

HOW = ("xla", "interpret")
Write = Callable[[Any], None]


def options(how: str) -> trl.Options:
    return trl.Options(executor=how)


def written(write: Write) -> tuple[trl.Context, dict[Any, Any]]:
    """Return a program over (b, i, t), and bounds with 9 iterations."""
    with trl.Context("b", "i", "t") as ctx:
        (_, B), (_, I), (_, T) = ctx.dims
        write(ctx)
    return ctx, {B: 2, I: 9, T: 3}


def endless(
    ctx: trl.Context, bounds: dict[Any, Any], how: str = "interpret", **more: Any
) -> trl.Program:
    return ctx.compile({**bounds, ctx.dims[1][1]: trl.endless}, options(how), **more)


def rows(result: Any, axis: int = 0) -> list[dict[str, np.ndarray]]:
    """Return the iterations of a bounded run, with all outputs along one axis."""
    count = next(iter(result.values())).shape[axis]
    return [{name: np.take(x, k, axis) for name, x in result.items()} for k in range(count)]


def collecting(ctx: trl.Context) -> None:
    """Environments that continue across iterations, with actions by given weights."""
    (b, _), (i, _), (t, T) = ctx.dims
    env = trl.env.make("CartPole-v1")
    w = trl.given("w", (4, 2), domain=(i,))
    bias = trl.given("bias", (2,), domain=(i,))
    o = trl.like(env.obs_space, domain=(b, i, t))
    o[b, 0, 0] = env.reset(domain=(b, i))[b, 0]
    a = trl.distributions.Categorical(logits=o @ w + bias).sample()
    later, r, _ = env.step(a)
    o[b, i, t + 1] = later
    o[b, i + 1, 0] = later[b, i, T - 1]
    for name, x in {"o": o, "a": a, "r": r}.items():
        ctx.output(name, x)


def weights(count: int) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(0)
    shapes = {"w": (4, 2), "bias": (2,)}
    return [
        {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def averaging(ctx: trl.Context) -> None:
    """A recurrence along the iterations."""
    (b, _), (i, _), _ = ctx.dims
    x = trl.random.uniform((3,), domain=(b, i)).mean(over=b)
    mean = trl.like(x, domain=(i,))
    mean[0] = trl.zeros((3,))
    mean[i + 1] = 0.9 * mean + x
    ctx.output("mean", mean)
    ctx.output("every third", mean.sum(axis=0)[i % 3 == 2])


@pytest.mark.parametrize("how", HOW)
def test_turns_are_those_of_one_run(how: str) -> None:
    ctx, bounds = written(collecting)
    given = weights(9)
    whole = {name: np.stack([one[name] for one in given]) for name in given[0]}
    result = ctx.compile(bounds, options(how)).execute(seed=3, given=whole)
    program = endless(ctx, bounds, how)
    with program.turns(seed=3, given=given) as turns:
        made = list(turns)
    assert len(made) == 9 and turns.turn == 9
    for want, have in zip(rows(result, axis=1), made, strict=True):
        assert_equal(want, have)
    reference = Reference(ctx.pdg(), {"B": 2, "I": 9, "T": 3}, 3, given=whole)
    assert_same(reference.outputs(), result, "given")
    # one XLA call per iteration, between input and output
    lowered = program.executable.xla_program
    if how == "xla":
        assert lowered is not None and len(lowered.calls) == 2
        assert [call.given is not None for call in lowered.calls] == [False, True]
    assert "I endless" in repr(program) and "for i in count(0):" in str(program.ast)


def test_memory_does_not_depend_on_the_number_of_turns() -> None:
    ctx, bounds = written(collecting)
    program = endless(ctx, bounds)
    few = ctx.compile({**bounds, ctx.dims[1][1]: 4})
    assert program.memory.peak < few.memory.peak  # it returns all iterations at its end
    with program.turns(given=repeat(weights(1)[0])) as turns:
        held: list[int] = []
        for _ in islice(turns, 30):
            held.append(turns._run.ledger.live)
    assert len(set(held[2:])) == 1


@pytest.mark.parametrize("how", HOW)
def test_what_was_handed_out_stays(how: str) -> None:
    ctx, bounds = written(averaging)
    with endless(ctx, bounds, how).turns(seed=1) as turns:
        made = [next(turns) for _ in range(6)]
        copies = [{name: np.array(x) for name, x in one.items()} for one in made]
        for _ in range(5):
            next(turns)
    for want, have in zip(copies, made, strict=True):
        assert_equal(want, have)
    assert ["every third" in one for one in made] == [False, False, True] * 2


def test_axes_are_those_of_a_run() -> None:
    """Also for outputs with slice axes, before or after a dimension."""

    def write(ctx: trl.Context) -> None:
        (b, _), (i, _), (t, _) = ctx.dims
        x = trl.random.uniform((2,), domain=(b, i, t))
        ctx.output("ahead", x[0:2, i, t])
        ctx.output("behind", x[b, i, 0:3])
        ctx.output("earlier", x[b, i, trl.max(t - 1, 0)].exp())

    ctx, bounds = written(write)
    result = ctx.compile(bounds, options("interpret")).execute(seed=4)
    for seeds in (None, 2):
        with endless(ctx, bounds, seeds=seeds).turns(seed=4) as turns:
            made = list(islice(turns, 2))
        for k, one in enumerate(made):
            have = one if seeds is None else {name: x[0] for name, x in one.items()}
            want = {"ahead": result["ahead"][k]}
            want |= {name: result[name][:, k] for name in ("behind", "earlier")}
            assert_equal(want, have)


def test_an_order_of_what_nobody_needs_says_nothing() -> None:
    def write(ctx: trl.Context) -> None:
        (b, _), (i, _), (t, _) = ctx.dims
        x = trl.random.uniform((2,), domain=(b, i, t))
        y, unused = x.exp(), x.sin()
        ctx.before(y, unused)
        ctx.output("y", y)

    ctx, bounds = written(write)
    with endless(ctx, bounds).turns() as turns:
        assert next(turns)["y"].shape == (2, 3, 2)


def test_rows_of_seeds() -> None:
    ctx, bounds = written(averaging)
    together = list(islice(endless(ctx, bounds, seeds=3).turns(seed=5), 3))
    alone = list(islice(endless(ctx, bounds).turns(seed=6), 3))
    for several, one in zip(together, alone, strict=True):
        assert_equal(one, {name: x[1] for name, x in several.items()})


@pytest.mark.parametrize("how", HOW)
def test_turns_go_on_where_they_were_saved(how: str, tmp_path: Path) -> None:
    ctx, bounds = written(averaging)
    program = endless(ctx, bounds, how)
    turns = program.turns(seed=5, checkpoint=tmp_path, every=2)
    made = [next(turns) for _ in range(5)]  # saved after four
    turns.close()
    again = program.turns(resume=tmp_path)
    assert again.turn == 4
    assert_equal(made[4], next(again))
    again.close()


def test_a_closed_run_holds_nothing() -> None:
    ctx, bounds = written(averaging)
    turns = endless(ctx, bounds).turns()
    next(turns)
    run = turns._run
    turns.close()
    turns.close()
    assert list(turns) == [] and run.ledger.live == 0 and "closed" in repr(turns)
    left = endless(ctx, bounds).turns()
    next(left)
    run = left._run
    del left
    gc.collect()
    assert run.ledger.live == 0


# --- beyond 32 bits ------------------------------------------------------------------------------


def far(ctx: trl.Context) -> None:
    (b, _), (i, _), (t, _) = ctx.dims
    x = trl.random.uniform((3,), domain=(b, i, t))
    s = trl.like(x, domain=(b, i, t))
    s[b, i, 0] = x[b, i, 0]
    s[b, i, t + 1] = (s * 0.5 + x[b, i, t + 1]).tanh()
    alone = trl.random.uniform((), domain=(i,))
    ctx.output("bits", trl.random.bits((2,), domain=(b, i, t)))
    ctx.output("every", trl.value((i + 2) % 5))
    ctx.output("z", s.sum(axis=0) * alone + trl.where(trl.value(i % 3 == 1), 1.0, 0.0))


@pytest.mark.some_of("first", 2)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("first", [0, 2**30 - 2, 2**31 - 2, 2**32 - 2, 2**40 - 1])
def test_turns_have_more_than_32_bits(how: str, first: int) -> None:
    ctx, bounds = written(far)
    program = endless(ctx, bounds, how)
    reference = Reference(program.pdg, program.bounds, 7)
    (op,) = program.pdg.sinks
    turns = program.turns(seed=7)
    cut = program.executable.cuts().cut_after(first) if first else None
    if cut is not None:
        assert not program.executable.cuts().live(cut)
        turns._run.resume(RunState(7, first, cut, {}))
        turns.turn, turns._reached = first, first - 1
    for k in range(4):
        env = {**program.bounds, "i": first + k}
        want = dict(
            zip(
                op.attrs.function.names,
                (reference.evaluate_read(r, env) for r in op.inputs),
                strict=True,
            )
        )
        assert_same(want, next(turns), f"turn {first + k}")
    turns.close()


def test_the_number_of_a_turn_has_31_bits() -> None:
    def numbered(ctx: trl.Context) -> None:
        (_, _), (i, _), _ = ctx.dims
        ctx.output("i", trl.value(i + 1))

    ctx, bounds = written(numbered)
    program = endless(ctx, bounds)
    turns, first = program.turns(), 2**31 - 1
    turns._run.resume(RunState(0, first, program.executable.cuts().cut_after(first), {}))
    turns.turn, turns._reached = first, first - 1
    with pytest.raises(ExecutionError, match="does not fit into int32"):
        for _ in range(2):
            next(turns)


def test_no_earlier_draw_changes() -> None:
    """The high word counts only if it is not 0: early iterations draw a bounded run's numbers."""
    ctx, bounds = written(far)
    with endless(ctx, bounds).turns(seed=2) as turns:
        made = list(islice(turns, 3))
    result = ctx.compile(bounds, options("interpret")).execute(seed=2)
    for k, one in enumerate(made):
        np.testing.assert_array_equal(one["bits"], result["bits"][:, k])


# --- inputs
# ----------------------------------------------------------------------------------------


def test_gradients_by_what_is_given() -> None:
    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.given("x", (3,), domain=(i,))
        ctx.output("slope", trl.grad((x * x * trl.constant([1.0, 2.0, 3.0])).sum(axis=0), x))
    given = np.arange(12, dtype=np.float32).reshape(4, 3)
    result = ctx.compile({I: 4}).execute(given={"x": given})
    np.testing.assert_allclose(result["slope"], 2 * given * [1, 2, 3])


def test_given_over_further_dimensions() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        a = trl.given("a", (2,), "i32", domain=(i, t, b))
        ctx.output("a", a * 10)
    given = np.arange(4 * 5 * 3 * 2, dtype=np.int32).reshape(4, 5, 3, 2)
    for how in HOW:
        result = ctx.compile({B: 3, I: 4, T: 5}, options(how)).execute(given={"a": given})
        np.testing.assert_array_equal(result["a"], 10 * given.transpose(2, 0, 1, 3))


def test_nothing_is_folded_through_what_is_given() -> None:
    ctx, bounds = written(collecting)
    zeros = {"w": np.zeros((4, 2), np.float32), "bias": np.zeros(2, np.float32)}
    right = {**zeros, "bias": np.array([-1e9, 0], np.float32)}
    with endless(ctx, bounds).turns(given=[zeros, right, zeros]) as turns:
        actions = [one["a"] for one in turns]
    assert (actions[1] == 1).all() and (actions[0] == 0).any() and (actions[2] == 0).any()


def test_arrays_of_jax_stay_on_the_device() -> None:
    ctx, bounds = written(collecting)
    one = weights(1)[0]
    on_device = {name: jax.numpy.asarray(x) for name, x in one.items()}
    made = [list(endless(ctx, bounds, "xla").turns(given=[given])) for given in (one, on_device)]
    assert_equal(made[0][0], made[1][0])


def test_graphs_with_given_values_are_remembered() -> None:
    ctx, _ = written(collecting)
    pdg = ctx.pdg()
    assert digest(pdg) is not None and pickle.loads(pickle.dumps(trl.endless)) == trl.endless


def wrong(**changed: Any) -> dict[str, Any]:
    return {**weights(1)[0], **changed}


def without(name: str) -> dict[str, Any]:
    return {k: x for k, x in weights(1)[0].items() if k != name}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            wrong(w=np.zeros((4, 3), np.float32)),
            r"w was given float32\[4, 3\] at turn 1, not float32\[4, 2\]",
        ),
        (wrong(w=np.zeros((4, 2), complex)), r"w was given complex128\[4, 2\] at turn 1"),
        (wrong(w="weights"), r"w was given .*at turn 1"),
        (without("bias"), "the input bias is missing at turn 1"),
        (wrong(more=1), "'more' is given at turn 1, but the program has no such input"),
        (7, "the value of given= at turn 1 is a int"),
    ],
)
def test_wrong_values_are_refused_before_their_turn(given: Any, text: str) -> None:
    ctx, bounds = written(collecting)
    right = weights(2)

    def coming() -> Iterator[Any]:
        yield right[0]
        yield given

    turns = endless(ctx, bounds).turns(given=coming())
    next(turns)
    with pytest.raises((ExecutionError, OptionError), match=text) as caught:
        next(turns)
    if "turn 1, not" in text:
        assert "trl.given" in str(caught.value)  # at the user's line
    turns.close()


def test_a_run_goes_on_after_wrong_values() -> None:
    ctx, bounds = written(collecting)
    right = weights(2)
    turns = endless(ctx, bounds).turns(seed=1, given=[right[0], wrong(w=0.0), right[1]])
    made = [next(turns)]
    with pytest.raises(ExecutionError):
        next(turns)
    made.append(next(turns))
    turns.close()
    with endless(ctx, bounds).turns(seed=1, given=right) as want:
        for have, one in zip(made, want, strict=True):
            assert_equal(one, have)


def test_a_whole_run_is_given_arrays_of_all_turns() -> None:
    ctx, bounds = written(collecting)
    program = ctx.compile(bounds)
    whole = {name: np.stack([one[name] for one in weights(9)]) for name in ("w", "bias")}
    with pytest.raises(OptionError, match="the input w is missing"):
        program.execute()
    with pytest.raises(ExecutionError, match=r"not float32\[9, 4, 2\]"):
        program.execute(given={**whole, "w": whole["w"][:8]})
    with pytest.raises(OptionError, match="has no such input"):
        program.start(given={**whole, "v": 0})
    with program.start(given=whole, seed=1) as run:
        assert_equal(dict(program.execute(given=whole, seed=1)), dict(run.result()))


def test_a_name_is_given_once() -> None:
    with trl.Context("i"), pytest.raises(DomainError, match="the input x is declared twice"):
        trl.given("x", domain="i")
        trl.given("x", domain="i")
    with trl.Context("i"), pytest.raises(DomainError, match="no dimension of iterations"):
        trl.given("x", domain=())


# --- meaningless without a bound
# -------------------------------------------------------------------


def refusals() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    yield "mean", "exists only at its end", lambda x, b, i, I, t: x.mean(over=i)
    yield (
        "ahead",
        r"reads .* ahead, at min\(i \+ 1, 8\)",
        lambda x, b, i, I, t: x[b, trl.min(i + 1, 8), t],
    )
    yield "bound", "depends on it: I", lambda x, b, i, I, t: x * trl.value(I)
    yield (
        "prefix",
        "grows with every iteration",
        lambda x, b, i, I, t: x[b, 0 : i + 1, t].sum(axis=0),
    )
    yield "suffix", "depends on it", lambda x, b, i, I, t: x[b, i:I, t].sum(axis=0)
    yield (
        "half",
        "the memory of its iterations has no known limit",
        lambda x, b, i, I, t: x[b, i // 2, t],
    )
    yield "part", "is defined only for t % 2 == 0", lambda x, b, i, I, t: x[t % 2 == 0]
    yield "first", "reads .* ahead, at 3", lambda x, b, i, I, t: x - x[b, 3, t]


@pytest.mark.parametrize(
    ("text", "made"), [row[1:] for row in refusals()], ids=[row[0] for row in refusals()]
)
def test_what_needs_an_end_is_refused(text: str, made: Callable[..., Any]) -> None:
    def write(ctx: trl.Context) -> None:
        (b, _), (i, I), (t, _) = ctx.dims
        ctx.output("y", made(trl.random.uniform((3,), domain=(b, i, t)), b, i, I, t))

    ctx, bounds = written(write)
    ctx.compile(bounds)  # meaningful with one
    with pytest.raises(BoundsError, match=text):
        endless(ctx, bounds)


def test_a_program_has_an_end_or_none() -> None:
    ctx, bounds = written(averaging)
    unending, ending = endless(ctx, bounds), ctx.compile(bounds)
    for call in (unending.execute, unending.start, unending.begin):
        with pytest.raises(OptionError, match="the dimension i is unbounded"):
            call()
    with pytest.raises(OptionError, match="the program has an end"):
        ending.turns()
    for given in (3, {"w": np.zeros(3)}):  # arrays of one turn are none either
        with pytest.raises(OptionError, match="not an iterable of mappings"):
            unending.turns(given=given)
    for program, bound in ((unending, 5), (ending, trl.endless)):
        with pytest.raises(BoundsError, match="cannot change the kind of a bound"):
            program.with_bounds({"I": bound})
    assert unending.with_bounds({"B": 4}).bounds["I"] is trl.endless
    with pytest.raises(BoundsError, match="two dimensions are unbounded"):
        ctx.compile({**bounds, ctx.dims[0][1]: trl.endless, ctx.dims[1][1]: trl.endless})
