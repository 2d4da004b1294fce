"""`result.policy()`: a learned policy on arrays and in episodes."""

from __future__ import annotations

import pickle
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import (
    CallError,
    DomainError,
    EnvError,
    ExecutionError,
    MissingNameError,
    OptionError,
    ShapeError,
)
from timerl_nb.rl import LearntPolicy

SMALL = {"B": 4, "I": 2, "T": 6}


@cache
def cartpole() -> trl.env.Environment:
    return trl.env.make("CartPole-v1")


@cache
def run_of(name: str) -> trl.Result:
    """Return a short run of an algorithm."""
    few: dict[str, Any] = {"hidden": (8,)}
    walk = {"obs_shape": (3,), "max_steps": 5}
    ctx = {
        "reinforce": lambda: trl.algorithms.reinforce(**few),
        "ppo": lambda: trl.algorithms.ppo(cartpole(), **few),
        "ppo continuous": lambda: trl.algorithms.ppo(trl.env.make("synthetic", **walk), **few),
        "clipped ppo": lambda: trl.algorithms.clipped_ppo(epochs=1, minibatches=2, **few),
        "values": values,
    }[name]()
    return ctx.compile(SMALL).execute(seed=2)


def values() -> trl.Context:
    """One-step Q-learning with a target network: one value network with two sets of parameters."""
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        env = trl.env.make("CartPole-v1", autoreset="next_step")
        q = trl.nn.MLP([4, 8, 2], domain=(i,), name="q")
        scale = trl.parameter(np.full(4, 0.5, np.float32), domain=(i,), name="scale")
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        best = q(o * scale).argmax(-1)
        other = trl.random.bits((), domain=(b, i, t)).cast("i32") & 1
        a = trl.where(trl.random.uniform(domain=(b, i, t)) < 0.2, other, best)
        step = env.step(a)
        o[b, i, t + 1] = step.obs
        target = q.with_values({p.name: p[0] for p in q.params})
        goal = step.reward + 0.9 * target(step.final_obs * scale).max(axis=-1)
        chosen = (q(o * scale) * a.one_hot(2, "f32")).sum()
        (chosen - goal.detach()).square().mean(over=(b, t)).backward()
        trl.optim.Adam(q.params, lr=1e-2).step()
        ctx.policy(
            {"q": q, "scale": scale}, o, lambda net, o: net["q"](o * net["scale"]).argmax(-1)
        )
        ctx.output("return", step.reward.sum(over=t).mean(over=b))
    return ctx


def layers(weights: dict[str, Any], names: tuple[str, ...], o: Any) -> Any:
    for k, name in enumerate(names):
        o = o @ weights[f"{name}.weight"] + weights[f"{name}.bias"]
        o = np.tanh(o) if k < len(names) - 1 else o
    return o


SEEN = np.random.default_rng(3).normal(size=(64, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("reinforce", ("trunk.0", "actor")),
        ("ppo", ("trunk.0", "actor")),
        ("clipped ppo", ("trunk.0", "actor")),
        ("values", ("q.0", "q.1")),
    ],
)
def test_actions_are_those_of_the_network(name: str, names: tuple[str, ...]) -> None:
    policy = run_of(name).policy()
    assert type(policy.weights) is dict
    for key, value in policy.weights.items():
        np.testing.assert_array_equal(value, run_of(name).parameters[key])
    scale = policy.weights.get("scale", 1.0)
    logits = layers(policy.weights, names, SEEN * scale)
    clear = abs(logits[:, 0] - logits[:, 1]) > 1e-5
    assert clear.sum() > 50
    made = policy(SEEN)
    assert made.shape == (64,) and made.dtype == np.int32
    np.testing.assert_array_equal(made[clear], logits.argmax(-1)[clear])
    assert policy(SEEN[0]) == made[0] and policy(SEEN[0]).shape == ()
    np.testing.assert_array_equal(policy(SEEN.reshape(4, 16, 4)), made.reshape(4, 16))
    np.testing.assert_array_equal(policy(SEEN[:0]), np.zeros(0, np.int32))


def test_numbers_are_means_or_drawn_around_them() -> None:
    policy = run_of("ppo continuous").policy()
    seen = np.tile(np.float32([[0.3, 0.3, 0.3]]), (4000, 1))
    mean = layers(policy.weights, ("trunk.0", "actor"), seen[0])
    np.testing.assert_allclose(policy(seen[0]), mean, rtol=1e-5, atol=1e-6)
    drawn = policy(seen, seed=5)
    assert drawn.shape == (4000, 1)
    std = np.exp(policy.weights["log_std"])
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.08 * std[0])
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.05)


