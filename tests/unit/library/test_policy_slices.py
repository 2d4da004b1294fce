"""Extracted policies: the program's actions through every exit, for the same random bits."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.library.test_evaluation import Remembering, played
from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.ir.dependence_graph import at_own_point
from timerl_nb.compiler.ir.reference.evaluation_rules import Env
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.language.policy.policy_graph import How
from timerl_nb.compiler.language.policy.policy_slice import policy_of
from timerl_nb.rl import LearntPolicy
from timerl_nb.runtime.jax_backend import graph_function as rules

B, I, T = 3, 3, 7
INTERPRETED = trl.Options(executor="interpret")
SCALE = np.array([1.0, 0.5, 3.0, -2.0], np.float32)


class Writing:
    """Program under construction: dimensions, environment, and a slowly learning network."""

    statistics: tuple[Any, ...] = ()

    def __init__(self, ctx: Any, env: Any, **options: Any) -> None:
        (self.b, _), (self.i, self.I), (self.t, self.T) = ctx.dims
        self.ctx, self.env = ctx, env
        builder = trl.DNNBuilder(domain=(self.i,))
        self.dnn = builder.from_env(env, hidden=[8], **options).build()
        draw = np.random.default_rng(1).normal
        self.dnn.load({p.name: draw(size=p.shape).astype(np.float32) for p in self.dnn.saved})
        self.o = trl.like(env.obs_space, domain=(self.b, self.i, self.t)).named("o")
        self.o[self.b, self.i, 0] = env.reset(domain=(self.b, self.i))

    def acts(self, a: Any, log_prob: Any = None) -> Any:
        b, i, t = self.b, self.i, self.t
        step = self.env.step(a)
        self.o[b, i, t + 1] = step.obs
        lost = self.dnn(self.o.detach())
        shown = getattr(lost, "logits", None)
        shown = (lost.mean if shown is None else shown).square().sum()
        shown.mean(over=(b, t)).backward()
        trained = [p for p in self.dnn.params if p.has_grad]
        trl.optim.SGD(trained, lr=1e-30).step()
        self.ctx.output("o", self.o)
        self.ctx.output("a", a)
        if log_prob is not None:
            self.ctx.output("log_prob", log_prob)
        return step


def scaled(w: Writing) -> None:
    dist = w.dnn(w.o * trl.constant(SCALE) + 1.0)
    a = dist.sample()
    w.acts(a, dist.log_prob(a))


def mirrored(w: Writing) -> None:
    a = w.dnn.sample(-w.o)
    w.acts(a, w.dnn.log_prob(a))


def normalised(w: Writing) -> None:
    """Normalised by the mean and the variance of each iteration's observations."""
    mean = trl.tensor((4,), domain=(w.i,)).named("mean")
    var = trl.tensor((4,), domain=(w.i,)).named("var")
    n = ((w.o - mean) / (var + 1e-4).sqrt()).clip(-2.0, 2.0)
    a, w.statistics = w.dnn.sample(n), (mean, var)
    mean[0], var[0] = trl.full((4,), 0.1), trl.ones((4,))
    off = (w.o - mean).square()
    mean[w.i + 1] = 0.5 * mean + 0.5 * w.o.mean(over=(w.b, w.t))
    var[w.i + 1] = 0.5 * var + 0.5 * off.mean(over=(w.b, w.t))
    w.acts(a, w.dnn.log_prob(a))


def stacked(w: Writing) -> None:
    frames = w.o.window(3, over=w.t, fill="first")
    a = w.dnn.sample(frames.mean(axis=0) - 0.5 * frames.take(0))
    w.acts(a, w.dnn.log_prob(a))


def clamped(w: Writing) -> None:
    before = w.o[w.b, w.i, trl.max(w.t - 2, 0)]
    a = w.dnn.sample(w.o - before)
    w.acts(a, w.dnn.log_prob(a))


