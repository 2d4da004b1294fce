"""Hand-written programs, one per access pattern of the language.

Each function writes a program into an open context and names its outputs. `PATTERNS` maps its name
to the function, the dimensions, and bounds that are small but not degenerate.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import timerl_nb as trl

Symbols = dict[str, Any]


@dataclass(frozen=True)
class Pattern:
    """A program with its dimensions, bounds and writer function."""

    dims: tuple[str, ...]
    bounds: dict[str, int]
    write: Callable[..., None]

    def context(self) -> trl.Context:
        """Return the program in a new context.

        Lint warnings are off: some index tables look like mistakes on purpose.
        """
        with trl.Context(*self.dims) as ctx, warnings.catch_warnings():
            warnings.simplefilter("ignore", trl.errors.TimeRLWarning)
            self.write(ctx, *(symbol for pair in ctx.dims for symbol in pair))
        return ctx


PATTERNS: dict[str, Pattern] = {}


def pattern(dims: str, **bounds: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def enter(write: Callable[..., None]) -> Callable[..., None]:
        PATTERNS[write.__name__] = Pattern(tuple(dims), bounds, write)
        return write

    return enter


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pattern("t", T=7)
def equal_first_values(ctx, t, T):
    """Let one constant fill two slots of a recurrence."""
    f, g = trl.tensor((), domain=(t,)), trl.tensor((3,), domain=(t,))
    f[0] = 1.0
    f[1] = 1.0
    f[t + 2] = f + f[t + 1]
    first = trl.data(values(3))
    g[0], g[1], g[2] = first, first.tanh(), first
    g[t + 3] = g * 0.5 + g[t + 2]
    ctx.output("f", f)
    ctx.output("g", g[T - 1] + g[0:T].sum(axis=0))


@pattern("t", T=6)
def first_values_beside_unread_rows(ctx, t, T):
    """Compute a row that no slice reads, because another output of its kernel is needed there."""
    x, y = trl.tensor((), domain=(t,)), trl.tensor((), domain=(t,))
    x[0], x[1], x[2] = 1.0, 2.0, 4.0
    x[t + 3] = x[t + 1]
    y[T - 1], y[T - 2], y[T - 3] = 1.0, 2.0, 4.0
    y[t < T - 3] = y[trl.min(t + 2, T - 1)]
    ctx.output("all", x[0:T] * 2.0)
    ctx.output("sums", x[trl.max(0, t - 1) : t + 1].sum(axis=0))
    ctx.output("reversed", y[0:T] * 2.0)


@pattern("t", T=6)
def booleans_of_before(ctx, t, T):
    x, y = trl.tensor((), "bool", domain=(t,)), trl.tensor((2,), "bool", domain=(t,))
    x[0] = True
    x[t + 1] = x
    y[T - 1] = trl.full((2,), True)
    y[t < T - 1] = y[trl.min(t + 1, T - 1)]
    ctx.output("x", x)
    ctx.output("y", y)


@pattern("t", T=6)
def linear(ctx, t, T):
    x = trl.data(values(6, 3), domain=(t,))
    ctx.output("y", (x * 2 + 1).tanh())


@pattern("bt", B=3, T=5)
def domains_are_united(ctx, b, B, t, T):
    x, y = trl.data(values(3), domain=(b,)), trl.data(values(5, seed=1), domain=(t,))
    ctx.output("y", x * y)


@pattern("t", T=6)
def constant_index(ctx, t, T):
    x = trl.data(values(6), domain=(t,))
    ctx.output("first", x[0] * 2)
    ctx.output("last", x[T - 1] + x)


@pattern("t", T=6)
def shifted(ctx, t, T):
    x = trl.data(values(6), domain=(t,))
    ctx.output("ahead", x[trl.min(t + 2, T - 1)] - x)
    ctx.output("back", x[trl.max(t - 1, 0)] + x)


@pattern("t", T=6)
def reversed_in_time(ctx, t, T):
    x = trl.data(values(6, 2), domain=(t,))
    ctx.output("y", x[T - 1 - t] * x)


@pattern("t", T=7)
def many_to_one(ctx, t, T):
    x = trl.data(values(7), domain=(t,))
    ctx.output("half", x[t // 2])
    ctx.output("modulo", x[t % 3] + t)


@pattern("at", A=4, T=4)
def another_symbol(ctx, a, A, t, T):
    x = trl.data(values(4, 2), domain=(a,))
    ctx.output("y", x[t] + 1)


@pattern("bt", B=2, T=5)
def prefix(ctx, b, B, t, T):
    x = trl.data(values(2, 5), domain=(b, t))
    ctx.output("sum", x[b, 0 : t + 1].sum(axis=0))
    ctx.output("mean", x[b, 0 : t + 1].mean(axis=0))
    ctx.output("max", x[b, 0 : t + 1].max(axis=0))


@pattern("bt", B=2, T=6)
def suffix(ctx, b, B, t, T):
    x = trl.data(values(2, 6), domain=(b, t))
    ctx.output("g", x[b, t:T].discounted_sum(0.9))
    ctx.output("min", x[b, t:T].min(axis=0))


@pattern("bt", B=2, T=6)
def window(ctx, b, B, t, T):
    x = trl.data(values(2, 6), domain=(b, t))
    ctx.output("g", x[b, t : trl.min(t + 3, T)].discounted_sum(0.5))
    ctx.output("back", x[b, trl.max(t - 2, 0) : t + 1].mean(axis=0))


@pattern("t", T=5)
def work_on_a_window(ctx, t, T):
    x = trl.data(values(5, 2), domain=(t,))
    w = x[t : trl.min(t + 3, T)]
    ctx.output("y", (w.tanh() * w.exp()).sum(axis=0))
    ctx.output("z", (w @ trl.constant(values(2, seed=3))).max(axis=0))


@pattern("it", I=3, T=4)
def whole_slice(ctx, i, I, t, T):
    x = trl.data(values(3, 4), domain=(i, t))
    ctx.output("rows", x[i, 0:T].cumsum())
    ctx.output("part", x[i, 1:3].sum(axis=0))


@pattern("bit", B=2, I=3, T=4)
def reductions_over_dimensions(ctx, b, B, i, I, t, T):
    x = trl.data(values(2, 3, 4, 2), domain=(b, i, t))
    ctx.output("sum", x.sum(over=(b, t)))
    ctx.output("mean", x.mean(over=b) - x)
    ctx.output("max", x.max(over=(i, t)))
    ctx.output("any", (x > 1.5).any(over=t))
    ctx.output("count", (x > 0).sum(over=(b, i)))


@pattern("t", T=6)
def forward_recurrence(ctx, t, T):
    x = trl.data(values(6, 2), domain=(t,))
    s = trl.like(x)
    s[0] = x[0]
    s[t + 1] = (s * 0.5 + x).tanh()
    ctx.output("s", s)


@pattern("t", T=6)
def backward_recurrence(ctx, t, T):
    r = trl.data(values(6), domain=(t,))
    g = trl.like(r)
    g[T - 1] = r[T - 1]
    g[t < T - 1] = r + 0.9 * g[trl.min(t + 1, T - 1)]
    ctx.output("g", g)


@pattern("it", I=3, T=4)
def nested_recurrence(ctx, i, I, t, T):
    s = trl.tensor((), domain=(i, t))
    w = trl.tensor((), domain=(i,))
    w[0] = trl.constant(1.0)
    s[i, 0] = w
    s[i, t + 1] = s * 0.5 + 0.1
    w[i + 1] = s.sum(over=t)
    ctx.output("w", w)


@pattern("t", T=8)
def branches_by_condition(ctx, t, T):
    x = trl.data(values(8), domain=(t,))
    y = trl.like(x)
    y[t % 3 == 0] = x
    y[(t % 3 == 1) & (t > 2)] = -x
    y[(t % 3 == 2) | (t == 1)] = x * x
    ctx.output("y", y)


@pattern("t", T=7)
def strided_branches(ctx, t, T):
    x = trl.data(values(7), domain=(t,))
    y = trl.like(x)
    y[t % 2 == 1] = x * 10
    y[2 * t] = x
    ctx.output("y", y)


@pattern("t", T=6)
def carried_value(ctx, t, T):
    x = trl.data(values(6), domain=(t,))
    y = trl.like(x)
    y[t < 2] = x
    y[t + 2] = y
    ctx.output("y", y)


@pattern("bt", B=3, T=5)
def random_draws(ctx, b, B, t, T):
    x = trl.random.normal((2,), domain=(b, t))
    u = trl.random.uniform(domain=(t,), stream="noise")
    ctx.output("x", x)
    ctx.output("u", u)
    ctx.output("bits", trl.random.bits((3,), domain=(b,)))


@pattern("bt", B=3, T=5)
def categorical(ctx, b, B, t, T):
    logits = trl.data(values(3, 5, 4), domain=(b, t))
    dist = trl.distributions.Categorical(logits)
    a = dist.sample()
    ctx.output("a", a)
    ctx.output("log_prob", dist.log_prob(a))
    ctx.output("entropy", dist.entropy().mean(over=(b, t)))
    ctx.output("mode", dist.mode())


@pattern("bt", B=2, T=5)
def gradient_through_a_window(ctx, b, B, t, T):
    x = trl.data(values(2, 5), domain=(b, t))
    g = x[b, t : trl.min(t + 2, T)].discounted_sum(0.5)
    ctx.output("dx", trl.grad(g * g * 0.5, x))


@pattern("t", T=6)
def gradient_through_time(ctx, t, T):
    x = trl.data(values(6), domain=(t,))
    w = trl.data(np.float32(0.7))
    s = trl.like(x)
    s[0] = x[0]
    s[t + 1] = (s * w + x).tanh()
    dx, dw = trl.grad(s * s, [x, w])
    ctx.output("dx", dx)
    ctx.output("dw", dw)


@pattern("bi", B=4, I=5)
def training(ctx, b, B, i, I):
    x, y = trl.data(values(4, 3), domain=(b,)), trl.data(values(4, seed=2), domain=(b,))
    net = trl.nn.MLP([3, 4, 1], domain=(i,))
    error = net(x).reshape(()) - y
    (error * error).mean(over=b).backward()
    trl.optim.SGD(net.params, lr=0.1, momentum=0.5).step()
    ctx.output("loss", (error * error).mean(over=b))


@pattern("bi", B=4, I=4)
def adam_with_schedule(ctx, b, B, i, I):
    x = trl.data(values(4, 3), domain=(b,))
    w = trl.parameter((3,), domain=(i,), init=lambda s: trl.random.normal(s, stream="w"), name="w")
    lr = trl.tensor((), domain=(i,))
    lr[0] = trl.constant(0.1)
    lr[i + 1] = lr * 0.9
    ((x @ w) - 1.0).square().mean(over=b).backward()
    trl.optim.Adam([w], lr=lr).step()
    ctx.output("w", w)
    ctx.output("grad", w.grad)


@pattern("it", I=3, T=4)
def average_over_time_first(ctx, i, I, t, T):
    """Read a mean over all steps in every step's value: learning must wait for acting."""
    x = trl.data(values(3, 4), domain=(i, t))
    s = trl.like(x)
    s[i, 0] = x[i, 0]
    s[i, t + 1] = (s + x).tanh()
    ctx.output("y", (s - s.mean(over=t)).square().sum(over=t))


