"""Densities, entropies, divergences and draws of distributions, compared with SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.scipy import stats
from scipy import special
from scipy import stats as known

import timerl_nb as trl
from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.ir.reference.evaluator import Reference

# XLA draws from a kernel's distributions independently; estimates use one after another
pytestmark = pytest.mark.filterwarnings("ignore:the program needed .* bytes on the device")
D = trl.distributions
RNG = np.random.default_rng(0)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


LOGITS = RNG.normal(size=(4, 5)).astype(np.float32)
OTHER = RNG.normal(size=(4, 5)).astype(np.float32)
MEAN, LOG_STD = f32(0.5, -1.0, 2.0), f32(-0.5, 0.3, -2.0)
ALPHA, BETA = f32(0.4, 1.5, 7.0, 120.0), f32(2.0, 0.9, 3.0, 60.0)

Make = Callable[..., Any]
# name: constructor, parameters, those of another one, and a draw
ROWS: dict[str, tuple[Make, list[np.ndarray], list[np.ndarray], np.ndarray]] = {
    "Categorical": (D.Categorical, [LOGITS], [OTHER], np.array([0, 4, 2, 2], np.int32)),
    "MultiCategorical": (
        lambda x: D.MultiCategorical(x, (2, 3)),
        [LOGITS],
        [OTHER],
        np.array([[0, 2], [1, 0], [1, 1], [0, 0]], np.int32),
    ),
    "Bernoulli": (D.Bernoulli, [LOGITS], [OTHER], LOGITS > 0.3),
    "Normal": (D.Normal, [MEAN, LOG_STD], [MEAN + 1, LOG_STD * 0.5], f32(0.1, -3.0, 2.0)),
    "TanhNormal": (
        lambda m, s: D.TanhNormal(m, s, -2.0, 1.0),
        [MEAN, LOG_STD],
        [MEAN + 1, LOG_STD * 0.5],
        f32(0.1, -1.9, 0.97),
    ),
    "Beta": (D.Beta, [ALPHA, BETA], [BETA + 1, ALPHA], f32(0.2, 0.9, 0.5, 0.7)),
}


def log_softmax(x: Any) -> Any:
    return jax.nn.log_softmax(x, -1)


def density(name: str, params: list[Any], a: Any) -> Any:
    """Return the log-density in JAX, to compare derivatives."""
    match name:
        case "Categorical":
            return sum(log_softmax(params[0])[k, a[k]] for k in range(len(a)))
        case "MultiCategorical":
            halves = log_softmax(params[0][:, :2]), log_softmax(params[0][:, 2:])
            return sum(half[k, a[k, j]] for j, half in enumerate(halves) for k in range(len(a)))
        case "Bernoulli":
            return jax.numpy.where(
                a, jax.nn.log_sigmoid(params[0]), jax.nn.log_sigmoid(-params[0])
            ).sum()
        case "Normal":
            return stats.norm.logpdf(a, params[0], jax.numpy.exp(params[1])).sum()
        case "TanhNormal":
            unit = (a + 0.5) / 1.5
            inner = stats.norm.logpdf(np.arctanh(unit), params[0], jax.numpy.exp(params[1]))
            return (inner - np.log(1 - unit**2) - np.log(1.5)).sum()
        case _:
            return stats.beta.logpdf(a, *params).sum()


def entropy(name: str, params: list[np.ndarray]) -> float:
    match name:
        case "Categorical":
            return sum(known.entropy(np.exp(row)) for row in log_softmax(params[0]))
        case "MultiCategorical":
            parts = (log_softmax(params[0][:, :2]), log_softmax(params[0][:, 2:]))
            return sum(known.entropy(np.exp(row)) for part in parts for row in part)
        case "Bernoulli":
            return known.bernoulli(1 / (1 + np.exp(-params[0]))).entropy().sum()
        case "Normal":
            return known.norm(params[0], np.exp(params[1])).entropy().sum()
        case _:
            return known.beta(*params).entropy().sum()


def divergence(name: str, params: list[np.ndarray], others: list[np.ndarray]) -> float:
    """Return E[log p - log q], by sums and by quadrature."""
    match name:
        case "Categorical":
            p, q = log_softmax(params[0]), log_softmax(others[0])
            return float((np.exp(p) * (p - q)).sum())
        case "MultiCategorical":
            return sum(
                divergence("Categorical", [params[0][:, k]], [others[0][:, k]])
                for k in (slice(0, 2), slice(2, 5))
            )
        case "Bernoulli":
            pairs = [np.stack([x[0], 0 * x[0]], -1) for x in (params, others)]
            return divergence("Categorical", [pairs[0]], [pairs[1]])
        case "Normal" | "TanhNormal":  # tanh does not change it
            pair = [known.norm(m, np.exp(s)) for m, s in (params, others)]
        case _:
            pair = [known.beta(*x) for x in (params, others)]
    at = ((np.arange(50_000) + 0.5) / 50_000)[:, None]  # in proportion to their probabilities
    xs = pair[0].ppf(at)
    return float((pair[0].logpdf(xs) - pair[1].logpdf(xs)).mean(axis=0).sum())


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Return results of the reference and both executors, for all distributions in one program."""
    with trl.Context("t") as ctx:
        for name, (make, given, others, a) in ROWS.items():
            params = [trl.constant(x) for x in given]
            dist, other = make(*params), make(*map(trl.constant, others))
            log_prob = dist.log_prob(trl.constant(a)).sum()
            ctx.output(f"{name} log_prob", log_prob)
            for k, g in enumerate(trl.grad(log_prob, params)):
                ctx.output(f"{name} slope {k}", g)
            ctx.output(f"{name} kl", dist.kl(other).sum())
            ctx.output(f"{name} none", dist.kl(make(*params)).sum())
            if name != "TanhNormal":
                ctx.output(f"{name} entropy", dist.entropy().sum())
    program = ctx.compile({"T": 1})
    return {
        "reference": Reference(ctx.pdg(), {"T": 1}, seed=0).outputs(),
        "interpret": program.with_options(executor="interpret").execute(),
        "xla": program.with_options(executor="xla").execute(),
    }


