"""Returned and stored arrays: later writes into them change nothing.

Each case calls a public function, which stores or returns an array, and passes the array to
`write`. It runs twice:
`write` does nothing in the first run and overwrites the array in the second. Both runs return the
same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.array_conversion import Array
from timerl_nb.replay.training.weight_slots import WeightSlots

Write = Callable[..., None]
FIELDS = {"obs": ((2,), "f32"), "action": ((), "i32")}
WHOLE = {
    "obs": ((2,), "f32"),
    "reward": ((), "f32"),
    "next_obs": ((2,), "f32"),
    "terminated": ((), "bool"),
}


def aligned(values: Any, dtype: Any = np.float32) -> Array:
    """Return an array at an address from which XLA reads without a copy on a CPU."""
    found = np.asarray(values, dtype)
    memory = np.zeros(found.nbytes + 64, np.uint8)
    first = -memory.ctypes.data % 64
    made = memory[first : first + found.nbytes].view(dtype).reshape(found.shape)
    made[...] = found
    return made


def overwrite(*arrays: Any) -> None:
    for x in arrays:
        if isinstance(x, np.ndarray) and x.flags.writeable:
            x[...] = x.dtype.type(1) if x.dtype.kind == "b" else 77


def rows(k: float, count: int = 3) -> dict[str, Array]:
    n = np.arange(count) + 10 * k
    return {"obs": aligned(np.stack([n, -n], 1)), "action": aligned(n, np.int32)}


def steps(k: float, envs: int = 2) -> dict[str, Array]:
    n = np.arange(envs) + 10.0 * k
    return {
        "obs": aligned(np.stack([n, -n], 1)),
        "reward": aligned(n),
        "next_obs": aligned(np.stack([n + 1, -n], 1)),
        "terminated": aligned(n > 1e9, np.bool_),
    }


def buffer(fields: Mapping[str, Any] = FIELDS, **options: Any) -> trl.Replay:
    return trl.Replay(50, fields, priority=trl.replay.Proportional(), seed=1, **options)


def held(one: trl.Replay) -> dict[str, Array]:
    return {n: x for n, x in one.state().items() if n != "about"}


# --- replay ----------------------------------------------------------------------------------------


def inserting(write: Write) -> Any:
    one, errors = buffer(), aligned([1.0, 2.0, 3.0], np.float64)
    for k in range(3):
        given = rows(k)
        one.insert(given, errors)
        write(*given.values())
    write(errors)
    return held(one)


def inserting_steps(write: Write) -> Any:
    one = buffer(WHOLE, n_step=3)
    for k in range(5):
        given = steps(k)
        one.insert(given)
        write(*given.values())
    return held(one)


def staging(write: Write) -> Any:
    one = buffer()
    with one.actor(stage=8) as put:
        for k in range(4):
            given = rows(k)
            put(given)
            write(*given.values())
    return held(one)


def staging_blocks(write: Write) -> Any:
    one = buffer()
    with one.actor(stage=8) as put:
        for k in range(4):
            given = {n: x[None] for n, x in rows(k).items()}  # [steps, envs, …]
            put(given)
            write(*given.values())
    return held(one)


def staging_steps(write: Write) -> Any:
    one = buffer(WHOLE, n_step=2)
    with one.actor(stage=100) as put:
        for k in range(6):
            given = steps(k)
            put.stage(given)
            write(*given.values())
    return held(one)


def staged_entries(write: Write) -> Any:
    one = buffer()
    put = one.actor(stage=100)
    for k in range(3):
        given = rows(k)
        put.stage(given)
        write(*given.values())
    taken = put.take_staged()
    one.insert_entries(taken)
    write(*taken.values())
    return held(one)


def drawing(write: Write) -> Any:
    one = buffer()
    one.insert(rows(0, 20))
    drawn = one.sample(8)
    write(*drawn.rows.values(), drawn.index, drawn.weight, drawn.probability)
    errors = aligned(np.arange(8.0))
    one.update(drawn.ticket, errors)
    write(errors, *drawn.rows.values())
    return held(one), one.sample(8).index


def drawing_parts(write: Write) -> Any:
    one, found = buffer(), []
    one.insert(rows(0, 20))
    for part in one.sample_in_parts(8, chunks=4):
        found.append({n: x.copy() for n, x in part.rows.items()})
        write(*part.rows.values(), part.index, part.weight, part.probability, part.ticket.serial)
    return found


def keeping_states(write: Write) -> Any:
    one, other = buffer(WHOLE, n_step=3), buffer(WHOLE, n_step=3)
    for k in range(5):
        one.insert(steps(k))
    saved = {n: x.copy() for n, x in one.state().items()}
    other.restore(saved)
    write(*saved.values(), *one.state().values())
    return held(one), held(other), other.sample(4).rows


def priorities(write: Write) -> Any:
    tree = trl.replay.SumTree(20, fanout=2)
    index, values = aligned([1, 5, 19], np.int64), aligned([1.0, 2.0, 3.0], np.float64)
    tree.update(index, values)
    tree.insert(7, values)
    write(index, values, tree.retrieve(index), tree.priorities)
    drawn = tree.draw(5, np.random.default_rng(0))
    write(drawn)
    return tree.priorities.copy(), tree.total


class OnArrays(trl.replay.Dqn):
    """Stores the arrays that learning begins with, and passes NumPy arrays on."""

    def begin(self, seed: int) -> Any:
        start = jax.tree_util.tree_map(aligned, super().begin(seed))
        start["count"] = aligned(0, np.int32)
        _STARTS.append(start)
        return start

    def acting(self, state: Any) -> Any:
        return jax.tree_util.tree_map(np.array, super().acting(state))


_STARTS: list[Any] = []


def training(write: Write) -> Any:
    _STARTS.clear()
    given = {"batch": 8, "envs": 2, "steps": 4, "learning_starts": 8, "turns": 6, "mode": "exact"}
    one = OnArrays("CartPole-v1", hidden=(4,), target_every=2)
    run = trl.replay.train(one, actors=1, groups=1, paused=True, **given)
    write(*(x for s in _STARTS for x in jax.tree_util.tree_leaves(s)))
    for _ in range(6):
        write(*jax.tree_util.tree_leaves(run.weights), *jax.tree_util.tree_leaves(run.learnt))
        run.step()
    run.resume()
    result = run.result()
    return {**result, **result.parameters}


def slots(write: Write) -> Any:
    given, found = aligned(np.arange(100.0)), []
    one = WeightSlots({"w": given})
    for change in (lambda _: None, one.write, lambda params: one.restore(params, 9)):
        change({"w": given})
        write(given, one.read()[1]["w"])
        found.append(np.array(one.read()[1]["w"]))
        given = aligned(np.arange(100.0))
    return found


# --- programs --------------------------------------------------------------------------------------


def tensors(write: Write) -> Any:
    data, fixed = aligned(np.arange(12.0).reshape(3, 4)), aligned(np.arange(4.0))
    start, loaded, other = aligned(np.ones(4)), aligned(np.ones((4, 4))), aligned(np.zeros((4, 4)))
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        x = trl.data(data, domain=(i,)) + trl.constant(fixed) + fixed
        p = trl.parameter(start, domain=(i,), name="p")
        net = trl.nn.Linear(4, 4, bias=False, name="net").load({"net.weight": loaded})
        far = net.with_values({"net.weight": other})
        write(data, fixed, start, loaded, other)
        ctx.output("x", net(x) + far(x) + p)
    program = ctx.compile({"I": 3})
    write(data, fixed, start, loaded, other)
    return dict(program.execute(progress=False))


def sums(executor: str, end: Any, size: int) -> trl.Program:
    """Sum given values; XLA's iterations are slower than the producer of these values."""
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        g = trl.given("g", (size,), domain=(i,))
        s = trl.tensor((size, size), domain=(i,))
        s[i == 0] = trl.zeros((size, size))
        before = s[trl.max(i - 1, 0)]
        for _ in range(6):
            before = before @ trl.eye(size)
        s[i > 0] = before + g
        ctx.output("g", g.sum())
        ctx.output("s", s[trl.max(i - 18, 0)].mean(axis=0))
    return ctx.compile({"I": end}, trl.Options(executor=executor))