def sliced(w: Writing) -> None:
    """A window from the third step on, and the previous observation."""
    frames = trl.tensor((4,), domain=(w.b, w.i, w.t)).named("frames")
    frames[w.t >= 2] = w.o[w.b, w.i, w.t - 2 : w.t + 1].sum(axis=0)
    frames[w.t < 2] = 3.0 * w.o
    a = w.dnn.sample(frames)
    w.acts(a, w.dnn.log_prob(a))


def averaged(w: Writing) -> None:
    """Means over windows, shorter at first."""
    recent = w.o[w.b, w.i, trl.max(w.t - 2, 0) : w.t + 1]
    a = w.dnn.sample(recent.mean(axis=0) + recent.max(axis=0))
    w.acts(a, w.dnn.log_prob(a))


def masked(w: Writing) -> None:
    legal = trl.stack([w.o.take(1) < 0.2, w.o.take(1) > -0.2])
    dist = trl.distributions.Categorical(trl.where(legal, w.dnn(w.o).logits, -1e9))
    a = dist.sample()
    w.acts(a, dist.log_prob(a))


def tempered(w: Writing) -> None:
    """A falling temperature."""
    heat = trl.tensor((), domain=(w.i,)).named("heat")
    heat[0], heat[w.i + 1] = 3.0, 0.5 * heat
    dist = trl.distributions.Categorical(w.dnn(w.o).logits / heat)
    a = dist.sample()
    w.acts(a, dist.log_prob(a))


def remembering(w: Writing) -> None:
    h = trl.tensor((4,), domain=(w.b, w.i, w.t)).named("h")
    mixing = trl.parameter(np.full((4, 4), 0.1, np.float32), domain=(w.i,), name="mixing")
    after = (h @ mixing + w.o).tanh()
    h[w.b, w.i, 0], h[w.b, w.i, w.t + 1] = trl.full((4,), 0.25), after
    a = w.dnn.sample(after)
    w.acts(a, w.dnn.log_prob(a))


def knowing_what_it_did(w: Writing) -> None:
    """Depends on the last action, its reward, and the number of steps."""
    did = trl.tensor((), "i32", domain=(w.b, w.i, w.t)).named("did")
    got = trl.tensor((), domain=(w.b, w.i, w.t)).named("got")
    more = trl.stack([did.floating(), got, trl.value(w.t).floating() / 10.0, 0.0 * got])
    a = w.dnn.sample(w.o + more)
    step = w.acts(a, w.dnn.log_prob(a))
    did[w.b, w.i, 0], did[w.b, w.i, w.t + 1] = 1, a
    got[w.b, w.i, 0], got[w.b, w.i, w.t + 1] = 0.5, step.reward


def relative(w: Writing) -> None:
    """Relative to the start of the episode."""
    a = w.dnn.sample(w.o - 0.5 * w.o[w.b, w.i, 0])
    w.acts(a, w.dnn.log_prob(a))


def masked_by_argument(w: Writing) -> None:
    legal = trl.stack([w.o.take(1) < 0.2, w.o.take(1) > -0.2])
    a = w.dnn.sample(-w.o, mask=legal)
    w.acts(a, w.dnn.log_prob(a))


def drawn_by_hand(w: Writing) -> None:
    logits = w.dnn(w.o).logits
    a = trl.random.categorical(logits * 2.0)
    log_prob = (a.one_hot(2) * (logits * 2.0).log_softmax()).sum()
    w.acts(a, log_prob)


def two_networks(w: Writing) -> None:
    """The mean of two networks' logits; one network is constant."""
    first = w.dnn.with_values({p.name: p[0] + 0.3 for p in w.dnn.params})
    dist = trl.distributions.Categorical(w.dnn(w.o).logits + first(w.o).logits)
    a = dist.sample()
    w.acts(a, dist.log_prob(a))


def in_two_steps(w: Writing) -> None:
    """A random choice, and an action drawn given this choice."""
    option = trl.distributions.Categorical(w.dnn(w.o).logits)
    k = option.sample()
    dist = trl.distributions.Categorical(w.dnn(w.o * (1.0 + k.floating())).logits)
    a = dist.sample()
    w.acts(a, option.log_prob(k) + dist.log_prob(a))