@pytest.mark.parametrize("executor", ["reference", "interpret", "xla"])
@pytest.mark.parametrize("name", ROWS)
def test_densities_and_what_follows_from_them(
    found: dict[str, Any], name: str, executor: str
) -> None:
    _, given, others, a = ROWS[name]
    have, close = found[executor], np.testing.assert_allclose
    close(have[f"{name} log_prob"], density(name, given, a), rtol=1e-3)
    close(have[f"{name} kl"], divergence(name, given, others), rtol=1e-3, atol=1e-3)
    close(have[f"{name} none"], 0, atol=1e-4)
    if name != "TanhNormal":
        close(have[f"{name} entropy"], entropy(name, given), rtol=2e-3)
    for k, slope in enumerate(jax.grad(lambda ps: density(name, ps, a))(given)):
        close(have[f"{name} slope {k}"], slope, rtol=2e-3, atol=2e-4)


ENDS = [(1.0, 1.0, 0.0), (1.0, 1.0, 1.0), (50.0, 1.0, 1.0), (1.0, 3.0, 0.0), (2.0, 3.0, 0.5)]
DRAWN: dict[str, tuple[Make, Any]] = {
    "Bernoulli": (lambda: D.Bernoulli(trl.constant(0.8)), None),
    "MultiCategorical": (lambda: D.MultiCategorical(trl.constant(LOGITS[0]), (2, 3)), None),
    "Normal": (lambda: D.Normal(trl.constant(1.0), -0.5), known.norm(1, np.exp(-0.5))),
    "TanhNormal": (lambda: D.TanhNormal(trl.constant(0.3), -0.2), None),
    **{
        f"Beta {a} {b}": (lambda a=a, b=b: D.Beta(trl.constant(a), b), known.beta(a, b))
        for a, b in ((0.3, 0.6), (1.0, 1.0), (2.5, 0.8), (40.0, 9.0))
    },
}