def giving_turns(write: Write, executor: str) -> Any:
    size = 400 if executor == "xla" else 4

    def given() -> Iterator[dict[str, Array]]:
        for k in range(26):
            x = aligned(np.full(size, k))
            yield {"g": x}
            write(x)

    # JAX arrays are passed as they are, so only the end waits for XLA
    turns = sums(executor, trl.endless, size).turns(given=given(), taken=lambda x: x)
    return jax.tree_util.tree_map(np.array, list(turns))


def handing_out(write: Write, executor: str) -> Any:
    found = []
    given = ({"g": np.full(4, k, np.float32)} for k in range(26))
    for out in sums(executor, trl.endless, 4).turns(given=given):
        found.append({n: np.array(x) for n, x in out.items()})
        write(*out.values())
    return found


def giving_a_started_run(write: Write, executor: str) -> Any:
    x = aligned(np.arange(12.0)[:, None] * np.ones(4))
    run = sums(executor, 12, 4).start(given={"g": x}, paused=True)
    write(x)
    run.resume()
    return dict(run.result())


def functions(write: Write, executor: str) -> Any:
    out, taken = aligned(np.zeros(8)), []

    def same(x: Array) -> Array:
        taken.append(x)
        np.copyto(out, x + 1)
        return out

    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        x = trl.tensor((8,), domain=(i,))
        x[i == 0] = trl.zeros((8,))
        x[i > 0] = trl.udf(same, x, out=((8,), "f32"))[trl.max(i - 1, 0)] * 2
        ctx.output("x", x)
        ctx.output("last", x[I - 1])
    result = ctx.compile({I: 6}, trl.Options(executor=executor)).execute(progress=False)
    write(out)
    return dict(result), taken