@pattern("it", I=3, T=5)
def constant_factor_in_a_sum(ctx, i, I, t, T):
    """Sum with a factor that is constant over the summed dimension but depends on all of it."""
    x = trl.data(values(3, 5), domain=(i, t))
    scale = 1.0 / (x * x).sum(over=t)
    ctx.output("y", ((x * scale).tanh() * scale).sum(over=t))


@pattern("t", T=5)
def index_values(ctx, t, T):
    x = trl.data(values(5), domain=(t,))
    ctx.output("y", x * t + trl.value(T - t))
    ctx.output("z", trl.where(t % 2 == 0, x, -x))


@pattern("t", T=4)
def layout(ctx, t, T):
    x = trl.data(values(4, 2, 3), domain=(t,))
    ctx.output("transposed", x.transpose().reshape(6))
    ctx.output("joined", trl.concat([x, x.flip(1)], axis=0).slice(1, 3))
    ctx.output("taken", x.take(t % 2) + x.take(-1))
    ctx.output("picked", trl.constant(values(5, 2)).take(trl.value(t)))
    ctx.output("stacked", trl.stack([x.take(0), x.take(1)], axis=-1))


@pattern("bt", B=2, T=3)
def products(ctx, b, B, t, T):
    x, w = trl.data(values(2, 3, 4), domain=(b, t)), trl.constant(values(4, 3, seed=5))
    ctx.output("outer", (x.reshape((4, 1)) * x.reshape((1, 4))).sum(over=(b, t)))
    ctx.output("matrix", x @ w)
    ctx.output("prod", x.prod(axis=0))