@pytest.fixture(scope="module")
def drawings() -> trl.Result:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        for name, (make, _) in DRAWN.items():
            dist = make()
            ctx.output(name, dist.sample(domain=(t,)))
            ctx.output(f"{name} named", dist.sample(domain=(t,), stream=name))
            ctx.output(f"{name} mode", dist.mode())
    return ctx.compile({T: 20_000}, trl.Options(executor="xla")).execute(seed=1)


@pytest.mark.parametrize("name", DRAWN)
def test_draws_are_distributed_so(drawings: trl.Result, name: str) -> None:
    _, want = DRAWN[name]
    drawn, mode = np.asarray(drawings[name], np.float64), drawings[f"{name} mode"]
    assert not np.array_equal(drawings[f"{name} named"], drawings[name])
    if name == "Bernoulli":
        assert abs(drawn.mean() - 1 / (1 + np.exp(-0.8))) < 0.01 and mode
    elif name == "MultiCategorical":
        for k, part in enumerate((LOGITS[0][:2], LOGITS[0][2:])):
            counts = np.bincount(drawn[:, k].astype(int), minlength=len(part))
            assert (
                known.chisquare(counts, special.softmax(part.astype(float)) * 20_000).pvalue > 0.01
            )
            assert mode[k] == part.argmax()
        assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.02  # drawn apart
    elif name == "TanhNormal":
        assert known.kstest(np.arctanh(drawn), known.norm(0.3, np.exp(-0.2)).cdf).pvalue > 0.01
        np.testing.assert_allclose(mode, np.tanh(0.3), rtol=1e-5)
    else:
        assert known.kstest(drawn, want.cdf).pvalue > 0.01


def test_gradients_flow_through_rsample_and_not_through_sample() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        mean, log_std = trl.constant(MEAN), trl.constant(LOG_STD)
        a, log_prob = D.TanhNormal(mean, log_std).rsample_and_log_prob(domain=(t,), stream="a")
        plain = D.Normal(mean, log_std).rsample(domain=(t,), stream="b")
        for name, loss in {"tanh": a.sum() - log_prob, "plain": plain.square().sum()}.items():
            for k, g in enumerate(trl.grad(loss, [mean, log_std])):
                ctx.output(f"{name} {k}", g)
        ctx.output("a", a)
        ctx.output("log_prob", log_prob)
        ctx.output("plain", plain)
        with pytest.raises(trl.errors.GradientError):
            trl.grad(D.Normal(mean, log_std).sample(domain=(t,)).sum(), mean)
    result = ctx.compile({"T": 5}).execute(seed=3)
    noise = (np.arctanh(result["a"].astype(np.float64)) - MEAN) / np.exp(LOG_STD)
    np.testing.assert_allclose(
        result["log_prob"],
        [density("TanhNormal", [MEAN, LOG_STD], row * 1.5 - 0.5) + 3 * np.log(1.5) for row in result["a"]],
        rtol=1e-3,
    )  # fmt: skip

    def soft(mean: Any, log_std: Any) -> Any:
        drawn = mean + jax.numpy.exp(log_std) * noise
        log_prob = stats.norm.logpdf(drawn, mean, jax.numpy.exp(log_std))
        squashed = jax.numpy.tanh(drawn)
        return squashed.sum() - (log_prob - jax.numpy.log(1 - squashed**2)).sum()

    for k, want in enumerate(jax.grad(soft, (0, 1))(MEAN, LOG_STD)):
        np.testing.assert_allclose(result[f"tanh {k}"], want, rtol=5e-3, atol=1e-3)
    of_plain = result["plain"]
    np.testing.assert_allclose(result["plain 0"], 2 * of_plain.sum(0), rtol=1e-4)
    slope = (2 * of_plain * (of_plain - MEAN)).sum(0)
    np.testing.assert_allclose(result["plain 1"], slope, rtol=1e-4)


