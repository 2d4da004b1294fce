"""Programs on two devices compared with one device, as JSON; runs in a process with two devices."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import timerl_nb as trl
from tests.actor_critic import actor_critic
from tests.episodes import cartpole
from tests.failing import are_same, failing, stopped
from tests.reinforce import reinforce
from tests.unit.ir.test_turns import collecting, endless, weights, written
from tests.unit.loops.test_tiles import centred, compiled, iterations, noisy, plain
from timerl_nb.base.errors import BudgetError, TimeRLError
from timerl_nb.runtime.xla.execution.lowered_run import LoweredRun
from timerl_nb.runtime.xla.execution.precompiled_call_cache import read_reported_temporaries

SEED = 5
SMALL: dict[str, Any] = {
    "hidden": (6,),
    "batch": 5,
    "steps": 2,
    "buffer_size": 12,
    "learning_starts": 4,
}


def convolutions() -> trl.Context:
    """Gradients of a convolution over batch and time."""
    images = np.random.default_rng(0).normal(size=(4, 3, 2, 8, 8)).astype(np.float32)
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        x = trl.data(images, domain=(b, t))
        layer = trl.nn.Conv2d(2, 4, 3, stride=2, padding=1, domain=(i,))
        layer(x).relu().square().sum().mean(over=(b, t)).backward()
        trl.optim.SGD(layer.params, lr=0.1).step()
    return ctx


def programs() -> dict[str, trl.Program]:
    bounds = {"B": 8, "I": 3, "T": 30}
    ended, done = cartpole(None)
    given: dict[str, tuple[trl.Context, dict[str, Any]]] = {
        "Monte Carlo": (reinforce(), bounds),
        "5-step": (reinforce(5), bounds),
        "actor and critic": (actor_critic(), bounds),
        "episodes": (ended, {"B": 4, "I": 3, "T": trl.until(done, at_most=40)}),
        "convolutions": (convolutions(), {"B": 4, "I": 3, "T": 3}),
        "replay": (trl.algorithms.dqn("CartPole-v1", **SMALL), {"B": 8, "T": 24}),
    }
    options = trl.Options(executor="xla", devices=2)
    return {name: ctx.compile(actual, options) for name, (ctx, actual) in given.items()}


def distance(have: trl.Result, want: trl.Result) -> float:
    """Return the difference of two results in units of tolerance; at most 1 if they agree."""
    return max(apart(have, want), apart(have.parameters, want.parameters))


def apart(have: Mapping[str, Any], want: Mapping[str, Any]) -> float:
    pairs = [(have[k], x) for k, x in want.items()]
    far = [float((np.abs(x - y) / (2e-5 + 2e-4 * np.abs(y))).max()) for x, y in pairs]
    return max(far, default=0.0)


def compared(two: trl.Program) -> dict[str, Any]:
    one = two.with_options(devices=1)
    lowered, single = two.executable.xla_program, one.executable.xla_program
    assert lowered is not None and lowered.shards is not None and single is not None
    want, have, again = one.execute(SEED), two.execute(SEED), two.execute(SEED)
    fused = two.with_options(fuse_iterations=2).execute(SEED)
    text = "\n".join(lowered.hlo(call) for call in range(1, len(lowered.calls) + 1))
    run = LoweredRun(lowered, SEED)
    run.complete()
    return {
        "how": two.executable.how,
        "bytes": [single.nbytes, lowered.nbytes, lowered.nbytes_each],
        "distances": [distance(have, want), distance(fused, want)],
        "repeated": all(np.array_equal(again[k], have[k]) for k in have),
        "carried": shapes("\n".join(re.findall(r"= \((.*)\) while\(", text))),
        "buffers": {
            b.name: (b.array_shape, lowered.shards.axis(b)) for b in lowered.layout.buffers.values()
        },
        "held": {
            name: [part.data.shape for part in array.addressable_shards]
            for name, array in run._state.items()
        },
        "said": told(text),
        "text": str(two.executable),
        "communication": str(two.executable.communication),
    }


def least_and_greatest() -> dict[str, Any]:
    """Sharded minima and maxima where one part has no elements."""
    found = dict[str, Any]()
    for odd in (1, 6):
        numbers = np.arange(24, dtype=np.float32).reshape(8, 3)
        numbers[odd, 0] = np.nan
        with trl.Context("b") as ctx:
            ((b, B),) = ctx.dims
            x = trl.data(numbers, domain=(b,)) * 2
            ctx.output("greatest", x.max(over=b))
            ctx.output("least", x.min(over=b))
            ctx.output("each", x[0:B])
        program = ctx.compile({"B": 8}, trl.Options(executor="xla", devices=2))
        assert "divided along b" in program.executable.how
        result = program.execute()
        names = "greatest", "least"
        found[f"{odd}"] = {name: [repr(float(one)) for one in result[name]] for name in names}
    return found


def told(text: str) -> list[str]:
    """Communication of arrays between devices."""
    return sorted(set(re.findall(r" (all-[a-z-]+|collective-[a-z-]+)\(", text)))


def shapes(text: str) -> list[tuple[int, ...]]:
    found = re.findall(r"(?:f32|s32|pred)\[([\d,]+)\]", text)
    return sorted({tuple(map(int, shape.split(","))) for shape in found})


def refusal(make: Callable[[], object]) -> str:
    try:
        make()
    except TimeRLError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def failures(two: trl.Program) -> dict[str, Any]:
    """Failures before a call and inside it: released resources, and whether the next run works."""
    whole, found = two.execute(SEED), dict[str, Any]()
    for within in (False, True):
        with failing(two, at=1, within=within, error=ValueError("no")):
            run = two.start(SEED)
            run.wait()
        before = stopped(two, run.turn, SEED)
        found["within" if within else "ahead"] = {
            "failed": repr(run.error),
            "refused": refusal(run.so_far),
            "left": within or are_same(run.so_far(), before),
            "again": are_same(two.execute(SEED), whole),
        }
    return found


def least(two: trl.Program) -> dict[str, Any]:
    """The budget named by a refusal suffices, and a byte less does not."""
    named: list[int | None] = []
    said = refusal(lambda: two.with_options(device_memory=1))
    for budget in (1, 0):
        try:
            two.with_options(device_memory=budget or (named[0] or 1) - 1)
        except BudgetError as error:
            named.append(error.needed)
    made = two.with_options(device_memory=named[0])
    lowered = made.executable.xla_program
    assert lowered is not None
    return {
        "named": named,
        "said": said,
        "needed": made.memory.needed,
        "shares": made.memory.shares,
        "parts": [lowered.nbytes_each, made.memory.temporaries_each, made.memory.constants],
        "text": str(made.memory),
        "alone": refusal(lambda: two.with_options(devices=1, device_memory=named[0])),
        "how": made.executable.how,
        "distance": distance(made.execute(SEED), two.execute(SEED)),
    }


def resumed(two: trl.Program) -> dict[str, Any]:
    """Return the distance between an interrupted run resumed on other devices and an uninterrupted one."""
    one, found = two.with_options(devices=1), dict[str, Any]()
    for name, before, after in (("2 to 2", two, two), ("1 to 2", one, two), ("2 to 1", two, one)):
        with tempfile.TemporaryDirectory() as folder:
            with before.start(SEED, checkpoint=folder, every=1, paused=True) as run:
                run.wait()
                run.step()
                run.wait()
            found[name] = distance(after.resume(folder), after.execute(SEED))
    return found


def tiled() -> dict[str, Any]:
    """Tiled loops on each device; the last tile is shorter."""
    found, how = dict[str, Any](), {"devices": 2, "tile": {"b": 3}}
    simulated = compiled(noisy, False).with_bounds({"B": 14, "T": 6})
    for name, whole in (("noisy", simulated), ("iterations", iterations(14))):
        # a loop split across calls cannot be tiled
        two = whole.with_options(**how, fuse_iterations=2 if name == "iterations" else 1)
        lowered, want = two.executable.xla_program, whole.execute(SEED)
        assert lowered is not None
        found[name] = {
            "tiles": [str(tile) for tile in two.executable.tiles],
            "how": two.executable.how,
            "distance": distance(two.execute(SEED), want),
            "said": told("\n".join(map(lowered.hlo, range(1, len(lowered.calls) + 1)))),
        }
    ctx, bounds = written(collecting)
    turns = endless(ctx, {**bounds, ctx.dims[0][1]: 14}, "xla")
    acting = turns.with_options(**how)
    kernel = simulated.with_options(**how, tile_kernel="interpret")
    whole = simulated.with_options(devices=2, tile={"b": 7})
    forbidden = compiled(centred, False).with_bounds({"B": 14}).with_options(**how)
    return found | {
        "kernel": [kernel.executable.how, distance(kernel.execute(SEED), simulated.execute(SEED))],
        "turns": [
            acting.executable.how,
            [apart(*pair) for pair in zip(*map(few, (acting, turns)), strict=True)],
        ],
        "collected": collected(),
        "hosted": hosted(),
        "whole": whole.stages["tile"].summary,
        "forbidden": str(forbidden.stages["tile"].artifact),
    }


def collected() -> dict[str, Any]:
    """Collected steps on both devices, compared with one."""
    sharded, scan = (
        trl.collect("CartPole-v1", trl.policies.random, envs=6, steps=4, how=how)
        for how in ("sharded", "scan")
    )
    batch, want = sharded.next(), scan.next()
    return {
        "apart": apart(
            *(
                {n: np.asarray(getattr(x, n)) for n in ("obs", "last_obs", "reward")}
                for x in (batch, want)
            )
        ),
        "devices": len(batch.obs.devices()),
        "counts": vars(sharded.counts),
        "odd": refusal(
            lambda: trl.collect("CartPole-v1", trl.policies.random, envs=7, how="sharded")
        ),
    }


def hosted() -> list[Any]:
    """A host function with sharded arguments; every device receives its result."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, _), (t, T) = ctx.dims
        x = trl.tensor((3,), domain=(b, i, t))
        least = trl.udf(
            lambda seen: seen.min(axis=0), x[0:B, i, T - 1], out=x[0, i, 0], name="least"
        )
        x[b, 0, 0] = trl.random.normal((3,), domain=(b,))
        x[b, i + 1, 0] = x[b, i, T - 1] - least
        x[b, i, t + 1] = x.tanh() + trl.random.normal((3,), domain=(b, i, t))
        ctx.output("x", x)
    two = ctx.compile({"B": 4, "I": 3, "T": 5}, trl.Options(executor="xla", devices=2))
    one = two.with_options(devices=1)
    return [two.executable.how, distance(two.execute(SEED), one.execute(SEED))]


