"""`trl.collect` with our environments: steps against Gymnasium's, batches, weights, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import EnvError, ExecutionError, OptionError, ShapeError
from timerl_nb.base.machine_model import Machine
from timerl_nb.collecting import Batch, Collector
from timerl_nb.env.synthetic import Synthetic
from timerl_nb.rl.exported_policy import LearntPolicy, graphs_of

HOW = ("scan", "step")
ARRAYS = ("obs", "action", "reward", "terminated", "truncated", "valid", "last_obs")
ENV = trl.env.make("CartPole-v1", max_steps=30)  # some episodes are truncated


def policy(**options: Any) -> trl.DNNBuilder:
    return trl.DNNBuilder().from_env(ENV, hidden=[8], critic=True, **options)


def collector(how: str = "scan", **options: Any) -> Collector:
    return trl.collect(ENV, policy(), how=how, **({"envs": 6, "steps": 20, "seed": 3} | options))


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    with collector() as c:
        return [c.next() for _ in range(4)]


def assert_same(a: Batch, b: Batch) -> None:
    for name in (*ARRAYS, *a.extras):
        x, y = np.asarray(getattr(a, name)), np.asarray(getattr(b, name))
        assert x.dtype == y.dtype, name
        np.testing.assert_array_equal(x, y, err_msg=name)
    np.testing.assert_array_equal(a.episodes.returns, b.episodes.returns)
    np.testing.assert_array_equal(a.final.obs, b.final.obs)


def assert_close(a: Batch, b: Batch) -> None:
    """Compare up to the last bits of products."""
    for name in (*ARRAYS, *a.extras):
        x, y = np.asarray(getattr(a, name)), np.asarray(getattr(b, name))
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6, err_msg=name)


def test_steps_are_those_of_gymnasium(batches: list[Batch]) -> None:
    env: Any = gymnasium.make("CartPole-v1").unwrapped
    obs = np.concatenate([b.obs for b in batches] + [np.asarray(batches[-1].last_obs)[None]])
    action = np.concatenate([b.action for b in batches])
    ended = np.concatenate([b.terminated for b in batches])
    cut = np.concatenate([b.truncated for b in batches])
    final = [
        ((k * 20 + step, n), o)
        for k, b in enumerate(batches)
        for step, n, o in zip(b.final.step, b.final.env, b.final.obs, strict=True)
    ]
    after = dict(final)
    assert len(after) == (ended | cut).sum() > 10 and cut.any()
    elapsed = np.zeros(6, int)
    for t in range(80):
        for n in range(6):
            env.reset()
            env.state = obs[t, n].astype(np.float64)
            elapsed[n] += 1
            want, reward, done, _, _ = env.step(int(action[t, n]))
            have = after.get((t, n), obs[t + 1, n])
            np.testing.assert_allclose(have, want, rtol=0, atol=1e-6)
            assert (done, elapsed[n] >= 30, reward) == (ended[t, n], cut[t, n], 1.0)
            if done or cut[t, n]:
                assert (abs(obs[t + 1, n]) <= 0.05).all()  # another one has begun
                elapsed[n] = 0


def test_batches_go_on_from_each_other(batches: list[Batch]) -> None:
    for a, b in zip(batches, batches[1:], strict=False):
        np.testing.assert_array_equal(a.last_obs, b.obs[0])
    lengths = np.zeros(6, int)
    found = []
    for b in batches:
        done = np.asarray(b.terminated | b.truncated)
        for t in range(20):
            lengths += 1
            found += lengths[done[t]].tolist()
            lengths[done[t]] = 0
    have = np.concatenate([b.episodes.lengths for b in batches])
    assert found == have.tolist() and max(found) == 30
    np.testing.assert_array_equal(np.concatenate([b.episodes.returns for b in batches]), have)
    assert all(b.count == 120 and b.valid.all() for b in batches)


def test_ways_of_one_provenance_make_the_same(batches: list[Batch]) -> None:
    with collector("step") as c:
        for want in batches:
            assert_same(want, c.next())


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Describe a machine with minimal tiles."""
    small = Machine(near=1 << 12, far=1 << 13, bandwidth=1e6, call=1e-9)
    for module in ("planned_program", "machine_dependent_options"):
        monkeypatch.setattr(f"timerl_nb.driver.compiling.{module}.machine_here", lambda: small)