def test_draws_are_those_of_the_seed_and_the_place() -> None:
    policy = run_of("reinforce").policy()
    seen = np.tile(SEEN[:1], (500, 1))
    first = policy(seen, seed=5)
    assert set(first.tolist()) == {0, 1}  # it has hardly learned
    np.testing.assert_array_equal(policy(seen, seed=5), first)
    assert (policy(seen, seed=6) != first).any()
    assert policy(seen[0], seed=5) == first[0]
    np.testing.assert_array_equal(policy(seen[:7], seed=5), first[:7])
    chance, again = np.random.default_rng(0), np.random.default_rng(0)
    one, two = (policy(seen, seed=chance) for _ in "ab")
    assert (one != two).any()
    np.testing.assert_array_equal(policy(seen, seed=again), one)
    shares = np.exp(layers(policy.weights, ("trunk.0", "actor"), SEEN[0]))
    assert abs(first.mean() - shares[1] / shares.sum()) < 0.1


def test_arrays_of_the_kind_that_was_given() -> None:
    policy = run_of("reinforce").policy()
    want = policy(SEEN)
    made = policy(jnp.asarray(SEEN))
    assert isinstance(made, type(jnp.zeros(1)))
    np.testing.assert_array_equal(made, want)
    assert policy(SEEN[0].tolist()) == want[0] and isinstance(policy([0, 0, 0, 0]), np.int32)
    np.testing.assert_array_equal(policy(SEEN.astype(np.float64)), want)


def test_arrays_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    policy = run_of("reinforce").policy()
    made = policy(torch.from_numpy(SEEN).requires_grad_())
    assert isinstance(made, torch.Tensor) and made.dtype == torch.int32
    np.testing.assert_array_equal(made.numpy(), policy(SEEN))