CARTPOLE: dict[str, Callable[[Writing], None]] = {
    f.__name__: f
    for f in (
        scaled,
        mirrored,
        normalised,
        stacked,
        clamped,
        sliced,
        averaged,
        masked,
        masked_by_argument,
        tempered,
        remembering,
        knowing_what_it_did,
        relative,
        drawn_by_hand,
        two_networks,
        in_two_steps,
    )
}


def program_of(write: Callable[[Writing], None], env: Any = None, **options: Any) -> trl.Program:
    with trl.Context("b", "i", "t") as ctx:
        write(Writing(ctx, env or trl.env.make("CartPole-v1", max_steps=40), **options))
    return ctx.compile({"B": B, "I": I, "T": T}, INTERPRETED)


class Outside:
    """A policy with the program's random bits."""

    def __init__(self, program: trl.Program, policy: LearntPolicy, how: How) -> None:
        self.graph = policy.graph(how)
        source = program._compiled.owner.snapshot()
        self.bits = {op.attrs.stream: op for op in source if op.kind == "rng"}
        self.own = [op for op in self.graph.pdg if op.kind == "rng"]
        self.reference = Reference(source, program.bounds, 5)
        rows = {**self.graph.inputs, **{f"state {n}": s.op_id for n, s in self.graph.state.items()}}
        rows |= {f"bits {op.id}": op.id for op in self.own}
        wanted = [*self.graph.made.values(), *(s.after for s in self.graph.state.values())]
        self.call = rules.by_rows(self.graph.pdg, wanted, rows, self.graph.given)
        self.given = {**policy.frozen, **policy.weights}
        begin = policy.initial_state(B, sample=how == "sample", explore=how == "explore")
        self.state = {f"state {n}": x for n, x in begin.items()}

    def step(self, shown: dict[str, Any], t: int) -> dict[str, np.ndarray]:
        drawn = {f"bits {op.id}": self._drawn(op, t) for op in self.own}
        made = [
            np.asarray(x) for x in self.call(self.given, {**shown, **self.state, **drawn}, 0, B)
        ]
        count = len(self.graph.made)
        self.state = dict(zip(self.state, made[count:], strict=True))
        return dict(zip(self.graph.made, made[:count], strict=True))

    def _drawn(self, op: Any, t: int) -> np.ndarray:
        at = self.bits[op.attrs.stream]
        named = {"i": I - 1, "t": t}

        def point(k: int) -> Env:
            return {**self.reference.bounds, **{d: named.get(d, k) for d in at.domain}}

        read = at_own_point(at.id, at.outputs[0])
        return np.stack([self.reference.evaluate_read(read, point(k)) for k in range(B)])