@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize("acts", ["random", "network"])
def test_blocks_of_environments_make_what_all_together_make(acts: str) -> None:
    """200 environments do not divide evenly into tiles, whose sizes are powers of two."""
    who = trl.policies.random if acts == "random" else policy()
    options = {"envs": 200, "steps": 20, "seed": 3}
    with (
        trl.collect(ENV, who, how="blocks", **options) as c,
        trl.collect(ENV, who, how="scan", **options) as d,
    ):
        for _ in range(3):
            made, want = c.next(), d.next()
            assert_same(made, want) if acts == "random" else assert_close(made, want)
        source: Any = c._source
        (tile,) = source.program.executable.tiles
        assert tile.blocks > 1 and tile.blocks * tile.size > 200
        one, whole = source.counts, d._source.counts
        assert (one.calls, one.copies) == (whole.calls, whole.copies)
        assert one.launches > whole.launches  # launches of a step, for each tile
        assert len(made.final)


def test_blocks_say_why_not() -> None:
    with pytest.raises(OptionError, match=r"'blocks' does not apply: .*: blocks gain nothing"):
        collector("blocks")


def test_log_probabilities_are_those_of_the_actions(batches: list[Batch]) -> None:
    b = batches[1]
    weights = {n: np.asarray(x) for n, x in collector()._weights.items()}
    h = np.tanh(np.asarray(b.obs) @ weights["trunk.0.weight"] + weights["trunk.0.bias"])
    logits = h @ weights["actor.weight"] + weights["actor.bias"]
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    want = np.take_along_axis(logp, np.asarray(b.action)[..., None], -1)[..., 0]
    np.testing.assert_allclose(b.log_prob, want, atol=1e-5)
    value = (h @ weights["critic.weight"] + weights["critic.bias"])[..., 0]
    np.testing.assert_allclose(b.value, value, atol=1e-5)


def test_a_batch_stays_as_it_is_and_is_not_copied() -> None:
    with collector() as c:
        first = c.next()
        kept = first.numpy()
        copies = {name: np.array(getattr(kept, name)) for name in (*ARRAYS, *kept.extras)}
        for _ in range(5):
            c.next()
        for name, want in copies.items():
            x = getattr(first, name)
            assert isinstance(x, jax.Array) and getattr(first.jax(), name) is x
            have = getattr(kept, name)
            assert have.ctypes.data == x.unsafe_buffer_pointer()  # the same memory
            np.testing.assert_array_equal(have, want)
    np.testing.assert_array_equal(first.obs, copies["obs"])  # also when it is closed
    with pytest.raises(AttributeError):
        first.obs = 0
    with pytest.raises(AttributeError, match="a batch has no 'advantage'"):
        _ = first.advantage
    with pytest.raises(AttributeError, match="did you mean reward"):
        _ = first.rewards


def test_memory_is_flat() -> None:
    with collector() as c:
        held = []
        for _ in range(100):
            c.next()
            held.append(sum(x.nbytes for x in jax.live_arrays()))
    assert len(set(held[2:])) == 1


def test_batches_come_one_by_one_until_the_collector_is_closed() -> None:
    with collector() as one, collector() as other:
        np.testing.assert_array_equal(next(one).obs, other.next().obs)
        for k, batch in enumerate(one):
            np.testing.assert_array_equal(batch.obs, other.next().obs)
            if k == 1:
                one.close()
    assert k == 1 and next(one, None) is None


def test_newer_weights() -> None:
    with collector() as c:
        c.next()
        old = c._weights
        right = {**{n: np.zeros(x.shape, x.dtype) for n, x in old.items()}}
        right["actor.bias"] = np.array([-100, 100], np.float32)
        b = c.next(params=right)
        right["actor.bias"][:] = 0  # the argument was copied
        assert (c.next().action == 1).all() and (b.action == 1).all()
        for wrong in (
            {**right, "actor.bias": np.zeros(3, np.float32)},
            {n: right[n] for n in list(right)[1:]},
            {**right, "more": 0.0},
        ):
            with pytest.raises(
                ShapeError, match="the weights do not fit the policy: 1 differences"
            ):
                c.next(params=wrong)
        with pytest.raises(OptionError, match="weights are arrays by name"):
            c.load(7)
        assert (c.next().action == 1).all()  # it continues
        c.load(old)
        assert (c.next().action == 0).any()