def few(program: trl.Program) -> list[dict[str, Any]]:
    """Iterations that receive weights and return outputs."""
    with program.turns(SEED, given=weights(3)) as turns:
        return list(turns)


def held_in_blocks() -> list[int]:
    """XLA's memory for one device, for each of two with as many points, and the shares planned for them."""
    one = compiled(lambda b, t, T: plain(b, t, T).sum(over=t), {"b": 1500}).with_bounds({"B": 2000})
    two = one.with_bounds({"B": 4000}).with_options(devices=2)
    stated = []
    for program in (one, two):
        lowered = program.executable.xla_program
        assert lowered is not None
        stated += [read_reported_temporaries(lowered.xla_executable()), lowered.nbytes_each]
    return stated


def main() -> None:
    two = programs()
    plain = two["Monte Carlo"]
    refusals = {
        "too many": refusal(lambda: plain.with_options(devices=3)),
        "uneven": refusal(lambda: plain.with_bounds({"B": 7})),
        "fewer": refusal(lambda: plain.with_bounds({"B": 1})),
        "looped": refusal(lambda: plain.with_options(vectorize=("t",))),
        "interpreted": refusal(lambda: plain.with_options(executor="interpret")),
    }
    compare = {name: compared(program) for name, program in two.items()}
    fused = plain.with_options(fuse_iterations=2)
    failed = {"one by one": failures(plain), "two at once": failures(fused)}
    small = least(two["convolutions"].with_options(incrementalize=False))  # tiles would suffice
    found = {"programs": compare, "refusals": refusals, "failures": failed, "least": small}
    found["resumed"] = resumed(plain)
    found["tiled"], found["held"] = tiled(), held_in_blocks()
    found["nan"] = least_and_greatest()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