@pytest.mark.some_of("name", 6)
@pytest.mark.parametrize("name", CARTPOLE)
def test_actions_and_log_probs_are_the_programs_own(name: str) -> None:
    program = program_of(CARTPOLE[name])
    result = program.execute(seed=5, progress=False)
    policy = pickle.loads(pickle.dumps(result.policy()))
    at = Outside(program, policy, "sample")
    seen, did, known = (result[n][:, I - 1] for n in ("o", "a", "log_prob"))
    for t in range(T):
        shown = {"obs": seen[:, t], "reward": np.full(B, float(t > 0), np.float32)}
        made = at.step(shown, t)
        np.testing.assert_array_equal(made["action"], did[:, t])
        np.testing.assert_allclose(made["log_prob"], known[:, t], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dims", ["t", "it"])
def test_a_counter_of_steps_for_all_environments_is_a_state(dims: str) -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        env = trl.env.make("CartPole-v1")
        w = trl.parameter((4,), domain=(i,), init=0.0, name="w")
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        at = (i, t) if dims == "it" else (t,)
        count = trl.tensor((), "i32", domain=at)
        count[(*at[:-1], 0)] = 0
        count[(*at[:-1], t + 1)] = count + 1
        a = (((o * w).sum() + (count % 2).cast("f32")) > 0.5).cast("i32")
        o[b, i, t + 1] = env.step(a).obs
        ctx.output("a", a)
    result = ctx.compile({B: 2, I: 2, T: 6}).execute(seed=0, progress=False)
    policy = result.policy()
    assert policy.frozen == {}
    have, state = [], None
    for _ in range(6):
        action, state = policy(np.zeros(4, np.float32), state)
        have.append(int(action))
    assert have == result["a"][0, 1].tolist() == [0, 1, 0, 1, 0, 1]


# --- continuous actions ----------------------------------------------------------------------------


def squashed(w: Writing) -> None:
    normal = w.dnn(w.o)
    dist = trl.distributions.TanhNormal(normal.mean, normal.log_std, -2.0, 2.0)
    a, log_prob = dist.rsample_and_log_prob()
    w.acts(a.detach(), log_prob)


def clipped_and_rescaled(w: Writing) -> None:
    dist = w.dnn(0.5 * w.o)
    a = dist.sample()
    w.acts(a.clip(-1.0, 1.0) * 2.0, dist.log_prob(a))


def gaussian_by_hand(w: Writing) -> None:
    """Noise with a learned scale is part of the policy."""
    mean = w.dnn(w.o).mean
    spread = trl.parameter(np.full(1, -0.5, np.float32), domain=(w.i,), name="spread")
    w.acts(mean + spread.exp() * trl.random.normal((1,), domain=(w.b, w.i, w.t)))


PENDULUM = {f.__name__: f for f in (squashed, clipped_and_rescaled, gaussian_by_hand)}


@pytest.mark.parametrize("name", PENDULUM)
def test_numbers_are_the_programs_own(name: str) -> None:
    program = program_of(PENDULUM[name], trl.env.make("Pendulum-v1"))
    result = program.execute(seed=5, progress=False)
    policy = result.policy()
    at = Outside(program, policy, "sample")
    for t in range(T):
        made = at.step({"obs": result["o"][:, I - 1, t]}, t)
        np.testing.assert_allclose(made["action"], result["a"][:, I - 1, t], rtol=1e-4, atol=1e-5)
        if "log_prob" in result:
            np.testing.assert_allclose(
                made["log_prob"], result["log_prob"][:, I - 1, t], rtol=1e-3, atol=1e-4
            )
    seen = result["o"][:, I - 1, 0]
    w = policy.weights
    mean = np.tanh(
        (0.5 if "rescaled" in name else 1.0) * seen @ w["trunk.0.weight"] + w["trunk.0.bias"]
    )
    mean = mean @ w["actor.weight"] + w["actor.bias"]
    by_hand = {
        "squashed": lambda x: np.tanh(x) * 2,
        "clipped_and_rescaled": lambda x: x.clip(-1, 1) * 2,
        "gaussian_by_hand": lambda x: x,
    }
    np.testing.assert_allclose(policy(seen), by_hand[name](mean), rtol=1e-4, atol=1e-5)


# --- exploration -----------------------------------------------------------------------------------


def q_values(weights: dict[str, Any], seen: np.ndarray, name: str = "q") -> np.ndarray:
    x = np.tanh(seen @ weights[f"{name}.0.weight"] + weights[f"{name}.0.bias"])
    return x @ weights[f"{name}.1.weight"] + weights[f"{name}.1.bias"]


def test_dqn_acts_by_its_best_action_and_explores_where_asked() -> None:
    options: dict[str, Any] = {
        "hidden": (8,),
        "buffer_size": 30,
        "learning_starts": 3,
        "epsilon": (1.0, 0.5, 10),
    }
    ctx = trl.algorithms.dqn(scale=tuple(SCALE), **options)
    policy = ctx.compile({"B": 2, "T": 20}, INTERPRETED).execute(seed=0, progress=False).policy()
    seen = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    best = q_values(policy.weights, seen * SCALE).argmax(-1)
    np.testing.assert_array_equal(policy(seen), best)
    np.testing.assert_array_equal(policy(seen, seed=1), best)
    explored = policy(seen, seed=1, explore=True)
    assert 0.15 < (explored != best).mean() < 0.35  # half of 0.5: as at the last step
    with pytest.raises(OptionError, match="has no most likely action"):
        policy(seen, explore=True)
    assert len(policy.evaluate("CartPole-v1", 3, explore=True)) == 3


def test_ddpg_acts_by_its_actor_and_explores_where_asked() -> None:
    ctx = trl.algorithms.ddpg(
        hidden=(8,), buffer_size=30, learning_starts=3, noise=(1.0, 0.2, 10), noise_correlation=0.5
    )
    policy = ctx.compile({"B": 2, "T": 20}, INTERPRETED).execute(seed=0, progress=False).policy()
    seen = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    mean = np.tanh(q_values(policy.weights, seen, "actor"))
    made = policy(seen)
    np.testing.assert_allclose(made, 2.0 * mean, rtol=1e-4, atol=1e-5)
    explored, state = policy(seen, seed=3, explore=True)
    inside = abs(mean) < 0.5
    assert abs((explored - made)[inside].std() - 0.4) < 0.05  # of 2 * 0.2
    later, _ = policy(seen, state, seed=4, explore=True)
    both = np.corrcoef((explored - made)[inside], (later - made)[inside])[0, 1]
    assert 0.35 < both < 0.65  # half of the noise persists


def sticky(w: Writing) -> None:
    """Repeated random legal actions of random duration."""
    legal = trl.stack([w.o.take(1) < 0.2, w.o.take(1) > -0.2])
    best = trl.where(legal, w.dnn(w.o).logits, -1e9).argmax(-1)
    any_legal = trl.distributions.Categorical(trl.where(legal, 0.0, -1e9)).sample()
    over = (w.b, w.i, w.t)
    left = trl.tensor((), "i32", domain=over).named("left")
    explores = (left > 0) | (trl.random.uniform(domain=over) < 0.7)
    left[w.b, w.i, 0] = 0
    left[w.b, w.i, w.t + 1] = trl.where(left > 0, left - 1, trl.where(explores, 2, 0))
    w.acts(trl.where(explores, any_legal, best))


def test_exploration_is_left_out_of_what_it_was_put_on() -> None:
    result = program_of(sticky).execute(seed=5, progress=False)
    policy = result.policy()
    assert not policy.graph("mode").state and not policy.graph("sample").state
    assert set(policy.graph("explore").state) == {"left"}
    program = program_of(sticky)
    at = Outside(program, policy, "explore")
    for t in range(T):
        made = at.step({"obs": result["o"][:, I - 1, t]}, t)
        np.testing.assert_array_equal(made["action"], result["a"][:, I - 1, t])


# --- the other exits -------------------------------------------------------------------------------


def by_hand(policy: LearntPolicy) -> Callable[..., int]:
    """Return a function that plays an episode step by step, by the most likely actions."""
    state: Any = None

    def act(seen: np.ndarray, reward: float = 0.0) -> int:
        nonlocal state
        graph = policy.graph("mode")
        beside = {"reward": np.float32(reward)} if "reward" in graph.inputs else {}
        if not graph.state:
            return int(policy(seen, **beside))
        action, state = policy(seen, state, **beside)
        return int(action)

    return act


@pytest.mark.parametrize("name", ["masked", "knowing_what_it_did"])
def test_episodes_are_those_of_the_policy_called_step_by_step(name: str) -> None:
    policy = program_of(CARTPOLE[name]).execute(seed=5, progress=False).policy()
    found = policy.evaluate("gym.CartPole-v1", episodes=3, seed=7)
    for k, seed in enumerate(np.random.SeedSequence(7).generate_state(3)):
        env, act = gymnasium.make("CartPole-v1"), by_hand(policy)
        seen, _ = env.reset(seed=int(seed))
        total, reward, over = 0.0, 0.0, False
        while not over:
            seen, reward, ended, cut, _ = env.step(act(seen, reward))
            total, over = total + reward, ended or cut
        env.close()
        assert total == found.returns[k]


@pytest.mark.parametrize("name", ["normalised", "stacked", "remembering"])
def test_evaluation_on_the_way_plays_the_same(name: str) -> None:
    Remembering.firsts = []
    with trl.Context("b", "i", "t") as ctx:
        CARTPOLE[name](Writing(ctx, trl.env.make("CartPole-v1", max_steps=40)))
        ctx.output("evaluation", ctx.evaluate(Remembering(), 4, max_steps=30))
        ctx.output("first", Remembering.firsts[-1])
    result = ctx.compile({"B": B, "I": I, "T": T}).execute(seed=5, progress=False)
    policy = result.policy()
    want = [played(state, by_hand(policy), 30) for state in result["first"][I - 1]]
    np.testing.assert_array_equal(result["evaluation"][I - 1], want)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("remembering", "scan"),
        ("normalised", "loop"),
        ("masked", "loop"),
        ("stacked", "loop"),
        ("knowing_what_it_did", "loop"),
    ],
)
def test_a_collector_acts_as_the_program(name: str, how: str) -> None:
    """Across the ends of episodes: the state is reset."""
    program = program_of(CARTPOLE[name], critic=True)
    result = program.execute(seed=5, progress=False)
    policy = result.policy()
    graph = policy.graph("sample")
    kind = "CartPole-v1" if how == "scan" else "gym.CartPole-v1"
    env = trl.env.make(kind, max_steps=4)
    with program.collector(result, envs=B, steps=6, env=env, how=how, seed=3) as collector:
        batches = [collector.next().numpy() for _ in range(2)]
    names = ("obs", "action", "reward", "log_prob", "value", "terminated", "truncated")
    rows = {**graph.inputs, **{f"state {n}": s.op_id for n, s in graph.state.items()}}
    rows["action"] = graph.made["action"].source
    wanted = [graph.made["log_prob"], graph.made["value"], *(s.after for s in graph.state.values())]
    call = rules.by_rows(graph.pdg, wanted, rows, graph.given)
    first = policy.initial_state(B, sample=True)
    state, begins = dict(first), np.ones(B, bool)
    reward = np.zeros(B, np.float32)
    seen = {n: np.concatenate([np.asarray(getattr(b, n)) for b in batches]) for n in names}
    for t in range(len(seen["obs"])):
        for n, x in first.items():
            state[n] = np.where(begins.reshape(-1, *(1,) * (x.ndim - 1)), x, state[n])
        shown = {"obs": seen["obs"][t], "action": seen["action"][t]}
        shown["reward"] = np.where(begins, 0, reward).astype(np.float32)
        given = {**shown, **{f"state {n}": x for n, x in state.items()}}
        log_prob, value, *after = map(
            np.asarray, call({**policy.frozen, **policy.weights}, given, 0, B)
        )
        np.testing.assert_allclose(seen["log_prob"][t], log_prob, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(seen["value"][t], value, rtol=1e-4, atol=1e-5)
        state = dict(zip(state, after, strict=True))
        ends = seen["terminated"][t] | seen["truncated"][t]
        begins, reward = ends, seen["reward"][t]


def test_checkpoints_hold_the_statistics_of_their_iteration(tmp_path: Path) -> None:
    with trl.Context("b", "i", "t") as ctx:
        w = Writing(ctx, trl.env.make("CartPole-v1", max_steps=40))
        normalised(w)
        w.dnn.checkpoint(tmp_path)
        ctx.output("mean", w.statistics[0])
    result = ctx.compile({"B": B, "I": I, "T": T}).execute(seed=5, progress=False)
    for k in range(I):
        policy = result.policy(step=k)
        np.testing.assert_array_equal(policy.frozen["mean"], result["mean"][k])
    np.testing.assert_array_equal(policy.frozen["mean"], result.policy().frozen["mean"])
    seen = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    np.testing.assert_array_equal(policy(seen), result.policy()(seen))
    with trl.Context("i") as other:
        ((i, _),) = other.dims
        dnn = trl.DNNBuilder(domain=(i,)).from_env(w.env.unstarted(), hidden=[8]).build()
        dnn.load(tmp_path / "i=2.safetensors")  # only the network
        other.output("w", dnn.actor.weight)
    loaded = other.compile({"I": 1}).execute(progress=False)
    np.testing.assert_array_equal(loaded["w"][0], policy.weights["actor.weight"])


class Choosing(trl.env.Environment):
    """Two simultaneous choices for three numbers."""

    obs_space = trl.env.spaces.Box(-1, 1, (3,))
    act_space = trl.env.spaces.MultiDiscrete((2, 3))
    max_steps = 6

    def first_state(self, domain: Any) -> Any:
        return trl.random.uniform((3,), -1.0, 1.0, domain=domain)

    def transition(self, state: Any, action: Any) -> tuple[Any, Any, Any]:
        return state * 0.9 + 0.01 * action.sum().floating(), state.sum(), state.sum() > 5.0


def test_several_choices_are_the_programs_own() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        env = Choosing()
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4]).build()
        o = trl.like(env.obs_space, domain=(b, i, t)).named("o")
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn.sample(-3.0 * o)
        o[b, i, t + 1], r, _ = env.step(a)
        log_prob = dnn.log_prob(a)
        log_prob.mean(over=(b, t)).backward()
        trl.optim.SGD(dnn.params, lr=1e-30).step()
        for name, x in {"o": o, "a": a, "log_prob": log_prob}.items():
            ctx.output(name, x)
    program = ctx.compile({"B": B, "I": I, "T": T}, INTERPRETED)
    result = program.execute(seed=5, progress=False)
    at = Outside(program, result.policy(), "sample")
    for t in range(T):
        made = at.step({"obs": result["o"][:, I - 1, t]}, t)
        np.testing.assert_array_equal(made["action"], result["a"][:, I - 1, t])
        np.testing.assert_allclose(made["log_prob"], result["log_prob"][:, I - 1, t], rtol=1e-4)


