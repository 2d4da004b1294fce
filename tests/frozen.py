"""Forty programs with golden results, memory and refusals in `golden/frozen.json`.

They protect refactorings of the compiler. Outputs, parameters and draws never change. Peaks and
refusals change only with a reason in the commit.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from zlib import crc32

import numpy as np

import timerl_nb as trl
from tests import patterns_conditional, patterns_indexing  # noqa: F401  (enter their programs)
from tests.actor_critic import actor_critic
from tests.episodes import cartpole
from tests.patterns import PATTERNS
from tests.pixels import pixels
from tests.reinforce import reinforce
from tests.two_devices import convolutions

SEED: Final = 5
SMALL: Final = {"B": 2, "I": 3, "T": 12}
EXECUTORS: Final = ("interpret", "xla")


@dataclass(frozen=True)
class Frozen:
    """One program of the golden file."""

    write: Callable[[], trl.Context]
    bounds: Mapping[str, Any] = field(default_factory=lambda: SMALL)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def compile(self, executor: str) -> trl.Program:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", trl.errors.TimeRLWarning)
            return self.write().compile(self.bounds, trl.Options(executor=executor, **self.options))


def _pattern(name: str) -> Frozen:
    return Frozen(PATTERNS[name].context, PATTERNS[name].bounds)


# --- programs of this file -----------------------------------------------------------------------


def series(t: Any, n: int = 12) -> trl.RecurrentTensor:
    return trl.data(np.linspace(-1, 1, n, dtype=np.float32), domain=(t,)).named("x")


def hosted() -> trl.Context:
    """Host functions with a resource, between parts on the device."""

    def add(total: list[float], at: tuple[int, ...], x: np.ndarray[Any, Any]) -> np.float32:
        total.append(float(x.sum()))
        return np.float32(sum(total))

    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        total = trl.Resource(lambda sizes, seed: list[float](), name="total")
        x = trl.random.normal((3,), domain=(i, t), stream="x")
        y = trl.udf(add, (x * 2).tanh(), out="f32", resource=total).named("y")
        ctx.output("y", y)
        ctx.output("later", (y[i, t:T].sum(axis=0) * 0.5).tanh())
    return ctx


def halves() -> trl.Context:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims
        x = trl.random.normal((8,), domain=(b, t), stream="x").cast("bf16")
        s = trl.tensor((8,), domain=(b, t), dtype="bf16").named("s")
        s[b, 0] = x[b, 0]
        s[b, t + 1] = (s * 0.5 + x).tanh()
        ctx.output("s", s)
        ctx.output("means", s[b, t:T].mean(axis=0).cast("f16"))
    return ctx


def past() -> trl.Context:
    """Past frames, read at random positions."""
    with trl.Context("b", "t") as ctx:
        (b, _), (t, T) = ctx.dims
        x = trl.random.normal((2,), domain=(b, t), stream="x")
        frames = x.window(4, over=t, fill=0)
        kept = x[b, trl.max(t - 5, 0) : t + 1]
        at = trl.random.bits((), domain=(b, t), stream="at").cast("i32").abs() % trl.min(t + 1, 6)
        ctx.output("frames", frames.sum(axis=0))
        ctx.output("one", kept.take(at, axis=0))
        ctx.output("ahead", x[b, t : trl.min(t + 3, T)].max(axis=0))
    return ctx


def targets() -> trl.Context:
    """A network and its slowly updated target network, with a loss of both."""
    with trl.Context("b", "i") as ctx:
        (b, _), (i, _) = ctx.dims
        x = trl.random.normal((4,), domain=(b, i), stream="x")
        net, slow = (trl.nn.MLP((4, 8, 2), domain=(i,), name=n) for n in ("net", "slow"))
        for mine, theirs in zip(slow.params, net.params, strict=True):
            mine.update(mine * 0.9 + theirs.next * 0.1)
        loss = (net(x) - 0.5 * slow(x) - 1.0).square().mean(axis=0).mean(over=b)
        loss.backward()
        trl.optim.Adam(net.params, lr=1e-2).step()
        ctx.output("loss", loss)
    return ctx


# --- refusals ------------------------------------------------------------------------------------


def outside() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("y", series(t)[t + 1] * 2)
    return ctx


def circle() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x, y = trl.tensor((), domain=(t,)).named("x"), trl.tensor((), domain=(t,)).named("y")
        x[t] = y + 1.0
        y[t] = x[t:T].sum(axis=0)
        ctx.output("y", y)
    return ctx


def shapes() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("y", trl.data(np.ones((12, 3)), domain=(t,)) + trl.constant(np.ones(4)))
    return ctx


def left_out() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.tensor((), domain=(t,)).named("x")
        x[t + 1] = x * 0.5
        ctx.output("x", x)
    return ctx


def overlapping() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,)).named("x")
        x[t <= 5] = trl.constant(0.0)
        x[t >= 5] = trl.constant(1.0)
        ctx.output("x", x)
    return ctx


def empty() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        ctx.output("y", series(t)[0:t].max(axis=0))
    return ctx


def ended(window: int | None, **options: Any) -> Frozen:
    """Episodes that end at a condition of the program."""

    class _Ended(Frozen):
        def compile(self, executor: str) -> trl.Program:
            ctx, done = cartpole(window)
            bounds = {"B": 2, "I": 3, "T": trl.until(done, at_most=9)}
            return ctx.compile(bounds, trl.Options(executor=executor, **self.options))

    return _Ended(partial(trl.Context), options=options)


def synthetic(of: Callable[..., trl.Context], **parts: Any) -> Callable[[], trl.Context]:
    return lambda: of(trl.env.make("synthetic", obs_shape=(3,)), hidden=(4,), **parts)


_PATTERNS = (
    "several_slices",
    "four_dimensions",
    "gradients_of_lengths_that_vary",
    "conditional_branches",
    "learning_now_and_then",
    "nested_recurrence",
    "random_draws",
    "adam_with_schedule",
    "integers_and_booleans",
    "left_sides_that_leave_points_out",
    "branches_of_slices",
    "windows_of_itself",
)
PROGRAMS: Final[Mapping[str, Frozen]] = {
    **{name: _pattern(name) for name in _PATTERNS},
    "monte carlo": Frozen(partial(reinforce, hidden=())),
    "n-step": Frozen(partial(reinforce, 5, hidden=())),
    "average over time": Frozen(
        partial(reinforce, 5, hidden=(), average_over_time=True, optimizer=trl.optim.SGD, lr=0.1),
        {"B": 2, "I": 3, "T": 24},
    ),
    "actor-critic": Frozen(partial(actor_critic, hidden=())),
    "reinforce": Frozen(synthetic(trl.algorithms.reinforce, steps=4)),
    "ppo": Frozen(synthetic(trl.algorithms.ppo)),
    "clipped ppo": Frozen(
        partial(trl.algorithms.clipped_ppo, epochs=2, minibatches=2, hidden=(4,)),
        {"B": 2, "I": 2, "T": 8},
    ),
    "unfused": Frozen(partial(reinforce, hidden=()), options={"fuse": False}),
    "step by step": Frozen(partial(reinforce, 5, hidden=(8,)), options={"vectorize": ("b",)}),
    "by points": Frozen(
        partial(reinforce, hidden=(8,)), options={"stores": "point", "vectorize": False}
    ),
    "apart": Frozen(partial(reinforce, hidden=(8,)), options={"donate": False}),
    "in blocks": Frozen(pixels, {"B": 4, "I": 3, "T": 24}, {"incrementalize": {"t": 5}}),
    "recomputed": Frozen(
        pixels, {"B": 4, "I": 3, "T": 24}, {"incrementalize": 6, "rematerialize": True}
    ),
    "swapped": Frozen(
        pixels, {"B": 16, "I": 3, "T": 12}, {"vectorize": ("b",), "device_memory": 47_866}
    ),
    "two turns": Frozen(partial(pixels, 3), options={"fuse_iterations": 2}),
    "episodes": ended(None),
    "episodes, n-step": ended(3, vectorize=("b",)),
    "hosted": Frozen(hosted, {"I": 2, "T": 6}),
    "halves": Frozen(halves, {"B": 3, "T": 9}),
    "past": Frozen(past, {"B": 3, "T": 11}),
    "targets": Frozen(targets, {"B": 8, "I": 4}),
    "convolutions": Frozen(convolutions, {"B": 4, "I": 3, "T": 3}),
    # refused
    "outside": Frozen(outside, {"T": 12}),
    "circle": Frozen(circle, {"T": 12}),
    "shapes": Frozen(shapes, {"T": 12}),
    "left out": Frozen(left_out, {"T": 12}),
    "overlapping": Frozen(overlapping, {"T": 12}),
    "empty": Frozen(empty, {"T": 12}),
    "too little": Frozen(pixels, {"B": 16, "I": 3, "T": 12}, {"device_memory": 500, "swap": False}),
}


# --- golden values -------------------------------------------------------------------------------


def held(x: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the golden form of an array.

    Discrete arrays are stored in full or as a checksum. Other arrays are stored as some elements
    and a weighted sum, which detects exchanged elements.
    """
    kind: dict[str, Any] = {"dtype": str(x.dtype), "shape": list(x.shape)}
    if x.dtype.kind in "biu":
        return {**kind, "crc": crc32(np.ascontiguousarray(x).tobytes())}
    flat = np.ravel(x).astype(np.float64)
    some = flat[:: max(1, flat.size // 5)][:6]
    weighted = float(np.nansum(flat * np.cos(np.arange(flat.size))))
    return {**kind, "some": [_short(v) for v in some], "weighted": _short(weighted)}


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def observed(name: str) -> dict[str, Any]:
    """Return the results of a program by both executors."""
    found: dict[str, Any] = {}
    for executor in EXECUTORS:
        try:
            program = PROGRAMS[name].compile(executor)
        except trl.errors.TimeRLError as error:
            found[executor] = {
                "refused": type(error).__name__,
                "what": error.what,
                "evidence": [re.sub(r"(?<=\.py):\d+", "", line) for line in error.evidence],
                "hint": error.hint,
            }
            continue
        result = program.execute(seed=SEED, progress=False)
        found[executor] = {
            "peak": program.memory.peak,
            "held": result.memory.peak,
            "host": program.memory.timeline().host_peak,
            "outputs": {k: held(np.asarray(v)) for k, v in result.items()},
            "parameters": {k: held(np.asarray(v)) for k, v in result.parameters.items()},
            "lengths": {k: held(np.asarray(v)) for k, v in result.lengths.items()},
        }
    return found