def test_what_was_learnt_collects() -> None:
    with trl.Context("i") as ctx:
        network = trl.DNNBuilder(domain="i").from_env(ENV, hidden=[8], critic=True).build()
        p = {p.name: np.full([int(n) for n in p.shape], 0.5, np.float32) for p in network.params}
    learnt = LearntPolicy(graphs_of(ctx.policies[0]), p, "made up", (4,), "f32")
    options = {"envs": 6, "steps": 20, "seed": 3, "how": "scan"}
    with trl.collect(ENV, learnt, **options) as c, trl.collect(ENV, network, **options) as d:
        first = c.next()
        assert not np.array_equal(d.next().value, first.value)  # it starts from its initial values
    with trl.collect(ENV, network, **options) as d:
        assert_same(first, d.next(params=learnt))


@pytest.mark.parametrize("how", HOW)
def test_one_environment_and_one_step(how: str) -> None:
    with trl.collect(ENV, trl.policies.random, envs=1, steps=1, seed=1, how=how) as c:
        made = [c.next() for _ in range(40)]
    lengths = np.concatenate([b.episodes.lengths for b in made])
    ends = [k for k, b in enumerate(made) if len(b.final)]
    assert lengths.tolist() == np.diff([-1, *ends]).tolist() and len(ends) > 0
    assert made[0].obs.shape == (1, 1, 4) and made[0].last_obs.shape == (1, 4)
    assert not made[0].extras


def test_episodes_of_one_step_that_end_together() -> None:
    env = trl.env.make("CartPole-v1", max_steps=1)
    with trl.collect(env, trl.policies.random, envs=3, steps=4, how="scan") as c:
        c.next()
        b = c.next()
    assert b.truncated.all() and len(b.final) == 12
    assert b.episodes.lengths.tolist() == [1] * 12 and b.episodes.returns.tolist() == [1.0] * 12


def test_episodes_without_an_end_and_numbers_as_actions() -> None:
    env = trl.env.make("synthetic", obs_shape=(2, 3))
    with trl.collect(
        env, trl.DNNBuilder().from_env(env, hidden=[4]), envs=3, steps=4, how="scan"
    ) as c:
        b = c.next()
    assert b.obs.shape == (4, 3, 2, 3) and b.action.shape == (4, 3, 1)
    assert b.log_prob.shape == (4, 3)
    assert not len(b.final) and not len(b.episodes) and not np.asarray(b.terminated).any()
    assert repr(b.episodes) == "Episodes(0)"


class Paid(Synthetic):
    """Every step has the same reward."""

    def transition(self, state: Any, action: Any) -> tuple[Any, Any, Any]:
        after, _, ended = super().transition(state, action)
        return after, trl.full((), 0.5), ended


def test_rewards_that_never_change() -> None:
    with trl.collect(Paid(), trl.policies.random, envs=3, steps=4, how="scan") as c:
        b = c.next()
    np.testing.assert_array_equal(b.reward, np.full((4, 3), 0.5, np.float32))


def test_nan_is_named_and_closes() -> None:
    with collector() as c:
        before = c.next()
        with pytest.raises(ExecutionError, match="log_prob is NaN at step 0 .*, in environment 0"):
            c.next(params={n: np.full(x.shape, np.nan) for n, x in c._weights.items()})
        with pytest.raises(ExecutionError, match="the collector is closed: a batch failed"):
            c.next()
        assert before.count == 120 and list(c) == []