def test_what_saturates_keeps_a_density() -> None:
    with trl.Context("t") as ctx:
        dist = D.TanhNormal(trl.constant(20.0), 0.0)
        ctx.output("known", dist.rsample_and_log_prob()[1])
        ctx.output("found", dist.log_prob(trl.constant(1.0)))
    result = ctx.compile({"T": 1}).execute()
    assert 30 < result["known"] < 42 and np.isfinite(result["found"])


def test_what_cannot_be_and_what_lies_at_an_end() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("beyond", D.Categorical(trl.constant(LOGITS[:2])).log_prob([5, -1]))
        for a, b, x in ENDS:
            alpha = trl.constant(a)
            log_prob = D.Beta(alpha, b).log_prob(trl.constant(x))
            ctx.output(f"{a} {b} {x}", log_prob)
            ctx.output(f"{a} {b} {x} slope", trl.grad(log_prob, alpha))
        ctx.output("drawn", D.Beta(trl.constant(1e6), 1).sample(domain=(t,)))
        ctx.output("same", D.Normal(trl.constant(MEAN), 0).log_prob(trl.constant(MEAN)))
    result = ctx.compile({"T": 20_000}).execute()
    assert (result["beyond"] == -np.inf).all()
    for a, b, x in ENDS:
        np.testing.assert_allclose(result[f"{a} {b} {x}"], known.beta(a, b).logpdf(x), atol=1e-5)
        assert not np.isnan(result[f"{a} {b} {x} slope"])
    assert (result["drawn"] < 1).all() and result["drawn"].max() == np.float32(1 - 2**-24)
    np.testing.assert_allclose(result["same"], known.norm.logpdf(0) * 3, rtol=1e-6)


def test_what_does_not_go_together_is_said() -> None:
    with trl.Context("t"):
        logits, mean = trl.constant(LOGITS), trl.constant(MEAN)
        for wrong, said in (
            (lambda: D.Normal(mean, 0.0).kl(D.Bernoulli(mean)), "Normal with Bernoulli"),
            (lambda: D.MultiCategorical(logits, (2, 2)), r"choices of \(2, 2\)"),
            (lambda: D.MultiCategorical(logits, (2, -3)), "positions"),
            (lambda: D.Bernoulli(trl.constant(1)), "floating-point"),
            (lambda: D.Beta(mean, trl.zeros((2, 3))), "does not broadcast to"),
            (lambda: D.Beta(mean, 1.0).log_prob(trl.zeros((2,))), "a draw must have the shape"),
            (lambda: D.TanhNormal(mean, 0.0).entropy(), "no entropy in closed form"),
            (lambda: D.TanhNormal(mean, 0.0, 1.0, 1.0), "low must be below high"),
            (
                lambda: D.TanhNormal(mean, 0.0).kl(D.TanhNormal(mean, 0.0, 0.0, 1.0)),
                "on different intervals",
            ),
            (lambda: D.Categorical(logits).log_prob(mean), "positions must be integers"),
            (lambda: D.Normal(mean, 0.0).kl(D.Normal(trl.zeros(()), 0.0)), "of one shape"),
            (lambda: D.Bernoulli(mean).kl(D.Bernoulli(trl.zeros((2, 3)))), "of one shape"),
            (
                lambda: D.MultiCategorical(logits, (2, 3)).kl(
                    D.MultiCategorical(logits.take(0), (2, 3))
                ),
                "of one shape",
            ),
        ):
            with pytest.raises((ShapeError, DomainError), match=said) as raised:
                wrong()
            assert raised.value.origin.file == __file__