@pattern("bit", B=3, I=2, T=4)
def cartpole(ctx, b, B, i, I, t, T):
    env = trl.env.make("CartPole-v1", max_steps=3)
    o = trl.like(env.obs_space, domain=(b, i, t))
    o[b, i, 0] = env.reset(domain=(b, i))
    a = (o.take(2) > 0.0).cast("i32")
    step = env.step(a)
    o[b, i, t + 1], r, d = step
    ctx.output("o", o)
    ctx.output("r", r)
    ctx.output("alive", step.alive)
    ctx.output("truncated", step.truncated)
    ctx.output("done", d)


@pattern("t", T=3)
def no_dimension_used(ctx, t, T):
    ctx.output("y", trl.constant(values(3)).exp().sum())


@pattern("it", I=3, T=5)
def less_what_is_taken_over_all(ctx, i, I, t, T):
    x = trl.data(values(3, 5), domain=(i, t))
    s = trl.tensor((), domain=(i, t))
    s[i, 0] = x[i, 0]
    s[i, t + 1] = (s * x).tanh()
    ctx.output("max", s - s.max(over=t))
    ctx.output("sum", s - s.sum(over=(i, t)))
    e = (x - x.max(over=t)).exp()
    ctx.output("softmax", e / e.sum(over=t))