@pytest.mark.parametrize("how", HOW)
def test_an_interrupt_leaves_whole_batches(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    with collector(how) as c, collector(how) as d:
        before = c.next()
        copy = np.array(before.obs)
        assert_same(before, d.next())
        monkeypatch.setattr("timerl_nb.runtime.jax_backend.arrays_and_devices.wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            c.next()
        monkeypatch.undo()
        np.testing.assert_array_equal(before.obs, copy)
        for _ in range(3):  # as if nothing had happened
            assert_same(c.next(), d.next())


def test_functions_of_jax_are_part_of_the_program() -> None:
    def drawn(params: Any, obs: Any, key: Any) -> Any:
        assert obs.shape == (4,)  # of one environment
        logits = params["act"](obs @ params["layers"][0]["w"]) @ params["layers"][1]["w"]
        action = jax.random.categorical(key, logits).astype(np.int32)
        return action, {"log_prob": jax.nn.log_softmax(logits)[action]}

    def tree(seed: int) -> Any:
        draw = np.random.default_rng(seed)
        a, b = (draw.normal(size=s).astype(np.float32) for s in ((4, 8), (8, 2)))
        return {"layers": [{"w": a}, {"w": b}], "act": jax.numpy.tanh}

    made = {}
    for how in HOW:
        with trl.collect(ENV, drawn, params=tree(0), envs=32, steps=20, seed=1, how=how) as c:
            made[how] = [c.next(), c.next(params=tree(1))]
    for a, b in zip(*made.values(), strict=True):
        assert_same(a, b)
    for batch, params in zip(made["scan"], (tree(0), tree(1)), strict=True):
        w, v = (layer["w"] for layer in params["layers"])
        logits = np.tanh(np.asarray(batch.obs) @ w) @ v
        logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        want = np.take_along_axis(logp, np.asarray(batch.action)[..., None], -1)[..., 0]
        np.testing.assert_allclose(batch.log_prob, want, atol=1e-5)
        assert abs(np.asarray(batch.action).mean() - np.exp(logp)[..., 1].mean()) < 0.08


def test_the_acting_half_of_a_program() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[8]).build()
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn.sample(o)
        o[b, i, t + 1], r, _ = env.step(a)
        loss = -dnn.log_prob(a) * r[b, i, t:T].discounted_sum(0.95)
        loss.mean(over=(b, t)).backward()
        trl.optim.Adam(dnn.params, lr=1e-1).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
    program = ctx.compile({B: 6, I: 3, T: 25})
    result = program.execute(seed=0)
    learnt = result.policy()
    with program.collector(result, seed=3, how="scan") as c:
        first = c.next()
        assert first.reward.shape == (25, 6)
        for name, w in learnt.weights.items():
            np.testing.assert_array_equal(c.weights[name], w)
    with trl.collect("CartPole-v1", learnt, envs=6, steps=25, seed=3, how="scan") as c:
        assert_same(first, c.next())
    options = {"envs": 2, "steps": 3, "how": "scan"}
    with program.collector(**options) as c:
        begins = c.weights
        assert c.next().reward.shape == (3, 2)
        assert not np.array_equal(begins["actor.weight"], learnt.weights["actor.weight"])
        c.load(result)
        np.testing.assert_array_equal(c.weights["actor.bias"], learnt.weights["actor.bias"])
    with pytest.raises(ShapeError, match="actor.bias is missing"):
        program.collector({n: w for n, w in begins.items() if n != "actor.bias"}, **options)


def test_programs_without_an_acting_half() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("x", trl.constant(1.0))
    program = ctx.compile({T: 2})
    with pytest.raises(OptionError, match="it steps no environment"):
        program.collector()


def refusals() -> Iterator[tuple[str, type[Exception], dict[str, Any]]]:
    given = {"env": ENV, "policy": policy()}
    yield "there is no environment 'CartPole'", EnvError, {**given, "env": "CartPole"}
    yield "7 is not a supported environment", EnvError, {**given, "env": 7}
    yield "7 is not a policy", OptionError, {**given, "policy": 7}
    yield "how='skan' does not exist", OptionError, {**given, "how": "skan"}
    yield "the seed must be an integer, not None", OptionError, {**given, "seed": None}
    yield (
        "the policy expects observations f32.4., but",
        EnvError,
        {**given, "env": trl.env.make("synthetic")},
    )
    yield (
        "'scan' does not apply: the policy is a host function",
        OptionError,
        {**given, "policy": lambda obs: obs},
    )
    yield "envs", Exception, {**given, "envs": 0}
    yield "steps", Exception, {**given, "steps": 1.5}


@pytest.mark.parametrize(("text", "error", "given"), list(refusals()))
def test_what_is_refused(text: str, error: type[Exception], given: dict[str, Any]) -> None:
    with pytest.raises(error, match=text):
        trl.collect(given.pop("env"), given.pop("policy"), **({"how": "scan"} | given))