def resources(write: Write) -> Any:
    state = aligned(np.zeros(4))

    class Count:
        def save(self) -> dict[str, Array]:
            return {"state": state}

        def load(self, saved: Mapping[str, Array]) -> None:
            write(*saved.values())

    def add(_: Count, at: object) -> Array:
        state[:] += 1
        return state

    with trl.Context("i") as ctx:
        ((i, I),) = ctx.dims
        one = trl.Resource(lambda sizes, seed: Count(), name="count")
        ctx.output("x", trl.udf(add, out=((4,), "f32"), domain=(i,), resource=one))
    return dict(ctx.compile({I: 4}).execute(progress=False))


def exporting(write: Write) -> Any:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4]).build()
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn.sample(o)
        o[b, i, t + 1], r, _ = env.step(a)
        (-dnn.log_prob(a) * r).mean(over=(b, t)).backward()
        trl.optim.SGD(dnn.params, lr=1e-3).step()
        ctx.output("r", r.sum(over=t))
    result = ctx.compile({B: 2, I: 2, T: 3}).execute(progress=False)
    policy, seen = result.policy(), aligned([0.1, 0.2, 0.3, 0.4])
    write(*result.parameters.values())
    acted = policy(seen[None], seed=0)
    write(seen)
    return acted, dict(policy.weights)


CASES: dict[str, Callable[[Write], Any]] = {
    "Replay.insert": inserting,
    "Replay.insert, n steps": inserting_steps,
    "Replay.actor": staging,
    "Replay.actor, blocks": staging_blocks,
    "Replay.actor, n steps": staging_steps,
    "Actor.stage and taken": staged_entries,
    "Replay.sample and update": drawing,
    "Replay.sample_in_parts": drawing_parts,
    "Replay.state and restore": keeping_states,
    "SumTree": priorities,
    "replay.train": training,
    "weight slots": slots,
    "data, constant, parameter, Module.load and with_values": tensors,
    "turns(given=), XLA": lambda write: giving_turns(write, "xla"),
    "turns(given=), interpreted": lambda write: giving_turns(write, "interpret"),
    "turns, XLA": lambda write: handing_out(write, "xla"),
    "turns, interpreted": lambda write: handing_out(write, "interpret"),
    "start(given=), XLA": lambda write: giving_a_started_run(write, "xla"),
    "start(given=), interpreted": lambda write: giving_a_started_run(write, "interpret"),
    "udf, XLA": lambda write: functions(write, "xla"),
    "udf, interpreted": lambda write: functions(write, "interpret"),
    "Resource": resources,
    "Result.policy": exporting,
}


@pytest.mark.parametrize("name", CASES)
def test_writing_into_an_array_after_a_call_changes_nothing(name: str) -> None:
    wanted, found = CASES[name](lambda *arrays: None), CASES[name](overwrite)
    at, want = jax.tree_util.tree_flatten_with_path(wanted)[0], jax.tree_util.tree_leaves(found)
    assert len(at) == len(want) > 0
    for (path, x), y in zip(at, want, strict=True):
        np.testing.assert_array_equal(y, x, err_msg=jax.tree_util.keystr(path))


def test_staging_stores_each_observation_of_a_reused_array() -> None:
    one, obs = trl.Replay(100, {"obs": ((2,), "f32")}), np.zeros((1, 2), np.float32)
    with one.actor(stage=4) as put:
        for k in range(4):
            obs[:] = k
            put({"obs": obs})
            assert put.staged_count == (k + 1) % 4
    assert one.state()["row obs"][:, 0].tolist() == [0, 1, 2, 3]