@pattern("t", T=9)
def many_divisors(ctx, t, T):
    x = trl.data(values(9), domain=(t,))
    ctx.output("y", x[t % 3] + x[t // 2] + x[(t * 2) % 5] + x[t // 4])


@pattern("bt", B=2, T=4)
def positions_that_move(ctx, b, B, t, T):
    x = trl.constant(values(3, 4))
    ctx.output("taken", x.take(t % 3))
    ctx.output("cut", x.slice(t % 2, t % 2 + 2).sum(axis=0))
    ctx.output("either", trl.where((t > 1) == (b == 0), x.take(0), x.take(t, axis=1).sum()))


@pattern("bt", B=2, T=3)
def data_in_another_order(ctx, b, B, t, T):
    ctx.output("y", trl.data(values(3, 2, 4), domain=(t, b)) * 2)


@pattern("t", T=3)
def constants_at_bounds(ctx, t, T):
    ctx.output("last", trl.constant([1.0, 2.0, 3.0]).take(T - 1))
    ctx.output("two", trl.constant([1.0, 2.0, 3.0]).slice(T - 2, T))
    ctx.output("repeated", trl.zeros(()).expand(T))


@pattern("it", I=2, T=4)
def guards_against_zero(ctx, i, I, t, T):
    x = trl.data(np.array([[0, 1, 2, 3], [3, 4, 1, 0]], np.float32), domain=(i, t))
    many = (x > 3.5).cast("f32").sum(over=t)
    ctx.output("masked mean", trl.where(x > 3.5, x / many, 0.0).sum(over=t))
    ctx.output("guarded", trl.where(many > 0, x / many, 0.0).sum(over=t))
    ctx.output("in steps", (x * 1e-30 * 1e30) * 1e30)


@pattern("t", T=3)
def impossible_choices(ctx, t, T):
    dist = trl.distributions.Categorical(trl.constant([0.0, -np.inf, 1.0]))
    ctx.output("log_prob", dist.log_prob(trl.value(t) % 3))
    ctx.output("entropy", dist.entropy())
    x = trl.constant(np.array([1.0, np.inf, 3.0]))
    ctx.output("taken", x.take(trl.constant([2, 0])))
    ctx.output("flags", trl.constant([True, False, True]).take(trl.constant([[2, 1]])))
    rows = trl.constant(values(2, 3, 4))
    ctx.output("rows", rows.take(trl.constant([[2, 1], [0, 0]]), axis=1))


@pattern("it", I=4, T=4)
def branches_of_slices(ctx, i, I, t, T):
    x = trl.data(values(6), domain=(t,))
    y = trl.tensor((3,), domain=(t,))
    y[t < 2] = x[0:3]
    y[t >= 2] = x[1:4]
    ctx.output("y", y)
    w = trl.parameter(x[0:3], domain=(i,))
    (w * w).sum(over=i).backward()
    trl.optim.SGD(w, lr=0.1).step()
    ctx.output("w", w)


def empty_at_one(ctx, t, T):
    x = trl.data(values(4), domain=(t,))
    ctx.output("after", x[t + 1 : T].sum(axis=0))
    ctx.output("before", x[0:t].sum(axis=0))
    ctx.output("none", x[t : trl.min(t + 0, T)].max(axis=0, initial=-1.0))
    ctx.output("late", x[2:T].sum(axis=0))
    ctx.output("tail", x.tanh()[trl.min(1, T - 1) : T].sum(axis=0))


pattern("t", T=1)(empty_at_one)
PATTERNS["not_empty_at_four"] = Pattern(("t",), {"T": 4}, empty_at_one)


@pattern("t", T=4)
def integers_and_booleans(ctx, t, T):
    bits = trl.random.bits((3,), domain=(t,))
    ctx.output("least", bits.min(axis=0))
    ctx.output("large", trl.random.bits(domain=(t,)) > 2**31)
    x = trl.data(values(4), domain=(t,))
    ctx.output("count", (x > 0)[t:T].sum(axis=0))
    ctx.output("one", (x > 0).sum())
    n = trl.value(t) + 2
    ctx.output("swapped", 7 // n + 7 % n)


@pattern("t", T=3)
def names_of_our_own(ctx, t, T):
    with ctx.region("kernel"):
        y = (trl.data(values(3), domain=(t,)) * 2).tanh().named("start")
    ctx.output("free", y.sum(over=t) * y)


@pattern("bt", B=2, T=7)
def left_sides_that_leave_points_out(ctx, b, B, t, T):
    x = trl.data(values(2, 7), domain=(b, t))
    y = trl.like(x)
    y[b, 0] = x[b, 0]
    y[b, 1] = x[b, 1]
    y[b, t + 2] = (y + y[b, t + 1] * 0.5).tanh()
    v = trl.like(x)
    v[b, T - 1] = x[b, T - 1]
    v[b, t - 1] = x[b, t - 1] + 0.9 * v
    z = trl.like(x)
    z[t % 3 == 0] = x
    z[t % 3 == 1] = z[b, t - 1] + 1.0
    z[t % 3 == 2] = z[b, t - 1] * z[b, t - 2]
    ctx.output("y", y)
    ctx.output("v", v)
    ctx.output("z", z)
    for name, loss in (("dy", y * y), ("dv", v.tanh()), ("dz", z)):
        ctx.output(name, trl.grad(loss, x))


@pattern("bt", B=3, T=5)
def crossed_and_strided(ctx, b, B, t, T):
    x = trl.data(values(3, 5), domain=(b, t))
    reads = {
        "reversed": x[t % 3, T - 1 - t],
        "halved": x[t % 3, t // 2],
        "both": x[t // 2, t % 3],
        "mixed": x[t // 2, (b + t) % 3],
        "folded": x[t % 3, (b + t) // 2],
    }
    for name, read in reads.items():
        ctx.output(name, read * x)
        ctx.output(f"d{name}", trl.grad(read * x, x))


@pattern("bt", B=2, T=6)
def windows_of_itself(ctx, b, B, t, T):
    x = trl.data(values(2, 6), domain=(b, t))
    kinds = {
        "sum": lambda y: y[b, t : t + 2].sum(axis=0) * 0.5,
        "max": lambda y: y[b, t : t + 2].max(axis=0) * 0.5,
        "discounted": lambda y: y[b, t : t + 2].discounted_sum(0.9),
    }
    for name, step in kinds.items():
        y = trl.like(x)
        y[t < 2] = x
        y[b, t + 2] = step(y)
        ctx.output(name, y)
        ctx.output(f"d{name}", trl.grad(y * y, x))
