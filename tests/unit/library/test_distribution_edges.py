"""Values and gradients of distributions at infinite, extreme and masked parameters.

Expected values are closed forms in float64 of the float32 parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import timerl_nb as trl
from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.reference.evaluator import Reference

D = trl.distributions
INF = np.inf
EXECUTORS = ["reference", "interpret", "xla"]
Array = np.ndarray[Any, Any]


def logit_rows(count: int, size: int, seed: int) -> Array:
    """Rows of logits: ordinary, underflowing, near the ends of float32, with -inf and with inf."""
    rng = np.random.default_rng(seed)
    scales = rng.choice([1.0, 30.0, 200.0, 1e30, 3e38], size=(count, 1))
    rows = rng.uniform(-1, 1, (count, size)) * scales
    rows[rng.random((count, size)) < 0.3] = -INF
    rows[rng.random((count, size)) < 0.05] = INF
    rows[np.arange(count), rng.integers(size, size=count)] = scales[:, 0] * 0.5
    return rows.astype(np.float32)


def softmax(logits: Array) -> tuple[Array, Array]:
    """Return the limits of the probabilities and of their logarithms."""
    x = logits.astype(np.longdouble)
    certain = np.isposinf(x).any(-1, keepdims=True)
    x = np.where(certain, np.where(np.isposinf(x), 0, -INF), x)
    log_p = x - special.logsumexp(x, axis=-1, keepdims=True)
    return np.exp(log_p), log_p


def times(p: Array, x: Array) -> Array:
    """Return p * x, and 0 if p vanishes in float32."""
    return np.where(p < 1.2e-38, 0, p * np.where(p < 1.2e-38, 0, x))


def categorical(logits: Array, other: Array, a: Array) -> dict[str, Array]:
    p, log_p = softmax(logits)
    q, log_q = softmax(other)
    chosen = np.arange(logits.shape[-1]) == a[..., None]
    entropy = -times(p, log_p).sum(-1)
    kl = times(p, np.where(p > 0, log_p, 0) - log_q).sum(-1)
    free = ~np.isposinf(logits).any(-1, keepdims=True)  # certain outcomes have no slope
    return {
        "log_prob": np.where(chosen, log_p, 0).sum(-1),
        "entropy": entropy,
        "kl": kl,
        "log_prob slope": np.where(free, chosen - p, 0),
        "entropy slope": times(p * free, -(log_p + entropy[..., None])),
        "kl slope": times(p * free, np.where(p > 0, log_p, 0) - log_q - kl[..., None]),
        "kl other": q - p,
    }


def run(build: Callable[[trl.Context], None], bounds: dict[str, int]) -> dict[str, Any]:
    with trl.Context("t") as ctx:
        build(ctx)
    program = ctx.compile(bounds)
    return {
        "reference": Reference(ctx.pdg(), bounds, seed=0).outputs(),
        "interpret": program.with_options(executor="interpret").execute(seed=0),
        "xla": program.with_options(executor="xla").execute(seed=0),
    }


ROWS, SIZES = 60, (4, 3)
LOGITS = logit_rows(ROWS, sum(SIZES), 1)
LOGITS[:, 4] = np.where(np.isneginf(LOGITS[:, 4:]).all(-1), 0.5, LOGITS[:, 4])
LOGITS[:, 0] = np.where(np.isneginf(LOGITS[:, :4]).all(-1), -0.5, LOGITS[:, 0])
# both distributions have the same support: otherwise the divergence is infinite
OTHER = np.random.default_rng(2).normal(size=LOGITS.shape).astype(np.float32)
OTHER = np.where(np.isneginf(LOGITS), -INF, OTHER).astype(np.float32)
PARTS = (slice(0, 4), slice(4, 7))
TAKEN = np.stack([np.where(np.isneginf(LOGITS[:, s]), -INF, 1).argmax(-1) for s in PARTS], -1)
SIGNS = logit_rows(ROWS, 5, 3)
SIGNS[:4] = [[INF, -INF, 0, -0.0, 100], [17, -17, 88, -88, 104], [3e38, -3e38, 1e-30, 1, -1],
             [INF] * 5]  # fmt: skip
YES = np.where(np.abs(SIGNS) > 50, SIGNS > 0, np.arange(5) % 2 == 0)
NEAR = np.where(np.abs(SIGNS) > 50, SIGNS, SIGNS + 0.5).astype(np.float32)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    def build(ctx: trl.Context) -> None:
        ((t, _),) = ctx.dims

        def put(name: str, dist: Any, other: Any, a: Any, x: Any, y: Any) -> None:
            for what, of in (("log_prob", dist.log_prob(a)), ("entropy", dist.entropy()),
                             ("kl", dist.kl(other))):  # fmt: skip
                ctx.output(f"{name} {what}", of)
                ctx.output(f"{name} {what} slope", trl.grad(of.sum(over=t), x))
            ctx.output(f"{name} kl other", trl.grad(dist.kl(other).sum(over=t), y))
            ctx.output(f"{name} sample", dist.sample())
            ctx.output(f"{name} mode", dist.mode())

        x, y = trl.data(LOGITS[:, :4], domain=t), trl.data(OTHER[:, :4], domain=t)
        a = trl.data(TAKEN[:, 0].astype(np.int32), domain=t)
        put("one", D.Categorical(x), D.Categorical(y), a, x, y)
        x, y = trl.data(LOGITS, domain=t), trl.data(OTHER, domain=t)
        a = trl.data(TAKEN.astype(np.int32), domain=t)
        put("many", D.MultiCategorical(x, SIZES), D.MultiCategorical(y, SIZES), a, x, y)
        x, y = trl.data(SIGNS, domain=t), trl.data(NEAR, domain=t)
        put("sign", D.Bernoulli(x), D.Bernoulli(y), trl.data(YES, domain=t), x, y)

    return run(build, {"T": ROWS})


def expected() -> dict[str, Array]:
    parts = [categorical(LOGITS[:, s], OTHER[:, s], TAKEN[:, k]) for k, s in enumerate(PARTS)]
    made = {f"one {k}": v for k, v in parts[0].items()}
    for k, v in parts[0].items():
        other = parts[1][k]
        made[f"many {k}"] = v + other if v.ndim == 1 else np.concatenate([v, other], -1)
    # a Bernoulli variable is a categorical one with logits x and 0
    pairs = [np.stack([x, 0 * np.nan_to_num(x)], -1).astype(np.float64) for x in (SIGNS, NEAR)]
    for key, v in categorical(*pairs, (~YES).astype(int)).items():
        made[f"sign {key}"] = v.sum(-1) if key in ("log_prob", "entropy", "kl") else v[..., 0]
    return made


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["one", "many", "sign"])
def test_choices_at_their_edges(found: dict[str, Any], name: str, executor: str) -> None:
    have = found[executor]
    for key, want in expected().items():
        if key.startswith(name):
            with np.errstate(over="ignore"):
                want = want.astype(np.float32)
            np.testing.assert_allclose(have[key], want, rtol=2e-4, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_draws_and_modes_are_possible(found: dict[str, Any], executor: str) -> None:
    have = found[executor]
    for what in ("sample", "mode"):
        for k, span in enumerate(PARTS):
            p, _ = softmax(LOGITS[:, span])
            assert (np.take_along_axis(p, have[f"many {what}"][:, k : k + 1], -1) > 0).all()
        drawn = have[f"sign {what}"]
        assert drawn[np.isposinf(SIGNS)].all() and not drawn[np.isneginf(SIGNS)].any()


MEAN = np.array([0.0, 1.0, 1e30, -3.0, 0.5, 2.0, 0.0, 1e-30], np.float32)
LOG_STD = np.array([-100.0, -200.0, 100.0, 90.0, 0.0, -86.0, 88.0, -60.0], np.float32)
AT = np.array([0.0, 1.0, 1e30, 5.0, 0.25, 2.0, 3.0, 1e-30], np.float32)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_normal_at_extreme_scales(executor: str) -> None:
    def build(ctx: trl.Context) -> None:
        ((t, _),) = ctx.dims
        m, s, a = (trl.data(x, domain=t) for x in (MEAN, LOG_STD, AT))
        dist = D.Normal(m, s)
        values = {"log_prob": dist.log_prob(a), "entropy": dist.entropy(),
                  "kl": dist.kl(D.Normal(m, s + 0.5))}  # fmt: skip
        for what, of in values.items():
            ctx.output(what, of)
            for name, x in (("mean", m), ("log_std", s)):
                if what != "entropy" or name == "log_std":
                    ctx.output(f"{what} {name}", trl.grad(of.sum(over=t), x))

    have = run(build, {"T": len(MEAN)})[executor]
    m, s, a = (x.astype(np.longdouble) for x in (MEAN, LOG_STD, AT))
    z = (a - m) / np.exp(s)
    want = {
        "log_prob": -(z**2) / 2 - s - np.log(2 * np.pi) / 2,
        "log_prob mean": z / np.exp(s),
        "log_prob log_std": z**2 - 1,
        "entropy": s + np.log(2 * np.pi * np.e) / 2,
        "entropy log_std": 1 + 0 * s,
        "kl": 0 * s + (np.exp(-1.0) - 1) / 2 + 0.5,
        "kl mean": 0 * s,
        # the other one moves as well
        "kl log_std": 0 * s,
    }
    for key, w in want.items():
        np.testing.assert_allclose(
            have[key], w.astype(np.float64), rtol=1e-5, atol=1e-6, err_msg=key
        )


def test_normal_at_random_scales() -> None:
    """Distance from the mean and deviation have any exponents; infinite results have the right sign."""
    rng, count = np.random.default_rng(5), 300
    apart = 10.0 ** rng.uniform(-37, 38, count) * rng.choice([-1, 0, 1], count, p=[0.4, 0.2, 0.4])
    log_std = rng.uniform(-200, 200, count)
    near = rng.random(count) < 0.5  # a few deviations apart
    log_std[near] = np.log(np.abs(apart[near]) + 1e-30) + rng.normal(size=near.sum())
    apart, log_std = apart.astype(np.float32), log_std.astype(np.float32)
    log_std[:4], apart[:4] = [-INF, INF, -100, -125], [0, 1, 1, 3e-38]

    def build(ctx: trl.Context) -> None:
        ((t, _),) = ctx.dims
        m, s, a = (trl.data(x, domain=t) for x in (0 * apart, log_std, apart))
        log_prob = D.Normal(m, s).log_prob(a)
        kl = D.Normal(a, s.detach()).kl(D.Normal(m, s))
        for what, of in (("log_prob", log_prob), ("kl", kl)):
            ctx.output(what, of)
            ctx.output(f"{what} mean", trl.grad(of.sum(over=t), m))
            ctx.output(f"{what} log_std", trl.grad(of.sum(over=t), s))

    found = run(build, {"T": count})
    s, a = log_std.astype(np.longdouble), apart.astype(np.longdouble)
    with np.errstate(all="ignore"):
        z = np.where(a == 0, 0, a * np.exp(-s))
        slope = np.where(z == 0, 0, z * np.exp(-s))
        want = {
            "log_prob": -(z**2) / 2 - s - np.log(2 * np.pi) / 2,
            "log_prob mean": slope,
            "log_prob log_std": z**2 - 1,
            "kl": z**2 / 2,
            "kl mean": -slope,
            "kl log_std": -(z**2),
        }
        for key, w in want.items():
            there = np.isfinite(log_std) if key.startswith("kl") else slice(None)
            w = w.astype(np.float32)[there]
            for have in found.values():
                np.testing.assert_allclose(have[key][there], w, rtol=1e-5, atol=1e-6, err_msg=key)


def test_infinite_divergences_have_gradients() -> None:
    """They equal those at the largest finite logarithm, and 0 at positions without probability."""
    rng, count = np.random.default_rng(6), 60
    logits, other = (logit_rows(count, 5, seed) for seed in (7, 8))
    for rows in (logits, other):
        rows[np.isfinite(rows)] = rows[np.isfinite(rows)].clip(-200, 200)
    signs = rng.choice([-INF, -100, -1, 2, 100, INF], (2, count)).astype(np.float32)

    def build(ctx: trl.Context) -> None:
        ((t, _),) = ctx.dims
        x, y, v, w = (trl.data(each, domain=t) for each in (logits, other, *signs))
        for name, dist, at, to in (("one", D.Categorical, x, y), ("sign", D.Bernoulli, v, w)):
            kl = dist(at).kl(dist(to))
            ctx.output(name, kl)
            ctx.output(f"{name} slope", trl.grad(kl.sum(over=t), at))
            ctx.output(f"{name} other", trl.grad(kl.sum(over=t), to))

    found = run(build, {"T": count})
    most = np.longdouble(np.finfo(np.float32).max) / 4

    def check(name: str, at: Array, to: Array, narrow: Callable[[Array], Array]) -> None:
        p, log_p = softmax(at)
        q, log_q = softmax(to)
        log_p, p = np.where(p < 1.2e-38, 0, log_p), np.where(p < 1.2e-38, 0, p)
        infinite = ((p > 0) & np.isneginf(log_q)).any(-1)
        log_q = np.where(np.isneginf(log_q), -most, log_q)
        kl = (p * (log_p - log_q)).sum(-1)
        slope = p * (log_p - log_q - kl[:, None]) * ~np.isposinf(at).any(-1, keepdims=True)
        slope = np.where(p == 0, 0, slope)
        by_other = np.where(np.isinf(to), 0, (q - p) * ~np.isposinf(to).any(-1, keepdims=True))
        assert infinite.sum() > 5 and (~infinite).sum() > 5
        for have in found.values():
            np.testing.assert_allclose(
                have[name], np.where(infinite, INF, kl).astype(np.float32), rtol=2e-4, atol=2e-5
            )
            scale = np.where(infinite, most, 1)[:, None].astype(float)
            scale = scale if have[f"{name} slope"].ndim == 2 else scale[:, 0]
            np.testing.assert_allclose(
                have[f"{name} slope"] / scale, narrow(slope) / scale, rtol=2e-4, atol=1e-4
            )
            assert (have[f"{name} slope"][np.isneginf(narrow(at))] == 0).all()
            np.testing.assert_allclose(
                have[f"{name} other"], narrow(by_other).astype(float), rtol=2e-4, atol=2e-5
            )

    check("one", logits, other, lambda x: x)
    check("sign", *(np.stack([x, 0 * np.nan_to_num(x)], -1) for x in signs), lambda x: x[:, 0])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_beta_at_extreme_shapes(executor: str) -> None:
    alpha = np.array([1e-3, 1.0, 1.0, 1e13, 3.0], np.float32)
    beta = np.array([1e-3, 1.0, 2.0, 1e-3, 1e-2], np.float32)

    def build(ctx: trl.Context) -> None:
        ((t, _),) = ctx.dims
        x, y = trl.data(alpha, domain=t), trl.data(beta, domain=t)
        mode = D.Beta(x, y).mode()
        ctx.output("mode", mode)
        ctx.output("slope", trl.grad(mode.sum(over=t), x))
        ctx.output("gamma", trl.distributions.beta.log_gamma(x))

    have = run(build, {"T": len(alpha)})[executor]
    a, b = alpha.astype(float), beta.astype(float)
    np.testing.assert_allclose(have["mode"], a / (a + b), rtol=1e-5)
    np.testing.assert_allclose(have["slope"], b / (a + b) ** 2, rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(have["gamma"], special.gammaln(a), rtol=1e-5, atol=1e-5)


def test_a_bernoulli_draw_is_zero_or_one() -> None:
    with trl.Context("t") as ctx:
        for k, a in enumerate(([True], [1], [1.0], [0], [0.0], [0.5], [-1], [np.nan])):
            ctx.output(str(k), D.Bernoulli(trl.constant([3.0])).log_prob(a))
    made = ctx.compile({"T": 1}).execute()
    yes, no = -np.log1p(np.exp(-3.0)), -np.log1p(np.exp(3.0))
    want = [yes, yes, yes, no, no, -INF, -INF, -INF]
    np.testing.assert_allclose([made[str(k)] for k in range(8)], want, rtol=1e-5)


# --- masks ---------------------------------------------------------------------------------------

MASK = np.array([[1, 1, 0, 1], [1, 0, 0, 0], [0, 1, 1, 1]], bool)
PLAIN = np.array([[1, 2, 0.5, -1], [0, 0, 0, 0], [3, -2, 1, 5]], np.float32)
CHOSEN = np.array([1, 0, 3], np.int32)


@pytest.mark.parametrize("dtype", [bool, np.int8])
def test_a_mask_is_a_logit_of_minus_infinity(dtype: type) -> None:
    def build(ctx: trl.Context) -> None:
        ((t, _),) = ctx.dims
        x = trl.data(PLAIN, domain=t)
        dist = D.Categorical(x, mask=trl.data(MASK.astype(dtype), domain=t))
        for what, of in {"log_prob": dist.log_prob(CHOSEN[0]), "entropy": dist.entropy()}.items():
            ctx.output(what, of)
            ctx.output(f"{what} slope", trl.grad(of.sum(over=t), x))

    barred = np.where(MASK, PLAIN, -INF).astype(np.float32)
    want = categorical(barred, barred, np.full(3, CHOSEN[0]))
    for have in run(build, {"T": 3}).values():
        np.testing.assert_allclose(have["entropy"], want["entropy"], atol=1e-6)
        np.testing.assert_allclose(have["entropy slope"], want["entropy slope"], atol=1e-6)
        np.testing.assert_allclose(have["log_prob"], want["log_prob"].astype(np.float32), atol=1e-6)


def test_a_masked_policy_trains_and_stays_legal() -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        dnn = trl.DNNBuilder(domain=(i,)).from_env(trl.env.make("CartPole-v1"), hidden=[8]).build()
        o = trl.random.normal((4,), domain=(i, t))
        mask = trl.stack([o.take(0) < 0.0, o.take(0) >= 0.0])
        a = dnn.sample(o, mask=mask)
        ctx.output("a", a)
        ctx.output("legal", mask)
        ctx.output("log_prob", dnn.log_prob(a))
        loss = -(dnn.log_prob(a) * o.sum()) - 0.01 * dnn(o, mask).entropy()
        loss.mean(over=t).backward()
        trl.optim.Adam(dnn.params, lr=1e-2).step()
        ctx.output("w", dnn.params[0].sum())
    made = ctx.compile({"I": 4, "T": 32}).execute(seed=0)
    assert np.take_along_axis(made["legal"], made["a"][..., None], -1).all()
    assert (made["log_prob"] == 0).all()  # one action is legal at each point
    assert np.isfinite(made["w"]).all()


def test_parts_of_a_choice_are_masked_together() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        dist = D.MultiCategorical(trl.zeros((5,)), (2, 3), mask=[0, 1, 1, 0, 1])
        ctx.output("a", dist.sample(domain=t))
        ctx.output("entropy", dist.entropy())
    made = ctx.compile({"T": 500}).execute(seed=0)
    assert set(map(tuple, made["a"].tolist())) == {(1, 0), (1, 2)}
    np.testing.assert_allclose(made["entropy"], np.log(2), rtol=1e-6)


def test_masks_that_allow_nothing_or_do_not_fit() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.zeros((5,))
        policy = trl.DNNBuilder().from_env(trl.env.make("Pendulum-v1")).build()
        none = MASK.copy()
        none[1] = False
        for wrong, said in (
            (lambda: D.Categorical(x, [False] * 5), "allows no position"),
            (lambda: D.Categorical(x, False), "allows no position"),
            (lambda: D.Categorical(x, mask=2), "zeros and ones"),
            (lambda: D.Categorical(trl.zeros((4,)), trl.data(none, domain=t)), r"row \(1,\)"),
            (lambda: D.MultiCategorical(x, (2, 3), [1, 1, 0, 0, 0]), "among 2 to 4"),
            (lambda: D.Categorical(x, trl.zeros((5,))), "boolean, or zeros and ones"),
            (lambda: D.Categorical(x, [1, 0, -1, 1, 1]), "values other than 0 and 1"),
            (lambda: D.Categorical(x, [True] * 4), "does not broadcast to logits"),
            (lambda: D.Categorical(x, [[True] * 5]), "does not broadcast to logits"),
            (lambda: policy(trl.zeros((3,)), mask=[True]), "actions are numbers"),
        ):
            with pytest.raises(ShapeError, match=said) as raised:
                wrong()
            assert raised.value.origin.file == __file__


def test_a_row_that_allows_nothing_has_no_probability_and_finite_gradients() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.data(PLAIN, domain=t)
        dist = D.Categorical(x, trl.data(MASK, domain=t) & (trl.value(t) != 1))
        log_prob, entropy = dist.log_prob(0), dist.entropy()
        ctx.output("log_prob", log_prob)
        ctx.output("entropy", entropy)
        guarded = trl.where(trl.value(t) != 1, log_prob, 0.0) - entropy
        ctx.output("slope", trl.grad(guarded.sum(over=t), x))
        ctx.output("a", dist.sample())
    made = ctx.compile({"T": 3}).execute(seed=0)
    assert made["log_prob"][1] == -INF and made["entropy"][1] == 0 and made["a"][1] == 0
    assert np.isfinite(made["slope"]).all() and (made["slope"][1] == 0).all()
    assert (made["slope"][[0, 2]] != 0).any()


# --- operations ----------------------------------------------------------------------------------


def test_slopes_of_angles_and_lengths_at_their_edges() -> None:
    ys = np.array([0.0, 1e-30, 1e30, -2.0, 0.0, INF], np.float32)
    xs = np.array([0.0, 1e-30, 1e30, 3.0, -1.0, 1.0], np.float32)

    def build(ctx: trl.Context) -> None:
        ((t, _),) = ctx.dims
        y, x = trl.data(ys, domain=t), trl.data(xs, domain=t)
        angle, length = y.atan2(x).sum(over=t), y.hypot(x).sum(over=t)
        for name, of in (("angle", angle), ("length", length)):
            for k, g in enumerate(trl.grad(of, [y, x])):
                ctx.output(f"{name} {k}", g)

    y, x = ys.astype(float)[:5], xs.astype(float)[:5]
    square = np.where(x * x + y * y > 0, x * x + y * y, 1)
    for have in run(build, {"T": 6}).values():
        for name, want in (("angle 0", x / square), ("angle 1", -y / square),
                           ("length 0", y / square**0.5), ("length 1", x / square**0.5)):  # fmt: skip
            np.testing.assert_allclose(have[name][:5], want, rtol=1e-5, err_msg=name)
            assert np.isfinite(have[name][5])