def test_arrays_that_are_exchanged_by_dlpack(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from PyTorch, by a library that shares only this protocol with NumPy."""

    class Tensor:
        def __init__(self, inner: Any) -> None:
            self.inner = np.array(inner)

        def __dlpack__(self, **how: Any) -> Any:
            return self.inner.__dlpack__(**how)

        def __dlpack_device__(self) -> Any:
            return self.inner.__dlpack_device__()

    library = types.ModuleType("theirs")
    library.from_dlpack = lambda x: Tensor(np.from_dlpack(x))
    Tensor.__module__ = "theirs.tensors"
    monkeypatch.setitem(sys.modules, "theirs", library)
    policy = run_of("reinforce").policy()
    made = policy(Tensor(SEEN))
    assert isinstance(made, Tensor)
    np.testing.assert_array_equal(made.inner, policy(SEEN))
    assert policy(Tensor(SEEN[0])).inner.shape == ()


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (np.zeros(5, np.float32), "an observation must be float32[4], not float32[5]"),
        (np.zeros((4, 2), np.float32), "an observation must be float32[4], not float32[4, 2]"),
        (np.float32(1), "give the shape [4], or [n, 4] for a batch"),
        (np.zeros(4, np.uint8), "an observation must be float32[4], not uint8[4]"),
        (np.zeros(4, np.int64), "x.astype('float32')"),
        (np.zeros(4, bool), "not bool[4]"),
        (np.array(["a"] * 4), "an observation must be float32[4], not <U1[4]"),
        ([[0.0], [1.0, 2.0]], "an observation must be float32[4], but this is not an array"),
        (None, "an observation must be float32[4], not object[]"),
        (Ellipsis, "an observation must be float32[4], not object[]"),
    ],
    ids=str,
)
def test_what_is_no_observation(seen: Any, said: str) -> None:
    with pytest.raises(ShapeError) as failed:
        run_of("reinforce").policy()(seen)
    assert said in str(failed.value) and "test_learnt.py" in str(failed.value)


def test_whole_numbers_that_are_seen() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        table = trl.nn.Embedding(5, 2, domain=(i,), name="table")
        ctx.policy(table, trl.env.spaces.Discrete(5), lambda table, o: table(o).argmax(-1))
        ctx.output("w", table.weight)
    result = ctx.compile({"I": 1}).execute(seed=1)
    policy, want = result.policy(), result["w"][0].argmax(-1)
    for seen in (np.arange(5), np.arange(5, dtype=np.uint8), list(range(5)), jnp.arange(5)):
        np.testing.assert_array_equal(policy(seen), want)
    assert policy(3) == want[3]
    for wrong, said in ((np.int64(2**40), "int64[]"), (1.0, "float64[]"), (np.arange(3.0), "[3]")):
        with pytest.raises(ShapeError, match="an observation must be int32") as failed:
            policy(wrong)
        assert said in failed.value.what


def test_words_of_others() -> None:
    policy = run_of("reinforce").policy()
    for word, said in {
        "predict": "call the policy: policy(observation)",
        "params": "policy.weights",
    }.items():
        with pytest.raises(MissingNameError, match=f"a policy has no '{word}'") as failed:
            getattr(policy, word)
        assert said in failed.value.hint


def test_seeds_that_are_none() -> None:
    with pytest.raises(ShapeError, match="the seed must be"):
        run_of("reinforce").policy()(SEEN, seed="x")


# --- which policy --------------------------------------------------------------------------------


def kept(folder: Path, every: int, executor: Any = "xla") -> trl.Program:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4]).build()
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn.sample(o)
        o[b, i, t + 1], r, _ = env.step(a)
        (-dnn.log_prob(a) * r).mean(over=(b, t)).backward()
        trl.optim.Adam(dnn.params, lr=0.1).step()
        dnn[(i + 1) % every == 0].checkpoint(folder)
        r.checkpoint(folder / "rewards")
        ctx.output("return", r.sum(over=t).mean(over=b))
    return ctx.compile({"B": 2, "I": 6, "T": 4}, trl.Options(executor=executor))


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_steps_are_those_of_kept_checkpoints(tmp_path: Path, executor: str) -> None:
    (tmp_path / "i=4.safetensors").write_bytes(b"of another run")
    program = kept(tmp_path, 2, executor)
    result = program.execute(seed=3)
    for step in (1, 3, 5):
        policy = result.policy(step=step)
        saved = trl.load(tmp_path / f"i={step}.safetensors")
        assert policy.weights.keys() == saved.keys() and f"at i = {step}" in repr(policy)
        assert all(np.array_equal(policy.weights[n], x) for n, x in saved.items())
    last, fifth = result.policy(), result.policy(step={"i": 5})
    assert all(np.array_equal(last.weights[n], x) for n, x in fifth.weights.items())
    assert not np.array_equal(
        last.weights["actor.weight"], result.policy(1).weights["actor.weight"]
    )
    for wrong in (0, 4, {"i": 0}):
        with pytest.raises(OptionError, match="there is no checkpoint of step") as failed:
            result.policy(step=wrong)
        assert "saved steps: 1, 3, 5; omit step= for the last policy" in str(failed.value)
    with pytest.raises(ShapeError, match="the step must be an integer"):
        result.policy(step="last")


def test_a_run_that_was_stopped_has_what_it_kept(tmp_path: Path) -> None:
    with kept(tmp_path, 1).start(seed=3, paused=True) as run:
        run.step(2)
        run.wait()
        run.stop()
        result = run.result()
    assert "at i = 1" in repr(result.policy(step=1))
    with pytest.raises(OptionError, match="saved steps: 0, 1;|no checkpoint") as failed:
        result.policy(step=4)
    assert "saved steps: 0, 1;" in failed.value.hint
    np.testing.assert_array_equal(
        result.policy().weights["actor.bias"], result.policy(1).weights["actor.bias"]
    )


def test_a_checkpoint_that_is_damaged_since(tmp_path: Path) -> None:
    result = kept(tmp_path, 3).execute()
    file = tmp_path / "i=2.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ExecutionError, match=r"i=2.safetensors is damaged: it is truncated"):
        result.policy(step=2)
    file.unlink()
    with pytest.raises(ExecutionError, match="i=2.* does not exist") as failed:
        result.policy(step=2)
    assert "i=5.safetensors" in failed.value.hint


def test_no_checkpoints_of_a_policy() -> None:
    with pytest.raises(OptionError, match="the run has no checkpoint of the policy's weights"):
        run_of("reinforce").policy(step=1)


def test_a_program_without_a_policy() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("t", trl.value(t))
    with pytest.raises(OptionError, match="it steps no environment") as failed:
        ctx.compile({"T": 2}).execute().policy()
    assert "ctx.policy(network, o, act)" in failed.value.hint


def test_networks_that_act_nowhere_are_refused_until_one_is_named() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        env = trl.env.make("CartPole-v1")
        first, second = (trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[]).build() for _ in "ab")
        o = trl.random.normal((4,), domain=(i,))
        ctx.output("a", first.sample(o) + second.sample(o))
    with pytest.raises(OptionError, match="it steps no environment") as failed:
        ctx.compile({"I": 1}).execute().policy()
    assert (
        "ctx.policy(network" in failed.value.hint and "a network is made at" in failed.value.others
    )
    ctx.policy(second)
    assert set(ctx.compile({"I": 1}).execute().policy().weights) == {p.name for p in second.params}
    with pytest.raises(DomainError, match="ctx.policy was called before"):
        ctx.policy(first)


def test_a_result_is_a_value_still() -> None:
    """It can be pickled for another process, without networks."""
    result = run_of("reinforce")
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again["return"], result["return"])
    assert again.parameters.keys() == result.parameters.keys() and result.policy().weights
    with pytest.raises(OptionError, match="that was copied, pickled or loaded") as failed:
        again.policy()
    assert "pickle result.policy() itself" in failed.value.hint
    policy = pickle.loads(pickle.dumps(result.policy()))
    np.testing.assert_array_equal(policy(SEEN, seed=3), result.policy()(SEEN, seed=3))


def test_marks_that_say_too_little() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        net = trl.nn.Linear(3, 2, domain=(i,))
        with pytest.raises(
            CallError, match="the shape and element type of observations are unknown"
        ):
            ctx.policy(net)
        with pytest.raises(CallError, match="is not a function"):
            ctx.policy(net, trl.env.spaces.Box(0, 1, (3,)), act=3)
        with pytest.raises(CallError, match="has a symbolic length"):
            ctx.policy(net, trl.random.normal((3,), domain=(i,))[0 : i + 1])
        ctx.policy(net, trl.env.spaces.Box(0, 1, (3,)), lambda net, o: "left")
        ctx.output("w", net.weight)
    result = ctx.compile({"I": 1}).execute()
    with pytest.raises(ExecutionError, match="returns 'left', which is neither") as failed:
        result.policy()
    assert failed.value.origin.text.startswith(
        "ctx.policy(net, trl.env.spaces.Box(0, 1, (3,)), lamb"
    )


def acting_by(act: Any) -> LearntPolicy:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        net = trl.nn.Linear(4, 2, domain=(i,))
        outside = trl.random.normal((2,), domain=(i,))
        ctx.policy(net, trl.random.normal((4,)), lambda net, o: act(net, o, outside))
        ctx.output("w", net.weight)
    return ctx.compile({"I": 1}).execute().policy()


def test_an_action_that_is_drawn_wants_a_seed() -> None:
    def act(net: Any, o: Any, outside: Any) -> Any:
        return (net(o) + 10.0 * trl.random.normal((2,), domain=o.domain)).argmax(-1)

    policy = acting_by(act)
    with pytest.raises(OptionError, match="has no most likely action"):
        policy(SEEN)
    assert set(policy(SEEN, seed=1).tolist()) == {0, 1}
    assert len(policy.evaluate("CartPole-v1", 3)) == 3


def test_an_act_that_uses_more_than_it_is_given() -> None:
    with pytest.raises(ExecutionError, match="uses tensors of its program besides") as failed:
        acting_by(lambda net, o, outside: net(o) + outside)
    assert failed.value.origin.text.startswith("ctx.policy(net, ")
    assert "belongs to another context" in str(failed.value)
    assert "What to do: put all modules and parameters" in str(failed.value)


def test_running_statistics_and_several_choices() -> None:
    """Saved but untrained statistics are weights, too; each choice is independent."""

    class Net(trl.nn.Module):
        def __init__(self, i: Any) -> None:
            self.norm = trl.nn.BatchNorm(3, over="b", domain=(i,))
            self.head = trl.nn.Linear(3, 5, domain=(i,))

        def __call__(self, o: Any) -> Any:
            return trl.distributions.MultiCategorical(self.head(self.norm.running(o)), (2, 3))

    with trl.Context("b", "i") as ctx:
        (b, _), (i, _) = ctx.dims
        net = Net(i)
        o = trl.random.normal((3,), 2.0, 3.0, domain=(b, i))
        ctx.output("normed", net.norm(o))
        ctx.policy(net, o)
    policy = ctx.compile({"B": 50, "I": 40}).execute(seed=3).policy()
    names = {k.rpartition(".")[2]: x for k, x in policy.weights.items() if "norm" in k}
    np.testing.assert_allclose(names["mean"], [2, 2, 2], atol=0.7)
    seen = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)
    normed = (seen - names["mean"]) / np.sqrt(names["variance"] + 1e-5)
    (weight,) = (x for k, x in policy.weights.items() if x.shape == (3, 5))
    logits = (normed * names["scale"] + names["shift"]) @ weight
    want = np.stack([logits[:, :2].argmax(-1), logits[:, 2:].argmax(-1)], axis=-1)
    np.testing.assert_array_equal(policy(seen), want)
    assert policy(seen, seed=1).shape == (20, 2)


# --- episodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [False, True])
def test_episodes_are_those_of_gymnasium(sample: bool) -> None:
    """Equal to manual play with the same actions if nothing is drawn; else of similar lengths."""
    policy = run_of("reinforce").policy()
    found = policy.evaluate("gym.CartPole-v1", episodes=4, seed=7, sample=sample)
    again = policy.evaluate("gym.CartPole-v1", episodes=4, seed=7, sample=sample)
    np.testing.assert_array_equal(found.returns, again.returns)
    np.testing.assert_array_equal(found.lengths, found.returns)  # a reward of 1 for each step
    assert found.lengths.dtype == np.int32 and len(found) == 4
    if not sample:
        seeds = np.random.SeedSequence(7).generate_state(4)
        for k in range(4):
            env = gymnasium.make("CartPole-v1")
            obs, _ = env.reset(seed=int(seeds[k]))
            over, steps = False, 0
            while not over:
                obs, _, ended, cut, _ = env.step(int(policy(obs)))
                over, steps = ended or cut, steps + 1
            env.close()
            assert steps == found.lengths[k]


def test_episodes_side_by_side_end_each_by_itself() -> None:
    policy = run_of("reinforce").policy()
    found = policy.evaluate(trl.env.make("CartPole-v1", autoreset="same_step"), 32, seed=1)
    assert len(set(found.lengths.tolist())) > 1 and found.lengths.min() > 5
    np.testing.assert_array_equal(found.returns, found.lengths)
    assert "32: return" in repr(found)
    assert (policy.evaluate("CartPole-v1", 32, seed=2).lengths != found.lengths).any()
    short = policy.evaluate("CartPole-v1", 32, seed=1, max_steps=7)
    np.testing.assert_array_equal(short.lengths, np.minimum(found.lengths, 7))
    hosted = policy.evaluate("gym.CartPole-v1", 3, seed=1, max_steps=6)
    np.testing.assert_array_equal(hosted.lengths, [6, 6, 6])


def test_the_environment_of_the_program_plays_on() -> None:
    policy = run_of("ppo").policy()
    first = policy.evaluate(cartpole(), 3, seed=4)
    np.testing.assert_array_equal(first.returns, policy.evaluate(cartpole(), 3, seed=4).returns)


def test_rewards_and_ends_of_numbers() -> None:
    policy = run_of("ppo continuous").policy()
    walk = trl.env.make("synthetic", obs_shape=(3,))
    with pytest.raises(EnvError, match="may have no end") as failed:
        policy.evaluate(walk, 2)
    assert "max_steps" in failed.value.hint
    found = policy.evaluate(walk, 6, seed=1, max_steps=9)
    assert found.lengths.tolist() == [9] * 6
    assert (found.returns < 0).all() and (found.returns >= -9).all()
    longer = policy.evaluate(walk, 6, seed=1, max_steps=18)
    assert (longer.returns < found.returns).all()


def test_environments_that_do_not_fit() -> None:
    policy = run_of("reinforce").policy()
    with pytest.raises(
        EnvError, match=r"observations are f32\[4\], but the environment returns f32\[3, 4, 4\]"
    ):
        policy.evaluate("synthetic", max_steps=5)
    with pytest.raises(EnvError, match="3 is not an environment"):
        policy.evaluate(3)
    with pytest.raises(ShapeError, match="the number of episodes"):
        policy.evaluate("CartPole-v1", 0)


def test_values_play_as_they_were_marked() -> None:
    found = run_of("values").policy().evaluate("CartPole-v1", 5, seed=2)
    assert len(found) == 5 and (found.lengths >= 5).all()


def test_what_is_loaded_acts_as_what_was_learnt(tmp_path: Path) -> None:
    """From a checkpoint into a network of another program, of one iteration without learning."""
    result = kept(tmp_path, 6).execute(seed=3)
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4]).build()
        dnn.load(tmp_path / "i=5.safetensors")
        ctx.policy(dnn)
        ctx.output("logits", dnn(trl.constant(SEEN[0])).logits)
    again = ctx.compile({"I": 1}).execute().policy()
    np.testing.assert_array_equal(again(SEEN), result.policy()(SEEN))
    first, second = (p.evaluate("CartPole-v1", 4, seed=1) for p in (again, result.policy()))
    np.testing.assert_array_equal(first.returns, second.returns)