# --- refusals --------------------------------------------------------------------------------------


def of_another_environment(w: Writing) -> None:
    w.acts(w.dnn.sample(w.o - w.o[0, w.i, w.t]))


def of_all_environments(w: Writing) -> None:
    w.acts(w.dnn.sample(w.o - w.o.mean(over=w.b)))


def on_the_host(w: Writing) -> None:
    w.acts(w.dnn.sample(trl.udf(lambda x: x * 2, w.o, out=((4,), "f32"))))


def by_which_environment_it_is(w: Writing) -> None:
    w.acts(w.dnn.sample(w.o * trl.value(w.b).floating()))


def of_the_whole_past(w: Writing) -> None:
    w.acts(w.dnn.sample(w.o[w.b, w.i, 0 : w.t + 1].mean(axis=0)))


def by_chance_alone(w: Writing) -> None:
    w.acts(trl.random.randint(2, domain=(w.b, w.i, w.t)))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (of_another_environment, "is read at b = 0: that is of another environment"),
        (of_all_environments, "that is of another environment"),
        (on_the_host, "is a function on the host"),
        (by_which_environment_it_is, "depends on b, the number of the environment"),
        (of_the_whole_past, "is read at 0:t \\+ 1, whose length varies"),
        (by_chance_alone, "its actions depend neither on the environment's outputs"),
    ],
)
def test_programs_without_a_policy_are_refused_at_their_line(write: Any, said: str) -> None:
    with trl.Context("b", "i", "t") as ctx:
        write(Writing(ctx, trl.env.make("CartPole-v1")))
    policy = policy_of(ctx)
    for how in ("mode", "sample", "explore"):
        with pytest.raises(OptionError, match=said) as failed:
            policy.graph(how)
        assert "w.acts(" in failed.value.origin.text
        assert "the environment is stepped at" in failed.value.others
